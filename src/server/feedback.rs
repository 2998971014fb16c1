//! What a session says of its lanes, passed on to those who choose among upstreams.
//!
//! Some of it names no lane, only what happened; it is about the lane that was last dealt with: what a session has to say
//! of a lane it says at once.

use std::collections::BTreeMap;

use super::pool::lease::Lease;
use crate::{
    error::{ErrorKind, Origin},
    event::{Lane, Why},
    session::Observation,
};

/// The leases of a session's lanes.
#[derive(Default)]
pub(super) struct Feedback {
    /// Kept until what a lane's end led to is known.
    leases: BTreeMap<Lane, Lease>,
    about: Option<Lane>,
}

impl Feedback {
    /// A lane is connected.
    pub(super) fn hold(&mut self, lane: Lane, lease: Lease) {
        self.leases.insert(lane, lease);
    }

    /// The lane that is being dealt with.
    pub(super) const fn about(&mut self, lane: Option<Lane>) {
        self.about = lane;
    }

    /// A lane's transport is gone.
    pub(super) fn ended(&mut self, lane: Lane, why: &Why) {
        self.about = Some(lane);
        self.with(Some(lane), |lease| lease.ended(why));
    }

    /// Everything is known of the lanes that are not among these.
    pub(super) fn forget_all_but(&mut self, lanes: impl Iterator<Item = Lane> + Clone) {
        self.leases.retain(|lane, _| lanes.clone().any(|known| known == *lane));
    }

    /// The session said something.
    pub(super) fn observe(&mut self, observation: &Observation) {
        match observation {
            Observation::LaneReady { lane, .. } => self.with(Some(*lane), Lease::ready),
            Observation::LaneQueued { lane, position: Some(position), .. } => {
                self.with(Some(*lane), |lease| lease.queued(*position));
            }
            Observation::LaneRetry { lane, words, .. } => self.with(Some(*lane), |lease| lease.failed(words)),
            Observation::AskedAgain(words) => self.with(self.about, |lease| lease.failed(words)),
            Observation::ErrorTold(error) if blames_upstream(error.kind) => {
                self.with(self.about, |lease| lease.failed(&error.detail));
            }
            _ => {}
        }
    }

    fn with(&mut self, lane: Option<Lane>, tell: impl FnOnce(&mut Lease)) {
        if let Some(lease) = lane.and_then(|lane| self.leases.get_mut(&lane)) {
            tell(lease);
        }
    }
}

/// A queue that is long or does not move is load, no failure.
fn blames_upstream(kind: ErrorKind) -> bool {
    kind.origin() == Origin::Upstream && !matches!(kind, ErrorKind::QueueFull | ErrorKind::QueueStuck)
}
