//! Waiting for a state that no event announces.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longest wait, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds. Panics after 40 s with what was waited for.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    wait_until_async(what, async || condition()).await;
}

/// Like [`wait_until`], for a condition that is asked of a server.
pub async fn wait_until_async(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let holds = async {
        while !condition().await {
            sleep(CHECK_INTERVAL).await;
        }
    };
    timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}

/// CPU time of this thread so far: what other programs do beside it is not in it. Zero where the system does not tell.
pub fn thread_cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.unwrap_or_default())
}
