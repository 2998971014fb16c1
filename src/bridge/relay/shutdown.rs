//! End of a relayed session. The client receives its last event, and the upstream session is closed politely.

use std::time::{Duration, Instant};

use super::{Message, Relay, RelayPhase, RelayStart, RelayUpstream};
use crate::event::{
    Mode,
    relay::{ClientNotice, RelayEndReason},
};
use crate::session::{
    drain_plan::{DrainPlan, TIME_LIMIT_GRACE},
    lanes::connection::UpstreamConnection,
    measurement::{EndReason, Measurement, SessionState},
    outbox::{Action, Observation},
    timers::Timer,
};

impl Relay {
    /// State for operators. A relay detects no speech, so it is never listening.
    pub(crate) fn state(&self) -> SessionState {
        match self.upstream {
            _ if self.phase != RelayPhase::Open => SessionState::Ending,
            RelayUpstream::Connected(_) if self.is_open() => match self.turn {
                Some(_) => SessionState::Answering,
                None => SessionState::Idle,
            },
            _ if self.outage.is_some() => SessionState::RollingOver,
            RelayUpstream::Connected(_) if self.connection().is_some_and(UpstreamConnection::is_queued) => {
                SessionState::Queued
            }
            RelayUpstream::Connected(_) | RelayUpstream::Scheduled | RelayUpstream::Stopped => {
                SessionState::Opening
            }
        }
    }

    /// Handles the client's close message.
    pub(super) fn handle_client_close(&mut self, now: Instant, reason: Option<&str>, text: &str) {
        self.phase = RelayPhase::Closing(reason.map(str::to_owned));
        self.timers.clear(&[Timer::Finish, Timer::Resume]);
        if !self.is_open() {
            return self.confirm_close(now);
        }
        let message = match self.codecs.is_passthrough() {
            true => Some(text.to_owned()),
            false => self.codecs.encode_close(reason),
        };
        match (self.lane_id(), message) {
            (Some(id), Some(message)) => self.lanes.close_with_message(now, id, message, &mut self.out),
            (Some(_), None) => self.close_lane(now),
            (None, _) => {}
        }
    }

    /// Confirms the client's close message, because no upstream does.
    pub(super) fn confirm_close(&mut self, now: Instant) {
        self.end(now, RelayEndReason::ClientClose, None);
    }

    /// Ends the session and reports the reason to the client.
    pub(super) fn end(&mut self, now: Instant, reason: RelayEndReason, detail: Option<&str>) {
        if self.phase == RelayPhase::Over {
            return;
        }
        self.out.measure(Measurement::SessionEnding(reason.into()));
        if reason == RelayEndReason::ClientClose {
            // A client that leaves during a turn receives the held output, but no end of the turn.
            self.flush_turn(now);
        } else {
            self.close_turn(now);
        }
        let client_reason = match &self.phase {
            RelayPhase::Closing(reason) => reason.clone(),
            _ => None,
        };
        let notice = ClientNotice::Ended { reason, client_reason: client_reason.as_deref(), detail };
        let text = self.codecs.encode_notice(&notice, &self.notice_meta(now));
        if let Some(text) = text {
            self.send_client(Message::Text(text));
        }
        self.close_client(now, reason);
    }

    /// Ends the session with the upstream's own last message.
    pub(super) fn close_passthrough(&mut self, now: Instant, reason: RelayEndReason, text: &str) {
        self.out.measure(Measurement::SessionEnding(reason.into()));
        self.send_client(Message::Text(text.to_owned()));
        self.close_client(now, reason);
    }

    fn close_client(&mut self, now: Instant, reason: RelayEndReason) {
        let (code, text) = self.codecs.close_frame(reason);
        self.send_client(Message::Close(code, text));
        self.stop(now);
    }

    /// Leaves the upstream. Nothing more is sent to the client.
    pub(super) fn stop(&mut self, now: Instant) {
        self.phase = RelayPhase::Over;
        self.messages.pending.clear();
        self.opening.first_message = None;
        self.leave_upstream(now);
        self.timers.clear(&[Timer::Finish, Timer::Resume, Timer::TimeLimit, Timer::HeldOutput]);
    }

    /// The client's transport closed.
    pub(crate) fn handle_client_gone(&mut self, now: Instant) {
        if self.phase != RelayPhase::Over {
            self.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.stop(now);
        }
    }

    /// Ends the session once the current answer is complete, within a limit: voxbridge stops, an operator ends the
    /// session, or its time is over.
    pub(crate) fn drain(&mut self, now: Instant, within: Duration, reason: RelayEndReason) {
        let DrainPlan { reply_deadline, drain_deadline, .. } = DrainPlan::new(now, within, ());
        self.lanes.set_drain_deadline(drain_deadline);
        let until = reply_deadline.min(now + Duration::from_millis(self.rules.finish_max_ms));
        match self.phase {
            RelayPhase::Open => {
                self.phase = RelayPhase::Finishing(reason);
                self.timers.set(Timer::Finish, until);
                self.timers.clear(&[Timer::Resume]);
            }
            RelayPhase::Finishing(_) => self.timers.set_earlier(Timer::Finish, until),
            RelayPhase::Closing(_) | RelayPhase::Over => return,
        }
        self.finish_if_answered(now);
    }

    /// Reports that a relay has no rollover: only the client knows the conversation so far.
    pub(crate) fn reject_rollover(&mut self) {
        let detail = "a relayed session has no rollover: only its client knows the conversation so far";
        self.out.observe(Observation::NoEffect(detail.to_owned()));
    }

    /// Ends a draining session once its answer is complete.
    pub(super) fn finish_if_answered(&mut self, now: Instant) {
        let RelayPhase::Finishing(reason) = self.phase else { return };
        let is_overdue = self.timers.take_expired(Timer::Finish, now);
        let is_answer_pending = self.mode == Mode::Chat && self.messages.in_flight.len() > 0;
        let is_busy = self.is_open() && (self.turn.is_some() || is_answer_pending);
        if is_overdue || !is_busy {
            if is_busy && reason == RelayEndReason::Shutdown {
                self.out.measure(Measurement::SessionEnding(EndReason::CutOff));
            }
            self.end(now, reason, None);
        }
    }

    /// Handles the expired timers.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.handle_merge_timeout(now);
        self.handle_lane_timeouts(now);
        self.finish_if_answered(now);
        self.arm_idle();
        if self.timers.take_expired(Timer::Idle, now) {
            self.end(now, RelayEndReason::Idle, None);
        }
        if self.timers.take_expired(Timer::TimeLimit, now) {
            self.drain(now, TIME_LIMIT_GRACE, RelayEndReason::Timeout);
        }
    }

    /// When [`Relay::handle_timeout`] must run.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        self.lanes.deadline().into_iter().chain(self.timers.next()).min()
    }

    /// Arms [`Timer::Idle`] while a worker waits for the client. Follows each input.
    pub(crate) fn arm_idle(&mut self) {
        let idle_at = self.idle_at();
        self.timers.set_or_clear(Timer::Idle, idle_at);
    }

    fn idle_at(&self) -> Option<Instant> {
        let connection = self.connection()?;
        let worker_since =
            connection.granted_at.filter(|_| self.phase == RelayPhase::Open && connection.holds_worker());
        // A client that waits in the queue need not send anything.
        let granted_at = worker_since?;
        let silent_since =
            if self.reported.opened { self.client_heard_at } else { self.client_heard_at.max(granted_at) };
        let idle = self.idle_limit.map(|idle| silent_since + idle);
        let granted_max = Duration::from_millis(self.rules.open_wait_max_ms);
        let unopened = (!self.reported.opened && self.has_no_opening()).then(|| granted_at + granted_max);
        [idle, unopened].into_iter().flatten().min()
    }

    /// True if the client has sent nothing yet that opens an upstream session.
    fn has_no_opening(&self) -> bool {
        match self.opening.start {
            RelayStart::Unknown => true,
            RelayStart::Init(_) => false,
            RelayStart::FirstMessage => {
                self.opening.first_message.as_ref().is_some_and(|first| first.append.is_none())
            }
        }
    }

    /// True once everything is sent and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.is_over() && self.lanes.are_gone()
    }

    /// True if the session has ended, but a lane waits in a queue to be closed.
    pub(crate) fn only_waits_in_queue(&self) -> bool {
        self.is_over() && self.lanes.only_wait_in_queue()
    }

    fn is_over(&self) -> bool {
        let has_lane = !matches!(self.upstream, RelayUpstream::Stopped);
        self.phase == RelayPhase::Over && !has_lane && self.out.is_empty()
    }

    /// Next action.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.out.pop()
    }
}
