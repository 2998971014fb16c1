//! Limit of connections without a session.
//!
//! Clients that connect and stall must not exhaust the file descriptors. Beyond the limit, the oldest connection is
//! aborted: a healthy client completes its handshake within milliseconds, so the oldest one most likely stalls.
//! Sessions do not count, nor do requests that are served without an upgrade. The admin listener counts its connections in
//! the same way.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use tokio::{sync::watch, task::AbortHandle};

/// Number of a connection's requests that are being served, while it is no pending connection.
pub(in crate::server) type ServedRequests = watch::Sender<usize>;

/// Connections, the oldest first.
#[derive(Debug, Default)]
pub(in crate::server) struct Handshakes(Mutex<VecDeque<Connection>>);

#[derive(Debug)]
struct Connection {
    task: AbortHandle,
    served: ServedRequests,
}

impl Handshakes {
    /// Adds a connection; beyond `max` pending ones, aborts the oldest and returns true.
    pub(in crate::server) fn add(&self, max: usize, task: AbortHandle, served: ServedRequests) -> bool {
        // A panic cannot leave the queue inconsistent.
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.task.is_finished());
        connections.push_back(Connection { task, served });
        let pending = connections.iter().filter(|connection| connection.is_pending()).count();
        pending > max && abort_first_pending(&mut connections)
    }

    /// Aborts the oldest pending connection when another resource is exhausted; returns whether there was one.
    pub(in crate::server) fn abort_oldest(&self) -> bool {
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.task.is_finished());
        abort_first_pending(&mut connections)
    }
}

impl Connection {
    fn is_pending(&self) -> bool {
        *self.served.borrow() == 0
    }
}

fn abort_first_pending(connections: &mut VecDeque<Connection>) -> bool {
    let oldest = connections.iter().position(Connection::is_pending);
    let oldest = oldest.and_then(|index| connections.remove(index));
    oldest.inspect(|connection| connection.task.abort()).is_some()
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
        let add = |task: BoxFuture<'static, ()>| {
            handshakes.add(2, tokio::spawn(task).abort_handle(), ServedRequests::default())
        };
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
        while !handshakes.0.lock().unwrap()[1].task.is_finished() {
            tokio::task::yield_now().await;
        }
        assert!(!add(Box::pin(second)), "a finished handshake does not count");
        assert!(add(Box::pin(pending())));
        assert!(first_ended.await.is_err(), "the oldest is aborted");
        assert_eq!(second_ended.try_recv(), Err(oneshot::error::TryRecvError::Empty));
        assert!(handshakes.abort_oldest() && second_ended.await.is_err(), "the next oldest is aborted");
        assert!(handshakes.abort_oldest() && !handshakes.abort_oldest(), "the queue is empty");
    }

    #[tokio::test]
    async fn connections_with_a_request_in_progress_do_not_count() {
        let handshakes = Handshakes::default();
        let served = ServedRequests::default();
        served.send_replace(1);
        let task = || tokio::spawn(pending::<()>()).abort_handle();
        assert!(!handshakes.add(1, task(), served.clone()));
        assert!(!handshakes.add(1, task(), ServedRequests::default()), "only one is pending");
        assert!(handshakes.abort_oldest() && !handshakes.abort_oldest(), "the request goes on");
        served.send_replace(0);
        assert!(handshakes.abort_oldest(), "the connection is pending again");
    }
}
