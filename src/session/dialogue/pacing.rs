//! Timers of a unit and its answer. The next unit is due when a second of microphone audio is full, or when silence must
//! complete it.
//!
//! A model makes one step per unit and stops without one, even in the middle of a word (field notes §1.6, §7.8).
//! Silence therefore replaces missing audio while the model speaks and for a while after the client's last audio.

use std::time::{Duration, Instant};

use super::{
    Dialogue,
    reply_tracker::{ReplyTracker, UNIT_DURATION},
    rollover::DialogueUpstream,
    upstream_session::UpstreamSession,
};
use crate::audio::units::UNIT_SAMPLES;
use crate::session::{
    floor::{Floor, SpeechSource},
    timers::{Timer, Timers},
};

impl Dialogue {
    /// Arms [`Timer::Unit`] for the next unit; clears it until something changes.
    pub(super) fn arm_unit(&mut self, now: Instant, floor: &Floor, timers: &mut Timers) {
        let due = match &self.upstream {
            DialogueUpstream::Active(session)
                if session.tracker.in_flight.is_none() && session.pending_rollover.is_none() =>
            {
                let due = self.next_unit_at(now, session, floor);
                if due.is_none() {
                    self.uplink.release_memory();
                }
                due
            }
            _ => None,
        };
        timers.set_or_clear(Timer::Unit, due);
    }

    fn next_unit_at(&self, now: Instant, session: &UpstreamSession, floor: &Floor) -> Option<Instant> {
        if self.turns.fence.as_ref().is_some_and(|fence| fence.first_forced.is_none()) {
            // The partial unit goes at once, which stops the model up to one second earlier (§7.18).
            return Some(now);
        }
        let not_before = session.tracker.last_sent_at.map(|at| at + self.rules.converse.unit_min);
        if self.uplink.len() >= UNIT_SAMPLES {
            return Some(not_before.map_or(now, |at| at.max(now)));
        }
        self.silence_fill_at(session, floor)
    }

    /// When silence completes the current unit.
    fn silence_fill_at(&self, session: &UpstreamSession, floor: &Floor) -> Option<Instant> {
        let rules = &self.rules.converse;
        let next_unit = session.tracker.last_sent_at.unwrap_or(session.ready_at) + UNIT_DURATION;
        let speaking = self.turns.open.is_some()
            || self.turns.fence.is_some()
            || floor.is_audible()
            || floor.is_busy_with(SpeechSource::Text);
        // A frame counts as audio until it has been played. A file that was sent at once must not delay a model that
        // speaks.
        let frame_max = if speaking { UNIT_DURATION } else { Duration::MAX };
        let mic_until = self.user.last_mic_frame.map(|(at, length)| at + length.min(frame_max) + rules.gap);
        let due = mic_until.map_or(next_unit, |until| next_unit.max(until));
        // Audio kept during an outage reaches the model late and is answered late.
        let audio_ends = self
            .user
            .client_audio_at
            .into_iter()
            .chain(self.user.last_mic_frame.map(|(at, length)| at + length));
        let last_audio = audio_ends.chain(session.tracker.mic_sent_at).max();
        let lingers =
            last_audio.is_some_and(|last_audio| due <= last_audio + rules.gap + rules.trailing_silence);
        (speaking || lingers || self.uplink.len() > 0).then_some(due)
    }

    /// Arms [`Timer::Reply`] and [`Timer::ReplyEnd`] for the unit in flight.
    pub(super) fn arm_reply(&self, timers: &mut Timers) {
        let tracker = match &self.upstream {
            DialogueUpstream::Active(session) => Some(&session.tracker),
            _ => None,
        };
        let give_up_at = tracker.and_then(|tracker| {
            let give_up_after = tracker.give_up_after(self.rules.converse.unit_reply_max);
            tracker.in_flight.as_ref().map(|unit| unit.sent_at + give_up_after)
        });
        timers.set_or_clear(Timer::Reply, give_up_at);
        timers.set_or_clear(Timer::ReplyEnd, tracker.and_then(ReplyTracker::reply_end_at));
    }
}
