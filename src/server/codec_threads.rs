//! Decodes and encodes files outside of the threads of sessions, a bounded number of them at a time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::media::decode::CancelFlag;

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

/// A request's permit to compute, as long as it and all of its computations last. A computation of an abandoned request keeps
/// it to its end.
pub(in crate::server) struct ComputePermit(Arc<OwnedSemaphorePermit>);

/// Stops a request's decoder when the request ends or is abandoned.
#[derive(Default)]
pub(in crate::server) struct CancelOnDrop(pub(in crate::server) CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl CodecThreads {
    /// Waits for a permit.
    pub(in crate::server) async fn acquire(&self) -> Option<ComputePermit> {
        Some(ComputePermit(Arc::new(self.0.clone().acquire_owned().await.ok()?)))
    }

    /// Runs a short computation, some milliseconds at most, with a permit of its own. `None` if it panics.
    pub(in crate::server) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.acquire().await?.run(compute).await
    }
}

impl ComputePermit {
    /// Runs a short computation, some milliseconds at most. `None` if it panics.
    pub(in crate::server) async fn run<T: Send + 'static>(
        &self,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let permit = self.0.clone();
        let computation = move || {
            let _permit = permit;
            compute()
        };
        tokio::task::spawn_blocking(computation).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn abandoned_computation_keeps_its_permit_until_it_ends() {
        let threads = CodecThreads(Arc::new(Semaphore::new(1)));
        let (started, starts) = tokio::sync::oneshot::channel();
        let (end, ends) = std::sync::mpsc::channel::<()>();
        let mut run = Box::pin(threads.run(move || {
            let _ = started.send(());
            ends.recv().is_err()
        }));
        tokio::select! {
            _ = &mut run => unreachable!("the computation waits"),
            _ = starts => {}
        }
        drop(run);
        assert_eq!(threads.0.available_permits(), 0);
        drop(end);
        assert!(threads.acquire().await.is_some());
    }

    #[test]
    fn abandoned_request_stops_its_decoder() {
        let file = crate::audio::wav::write_s16(&[0; 16_000], 16_000);
        let request = CancelOnDrop::default();
        let decoder = crate::media::decode::Decoder::open_cancellable(
            file.into(),
            crate::media::decode::DecodeLimits::default(),
            request.0.clone(),
        );
        drop(request);
        assert_eq!(decoder.unwrap().next_chunk(), None);
    }
}
