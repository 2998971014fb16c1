//! The leases of a session's lanes: reports to the upstream pool how each lane fares.

use std::time::Duration;

use tokio::time::Instant;

use super::{lease::Lease, upstream::PooledUpstream};
use crate::{
    session::{Measurement, Observation},
    vocabulary::{DisconnectReason, Lane},
};

/// The leases of a session's lanes.
#[derive(Debug, Default)]
pub struct LaneLeases {
    leases: Vec<(Lane, Lease)>,
}

impl LaneLeases {
    /// A lane is connected.
    pub fn insert(&mut self, lane: Lane, lease: Lease) {
        self.leases.reserve_exact(1);
        self.leases.push((lane, lease));
    }

    /// The lease of a lane.
    pub fn get(&self, lane: Lane) -> Option<&Lease> {
        self.leases.iter().find_map(|(known, lease)| (*known == lane).then_some(lease))
    }

    /// Name of a lane's upstream.
    pub fn upstream(&self, lane: Lane) -> Option<&str> {
        self.get(lane).map(Lease::upstream)
    }

    /// True if a lane of the session waits in the queue of this upstream.
    pub(super) fn wait_at(&self, upstream: &PooledUpstream) -> bool {
        self.leases.iter().any(|(_, lease)| lease.waits_at(upstream))
    }

    /// The needed lanes that wait in queues, with the start of their wait.
    pub fn waiting(&self) -> impl Iterator<Item = (Lane, Instant)> {
        self.leases.iter().filter_map(|(lane, lease)| Some((*lane, lease.waits_since()?)))
    }

    /// A lane whose transport had ended is connected again.
    pub fn lane_reconnected(&mut self, lane: Lane) {
        self.with_lease(lane, Lease::report_reconnected);
    }

    /// A lane's transport has ended.
    pub fn lane_ended(&mut self, lane: Lane, reason: &DisconnectReason) {
        self.with_lease(lane, |lease| lease.report_disconnect(reason));
    }

    /// A lane's upstream takes no request for now, or for as long as it says.
    pub fn report_busy(&mut self, lane: Lane, retry_after: Option<Duration>) {
        self.with_lease(lane, |lease| lease.report_busy(retry_after));
    }

    /// Drops the lease of a lane.
    pub fn remove(&mut self, lane: Lane) {
        self.leases.retain(|(known, _)| *known != lane);
    }

    /// Passes an observation about a lane to its lease.
    pub fn handle_observation(&mut self, observation: &Observation) {
        match observation {
            Observation::LaneReady { lane, .. } => self.with_lease(*lane, Lease::report_ready),
            Observation::LaneQueued { lane, position: Some(position), .. } => {
                self.with_lease(*lane, |lease| lease.report_queued(*position));
            }
            Observation::LaneUnneeded { lane, .. } => self.with_lease(*lane, Lease::report_unneeded),
            Observation::LaneRetry { lane, is_busy: true, .. } => self.report_busy(*lane, None),
            Observation::LaneRetry { lane, words, .. } | Observation::LaneFailed { lane, words } => {
                self.with_lease(*lane, |lease| lease.report_failure(words));
            }
            Observation::LaneRefused { lane, words, by_configuration } => {
                self.with_lease(*lane, |lease| lease.report_refused(by_configuration.then_some(words)));
            }
            Observation::Measured(Measurement::LaneAnswered { lane }) => {
                self.with_lease(*lane, |lease| lease.report_answered());
            }
            _ => {}
        }
    }

    fn with_lease(&mut self, lane: Lane, act: impl FnOnce(&mut Lease)) {
        if let Some((_, lease)) = self.leases.iter_mut().find(|(known, _)| *known == lane) {
            act(lease);
        }
    }
}
