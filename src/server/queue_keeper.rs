//! Queue keeper: runs ended sessions whose lanes still wait in an upstream's queue.
//!
//! Both real gateways lose a worker when they assign it to a queued client that has disconnected. So these lanes wait for
//! their worker and then close politely, while the client's session has ended and its slot is free. A drain waits for them
//! until its timeout, and a command beyond it ([`Server::wait_in_queues`](super::Server::wait_in_queues)).

use std::sync::Arc;

use tokio::sync::watch;
use tracing::{Instrument as _, info, warn};

/// Most ended sessions kept, so that clients that connect and disconnect repeatedly do not fill the memory: as many as the
/// queue of a real gateway takes (mappings/notes/minicpm-o.md#queue).
const KEPT_MAX: usize = 1000;

/// Counter of ended sessions that wait in an upstream's queue; clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct QueueWaits(Arc<watch::Sender<usize>>);

/// One ended session that waits in a queue. Counted until this value is dropped.
#[derive(Debug)]
pub(crate) struct QueueWait(QueueWaits);

impl QueueWaits {
    /// Counts one more session.
    pub(crate) fn enter(&self) -> QueueWait {
        self.0.send_modify(|count| *count += 1);
        QueueWait(self.clone())
    }

    /// Number of sessions that wait.
    pub(crate) fn count(&self) -> usize {
        *self.0.borrow()
    }

    /// Completes while a session waits.
    pub(crate) async fn until_some(&self) {
        // The sender lives as long as `self`.
        let _ = self.0.subscribe().wait_for(|count| *count > 0).await;
    }

    /// Completes while no session waits.
    pub(crate) async fn until_none(&self) {
        let _ = self.0.subscribe().wait_for(|count| *count == 0).await;
    }
}

impl Drop for QueueWait {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Runs ended sessions until their lanes are closed; clones share them.
#[derive(Clone, Default)]
pub(super) struct QueueKeeper {
    kept: QueueWaits,
    /// Set when the kept sessions are dropped.
    is_over: Arc<watch::Sender<bool>>,
}

impl QueueKeeper {
    /// Runs the rest of a session in a task of its own. Drops its lanes if too many sessions are kept already.
    pub(super) fn keep(&self, rest: impl Future<Output = ()> + Send + 'static) {
        if self.kept.count() >= KEPT_MAX {
            warn!(
                kept = KEPT_MAX,
                "dropped lanes in the upstream's queue, too many wait: the upstream may lose a worker"
            );
            return;
        }
        info!("the session's lanes stay in the upstream's queue until workers are assigned");
        let (wait, mut is_over) = (self.kept.enter(), self.is_over.subscribe());
        let kept = async move {
            tokio::select! {
                () = rest => {}
                Ok(_) = is_over.wait_for(|is_over| *is_over) => {
                    warn!("dropped lanes in the upstream's queue at shutdown: the upstream may lose a worker");
                }
            }
            drop(wait);
        };
        tokio::spawn(kept.in_current_span());
    }

    /// The sessions that are kept.
    pub(super) const fn kept(&self) -> &QueueWaits {
        &self.kept
    }

    /// Drops the lanes of all kept sessions.
    pub(super) fn drop_all(&self) {
        self.is_over.send_replace(true);
    }
}
