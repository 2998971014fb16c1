//! SIGTERM and SIGINT to `voxbridge serve`: the first one drains, the second one stops at once.

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::CommandError;
use crate::server::process::lifecycle::Lifecycle;

/// Drains at the first signal and stops at the second: the number of that one.
///
/// # Errors
/// The system cannot tell.
pub(super) fn drain_on_signals(lifecycle: Lifecycle) -> Result<impl Future<Output = u8>, CommandError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandError::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandError::failed)?;
    Ok(async move {
        let mut next = async || {
            tokio::select! {
                _ = interrupt.recv() => ("SIGINT", SignalKind::interrupt()),
                _ = terminate.recv() => ("SIGTERM", SignalKind::terminate()),
            }
        };
        let (name, _) = next().await;
        info!("{name}: draining; another one stops at once");
        lifecycle.start_drain();
        let (name, kind) = next().await;
        info!("{name} again: stopping at once");
        lifecycle.stop();
        u8::try_from(kind.as_raw_value()).unwrap_or_default()
    })
}
