//! Questions of the pool to an upstream: is it reachable, without occupying a worker, how many sessions does it have, and
//! what does it serve?

use futures_util::future::BoxFuture;

use super::places::Capacity;
use crate::event::{LanePurpose, Mode};

/// An upstream that can be probed.
pub trait Probe {
    /// Fails with the reason if the upstream is unreachable. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;

    /// How many sessions it takes at a time.
    fn capacity(&self) -> Capacity {
        Capacity::QueuesItself
    }

    /// True if it serves lanes of this purpose and mode.
    fn serves(&self, purpose: LanePurpose, mode: Mode) -> bool;
}
