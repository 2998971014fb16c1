//! The loops of a server: it accepts connections, and in the end waits for the sessions that still run.

use std::{future::poll_fn, io, net::SocketAddr, sync::Arc, task::Poll, time::Duration};

use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::Instant,
};
use tracing::warn;

use super::{
    ClientListener,
    context::ServerContext,
    listen::{
        bare_tcp::{TcpService, spawn_bare_session},
        failure_log::FailureLog,
        spawn_connection,
    },
    process::lifecycle::{Lifecycle, LifecycleState, ShutdownOutcome},
    registry::SessionRegistry,
};
use crate::telemetry::metrics::RejectReason;

/// Pause after a failed accept: an immediate retry would fail again and flood the log.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Shorter pause when an evicted handshake has freed a file descriptor.
const ACCEPT_RETRY_DELAY_AFTER_EVICTION: Duration = Duration::from_millis(10);

/// Completed by the accept loop, as proof that it runs.
pub(super) type PingReply = oneshot::Sender<()>;

/// Checks that the accept loop still runs.
#[derive(Debug, Clone)]
pub struct LivenessProbe(pub(super) mpsc::Sender<PingReply>);

impl LivenessProbe {
    /// Completes when the accept loop, or the loop that waits for the last sessions, has come round. Never completes
    /// if that loop hangs.
    pub async fn ping(&self) {
        let (reply, replied) = oneshot::channel();
        if self.0.send(reply).await.is_err() || replied.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// Accepts connections until `until` completes.
pub(super) async fn accept_until(
    listeners: &[ClientListener],
    server: &Arc<ServerContext>,
    pings: &mut mpsc::Receiver<PingReply>,
    until: impl Future<Output = ()>,
) {
    tokio::pin!(until);
    let mut failure_log = FailureLog::default();
    let mut next = 0;
    loop {
        tokio::select! {
            () = &mut until => return,
            Some(reply) = pings.recv() => drop(reply.send(())),
            accepted = accept_next(listeners, &mut next) => match accepted {
                Ok((stream, peer, None)) => spawn_connection(stream, peer, server.clone()),
                Ok((stream, peer, Some(service))) => spawn_bare_session(stream, peer, service, server.clone()),
                Err(error) => {
                    // Usually the process is out of file descriptors. Sessions go on, and a pending handshake
                    // makes room.
                    let evicted = server.handshakes.abort_one();
                    if evicted {
                        server.metrics.record_rejection(RejectReason::HandshakeOverflow);
                    }
                    if let Some(failures) = failure_log.count(Instant::now().into_std()) {
                        warn!(%error, failures, evicted_handshake = evicted, "cannot accept connections; retrying");
                    }
                    tokio::time::sleep(if evicted { ACCEPT_RETRY_DELAY_AFTER_EVICTION } else { ACCEPT_RETRY_DELAY }).await;
                }
            },
        }
    }
}

/// Accepts a connection at any of the addresses, in turn.
async fn accept_next(
    listeners: &[ClientListener],
    next: &mut usize,
) -> io::Result<(TcpStream, SocketAddr, Option<Arc<TcpService>>)> {
    poll_fn(|context| {
        for _ in listeners {
            let listener = &listeners[*next % listeners.len()];
            *next = (*next + 1) % listeners.len();
            if let Poll::Ready(accepted) = listener.socket.poll_accept(context) {
                return Poll::Ready(accepted.map(|(stream, peer)| (stream, peer, listener.service.clone())));
            }
        }
        Poll::Pending
    })
    .await
}

/// Waits for the running sessions, at most for the drain timeout.
pub(super) async fn wait_for_sessions(
    mut all_gone: mpsc::Receiver<()>,
    drain_timeout: Duration,
    registry: &SessionRegistry,
    pings: &mut mpsc::Receiver<PingReply>,
    lifecycle: &Lifecycle,
) -> ShutdownOutcome {
    let deadline = tokio::time::sleep(drain_timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            _ = all_gone.recv() => return drain_outcome(registry.cut_off_count(), drain_timeout),
            () = lifecycle.wait_for(LifecycleState::Stopped) => {
                warn!(sessions = registry.len(), "forced stop: sessions are cut off");
                return ShutdownOutcome::Forced(registry.len());
            }
            () = &mut deadline => {
                // Connections without a session may still wait for clients that do not read their close frame.
                let left = registry.len();
                if left > 0 {
                    warn!(sessions = left, timeout_s = drain_timeout.as_secs_f64(), "drain timeout: sessions are cut off");
                }
                return drain_outcome(left + registry.cut_off_count(), drain_timeout);
            }
            Some(reply) = pings.recv() => drop(reply.send(())),
        }
    }
}

/// The outcome of a drain that cut off this number of sessions.
const fn drain_outcome(cut_off: usize, within: Duration) -> ShutdownOutcome {
    if cut_off == 0 { ShutdownOutcome::Drained } else { ShutdownOutcome::TimedOut(cut_off, within) }
}
