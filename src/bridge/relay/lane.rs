//! Upstream session of a relay: dialled at once, retried until it is open, replaced when it is lost.

use std::time::{Duration, Instant};

use super::{ClientMessage, Relay, RelayPhase, RelayStart};
use crate::session::{
    lanes::{
        LaneId, Owner,
        backoff::{ConnectionFailure, RetryState},
        connection::{ConnectionChange, UpstreamConnection},
    },
    outbox::{Action, Observation},
    timers::Timer,
};
use crate::{
    error::{Error, ErrorKind},
    event::{DisconnectReason, Lane, LaneCommand, LaneEvent, MessageMeta, Mode},
};

/// Answers after which an upstream session was useful. Its successor is dialled at once, unless the session was shorter
/// than the first retry pause. The limit keeps an upstream that dies after a few words from being dialled without end.
const USEFUL_ANSWERS: u64 = 3;

/// State of the upstream session.
#[derive(Debug, Clone, Copy)]
pub(super) enum RelayUpstream {
    /// Open or being opened.
    Connected(LaneId),
    /// Dials when [`Timer::Redial`] expires.
    Scheduled,
    /// No session, and none is wanted.
    Stopped,
}

/// Time without an upstream session.
#[derive(Debug, Clone, Copy)]
pub(super) struct RelayOutage {
    since: Instant,
}

impl Relay {
    /// The lane in use.
    pub(super) const fn lane_id(&self) -> Option<LaneId> {
        match self.upstream {
            RelayUpstream::Connected(id) => Some(id),
            RelayUpstream::Scheduled | RelayUpstream::Stopped => None,
        }
    }

    /// The connection of the lane in use.
    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        self.lanes.get(self.lane_id()?)
    }

    pub(super) fn owns_lane(&self, lane: Lane) -> bool {
        self.connection().is_some_and(|connection| connection.lane == lane)
    }

    /// True if the upstream session is open.
    pub(super) fn is_open(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::is_engaged)
    }

    /// A lane's transport is open.
    pub(crate) fn handle_lane_opened(&mut self, now: Instant, lane: Lane) {
        self.lanes.handle_opened(now, lane, &mut self.out);
    }

    /// A lane's transport closed.
    pub(crate) fn handle_lane_closed(&mut self, now: Instant, lane: Lane, reason: &DisconnectReason) {
        if !self.owns_lane(lane) {
            self.lanes.handle_closed(now, lane, reason, &mut self.out);
            return;
        }
        let refused_init = !self.reported.opened && self.is_initialising();
        self.try_next_init_variant(now);
        let signal = self.lanes.handle_closed(now, lane, reason, &mut self.out);
        self.opening.refusals += u32::from(refused_init);
        if refused_init && self.is_init_exhausted() {
            let detail = format!("the upstream {reason} in every attempt to open the session");
            return self.fail_permanently(
                now,
                ConnectionFailure { kind: ErrorKind::Unavailable, detail, was_in_use: false },
            );
        }
        self.handle_change(now, signal.map_or(ConnectionChange::None, |(_, signal)| signal.change));
    }

    pub(super) fn is_initialising(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::is_initialising)
    }

    /// True if upstreams have refused every variant of the opening, and often enough.
    pub(super) fn is_init_exhausted(&self) -> bool {
        let variant_count =
            if let RelayStart::Init(variants) = &self.opening.start { variants.len() } else { 1 };
        self.opening.refusals as usize >= variant_count.max(self.rules.open_attempts as usize)
    }

    /// Tries the next variant of the opening after a failed initialisation: this upstream may not accept the current
    /// one.
    pub(super) fn try_next_init_variant(&mut self, now: Instant) {
        if self.is_initialising() {
            self.opening.init_variant += 1;
            self.initialise(now);
        }
    }

    /// Lets the connection of the lane in use handle a message.
    pub(super) fn handle_own_event(&mut self, now: Instant, event: &LaneEvent<'_>) -> ConnectionChange {
        match self.connection().map(|connection| connection.lane) {
            Some(lane) => self.handle_lane_event(now, lane, event),
            None => ConnectionChange::None,
        }
    }

    /// Closes the lane in use politely. The relay keeps it.
    pub(super) fn close_lane(&mut self, now: Instant) {
        if let Some(id) = self.lane_id() {
            self.lanes.close(now, id, &mut self.out);
        }
    }

    /// Lets the connection of a lane handle a message, also of a lane that was left.
    pub(super) fn handle_lane_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
    ) -> ConnectionChange {
        let signal = self.lanes.handle_event(now, lane, event, MessageMeta::default(), &mut self.out);
        signal.map_or(ConnectionChange::None, |(_, signal)| signal.change)
    }

    /// Handles what changed for the connection.
    pub(super) fn handle_change(&mut self, now: Instant, change: ConnectionChange) {
        match change {
            ConnectionChange::Failed(failure) if failure.was_in_use => {
                self.handle_upstream_loss(now, failure.detail);
            }
            // [`Timer::Resume`] limits the time without an upstream.
            ConnectionChange::Failed(_) if self.outage.is_some() => {
                self.leave_upstream(now);
                self.schedule_dial(now + Duration::from_millis(self.lanes.times().retry_max_ms));
            }
            ConnectionChange::Failed(failure) => self.fail_permanently(now, failure),
            ConnectionChange::QueueStuck(detail) => {
                let Some(connection) = self.connection() else { return };
                let queued = Observation::LaneQueued { lane: connection.lane, position: None, words: detail };
                self.out.observe(queued);
            }
            ConnectionChange::None
            | ConnectionChange::Queued
            | ConnectionChange::Ready
            | ConnectionChange::EmptyAnswer => {}
        }
        self.send_early();
        if matches!(self.phase, RelayPhase::Closing(_)) && !self.has_live_connection() {
            self.confirm_close(now);
        }
    }

    fn has_live_connection(&self) -> bool {
        self.connection().is_some_and(|connection| !connection.is_gone())
    }

    /// Initialises the upstream session with the client's opening, if both exist.
    pub(super) fn initialise(&mut self, now: Instant) {
        let init = match (&self.opening.start, &self.opening.first_message) {
            (RelayStart::Init(variants), _) => {
                match variants.get(self.opening.init_variant % variants.len().max(1)) {
                    Some(init) => init.clone(),
                    None => return,
                }
            }
            (RelayStart::FirstMessage, Some(message)) => message.text.clone(),
            _ => return,
        };
        if let Some(id) = self.lane_id() {
            self.lanes.initialise(now, id, LaneCommand::RawText(init), &mut self.out);
        }
    }

    /// Opens the session with the next message, if the client sent no opening.
    pub(super) fn init_with_first_message(&mut self, now: Instant) {
        if self.opening.start == RelayStart::FirstMessage
            && self.opening.first_message.is_none()
            && !self.is_open()
        {
            self.opening.first_message = self.messages.pending.pop();
            self.initialise(now);
        }
    }

    /// Replaces a first message that did not open the session by the client's opening.
    pub(super) fn replace_first_message(&mut self, now: Instant, variants: Vec<String>) {
        let sent_early = self.sent_early_count() + usize::from(self.is_initialising());
        if let Some(first) = self.opening.first_message.take() {
            self.messages.pending.push_front(first);
        }
        self.opening.start = RelayStart::Init(variants);
        if let Some(id) = self.lane_id() {
            self.messages.sent_early = Some((self.lanes.lane(id), sent_early));
            self.lanes.await_init(id);
        }
        self.initialise(now);
        self.send_early();
    }

    /// Sends waiting messages before the session is open. A server of the client's own protocol receives them then
    /// without voxbridge too. They are kept for another attempt.
    pub(super) fn send_early(&mut self) {
        let sent = self.sent_early_count();
        let Some(connection) = self.connection() else { return };
        if !self.codecs.is_passthrough() || self.reported.opened || !connection.is_initialising() {
            return;
        }
        let lane = connection.lane;
        for message in self.messages.pending.iter_after(sent) {
            self.out.push(Action::ToLane(lane, LaneCommand::RawText(message.text.clone())));
        }
        self.messages.sent_early = Some((lane, self.messages.pending.len()));
    }

    fn sent_early_count(&self) -> usize {
        self.messages.sent_early.filter(|(lane, _)| self.owns_lane(*lane)).map_or(0, |(_, count)| count)
    }

    /// Waits for another opening after the upstream refused the last one and the messages behind it.
    pub(super) fn await_new_opening(&mut self) {
        (0..self.sent_early_count()).for_each(|_| drop(self.messages.pending.pop()));
        (self.opening.start, self.opening.first_message, self.messages.sent_early) =
            (RelayStart::Unknown, None, None);
        if let Some(id) = self.lane_id() {
            self.lanes.await_init(id);
        }
    }

    /// Sends the waiting messages in a session that has opened.
    pub(super) fn handle_session_opened(&mut self, now: Instant) {
        if let Some(id) = self.lane_id() {
            self.lanes.engage(id);
        }
        self.opening.refusals = 0;
        self.messages.sent_unchecked = false;
        self.ready_at = Some(now);
        self.answer_count = 0;
        self.timers.clear(&[Timer::Resume]);
        if let Some(outage) = self.outage.take() {
            let (kept, dropped) =
                (self.messages.pending.len() as u64, std::mem::take(&mut self.messages.pending.dropped));
            let gap_ms = crate::session::millis(now - outage.since);
            self.out.observe(Observation::RelayResumed { gap_ms, kept, dropped });
        }
        if let Some(ClientMessage { text, append: Some(append) }) = self.opening.first_message.take() {
            self.messages.in_flight.push(&text, append);
        }
        let sent_early = self.sent_early_count();
        self.messages.sent_early = None;
        for at in 0.. {
            match self.messages.pending.pop() {
                Some(ClientMessage { text, append: Some(append) }) if at < sent_early => {
                    self.messages.in_flight.push(&text, append);
                }
                Some(_) if at < sent_early => self.messages.sent_unchecked = true,
                Some(message) => self.send_upstream(message),
                None => break,
            }
        }
    }

    /// Handles the loss of an open upstream session: another replaces it, and the client sees a pause.
    pub(super) fn handle_upstream_loss(&mut self, now: Instant, detail: String) {
        self.detach_connection();
        if self.phase != RelayPhase::Open {
            return self.end_after_loss(now);
        }
        if self.mode == Mode::Chat && self.turn.is_some() {
            // The client has a part of the answer. A new request would give a different one.
            let error = format!("the answer was interrupted: {detail}");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error));
        }
        self.close_turn(now);
        self.merger.reset_steps();
        let (unanswered, too_long) = self.messages.in_flight.take_unanswered();
        if too_long > 0 && self.mode == Mode::Chat {
            let error = format!("{detail}; the request is too long to send again");
            return self.fail(now, &Error::new(ErrorKind::ConversationLost, error));
        }
        self.messages.pending.dropped += too_long as u64;
        unanswered.into_iter().for_each(|message| self.messages.pending.push_front(message));
        if self.outage.is_none() {
            self.outage = Some(RelayOutage { since: now });
            let resume_max = Duration::from_millis(self.rules.resume_max_ms);
            self.timers.set(Timer::Resume, now + resume_max);
        }
        self.redial(now, detail);
    }

    fn end_after_loss(&mut self, now: Instant) {
        match self.phase {
            RelayPhase::Finishing(reason) => self.end(now, reason, None),
            RelayPhase::Closing(_) => self.confirm_close(now),
            RelayPhase::Open | RelayPhase::Over => {}
        }
    }

    /// Dials again: at once after a useful session, else after a pause.
    fn redial(&mut self, now: Instant, detail: String) {
        let pause = Duration::from_millis(self.lanes.times().retry_first_ms);
        let was_stable = self.ready_at.is_some_and(|ready_at| now - ready_at >= pause);
        if self.answer_count >= USEFUL_ANSWERS && was_stable {
            self.retry = None;
            return self.dial(now);
        }
        if let (Some(retry), Some(ready_at)) = (&mut self.retry, self.ready_at) {
            retry.exclude_uptime(now - ready_at);
        }
        RetryState::record_failure(&mut self.retry, now, ErrorKind::ConversationLost, detail);
        let Some(retry) = &self.retry else { return };
        match self.lanes.next_attempt(now, retry) {
            Ok(at) => self.schedule_dial(at),
            Err(failure) => self.fail_permanently(now, failure),
        }
    }

    fn schedule_dial(&mut self, at: Instant) {
        self.upstream = RelayUpstream::Scheduled;
        self.timers.set(Timer::Redial, at);
    }

    pub(super) fn dial(&mut self, now: Instant) {
        self.timers.clear(&[Timer::Redial]);
        if !self.lanes.can_dial() {
            // Closing lanes still hold workers, and one client may take only a few.
            let pause = Duration::from_millis(self.lanes.times().retry_first_ms.max(1));
            return self.schedule_dial(now + pause);
        }
        let id = self.lanes.open(now, Owner::Relay, self.mode, None, &mut self.out);
        self.upstream = RelayUpstream::Connected(id);
        self.initialise(now);
        self.init_with_first_message(now);
    }

    /// Opens a fresh upstream session, because the client opened the session again with other parameters.
    pub(super) fn reopen(&mut self, now: Instant) {
        self.close_turn(now);
        self.merger.reset_steps();
        self.messages.pending.clear();
        self.messages.in_flight.take_unanswered();
        (self.reported.opened, self.outage) = (false, None);
        self.timers.clear(&[Timer::Resume]);
        if matches!(self.upstream, RelayUpstream::Scheduled)
            || self.connection().is_some_and(|connection| !connection.holds_worker())
        {
            // Only the opening changes. The position in the queue stays.
            return self.initialise(now);
        }
        self.leave_upstream(now);
        self.dial(now);
    }

    fn fail_resume(&mut self, now: Instant) {
        let last_error = self.connection().and_then(UpstreamConnection::last_error);
        let last_error = last_error.map_or(String::new(), |error| format!("; last, {error}"));
        let resume_max_ms = self.rules.resume_max_ms;
        let detail = format!(
            "the upstream was lost, and there was no other one within {resume_max_ms} ms{last_error}"
        );
        self.fail_permanently(
            now,
            ConnectionFailure { kind: ErrorKind::ConversationLost, detail, was_in_use: false },
        );
    }

    /// Ends the session: no upstream is available.
    fn fail_permanently(&mut self, now: Instant, failure: ConnectionFailure) {
        // Cancels a connection that would retry.
        self.leave_upstream(now);
        let kind = if self.reported.opened { ErrorKind::ConversationLost } else { failure.kind };
        self.fail(now, &Error::new(kind, failure.detail));
    }

    /// Hands a closing connection over to the session.
    pub(super) fn detach_connection(&mut self) {
        self.timers.clear(&[Timer::Redial]);
        if let RelayUpstream::Connected(id) = std::mem::replace(&mut self.upstream, RelayUpstream::Stopped) {
            self.lanes.release(id);
        }
    }

    /// Leaves the upstream politely. An answer in progress is drained.
    pub(super) fn leave_upstream(&mut self, now: Instant) {
        self.timers.clear(&[Timer::Redial]);
        let RelayUpstream::Connected(id) = std::mem::replace(&mut self.upstream, RelayUpstream::Stopped)
        else {
            return;
        };
        if self.mode == Mode::Chat {
            let answers = u16::try_from(self.messages.in_flight.len()).unwrap_or(u16::MAX);
            self.lanes.await_replies(now, id, answers);
        }
        self.lanes.retire(now, id, &mut self.out);
    }

    /// Handles the expired timers of the lanes.
    pub(super) fn handle_lane_timeouts(&mut self, now: Instant) {
        if self.timers.take_expired(Timer::Resume, now) {
            self.fail_resume(now);
        }
        if self.timers.take_expired(Timer::Redial, now) {
            self.dial(now);
        }
        for id in self.lanes.expired(now) {
            let signal = self.lanes.handle_timeout(now, id, &mut self.out);
            if let Some((Owner::Relay, signal)) = signal {
                self.handle_change(now, signal.change);
            }
        }
    }
}
