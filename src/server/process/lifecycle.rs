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
pub enum State {
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
pub struct Leave {
    /// How long it refuses sessions before it ends those that run.
    pub grace: Duration,
    /// How long those may take to finish.
    pub within: Duration,
}

impl Leave {
    /// Utterances last half a minute at most and are mostly over in seconds; Kubernetes kills after thirty seconds, and the
    /// last goodbyes take some of them.
    pub const WITHIN: Duration = Duration::from_secs(25);
}

impl Default for Leave {
    fn default() -> Self {
        Self { grace: Duration::ZERO, within: Self::WITHIN }
    }
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Every session finished.
    Drained,
    /// So many sessions had not finished within this time.
    Cut(usize, Duration),
    /// It was told to stop at once, with so many sessions running.
    AtOnce(usize),
}

/// The life of one server, for all who have to know of it or may end it.
#[derive(Debug, Clone)]
pub struct Life(Arc<watch::Sender<State>>);

impl Default for Life {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(State::Starting)))
    }
}

impl Life {
    /// Where it is.
    #[must_use]
    pub fn state(&self) -> State {
        *self.0.borrow()
    }

    /// To hear of every change.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    /// Takes no more sessions, lets those that run finish, and stops. Whether that is news.
    pub fn drain(&self) -> bool {
        self.advance(State::Draining)
    }

    /// Stops at once, whoever is in the middle of something.
    pub fn stop(&self) {
        self.advance(State::Stopped);
    }

    pub(crate) fn serve(&self) {
        self.advance(State::Serving);
    }

    /// Whether new sessions are refused.
    pub(crate) fn is_leaving(&self) -> bool {
        self.state() >= State::Draining
    }

    /// Done as soon as it is there, or beyond.
    pub async fn reached(&self, state: State) {
        // Its sender is this very life.
        let _ = self.watch().wait_for(|now| *now >= state).await;
    }

    fn advance(&self, to: State) -> bool {
        self.0.send_if_modified(|state| {
            let news = *state < to;
            *state = to.max(*state);
            news
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_goes_back() {
        let life = Life::default();
        assert!(life.drain() && !life.drain(), "once is news");
        life.serve();
        assert_eq!(life.state(), State::Draining);
        life.stop();
        assert!(!life.drain());
        assert_eq!(life.state(), State::Stopped);
    }
}
