//! Everything that touches a socket: accepting clients, dialling upstreams, running sessions.
//!
//! To change here: paths of requests in [`listen`], [`rest`] and [`pages`], their checks in [`mod@accept`], orders of operators in [`admin`], and how sockets
//! are served. Not here: what a session does with its messages ([`crate::bridge`]).
//!
//! - [`active_config`]: the configuration that new sessions use
//! - [`listen`]: connections, TLS and HTTP; [`rest`]: requests that are served without an upgrade; [`pages`]: pages beside them
//! - [`mod@accept`]: admission and the upgrade; [`accept::http_error`] is the answer to a rejected request,
//!   [`accept::session_start`] begins a session, [`identify`] finds its client protocol, [`route`]
//!   its profile and upstreams
//! - [`session_task`]: the one task of a session, between its sockets and the [`crate::bridge`]; [`adaptive_read`]
//!   says when to read a client that streams
//! - [`webrtc`]: calls, whose sessions are like any other
//! - [`websocket`]: the WebSockets and the byte streams under them; [`tls`] encrypts those of clients
//! - [`upstream_pool`]: chooses and dials upstreams; [`upstream_pool::lane_leases`] reports to it how each lane fares
//! - [`queue_keeper`]: ended sessions whose lanes wait in a queue; [`cut_off`]: the order that ends what still runs
//! - [`codec_threads`] decode and encode files; [`memory`]: bounds the memory of messages in transit, over all connections
//! - [`registry`]: the running sessions, their statistics and operator orders; [`registry::observer`] keeps metrics
//!   and the access log
//! - [`playground`]: the page in the browser that talks to this server and shows the messages of its sessions
//! - [`loops`]: accepts connections, and waits for the last sessions
//! - [`process`]: lifecycle, worker threads, file descriptors, service manager
//! - [`admin`]: the listener for operators, on an address of its own
//! - [`turn_judge`]: threads that judge whether a user has finished speaking
//! - [`tool_servers`]: servers of tools that voxbridge calls for the model
//! - [`tap`] and [`trace_files`]: see every frame, and write sessions to disk, through a [`session_queue`]
//! - [`recordings`]: audio files of sessions, and what was said in them; [`webhooks`] tell other servers about sessions
//! - [`fuzzing`]: entry points of the fuzz targets for the code that reads strangers' bytes

mod accept;
pub mod access;
mod active_config;
pub(crate) mod adaptive_read;
pub mod admin;
mod announcement;
pub mod certificate_watch;
mod channel_rules;
mod client_port;
mod codec_threads;
mod cut_off;
pub mod fuzzing;
mod identify;
mod listen;
mod loops;
pub(crate) mod memory;
mod pages;
pub mod playground;
pub mod process;
pub(crate) mod queue_keeper;
pub mod recordings;
pub mod registry;
mod rest;
pub mod route;
mod session_queue;
mod session_task;
pub mod tap;
pub mod tls;
pub mod tool_servers;
pub mod trace_files;
pub mod turn_judge;
pub mod upstream_pool;
pub mod webhooks;
#[cfg(feature = "webrtc")]
pub mod webrtc;
#[cfg(not(feature = "webrtc"))]
#[path = "webrtc/off.rs"]
mod webrtc;
mod websocket;

pub(crate) use self::{
    accept::{session_opening::unix_now, upgrade::ANSWERS_HEADER},
    rest::{
        local::LocalSessions,
        session::{Events as RestEvents, Requests as RestRequests, RestSession, segment_of},
    },
};

use std::{
    io,
    net::{IpAddr, SocketAddr},
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, oneshot, watch},
    task::AbortHandle,
    time::{sleep, timeout},
};
use tracing::{debug, info, warn};

use self::{
    access::{
        client_secrets::ClientSecrets,
        handshakes::{Handshakes, ServedRequests},
        quota::Quotas,
    },
    announcement::Announcement,
    channel_rules::ChannelRules,
    loops::{accept_until, wait_for_sessions},
    process::{
        lifecycle::{DrainPolicy, Lifecycle, LifecycleState, ShutdownOutcome},
        workers::Workers,
    },
    queue_keeper::{QueueKeeper, QueueWaits},
    registry::SessionRegistry,
    tool_servers::ToolServers,
    turn_judge::TurnJudge,
    webhooks::{Deliveries, Webhooks},
    webrtc::Calls,
};
pub use self::{
    active_config::{ActiveConfig, ServiceConfig},
    announcement::AnnouncedService,
    listen::bare_tcp::TcpService,
};
use crate::net::http_request::RequestTarget;
use crate::telemetry::{
    access_log::AccessLog,
    line_writer::FLUSH_TIMEOUT,
    metrics::{
        Metrics, RejectReason,
        scrape::{ServerSnapshot, UpstreamSnapshot},
    },
    otlp::{Exporters, Otlp},
};

/// A server and its addresses.
pub struct Server {
    listeners: Vec<ClientListener>,
    config: ActiveConfig,
    registry: SessionRegistry,
    metrics: Metrics,
    access_log: Arc<OnceLock<AccessLog>>,
    otlp: Arc<OnceLock<Otlp>>,
    /// Send to the collector, if there is one.
    exporters: Option<Exporters>,
    workers: Option<Workers>,
    session_slots: SessionSlots,
    lifecycle: Lifecycle,
    liveness: (LivenessProbe, mpsc::Receiver<PingReply>),
    local_sessions: LocalSessions,
    calls: Option<Calls>,
    turn_judge: Option<TurnJudge>,
    tool_servers: ToolServers,
    /// Webhooks, and what sends their messages while the server runs.
    webhooks: Option<(Webhooks, Deliveries)>,
    announcements: Vec<Announcement>,
    queue_keeper: QueueKeeper,
    /// Additional time for which a drain waits for lanes in an upstream's queue.
    queue_wait_max: Duration,
}

/// A socket that accepts clients.
struct ClientListener {
    socket: TcpListener,
    /// `None` for HTTP and WebSockets.
    service: Option<Arc<TcpService>>,
}

/// Where calls by WebRTC are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebRtcAddresses {
    /// Address and port of the UDP socket.
    pub listen: SocketAddr,
    /// The address that clients send to, and its port if that is another one.
    pub advertise: (IpAddr, Option<u16>),
}

/// Protocol of a call's data channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallProtocol {
    /// OpenAI's Realtime events.
    OpenAi,
    /// RTVI, with the signalling of Pipecat's SmallWebRTC.
    Pipecat,
}

/// The data channel of a call.
#[derive(Debug)]
#[cfg_attr(not(feature = "webrtc"), expect(dead_code, reason = "there are no calls"))]
pub(crate) struct CallChannel {
    protocol: CallProtocol,
    /// Events that it may carry.
    rules: ChannelRules,
}

impl CallProtocol {
    /// A channel that may carry all events.
    const fn channel(self) -> CallChannel {
        CallChannel { protocol: self, rules: ChannelRules::ALL }
    }
}

/// Sample rates of a call's audio, from and to the client, Hz.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CallRates {
    in_hz: u32,
    out_hz: u32,
}

/// Completed by the accept loop, as proof that it runs.
type PingReply = oneshot::Sender<()>;

/// Checks that the accept loop still runs.
#[derive(Debug, Clone)]
pub struct LivenessProbe(mpsc::Sender<PingReply>);

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

/// The limit on concurrent sessions.
#[derive(Debug, Clone)]
pub struct SessionSlots {
    semaphore: Arc<Semaphore>,
    /// The limit itself, whether slots are taken or not.
    pub max: usize,
}

impl SessionSlots {
    fn new(max: usize) -> Self {
        Self { semaphore: Arc::new(Semaphore::new(max)), max }
    }

    /// Free slots.
    pub fn available(&self) -> usize {
        self.semaphore.available_permits()
    }

    /// Completes when every slot is free.
    async fn wait_until_all_free(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.semaphore.acquire_many(all).await;
    }
}

impl Server {
    /// A server with one address.
    ///
    /// # Errors
    /// Fails with the system's error, such as an address in use.
    pub async fn bind(listen: &str, config: ServiceConfig) -> io::Result<Self> {
        let mut server = Self::new(config);
        server.bind_address(listen).await?;
        Ok(server)
    }

    /// A server without an address.
    pub fn new(config: ServiceConfig) -> Self {
        let (config, registry) = (ActiveConfig::new(config), SessionRegistry::default());
        let (active_config, sessions) = (config.clone(), registry.clone());
        let access_log = Arc::<OnceLock<AccessLog>>::default();
        let otlp = Arc::<OnceLock<Otlp>>::default();
        let (log, exported) = (access_log.clone(), otlp.clone());
        let metrics = Metrics::new(move || {
            metrics_snapshot(&active_config.get(), &sessions, log.get(), exported.get())
        });
        metrics.add_session_kinds(config.get().session_kinds());
        let (ping_sender, pings) = mpsc::channel(1);
        let session_slots = SessionSlots::new(config.get().sessions_max);
        let webhooks = config.get().webhooks.clone().map(|settings| Webhooks::new(settings, metrics.clone()));
        let tool_servers = ToolServers::new(config.get().tool_servers.clone(), metrics.clone());
        Self {
            listeners: Vec::new(),
            config,
            registry,
            metrics,
            access_log,
            otlp,
            exporters: None,
            workers: None,
            session_slots,
            lifecycle: Lifecycle::default(),
            liveness: (LivenessProbe(ping_sender), pings),
            local_sessions: LocalSessions::default(),
            calls: None,
            turn_judge: None,
            tool_servers,
            webhooks,
            announcements: Vec::new(),
            queue_keeper: QueueKeeper::default(),
            queue_wait_max: Duration::ZERO,
        }
    }

    /// Opens sessions from this process, without an address.
    pub(crate) fn local_sessions(&self) -> LocalSessions {
        self.local_sessions.clone()
    }

    /// Accepts clients at this address as well.
    ///
    /// # Errors
    /// Fails with the system's error, such as an address in use.
    pub async fn bind_address(&mut self, listen: &str) -> io::Result<()> {
        let socket = TcpListener::bind(listen).await?;
        self.listeners.push(ClientListener { socket, service: None });
        Ok(())
    }

    /// Serves clients of a protocol on bare TCP as well, and announces it if that is wanted. Returns the address.
    ///
    /// # Errors
    /// Fails with the system's error, such as an address in use.
    pub async fn bind_tcp(&mut self, listen: SocketAddr, service: TcpService) -> io::Result<SocketAddr> {
        let socket = TcpListener::bind(listen).await?;
        let address = socket.local_addr()?;
        if let Some(announced) = &service.announced_as {
            match Announcement::start(announced, address) {
                Ok(announcement) => self.announcements.push(announcement),
                // Clients that know the address still find it.
                Err(error) => warn!(%error, name = announced.name, "not announced on the local network"),
            }
        }
        self.listeners.push(ClientListener { socket, service: Some(Arc::new(service)) });
        Ok(address)
    }

    /// Serves calls by WebRTC as well. Returns the address that clients send to.
    ///
    /// # Errors
    /// Fails with the system's error, such as an address in use, or if the program was built without WebRTC.
    pub async fn bind_calls(&mut self, addresses: WebRtcAddresses) -> io::Result<SocketAddr> {
        let calls = Calls::bind(addresses, self.metrics.clone(), self.registry.waiting().clone()).await?;
        let advertised = calls.advertised();
        self.calls = Some(calls);
        Ok(advertised)
    }

    /// Judges the ends of turns by the model with these weights.
    ///
    /// # Errors
    /// A message that says what is wrong with the file, or that this program cannot run a model.
    pub fn load_turn_model(&mut self, weights: &Path) -> Result<(), String> {
        self.turn_judge = Some(TurnJudge::load(weights, self.metrics.clone())?);
        Ok(())
    }

    /// Judges the ends of turns by a server.
    ///
    /// # Errors
    /// A message with the system's error.
    pub fn use_turn_judge(&mut self, server: &RequestTarget) -> Result<(), String> {
        self.turn_judge = Some(TurnJudge::remote(server, self.metrics.clone())?);
        Ok(())
    }

    /// The servers of tools that voxbridge calls.
    pub fn tool_servers(&self) -> ToolServers {
        self.tool_servers.clone()
    }

    /// The addresses for HTTP and WebSockets, with the ports that the system chose.
    ///
    /// # Errors
    /// Fails with the system's error.
    pub fn local_addrs(&self) -> io::Result<Vec<SocketAddr>> {
        let listeners = self.listeners.iter().filter(|listener| listener.service.is_none());
        listeners.map(|listener| listener.socket.local_addr()).collect()
    }

    /// The first address.
    ///
    /// # Errors
    /// Fails with the system's error, or without an address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local_addrs()?.first().copied().ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// The configuration for new sessions; it can be replaced while the server runs.
    pub fn active_config(&self) -> ActiveConfig {
        self.config.clone()
    }

    /// The running sessions.
    pub fn registry(&self) -> SessionRegistry {
        self.registry.clone()
    }

    /// The limit on concurrent sessions.
    pub fn session_slots(&self) -> SessionSlots {
        self.session_slots.clone()
    }

    /// The server's lifecycle, to watch it or to stop the server.
    pub fn lifecycle(&self) -> Lifecycle {
        self.lifecycle.clone()
    }

    /// Checks that the accept loop still runs.
    pub fn liveness_probe(&self) -> LivenessProbe {
        self.liveness.0.clone()
    }

    /// The server's metrics.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Writes a line to `log` for every session that ends from now on. Only the first call has an effect.
    pub fn set_access_log(&mut self, log: AccessLog) {
        let _ = self.access_log.set(log);
    }

    /// Sends traces, metrics and the log to a collector while the server runs. Only the first call has an effect.
    pub fn export_to(&mut self, otlp: Otlp, exporters: Exporters) {
        if self.otlp.set(otlp).is_ok() {
            self.exporters = Some(exporters);
        }
    }

    /// Runs sessions on these threads. Without a call they run on the current runtime.
    pub fn set_workers(&mut self, workers: Workers) {
        self.workers = Some(workers);
    }

    /// Lets a drain wait at most this much longer for ended sessions whose lanes are in an upstream's queue. Returns their
    /// counter.
    pub(crate) fn wait_in_queues(&mut self, at_most: Duration) -> QueueWaits {
        self.queue_wait_max = at_most;
        self.queue_keeper.kept().clone()
    }

    /// Serves until `stop` completes, then drains sessions within the configured time.
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

    /// Serves until the lifecycle drains, then drains sessions within the configured time.
    pub async fn serve(mut self) -> ShutdownOutcome {
        let (webhooks, deliveries) = self.webhooks.take().unzip();
        let delivering = deliveries.map(|deliveries| tokio::spawn(deliveries.run()));
        let (server, orders) = self.start(webhooks.clone());
        let receiving = server.calls.clone().map(|calls| tokio::spawn(calls.run()));
        let tool_servers = tokio::spawn(self.tool_servers.clone().run());
        let exporting = self.exporters.take().map(|exporters| tokio::spawn(exporters.run(self.metrics())));
        let log = server.access_log.clone();
        self.lifecycle.mark_serving();
        self.local_sessions.begin(&server);
        self.accept_until(&server, LifecycleState::Draining, None).await;
        for announcement in self.announcements.drain(..) {
            announcement.end().await;
        }
        let DrainPolicy { grace, timeout: drain_timeout } = self.config.get().drain_policy;
        info!(sessions = self.registry.len(), "draining: new sessions are rejected with HTTP 503");
        if !grace.is_zero() {
            self.accept_until(&server, LifecycleState::Stopped, Some(grace)).await;
        }
        self.listeners.clear();
        info!(
            sessions = self.registry.len(),
            "draining: listener closed, sessions finish what is being said"
        );
        orders.drain.send_replace(Some(drain_timeout));
        server.calls.iter().for_each(Calls::end_waiting);
        drop(server);
        let (registry, lifecycle, pings) = (&self.registry, &self.lifecycle, &mut self.liveness.1);
        let outcome = wait_for_sessions(orders.all_gone, drain_timeout, registry, pings, lifecycle).await;
        orders.cut_off.send_replace(true);
        self.leave_queues().await;
        self.lifecycle.stop();
        if let Some(receiving) = receiving {
            receiving.abort();
        }
        tool_servers.abort();
        // Sessions that were cut off still write their lines.
        let _ = timeout(FLUSH_TIMEOUT, self.session_slots.wait_until_all_free()).await;
        if let Some((webhooks, delivering)) = webhooks.zip(delivering) {
            webhooks.finish().await;
            delivering.abort();
        }
        if let Some(log) = log
            && !log.flush().await
        {
            warn!("access log not written completely within 1 s: some lines are lost");
        }
        if let (Some(otlp), Some(exporting)) = (self.otlp.get(), exporting) {
            otlp.stop();
            if timeout(FLUSH_TIMEOUT, exporting).await.is_err() {
                warn!("the OpenTelemetry collector did not take everything within 1 s: some of it is lost");
            }
        }
        outcome
    }

    /// Makes what the connections share, and the orders to them.
    fn start(&mut self, webhooks: Option<Webhooks>) -> (Arc<ServerContext>, Orders) {
        let ((drain_sender, drain), (cut_off_sender, cut_off)) =
            (watch::channel(None), watch::channel(false));
        let (drain_guard, all_gone) = mpsc::channel(1);
        let server = Arc::new(ServerContext {
            calls: self.calls.take(),
            turn_judge: self.turn_judge.take(),
            tool_servers: self.tool_servers.clone(),
            webhooks,
            session_slots: self.session_slots.semaphore.clone(),
            config: self.config.clone(),
            registry: self.registry.clone(),
            lifecycle: self.lifecycle.clone(),
            metrics: self.metrics.clone(),
            access_log: self.access_log.get().cloned(),
            otlp: self.otlp.get().cloned(),
            workers: self.workers.take().unwrap_or_else(Workers::current_runtime),
            quotas: Quotas::default(),
            client_secrets: ClientSecrets::default(),
            handshakes: self.registry.waiting().connections.clone(),
            codec_threads: Default::default(),
            message_threads: Default::default(),
            bodies: Default::default(),
            jobs: Default::default(),
            watchers: Default::default(),
            memory: Arc::default(),
            drain,
            queue_keeper: self.queue_keeper.clone(),
            cut_off,
            drain_guard,
        });
        (server, Orders { drain: drain_sender, cut_off: cut_off_sender, all_gone })
    }

    /// Accepts clients until the server has come to this state, or for this long.
    async fn accept_until(
        &mut self,
        server: &Arc<ServerContext>,
        state: LifecycleState,
        at_most: Option<Duration>,
    ) {
        let Self { listeners, lifecycle, liveness, .. } = self;
        let over = async {
            tokio::select! {
                () = sleep(at_most.unwrap_or_default()), if at_most.is_some() => {}
                () = lifecycle.wait_for(state) => {}
            }
        };
        accept_until(listeners, server, &mut liveness.1, over).await;
    }

    /// Waits for ended sessions whose lanes are in an upstream's queue, and drops those that still are.
    async fn leave_queues(&self) {
        tokio::select! {
            _ = timeout(self.queue_wait_max, self.queue_keeper.kept().until_none()) => {}
            () = self.lifecycle.wait_for(LifecycleState::Stopped) => {}
        }
        self.queue_keeper.drop_all();
    }
}

/// Orders to all connections, and their end.
struct Orders {
    /// Set to the drain timeout when sessions must finish.
    drain: watch::Sender<Option<Duration>>,
    /// Set when sessions that still run are cut off.
    cut_off: watch::Sender<bool>,
    /// Closes when the last connection has gone.
    all_gone: mpsc::Receiver<()>,
}

/// The state of sessions and upstreams when metrics are scraped.
fn metrics_snapshot(
    config: &ServiceConfig,
    registry: &SessionRegistry,
    access_log: Option<&AccessLog>,
    otlp: Option<&Otlp>,
) -> ServerSnapshot {
    let sessions = registry.all().into_iter();
    let kind = |session: Arc<registry::LiveSession>| {
        (session.info.client.as_str().into(), session.info.profile.as_str().into(), session.state())
    };
    let upstream =
        |((name, standing), (_, dialect)): ((String, upstream_pool::UpstreamStatus), (_, &str))| {
            UpstreamSnapshot {
                name,
                dialect: dialect.to_owned(),
                in_service: standing.load.ejected_until.is_none(),
                load: standing.load.lanes,
                failures: standing.failures,
                ejections: standing.ejections,
                unneeded: standing.unneeded,
            }
        };
    ServerSnapshot {
        kinds: config.session_kinds(),
        sessions: sessions.map(kind).collect(),
        waiting: registry.waiting().counts().into(),
        upstreams: config.pool.statuses().into_iter().zip(config.pool.dialects()).map(upstream).collect(),
        access_log_lines_lost: access_log.map_or(0, AccessLog::lost_lines),
        otlp_lost: otlp.map(Otlp::lost).into_iter().flatten().collect(),
        log_lines_lost: crate::telemetry::log::lost_lines(),
        trace_lines_lost: config.traces.as_ref().map_or(0, |traces| traces.lost_lines()),
        recordings_incomplete: config.recordings.as_ref().map_or(0, |recordings| recordings.incomplete()),
    }
}

/// State shared by every connection.
struct ServerContext {
    /// Calls by WebRTC, if they are served.
    calls: Option<Calls>,
    /// Judges the ends of turns, if a model is loaded.
    turn_judge: Option<TurnJudge>,
    /// The servers of tools that voxbridge calls.
    tool_servers: ToolServers,
    webhooks: Option<Webhooks>,
    config: ActiveConfig,
    session_slots: Arc<Semaphore>,
    registry: SessionRegistry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
    /// Where spans go, if there is a collector.
    otlp: Option<Otlp>,
    lifecycle: Lifecycle,
    workers: Workers,
    /// Sessions in use by key and by address.
    quotas: Quotas,
    /// Short-lived secrets that clients use instead of a key.
    client_secrets: ClientSecrets,
    /// Connections that have no session yet.
    handshakes: Handshakes,
    /// Decode and encode the files of REST requests.
    codec_threads: codec_threads::CodecThreads,
    /// Handle large messages of sessions.
    message_threads: session_task::MessageThreads,
    /// Bodies of REST requests that are being received.
    bodies: rest::bodies::Bodies,
    /// Uploads and transcriptions that clients ask for later.
    jobs: rest::jobs::JobStore,
    /// Pages that watch a session.
    watchers: playground::watchers::Watchers,
    /// Messages in transit of all connections.
    memory: Arc<memory::MemoryBudget>,
    /// Set to the drain timeout when sessions must finish.
    drain: watch::Receiver<Option<Duration>>,
    /// Runs ended sessions whose lanes wait in a queue.
    queue_keeper: QueueKeeper,
    /// Set when sessions that still run are cut off.
    cut_off: watch::Receiver<bool>,
    /// Held by every connection; its channel closes when the last one has gone.
    drain_guard: mpsc::Sender<()>,
}

impl ServerContext {
    /// Counts a connection without a session. If there are too many, another connection is closed.
    fn add_handshake(&self, task: AbortHandle, served: ServedRequests, peer: SocketAddr) {
        let max = self.config().limits.handshakes_max;
        if self.handshakes.add(max, task, served, peer.ip()) {
            self.metrics.record_rejection(RejectReason::HandshakeOverflow);
            debug!(handshakes_max = max, "too many pending handshakes: closed one");
        }
    }

    fn config(&self) -> Arc<ServiceConfig> {
        self.config.get()
    }

    /// The server with its present configuration.
    fn snapshot(self: &Arc<Self>) -> Snapshot {
        Snapshot { server: self.clone(), config: self.config() }
    }
}

/// A server, and the configuration that a request or a session is served with. A reload meanwhile does not change it.
#[derive(Clone)]
struct Snapshot {
    server: Arc<ServerContext>,
    config: Arc<ServiceConfig>,
}
