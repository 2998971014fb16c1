//! An unneeded connection that waits in the upstream's queue.
//!
//! Both real gateways send `session.queue_done` outside their `try`. When the queued client has disconnected, that send raises,
//! and the worker is lost until the gateway restarts. So the connection stays until it has a worker, and then closes politely.
//! Until then a new request may use it.

use std::time::{Duration, Instant};

use super::{ConnectionChange, ConnectionPhase, LaneService, QueueState, UpstreamConnection};
use crate::{
    session::{lanes::LaneShared, outbox::Observation},
    vocabulary::LaneEvent,
};

impl UpstreamConnection {
    /// True while it waits in the queue although nothing needs it.
    pub(crate) const fn is_unneeded(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Unneeded { .. })
    }

    /// True if its close message was sent, so that no new request can use it.
    pub(crate) const fn is_unneeded_for_good(&self) -> bool {
        matches!(self.phase, ConnectionPhase::Unneeded { is_close_sent: true, .. })
    }

    /// True if a request for this service can use it instead of a new connection. With `moves_at`, only if the
    /// queue is not stuck then: a new connection may reach another upstream.
    pub(in crate::session::lanes) fn can_return_to_queue(
        &self,
        moves_at: Option<Instant>,
        service: LaneService,
    ) -> bool {
        let ConnectionPhase::Unneeded { stuck_at, is_close_sent: false, .. } = self.phase else {
            return false;
        };
        moves_at.is_none_or(|at| at < stuck_at) && self.service == service
    }

    /// Stays in the queue until a worker is assigned, although nothing needs the connection.
    pub(super) fn wait_unneeded(
        &mut self,
        now: Instant,
        position: Option<u32>,
        is_close_sent: bool,
        shared: &mut LaneShared,
    ) {
        shared.out.observe(Observation::LaneUnneeded { lane: self.lane, position });
        let stuck_at = match &self.phase {
            ConnectionPhase::Queued(QueueState { stuck_reported: false, .. }) => self.deadline.unwrap_or(now),
            _ => now,
        };
        self.enter(ConnectionPhase::Unneeded { position, stuck_at, is_close_sent }, None);
    }

    /// Handles a message of the upstream while it waits in the queue unneeded.
    pub(super) fn handle_unneeded_event(
        &mut self,
        now: Instant,
        event: &LaneEvent<'_>,
        shared: &mut LaneShared,
    ) -> ConnectionChange {
        let ConnectionPhase::Unneeded { position, stuck_at, is_close_sent } = &mut self.phase else {
            return ConnectionChange::None;
        };
        match event {
            LaneEvent::Queued { position: place, .. } if *place != *position => {
                *position = *place;
                *stuck_at = now + Duration::from_millis(shared.times.queue_stuck_ms);
            }
            LaneEvent::Granted if *is_close_sent => {
                self.granted_at = Some(now);
                self.start_closing(now, false, &shared.times);
            }
            LaneEvent::Granted => {
                self.granted_at = Some(now);
                self.send_close(now, shared);
            }
            LaneEvent::Closed(_) => self.start_closing(now, false, &shared.times),
            _ => {}
        }
        ConnectionChange::None
    }
}
