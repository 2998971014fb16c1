//! Decodes and encodes files outside of the threads of sessions, a bounded number of them at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;

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

impl CodecThreads {
    /// Runs a short computation, some milliseconds at most. `None` if it panics.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let _permit = self.0.clone().acquire_owned().await.ok()?;
        tokio::task::spawn_blocking(compute).await.ok()
    }
}
