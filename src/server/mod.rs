//! Everything that touches a socket: accepting clients, dialling upstreams, driving sessions.
//!
//! - [`active_config`] is what new sessions are served with
//! - [`mod@accept`] answers HTTP and upgrades who may in by [`access`], or says why not ([`accept::http_error`]); [`accept::session_start`] begins a
//!   session: [`accept::protocol_detection`] finds out which protocol it speaks, [`route`] what serves it
//! - [`process::fd_limit`] sees to it that the system lets it open enough
//! - [`process::workers`] are the threads sessions run on; [`session_task`] is the one task of a session: sockets on one side, the [`crate::bridge`] on the other
//! - [`session_task::socket_poll`] polls its sockets, [`websocket::outbox`] is one of them, [`upstream_pool::dial`] opens those towards upstreams, [`tap`] looks on
//! - [`registry::observer`] lets operators see what a session does
//! - [`registry`] knows the sessions that run, and gives them orders; [`process::lifecycle`] is the server's own from start to end
//! - [`admin`] is what operators see and do, at an address apart from the clients'; [`process::systemd`] tells the service manager
//! - [`trace_files`] writes what sessions do to files
//! - [`tls`] encrypts what clients send and are sent, [`websocket::stream`] is what it does so on, [`websocket::pausable_stream`] what is under both
//! - [`upstream_pool`] chooses among upstreams; [`session_task::lane_leases`] tells it what sessions say of theirs

mod accept;
pub mod access;
mod active_config;
pub(crate) mod adaptive_read;
pub mod admin;
pub mod process;
pub mod registry;
pub mod route;
mod session_task;
pub mod tap;
pub mod tls;
pub mod trace_files;
pub mod upstream_pool;
mod websocket;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, oneshot, watch},
    time::timeout,
};
use tracing::{info, warn};

pub use self::active_config::{ActiveConfig, ServiceConfig};
use self::{
    access::{handshakes::Handshakes, quota::Quotas},
    process::{
        lifecycle::{DrainPolicy, Lifecycle, LifecycleState, ShutdownOutcome},
        workers::Workers,
    },
    registry::SessionRegistry,
};
use crate::telemetry::{
    access_log::AccessLog,
    metrics::{
        Metrics, RejectReason,
        scrape::{ServerSnapshot, UpstreamSnapshot},
    },
};

/// A server whose address is bound.
pub struct Server {
    listener: TcpListener,
    config: ActiveConfig,
    registry: SessionRegistry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
    workers: Option<Workers>,
    session_slots: SessionSlots,
    lifecycle: Lifecycle,
    liveness: (LivenessProbe, mpsc::Receiver<PingReply>),
}

/// An answer that only who accepts connections can give.
type PingReply = oneshot::Sender<()>;

/// A way to ask whether connections are still accepted.
#[derive(Debug, Clone)]
pub struct LivenessProbe(mpsc::Sender<PingReply>);

impl LivenessProbe {
    /// Done when the loop that accepts connections, or that waits for the last sessions, has come round; never if it does
    /// not.
    pub async fn ping(&self) {
        let (reply, replied) = oneshot::channel();
        if self.0.send(reply).await.is_err() || replied.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How many sessions there may be.
#[derive(Debug, Clone)]
pub struct SessionSlots {
    semaphore: Arc<Semaphore>,
    /// All of them, taken or not.
    pub max: usize,
}

impl SessionSlots {
    fn new(max: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(max)), max }
    }

    /// How many more.
    #[must_use]
    pub fn available(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Done when nobody has a place.
    async fn wait_until_all_free(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // Nobody closes it.
        let _ = self.semaphore.acquire_many(all).await;
    }
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// The system's own, such as an address in use.
    pub async fn bind(listen: &str, config: ServiceConfig) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let (config, registry) = (ActiveConfig::new(config), SessionRegistry::default());
        let (active_config, sessions) = (config.clone(), registry.clone());
        let metrics = Metrics::new(move || metrics_snapshot(&active_config.get(), &sessions));
        let (ping_sender, pings) = mpsc::channel(1);
        let session_slots = SessionSlots::new(config.get().sessions_max);
        Ok(Self {
            listener,
            config,
            registry,
            metrics,
            access_log: None,
            workers: None,
            session_slots,
            lifecycle: Lifecycle::default(),
            liveness: (LivenessProbe(ping_sender), pings),
        })
    }

    /// The address, with the port the system chose.
    ///
    /// # Errors
    /// The system's own.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What new sessions are served with, to be replaced while it runs.
    #[must_use]
    pub fn active_config(&self) -> ActiveConfig {
        self.config.clone()
    }

    /// The sessions that run.
    #[must_use]
    pub fn registry(&self) -> SessionRegistry {
        self.registry.clone()
    }

    /// How many sessions there may be.
    #[must_use]
    pub fn session_slots(&self) -> SessionSlots {
        self.session_slots.clone()
    }

    /// Its life, to be watched and ended.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.clone()
    }

    /// Whether it still accepts.
    #[must_use]
    pub fn liveness_probe(&self) -> LivenessProbe {
        self.liveness.0.clone()
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Every session that ends from now on has a line there.
    pub fn set_access_log(&mut self, log: AccessLog) {
        self.access_log = Some(log);
    }

    /// Sessions run on these threads; on those that accept them unless this is said.
    pub fn set_workers(&mut self, workers: Workers) {
        self.workers = Some(workers);
    }

    /// Serves until `stop` is done, then lets sessions finish within a bound.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let lifecycle = self.lifecycle.clone();
        let stopping = async {
            stop.await;
            lifecycle.start_drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.serve() => {}
            () = stopping => {}
        }
    }

    /// Serves until its life is to end, then lets sessions finish within a bound.
    pub async fn serve(self) -> ShutdownOutcome {
        let Self {
            listener,
            config,
            registry,
            metrics,
            access_log,
            workers,
            session_slots,
            lifecycle,
            liveness,
        } = self;
        let (_, mut pings) = liveness;
        let ((drain_sender, drain), (cut_off_sender, cut_off)) =
            (watch::channel(None), watch::channel(false));
        let (drain_guard, all_gone) = mpsc::channel::<()>(1);
        let (slots, log) = (session_slots.clone(), access_log.clone());
        let server = Arc::new(ServerContext {
            session_slots: session_slots.semaphore.clone(),
            config: config.clone(),
            registry: registry.clone(),
            lifecycle: lifecycle.clone(),
            metrics,
            access_log,
            workers: workers.unwrap_or_else(Workers::current_runtime),
            quotas: Quotas::default(),
            handshakes: Handshakes::default(),
            drain,
            cut_off,
            drain_guard,
        });
        lifecycle.mark_serving();
        accept_until(&listener, &server, &mut pings, lifecycle.wait_for(LifecycleState::Draining)).await;
        let DrainPolicy { grace, timeout: drain_timeout } = config.get().drain_policy;
        info!(sessions = registry.len(), "draining: no new sessions");
        let grace_over = async {
            tokio::select! {
                () = tokio::time::sleep(grace) => {}
                () = lifecycle.wait_for(LifecycleState::Stopped) => {}
            }
        };
        if !grace.is_zero() {
            accept_until(&listener, &server, &mut pings, grace_over).await;
        }
        drop(listener);
        info!(sessions = registry.len(), "stopping: sessions finish what is being said");
        drain_sender.send_replace(Some(drain_timeout));
        drop(server);
        let outcome = wait_for_sessions((all_gone, drain_timeout), &registry, &mut pings, &lifecycle).await;
        cut_off_sender.send_replace(true);
        lifecycle.stop();
        let log_flushed = timeout(ACCESS_LOG_FLUSH_TIMEOUT, async {
            slots.wait_until_all_free().await;
            if let Some(log) = log {
                log.flush().await;
            }
        });
        if log_flushed.await.is_err() {
            warn!("some lines of the access log were not written in time");
        }
        outcome
    }
}

/// Sessions that were cut off are told of within this time: that is no more work than a line each.
const ACCESS_LOG_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// When nothing can be accepted it is tried again so much later: at once is no use, and too much is logged.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// The same if somebody was ended for it.
const ACCEPT_RETRY_DELAY_AFTER_EVICTION: Duration = Duration::from_millis(10);

/// Accepts connections until then.
async fn accept_until(
    listener: &TcpListener,
    server: &Arc<ServerContext>,
    pings: &mut mpsc::Receiver<PingReply>,
    until: impl Future<Output = ()>,
) {
    tokio::pin!(until);
    loop {
        tokio::select! {
            () = &mut until => return,
            Some(reply) = pings.recv() => drop(reply.send(())),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => accept::spawn_connection(stream, peer, server.clone()),
                Err(error) => {
                    // Out of file descriptors, mostly: sessions go on, and so must accepting, at the cost of who stalls.
                    let evicted = server.handshakes.abort_oldest();
                    if evicted {
                        server.metrics.record_rejection(RejectReason::HandshakeOverflow);
                    }
                    warn!(%error, ended = evicted, "cannot accept a connection");
                    tokio::time::sleep(if evicted { ACCEPT_RETRY_DELAY_AFTER_EVICTION } else { ACCEPT_RETRY_DELAY }).await;
                }
            },
        }
    }
}

/// Waits for the sessions that run, within a bound.
async fn wait_for_sessions(
    (mut all_gone, drain_timeout): (mpsc::Receiver<()>, Duration),
    registry: &SessionRegistry,
    pings: &mut mpsc::Receiver<PingReply>,
    lifecycle: &Lifecycle,
) -> ShutdownOutcome {
    let deadline = tokio::time::sleep(drain_timeout);
    tokio::pin!(deadline);
    loop {
        tokio::select! {
            biased;
            _ = all_gone.recv() => return ShutdownOutcome::Drained,
            () = lifecycle.wait_for(LifecycleState::Stopped) => {
                warn!(sessions = registry.len(), "stopped at once");
                return ShutdownOutcome::Forced(registry.len());
            }
            () = &mut deadline => {
                // Some goodbyes may still be on their way to clients that do not read them.
                let left = registry.len();
                if left > 0 {
                    warn!(sessions = left, "some sessions did not finish in time, and are cut off");
                }
                return if left > 0 { ShutdownOutcome::TimedOut(left, drain_timeout) } else { ShutdownOutcome::Drained };
            }
            Some(reply) = pings.recv() => drop(reply.send(())),
        }
    }
}

/// What metrics want to know when they are asked.
fn metrics_snapshot(config: &ServiceConfig, registry: &SessionRegistry) -> ServerSnapshot {
    let sessions = registry.all().into_iter();
    let kind = |session: Arc<registry::LiveSession>| {
        (session.info.client.as_str().into(), session.info.profile.as_str().into(), session.state())
    };
    let upstream = |(name, standing): (String, upstream_pool::UpstreamStatus)| UpstreamSnapshot {
        name,
        in_service: standing.load.ejected_until.is_none(),
        load: standing.load.lanes,
        failures: standing.failures,
        ejections: standing.ejections,
    };
    ServerSnapshot {
        kinds: config.routes.session_kinds(&config.library),
        sessions: sessions.map(kind).collect(),
        upstreams: config.pool.statuses().into_iter().map(upstream).collect(),
        trace_lines_lost: config.traces.as_ref().map_or(0, |traces| traces.lost_lines()),
    }
}

/// What every connection shares.
struct ServerContext {
    config: ActiveConfig,
    session_slots: Arc<Semaphore>,
    registry: SessionRegistry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
    lifecycle: Lifecycle,
    workers: Workers,
    /// Who has how many of them.
    quotas: Quotas,
    /// Connections without a session.
    handshakes: Handshakes,
    /// The order to finish, and within which time.
    drain: watch::Receiver<Option<Duration>>,
    /// Sessions that still run are cut off.
    cut_off: watch::Receiver<bool>,
    /// Held by every connection; when all are gone its channel ends.
    drain_guard: mpsc::Sender<()>,
}

impl ServerContext {
    fn config(&self) -> Arc<ServiceConfig> {
        self.config.get()
    }
}
