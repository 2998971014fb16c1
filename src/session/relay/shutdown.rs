//! How a relayed session ends: whoever ends it, the client is told in its own words, and the upstream politely.

use std::time::{Duration, Instant};

use super::{Message, Relay, RelayPhase, RelayStart, RelayUpstream};
use crate::event::{
    Mode,
    relay::{ClientNotice, RelayEndReason, RelayTranslator},
};
use crate::session::{
    drain_plan::{DrainPlan, TIME_LIMIT_GRACE},
    measurement::{EndReason, Measurement, SessionState},
    outbox::{Action, Observation},
    upstream::connection::ConnectionEvent,
};

impl Relay {
    /// Where it is. Nobody here hears who speaks.
    pub(crate) fn state(&self) -> SessionState {
        match &self.upstream {
            _ if self.phase != RelayPhase::Open => SessionState::Ending,
            RelayUpstream::Connected(connection) if connection.is_engaged() => match self.turn {
                Some(_) => SessionState::Answering,
                None => SessionState::Idle,
            },
            _ if self.outage.is_some() => SessionState::RollingOver,
            RelayUpstream::Connected(connection) if connection.is_queued() => SessionState::Queued,
            RelayUpstream::Connected(_) | RelayUpstream::Scheduled(_) | RelayUpstream::Stopped => {
                SessionState::Opening
            }
        }
    }

    /// The client says goodbye.
    pub(super) fn handle_client_close(
        &mut self,
        now: Instant,
        reason: Option<&str>,
        text: &str,
        translator: &dyn RelayTranslator,
    ) {
        self.phase = RelayPhase::Closing(reason.map(str::to_owned));
        if !self.is_open() {
            return self.confirm_close(now, translator);
        }
        let message =
            if translator.is_passthrough() { text.to_owned() } else { translator.encode_close(reason) };
        self.with_connection(|connection, context| {
            connection.close_with_message(now, message, context);
            ConnectionEvent::None
        });
    }

    /// The upstream is gone, or never was: nobody else answers the client's goodbye.
    pub(super) fn confirm_close(&mut self, now: Instant, translator: &dyn RelayTranslator) {
        self.end(now, RelayEndReason::ClientClose, None, translator);
    }

    /// Tells the client that it is over, and why.
    pub(super) fn end(
        &mut self,
        now: Instant,
        reason: RelayEndReason,
        detail: Option<&str>,
        translator: &dyn RelayTranslator,
    ) {
        if self.phase == RelayPhase::Over {
            return;
        }
        self.context.out.measure(Measurement::SessionEnding(reason.into()));
        if reason == RelayEndReason::ClientClose {
            // Who leaves in the middle of a turn hears what is there of it, and no end that was none.
            self.flush_turn(now, translator);
        } else {
            self.close_turn(now, translator);
        }
        let client_reason = match &self.phase {
            RelayPhase::Closing(reason) => reason.clone(),
            _ => None,
        };
        let notice = ClientNotice::Ended { reason: reason, client_reason: client_reason.as_deref(), detail };
        let text = translator.encode_notice(&notice, &self.notice_meta(now));
        if let Some(text) = text {
            self.send_client(Message::Text(text));
        }
        self.close_client(now, reason, translator);
    }

    /// The upstream's own last words, as they came.
    pub(super) fn close_passthrough(
        &mut self,
        now: Instant,
        reason: RelayEndReason,
        text: &str,
        translator: &dyn RelayTranslator,
    ) {
        self.context.out.measure(Measurement::SessionEnding(reason.into()));
        self.send_client(Message::Text(text.to_owned()));
        self.close_client(now, reason, translator);
    }

    fn close_client(&mut self, now: Instant, reason: RelayEndReason, translator: &dyn RelayTranslator) {
        let (code, text) = translator.close_frame(reason);
        self.send_client(Message::Close(code, text));
        self.stop(now);
    }

    /// Nothing more is told; the upstream is left.
    pub(super) fn stop(&mut self, now: Instant) {
        self.phase = RelayPhase::Over;
        self.pending.clear();
        self.first_message = None;
        self.leave_upstream(now);
    }

    /// The client's transport is gone.
    pub(crate) fn handle_client_gone(&mut self, now: Instant) {
        if self.phase != RelayPhase::Over {
            self.context.out.measure(Measurement::SessionEnding(EndReason::ClientGone));
            self.stop(now);
        }
    }

    /// voxbridge stops, an operator ends the session, or its time is up: what is being answered is finished first, within a bound.
    pub(crate) fn drain(
        &mut self,
        now: Instant,
        within: Duration,
        reason: RelayEndReason,
        translator: &dyn RelayTranslator,
    ) {
        let DrainPlan { reply_deadline, drain_deadline, .. } = DrainPlan::new(now, within, ());
        self.context.set_drain_deadline(drain_deadline);
        let until = reply_deadline.min(now + Duration::from_millis(self.rules.finish_max_ms));
        match &mut self.phase {
            RelayPhase::Open => self.phase = RelayPhase::Finishing(until, reason),
            RelayPhase::Finishing(known, _) => *known = until.min(*known),
            RelayPhase::Closing(_) | RelayPhase::Over => return,
        }
        self.finish_if_answered(now, translator);
    }

    /// Only a conversation that voxbridge leads itself can be carried over.
    pub(crate) fn reject_rollover(&mut self) {
        let detail = "a relayed session cannot be rolled over: what was said in it is its client's alone";
        self.context.out.observe(Observation::NoEffect(detail.to_owned()));
    }

    /// Ends a session that was only waiting for an answer to end.
    pub(super) fn finish_if_answered(&mut self, now: Instant, translator: &dyn RelayTranslator) {
        let RelayPhase::Finishing(until, reason) = self.phase else { return };
        let is_answer_pending = self.mode == Mode::Chat && self.in_flight.len() > 0;
        if now >= until || !self.is_open() || (self.turn.is_none() && !is_answer_pending) {
            self.end(now, reason, None, translator);
        }
    }

    /// Time has passed.
    pub(crate) fn handle_timeout(&mut self, now: Instant, translator: &dyn RelayTranslator) {
        self.handle_merge_timeout(now, translator);
        self.handle_lane_timeouts(now, translator);
        self.finish_if_answered(now, translator);
        if self.idle_deadline().is_some_and(|due| due <= now) {
            self.end(now, RelayEndReason::Idle, None, translator);
        }
        if self.ends_at.is_some_and(|at| at <= now) {
            self.ends_at = None;
            self.drain(now, TIME_LIMIT_GRACE, RelayEndReason::Timeout, translator);
        }
    }

    /// When [`Relay::handle_timeout`] has something to do.
    pub(crate) fn next_timeout(&self) -> Option<Instant> {
        let finishing = match self.phase {
            RelayPhase::Finishing(until, _) => Some(until),
            _ => None,
        };
        let held = self.merger.next_timeout();
        let ends_at = self.ends_at.filter(|_| self.phase != RelayPhase::Over);
        [finishing, held, ends_at, self.idle_deadline(), self.next_lanes_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    fn idle_deadline(&self) -> Option<Instant> {
        let RelayUpstream::Connected(connection) = &self.upstream else { return None };
        let worker_since =
            connection.granted_at().filter(|_| self.phase == RelayPhase::Open && connection.holds_worker());
        // While it waits in a queue nobody expects anything of it.
        let granted_at = worker_since?;
        let silent_since =
            if self.opened_sent { self.client_heard_at } else { self.client_heard_at.max(granted_at) };
        let idle = self.idle_limit.map(|idle| silent_since + idle);
        let granted_max = Duration::from_millis(self.rules.open_wait_max_ms);
        let unopened = (!self.opened_sent && self.has_no_opening()).then(|| granted_at + granted_max);
        [idle, unopened].into_iter().flatten().min()
    }

    /// The client has said nothing yet that an upstream session begins with.
    fn has_no_opening(&self) -> bool {
        match self.start {
            RelayStart::Unknown => true,
            RelayStart::Init(_) => false,
            RelayStart::FirstMessage => {
                self.first_message.as_ref().is_some_and(|first| first.append.is_none())
            }
        }
    }

    /// Everything is told, and every lane is gone.
    pub(crate) fn is_finished(&self) -> bool {
        let has_lanes = !matches!(self.upstream, RelayUpstream::Stopped) || !self.context.closing.is_empty();
        self.phase == RelayPhase::Over && !has_lanes && self.context.out.is_empty()
    }

    /// The next thing to do.
    pub(crate) fn pop_action(&mut self) -> Option<Action> {
        self.context.out.pop()
    }
}
