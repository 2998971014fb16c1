//! Transitions of a connection: messages of the upstream, its transport, and time.

use std::time::{Duration, Instant};

use super::{ConnectionChange, ConnectionPhase, LaneService, UpstreamConnection, millis};
use crate::session::lanes::backoff::{ConnectionFailure, RetryState};
use crate::session::{
    lanes::{LaneShared, voice_encoding::VoiceEncodingChoice},
    measurement::Measurement,
    outbox::{Observation, lane_outbox::LaneAction},
};
use crate::{
    error::ErrorKind,
    foreign::shortened,
    vocabulary::{
        DisconnectReason, EndKind, Lane, LaneEvent, LanePurpose, LaneRequest, UpstreamEnd, describe_queue,
    },
};

/// Longest text of an answer without audio, characters: an hour of speech. A transcript reaches the limit of its length first.
const TEXT_MAX_CHARS: usize = 66 * 1024;
/// Longest time in which such text comes.
const TEXT_MAX_TIME: Duration = Duration::from_secs(600);

impl UpstreamConnection {
    /// The transport is open.
    pub(crate) fn handle_opened(&mut self, now: Instant, shared: &mut LaneShared) {
        match self.phase {
            ConnectionPhase::Dialling => self.wait_in_queue(now, None, &shared.times),
            ConnectionPhase::AbandonedDial => self.send_close(now, shared),
            _ => {}
        }
    }

    /// Handles a message of the upstream.
    pub(crate) fn handle_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        match (&self.phase, event) {
            (_, LaneEvent::Unknown(detail)) => {
                self.unknown_words = Some(detail.clone());
                shared.out.observe(Observation::UnknownFromLane { lane: self.lane, words: detail.clone() });
                ConnectionChange::None
            }
            (ConnectionPhase::Unneeded { .. }, event) => self.handle_unneeded_event(now, event, shared),
            (ConnectionPhase::Queued(_), LaneEvent::Queued { position, length, wait_s, .. }) => {
                let words = describe_queue(*position, *length, *wait_s);
                self.handle_queue_position(now, *position, words, shared)
            }
            // The gateway reads the close message once a worker is assigned.
            (ConnectionPhase::Closing { retry: false }, LaneEvent::Queued { position, .. })
                if self.granted_at.is_none() =>
            {
                self.wait_unneeded(now, *position, true, shared);
                ConnectionChange::None
            }
            (ConnectionPhase::Queued(queue), LaneEvent::Granted) => {
                let after = now - queue.since;
                shared.out.measure(Measurement::LaneGranted { lane: self.lane, after });
                self.take_worker(now, shared);
                ConnectionChange::None
            }
            (ConnectionPhase::Initialising, LaneEvent::Ready { session_id }) => {
                self.finish_initialisation(now, *session_id, shared);
                ConnectionChange::Ready
            }
            (ConnectionPhase::AwaitingReply, event) if is_progress(self.service.purpose, event) => {
                self.handle_progress(now, event, shared)
            }
            (
                ConnectionPhase::AwaitingReply | ConnectionPhase::Engaged,
                LaneEvent::Done { .. } | LaneEvent::Listen,
            ) => {
                self.unknown_words = None;
                shared.out.measure(Measurement::LaneAnswered { lane: self.lane });
                ConnectionChange::None
            }
            (ConnectionPhase::Draining, LaneEvent::Done { .. }) => {
                match self.pending_replies {
                    0 | 1 => self.send_close(now, shared),
                    _ => self.pending_replies -= 1,
                }
                ConnectionChange::None
            }
            (_, LaneEvent::RecoverableError(detail)) => {
                if self.is_initialising() {
                    self.report_encoding_failure(&mut shared.voice_encoding);
                }
                self.handle_recoverable_error(now, detail, shared)
            }
            (_, LaneEvent::Closed(end)) => self.handle_session_end(now, end, shared),
            _ => ConnectionChange::None,
        }
    }

    /// Handles a report of its position in the queue, which is described by `words`. A queue that moves is not stuck.
    fn handle_queue_position(
        &mut self,
        now: Instant,
        position: Option<u32>,
        words: String,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        let ConnectionPhase::Queued(queue) = &mut self.phase else { return ConnectionChange::None };
        if queue.position != position || queue.position.is_none() {
            queue.position = position;
            if !queue.stuck_reported {
                self.deadline = Some(queue.stuck_deadline(now, &shared.times));
            }
        }
        self.retry = None;
        self.queued_since.get_or_insert(now);
        shared.out.observe(Observation::LaneQueued { lane: self.lane, position, words });
        ConnectionChange::Queued
    }

    /// A worker is assigned.
    fn take_worker(&mut self, now: Instant, shared: &mut LaneShared) {
        self.granted_at = Some(now);
        self.enter(ConnectionPhase::Granted, None);
        self.initialise(now, shared);
    }

    /// The upstream is initialised.
    fn finish_initialisation(&mut self, now: Instant, session_id: Option<&str>, shared: &mut LaneShared) {
        self.enter(ConnectionPhase::Ready, None);
        (self.retry, self.queued_since) = (None, None);
        if let Some(granted_at) = self.granted_at {
            let after = now - granted_at;
            shared.out.measure(Measurement::LaneInitialised { lane: self.lane, after });
        }
        if let Some(encoding) = self.voice_encoding.take() {
            shared.voice_encoding.mark_worked(encoding);
        }
        shared.out.observe(Observation::LaneReady {
            lane: self.lane,
            session_id: session_id.map(|id| shortened(id).to_owned()),
            waited_ms: millis(now - self.opened_at),
        });
    }

    /// Handles a part of the answer. Ends an answer whose text goes on without an end.
    fn handle_progress(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        self.has_output = true;
        if let Some(problem) = self.endless_text(now, event) {
            shared.out.observe(Observation::LaneTrouble { lane: self.lane, words: problem.clone() });
            self.close(now, shared);
            return ConnectionChange::Failed(ConnectionFailure::endless(problem));
        }
        self.await_reply(now, shared.times.answer_max_ms);
        ConnectionChange::None
    }

    /// The problem with text that does not end, although no audio comes with it.
    fn endless_text(&mut self, now: Instant, event: &LaneEvent<'_>) -> Option<String> {
        let LaneEvent::Text(text) = event else {
            self.text = None;
            return None;
        };
        let (since, chars) = self.text.get_or_insert((now, 0));
        *chars += text.chars().count();
        let is_endless = *chars > TEXT_MAX_CHARS || now - *since > TEXT_MAX_TIME;
        is_endless.then(|| {
            format!(
                "the upstream's text does not end: {chars} characters in {:.0} s without audio (expected at most {TEXT_MAX_CHARS}, in {} s)",
                (now - *since).as_secs_f64(),
                TEXT_MAX_TIME.as_secs(),
            )
        })
    }

    /// Initialises an assigned worker.
    pub(crate) fn initialise(&mut self, now: Instant, shared: &mut LaneShared) {
        let Some(init) = self.init.clone().filter(|_| matches!(self.phase, ConnectionPhase::Granted)) else {
            return;
        };
        let (init, encoding) = shared.voice_encoding.encode_voice(init);
        self.voice_encoding = encoding;
        shared.out.send(self.lane, init);
        let deadline = now + Duration::from_millis(shared.times.init_max_ms);
        self.enter(ConnectionPhase::Initialising, Some(deadline));
    }

    /// Handles an error after which the upstream session continues. Its effect depends on the phase.
    fn handle_recoverable_error(
        &mut self,
        now: Instant,
        detail: &str,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        shared.out.observe(Observation::LaneTrouble { lane: self.lane, words: detail.to_owned() });
        match self.phase {
            ConnectionPhase::Initialising => {
                let detail = format!("the upstream could not initialise: {detail}");
                self.close_and_retry(now, now, detail, shared);
                ConnectionChange::None
            }
            ConnectionPhase::AwaitingReply => {
                self.close(now, shared);
                self.fail_in_use(EndKind::Refused, format!("the upstream could not answer: {detail}"), shared)
            }
            ConnectionPhase::Draining => {
                self.send_close(now, shared);
                ConnectionChange::None
            }
            // A conversation handles the error itself.
            _ => ConnectionChange::None,
        }
    }

    /// The voice may have had the wrong encoding.
    fn report_encoding_failure(&mut self, voices: &mut VoiceEncodingChoice) {
        if let Some(encoding) = self.voice_encoding.take() {
            voices.mark_failed(encoding);
        }
    }

    /// Closes politely and then retries, unless the attempts since `since` took too long already.
    fn close_and_retry(&mut self, now: Instant, since: Instant, detail: String, shared: &mut LaneShared) {
        RetryState::record_failure(&mut self.retry, since, ErrorKind::Unavailable, detail);
        shared.out.send(self.lane, LaneRequest::Close);
        self.start_closing(now, true, &shared.times);
    }

    fn handle_session_end(
        &mut self,
        now: Instant,
        end: &UpstreamEnd,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        // A conversation has no answer that could be empty, so any end is a loss.
        let (awaiting_reply, was_initialising) = (self.is_awaiting_reply(), self.is_initialising());
        let was_in_use = match self.phase {
            ConnectionPhase::AwaitingReply | ConnectionPhase::Engaged => true,
            ConnectionPhase::AbandonedDial | ConnectionPhase::Draining => {
                self.start_closing(now, false, &shared.times);
                return ConnectionChange::None;
            }
            ConnectionPhase::Closing { .. } | ConnectionPhase::BackingOff | ConnectionPhase::Gone => {
                return ConnectionChange::None;
            }
            _ => false,
        };
        let retry = !was_in_use;
        self.report_encoding_failure(&mut shared.voice_encoding);
        // The close frame follows. Until then the worker is being cleaned up.
        self.start_closing(now, retry, &shared.times);
        let detail = format!("the upstream ended the session: {}", end.detail);
        match (was_in_use, end.kind) {
            (true, EndKind::EmptyAnswer) if awaiting_reply && !self.has_output => {
                shared.out.measure(Measurement::LaneAnswered { lane: self.lane });
                ConnectionChange::EmptyAnswer
            }
            // An answer that has begun was not empty, but broke off.
            (true, EndKind::EmptyAnswer) => self.fail_in_use(EndKind::Other, detail, shared),
            (
                true,
                kind @ (EndKind::TimeLimitReached | EndKind::LimitReached | EndKind::LimitReachedStillOpen),
            ) => {
                if kind == EndKind::LimitReachedStillOpen {
                    shared.out.send(self.lane, LaneRequest::Close);
                }
                ConnectionChange::Failed(ConnectionFailure::in_use(kind, detail))
            }
            (true, kind) => self.fail_in_use(kind, detail, shared),
            (false, kind) => {
                if kind == EndKind::UnfitStillOpen {
                    shared.out.send(self.lane, LaneRequest::Close);
                }
                // The client's voice or words may be the cause.
                if was_initialising && kind.is_refusal() {
                    let (lane, words) = (self.lane, detail.clone());
                    shared.out.observe(Observation::LaneRefused { lane, words, by_configuration: false });
                }
                let is_full = kind == EndKind::QueueFull;
                if kind == EndKind::RefusedForGood {
                    RetryState::record_refusal(&mut self.retry, now, detail);
                    return ConnectionChange::None;
                }
                let kind = if is_full { ErrorKind::QueueFull } else { ErrorKind::Unavailable };
                RetryState::record_failure(&mut self.retry, now, kind, detail);
                ConnectionChange::None
            }
        }
    }

    /// The transport closed.
    pub(crate) fn handle_closed(
        &mut self,
        now: Instant,
        reason: &DisconnectReason,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        match self.phase {
            ConnectionPhase::Gone | ConnectionPhase::BackingOff => ConnectionChange::None,
            ConnectionPhase::AbandonedDial
            | ConnectionPhase::Unneeded { .. }
            | ConnectionPhase::Draining
            | ConnectionPhase::Closing { retry: false } => {
                self.enter(ConnectionPhase::Gone, None);
                ConnectionChange::None
            }
            ConnectionPhase::Closing { retry: true } => self.retry_or_fail(now, shared),
            ConnectionPhase::AwaitingReply | ConnectionPhase::Engaged => {
                let when = if self.is_awaiting_reply() { " before it had answered" } else { "" };
                let kind = match reason {
                    DisconnectReason::Closed(code, _) => EndKind::of_close_code(*code),
                    _ => EndKind::Other,
                };
                self.enter(ConnectionPhase::Gone, None);
                self.fail_in_use(kind, format!("the upstream {reason}{when}"), shared)
            }
            _ => {
                self.enter(ConnectionPhase::Gone, None);
                self.report_encoding_failure(&mut shared.voice_encoding);
                RetryState::record_failure(
                    &mut self.retry,
                    now,
                    ErrorKind::Unavailable,
                    format!("the upstream {reason}"),
                );
                self.retry_or_fail(now, shared)
            }
        }
    }

    /// Handles the expired timer. `session_holds_worker` if a lane of this session holds a worker that this one may be waiting
    /// for.
    pub(crate) fn handle_timeout(
        &mut self,
        now: Instant,
        session_holds_worker: bool,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        if self.deadline.is_none_or(|due| due > now) {
            return ConnectionChange::None;
        }
        let times = shared.times;
        match &self.phase {
            ConnectionPhase::Dialling => {
                let detail =
                    format!("the upstream did not answer the connection within {} ms", times.dial_max_ms);
                shared.out.push(LaneAction::Drop(self.lane));
                RetryState::record_failure(&mut self.retry, now, ErrorKind::Unavailable, detail);
                self.retry_or_fail(now, shared)
            }
            ConnectionPhase::Held(_) | ConnectionPhase::Queued(_) => {
                self.handle_queue_timeout(now, session_holds_worker, shared)
            }
            ConnectionPhase::Initialising => {
                let detail = format!("the upstream did not initialise within {} ms", times.init_max_ms);
                // The time counts as spent on attempts, so that it does not come twice.
                let since = now - Duration::from_millis(times.init_max_ms);
                self.close_and_retry(now, since, detail, shared);
                ConnectionChange::None
            }
            ConnectionPhase::Draining => {
                self.send_close(now, shared);
                ConnectionChange::None
            }
            ConnectionPhase::AwaitingReply => {
                let detail = format!("the upstream did not answer within {} ms", self.reply_wait_ms);
                self.close(now, shared);
                self.fail_in_use(EndKind::Other, detail, shared)
            }
            ConnectionPhase::Closing { retry: true } => {
                shared.out.push(LaneAction::Drop(self.lane));
                self.retry_or_fail(now, shared)
            }
            ConnectionPhase::AbandonedDial | ConnectionPhase::Closing { retry: false } => {
                shared.out.push(LaneAction::Drop(self.lane));
                self.enter(ConnectionPhase::Gone, None);
                ConnectionChange::None
            }
            ConnectionPhase::BackingOff => {
                self.dial(now, shared.allocate_lane(), shared);
                ConnectionChange::None
            }
            ConnectionPhase::Unneeded { .. }
            | ConnectionPhase::Granted
            | ConnectionPhase::Ready
            | ConnectionPhase::Engaged
            | ConnectionPhase::Gone => ConnectionChange::None,
        }
    }

    pub(crate) fn dial(&mut self, now: Instant, lane: Lane, shared: &mut LaneShared) {
        // Each attempt has a number of its own, so that late messages of the last attempt are ignored.
        self.lane = lane;
        (self.granted_at, self.is_replaceable) = (None, false);
        self.voice_encoding = None;
        let LaneService { purpose, mode } = self.service;
        shared.out.measure(Measurement::LaneDialled { lane: self.lane, purpose });
        shared.out.push(LaneAction::Open(self.lane, mode, purpose));
        let deadline = now + Duration::from_millis(shared.times.dial_max_ms);
        self.enter(ConnectionPhase::Dialling, Some(deadline));
    }

    /// Schedules another attempt or gives up. The last transport is gone.
    fn retry_or_fail(&mut self, now: Instant, shared: &mut LaneShared) -> ConnectionChange {
        let Some(retry) = &self.retry else {
            self.dial(now, shared.allocate_lane(), shared);
            return ConnectionChange::None;
        };
        match retry.next_attempt(now, self.opened_at, &shared.times, &mut shared.rng) {
            Err(failure) => {
                shared
                    .out
                    .observe(Observation::LaneFailed { lane: self.lane, words: failure.detail.clone() });
                self.fail_permanently(failure)
            }
            Ok(until) => {
                shared.out.observe(Observation::LaneRetry {
                    lane: self.lane,
                    words: retry.last_error().to_owned(),
                    pause_ms: millis(until - now),
                    is_busy: retry.is_busy(),
                });
                self.enter(ConnectionPhase::BackingOff, Some(until));
                ConnectionChange::None
            }
        }
    }

    /// Reports the failure of a connection in use. A refusal does not count as a failure of the upstream.
    fn fail_in_use(&self, end: EndKind, detail: String, shared: &mut LaneShared) -> ConnectionChange {
        let (lane, words) = (self.lane, detail.clone());
        shared.out.observe(match end.is_refusal() {
            true => Observation::LaneRefused { lane, words, by_configuration: end == EndKind::Misconfigured },
            false => Observation::LaneFailed { lane, words },
        });
        let mut failure = ConnectionFailure::in_use(end, detail);
        failure.may_move = self.is_replaceable && end == EndKind::Misconfigured;
        ConnectionChange::Failed(failure)
    }

    /// Fails for good. The transport is gone or dropped.
    fn fail_permanently(&mut self, failure: ConnectionFailure) -> ConnectionChange {
        self.enter(ConnectionPhase::Gone, None);
        ConnectionChange::Failed(failure)
    }
}

/// True for output that can be heard or read. Other output, such as empty text or `listen`, must not extend the wait.
pub(in crate::session::lanes) fn is_progress(purpose: LanePurpose, event: &LaneEvent<'_>) -> bool {
    match (purpose, event) {
        (_, LaneEvent::Text(text)) => !text.trim().is_empty(),
        // A transcript has no audio.
        (LanePurpose::Transcribe, _) => false,
        (_, LaneEvent::Audio(samples)) => !samples.is_empty(),
        (_, LaneEvent::Call { .. }) => true,
        _ => false,
    }
}
