//! What a session says of its lanes, passed on to those who choose among upstreams.

use std::collections::BTreeMap;

use crate::server::upstream_pool::lease::Lease;
use crate::{
    event::{Lane, Why},
    session::Observation,
};

/// The leases of a session's lanes.
#[derive(Default)]
pub(crate) struct Feedback {
    /// Kept until what a lane's end led to is known.
    leases: BTreeMap<Lane, Lease>,
}

impl Feedback {
    /// A lane is connected.
    pub(crate) fn hold(&mut self, lane: Lane, lease: Lease) {
        self.leases.insert(lane, lease);
    }

    /// A lane's transport is gone.
    pub(crate) fn ended(&mut self, lane: Lane, why: &Why) {
        self.with(lane, |lease| lease.ended(why));
    }

    /// Everything is known of the lanes that are not among these.
    pub(crate) fn forget_all_but(&mut self, lanes: impl Iterator<Item = Lane> + Clone) {
        self.leases.retain(|lane, _| lanes.clone().any(|known| known == *lane));
    }

    /// The session said something.
    pub(crate) fn observe(&mut self, observation: &Observation) {
        match observation {
            Observation::LaneReady { lane, .. } => self.with(*lane, Lease::ready),
            Observation::LaneQueued { lane, position: Some(position), .. } => {
                self.with(*lane, |lease| lease.queued(*position));
            }
            Observation::LaneRetry { lane, words, .. } | Observation::LaneFailed { lane, words } => {
                self.with(*lane, |lease| lease.failed(words));
            }
            _ => {}
        }
    }

    fn with(&mut self, lane: Lane, tell: impl FnOnce(&mut Lease)) {
        if let Some(lease) = self.leases.get_mut(&lane) {
            tell(lease);
        }
    }
}
