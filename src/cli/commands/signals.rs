//! Signals of `voxbridge serve`: of SIGTERM, SIGINT and SIGQUIT, the first drains and the second stops at once. Others
//! that would end the process are ignored.

use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use super::CommandError;
use crate::cli::stop_signals::{StopSignal, StopSignals};
use crate::server::process::lifecycle::Lifecycle;

/// Number of SIGXFSZ on every Unix that tokio supports: a file has reached its size limit (`ulimit -f`).
const FILE_SIZE_LIMIT: SignalKind = SignalKind::from_raw(25);

/// Drains at the first signal and stops at the second; returns the number of the second signal.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(super) fn drain_on_signals(lifecycle: Lifecycle) -> Result<impl Future<Output = u8>, CommandError> {
    let listen = |kind| signal(kind).map_err(CommandError::failed);
    // A handler stays after its listener is dropped. With one for SIGXFSZ, the write fails with EFBIG instead.
    for ignored in [SignalKind::user_defined1(), SignalKind::user_defined2(), FILE_SIZE_LIMIT] {
        drop(listen(ignored)?);
    }
    let mut signals = StopSignals::listen().map_err(CommandError::failed)?;
    Ok(async move {
        let StopSignal { name, .. } = signals.next().await;
        info!("received {name}: draining; another signal stops at once");
        lifecycle.start_drain();
        let StopSignal { name, number } = signals.next().await;
        info!("received {name} while draining: stopping at once");
        lifecycle.stop();
        number
    })
}
