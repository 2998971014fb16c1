//! Handles SIGTERM and SIGINT of `voxbridge serve`: the first signal drains, the second stops at once.

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::CommandError;
use crate::server::process::lifecycle::Lifecycle;

/// Drains at the first signal and stops at the second; returns the number of the second signal.
///
/// # Errors
/// The signal handlers cannot be installed.
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
        info!("received {name}: draining; another signal stops at once");
        lifecycle.start_drain();
        let (name, kind) = next().await;
        info!("received {name} while draining: stopping at once");
        lifecycle.stop();
        u8::try_from(kind.as_raw_value()).unwrap_or_default()
    })
}
