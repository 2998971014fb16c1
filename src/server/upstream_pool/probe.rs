//! Questions of the pool to an upstream: is it reachable, without occupying a worker, how many sessions does it have, and
//! what does it serve?

use futures_util::future::BoxFuture;

use serde::Deserialize;

use super::places::Capacity;
use crate::vocabulary::{LanePurpose, Mode};

/// The workers of a gateway, as its page `/status` reports them (`ServiceStatus` in gateway_modules/models.py).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct WorkerReport {
    /// All workers.
    #[serde(rename = "total_workers")]
    pub total: u32,
    /// Those without a session.
    #[serde(rename = "idle_workers")]
    pub idle: u32,
    /// Clients that wait for one.
    #[serde(rename = "queue_length")]
    pub queued: u32,
}

/// An upstream that can be probed.
pub trait Probe {
    /// Fails with the reason if the upstream is unreachable. An upstream that has a page of its workers returns what it says.
    /// The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<Option<WorkerReport>, String>>;

    /// True if it has a page of its workers, which is then read regularly.
    fn reports_workers(&self) -> bool {
        false
    }

    /// How many sessions it takes at a time.
    fn capacity(&self) -> Capacity {
        Capacity::QueuesItself
    }

    /// True if it serves lanes of this purpose and mode.
    fn serves(&self, purpose: LanePurpose, mode: Mode) -> bool;
}
