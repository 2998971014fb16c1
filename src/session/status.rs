//! Where a session is, and where its audio went: derived, for operators.

use std::time::Duration;

use super::{
    Phase, Session,
    measurement::{State, Tally},
};
use crate::audio::SPEECH_RATE_HZ;

impl Session {
    /// Where it is.
    pub(crate) fn state(&self) -> State {
        if self.phase != Phase::Open {
            return State::Ending;
        }
        if let Some(state) = self.converse.as_ref().and_then(|converse| converse.state()) {
            return state;
        }
        if self.host.mouth.is_audible() {
            State::Speaking
        } else if self.ear.in_speech() {
            State::Listening
        } else if self.hear.is_queued() || self.speak.is_queued() {
            State::Queued
        } else if self.owes() || self.converse.as_ref().is_some_and(|converse| converse.is_speaking()) {
            State::Answering
        } else {
            State::Idle
        }
    }

    /// Where its audio went so far.
    pub(crate) fn tally(&self) -> Tally {
        let waiting = Duration::from_millis(self.hear.backlog_ms());
        let tally = Tally {
            dropped_late: Duration::from_millis(self.hear.dropped_ms()),
            waiting,
            sent: self.host.mouth.sent(),
            ..self.tally
        };
        let Some(streamed) = self.streamed() else { return tally };
        Tally {
            appended: length(streamed.appended),
            hushed: length(streamed.hushed),
            dropped_late: tally.dropped_late + length(streamed.dropped),
            waiting: waiting.max(length(streamed.waiting)),
            ..tally
        }
    }
}

/// Length of samples at 16 kHz.
const fn length(samples: u64) -> Duration {
    Duration::from_nanos(samples * (1_000_000_000 / SPEECH_RATE_HZ as u64))
}
