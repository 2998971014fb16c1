//! Counts what the client's `complete` waits for: the final transcript and the spoken texts before it.
//!
//! The session answers each request for a final transcript by exactly one that is `finalized`, and each flush by one `flushed`,
//! both in order. So counting is enough.

use std::collections::VecDeque;

use crate::error::{Error, ErrorKind};

/// Most requests that wait at a time. The session keeps as many markers for final transcripts.
const WAITING_MAX: usize = 32;

/// Requests for finals and flushes, asked for or answered so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    finals: u64,
    flushes: u64,
}

impl Progress {
    const fn covers(self, other: Self) -> bool {
        self.finals >= other.finals && self.flushes >= other.flushes
    }
}

/// The client's requests to complete what it sent, and the answers so far.
#[derive(Debug, Default)]
pub(super) struct Completions {
    asked: Progress,
    answered: Progress,
    waiting: VecDeque<Progress>,
}

impl Completions {
    /// Notes that the client asked for a final transcript.
    pub(super) const fn ask_final(&mut self) {
        self.asked.finals += 1;
    }

    /// Notes that the client flushed its text.
    pub(super) const fn ask_flush(&mut self) {
        self.asked.flushes += 1;
    }

    /// Notes that the client discarded all text: no earlier flush is answered.
    pub(super) const fn clear(&mut self) {
        self.answered.flushes = self.asked.flushes;
    }

    /// Notes that the client wants to know when everything until now is complete.
    ///
    /// # Errors
    /// Too many earlier requests wait.
    pub(super) fn ask(&mut self) -> Result<(), Error> {
        if self.waiting.len() >= WAITING_MAX {
            let detail = format!("more than {WAITING_MAX} requests to complete wait for their answers");
            return Err(Error::new(ErrorKind::Invalid, detail));
        }
        self.ask_final();
        self.ask_flush();
        self.waiting.push_back(self.asked);
        Ok(())
    }

    /// Notes a final transcript that the client asked for.
    pub(super) const fn answer_final(&mut self) {
        self.answered.finals += 1;
    }

    /// Notes that this flush was answered, counted from 0.
    pub(super) fn answer_flush(&mut self, sequence: u32) {
        self.answered.flushes = self.answered.flushes.max(u64::from(sequence) + 1);
    }

    /// Takes a request of which everything is complete.
    pub(super) fn take_complete(&mut self) -> bool {
        let is_complete = self.waiting.front().is_some_and(|asked| self.answered.covers(*asked));
        is_complete && self.waiting.pop_front().is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_complete_after_its_final_and_its_flush() {
        let mut completions = Completions::default();
        completions.ask_flush();
        completions.ask().unwrap();
        completions.answer_final();
        completions.answer_flush(0);
        assert!(!completions.take_complete(), "the second flush is missing");
        completions.answer_flush(1);
        assert!(completions.take_complete() && !completions.take_complete());
        completions.ask().unwrap();
        completions.clear();
        assert!(!completions.take_complete(), "the final is missing");
        completions.answer_final();
        assert!(completions.take_complete());
    }

    #[test]
    fn waiting_requests_are_bounded() {
        let mut completions = Completions::default();
        assert_eq!((0..100).filter(|_| completions.ask().is_ok()).count(), WAITING_MAX);
    }
}
