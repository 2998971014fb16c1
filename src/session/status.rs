//! State and audio totals of a session, derived for operators.

use std::time::Duration;

use super::{
    Session, SessionPhase,
    lanes::Owner,
    measurement::{AudioTotals, SessionState},
};
use crate::audio::SPEECH_RATE_HZ;

impl Session {
    /// Current state, for metrics and the admin API.
    pub(crate) fn state(&self) -> SessionState {
        if self.phase != SessionPhase::Open {
            return SessionState::Ending;
        }
        if let Some(state) =
            self.dialogue.as_ref().and_then(|dialogue| dialogue.connecting_state(&self.tools.lanes))
        {
            return state;
        }
        if self.tools.floor.is_audible() {
            SessionState::Speaking
        } else if self.intake.speech_input.is_in_speech() {
            SessionState::Listening
        } else if self.is_queued() {
            SessionState::Queued
        } else if self.awaits_reply() || self.dialogue.as_ref().is_some_and(|dialogue| dialogue.is_speaking())
        {
            SessionState::Answering
        } else {
            SessionState::Idle
        }
    }

    /// True if a request waits in an upstream's queue.
    fn is_queued(&self) -> bool {
        let lanes = &self.tools.lanes;
        let waits_for_transcript =
            lanes.owner_is_queued(Owner::Transcriber) && !lanes.owner_holds_worker(Owner::Transcriber);
        waits_for_transcript
            || lanes.owner_is_queued(Owner::Synthesizer)
            || lanes.owner_is_queued(Owner::Assistant)
    }

    /// Audio totals so far.
    pub(crate) fn audio_totals(&self) -> AudioTotals {
        let waiting = Duration::from_millis(self.transcriber.queue.backlog_ms());
        let totals = AudioTotals {
            dropped_backlog: self.dropped_backlog(),
            waiting,
            sent: self.tools.floor.sent_length(),
            ..self.intake.audio_totals
        };
        let Some(uplink) = self.uplink_counts() else { return totals };
        AudioTotals {
            appended: length_of(uplink.appended),
            silenced: length_of(uplink.silenced),
            waiting: waiting.max(length_of(uplink.waiting)),
            ..totals
        }
    }

    /// Audio dropped so far because too much waited for an upstream.
    pub(super) fn dropped_backlog(&self) -> Duration {
        let uplink = self.uplink_counts().map_or(Duration::ZERO, |uplink| length_of(uplink.dropped));
        Duration::from_millis(self.transcriber.queue.dropped_ms) + uplink
    }
}

/// Duration of samples at 16 kHz.
const fn length_of(samples: u64) -> Duration {
    Duration::from_nanos(samples * (1_000_000_000 / SPEECH_RATE_HZ as u64))
}
