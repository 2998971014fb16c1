//! Time of the next unit: when a second of microphone audio is full, or when silence must complete it.
//!
//! A model makes one step per unit and stops without one, even in the middle of a word (field notes §1.6, §7.8).
//! Silence therefore replaces missing audio while the model speaks and for a while after the client's last audio.

use std::time::{Duration, Instant};

use super::{
    Dialogue, SessionSnapshot,
    rollover::{DialogueUpstream, UpstreamSession},
};
use crate::session::upstream::{connection::UpstreamConnection, reply_tracker::UNIT_DURATION};

impl Dialogue {
    /// When the next unit is due; `None` until something changes.
    pub(super) fn next_unit_at(
        &self,
        now: Instant,
        view: &SessionSnapshot,
        audible: bool,
    ) -> Option<Instant> {
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        if session.tracker.in_flight().is_some() || session.pending_rollover.is_some() {
            return None;
        }
        if self.turns.needs_force_listen() {
            // The partial unit goes at once, which stops the model up to one second earlier (§7.18).
            return Some(now);
        }
        let not_before = session.tracker.last_sent_at().map(|at| at + self.rules.converse.unit_min);
        if self.uplink.has_unit() {
            return Some(not_before.map_or(now, |at| at.max(now)));
        }
        self.silence_fill_at(session, view, audible)
    }

    /// When silence completes the current unit.
    fn silence_fill_at(
        &self,
        session: &UpstreamSession,
        view: &SessionSnapshot,
        audible: bool,
    ) -> Option<Instant> {
        let rules = &self.rules.converse;
        let next_unit = session.tracker.last_sent_at().unwrap_or(session.ready_at) + UNIT_DURATION;
        let speaking = self.turns.is_open() || self.turns.is_fenced() || audible || view.is_tts_active;
        // A frame counts as audio until it has been played. A file that was sent at once must not delay a model that
        // speaks.
        let frame_max = if speaking { UNIT_DURATION } else { Duration::MAX };
        let mic_until = view.last_mic_frame.map(|(at, length)| at + length.min(frame_max) + rules.gap);
        let due = mic_until.map_or(next_unit, |until| next_unit.max(until));
        // Audio kept during an outage reaches the model late and is answered late.
        let audio_ends =
            view.client_audio_at.into_iter().chain(view.last_mic_frame.map(|(at, length)| at + length));
        let last_audio = audio_ends.chain(session.tracker.mic_sent_at()).max();
        let lingers =
            last_audio.is_some_and(|last_audio| due <= last_audio + rules.gap + rules.trailing_silence);
        (speaking || lingers || self.uplink.len() > 0).then_some(due)
    }

    pub(crate) fn next_timeout(
        &self,
        now: Instant,
        view: &SessionSnapshot,
        context: &crate::session::upstream::LaneContext,
    ) -> Option<Instant> {
        let connections = self.connections().filter_map(UpstreamConnection::deadline).min();
        let unit = self.next_unit_at(now, view, context.player.is_audible());
        let barge_in = &self.rules.barge_in;
        let fence_lift = self.turns.fence_lift_at(view.voice_at, barge_in).filter(|_| !view.is_tts_active);
        let reply = self.reply_deadline();
        let limits = self.limits_deadline(now, view, context);
        let redial = self.redial_at(context);
        let standby = self.standby_deadline();
        [connections, unit, fence_lift, self.turns.yield_deadline(barge_in), reply, limits, redial, standby]
            .into_iter()
            .flatten()
            .min()
    }

    fn reply_deadline(&self) -> Option<Instant> {
        let DialogueUpstream::Active(session) = &self.upstream else { return None };
        let unit = session.tracker.in_flight()?;
        let timeout_at = unit.sent_at + self.rules.converse.unit_reply_max;
        Some(session.tracker.reply_end_deadline().map_or(timeout_at, |due| due.min(timeout_at)))
    }
}
