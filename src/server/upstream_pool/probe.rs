//! Probes: connection attempts that find out whether an upstream is reachable, without occupying a worker. Ejected
//! and idle upstreams are probed.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{interval, sleep_until, timeout};
use tower::load::Load as _;

use super::upstream::PooledUpstream;
use crate::server::ActiveConfig;

/// An answer that takes longer is none.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// What can be asked whether it is there.
pub trait Probe {
    /// Whether it is; if not, why, in words. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;
}

/// Probes an upstream that no lane tells of.
pub(super) async fn probe_idle(upstream: Arc<PooledUpstream>) {
    let result = timeout(PROBE_TIMEOUT, upstream.probe().probe()).await;
    upstream.idle_probe_finished(result.unwrap_or_else(|_| Err("it does not answer".to_owned())));
}

/// Looks every so often at what serves now, for ever: who is asked whether it is ready must know of upstreams that died
/// when nobody used them.
pub async fn probe_idle_periodically(current: ActiveConfig, probe_interval: Duration) {
    let mut ticks = interval(probe_interval);
    loop {
        ticks.tick().await;
        current.get().pool.probe_idle();
    }
}

/// Probes an upstream whenever it is due, as long as it is left out.
pub(super) async fn probe_until_readmitted(upstream_ref: Weak<PooledUpstream>) {
    while let Some(due) = upstream_ref.upgrade().and_then(|upstream| upstream.next_probe_at()) {
        sleep_until(due).await;
        let Some(upstream) = upstream_ref.upgrade() else { return };
        // A lane may have been quicker.
        if upstream.load().ejected_until != Some(due) {
            continue;
        }
        let result = timeout(PROBE_TIMEOUT, upstream.probe().probe()).await;
        upstream.probe_finished(result.unwrap_or_else(|_| Err("it does not answer".to_owned())));
    }
}
