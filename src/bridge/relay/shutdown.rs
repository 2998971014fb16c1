//! Loss of the upstream session, which is replaced, and the end of the client's session: the client receives its last
//! event, and the upstream session is closed politely.

use std::time::{Duration, Instant};

use super::{Message, Relay, RelayPhase, RelayUpstream};
use crate::{
    error::{Error, ErrorKind},
    session::{
        drain_plan::DrainPlan,
        lanes::{LaneSignal, Owner, backoff::ConnectionFailure, connection::UpstreamConnection},
        measurement::{EndReason, Measurement},
        timers::Timer,
    },
    vocabulary::{
        Mode,
        relay::{RelayEnd, RelayEndReason},
    },
};

impl Relay {
    /// Handles the client's close message.
    pub(super) fn handle_client_close(&mut self, now: Instant, reason: Option<&str>, text: &str) {
        self.phase = RelayPhase::Closing(reason.map(str::to_owned));
        self.timers.clear(&[Timer::Finish, Timer::Resume]);
        if !self.lane.is_open() {
            return self.confirm_close(now);
        }
        match (self.lane.id(), self.client.codecs.closing_message(reason, text)) {
            (Some(id), Some(message)) => {
                self.lane.lanes.close_with_message(now, id, message);
            }
            (Some(_), None) => self.lane.close(now),
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
        self.client.out.measure(Measurement::SessionEnding(reason.into()));
        if reason == RelayEndReason::ClientClose {
            // A client that leaves during a turn receives the held output, but no end of the turn.
            self.client.flush_turn(now);
        } else {
            self.client.close_turn(now);
        }
        let client_reason = match &self.phase {
            RelayPhase::Closing(reason) => reason.clone(),
            _ => None,
        };
        let end = RelayEnd { reason, client_reason: client_reason.as_deref(), detail };
        let encoded = self.client.codecs.client.encode_end(&end, &self.client.event_meta(now));
        self.client.out.push_raw(encoded.map(Message::Text));
        self.close_client(now, reason);
    }

    /// Ends the session with the upstream's own last message.
    pub(super) fn close_passthrough(&mut self, now: Instant, reason: RelayEndReason, text: &str) {
        self.client.out.measure(Measurement::SessionEnding(reason.into()));
        self.client.forward(text);
        self.close_client(now, reason);
    }

    fn close_client(&mut self, now: Instant, reason: RelayEndReason) {
        let (code, text) = self.client.codecs.client.close_frame(reason);
        self.client.send(Message::Close(code, text));
        self.stop(now);
    }

    /// Leaves the upstream. Nothing more is sent to the client.
    pub(super) fn stop(&mut self, now: Instant) {
        self.phase = RelayPhase::Over;
        self.messages.pending.clear();
        self.opening.first_message = None;
        self.leave_upstream(now);
        self.timers.clear(&[Timer::Finish, Timer::Resume, Timer::TimeLimit]);
    }

    /// Ends the session once the current answer is complete, within a limit: voxbridge stops, an operator ends the
    /// session, or its time is over.
    pub(super) fn drain(&mut self, now: Instant, within: Duration, reason: RelayEndReason) {
        let DrainPlan { reply_deadline, drain_deadline, .. } = DrainPlan::new(now, within, ());
        self.lane.lanes.set_drain_deadline(drain_deadline);
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

    /// Ends a draining session once its answer is complete.
    pub(super) fn finish_if_answered(&mut self, now: Instant) {
        let RelayPhase::Finishing(reason) = self.phase else { return };
        let is_overdue = self.timers.take_expired(Timer::Finish, now);
        let is_answer_pending = self.client.mode == Mode::Chat && self.messages.in_flight.len() > 0;
        let is_busy = self.lane.is_open() && (self.client.turn.is_some() || is_answer_pending);
        if is_overdue || !is_busy {
            if is_busy && reason == RelayEndReason::Shutdown {
                self.client.out.measure(Measurement::SessionEnding(EndReason::CutOff));
            }
            self.end(now, reason, None);
        }
    }

    /// Handles the loss of an open upstream session: another replaces it, and the client sees a pause. A request that the lost
    /// session refused is not sent again.
    pub(super) fn handle_upstream_loss(&mut self, now: Instant, failure: ConnectionFailure) {
        let is_refusal = !failure.may_repeat();
        let detail = failure.detail;
        self.lane.detach(&mut self.timers);
        if self.phase != RelayPhase::Open {
            return self.end_after_loss(now);
        }
        if self.client.mode == Mode::Chat && self.client.turn.is_some() {
            // The client has a part of the answer. A new request would give a different one.
            let error = format!("the answer was interrupted: {detail}");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error));
        }
        self.client.close_turn(now);
        self.client.merger.reset_steps();
        let (mut unanswered, mut too_long) = self.messages.in_flight.take_unanswered();
        if is_refusal {
            unanswered.clear();
            too_long = 0;
            self.report_error(now, &Error::new(ErrorKind::ModelFailed, detail.clone()));
            if self.phase != RelayPhase::Open {
                return;
            }
        }
        if too_long > 0 && self.client.mode == Mode::Chat {
            let error = format!("{detail}; the request is too long to send again");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error));
        }
        self.messages.pending.dropped.count += too_long as u64;
        unanswered.into_iter().for_each(|message| self.messages.pending.push_front(message));
        if self.lane.lost_since.is_none() {
            self.lane.lost_since = Some(now);
            let resume_max = Duration::from_millis(self.rules.resume_max_ms);
            self.timers.set(Timer::Resume, now + resume_max);
        }
        match self.lane.redial_at(now, detail) {
            Ok(at) if at <= now => self.dial(now),
            Ok(at) => self.lane.schedule_dial(at, &mut self.timers),
            Err(failure) => self.fail_permanently(now, failure),
        }
    }

    fn end_after_loss(&mut self, now: Instant) {
        match self.phase {
            RelayPhase::Finishing(reason) => self.end(now, reason, None),
            RelayPhase::Closing(_) => self.confirm_close(now),
            RelayPhase::Open | RelayPhase::Over => {}
        }
    }

    pub(super) fn dial(&mut self, now: Instant) {
        if self.lane.dial(now, self.client.mode, &mut self.timers) {
            self.initialise(now);
            self.init_with_first_message(now);
        }
    }

    /// Opens a fresh upstream session, because the client opened the session again with other parameters.
    pub(super) fn reopen(&mut self, now: Instant) {
        self.client.close_turn(now);
        self.client.merger.reset_steps();
        self.messages.pending.clear();
        self.messages.in_flight.take_unanswered();
        (self.reported.opened, self.lane.lost_since) = (false, None);
        self.timers.clear(&[Timer::Resume]);
        if self.lane.upstream == RelayUpstream::Scheduled
            || self.lane.connection().is_some_and(|connection| !connection.holds_worker())
        {
            // Only the opening changes. The position in the queue stays.
            return self.initialise(now);
        }
        self.leave_upstream(now);
        self.dial(now);
    }

    fn fail_resume(&mut self, now: Instant) {
        let last_error = self.lane.connection().and_then(UpstreamConnection::last_error);
        let last_error = last_error.map_or(String::new(), |error| format!("; last, {error}"));
        let resume_max_ms = self.rules.resume_max_ms;
        let detail = format!(
            "the upstream was lost, and there was no other one within {resume_max_ms} ms{last_error}"
        );
        self.fail_permanently(now, ConnectionFailure::unused(ErrorKind::ConversationLost, detail));
    }

    /// Ends the session: no upstream is available.
    pub(super) fn fail_permanently(&mut self, now: Instant, failure: ConnectionFailure) {
        // Cancels a connection that would retry.
        self.leave_upstream(now);
        let kind = if self.reported.opened { ErrorKind::ConversationLost } else { failure.kind };
        self.fail(now, &Error::new(kind, failure.detail));
    }

    /// Handles the expired timers of the lanes.
    pub(super) fn handle_lane_timeouts(&mut self, now: Instant) {
        if self.timers.take_expired(Timer::Resume, now) {
            self.fail_resume(now);
        }
        if self.timers.take_expired(Timer::Redial, now) {
            self.dial(now);
        }
        for id in self.lane.lanes.expired(now) {
            let signal = self.lane.lanes.handle_timeout(now, id);
            if let Some(LaneSignal { owner: Owner::Relay, change, .. }) = signal {
                self.handle_change(now, change);
            }
        }
    }

    /// Leaves the upstream politely. An answer in progress is drained.
    pub(super) fn leave_upstream(&mut self, now: Instant) {
        let is_chat = self.client.mode == Mode::Chat;
        let answers = if is_chat { self.messages.in_flight.len() } else { 0 };
        self.lane.leave(now, answers, &mut self.timers);
    }
}
