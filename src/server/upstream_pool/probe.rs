//! Asking an upstream whether it is there, or back, without taking a worker from anybody: one that was left out, and one
//! that nobody uses.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio::time::{interval, sleep_until, timeout};
use tower::load::Load as _;

use super::upstream::Upstream;
use crate::server::Current;

/// An answer that takes longer is none.
const PROBE_WITHIN: Duration = Duration::from_secs(5);

/// What can be asked whether it is there.
pub trait Probe {
    /// Whether it is; if not, why, in words. The caller bounds the time.
    fn probe(&self) -> BoxFuture<'static, Result<(), String>>;
}

/// Probes an upstream that no lane tells of.
pub(super) async fn look(upstream: Arc<Upstream>) {
    let found = timeout(PROBE_WITHIN, upstream.probe().probe()).await;
    upstream.looked(found.unwrap_or_else(|_| Err("it does not answer".to_owned())));
}

/// Looks every so often at what serves now, for ever: who is asked whether it is ready must know of upstreams that died
/// when nobody used them.
pub async fn keep_looking(current: Current, every: Duration) {
    let mut looks = interval(every);
    loop {
        looks.tick().await;
        current.get().pool.look();
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
