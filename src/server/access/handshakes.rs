//! Limit of connections without a session.
//!
//! Clients that connect and stall must not exhaust the file descriptors. Beyond the limit, the address with the most
//! connections gives way, and of these the oldest is aborted: a healthy client completes its handshake within milliseconds,
//! so the oldest one most likely stalls.
//! Sessions do not count, nor do requests that are served without an upgrade. The admin listener counts its connections in
//! the same way.

use std::{
    collections::{BTreeMap, VecDeque},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{sync::watch, task::AbortHandle};

use super::address::client_subnet;

/// Number of a connection's requests that are being served, while it is no pending connection.
pub(in crate::server) type ServedRequests = watch::Sender<usize>;

/// Connections, the oldest first. Clones share them.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct Handshakes(Arc<Mutex<VecDeque<Connection>>>);

#[derive(Debug)]
struct Connection {
    task: AbortHandle,
    served: ServedRequests,
    /// The network of the client.
    from: IpAddr,
}

impl Handshakes {
    /// Adds a connection of this client; beyond `max` pending ones, aborts one and returns true.
    pub(in crate::server) fn add(
        &self,
        max: usize,
        task: AbortHandle,
        served: ServedRequests,
        client: IpAddr,
    ) -> bool {
        let mut connections = self.unfinished();
        connections.push_back(Connection { task, served, from: client_subnet(client) });
        let pending = connections.iter().filter(|connection| connection.is_pending()).count();
        pending > max && abort_pending(&mut connections)
    }

    /// Aborts a pending connection when another resource is exhausted; returns whether there was one.
    pub(in crate::server) fn abort_one(&self) -> bool {
        abort_pending(&mut self.unfinished())
    }

    /// Number of pending connections.
    pub(in crate::server) fn pending(&self) -> usize {
        self.unfinished().iter().filter(|connection| connection.is_pending()).count()
    }

    fn unfinished(&self) -> MutexGuard<'_, VecDeque<Connection>> {
        // A panic cannot leave the queue inconsistent.
        let mut connections = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        connections.retain(|connection| !connection.task.is_finished());
        connections
    }
}

impl Connection {
    fn is_pending(&self) -> bool {
        *self.served.borrow() == 0
    }
}

/// Aborts the oldest pending connection of the address that has the most.
fn abort_pending(connections: &mut VecDeque<Connection>) -> bool {
    let mut counts = BTreeMap::<IpAddr, usize>::new();
    for connection in connections.iter().filter(|connection| connection.is_pending()) {
        *counts.entry(connection.from).or_default() += 1;
    }
    let most = counts.values().max();
    let is_of_heaviest =
        |connection: &Connection| connection.is_pending() && counts.get(&connection.from) == most;
    let oldest = connections.iter().position(is_of_heaviest);
    let oldest = oldest.and_then(|index| connections.remove(index));
    oldest.inspect(|connection| connection.task.abort()).is_some()
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures_util::future::BoxFuture;
    use tokio::sync::oneshot;

    use super::*;

    const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn address_with_the_most_connections_gives_way() {
        let handshakes = Handshakes::default();
        let add = |last: u8| {
            let task = tokio::spawn(pending::<()>()).abort_handle();
            handshakes.add(6, task, ServedRequests::default(), [10, 0, 0, last].into())
        };
        let of = |last: u8| {
            let connections = handshakes.unfinished();
            connections.iter().filter(|it| it.from == IpAddr::from([10, 0, 0, last])).count()
        };
        for from in [1, 2, 2, 2, 2, 3] {
            assert!(!add(from));
        }
        assert!(add(4) && add(5));
        assert_eq!([1, 2, 3, 4, 5].map(of), [1, 2, 1, 1, 1]);
        for _ in 0..10 {
            assert!(add(2), "a stranger only displaces itself");
        }
        assert_eq!([1, 2, 3, 4, 5].map(of), [1, 2, 1, 1, 1]);
        assert_eq!(handshakes.pending(), 6);
    }

    #[tokio::test]
    async fn oldest_handshake_is_aborted_and_finished_ones_do_not_count() {
        let handshakes = Handshakes::default();
        let add = |task: BoxFuture<'static, ()>| {
            handshakes.add(2, tokio::spawn(task).abort_handle(), ServedRequests::default(), CLIENT)
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
        assert!(handshakes.abort_one() && second_ended.await.is_err(), "the next oldest is aborted");
        assert!(handshakes.abort_one() && !handshakes.abort_one(), "the queue is empty");
    }

    #[tokio::test]
    async fn connections_with_a_request_in_progress_do_not_count() {
        let handshakes = Handshakes::default();
        let served = ServedRequests::default();
        served.send_replace(1);
        let task = || tokio::spawn(pending::<()>()).abort_handle();
        assert!(!handshakes.add(1, task(), served.clone(), CLIENT));
        assert!(!handshakes.add(1, task(), ServedRequests::default(), CLIENT), "only one is pending");
        assert!(handshakes.abort_one() && !handshakes.abort_one(), "the request goes on");
        served.send_replace(0);
        assert!(handshakes.abort_one(), "the connection is pending again");
    }
}
