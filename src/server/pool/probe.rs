//! Asking an upstream that was left out whether it is back, without taking a worker from anybody.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{sleep_until, timeout};
use tower::load::Load as _;

use super::{health::Failing, upstream::Upstream};

/// An answer that takes longer is none.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// What can be asked whether it is there.
pub trait Probe {
    /// Whether it is; if not, why, in words. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;
}

/// Probes an upstream of which nothing is known yet.
pub(super) async fn look(upstream: Arc<Upstream>) {
    let found = timeout(PROBE_WITHIN, upstream.probe().probe()).await;
    if let Err(words) = found.unwrap_or_else(|_| Err("it does not answer".to_owned())) {
        upstream.failed(Failing::Unreachable, &words);
    }
}

/// Probes an upstream whenever it is due, as long as it is left out.
pub(super) async fn watch(watched: Weak<Upstream>) {
    while let Some(due) = watched.upgrade().and_then(|upstream| upstream.next_probe()) {
        sleep_until(due).await;
        let Some(upstream) = watched.upgrade() else { return };
        // A lane may have been quicker.
        if upstream.load().out_until != Some(due) {
            continue;
        }
        let found = timeout(PROBE_WITHIN, upstream.probe().probe()).await;
        upstream.probed(found.unwrap_or_else(|_| Err("it does not answer".to_owned())));
    }
}
