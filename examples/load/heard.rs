//! What a client hears: every byte of the model's voice, when it came, and the messages that matter.
//!
//! Latency down is from the delta's sending (or from when its audio is due, if that is later) to the arrival of its first
//! audio. A bridge lets audio leave [`LEAD`] ahead of being heard, so a delta whose turn is still being heard is due when
//! less than that is left. The first delta of a turn counts apart: bridges may hold it on purpose, once audio has come
//! too late to be heard without a gap; as long as it has not, it counts as the others do.

use std::{collections::VecDeque, rc::Rc};

use crate::{
    client::Client,
    options::Way,
    sound::{SPOKEN_SECOND, Sound, VARIANTS},
    track::{Counts, Track},
    wire::{self, Inbox},
    world::World,
};

/// How far ahead of being heard audio leaves (`lead_ms` of the profile), µs.
const LEAD: u64 = 300_000;
/// Audio that comes later than so long before it is to be heard may have been late for the bridge, µs.
const JUST_IN_TIME: u64 = 5_000;
/// Bytes of everything the model can say, before it begins again.
const ROUND: u64 = (2 * VARIANTS * SPOKEN_SECOND) as u64;

/// A delta on its way.
#[derive(Debug)]
struct Delta {
    /// Its first sample.
    place: u64,
    sent_at: u64,
    first: bool,
}

/// One client's ear for the model.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    track: Track,
    /// Samples (through a relay: messages) that the model has said to this client.
    said: u64,
    under_way: VecDeque<Delta>,
    /// Until when there is something to hear.
    heard_until: u64,
    /// Its bridge may hold the beginnings of turns.
    holds: bool,
}

impl Heard {
    /// The model says another second (or message).
    pub(crate) fn say(&mut self, samples: u64, sent_at: u64, first: bool) {
        self.under_way.push_back(Delta { place: self.said, sent_at, first });
        self.said += samples;
    }

    /// Which of the model's seconds is next.
    pub(crate) const fn next_second(&self) -> u64 {
        self.said / SPOKEN_SECOND as u64
    }

    /// The model makes a mistake: it leaves out a second that it should have said.
    pub(crate) const fn skip_second(&mut self) {
        self.said += SPOKEN_SECOND as u64;
    }

    /// What became of it all.
    pub(crate) fn counts(&self) -> Counts {
        self.track.counts(self.said, 0)
    }

    /// Whether all that was said has come.
    pub(crate) const fn is_complete(&self) -> bool {
        self.track.next >= self.said
    }

    fn audio(&mut self, world: &World, now: u64, payload: &[u8]) {
        let samples = payload.len() as u64 / 2;
        if !is_said(&world.sound, self.track.next, payload) {
            match found(&world.sound, self.track.next, payload) {
                Some(place) => self.track.next = place,
                None => return self.track.take_unknown(samples),
            }
        }
        self.time(world, now, samples);
        self.track.take(samples);
    }

    /// Measures the first audio of each delta.
    fn time(&mut self, world: &World, now: u64, samples: u64) {
        let length = samples * 1_000_000 / SPOKEN_SECOND as u64;
        let end = self.track.next + samples;
        while self.under_way.front().is_some_and(|delta| delta.place < end) {
            let Some(delta) = self.under_way.pop_front() else { return };
            let waited = now.saturating_sub(delta.sent_at);
            let due = self.heard_until.saturating_sub(LEAD.saturating_sub(length)).max(delta.sent_at);
            let mut tally = world.tally.borrow_mut();
            if tally.measuring.get() && delta.first {
                tally.turn.add(waited);
            }
            if tally.measuring.get() && !(delta.first && self.holds) {
                // One that is early is not paced at all.
                tally.down.add(now.checked_sub(due).unwrap_or(waited));
            }
            self.holds |= !delta.first && self.heard_until < now + JUST_IN_TIME;
        }
        self.heard_until = self.heard_until.max(now) + length;
    }

    /// The rest of the turn was taken back.
    fn interrupted(&mut self) {
        self.under_way.clear();
        self.heard_until = 0;
        self.track.skip_to(self.said);
    }

    /// A long message came through a relay.
    fn message(&mut self, world: &World, now: u64, number: u64) {
        self.track.next = number;
        self.track.take(1);
        if let Some(delta) = self.under_way.pop_front() {
            let mut tally = world.tally.borrow_mut();
            if tally.measuring.get() {
                tally.down.add(now.saturating_sub(delta.sent_at));
            }
        }
    }
}

fn is_said(sound: &Sound, place: u64, payload: &[u8]) -> bool {
    let at = (2 * place % ROUND) as usize;
    let first = payload.len().min(sound.spoken.len() - at);
    let (head, tail) = payload.split_at(first);
    sound.spoken[at..at + first] == *head && sound.spoken.get(..tail.len()) == Some(tail)
}

/// Where this is, if it is anything the model says: the place nearest to the expected one.
fn found(sound: &Sound, expected: u64, payload: &[u8]) -> Option<u64> {
    let head = payload.get(..16.min(payload.len()))?;
    let at =
        sound.spoken.chunks(2).enumerate().position(|(at, _)| sound.spoken[2 * at..].starts_with(head))?
            as u64;
    let round = ROUND / 2;
    let ahead = (at + round - expected % round) % round;
    let place = if ahead <= round / 2 { expected + ahead } else { (expected + ahead).checked_sub(round)? };
    is_said(sound, place, payload).then_some(place)
}

/// Reads all that comes to a client.
pub(crate) async fn listen(world: Rc<World>, client: Rc<Client>, mut inbox: Inbox) {
    while let Some(frame) = inbox.frame().await {
        let now = world.now();
        let payload = inbox.payload(&frame);
        match frame.opcode {
            wire::BINARY => client.heard.borrow_mut().audio(&world, now, payload),
            wire::TEXT if world.options.path == Way::Relay => {
                let number = crate::stub::number(payload).unwrap_or(u64::MAX / 2);
                client.heard.borrow_mut().message(&world, now, number);
            }
            wire::TEXT => message(&world, &client, &String::from_utf8_lossy(payload)),
            wire::PING => client.pong(&world, payload),
            _ => {}
        }
    }
    client.gone.set(true);
    if !world.leaving.get() {
        world.tally.borrow_mut().closed_early += 1;
    }
}

fn message(world: &World, client: &Client, words: &str) {
    client.ready.set(true);
    let says = |what: &str| words.contains(what);
    if says("\"tts.speaking_end\"") && (says("\"cancelled\":true") || says("\"cancelled\": true")) {
        world.tally.borrow_mut().interrupted_turns += 1;
        client.heard.borrow_mut().interrupted();
    } else if says("\"transcript.final\"") {
        world.tally.borrow_mut().transcripts += 1;
        client.utterances.borrow_mut().transcript(client.place(world), words);
    } else if says("\"error\"") || says("\"session.frames_dropped\"") || says("\"session.rate_limit\"") {
        world.tally.borrow_mut().error(words);
    }
}
