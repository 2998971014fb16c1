//! Transitions of a connection: messages of the upstream, its transport, and time.

use std::time::{Duration, Instant};

use super::{ConnectionEvent, ConnectionPhase, QueueState, UpstreamConnection, millis};
use crate::session::upstream::backoff::{ConnectionFailure, RetryState};
use crate::session::{
    measurement::{LanePurpose, Measurement},
    outbox::{Action, Observation},
    upstream::LaneContext,
};
use crate::{
    error::ErrorKind,
    event::{DisconnectReason, EndKind, LaneCommand, LaneEvent, UpstreamEnd, describe_queue},
    mapping::profile::LaneTimeouts,
};

impl UpstreamConnection {
    /// The transport is open.
    pub(crate) fn handle_opened(&mut self, now: Instant, context: &mut LaneContext) {
        match self.phase {
            ConnectionPhase::Dialling => self.wait_in_queue(now, None, context),
            ConnectionPhase::AbandonedDial => self.send_close(now, context),
            _ => {}
        }
    }

    /// Handles a message of the upstream.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        context: &mut LaneContext,
    ) -> ConnectionEvent {
        match (&mut self.phase, event) {
            (_, LaneEvent::Unknown(detail)) => {
                context.out.observe(Observation::UnknownFromLane { lane: self.lane, words: detail.clone() });
                ConnectionEvent::None
            }
            (ConnectionPhase::Unneeded { .. }, event) => self.handle_unneeded_event(now, event, context),
            (ConnectionPhase::Queued(queue), LaneEvent::Queued { position, length, wait_s }) => {
                if queue.position != *position || queue.position.is_none() {
                    queue.position = *position;
                    if !queue.stuck_reported {
                        self.deadline = Some(queue.stuck_deadline(now, &context.lane_times));
                    }
                }
                self.retry = None;
                let detail = describe_queue(*position, *length, *wait_s);
                context.out.observe(Observation::LaneQueued {
                    lane: self.lane,
                    position: *position,
                    words: detail,
                });
                ConnectionEvent::Queued
            }
            // The gateway reads the close message once a worker is assigned.
            (ConnectionPhase::Closing { retry: false }, LaneEvent::Queued { position, .. })
                if self.granted_at.is_none() =>
            {
                self.wait_unneeded(now, *position, true, context);
                ConnectionEvent::None
            }
            (ConnectionPhase::Queued(queue), LaneEvent::Granted) => {
                let after = now - queue.since;
                context.out.measure(Measurement::LaneGranted { lane: self.lane, after });
                self.granted_at = Some(now);
                self.enter(ConnectionPhase::Granted, None);
                self.initialise(now, context);
                ConnectionEvent::None
            }
            (ConnectionPhase::Initialising, LaneEvent::Ready { session_id }) => {
                self.enter(ConnectionPhase::Ready, None);
                self.retry = None;
                if let Some(granted_at) = self.granted_at {
                    let after = now - granted_at;
                    context.out.measure(Measurement::LaneInitialised { lane: self.lane, after });
                }
                if let Some(encoding) = self.voice_encoding.take() {
                    context.voice_encoding.mark_worked(encoding);
                }
                context.out.observe(Observation::LaneReady {
                    lane: self.lane,
                    session_id: session_id.map(str::to_owned),
                    waited_ms: millis(now - self.opened_at),
                });
                ConnectionEvent::Ready
            }
            (ConnectionPhase::AwaitingReply, event) if is_progress(self.purpose, event) => {
                self.await_reply(now, context.lane_times.answer_max_ms);
                ConnectionEvent::None
            }
            (ConnectionPhase::Draining, LaneEvent::Done { .. }) if self.pending_replies > 1 => {
                self.pending_replies -= 1;
                ConnectionEvent::None
            }
            (ConnectionPhase::Draining, LaneEvent::Done { .. }) => {
                self.send_close(now, context);
                ConnectionEvent::None
            }
            (_, LaneEvent::RecoverableError(detail)) => self.handle_recoverable_error(now, detail, context),
            (_, LaneEvent::Closed(end)) => self.handle_session_end(now, end, context),
            _ => ConnectionEvent::None,
        }
    }

    /// Initialises an assigned worker.
    pub(crate) fn initialise(&mut self, now: Instant, context: &mut LaneContext) {
        let Some(init) = self.init.clone().filter(|_| matches!(self.phase, ConnectionPhase::Granted)) else {
            return;
        };
        let (init, encoding) = context.voice_encoding.encode_voice(init);
        self.voice_encoding = encoding;
        context.out.push(Action::ToLane(self.lane, init));
        let deadline = now + Duration::from_millis(context.lane_times.init_max_ms);
        self.enter(ConnectionPhase::Initialising, Some(deadline));
    }

    /// Handles an error after which the upstream session continues. Its effect depends on the phase.
    fn handle_recoverable_error(
        &mut self,
        now: Instant,
        detail: &str,
        context: &mut LaneContext,
    ) -> ConnectionEvent {
        context.out.observe(Observation::LaneTrouble { lane: self.lane, words: detail.to_owned() });
        match self.phase {
            ConnectionPhase::Initialising => {
                self.report_encoding_failure(context);
                let detail = format!("the upstream could not initialise: {detail}");
                self.close_and_retry(now, now, detail, context);
                ConnectionEvent::None
            }
            ConnectionPhase::AwaitingReply => {
                self.close(now, context);
                self.fail_in_use(format!("the upstream could not answer: {detail}"), context)
            }
            ConnectionPhase::Draining => {
                self.send_close(now, context);
                ConnectionEvent::None
            }
            // A conversation handles the error itself.
            _ => ConnectionEvent::None,
        }
    }

    /// The voice may have had the wrong encoding.
    fn report_encoding_failure(&mut self, context: &mut LaneContext) {
        if let Some(encoding) = self.voice_encoding.take() {
            context.voice_encoding.mark_failed(encoding);
        }
    }

    /// Closes politely and then retries, unless the attempts since `since` took too long already.
    fn close_and_retry(&mut self, now: Instant, since: Instant, detail: String, context: &mut LaneContext) {
        RetryState::record_failure(&mut self.retry, since, ErrorKind::Unavailable, detail);
        context.out.push(Action::ToLane(self.lane, LaneCommand::Close));
        self.start_closing(now, true, context);
    }

    fn handle_session_end(
        &mut self,
        now: Instant,
        end: &UpstreamEnd,
        context: &mut LaneContext,
    ) -> ConnectionEvent {
        // A conversation has no answer that could be empty, so any end is a loss.
        let awaiting_reply = self.is_awaiting_reply();
        let was_in_use = match self.phase {
            ConnectionPhase::AwaitingReply | ConnectionPhase::Engaged => true,
            ConnectionPhase::AbandonedDial | ConnectionPhase::Draining => {
                self.start_closing(now, false, context);
                return ConnectionEvent::None;
            }
            ConnectionPhase::Closing { .. } | ConnectionPhase::BackingOff | ConnectionPhase::Gone => {
                return ConnectionEvent::None;
            }
            _ => false,
        };
        let retry = !was_in_use;
        self.report_encoding_failure(context);
        // The close frame follows. Until then the worker is being cleaned up.
        self.start_closing(now, retry, context);
        let detail = format!("the upstream ended the session: {}", end.detail);
        match (was_in_use, end.kind) {
            (true, EndKind::EmptyAnswer) if awaiting_reply => ConnectionEvent::EmptyAnswer,
            (true, kind @ (EndKind::LimitReached | EndKind::LimitReachedStillOpen)) => {
                if kind == EndKind::LimitReachedStillOpen {
                    context.out.push(Action::ToLane(self.lane, LaneCommand::Close));
                }
                ConnectionEvent::Failed(ConnectionFailure {
                    kind: ErrorKind::Unavailable,
                    detail,
                    was_in_use,
                })
            }
            (true, _) => self.fail_in_use(detail, context),
            (false, kind) => {
                let is_full = kind == EndKind::QueueFull;
                let kind = if is_full { ErrorKind::QueueFull } else { ErrorKind::Unavailable };
                RetryState::record_failure(&mut self.retry, now, kind, detail);
                ConnectionEvent::None
            }
        }
    }

    /// The transport closed.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        reason: &DisconnectReason,
        context: &mut LaneContext,
    ) -> ConnectionEvent {
        match self.phase {
            ConnectionPhase::Gone | ConnectionPhase::BackingOff => ConnectionEvent::None,
            ConnectionPhase::AbandonedDial
            | ConnectionPhase::Unneeded { .. }
            | ConnectionPhase::Draining
            | ConnectionPhase::Closing { retry: false } => {
                self.enter(ConnectionPhase::Gone, None);
                ConnectionEvent::None
            }
            ConnectionPhase::Closing { retry: true } => self.retry_or_fail(now, context),
            ConnectionPhase::AwaitingReply | ConnectionPhase::Engaged => {
                let when = if self.is_awaiting_reply() { " before it had answered" } else { "" };
                self.enter(ConnectionPhase::Gone, None);
                self.fail_in_use(format!("the upstream {reason}{when}"), context)
            }
            _ => {
                self.enter(ConnectionPhase::Gone, None);
                self.report_encoding_failure(context);
                RetryState::record_failure(
                    &mut self.retry,
                    now,
                    ErrorKind::Unavailable,
                    format!("the upstream {reason}"),
                );
                self.retry_or_fail(now, context)
            }
        }
    }

    /// Handles the expired timer.
    pub(crate) fn handle_timeout(&mut self, now: Instant, context: &mut LaneContext) -> ConnectionEvent {
        if self.deadline.is_none_or(|due| due > now) {
            return ConnectionEvent::None;
        }
        let times = context.lane_times;
        match &mut self.phase {
            ConnectionPhase::Dialling => {
                let detail =
                    format!("the upstream did not answer the connection within {} ms", times.dial_max_ms);
                context.out.push(Action::DropLane(self.lane));
                RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
                self.retry_or_fail(now, context)
            }
            ConnectionPhase::Queued(queue) => {
                let waited = now - queue.since;
                let status =
                    queue.position.map_or("sent nothing".to_owned(), |at| format!("stayed at position {at}"));
                let detail = format!(
                    "the upstream's queue {status} for {:.0} s; another client may hold the worker",
                    waited.as_secs_f64()
                );
                if waited >= Duration::from_millis(times.queue_max_ms) {
                    self.give_up_in_queue(now, context);
                    return ConnectionEvent::Failed(ConnectionFailure {
                        kind: ErrorKind::QueueStuck,
                        detail,
                        was_in_use: false,
                    });
                }
                if context.holds_worker {
                    // This session itself occupies the worker, and not for long.
                    self.deadline = Some(queue.stuck_deadline(now, &times));
                    return ConnectionEvent::None;
                }
                queue.stuck_reported = true;
                self.deadline = Some(queue.since + Duration::from_millis(times.queue_max_ms));
                ConnectionEvent::QueueStuck(detail)
            }
            ConnectionPhase::Initialising => {
                let detail = format!("the upstream did not initialise within {} ms", times.init_max_ms);
                // The time counts as spent on attempts, so that it does not come twice.
                let since = now - Duration::from_millis(times.init_max_ms);
                self.close_and_retry(now, since, detail, context);
                ConnectionEvent::None
            }
            ConnectionPhase::Draining => {
                self.send_close(now, context);
                ConnectionEvent::None
            }
            ConnectionPhase::AwaitingReply => {
                let detail = format!("the upstream did not answer within {} ms", self.reply_wait_ms);
                self.close(now, context);
                self.fail_in_use(detail, context)
            }
            ConnectionPhase::Closing { retry: true } => {
                context.out.push(Action::DropLane(self.lane));
                self.retry_or_fail(now, context)
            }
            ConnectionPhase::AbandonedDial | ConnectionPhase::Closing { retry: false } => {
                context.out.push(Action::DropLane(self.lane));
                self.enter(ConnectionPhase::Gone, None);
                ConnectionEvent::None
            }
            ConnectionPhase::BackingOff => {
                self.dial(now, context);
                ConnectionEvent::None
            }
            ConnectionPhase::Unneeded { .. }
            | ConnectionPhase::Granted
            | ConnectionPhase::Ready
            | ConnectionPhase::Engaged
            | ConnectionPhase::Gone => ConnectionEvent::None,
        }
    }

    /// Stops waiting for a worker. An upstream that has not reported a queue is dropped.
    fn give_up_in_queue(&mut self, now: Instant, context: &mut LaneContext) {
        if self.is_queued() {
            self.close(now, context);
        } else {
            context.out.push(Action::DropLane(self.lane));
            self.enter(ConnectionPhase::Gone, None);
        }
    }

    pub(crate) fn dial(&mut self, now: Instant, context: &mut LaneContext) {
        // Each attempt has a number of its own, so that late messages of the last attempt are ignored.
        self.lane = context.allocate_lane();
        self.granted_at = None;
        self.voice_encoding = None;
        context.out.measure(Measurement::LaneDialled { lane: self.lane, purpose: self.purpose });
        context.out.push(Action::OpenLane(self.lane, self.mode));
        let deadline = now + Duration::from_millis(context.lane_times.dial_max_ms);
        self.enter(ConnectionPhase::Dialling, Some(deadline));
    }

    /// Schedules another attempt or gives up. The last transport is gone.
    fn retry_or_fail(&mut self, now: Instant, context: &mut LaneContext) -> ConnectionEvent {
        let Some(retry) = &self.retry else {
            self.dial(now, context);
            return ConnectionEvent::None;
        };
        match retry.next_attempt(now, self.opened_at, &context.lane_times, &mut context.rng) {
            Err(failure) => {
                context
                    .out
                    .observe(Observation::LaneFailed { lane: self.lane, words: failure.detail.clone() });
                self.fail_permanently(failure)
            }
            Ok(until) => {
                context.out.observe(Observation::LaneRetry {
                    lane: self.lane,
                    words: retry.last_error().to_owned(),
                    pause_ms: millis(until - now),
                });
                self.enter(ConnectionPhase::BackingOff, Some(until));
                ConnectionEvent::None
            }
        }
    }

    /// Reports the failure of a connection in use.
    fn fail_in_use(&self, detail: String, context: &mut LaneContext) -> ConnectionEvent {
        context.out.observe(Observation::LaneFailed { lane: self.lane, words: detail.clone() });
        ConnectionEvent::Failed(ConnectionFailure { kind: ErrorKind::Unavailable, detail, was_in_use: true })
    }

    /// Fails for good. The transport is gone or dropped.
    fn fail_permanently(&mut self, failure: ConnectionFailure) -> ConnectionEvent {
        self.enter(ConnectionPhase::Gone, None);
        ConnectionEvent::Failed(failure)
    }
}

/// True for output that the request asked for. Anything else would put off the end of a wait for ever.
fn is_progress(purpose: LanePurpose, event: &LaneEvent<'_>) -> bool {
    match (purpose, event) {
        (LanePurpose::Transcribe, event) => matches!(event, LaneEvent::Text(text) if !text.is_empty()),
        (_, event) => matches!(event, LaneEvent::Text(_) | LaneEvent::Audio(_) | LaneEvent::Listen),
    }
}

impl QueueState {
    /// When a queue that moved last at `moved_at` is stuck, or too slow altogether.
    pub(super) fn stuck_deadline(&self, moved_at: Instant, times: &LaneTimeouts) -> Instant {
        let stuck_at = moved_at + Duration::from_millis(times.queue_stuck_ms);
        stuck_at.min(self.since + Duration::from_millis(times.queue_max_ms))
    }
}
