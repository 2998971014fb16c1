//! The server's lifecycle: starting, serving, draining, stopped. It only moves forward.
//!
//! Draining has three steps:
//! 1. The server reports that it is not ready and rejects new sessions with HTTP 503, while running sessions go on. A
//!    load balancer needs this time to notice, and rejected clients can connect elsewhere.
//! 2. The listener closes, so that a successor can bind the address, and every session finishes the current speech
//!    and answers.
//! 3. Sessions that still run after the timeout are cut off.
//!
//! Envoy drains in this order. HAProxy calls the last bound `hard-stop-after`; without one, an idle WebSocket keeps
//! an old process alive for ever.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::sync::watch;

/// A state of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    /// The address is bound; no connection is accepted yet.
    Starting,
    /// New sessions are accepted.
    Serving,
    /// New sessions are rejected; running sessions finish.
    Draining,
    /// The server no longer waits for anything.
    Stopped,
}

/// How a server drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainPolicy {
    /// How long the server rejects new sessions before running sessions must finish.
    pub grace: Duration,
    /// How long running sessions may take to finish.
    pub timeout: Duration,
}

impl DrainPolicy {
    /// Utterances last at most half a minute and usually end within seconds. Kubernetes kills the process after
    /// 30 s, and closing the connections takes part of that time.
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
    /// The number of sessions whose speech, answer or end did not fit into the timeout.
    TimedOut(usize, Duration),
    /// The number of sessions that ran when the server was forced to stop.
    Forced(usize),
}

/// The lifecycle of one server; clones share it.
#[derive(Debug, Clone)]
pub struct Lifecycle(Arc<watch::Sender<LifecycleState>>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(LifecycleState::Starting)))
    }
}

impl Lifecycle {
    /// The current state.
    pub fn state(&self) -> LifecycleState {
        *self.0.borrow()
    }

    /// A receiver that sees every change of state.
    pub fn subscribe(&self) -> watch::Receiver<LifecycleState> {
        self.0.subscribe()
    }

    /// Starts to drain. Returns whether the server was not draining yet.
    pub fn start_drain(&self) -> bool {
        self.advance(LifecycleState::Draining)
    }

    /// Stops at once and cuts running sessions off.
    pub fn stop(&self) {
        self.advance(LifecycleState::Stopped);
    }

    pub(crate) fn mark_serving(&self) {
        self.advance(LifecycleState::Serving);
    }

    /// True while new sessions are rejected.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.state() >= LifecycleState::Draining
    }

    /// Completes when the server reaches `state` or a later one.
    pub async fn wait_for(&self, state: LifecycleState) {
        // The sender lives as long as `self`, so the wait cannot fail.
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
