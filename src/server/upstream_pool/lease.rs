//! What a lane holds of its upstream from dialling to its end: its part of the load, and a way to say what became of it.
//!
//! The first verdict counts. A lane about which nothing bad was said served well if it had been ready.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{health::LaneFailure, upstream::PooledUpstream};
use crate::event::DisconnectReason;

/// A dial that is given up after so long was waited for in vain; a session has its own, longer patience.
const UNANSWERED_AFTER: Duration = Duration::from_millis(500);
/// Close code of a gateway that takes nobody: queue full, worker busy, not ready (field notes §1.1, §1.2).
const TRY_AGAIN_LATER: u16 = 1013;

/// A lane's hold on its upstream; dropping it gives the load back.
#[derive(Debug)]
pub struct Lease {
    upstream: Arc<PooledUpstream>,
    avoided: AvoidedUpstream,
    stage: LeaseStage,
    had_waited: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseStage {
    /// Connecting since.
    Dialling(Instant),
    /// Connected and not initialised.
    Opening,
    /// Initialised.
    Ready,
    /// The transport broke; whether the session minded is for it to say.
    Broken { was_ready: bool },
    /// What became of it was said.
    Reported,
}

impl Lease {
    pub(super) fn new(upstream: Arc<PooledUpstream>, avoided: AvoidedUpstream) -> Self {
        upstream.lane_opened();
        Self { upstream, avoided, stage: LeaseStage::Dialling(Instant::now()), had_waited: false }
    }

    /// The upstream's name.
    #[must_use]
    pub fn upstream(&self) -> &str {
        self.upstream.name()
    }

    pub(super) const fn mark_connected(&mut self) {
        self.stage = LeaseStage::Opening;
    }

    pub(super) fn dial_failed(&mut self, reason: &DisconnectReason) {
        if let DisconnectReason::HttpRejected(_) = reason {
            self.stage = LeaseStage::Opening;
        }
        self.report_failure(&format!("it {reason}"));
    }

    /// The lane waits at this place of the upstream's queue.
    pub fn report_queued(&mut self, position: u32) {
        self.had_waited = true;
        self.upstream.lane_queued(position);
    }

    /// The lane is initialised.
    pub fn report_ready(&mut self) {
        if self.stage == LeaseStage::Opening {
            self.stage = LeaseStage::Ready;
            self.avoided.clear();
            self.upstream.lane_ready(self.had_waited);
        }
    }

    /// The upstream takes nobody for now: no failure, but others are preferred for a while.
    pub fn report_busy(&mut self) {
        self.stage = LeaseStage::Reported;
        self.avoided.set(&self.upstream);
        self.upstream.mark_busy();
    }

    /// The upstream failed the lane, in words.
    pub fn report_failure(&mut self, message: &str) {
        let failure = match self.stage {
            LeaseStage::Reported => return,
            LeaseStage::Dialling(_) => LaneFailure::Unreachable,
            LeaseStage::Opening | LeaseStage::Broken { was_ready: false } => LaneFailure::Refused,
            LeaseStage::Ready | LeaseStage::Broken { was_ready: true } => LaneFailure::Died,
        };
        self.stage = LeaseStage::Reported;
        self.avoided.set(&self.upstream);
        self.upstream.lane_failed(failure, message);
    }

    /// The transport is gone. That alone is no failure: the session knows whether it still wanted something.
    pub fn report_disconnect(&mut self, reason: &DisconnectReason) {
        match (reason, self.stage) {
            (_, LeaseStage::Reported) => {}
            (DisconnectReason::Closed(TRY_AGAIN_LATER, _), _) => self.report_busy(),
            (DisconnectReason::Closed(..), _) => {}
            (_, stage) => self.stage = LeaseStage::Broken { was_ready: stage == LeaseStage::Ready },
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.stage {
            LeaseStage::Dialling(since) if since.elapsed() >= UNANSWERED_AFTER => {
                self.report_failure("it did not answer the connection in time");
            }
            LeaseStage::Ready => self.upstream.lane_served(),
            _ => {}
        }
        self.upstream.lane_closed();
    }
}

/// Which upstream failed a session last: its next lane goes to another if there is one. Known by its address, which no
/// other has while it is in use; 0 for none.
#[derive(Debug, Clone, Default)]
pub(super) struct AvoidedUpstream(Arc<AtomicUsize>);

impl AvoidedUpstream {
    pub(super) fn is_avoided(&self, upstream: &PooledUpstream) -> bool {
        self.0.load(Relaxed) == address(upstream)
    }

    fn set(&self, upstream: &PooledUpstream) {
        self.0.store(address(upstream), Relaxed);
    }

    fn clear(&self) {
        self.0.store(0, Relaxed);
    }
}

fn address(upstream: &PooledUpstream) -> usize {
    std::ptr::from_ref(upstream).addr()
}
