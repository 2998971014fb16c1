//! Listens for clients: TLS and HTTP, up to what each request is about.
//!
//! - [`bare_tcp`]: connections without a handshake
//! - [`failure_log`]: the log of connections that could not be accepted
//! - [`sideband`]: second connections to calls by WebRTC

pub(super) mod bare_tcp;
pub(super) mod failure_log;
mod sideband;

use std::{
    borrow::Cow,
    convert::Infallible,
    error::Error,
    io, iter,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http_body_util::Either;
use hyper::{
    Request, Response, StatusCode, Uri,
    body::Body as _,
    header::{CONNECTION, HeaderValue},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, sync::watch, time::timeout};
use tracing::debug;

use super::{
    ServerContext, Snapshot,
    accept::{
        WrittenPath,
        admission::{ClientPeer, admit},
        host,
        http_error::{HttpError, HttpResult},
        request_body::{ReceivedRequest, RequestBody},
        request_stream::{BodyFraming, Gate, RequestStream, RequestTimeouts},
    },
    access::handshakes::ServedRequests,
    pages::{capabilities, device_setup, playground},
    rest::{self, Endpoint, ServedRequest, secret_request::SecretRequest},
    session_task::wait_for_drain_order,
    webrtc::Calls,
    websocket::{
        pausable_stream::PausableStream,
        stream::{ClientStream, set_options},
    },
};
use crate::{
    spelling::{ClientMapping, url_path::canonical_path},
    telemetry::metrics::RejectReason,
};

/// Size limit of a request head; hyper allows no smaller one.
const HEAD_MAX_BYTES: usize = 8 * 1024;

/// Time to answer connections without a session when the server drains.
const PENDING_UPGRADE_GRACE: Duration = Duration::from_secs(1);

/// Serves a connection in a task of its own on a worker thread, where the stream is registered anew.
pub(super) fn spawn_connection(stream: TcpStream, peer: SocketAddr, server: Arc<ServerContext>) {
    set_options(&stream);
    let stream = stream.into_std();
    let timeouts = RequestTimeouts::new(server.config().limits.handshake_timeout);
    let progress = Progress::default();
    let served = progress.served.clone();
    let until_upgraded = {
        let (server, metrics) = (server.clone(), server.metrics.clone());
        let drain = server.drain.clone();
        let requests = served.subscribe();
        let answered = progress.answered.clone();
        let idle_limit = {
            let answered = answered.clone();
            move || timeouts.head + if answered.load(Relaxed) { timeouts.between } else { Duration::ZERO }
        };
        async move {
            let ended = tokio::select! {
                ended = serve_connection(stream, peer, server, progress) => ended,
                () = wait_until_idle_for(idle_limit, requests.clone()) => Err(io::ErrorKind::TimedOut.into()),
                // Stalled strangers must not delay the shutdown.
                () = wait_for_grace(drain, requests.clone()) => return,
            };
            let Err(error) = ended else { return };
            debug!(%peer, %error, "connection ended before the upgrade");
            // A keep-alive connection that was answered is no timeout.
            if is_timeout(&error) && !answered.load(Relaxed) {
                metrics.record_rejection(RejectReason::Timeout);
            }
        }
    };
    let task = server.workers.spawn(until_upgraded);
    server.add_handshake(task, served, peer);
}

/// What a connection was served so far. Clones share it.
#[derive(Clone, Default)]
struct Progress {
    answered: Arc<AtomicBool>,
    served: ServedRequests,
}

/// A connection until its upgrade, as its requests see it.
struct HttpConnection {
    peer: ClientPeer,
    server: Arc<ServerContext>,
    progress: Progress,
    gate: Gate,
}

/// Completes when no request has come or been served for so long.
async fn wait_until_idle_for(limit: impl Fn() -> Duration, mut requests: watch::Receiver<usize>) {
    // The sender lives as long as the connection.
    while requests.wait_for(|served| *served == 0).await.is_ok() {
        if timeout(limit(), requests.changed()).await.is_err() {
            return;
        }
    }
}

/// Completes when the server drains and the connection has had its time to be answered. A request that is being served ends
/// with its session; the end of its answer is still to be written then.
async fn wait_for_grace(drain: watch::Receiver<Option<Duration>>, requests: watch::Receiver<usize>) {
    wait_for_drain_order(drain).await;
    wait_until_idle_for(|| PENDING_UPGRADE_GRACE, requests).await;
}

/// Serves one connection until its upgrade or its end. The caller bounds the time.
async fn serve_connection(
    stream: io::Result<std::net::TcpStream>,
    address: SocketAddr,
    server: Arc<ServerContext>,
    progress: Progress,
) -> io::Result<()> {
    let config = server.config();
    let (timeouts, tls) = (RequestTimeouts::new(config.limits.handshake_timeout), config.tls.clone());
    drop(config);
    let stream = TcpStream::from_std(stream?)?;
    let stream = match tls {
        Some(tls) => {
            let sent_bytes = stream.peek(&mut [0]).await? > 0;
            let accepted = tls.accept(stream).await;
            // A connection that closes without a byte is a port probe, not a failed handshake.
            if sent_bytes && accepted.is_err() {
                server.metrics.record_rejection(RejectReason::Tls);
            }
            ClientStream::Tls(Box::new(accepted?))
        }
        None => ClientStream::Plain(PausableStream::from(stream)),
    };
    let peer = ClientPeer { address, certificate_names: stream.certificate_names() };
    let stop = wait_for_drain_order(server.drain.clone());
    let gate = Gate::default();
    let stream = RequestStream::new(stream, gate.clone(), timeouts);
    let http_connection = Arc::new(HttpConnection { peer, server, progress, gate });
    let http_service = service_fn(move |request| {
        let is_first = !http_connection.progress.answered.swap(true, Relaxed);
        // The connection is not idle.
        http_connection.progress.served.send_modify(|_| ());
        let http_connection = http_connection.clone();
        async move {
            // The library takes requests that follow each other in one poll.
            if !is_first {
                tokio::task::yield_now().await;
            }
            Ok::<_, Infallible>(answer_request(RequestBody::of(request), &http_connection).await)
        }
    });
    let connection = http1::Builder::new()
        // The stream has a timeout for heads, and another one between requests.
        .header_read_timeout(None)
        .max_buf_size(HEAD_MAX_BYTES)
        .serve_connection(TokioIo::new(stream), http_service)
        .with_upgrades();
    tokio::pin!(connection);
    let served = tokio::select! {
        served = &mut connection => served,
        _ = stop => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    served.map_err(io::Error::other)
}

/// What a request is about.
enum Target {
    Rest(Endpoint),
    Playground,
    /// The page with this text.
    Capabilities(String),
    /// The page that tells clients of this protocol where to connect.
    Setup(Arc<ClientMapping>),
    Secret(SecretRequest),
    /// A second connection to the call with this id.
    Sideband(Calls, String),
    /// A session, or nothing that is served.
    Session,
}

impl Target {
    fn of(request: &ReceivedRequest, Snapshot { server, config }: &Snapshot) -> Self {
        let of_mapping = || Endpoint::of_mapping(request, config);
        let endpoint = Endpoint::of(request.method(), request.uri().path()).or_else(of_mapping);
        if let Some(endpoint) = endpoint.filter(|endpoint| server.calls.is_some() || !endpoint.is_call()) {
            return Self::Rest(endpoint);
        }
        if config.playground && playground::is_addressed_by(request) {
            return Self::Playground;
        }
        if let Some(page) = capabilities::page(request, config) {
            return Self::Capabilities(page);
        }
        if let Some(client) = device_setup::protocol(request, config) {
            return Self::Setup(client);
        }
        if let Some(secret_request) = SecretRequest::of(request, config) {
            return Self::Secret(secret_request);
        }
        let sideband = server.calls.as_ref().zip(sideband::call_id(request));
        sideband.map_or(Self::Session, |(calls, id)| Self::Sideband(calls.clone(), id))
    }
}

/// Upgrades a request to a session, serves a REST request or one for a client secret, or answers with an HTTP error.
async fn answer_request(
    mut request: ReceivedRequest,
    HttpConnection { peer, server, progress, gate }: &HttpConnection,
) -> Response<rest::Body> {
    let answering = gate.answer(BodyFraming::new(request.body().size_hint().exact()));
    if let Err(error) = check_head(&request, gate) {
        server.metrics.record_rejection(error.reason);
        let mut response = error.response.map(Either::Left);
        // The next request may not begin where hyper found it.
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        return response;
    }
    find_at_canonical_path(&mut request);
    let snapshot = server.snapshot();
    let mut page = None;
    let answered = match Target::of(&request, &snapshot) {
        Target::Rest(endpoint) => {
            let served = ServedRequest::begin(&progress.served, answering);
            return rest::answer(endpoint, request, peer, &snapshot, served).await;
        }
        Target::Playground => playground::answer(request, peer, &snapshot),
        Target::Capabilities(page) => capabilities::answer(page, &request, peer, &snapshot),
        Target::Setup(client) => device_setup::answer(&client, request, peer, &snapshot).await,
        Target::Secret(secret_request) => {
            page = rest::allowed_page(&snapshot.config, request.headers());
            secret_request.answer(request, peer, &snapshot).await
        }
        Target::Sideband(calls, id) => sideband::join(request, &calls, &id, peer, &snapshot).await,
        Target::Session => admit(request, peer, snapshot),
    };
    let mut response = answered.unwrap_or_else(|error| {
        server.metrics.record_rejection(error.reason);
        error.response
    });
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        gate.upgrade();
    }
    rest::let_page_read(response.headers_mut(), page);
    response.map(Either::Left)
}

/// Serves a request at its canonical path. The files of the playground have relative links, for which a slash at the end counts.
fn find_at_canonical_path<B>(request: &mut Request<B>) {
    let Cow::Owned(path) = canonical_path(request.uri().path()) else { return };
    if playground::is_addressed_by(request) {
        return;
    }
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = request.uri().clone().into_parts();
    parts.path_and_query = format!("{path}{query}").parse().ok();
    let written = WrittenPath(request.uri().path().to_owned());
    if let Ok(uri) = Uri::from_parts(parts) {
        *request.uri_mut() = uri;
        request.extensions_mut().insert(written);
    }
}

/// Rejects heads that a proxy in front may have read differently (RFC 9112 §2.2, §3.2).
fn check_head(request: &ReceivedRequest, gate: &Gate) -> HttpResult<()> {
    if gate.has_bare_lf() {
        return Err(HttpError::bad_request("A line of the request ends without CR; lines end with CR LF"));
    }
    host::check_host_header(request.headers())
}

/// True if the client sent no complete head in time.
fn is_timeout(error: &io::Error) -> bool {
    let first: &(dyn Error + 'static) = error;
    let sources = iter::successors(Some(first), |&error| error.source());
    let mut errors = sources.filter_map(|error| error.downcast_ref::<io::Error>());
    errors.any(|error| error.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answer_that_ends_during_a_drain_has_time_to_be_written() {
        let drain = watch::channel(Some(Duration::from_secs(60))).1;
        for answered_after in [0, 500, 10_000].map(Duration::from_millis) {
            let served = ServedRequests::default();
            served.send_replace(usize::from(!answered_after.is_zero()));
            let answered = async {
                sleep(answered_after).await;
                served.send_replace(0);
            };
            let start = Instant::now();
            tokio::join!(wait_for_grace(drain.clone(), served.subscribe()), answered);
            let left = start.elapsed() - answered_after;
            let late = left.saturating_sub(PENDING_UPGRADE_GRACE);
            assert!(left >= PENDING_UPGRADE_GRACE && late < Duration::from_millis(10), "{left:?}");
        }
    }
}
