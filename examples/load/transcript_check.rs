//! Transcript check: all speech of a user must be transcribed, once and in order. The stub answers every utterance with
//! the loop position that it received; this module compares that with the audio sent.

use crate::{
    client::Client,
    run_context::RunContext,
    sample_tracker::{SampleCounts, SampleTracker},
    test_audio::{BLOCK_SAMPLES, LOOP_SAMPLES, SECOND_SAMPLES},
};

/// Prefix of the stub's transcripts.
pub(crate) const TRANSCRIPT_PREFIX: &str = "heard ";
/// Speech this close to the end may not be transcribed yet, samples at 16 kHz.
const TAIL_SAMPLES: u64 = 2 * SECOND_SAMPLES as u64;

/// Transcribed parts of one client's speech.
#[derive(Debug, Default)]
pub(crate) struct TranscriptCheck {
    transcribed: Vec<std::ops::Range<u64>>,
    tracker: SampleTracker,
}

impl TranscriptCheck {
    /// Records a transcript, which names its stretch of the loop; the client is at `place` of its loops.
    pub(crate) fn add_transcript(&mut self, position: u64, text: &str) {
        let Some((_, rest)) = text.split_once(TRANSCRIPT_PREFIX) else { return };
        let mut numbers =
            rest.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u64>().ok());
        let (Some(from), Some(length)) = (numbers.next(), numbers.next()) else { return };
        // The last time that this stretch was sent.
        let round = LOOP_SAMPLES as u64;
        let end = from % round + length;
        let Some(behind) = position.checked_sub(end) else { return };
        let from = behind / round * round + from % round;
        self.tracker.next_position = from;
        self.tracker.receive(length);
        self.transcribed.push(from..from + length);
    }

    /// Counts clearly audible blocks. A start or end within speech does not count.
    pub(crate) fn counts(&self, context: &RunContext, client: &Client) -> SampleCounts {
        let begins = (client.loop_offset + LOOP_SAMPLES) as u64;
        let order = self.tracker.counts(0, u64::MAX);
        let mut counts = SampleCounts {
            duplicated: order.duplicated,
            reordered: order.reordered,
            ..SampleCounts::default()
        };
        let last = client.loop_position(context).saturating_sub(TAIL_SAMPLES);
        for position in (begins + SECOND_SAMPLES as u64..last).step_by(BLOCK_SAMPLES) {
            if context.sound.is_loud(position) {
                counts.sent += BLOCK_SAMPLES as u64;
                // Speech that continues at the end is incomplete.
                let heard = self.transcribed.iter().any(|range| range.contains(&position));
                let may_go_on =
                    (position..last).step_by(BLOCK_SAMPLES).all(|later| !context.sound.is_quiet(later));
                counts.received += if heard { BLOCK_SAMPLES as u64 } else { 0 };
                counts.tail += if !heard && may_go_on { BLOCK_SAMPLES as u64 } else { 0 };
                counts.lost += if heard || may_go_on { 0 } else { BLOCK_SAMPLES as u64 };
            }
        }
        counts
    }
}
