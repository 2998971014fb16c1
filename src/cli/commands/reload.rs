//! SIGHUP to `voxbridge serve`: configuration and mappings are read again, for the sessions to come.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};

use super::Failure;
use crate::{config::Reloader, server::admin::Configuration as _};

/// Reloads at every SIGHUP, for ever.
///
/// # Errors
/// The system cannot tell.
pub(super) fn at_hangup(reloader: Arc<Reloader>) -> Result<impl Future<Output = ()>, Failure> {
    let mut hangup = signal(SignalKind::hangup()).map_err(Failure::failed)?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            // What is wrong was said where it was found.
            let _ = reloader.reload().await;
        }
    })
}
