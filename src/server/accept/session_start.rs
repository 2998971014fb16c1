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
    client_signs::DetectedBy,
    protocol_detection::{self, close_unidentified},
    request_stream::RequestStream,
    session_opening::{ConnectRequest, OpenedSession, TraceStart, open_relay_session, open_session},
};
use crate::server::{
    ServerContext, ServiceConfig, Snapshot,
    access::{ClientLimits, keys::ApiKey, quota::QuotaTicket},
    client_port::PortEnd,
    memory::{Eviction, MemoryShare},
    playground::watchers::Watcher,
    registry::{
        SessionInfo,
        observer::{Observer, ObserverSinks},
    },
    session_task::{
        ClientEnd, FindProtocol, OtherClient, SessionContext, SessionRegistration, SessionTask,
        wait_for_drain_order,
    },
    trace_files::SessionTrace,
    websocket::{
        MessageMax, WebSocket,
        session_socket::{OUT_OF_MEMORY, SessionSocket, websocket_config},
        stream::ClientStream,
    },
};
use crate::{
    bridge::Bridge,
    client::Codec,
    net::Traffic,
    spelling::{ClientMapping, client::Framing},
    telemetry::metrics::RejectReason,
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
    pub(super) fn new(
        key: Option<Arc<ApiKey>>,
        subject: Option<String>,
        session_slot: OwnedSemaphorePermit,
        quota_tickets: Vec<QuotaTicket>,
    ) -> Self {
        Self { key, subject, _session_slot: session_slot, _quota_tickets: quota_tickets }
    }
}

/// Serves a session until its end.
pub(crate) async fn run_session(
    upgraded: OnUpgrade,
    request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) {
    let Some(stream) = raw_stream(upgraded, request.peer).await else { return };
    // Boxed: starting takes twice the memory of running, and the future keeps what its largest part needs.
    let started = Box::pin(start_session(stream, request, snapshot, admission)).await;
    run_started(started).await;
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
    port.message_max_bytes = message_max(&request.candidates, limits).bytes;
    let connection = Connection { request, snapshot, admission, eviction };
    run_started(open_on(connection, ClientEnd::Port(port), None)).await;
}

/// A client without a handshake that has sent its first message.
pub(super) struct GreetedClient {
    pub(super) client: WebSocket<ClientStream>,
    /// Signals that other connections need the memory that this client holds.
    pub(super) eviction: Arc<Eviction>,
    pub(super) first_message: Message,
}

/// Serves the session of such a client until its end.
pub(super) async fn run_greeted_session(
    GreetedClient { client, eviction, first_message }: GreetedClient,
    mut request: ConnectRequest,
    snapshot: Snapshot,
    admission: Admission,
) {
    if request.candidates.len() > 1
        && narrow_by_message(&mut request, &first_message, &snapshot.server).await.is_err()
    {
        return;
    }
    let connection = Connection { request, snapshot, admission, eviction };
    run_started(open_connection(connection, client, Some(first_message))).await;
}

/// Runs sessions on a connection until its end.
async fn run_started(mut started: Option<StartedSession>) {
    while let Some(StartedSession { task, first_message, span, mut connection }) = started {
        let other = task.run(first_message).instrument(span).await;
        started = other.and_then(|OtherClient { client, first_message, protocol }| {
            connection.request.candidates = vec![protocol];
            connection.request.detected_by = DetectedBy::FirstMessage;
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
    connection: Connection,
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
    let mut connection = Connection { request, snapshot, admission, eviction };
    if is_announced_at_once(&connection.request, &connection.snapshot.config) {
        return open_connection(connection, client, None);
    }
    let detected = tokio::select! {
        detected = detect_protocol(&mut client, &mut connection.request, &connection.snapshot) => detected,
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
    open_connection(connection, client, detected.ok()?)
}

/// True if the session of the likeliest protocol is opened before the client's first message, because its clients wait for
/// that. A request with a sign of another protocol, or of a client that may be relayed, is no such case.
fn is_announced_at_once(request: &ConnectRequest, config: &ServiceConfig) -> bool {
    let is_open = request.candidates.len() > 1 && request.detected_by == DetectedBy::Default;
    let has_route = |client: &Arc<ClientMapping>| {
        let model = Codec::new(client.clone(), 0.0).decode_query(&request.query).model;
        model.is_some_and(|model| {
            !model.is_empty() && config.routes.find(&request.path, client, &model).is_some()
        })
    };
    is_open
        && !request.candidates.iter().any(|client| client.is_relayed())
        && request.candidates.first().is_some_and(has_route)
}

/// Finds the client's protocol by its first message, if that is another one than the likeliest.
fn find_other_protocol(candidates: &[Arc<ClientMapping>]) -> Option<FindProtocol> {
    let candidates = candidates.to_vec();
    let is_certain = candidates.len() < 2 || candidates.iter().any(|client| client.is_relayed());
    let find = move |message: &Message| {
        let (found, is_known) = protocol_detection::candidates_for_message(&candidates, Some(message));
        let other = found.into_iter().next().filter(|_| is_known)?;
        (!candidates.first().is_some_and(|likeliest| Arc::ptr_eq(likeliest, &other))).then_some(other)
    };
    (!is_certain).then(|| Box::new(find) as FindProtocol)
}

/// Opens the session of a connection's likeliest protocol; `None` if there is none.
fn open_connection(
    connection: Connection,
    mut client: WebSocket<ClientStream>,
    first_message: Option<Message>,
) -> Option<StartedSession> {
    let Connection { request, snapshot, admission, .. } = &connection;
    let limits = snapshot.config.limits.for_key(admission.key.as_deref());
    client.set_message_max(message_max(&request.candidates, limits));
    client.sends_binary_json = request.candidates.first()?.framing == Framing::Json;
    open_on(connection, ClientEnd::Socket(SessionSocket::new(client)), first_message)
}

/// Opens the session of a connection with this client.
fn open_on(
    connection: Connection,
    client: ClientEnd<ClientStream>,
    first_message: Option<Message>,
) -> Option<StartedSession> {
    let Connection { request, snapshot, admission, eviction } = &connection;
    let Snapshot { server, config } = snapshot;
    let limits = config.limits.for_key(admission.key.as_deref());
    let mapping = request.candidates.first()?;
    let key_name = admission.key.as_ref().map(|key| key.name.clone());
    let watcher =
        request.watch_name.as_ref().and_then(|name| server.watchers.take(name, key_name.as_deref()));
    let is_traced = config.traces.is_some() || watcher.is_some();
    let opened = match mapping.is_relayed() {
        true => open_relay_session(request, config, limits, is_traced),
        false => open_session(request, snapshot, limits, is_traced),
    };
    let OpenedSession { mut bridge, upstreams, opened_unix, profile, start, rejection } = opened?;
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
    let traces = start.map_or_else(Vec::new, |start| {
        let _in = span.enter();
        start_traces(snapshot, bridge.session_id(), watcher, start)
    });
    if profile.is_none() {
        server.metrics.record_rejection(rejection.unwrap_or(RejectReason::BadRequest));
    }
    let registration =
        profile.map(|profile| register_session(&connection, &bridge, profile, opened_unix, client.traffic()));
    let context = SessionContext {
        memory: (server.memory.clone(), limits.memory_max_bytes),
        eviction: eviction.clone(),
        find_protocol: find_other_protocol(&request.candidates),
        tells_upstream_addresses: config.tells_upstream_addresses,
        tap: config.tap.clone(),
        traces,
        trace_context: request.trace_context.clone(),
        registration,
        drain: server.drain.clone(),
        close_timeout: config.drain_policy.timeout,
        drain_guard: server.drain_guard.clone(),
        queue_keeper: server.queue_keeper.clone(),
        turn_judge: server.turn_judge.clone(),
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
    let message_max = message_max(&request.candidates, limits);
    let mut client = WebSocket::new(io, read, Role::Server, websocket_config(message_max.bytes));
    client.set_message_max(message_max);
    client
}

/// The longest messages that the client may send. Before its protocol is known, these are the limits of the likeliest one and
/// of those that are relayed.
pub(super) fn message_max(candidates: &[Arc<ClientMapping>], limits: ClientLimits) -> MessageMax {
    let likeliest = candidates.iter().find(|client| !client.is_relayed());
    let possible = || candidates.iter().filter(|client| client.is_relayed()).chain(likeliest);
    let bytes = possible().map(|client| client.audio_in.message_max_bytes).max();
    let binary_bytes = possible().map(|client| client.binary_max_bytes()).max();
    MessageMax {
        bytes: bytes.into_iter().chain(limits.message_max_bytes).min().unwrap_or_default(),
        binary_bytes: binary_bytes.unwrap_or_default(),
    }
}

/// Narrows the candidates by the client's first message where the protocol matters, and returns that message. Fails
/// if the client disconnects first.
async fn detect_protocol(
    client: &mut WebSocket<ClientStream>,
    request: &mut ConnectRequest,
    Snapshot { server, config }: &Snapshot,
) -> Result<Option<Message>, ()> {
    if has_single_route(request, config) {
        return Ok(None);
    }
    let Ok(first_message) = protocol_detection::read_first_message(client, &request.candidates).await else {
        debug!(peer = %request.peer, "client disconnected before its protocol was detected");
        return Err(());
    };
    match &first_message {
        None => {
            request.candidates = protocol_detection::candidates_for_message(&request.candidates, None).0;
        }
        Some(message) => narrow_by_message(request, message, server).await?,
    }
    Ok(first_message)
}

/// Narrows the candidates by the client's first message.
async fn narrow_by_message(
    request: &mut ConnectRequest,
    first_message: &Message,
    server: &ServerContext,
) -> Result<(), ()> {
    let candidates = request.candidates.clone();
    let find =
        move |message: &Message| protocol_detection::candidates_for_message(&candidates, Some(message));
    let found = server.message_threads.examine(first_message.clone(), find).await;
    let (candidates, is_known) = found.ok_or(())?;
    request.candidates = candidates;
    if is_known {
        request.detected_by = DetectedBy::FirstMessage;
    }
    Ok(())
}

/// Registers the session as running.
fn register_session(
    Connection { request, snapshot, admission, .. }: &Connection,
    bridge: &Bridge,
    profile: String,
    opened_unix: Duration,
    traffic: Arc<Traffic>,
) -> SessionRegistration {
    let server = &snapshot.server;
    let info = SessionInfo {
        id: bridge.session_id().to_owned(),
        client: request.candidates.first().map(|client| client.name.clone()).unwrap_or_default(),
        profile,
        has_conversation: bridge.has_conversation(),
        peer: request.peer,
        path: request.path.clone(),
        detected_by: request.detected_by.to_string(),
        key: admission.key.as_ref().map(|key| key.name.clone()),
        subject: admission.subject.clone(),
        trace_id: request.trace_context.trace_id,
        opened_unix,
    };
    let (entry, orders) = server.registry.register(info);
    let sinks = ObserverSinks { metrics: server.metrics.clone(), access_log: server.access_log.clone() };
    let observer = Observer::begin(entry.session(), traffic, sinks);
    SessionRegistration { entry, orders, observer }
}

/// True if one session can serve all candidate protocols: there is one candidate, or all are relayed by the same
/// route, which tells them apart later.
fn has_single_route(request: &ConnectRequest, config: &ServiceConfig) -> bool {
    let mut routes = request.candidates.iter().map(|client| {
        let route = config.routes.find(&request.path, client, "").filter(|_| client.is_relayed());
        route.map(std::ptr::from_ref)
    });
    let first = routes.next();
    request.candidates.len() < 2 || routes.all(|route| route.is_some() && Some(route) == first)
}

/// The byte stream under an upgraded connection.
pub(super) struct RawStream {
    pub(super) io: ClientStream,
    /// Bytes that were read beyond the request.
    pub(super) read: Vec<u8>,
}

/// Waits for the upgrade; `None` if it fails.
pub(super) async fn raw_stream(upgraded: OnUpgrade, peer: SocketAddr) -> Option<RawStream> {
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
