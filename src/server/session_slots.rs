//! The limit on concurrent sessions.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// The limit on concurrent sessions.
#[derive(Debug, Clone)]
pub struct SessionSlots {
    pub(super) semaphore: Arc<Semaphore>,
    /// The limit itself, whether slots are taken or not.
    pub max: usize,
}

impl SessionSlots {
    pub(super) fn new(max: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(max)), max }
    }

    /// Free slots.
    pub fn available(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Completes when every slot is free.
    pub(super) async fn wait_until_all_free(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.semaphore.acquire_many(all).await;
    }
}
