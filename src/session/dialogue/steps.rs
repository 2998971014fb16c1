//! Steps of a conversation: what it does after an input, in order.

use std::time::Instant;

use super::{Dialogue, rollover::DialogueUpstream};
use crate::{
    audio::units::UNIT_SAMPLES,
    error::{Error, ErrorKind},
    event::RolloverReason,
    session::{
        floor::{Floor, SpeechSource},
        lanes::{Lanes, connection::UpstreamConnection},
        millis,
        outbox::{Actions, Observation},
        timers::{Timer, Timers},
        tools::Tools,
    },
};

impl Dialogue {
    /// Continues after a frame of the user's audio, or more audio of the model: moves the timers that silence defines.
    /// Returns false if that is not enough: a unit is complete, or a rollover waits for a quiet moment.
    pub(crate) fn update_silence_timers(&mut self, now: Instant, floor: &Floor, timers: &mut Timers) -> bool {
        if self.awaits_rollover || self.uplink.len() >= UNIT_SAMPLES {
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
    /// 5. `feed_standby`: sends the standby its next unit ([`Timer::Standby`])
    /// 6. `redial_if_due`: dials the next session ([`Timer::Redial`])
    /// 7. `report_connect_error`: informs the client of an outage, once
    /// 8. `report_wait`: informs the client that it waits for a worker ([`Timer::QueueNotice`])
    /// 9. `send_due_unit`: sends the next unit ([`Timer::Unit`])
    /// 10. `arm_limits`: arms the timer of the limits
    ///
    /// Audio that was held while a text was being spoken is discarded before.
    pub(crate) fn advance(&mut self, now: Instant, tools: &mut Tools) {
        if !tools.floor.is_busy_with(SpeechSource::Text) {
            self.uplink.discard_held();
        }
        self.drop_excess();
        self.check_yielding(now, tools);
        self.check_reply_timeout(now, tools);
        self.check_limits(now, tools);
        self.feed_standby(now, tools);
        self.redial_if_due(now, tools);
        self.report_connect_error(&tools.lanes, &mut tools.out);
        tools.lanes.report_wait(now, self.upstream.id(), &mut tools.timers, &mut tools.out);
        self.send_due_unit(now, tools);
        self.arm_limits(now, &tools.floor, &tools.lanes, &mut tools.timers);
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
            tools.lanes.close(now, session.id, &mut tools.out);
            let detail = format!("the upstream did not answer 1 s of audio within {} ms", millis(bound));
            let lane = tools.lanes.lane(session.id);
            tools.out.observe(Observation::LaneFailed { lane, words: detail.clone() });
            self.handle_upstream_loss(now, detail, tools);
        }
    }

    /// Reports once why no model is ready yet.
    fn report_connect_error(&mut self, lanes: &Lanes, out: &mut Actions) {
        let DialogueUpstream::Connecting(id) = self.upstream else { return };
        let last_error = lanes.get(id).and_then(UpstreamConnection::last_error);
        if let (Some(detail), false) = (last_error, self.outage_reported) {
            self.outage_reported = true;
            let detail = format!("no model is ready yet: {detail}; retrying");
            out.push_error(Error::new(ErrorKind::Unavailable, detail));
        }
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
        let mut unit = self.uplink.take(voiced && self.turns.open.is_none());
        let number = session.tracker.sent_count + 1;
        unit.force_listen = self.turns.force_listen(now, number, &self.rules.barge_in, &mut tools.timers);
        unit.has_speech = self.user.in_speech || self.turns.open.is_some();
        unit.frame = self.video_frame.take();
        session.send_unit(now, unit, &tools.lanes, &mut tools.out);
        self.arm_reply(&mut tools.timers);
    }
}
