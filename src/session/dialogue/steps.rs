//! Steps of a conversation: what it does after an input, in order, and when its next unit is due.
//!
//! A unit is due when the microphone's audio fills one, or when silence must complete it. A model makes one step per
//! unit and stops without one, even in the middle of a word (mappings/notes/minicpm-o-duplex.md#units). Silence
//! therefore replaces missing audio while the model speaks and for a while after the client's last audio.

use std::time::{Duration, Instant};

use super::{
    Dialogue,
    reply_tracker::{ReplyTracker, UNIT_DURATION, length_of},
    rollover::DialogueUpstream,
    upstream_session::UpstreamSession,
};
use crate::{
    audio::units::UNIT_SAMPLES,
    error::{Error, ErrorKind},
    session::{
        floor::{Floor, SpeechSource},
        lanes::{Lanes, backoff::ConnectionFailure, connection::UpstreamConnection},
        millis,
        outbox::Observation,
        timers::{Timer, Timers},
        tools::Tools,
        usage::unit_input,
    },
    vocabulary::{EndKind, RolloverReason},
};

impl Dialogue {
    /// Continues after a frame of the user's audio, or more audio of the model: moves the timers that silence defines.
    /// Returns false if that is not enough: a unit is complete, or a rollover waits for a quiet moment.
    pub(crate) fn update_silence_timers(&mut self, now: Instant, floor: &Floor, timers: &mut Timers) -> bool {
        if self.awaits_rollover || self.has_whole_unit() {
            return false;
        }
        if self.turns.fence.is_some() {
            self.turns.arm_fence_lift(&self.user, &self.rules.barge_in, floor, timers);
        }
        self.arm_unit(now, floor, timers);
        true
    }

    /// Continues after any other input:
    ///
    /// 1. `drop_excess`: drops audio that is too old
    /// 2. `check_yielding`: lifts the fence ([`Timer::FenceLift`]), or replaces a session that talks on ([`Timer::Yield`])
    /// 3. `check_reply_timeout`: replaces a session that does not answer ([`Timer::Reply`])
    /// 4. `check_limits`: replaces a session that reaches a limit ([`Timer::Limits`])
    /// 5. `standby.feed`: sends the standby its next unit ([`Timer::Standby`])
    /// 6. `redial_if_due`: dials the next session ([`Timer::Redial`])
    /// 7. `take_connect_error`: informs the client of an outage, once
    /// 8. `wait_notice`: informs the client that it waits for a worker ([`Timer::QueueNotice`])
    /// 9. `send_due_unit`: sends the next unit ([`Timer::Unit`])
    /// 10. `arm_limits`: arms the timer of the limits
    ///
    /// Before, audio that was held while a text was being spoken is discarded, and `check_idle_pause` pauses or resumes
    /// ([`Timer::IdlePause`]).
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        if !tools.floor.is_busy_with(SpeechSource::Text) && !self.is_paused() {
            self.uplink.discard_held();
        }
        self.check_idle_pause(now, tools);
        self.drop_excess();
        self.check_yielding(now, tools);
        self.check_reply_timeout(now, tools);
        self.check_limits(now, tools);
        let Tools { lanes, timers, .. } = &mut *tools;
        self.standby.feed(now, &self.rules, lanes, timers);
        self.redial_if_due(now, tools);
        if let Some(error) = self.take_connect_error(&tools.lanes) {
            tools.floor.out.push_error(error);
        }
        tools.floor.out.push_if_any(tools.lanes.wait_notice(now, self.upstream.id(), &mut tools.timers));
        self.send_due_unit(now, tools);
        self.arm_limits(now, &tools.floor, &tools.lanes, &mut tools.timers);
    }

    /// Length of the model's units, samples.
    pub(crate) fn unit_samples(&self) -> usize {
        match &self.upstream {
            DialogueUpstream::Active(session) => session.unit_samples,
            _ => UNIT_SAMPLES,
        }
    }

    /// True if no silence need complete the next unit.
    pub(super) fn has_whole_unit(&self) -> bool {
        self.uplink.units.len() >= self.unit_samples()
    }

    /// Drops audio that is too old to be sent. While a unit is in flight, as without a model, more is kept: the upstream
    /// may be lost, and its replacement needs the audio.
    fn drop_excess(&mut self) {
        let is_upstream_waiting = match &mut self.upstream {
            DialogueUpstream::Active(session) => {
                if std::mem::take(&mut session.has_stalled) {
                    self.uplink.allow_catch_up();
                }
                session.tracker.in_flight.is_none()
            }
            _ => false,
        };
        self.uplink.drop_excess(is_upstream_waiting, &self.rules.converse);
    }

    /// Lifts the fence when the model has listened; replaces a session that does not yield.
    fn check_yielding(&mut self, now: Instant, tools: &mut Tools) {
        let DialogueUpstream::Active(session) = &self.upstream else { return };
        self.turns.arm_fence_lift(&self.user, &self.rules.barge_in, &tools.floor, &mut tools.timers);
        if tools.timers.take_expired(Timer::FenceLift, now) {
            self.turns.lift_fence(session.tracker.sent_count, &mut tools.timers);
        }
        if tools.timers.take_expired(Timer::Yield, now) {
            self.roll_over(now, RolloverReason::NotYielding, tools);
        }
    }

    /// Treats an upstream that does not answer a unit as lost.
    fn check_reply_timeout(&mut self, now: Instant, tools: &mut Tools) {
        if tools.timers.take_expired(Timer::Reply, now)
            && let DialogueUpstream::Active(session) = &mut self.upstream
        {
            let bound = session.tracker.give_up_after(self.rules.converse.unit_reply_max);
            let said = tools.lanes.get(session.id).and_then(UpstreamConnection::unknown_words);
            let said = said.map_or_else(String::new, |words| format!(": {words}"));
            let unit = session.tracker.in_flight.as_ref().map_or(UNIT_DURATION, |unit| unit.unit.length());
            let audio = if unit == UNIT_DURATION { "1 s".to_owned() } else { format!("{} ms", millis(unit)) };
            let detail =
                format!("the upstream did not answer {audio} of audio within {} ms{said}", millis(bound));
            tools.lanes.close(now, session.id);
            let lane = tools.lanes.lane(session.id);
            tools.floor.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
            self.handle_upstream_loss(now, ConnectionFailure::in_use(EndKind::Other, detail), tools);
        }
    }

    /// Why no model is ready yet, once.
    fn take_connect_error(&mut self, lanes: &Lanes) -> Option<Error> {
        let DialogueUpstream::Connecting(id) = self.upstream else { return None };
        let detail = lanes.get(id).and_then(UpstreamConnection::last_error)?;
        let is_known = std::mem::replace(&mut self.outage_reported, true);
        let error =
            || Error::new(ErrorKind::Unavailable, format!("no model is ready yet: {detail}; retrying"));
        (!is_known).then(error)
    }

    /// Sends the next unit if it is due.
    fn send_due_unit(&mut self, now: Instant, tools: &mut Tools) {
        self.arm_unit(now, &tools.floor, &mut tools.timers);
        if !tools.timers.take_expired(Timer::Unit, now) {
            return;
        }
        let DialogueUpstream::Active(session) = &mut self.upstream else { return };
        let last = session.tracker.last_sent_at.unwrap_or(session.ready_at);
        let voiced = self.user.in_speech || self.user.voice_at.is_some_and(|at| at >= last);
        if self.user.voice_at.is_some_and(|at| now >= at + self.rules.converse.trailing_silence) {
            self.uplink.clear_unanswered();
        }
        let mut unit = self.uplink.take(session.unit_samples, voiced && self.turns.open.is_none());
        let number = session.tracker.sent_count + 1;
        unit.force_listen = self.turns.force_listen(now, number, &self.rules.barge_in, &mut tools.timers);
        unit.has_speech = self.user.in_speech || self.turns.open.is_some();
        if !std::mem::take(&mut session.leaves_picture_out) {
            unit.frame = self.video_frame.take();
        }
        self.turns.usage.begin_request(unit_input(unit.audio.len(), unit.frame.is_some()));
        let request = session.begin_unit(now, unit);
        tools.lanes.send(tools.lanes.lane(session.id), request);
        self.arm_reply(&mut tools.timers);
    }

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
            // The partial unit goes at once, which stops the model up to one second earlier
            // (mappings/notes/minicpm-o-duplex.md#barge-in).
            return Some(now);
        }
        if self.has_whole_unit() {
            let ReplyTracker { last_sent_at, last_length, .. } = session.tracker;
            let pause = self.rules.converse.unit_min.mul_f64(last_length.as_secs_f64());
            let not_before = last_sent_at.map(|at| at + pause);
            return Some(not_before.map_or(now, |at| at.max(now)));
        }
        self.silence_fill_at(session, floor)
    }

    /// When silence completes the current unit.
    fn silence_fill_at(&self, session: &UpstreamSession, floor: &Floor) -> Option<Instant> {
        let rules = &self.rules.converse;
        let ReplyTracker { last_sent_at, last_length, .. } = session.tracker;
        let first_unit = session.ready_at + length_of(session.unit_samples);
        let next_unit = last_sent_at.map_or(first_unit, |at| at + last_length);
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
        (speaking || lingers || !self.uplink.units.is_empty()).then_some(due)
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
