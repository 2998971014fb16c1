//! Connections that are no sessions, not yet or never: so many, and no more.
//!
//! Who connects and stalls must not take the descriptors that others need. One too many ends the oldest, not the newest:
//! an honest client is through within milliseconds, and the oldest is most likely one that stalls. Sessions do not count. The
//! admin listener counts its own in the same way.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::task::AbortHandle;

/// All of them, the oldest first.
#[derive(Debug, Default)]
pub(in crate::server) struct Handshakes(Mutex<VecDeque<AbortHandle>>);

impl Handshakes {
    /// Knows of one more, as one of at most so many; whether another was ended for it.
    pub(in crate::server) fn add(&self, max: usize, task: AbortHandle) -> bool {
        // It is whole, whatever panicked.
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|task| !task.is_finished());
        tasks.push_back(task);
        let oldest = if tasks.len() > max { tasks.pop_front() } else { None };
        oldest.inspect(AbortHandle::abort).is_some()
    }

    /// Ends the oldest, for there is no room where room is not counted here; whether there was one.
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
        assert!(!add(Box::pin(second)), "who is done takes no room");
        assert!(add(Box::pin(pending())));
        assert!(first_ended.await.is_err(), "the oldest is gone");
        assert_eq!(second_ended.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(handshakes.abort_oldest() && second_ended.await.is_err(), "who comes next is next");
        assert!(handshakes.abort_oldest() && !handshakes.abort_oldest(), "nobody is left");
    }
}
