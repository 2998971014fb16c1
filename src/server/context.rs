//! The state that the connections of a server share, and the configuration that one is served with.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    sync::{Semaphore, mpsc, watch},
    task::AbortHandle,
};
use tracing::debug;

use super::{
    access::{
        client_secrets::ClientSecrets,
        handshakes::{Handshakes, ServedRequests},
        quota::Quotas,
    },
    active_config::{ActiveConfig, ServiceConfig},
    codec_threads::CodecThreads,
    memory::MemoryBudget,
    playground::watchers::Watchers,
    process::{lifecycle::Lifecycle, workers::Workers},
    queue_keeper::QueueKeeper,
    registry::SessionRegistry,
    rest::{bodies::Bodies, jobs::JobStore},
    session_task::MessageThreads,
    tool_servers::ToolServers,
    turn_judge::TurnJudge,
    webhooks::Webhooks,
    webrtc::Calls,
};
use crate::telemetry::{
    access_log::AccessLog,
    metrics::{Metrics, RejectReason},
    otlp::Otlp,
};

/// State shared by every connection.
pub(super) struct ServerContext {
    /// Calls by WebRTC, if they are served.
    pub(super) calls: Option<Calls>,
    /// Judges the ends of turns, if a model is loaded.
    pub(super) turn_judge: Option<TurnJudge>,
    /// The servers of tools that voxbridge calls.
    pub(super) tool_servers: ToolServers,
    pub(super) webhooks: Option<Webhooks>,
    pub(super) config: ActiveConfig,
    pub(super) session_slots: Arc<Semaphore>,
    pub(super) registry: SessionRegistry,
    pub(super) metrics: Metrics,
    pub(super) access_log: Option<AccessLog>,
    /// Where spans go, if there is a collector.
    pub(super) otlp: Option<Otlp>,
    pub(super) lifecycle: Lifecycle,
    pub(super) workers: Workers,
    /// Sessions in use by key and by address.
    pub(super) quotas: Quotas,
    /// Short-lived secrets that clients use instead of a key.
    pub(super) client_secrets: ClientSecrets,
    /// Connections that have no session yet.
    pub(super) handshakes: Handshakes,
    /// Decode and encode the files of REST requests.
    pub(super) codec_threads: CodecThreads,
    /// Handle large messages of sessions.
    pub(super) message_threads: MessageThreads,
    /// Bodies of REST requests that are being received.
    pub(super) bodies: Bodies,
    /// Uploads and transcriptions that clients ask for later.
    pub(super) jobs: JobStore,
    /// Pages that watch a session.
    pub(super) watchers: Watchers,
    /// Messages in transit of all connections.
    pub(super) memory: Arc<MemoryBudget>,
    /// Set to the drain timeout when sessions must finish.
    pub(super) drain: watch::Receiver<Option<Duration>>,
    /// Runs ended sessions whose lanes wait in a queue.
    pub(super) queue_keeper: QueueKeeper,
    /// Set when sessions that still run are cut off.
    pub(super) cut_off: watch::Receiver<bool>,
    /// Held by every connection; its channel closes when the last one has gone.
    pub(super) drain_guard: mpsc::Sender<()>,
}

impl ServerContext {
    /// Counts a connection without a session. If there are too many, another connection is closed.
    pub(super) fn add_handshake(&self, task: AbortHandle, served: ServedRequests, peer: SocketAddr) {
        let max = self.config().limits.handshakes_max;
        if self.handshakes.add(max, task, served, peer.ip()) {
            self.metrics.record_rejection(RejectReason::HandshakeOverflow);
            debug!(handshakes_max = max, "too many pending handshakes: closed one");
        }
    }

    pub(super) fn config(&self) -> Arc<ServiceConfig> {
        self.config.get()
    }

    /// The server with its present configuration.
    pub(super) fn snapshot(self: &Arc<Self>) -> Snapshot {
        Snapshot { server: self.clone(), config: self.config() }
    }
}

/// A server, and the configuration that a request or a session is served with. A reload meanwhile does not change it.
#[derive(Clone)]
pub(super) struct Snapshot {
    pub(super) server: Arc<ServerContext>,
    pub(super) config: Arc<ServiceConfig>,
}
