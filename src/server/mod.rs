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
//! - [`webrtc`]: calls, whose sessions are like any other; [`call`] is what the rest of the server knows of them
//! - [`websocket`]: the WebSockets and the byte streams under them; [`tls`] encrypts those of clients
//! - [`upstream_pool`]: chooses and dials upstreams; [`upstream_pool::lane_leases`] reports to it how each lane fares
//! - [`queue_keeper`]: ended sessions whose lanes wait in a queue; [`cut_off`]: the order that ends what still runs
//! - [`codec_threads`] decode and encode files; [`memory`]: bounds the memory of messages in transit, over all connections
//! - [`registry`]: the running sessions, their statistics and operator orders; [`registry::observer`] keeps metrics
//!   and the access log; [`scrape`] is the state that metrics show
//! - [`playground`]: the page in the browser that talks to this server and shows the messages of its sessions
//! - [`serving`]: from the start of a server to the end of its last session; [`loops`] accepts connections, and waits for
//!   the last sessions; [`context`] is what the connections share, [`session_slots`] their limit
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
mod call;
pub mod certificate_watch;
mod channel_rules;
mod client_port;
mod codec_threads;
mod context;
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
mod scrape;
mod serving;
mod session_queue;
mod session_slots;
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
    net::SocketAddr,
    path::Path,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::{net::TcpListener, sync::mpsc};
use tracing::warn;

pub use self::{
    active_config::{ActiveConfig, ServiceConfig},
    announcement::AnnouncedService,
    call::WebRtcAddresses,
    listen::bare_tcp::TcpService,
    loops::LivenessProbe,
    session_slots::SessionSlots,
};
use self::{
    announcement::Announcement,
    call::{CallChannel, CallProtocol, CallRates},
    context::{ServerContext, Snapshot},
    loops::PingReply,
    process::{lifecycle::Lifecycle, workers::Workers},
    queue_keeper::{QueueKeeper, QueueWaits},
    registry::SessionRegistry,
    scrape::metrics_snapshot,
    tool_servers::ToolServers,
    turn_judge::TurnJudge,
    webhooks::{Deliveries, Webhooks},
    webrtc::Calls,
};
use crate::net::http_request::RequestTarget;
use crate::telemetry::{
    access_log::AccessLog,
    metrics::Metrics,
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
}
