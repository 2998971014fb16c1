//! Decodes and encodes files outside of the threads of sessions, a bounded number of them at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bounds how many threads decode and encode.
#[derive(Debug, Clone)]
pub(crate) struct CodecThreads(Arc<Semaphore>);

impl Default for CodecThreads {
    /// Half of the processors, so that conversations keep their share.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self(Arc::new(Semaphore::new((processors / 2).max(1))))
    }
}

/// A request's turn. While it lasts, only few others compute.
pub(super) struct Turn(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl CodecThreads {
    /// Waits for a turn.
    pub(super) async fn turn(&self) -> Option<Turn> {
        self.0.clone().acquire_owned().await.ok().map(Turn)
    }

    /// Runs a short computation, some milliseconds at most, in a turn of its own. `None` if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.turn().await?.run(compute).await
    }
}

impl Turn {
    /// Runs a short computation, some milliseconds at most. `None` if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        tokio::task::spawn_blocking(compute).await.ok()
    }
}
