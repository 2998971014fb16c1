//! Probes of ejected and idle upstreams. A probe does not occupy a worker.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{interval, sleep_until, timeout};
use tower::load::Load as _;

use super::upstream::PooledUpstream;
use crate::server::ActiveConfig;

/// A slower answer counts as a failure.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// Asks an upstream whether it is reachable.
pub trait Probe {
    /// Returns the reason if the upstream is not reachable. The caller limits the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;
}

/// Probes an upstream without lanes.
pub(super) async fn probe_idle(upstream: Arc<PooledUpstream>) {
    let result = timeout(PROBE_TIMEOUT, upstream.probe().probe()).await;
    upstream.idle_probe_finished(result.unwrap_or_else(|_| Err("no answer within 5 s".to_owned())));
}

/// Probes idle upstreams of the active configuration periodically, forever. Readiness must reflect upstreams that died
/// while unused.
pub async fn probe_idle_periodically(current: ActiveConfig, probe_interval: Duration) {
    let mut ticks = interval(probe_interval);
    loop {
        ticks.tick().await;
        current.get().pool.probe_idle();
    }
}

/// Probes an upstream whenever a probe is due, until it is readmitted.
pub(super) async fn probe_until_readmitted(upstream_ref: Weak<PooledUpstream>) {
    while let Some(due) = upstream_ref.upgrade().and_then(|upstream| upstream.next_probe_at()) {
        sleep_until(due).await;
        let Some(upstream) = upstream_ref.upgrade() else { return };
        // A lane may have readmitted the upstream in the meantime.
        if upstream.load().ejected_until != Some(due) {
            continue;
        }
        let result = timeout(PROBE_TIMEOUT, upstream.probe().probe()).await;
        upstream.probe_finished(result.unwrap_or_else(|_| Err("no answer within 5 s".to_owned())));
    }
}
