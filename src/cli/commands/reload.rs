//! Reloads configuration and mappings of `voxbridge serve` at SIGHUP, for new sessions.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::CommandError;
use crate::{config::ConfigReloader, server::admin::ReloadableConfig as _};

/// Reloads at every SIGHUP; never completes.
///
/// # Errors
/// The signal handler cannot be installed.
pub(super) fn reload_on_sighup(
    reloader: Arc<ConfigReloader>,
) -> Result<impl Future<Output = ()>, CommandError> {
    let mut hangup = signal(SignalKind::hangup()).map_err(CommandError::failed)?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            // The reloader logs errors itself.
            let _ = reloader.reload().await;
        }
    })
}
