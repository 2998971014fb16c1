//! Reloads configuration and mappings of `voxbridge serve` at SIGHUP, for new sessions.

use std::{sync::Arc, time::Duration};

use tokio::signal::unix::{SignalKind, signal};

use super::CommandError;
use crate::{config::ConfigReloader, server::admin::ReloadableConfig as _};

/// Time between two attempts to find the dialects of upstreams that did not answer.
const DETECTION_INTERVAL: Duration = Duration::from_secs(10);

/// Finds the dialects of upstreams that were not up at the start.
pub(super) async fn detect_dialects(reloader: Arc<ConfigReloader>) {
    while !reloader.detect_dialects().await {
        tokio::time::sleep(DETECTION_INTERVAL).await;
    }
}

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
