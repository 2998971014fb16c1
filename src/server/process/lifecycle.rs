//! Lifecycle of the server: starting, serving, draining, stopped. One watch channel holds the state, which never goes
//! back.
//!
//! Draining has three steps. First the server reports that it is not ready and rejects new sessions with HTTP 503,
//! while live sessions continue. A balancer needs a moment to notice, and a rejected client can be sent elsewhere at
//! once. Then the listener closes, so that a successor can bind the address, and every session finishes its current
//! utterance, answer and speech. Sessions that remain after the timeout are cut off. Envoy drains in this order.
//! HAProxy calls the last limit `hard-stop-after`; without it, one idle WebSocket keeps an old process alive forever.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::sync::watch;

/// State of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    /// The address is bound; connections are not accepted yet.
    Starting,
    /// New sessions are accepted.
    Serving,
    /// New sessions are rejected; live sessions finish.
    Draining,
    /// The server no longer waits for sessions.
    Stopped,
}

/// Timing of a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainPolicy {
    /// Time in which new sessions are rejected while live ones continue.
    pub grace: Duration,
    /// Time for live sessions to finish after that.
    pub timeout: Duration,
}

impl DrainPolicy {
    /// An utterance lasts at most 30 s and usually a few seconds. Kubernetes kills after 30 s, and closing takes part
    /// of that time.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(25);
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self { grace: Duration::ZERO, timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// Result of a server's shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// Every session finished.
    Drained,
    /// This number of sessions had not finished after this time.
    TimedOut(usize, Duration),
    /// The server was stopped at once, with this number of live sessions.
    Forced(usize),
}

/// Shared handle to the lifecycle of one server.
#[derive(Debug, Clone)]
pub struct Lifecycle(Arc<watch::Sender<LifecycleState>>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(LifecycleState::Starting)))
    }
}

impl Lifecycle {
    /// Returns the current state.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        *self.0.borrow()
    }

    /// Subscribes to every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LifecycleState> {
        self.0.subscribe()
    }

    /// Starts a drain; returns false if one has already started.
    pub fn start_drain(&self) -> bool {
        self.advance(LifecycleState::Draining)
    }

    /// Stops at once and cuts off live sessions.
    pub fn stop(&self) {
        self.advance(LifecycleState::Stopped);
    }

    pub(crate) fn mark_serving(&self) {
        self.advance(LifecycleState::Serving);
    }

    /// True if new sessions are rejected.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.state() >= LifecycleState::Draining
    }

    /// Waits until the state is reached or passed.
    pub async fn wait_for(&self, state: LifecycleState) {
        // Cannot fail: `self` holds the sender.
        let _ = self.subscribe().wait_for(|now| *now >= state).await;
    }

    fn advance(&self, to: LifecycleState) -> bool {
        self.0.send_if_modified(|state| {
            let has_changed = *state < to;
            *state = to.max(*state);
            has_changed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lifecycle_never_goes_back() {
        let lifecycle = Lifecycle::default();
        assert!(lifecycle.start_drain() && !lifecycle.start_drain(), "only the first call changes the state");
        lifecycle.mark_serving();
        assert_eq!(lifecycle.state(), LifecycleState::Draining);
        lifecycle.stop();
        assert!(!lifecycle.start_drain());
        assert_eq!(lifecycle.state(), LifecycleState::Stopped);
    }
}
