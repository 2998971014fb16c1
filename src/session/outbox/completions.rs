//! The client's requests to complete what it sent: each is answered after the final transcript and the spoken texts before it.
//!
//! The session answers each request for a final transcript that it accepts by exactly one that is `finalized`, and each flush by
//! one `flushed`, both in order. So counting is enough.

use std::collections::VecDeque;

use crate::vocabulary::ClientEvent;

/// Most requests that wait at a time.
pub(crate) const COMPLETIONS_MAX: usize = 32;

/// The answers that a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Awaited {
    /// Number of final transcripts since the session opened.
    finals: u64,
    /// Number of flushes since the session opened.
    flushes: u32,
}

/// Requests for finals and to complete, and the answers so far.
#[derive(Debug, Default)]
pub(crate) struct Completions {
    asked_finals: u64,
    sent_finals: u64,
    /// Flushes that were answered, or discarded.
    ended_flushes: u32,
    waiting: VecDeque<Awaited>,
}

impl Completions {
    /// Notes that the client asked for a final transcript, and will get it.
    pub(crate) const fn ask_final(&mut self) {
        self.asked_finals += 1;
    }

    /// Notes that the last final transcript that was asked for was refused.
    pub(crate) const fn withdraw_final(&mut self) {
        self.asked_finals = self.asked_finals.saturating_sub(1);
    }

    /// Final transcripts that the client asked for and did not get yet.
    pub(super) const fn pending_finals(&self) -> u64 {
        self.asked_finals.saturating_sub(self.sent_finals)
    }

    /// True if the client may ask to complete what it sent.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting.len() < COMPLETIONS_MAX
    }

    /// Notes that the client wants to know when everything until now is complete, all its flushes included.
    pub(crate) fn ask(&mut self, flushes: u32) {
        self.waiting.push_back(Awaited { finals: self.asked_finals, flushes });
    }

    /// Notes that this many flushes have ended, because the client discarded their texts.
    pub(crate) fn end_flushes(&mut self, flushes: u32) {
        self.ended_flushes = self.ended_flushes.max(flushes);
    }

    /// Notes a message to the client. Returns how many requests are complete with it.
    pub(super) fn note(&mut self, event: &ClientEvent) -> usize {
        match event {
            ClientEvent::TranscriptFinal { finalized: true, .. } => self.sent_finals += 1,
            ClientEvent::Flushed { sequence, .. } => self.end_flushes(sequence.saturating_add(1)),
            ClientEvent::Cleared { .. } => {}
            _ => return 0,
        }
        let is_complete =
            |awaited: &&Awaited| self.sent_finals >= awaited.finals && self.ended_flushes >= awaited.flushes;
        let complete = self.waiting.iter().take_while(is_complete).count();
        self.waiting.drain(..complete);
        complete
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::outbox::lockstep::empty_final;

    const fn flushed(sequence: u32) -> ClientEvent {
        ClientEvent::Flushed { sequence, request_id: None }
    }

    #[test]
    fn complete_is_what_was_asked_before() {
        let mut completions = Completions::default();
        completions.ask_final();
        completions.ask(2);
        assert_eq!(completions.note(&empty_final()), 0);
        assert_eq!(completions.note(&flushed(0)), 0, "the second flush is missing");
        assert_eq!(completions.note(&flushed(1)), 1);
        completions.ask_final();
        completions.ask(3);
        completions.end_flushes(3);
        assert_eq!(completions.note(&ClientEvent::Cleared { sequence: 0, request_id: None }), 0);
        assert_eq!((completions.pending_finals(), completions.note(&empty_final())), (1, 1));
        assert_eq!(completions.note(&flushed(3)), 0);
    }

    #[test]
    fn waiting_requests_are_bounded() {
        let mut completions = Completions::default();
        let mut asked = 0;
        while completions.has_room() {
            completions.ask(0);
            asked += 1;
        }
        assert_eq!(asked, COMPLETIONS_MAX);
    }
}
