//! Queue keeper: runs ended sessions whose lanes still wait in an upstream's queue.
//!
//! Both real gateways lose a worker when they assign it to a queued client that has disconnected. So these lanes wait for
//! their worker and then close politely, while the client's session has ended and its slot is free. A drain waits for them
//! until its timeout.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tracing::{Instrument as _, info, warn};

use super::cut_off::wait_for_cut_off;

/// Most ended sessions kept, so that clients that connect and disconnect repeatedly do not fill the memory: as many as the
/// queue of a real gateway takes (field notes minicpm-o.md §1.2).
const KEPT_MAX: usize = 1000;

/// Runs ended sessions until their lanes are closed.
#[derive(Clone)]
pub(super) struct QueueKeeper {
    places: Arc<Semaphore>,
    /// Set when sessions that still run are cut off.
    cut_off: watch::Receiver<bool>,
}

impl QueueKeeper {
    pub(super) fn new(cut_off: watch::Receiver<bool>) -> Self {
        Self { places: Arc::new(Semaphore::new(KEPT_MAX)), cut_off }
    }

    /// Runs the rest of a session in a task of its own. Drops its lanes if too many sessions are kept already.
    pub(super) fn keep(&self, rest: impl Future<Output = ()> + Send + 'static) {
        let Ok(place) = self.places.clone().try_acquire_owned() else {
            warn!(
                kept = KEPT_MAX,
                "dropped lanes in the upstream's queue, too many wait: the upstream may lose a worker"
            );
            return;
        };
        info!("the session's lanes stay in the upstream's queue until workers are assigned");
        let cut_off = self.cut_off.clone();
        let kept = async move {
            tokio::select! {
                () = rest => {}
                () = wait_for_cut_off(cut_off) => {
                    warn!("drain timeout: dropped lanes in a queue; the upstream may lose a worker");
                }
            }
            drop(place);
        };
        tokio::spawn(kept.in_current_span());
    }
}
