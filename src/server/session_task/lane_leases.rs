//! What a session says of its lanes, passed on to those who choose among upstreams.

use std::collections::BTreeMap;

use crate::server::upstream_pool::lease::Lease;
use crate::{
    event::{DisconnectReason, Lane},
    session::Observation,
};

/// The leases of a session's lanes.
#[derive(Default)]
pub(crate) struct LaneLeases {
    /// Kept until what a lane's end led to is known.
    leases: BTreeMap<Lane, Lease>,
}

impl LaneLeases {
    /// A lane is connected.
    pub(crate) fn insert(&mut self, lane: Lane, lease: Lease) {
        self.leases.insert(lane, lease);
    }

    /// A lane's transport is gone.
    pub(crate) fn lane_ended(&mut self, lane: Lane, reason: &DisconnectReason) {
        self.with_lease(lane, |lease| lease.report_disconnect(reason));
    }

    /// Everything is known of the lanes that are not among these.
    pub(crate) fn retain(&mut self, lanes: impl Iterator<Item = Lane> + Clone) {
        self.leases.retain(|lane, _| lanes.clone().any(|known| known == *lane));
    }

    /// The session said something.
    pub(crate) fn handle_observation(&mut self, observation: &Observation) {
        match observation {
            Observation::LaneReady { lane, .. } => self.with_lease(*lane, Lease::report_ready),
            Observation::LaneQueued { lane, position: Some(position), .. } => {
                self.with_lease(*lane, |lease| lease.report_queued(*position));
            }
            Observation::LaneRetry { lane, words, .. } | Observation::LaneFailed { lane, words } => {
                self.with_lease(*lane, |lease| lease.report_failure(words));
            }
            _ => {}
        }
    }

    fn with_lease(&mut self, lane: Lane, act: impl FnOnce(&mut Lease)) {
        if let Some(lease) = self.leases.get_mut(&lane) {
            act(lease);
        }
    }
}
