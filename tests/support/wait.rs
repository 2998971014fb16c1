//! Waiting for a state that no event announces.

use std::time::Duration;

use tokio::time::{sleep, timeout};

/// Longest wait, on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(40);
/// Time between two checks of a condition.
const CHECK_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the condition holds. Panics after 40 s with what was waited for.
pub async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let holds = async {
        while !condition() {
            sleep(CHECK_INTERVAL).await;
        }
    };
    timeout(PATIENCE, holds).await.unwrap_or_else(|_| panic!("waited in vain: {what}"));
}
