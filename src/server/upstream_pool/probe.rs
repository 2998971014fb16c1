//! The probe interface: finds out whether an upstream is reachable, without occupying a worker.

use futures_util::future::BoxFuture;

/// An upstream that can be probed.
pub trait Probe {
    /// Fails with the reason if the upstream is unreachable. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;
}
