//! SIGHUP to `voxbridge serve`: configuration and mappings are read again, for the sessions to come.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::CommandError;
use crate::{config::ConfigReloader, server::admin::ReloadableConfig as _};

/// Reloads at every SIGHUP, for ever.
///
/// # Errors
/// The system cannot tell.
pub(super) fn reload_on_sighup(
    reloader: Arc<ConfigReloader>,
) -> Result<impl Future<Output = ()>, CommandError> {
    let mut hangup = signal(SignalKind::hangup()).map_err(CommandError::failed)?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            // What is wrong was said where it was found.
            let _ = reloader.reload().await;
        }
    })
}
