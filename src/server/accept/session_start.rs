//! Starts a client's session after the upgrade: detects its protocol, registers the session and runs its task.
//! `session_opening` opens its bridge.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::OwnedSemaphorePermit;
use tokio_tungstenite::tungstenite::{
    Message,
    protocol::{Role, frame::coding::CloseCode},
};
use tracing::{Instrument as _, Span, debug, error_span};

use super::{
    request_stream::RequestStream,
    session_opening::{
        ConnectRequest, OpenedSession, RecordedSession, TraceStart, open_relay_session, open_session,
        start_recording,
    },
};
use crate::server::{
    ServerContext, Snapshot,
    access::{ClientLimits, keys::ApiKey, quota::QuotaTicket},
    client_port::PortEnd,
    identify::{
        Identified,
        first_message::{close_unidentified, read_first_message},
    },
    memory::{Eviction, MemoryShare},
    playground::watchers::Watcher,
    registry::{
        SessionInfo, SessionNotifier,
        observer::{Observer, ObserverSinks},
    },
    session_task::{
        ClientEnd, OtherClient, SessionContext, SessionRegistration, SessionTask, wait_for_drain_order,
    },
    trace_files::SessionTrace,
    websocket::{
        WebSocket,
        session_socket::{OUT_OF_MEMORY, SessionSocket, websocket_config},
        stream::ClientStream,
    },
};
use crate::{
    bridge::Bridge,
    net::Traffic,
    spelling::client::Framing,
    telemetry::{
        context::TraceContext,
        metrics::RejectReason,
        otlp::session_spans::{SessionSpans, SessionStart},
    },
};

/// Everything a session was admitted with. Dropping it releases the session slot and the quota.
pub(crate) struct Admission {
    /// The API key, if one was shown.
    key: Option<Arc<ApiKey>>,
    /// The first name in the client's certificate.
    subject: Option<String>,
    _session_slot: OwnedSemaphorePermit,
    _quota_tickets: Vec<QuotaTicket>,
}

impl Admission {
    pub(in crate::server) fn new(
        key: Option<Arc<ApiKey>>,
        subject: Option<String>,
        session_slot: OwnedSemaphorePermit,
        quota_tickets: Vec<QuotaTicket>,
    ) -> Self {
        Self { key, subject, _session_slot: session_slot, _quota_tickets: quota_tickets }
    }
}

/// Serves a session until its end.
pub(crate) fn run_session(
    upgraded: OnUpgrade,
    request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) -> impl Future<Output = ()> + Send {
    // Boxed, and freed when the session runs: a future keeps its arguments and what its largest part needs, and starting takes twice
    // the memory of running.
    let starting = Box::pin(async move {
        let stream = raw_stream(upgraded, request.peer).await?;
        start_session(stream, request, snapshot, admission).await
    });
    async move { run_started(starting.await).await }
}

/// Serves the session of a client within this process until its end.
pub(crate) async fn run_port_session(
    mut port: PortEnd,
    request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) {
    let limits = snapshot.config.limits.for_key(admission.key.as_deref());
    let (memory, eviction) = MemoryShare::evictable(snapshot.server.memory.clone(), limits.memory_max_bytes);
    port.memory = memory;
    port.message_max_bytes = request.client.message_max(limits).bytes;
    let connection = Box::new(Connection { request, snapshot, admission, eviction });
    run_started(open_on(connection, ClientEnd::Port(port), None)).await;
}

/// A client without a handshake that has sent its first message.
pub(in crate::server) struct GreetedClient {
    pub(in crate::server) client: WebSocket<ClientStream>,
    /// Signals that other connections need the memory that this client holds.
    pub(in crate::server) eviction: Arc<Eviction>,
    pub(in crate::server) first_message: Message,
}

/// Serves the session of such a client until its end.
pub(in crate::server) async fn run_greeted_session(
    GreetedClient { client, eviction, first_message }: GreetedClient,
    mut request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) {
    if request.client.is_open() {
        let narrowed = narrow_by_message(request.client, &first_message, &snapshot.server).await;
        let Some(narrowed) = narrowed else { return };
        request.client = narrowed;
    }
    let connection = Box::new(Connection { request, snapshot, admission, eviction });
    run_started(open_connection(connection, client, Some(first_message))).await;
}

/// Runs sessions on a connection until its end.
async fn run_started(mut started: Option<StartedSession>) {
    while let Some(StartedSession { task, first_message, span, mut connection }) = started {
        let other = task.run(first_message).instrument(span).await;
        started = other.and_then(|OtherClient { client, first_message, identified }| {
            connection.request.client = identified;
            // Another session has other ids.
            connection.request.seed = fastrand::u64(..);
            open_connection(connection, client, Some(first_message))
        });
    }
}

/// An admitted connection, whose client may need another session than the first.
struct Connection {
    request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
    /// Signals that other connections need the memory that this client holds.
    eviction: Arc<Eviction>,
}

/// A session that is ready to run.
struct StartedSession {
    task: Box<SessionTask<ClientStream>>,
    /// Read while its protocol was detected.
    first_message: Option<Message>,
    /// Carried by every log line of the session.
    span: Span,
    connection: Box<Connection>,
}

/// Detects the client's protocol and opens its session; `None` if there is none.
async fn start_session(
    stream: RawStream,
    request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) -> Option<StartedSession> {
    let limits = snapshot.config.limits.for_key(admission.key.as_deref());
    let mut client = client_websocket(stream, &request, limits);
    let (memory, eviction) = MemoryShare::evictable(snapshot.server.memory.clone(), limits.memory_max_bytes);
    client.memory = memory;
    let mut connection = Box::new(Connection { request, snapshot, admission, eviction });
    let ConnectRequest { client: identified, path, query, peer, .. } = &connection.request;
    if !identified.waits_for_message(&connection.snapshot.config, path, query) {
        return open_connection(connection, client, None);
    }
    let first = tokio::select! {
        first = read_first_message(&mut client, identified) => first,
        _ = wait_for_drain_order(connection.snapshot.server.drain.clone()) => {
            close_unidentified(&mut client, CloseCode::Restart, "server_shutdown").await;
            return None;
        }
        () = connection.eviction.clone().wait() => {
            client.stop_reading();
            close_unidentified(&mut client, CloseCode::Again, OUT_OF_MEMORY).await;
            return None;
        }
    };
    let Ok(first_message) = first else {
        debug!(%peer, "client disconnected before its protocol was detected");
        return None;
    };
    match &first_message {
        None => connection.request.client.narrow_by_message(None),
        Some(message) => {
            let identified = connection.request.client.clone();
            connection.request.client =
                narrow_by_message(identified, message, &connection.snapshot.server).await?;
        }
    }
    open_connection(connection, client, first_message)
}

/// Opens the session of a connection's likeliest protocol; `None` if there is none.
fn open_connection(
    connection: Box<Connection>,
    mut client: WebSocket<ClientStream>,
    first_message: Option<Message>,
) -> Option<StartedSession> {
    let Connection { request, snapshot, admission, .. } = &*connection;
    let limits = snapshot.config.limits.for_key(admission.key.as_deref());
    client.set_message_max(request.client.message_max(limits));
    client.sends_binary_json = request.client.likeliest().framing == Framing::Json;
    open_on(connection, ClientEnd::Socket(SessionSocket::new(client)), first_message)
}

/// Opens the session of a connection with this client.
fn open_on(
    connection: Box<Connection>,
    client: ClientEnd<ClientStream>,
    first_message: Option<Message>,
) -> Option<StartedSession> {
    let Connection { request, snapshot, admission, eviction } = &*connection;
    let Snapshot { server, config } = snapshot;
    let limits = config.limits.for_key(admission.key.as_deref());
    let mapping = request.client.likeliest();
    let key_name = admission.key.as_ref().map(|key| key.name.clone());
    let watcher =
        request.watch_name.as_ref().and_then(|name| server.watchers.take(name, key_name.as_deref()));
    let is_traced = config.traces.is_some() || watcher.is_some();
    let opened = match mapping.is_relayed() {
        true => open_relay_session(request, config, limits, is_traced),
        false => open_session(request, snapshot, limits, is_traced),
    };
    let OpenedSession { mut bridge, upstreams, opened_unix, profile, start, rejection, tools, wish } =
        opened?;
    if client.takes_events() {
        bridge = bridge.give_events();
    }
    // A rejected connection is no session and has no id; a relay may reject its client itself.
    let profile = profile.filter(|_| !bridge.session_id().is_empty());
    let start = start.filter(|_| profile.is_some());
    // An error-level span, so that every log line of the session carries its fields.
    let (peer, trace_id) = (request.peer, request.trace_context.trace_id);
    let key = key_name.as_deref();
    let span = error_span!("session", id = bridge.session_id(), client = mapping.name, %peer, key, %trace_id);
    let start_traces = |start| start_traces(snapshot, bridge.session_id(), watcher, start);
    let traces = start.map_or_else(Vec::new, |start| span.in_scope(|| start_traces(start)));
    let session =
        RecordedSession { profile: profile.as_deref(), key: admission.key.as_deref(), opened_unix, wish };
    let (mut bridge, recording) = span.in_scope(|| start_recording(snapshot, mapping, bridge, session));
    if profile.is_none() {
        server.metrics.record_rejection(rejection.unwrap_or(RejectReason::BadRequest));
    }
    let trace_context = match &server.otlp {
        Some(otlp) => otlp.sampled_context(&request.trace_context),
        None => request.trace_context.clone(),
    };
    let spans = profile.as_ref().and_then(|profile| {
        begin_spans(&connection, bridge.session_id(), profile, &trace_context, opened_unix)
    });
    if let Some(spans) = &spans {
        bridge = bridge.tap_events(Box::new(spans.clone()));
    }
    let registration = profile
        .map(|profile| register_session(&connection, &bridge, profile, opened_unix, client.traffic(), spans));
    let context = SessionContext {
        memory: (server.memory.clone(), limits.memory_max_bytes),
        eviction: eviction.clone(),
        undecided: request.client.may_be_another().then(|| request.client.clone()),
        tells_upstream_addresses: config.tells_upstream_addresses,
        tap: config.tap.clone(),
        traces,
        recording,
        trace_context,
        registration,
        drain: server.drain.clone(),
        close_timeout: config.drain_policy.timeout,
        drain_guard: server.drain_guard.clone(),
        queue_keeper: server.queue_keeper.clone(),
        turn_judge: server.turn_judge.clone(),
        tools,
        message_threads: server.message_threads.clone(),
    };
    let task = Box::new(SessionTask::new(bridge, client, config.pool.subset(upstreams.names), context));
    Some(StartedSession { task, first_message, span, connection })
}

/// Starts the traces of a session: into a file, and to the page that watches it.
fn start_traces(
    Snapshot { server, config }: &Snapshot,
    session_id: &str,
    watcher: Option<Watcher>,
    TraceStart { opened, header }: TraceStart,
) -> Vec<SessionTrace> {
    let watched = watcher.and_then(|watcher| server.watchers.start_session(watcher, opened, header.clone()));
    let traces = config.traces.as_ref();
    let file =
        traces.map(|traces| traces.start_session(opened, session_id, header, server.drain_guard.clone()));
    file.into_iter().chain(watched).collect()
}

/// The client's connection with its size limits.
fn client_websocket(
    RawStream { io, read }: RawStream,
    request: &ConnectRequest,
    limits: ClientLimits,
) -> WebSocket<ClientStream> {
    let message_max = request.client.message_max(limits);
    let mut client = WebSocket::new(io, read, Role::Server, websocket_config(message_max.bytes));
    client.set_message_max(message_max);
    client
}

/// Narrows the protocols by the client's first message, on another thread if that is large; `None` if that panics.
async fn narrow_by_message(
    mut identified: Identified,
    first_message: &Message,
    server: &ServerContext,
) -> Option<Identified> {
    let narrow = move |message: &Message| {
        identified.narrow_by_message(Some(message));
        identified
    };
    server.message_threads.examine(first_message.clone(), narrow).await
}

/// Registers the session as running.
fn register_session(
    Connection { request, snapshot, admission, .. }: &Connection,
    bridge: &Bridge,
    profile: String,
    opened_unix: Duration,
    traffic: Arc<Traffic>,
    spans: Option<SessionSpans>,
) -> SessionRegistration {
    let server = &snapshot.server;
    let info = SessionInfo {
        id: bridge.session_id().to_owned(),
        client: request.client.likeliest().name.clone(),
        profile,
        has_conversation: bridge.has_conversation(),
        peer: request.peer,
        path: request.path.clone(),
        detected_by: request.client.by().name().to_owned(),
        key: admission.key.as_ref().map(|key| key.name.clone()),
        subject: admission.subject.clone(),
        trace_id: request.trace_context.trace_id,
        opened_unix,
    };
    let (entry, orders) = server.registry.register(info);
    let sinks = ObserverSinks {
        metrics: server.metrics.clone(),
        access_log: server.access_log.clone(),
        notifier: server.webhooks.clone().map(SessionNotifier::new),
        spans,
    };
    let observer = Observer::begin(entry.session(), traffic, sinks);
    SessionRegistration { entry, orders, observer }
}

/// Begins the spans of a session, if its trace is recorded.
fn begin_spans(
    Connection { request, snapshot, admission, .. }: &Connection,
    id: &str,
    profile: &str,
    context: &TraceContext,
    opened_unix: Duration,
) -> Option<SessionSpans> {
    let start = SessionStart {
        context,
        id,
        client: &request.client.likeliest().name,
        profile,
        peer: request.peer,
        path: &request.path,
        key: admission.key.as_ref().map(|key| &*key.name),
        opened: tokio::time::Instant::now().into_std(),
        opened_unix,
    };
    snapshot.server.otlp.as_ref()?.begin_session(&start)
}

/// The byte stream under an upgraded connection.
pub(in crate::server) struct RawStream {
    pub(in crate::server) io: ClientStream,
    /// Bytes that were read beyond the request.
    pub(in crate::server) read: Vec<u8>,
}

/// Waits for the upgrade; `None` if it fails.
pub(in crate::server) async fn raw_stream(upgraded: OnUpgrade, peer: SocketAddr) -> Option<RawStream> {
    let upgraded = match upgraded.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%peer, %error, "upgrade failed");
            return None;
        }
    };
    let parts = upgraded.downcast::<TokioIo<RequestStream>>().ok()?;
    let (io, waiting) = parts.io.into_inner().into_parts();
    Some(RawStream { io, read: [&parts.read_buf[..], &waiting].concat() })
}
