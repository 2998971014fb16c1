//! Upstream session of a relay: dialled at once, retried until it is open, replaced when it is lost.

use std::time::{Duration, Instant};

use crate::{
    error::ErrorKind,
    session::{
        lanes::{
            LaneId, Lanes, Owner,
            backoff::{ConnectionFailure, RetryState},
            connection::{ConnectionChange, UpstreamConnection},
        },
        timers::{Timer, Timers},
    },
    vocabulary::{Lane, LaneEvent, LaneRequest, MessageMeta, Mode},
};

/// Answers after which an upstream session was useful. Its successor is dialled at once, unless the session was shorter
/// than the first retry pause. The limit keeps an upstream that dies after a few words from being dialled without end.
const USEFUL_ANSWERS: u64 = 3;

/// State of the upstream session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RelayUpstream {
    /// Open or being opened.
    Connected(LaneId),
    /// Dials when [`Timer::Redial`] expires.
    Scheduled,
    /// No session, and none is wanted.
    Stopped,
}

/// The lane in use, and the lanes that close.
#[derive(Debug)]
pub(super) struct RelayLane {
    pub(super) lanes: Lanes,
    pub(super) upstream: RelayUpstream,
    retry: Option<RetryState>,
    /// When the upstream session opened.
    ready_at: Option<Instant>,
    pub(super) answer_count: u64,
    /// Time since which a lost upstream session is replaced.
    pub(super) lost_since: Option<Instant>,
}

impl RelayLane {
    pub(super) const fn new(lanes: Lanes) -> Self {
        Self {
            lanes,
            upstream: RelayUpstream::Stopped,
            retry: None,
            ready_at: None,
            answer_count: 0,
            lost_since: None,
        }
    }

    pub(super) const fn id(&self) -> Option<LaneId> {
        match self.upstream {
            RelayUpstream::Connected(id) => Some(id),
            RelayUpstream::Scheduled | RelayUpstream::Stopped => None,
        }
    }

    pub(super) fn connection(&self) -> Option<&UpstreamConnection> {
        self.lanes.get(self.id()?)
    }

    pub(super) fn is(&self, lane: Lane) -> bool {
        self.connection().is_some_and(|connection| connection.lane == lane)
    }

    /// True if the upstream session is open.
    pub(super) fn is_open(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::is_engaged)
    }

    pub(super) fn is_initialising(&self) -> bool {
        self.connection().is_some_and(UpstreamConnection::is_initialising)
    }

    /// Lets the connection of a lane handle a message, also of a lane that was left.
    pub(super) fn handle_event(
        &mut self,
        now: Instant,
        lane: Lane,
        event: &LaneEvent<'_>,
    ) -> ConnectionChange {
        let signal = self.lanes.handle_event(now, lane, event, MessageMeta::default());
        signal.map_or(ConnectionChange::None, |signal| signal.change)
    }

    /// Lets the connection of the lane in use handle a message.
    pub(super) fn handle_own_event(&mut self, now: Instant, event: &LaneEvent<'_>) -> ConnectionChange {
        match self.connection().map(|connection| connection.lane) {
            Some(lane) => self.handle_event(now, lane, event),
            None => ConnectionChange::None,
        }
    }

    /// True until the transport is gone.
    pub(super) fn is_live(&self) -> bool {
        self.connection().is_some_and(|connection| !connection.is_gone())
    }

    /// Closes the lane politely. The relay keeps it.
    pub(super) fn close(&mut self, now: Instant) {
        if let Some(id) = self.id() {
            self.lanes.close(now, id);
        }
    }

    /// Opens the upstream session with this message.
    pub(super) fn initialise(&mut self, now: Instant, init: LaneRequest) {
        if let Some(id) = self.id() {
            self.lanes.initialise(now, id, init);
        }
    }

    /// Puts the upstream session to use. Returns the time without one, if it replaces a lost one.
    pub(super) fn engage(&mut self, now: Instant) -> Option<Duration> {
        if let Some(id) = self.id() {
            self.lanes.engage(id);
        }
        (self.ready_at, self.answer_count) = (Some(now), 0);
        self.lost_since.take().map(|since| now - since)
    }

    /// Dials in this mode, once closing lanes leave room: they still hold workers, and one client may take only a few.
    /// Returns true if it dialled.
    pub(super) fn dial(&mut self, now: Instant, mode: Mode, timers: &mut Timers) -> bool {
        timers.clear(&[Timer::Redial]);
        if !self.lanes.can_dial(Owner::Relay) {
            let pause = Duration::from_millis(self.lanes.times().retry_first_ms.max(1));
            self.schedule_dial(now + pause, timers);
            return false;
        }
        self.upstream = RelayUpstream::Connected(self.lanes.open(now, Owner::Relay, mode, None));
        true
    }

    pub(super) fn schedule_dial(&mut self, at: Instant, timers: &mut Timers) {
        self.upstream = RelayUpstream::Scheduled;
        timers.set(Timer::Redial, at);
    }

    /// When to dial after a loss: at once after a useful session, else after a pause.
    ///
    /// # Errors
    /// The failure to report when the attempts are used up.
    pub(super) fn redial_at(&mut self, now: Instant, detail: String) -> Result<Instant, ConnectionFailure> {
        let pause = Duration::from_millis(self.lanes.times().retry_first_ms);
        let was_stable = self.ready_at.is_some_and(|ready_at| now - ready_at >= pause);
        if self.answer_count >= USEFUL_ANSWERS && was_stable {
            self.retry = None;
            return Ok(now);
        }
        if let (Some(retry), Some(ready_at)) = (&mut self.retry, self.ready_at) {
            retry.exclude_uptime(now - ready_at);
        }
        RetryState::record_failure(&mut self.retry, now, ErrorKind::ConversationLost, detail);
        self.retry.as_ref().map_or(Ok(now), |retry| self.lanes.next_attempt(now, retry))
    }

    /// Hands a closing connection over to the other lanes.
    pub(super) fn detach(&mut self, timers: &mut Timers) -> Option<LaneId> {
        timers.clear(&[Timer::Redial]);
        let id = self.id();
        self.upstream = RelayUpstream::Stopped;
        id.inspect(|id| self.lanes.release(*id))
    }

    /// Leaves the upstream politely. Answers in progress are drained.
    pub(super) fn leave(&mut self, now: Instant, answers: usize, timers: &mut Timers) {
        timers.clear(&[Timer::Redial]);
        let id = self.id();
        self.upstream = RelayUpstream::Stopped;
        if let Some(id) = id {
            self.lanes.await_replies(now, id, u16::try_from(answers).unwrap_or(u16::MAX));
            self.lanes.retire(now, id);
        }
    }
}
