//! Questions of the pool to an upstream: is it reachable, without occupying a worker, how many sessions does it have, and
//! what does it serve?

use std::num::NonZero;

use futures_util::future::BoxFuture;

use crate::event::{LanePurpose, Mode};

/// An upstream that can be probed.
pub trait Probe {
    /// Fails with the reason if the upstream is unreachable. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;

    /// Most sessions at a time, if the upstream does not queue further ones itself.
    fn sessions_max(&self) -> Option<NonZero<u32>> {
        None
    }

    /// True if it serves lanes of this purpose and mode.
    fn serves(&self, purpose: LanePurpose, mode: Mode) -> bool;
}
