//! The order to cut off sessions that still run when the time of a drain is over.

use tokio::sync::watch;

/// Completes when sessions are cut off.
pub(super) async fn wait_for_cut_off(mut cut_off: watch::Receiver<bool>) {
    if cut_off.wait_for(|is_cut_off| *is_cut_off).await.is_err() {
        // The sender is gone, so the order never comes.
        std::future::pending::<()>().await;
    }
}
