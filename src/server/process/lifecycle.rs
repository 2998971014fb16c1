//! The server's life: starting, serving, draining, stopped. One watch tells it, and nobody goes back in it.
//!
//! Draining has three steps. First the server says that it is not ready and refuses new sessions with HTTP 503, while its
//! sessions go on as before: a balancer needs a moment to notice, and who is refused can be sent elsewhere at once. Then the
//! listener is closed, so that a successor may have the address, and every session finishes what is being said, answered and
//! spoken. What is left when the time is over is cut off. Envoy drains in this order; HAProxy calls the last bound
//! `hard-stop-after`, without which one idle WebSocket keeps an old process alive for ever.

use std::{sync::Arc, time::Duration};

use serde::Serialize;
use tokio::sync::watch;

/// Where the server is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LifecycleState {
    /// Its address is bound, nobody is accepted yet.
    Starting,
    /// Sessions are taken.
    Serving,
    /// None is taken any more; those that run finish.
    Draining,
    /// Nothing is waited for any longer.
    Stopped,
}

/// How a server takes leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DrainPolicy {
    /// How long it refuses sessions before it ends those that run.
    pub grace: Duration,
    /// How long those may take to finish.
    pub timeout: Duration,
}

impl DrainPolicy {
    /// Utterances last half a minute at most and are mostly over in seconds; Kubernetes kills after thirty seconds, and the
    /// last goodbyes take some of them.
    pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(25);
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self { grace: Duration::ZERO, timeout: Self::DEFAULT_TIMEOUT }
    }
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// Every session finished.
    Drained,
    /// So many sessions had not finished within this time.
    TimedOut(usize, Duration),
    /// It was told to stop at once, with so many sessions running.
    Forced(usize),
}

/// The life of one server, for all who have to know of it or may end it.
#[derive(Debug, Clone)]
pub struct Lifecycle(Arc<watch::Sender<LifecycleState>>);

impl Default for Lifecycle {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(LifecycleState::Starting)))
    }
}

impl Lifecycle {
    /// Where it is.
    #[must_use]
    pub fn state(&self) -> LifecycleState {
        *self.0.borrow()
    }

    /// To hear of every change.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<LifecycleState> {
        self.0.subscribe()
    }

    /// Takes no more sessions, lets those that run finish, and stops. Whether that is news.
    pub fn start_drain(&self) -> bool {
        self.advance(LifecycleState::Draining)
    }

    /// Stops at once, whoever is in the middle of something.
    pub fn stop(&self) {
        self.advance(LifecycleState::Stopped);
    }

    pub(crate) fn mark_serving(&self) {
        self.advance(LifecycleState::Serving);
    }

    /// Whether new sessions are refused.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.state() >= LifecycleState::Draining
    }

    /// Done as soon as it is there, or beyond.
    pub async fn wait_for(&self, state: LifecycleState) {
        // Its sender is this very life.
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
