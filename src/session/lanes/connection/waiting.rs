//! Connections that need a worker and have none: they wait in a queue, or are not dialled yet.

use std::time::{Duration, Instant};

use super::{ConnectionChange, ConnectionPhase, QueuePlace, QueueState, UpstreamConnection};
use crate::{
    error::ErrorKind,
    session::{
        lanes::{LaneShared, backoff::ConnectionFailure},
        outbox::{Observation, lane_outbox::LaneAction},
    },
    spelling::profile::LaneTimeouts,
    vocabulary::Lane,
};

impl UpstreamConnection {
    /// True while it is not dialled because too many lanes of the session are closing.
    pub(in crate::session::lanes) const fn is_held(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Held(_))
    }

    /// True while it is not dialled: it could use a place in a queue instead.
    pub(in crate::session::lanes) const fn is_undialled(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Held(_) | ConnectionPhase::BackingOff)
    }

    /// True while it needs a worker and has none.
    pub(in crate::session::lanes) const fn needs_worker(&self) -> bool {
        self.is_undialled() || matches!(self.phase, ConnectionPhase::Dialling | ConnectionPhase::Queued(_))
    }

    /// Does not dial until there is room for another lane.
    pub(in crate::session::lanes) fn hold(&mut self, now: Instant, times: &LaneTimeouts) {
        let queue = QueueState { since: now, position: None, stuck_reported: false };
        let deadline = queue.stuck_deadline(now, times);
        self.enter(ConnectionPhase::Held(queue), Some(deadline));
    }

    /// Dials now or later, because there is room. The time until then counts as a wait in the queue.
    pub(in crate::session::lanes) fn dial_held(
        &mut self,
        now: Instant,
        not_before: Option<Instant>,
        shared: &mut LaneShared,
    ) {
        if let ConnectionPhase::Held(queue) = &self.phase {
            self.queued_since = Some(queue.since);
            self.dial_first(now, not_before, shared);
        }
    }

    /// Start of the wait for a worker; `None` if the connection does not wait.
    const fn waits_since(&self) -> Option<Instant> {
        match &self.phase {
            ConnectionPhase::Held(queue) | ConnectionPhase::Queued(queue) => Some(queue.since),
            _ => self.queued_since,
        }
    }

    /// Takes over an unneeded connection and its place in the queue. Returns the connection that is left.
    pub(in crate::session::lanes) fn take_place_of(
        &mut self,
        now: Instant,
        mut place: Self,
        shared: &mut LaneShared,
    ) -> Self {
        place.queued_since = self.waits_since();
        place.return_to_queue(now, shared);
        (place.init, place.opened_at) = (self.init.clone(), self.opened_at);
        std::mem::replace(self, place)
    }

    /// Continues with a new connection at another upstream. Returns the connection that is left, still in its queue.
    pub(in crate::session::lanes) fn leave_place(
        &mut self,
        now: Instant,
        lane: Lane,
        shared: &mut LaneShared,
    ) -> Self {
        let mut next = Self::new(self.opened_at, lane, self.service, self.init.clone());
        next.queued_since = self.waits_since();
        let mut left = std::mem::replace(self, next);
        left.close(now, shared);
        self.dial(now, lane, shared);
        left
    }

    /// Keeps its place in the queue for a new request.
    fn return_to_queue(&mut self, now: Instant, shared: &mut LaneShared) {
        let ConnectionPhase::Unneeded { position, .. } = self.phase else { return };
        let words = "needed again".to_owned();
        shared.out.observe(Observation::LaneQueued { lane: self.lane, position, words });
        self.retry = None;
        self.wait_in_queue(now, position, &shared.times);
    }

    /// Starts to wait in the queue for the client, at a known position or not.
    pub(super) fn wait_in_queue(&mut self, now: Instant, position: Option<u32>, times: &LaneTimeouts) {
        let queue = QueueState { since: self.queued_since.unwrap_or(now), position, stuck_reported: false };
        let deadline = queue.stuck_deadline(now, times);
        self.enter(ConnectionPhase::Queued(queue), Some(deadline));
    }

    /// Counts the wait for a worker from now on, because the client begins to wait for it.
    pub(crate) fn restart_queue_wait(&mut self, now: Instant, times: &LaneTimeouts) {
        self.queued_since = None;
        match self.phase {
            ConnectionPhase::Held(_) => self.hold(now, times),
            ConnectionPhase::Queued(QueueState { position, .. }) => self.wait_in_queue(now, position, times),
            _ => {}
        }
    }

    /// Handles the expired timer of the wait: the first time reports a stuck queue, at the deadline gives up.
    /// `session_holds_worker` as in [`UpstreamConnection::handle_timeout`].
    pub(super) fn handle_queue_timeout(
        &mut self,
        now: Instant,
        session_holds_worker: bool,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        let (ConnectionPhase::Held(queue) | ConnectionPhase::Queued(queue)) = &mut self.phase else {
            return ConnectionChange::None;
        };
        let is_over = now - queue.since >= Duration::from_millis(shared.times.queue_max_ms);
        if session_holds_worker && !is_over {
            // This session itself occupies the worker, and not for long.
            self.deadline = Some(queue.stuck_deadline(now, &shared.times));
            return ConnectionChange::None;
        }
        queue.stuck_reported = true;
        self.deadline = Some(queue.since + Duration::from_millis(shared.times.queue_max_ms));
        let detail = self.describe_wait(now);
        if !is_over {
            return ConnectionChange::QueueStuck(detail);
        }
        self.give_up_in_queue(now, shared);
        ConnectionChange::Failed(ConnectionFailure::unused(ErrorKind::QueueTimeout, detail))
    }

    fn describe_wait(&self, now: Instant) -> String {
        let waited = self.waits_since().map_or(Duration::ZERO, |since| now - since).as_secs_f64();
        let status = match self.queue_position() {
            Some(QueuePlace { position, .. }) => format!("stayed at position {position}"),
            None if self.is_held() => "held earlier requests of this session".to_owned(),
            None => "sent nothing".to_owned(),
        };
        format!("the upstream's queue {status} for {waited:.0} s; another client may hold the worker")
    }

    /// Stops waiting for a worker. An upstream that has not reported a queue is dropped.
    fn give_up_in_queue(&mut self, now: Instant, shared: &mut LaneShared) {
        if self.is_queued() || self.is_held() {
            self.close(now, shared);
        } else {
            shared.out.push(LaneAction::Drop(self.lane));
            self.enter(ConnectionPhase::Gone, None);
        }
    }
}

impl QueueState {
    /// Instant at which a queue that last moved at `moved_at` counts as stuck, or the whole wait as too long.
    pub(super) fn stuck_deadline(&self, moved_at: Instant, times: &LaneTimeouts) -> Instant {
        let stuck_at = moved_at + Duration::from_millis(times.queue_stuck_ms);
        stuck_at.min(self.since + Duration::from_millis(times.queue_max_ms))
    }
}
