//! Whether all that a user says is transcribed, once and in order: the stub answers every utterance with the place in the
//! loop that it heard, and here that is held against what was said.

use crate::{
    client::Client,
    sound::{BLOCK, LOOP, SECOND},
    track::{Counts, Track},
    world::World,
};

/// How the stub begins what it understood.
pub(crate) const HEARD: &str = "heard ";
/// What is said so shortly before the end may not have been understood yet, samples at 16 kHz.
const LATELY: u64 = 2 * SECOND as u64;

/// What of one client's speech came back as transcripts.
#[derive(Debug, Default)]
pub(crate) struct Utterances {
    heard: Vec<std::ops::Range<u64>>,
    track: Track,
}

impl Utterances {
    /// A transcript names the stretch of the loop it is of; the client is at `place` of its loops now.
    pub(crate) fn transcript(&mut self, place: u64, words: &str) {
        let Some((_, rest)) = words.split_once(HEARD) else { return };
        let mut numbers =
            rest.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
        let (Some(from), Some(length)) = (numbers.next(), numbers.next()) else { return };
        // The last time that this was said.
        let round = LOOP as u64;
        let end = from % round + length;
        let Some(behind) = place.checked_sub(end) else { return };
        let from = behind / round * round + from % round;
        self.track.next = from;
        self.track.take(length);
        self.heard.push(from..from + length);
    }

    /// What became of what was said clearly, by blocks; a start or an end in the middle of speech does not count.
    pub(crate) fn counts(&self, world: &World, client: &Client) -> Counts {
        let begins = (client.begins + LOOP) as u64;
        let order = self.track.counts(0, u64::MAX);
        let mut counts =
            Counts { duplicated: order.duplicated, reordered: order.reordered, ..Counts::default() };
        let last = client.place(world).saturating_sub(LATELY);
        for place in (begins + SECOND as u64..last).step_by(BLOCK) {
            if world.sound.is_loud(place) {
                counts.sent += BLOCK as u64;
                // Speech that goes on at the end is not over.
                let heard = self.heard.iter().any(|range| range.contains(&place));
                let may_go_on = (place..last).step_by(BLOCK).all(|later| !world.sound.is_quiet(later));
                counts.received += if heard { BLOCK as u64 } else { 0 };
                counts.tail += if !heard && may_go_on { BLOCK as u64 } else { 0 };
                counts.lost += if heard || may_go_on { 0 } else { BLOCK as u64 };
            }
        }
        counts
    }
}
