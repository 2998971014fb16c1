//! Lease of an upstream by a lane, from dialling to its end: its share of the load, and the report of its outcome.
//!
//! The first verdict counts. A lane that became ready and reported no failure was served well.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{
    health::{LaneFailure, LeaseId},
    places::{Capacity, Place},
    upstream::PooledUpstream,
};
use crate::{
    server::websocket::session_socket::OUT_OF_MEMORY,
    vocabulary::{DisconnectReason, LanePurpose, Mode},
};

/// A dial cancelled after this time counts as unanswered; a session waits longer before it gives up.
const UNANSWERED_AFTER: Duration = Duration::from_millis(500);
/// Close code of a gateway that accepts no session: queue full, worker busy, not ready
/// (mappings/notes/minicpm-o.md#connect, mappings/notes/minicpm-o.md#queue).
const TRY_AGAIN_LATER: u16 = 1013;

/// A lane's lease of its upstream; dropping it releases the load.
#[derive(Debug)]
pub struct Lease {
    id: LeaseId,
    upstream: Arc<PooledUpstream>,
    avoided: AvoidedUpstream,
    stage: LeaseStage,
    /// Instant at which the lane was first queued.
    queued_at: Option<Instant>,
    /// Purpose and mode of the lane.
    request: (LanePurpose, Mode),
    /// The lane waits in the queue although nothing needs it.
    is_unneeded: bool,
    /// Its place at the upstream.
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeaseStage {
    /// Connecting since this instant.
    Dialling(Instant),
    /// Connected, not initialised.
    Opening,
    /// Initialised.
    Ready,
    /// The transport broke; the session decides whether that is a failure.
    Broken { was_ready: bool },
    /// The outcome was reported.
    Reported,
}

impl Lease {
    pub(super) fn new(
        upstream: Arc<PooledUpstream>,
        avoided: AvoidedUpstream,
        place: Place,
        purpose: LanePurpose,
        mode: Mode,
    ) -> Self {
        let id = upstream.lane_opened();
        let stage = LeaseStage::Dialling(Instant::now());
        Self {
            id,
            upstream,
            avoided,
            stage,
            queued_at: None,
            request: (purpose, mode),
            is_unneeded: false,
            place,
        }
    }

    /// Name of the upstream.
    pub fn upstream(&self) -> &str {
        self.upstream.name()
    }

    /// The upstream.
    pub(super) fn pooled_upstream(&self) -> &PooledUpstream {
        &self.upstream
    }

    /// Purpose and mode of the lane.
    pub(in crate::server) const fn request(&self) -> (LanePurpose, Mode) {
        self.request
    }

    /// True while the lane waits in the queue of this upstream.
    pub(super) fn waits_at(&self, upstream: &PooledUpstream) -> bool {
        self.queued_at.is_some()
            && self.stage == LeaseStage::Opening
            && std::ptr::eq(&*self.upstream, upstream)
    }

    /// Start of the lane's wait in a queue; `None` if it does not wait or nothing needs it.
    pub(super) fn waits_since(&self) -> Option<Instant> {
        self.queued_at.filter(|_| self.stage == LeaseStage::Opening && !self.is_unneeded)
    }

    /// Since when the lane connects, if it does.
    pub(super) const fn dialling_since(&self) -> Option<Instant> {
        if let LeaseStage::Dialling(since) = self.stage { Some(since) } else { None }
    }

    pub(super) const fn mark_connected(&mut self) {
        // A late connection stays reported.
        if let LeaseStage::Dialling(_) = self.stage {
            self.stage = LeaseStage::Opening;
        }
    }

    /// True if a dial failed because the upstream only has no place: one without a queue refuses further sessions like this.
    pub(super) fn is_refused_for_room(&self, reason: &DisconnectReason) -> bool {
        matches!(reason, DisconnectReason::HttpRejected(429 | 503))
            && self.place.capacity() != Capacity::QueuesItself
    }

    /// Reports a dial that failed.
    pub(super) fn dial_failed(&mut self, reason: &DisconnectReason) {
        if let (DisconnectReason::HttpRejected(_), LeaseStage::Dialling(_)) = (reason, self.stage) {
            self.stage = LeaseStage::Opening;
        }
        self.report_failure(&format!("it {reason}"));
    }

    /// Reports the lane's position in the upstream's queue.
    pub fn report_queued(&mut self, position: u32) {
        self.queued_at.get_or_insert_with(Instant::now);
        self.set_unneeded(false);
        self.upstream.lane_queued(position);
    }

    /// Reports that nothing needs the lane, which stays in the upstream's queue until it has a worker.
    pub fn report_unneeded(&mut self) {
        self.set_unneeded(true);
    }

    fn set_unneeded(&mut self, is_unneeded: bool) {
        if std::mem::replace(&mut self.is_unneeded, is_unneeded) != is_unneeded {
            self.upstream.count_unneeded(is_unneeded);
        }
    }

    /// Reports that the lane is initialised.
    pub fn report_ready(&mut self) {
        if self.stage == LeaseStage::Opening {
            self.stage = LeaseStage::Ready;
            self.avoided.clear();
            self.upstream.lane_ready(self.queued_at.is_some());
        }
    }

    /// Reports that the lane has a transport again, on which its session can go on.
    pub fn report_reconnected(&mut self) {
        if self.stage == (LeaseStage::Broken { was_ready: true }) {
            self.stage = LeaseStage::Ready;
        }
    }

    /// Reports that the upstream accepts no session for now. That is not a failure, but other upstreams are preferred
    /// for a while, or for as long as it asks for.
    pub fn report_busy(&mut self, retry_after: Option<Duration>) {
        if self.stage == LeaseStage::Reported {
            return;
        }
        self.stage = LeaseStage::Reported;
        self.avoided.set(&self.upstream);
        self.upstream.mark_busy();
        self.place.report_refused(retry_after);
    }

    /// Reports an answer to a question, or to a unit of a conversation.
    pub fn report_answered(&self) {
        self.upstream.lane_answered(self.id, self.request.0);
    }

    /// Reports that the upstream refused a request, which says nothing about its health. The session's next lane
    /// prefers another. With `complaint`, the upstream refuses every request like it, and all lanes of its purpose prefer another.
    pub fn report_refused(&mut self, complaint: Option<&str>) {
        if self.stage == LeaseStage::Reported {
            return;
        }
        self.stage = LeaseStage::Reported;
        self.avoided.set(&self.upstream);
        if let Some(words) = complaint {
            self.upstream.lane_misconfigured(self.request.0, words);
        }
    }

    /// Reports a failure of the upstream.
    pub fn report_failure(&mut self, message: &str) {
        let failure = match self.stage {
            LeaseStage::Reported => return,
            // An upstream without a queue ends a session like this while another program uses it.
            LeaseStage::Broken { was_ready: false } if self.has_numbered_place() => {
                return self.report_busy(None);
            }
            LeaseStage::Dialling(_) => LaneFailure::Unreachable,
            LeaseStage::Opening | LeaseStage::Broken { was_ready: false } => LaneFailure::Refused,
            LeaseStage::Ready | LeaseStage::Broken { was_ready: true } => LaneFailure::Died(self.id),
        };
        self.stage = LeaseStage::Reported;
        self.avoided.set(&self.upstream);
        self.upstream.lane_failed(failure, message);
    }

    fn has_numbered_place(&self) -> bool {
        matches!(self.place.capacity(), Capacity::AtMost(_))
    }

    /// Reports the end of the transport. That alone is not a failure: the session knows whether it still needed the
    /// lane.
    pub fn report_disconnect(&mut self, reason: &DisconnectReason) {
        match (reason, self.stage) {
            (_, LeaseStage::Reported) => {}
            // voxbridge broke the connection itself, because its client's share of the memory is used up.
            (DisconnectReason::Lost(words), _) if words == OUT_OF_MEMORY => self.stage = LeaseStage::Reported,
            (DisconnectReason::Closed(TRY_AGAIN_LATER, _), _) => self.report_busy(None),
            (DisconnectReason::Closed(..), LeaseStage::Opening) if self.has_numbered_place() => {
                self.stage = LeaseStage::Broken { was_ready: false };
            }
            (DisconnectReason::Closed(..), _) => {}
            // A further attempt to resume the session failed.
            (_, LeaseStage::Broken { .. }) => {}
            (_, stage) => self.stage = LeaseStage::Broken { was_ready: stage == LeaseStage::Ready },
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        match self.stage {
            LeaseStage::Dialling(since) if since.elapsed() >= UNANSWERED_AFTER => {
                self.report_failure("connecting timed out");
            }
            LeaseStage::Ready => self.upstream.lane_served(),
            _ => {}
        }
        self.set_unneeded(false);
        self.upstream.lane_closed();
    }
}

/// The upstream that last failed a session; the session's next lane avoids it if possible. Identified by its memory
/// address, which is unique while in use; 0 for none.
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
