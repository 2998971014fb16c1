//! Limit of connections without a session.
//!
//! Clients that connect and stall must not exhaust the file descriptors. Beyond the limit, the oldest connection is
//! aborted: a healthy client completes its handshake within milliseconds, so the oldest one most likely stalls.
//! Sessions do not count. The admin listener counts its connections in the same way.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::task::AbortHandle;

/// Pending connections, the oldest first.
#[derive(Debug, Default)]
pub(in crate::server) struct Handshakes(Mutex<VecDeque<AbortHandle>>);

impl Handshakes {
    /// Adds a connection; beyond `max`, aborts the oldest and returns true.
    pub(in crate::server) fn add(&self, max: usize, task: AbortHandle) -> bool {
        // A panic cannot leave the queue inconsistent.
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push_back(task);
        let oldest = if tasks.len() > max { tasks.pop_front() } else { None };
        oldest.inspect(AbortHandle::abort).is_some()
    }

    /// Aborts the oldest connection when another resource is exhausted; returns whether there was one.
    pub(in crate::server) fn abort_oldest(&self) -> bool {
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.pop_front().inspect(AbortHandle::abort).is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::future::BoxFuture;
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn oldest_handshake_is_aborted_and_finished_ones_do_not_count() {
        let handshakes = Handshakes::default();
        let add = |task: BoxFuture<'static, ()>| handshakes.add(2, tokio::spawn(task).abort_handle());
        let stalled_task = || {
            let (alive, ended) = oneshot::channel::<()>();
            let task = async move {
                let _alive = alive;
                pending::<()>().await;
            };
            (task, ended)
        };
        let ((first, first_ended), (second, mut second_ended)) = (stalled_task(), stalled_task());
        assert!(!add(Box::pin(first)));
        assert!(!add(Box::pin(async {})));
        while !handshakes.0.lock().unwrap()[1].is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!add(Box::pin(second)), "a finished handshake does not count");
        assert!(add(Box::pin(pending())));
        assert!(first_ended.await.is_err(), "the oldest is aborted");
        assert_eq!(second_ended.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(handshakes.abort_oldest() && second_ended.await.is_err(), "the next oldest is aborted");
        assert!(handshakes.abort_oldest() && !handshakes.abort_oldest(), "the queue is empty");
    }
}
