//! A client's connection up to its session: HTTP, routes, the upgrade.
//!
//! What is refused before the upgrade is refused in HTTP; what the protocol refuses itself, such as a missing model, is
//! refused in its own words after it (field notes macaw.md §1.2).

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::OwnedSemaphorePermit};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{handshake::server::create_response_with_body, protocol::Role},
};
use tracing::{Instrument as _, debug, error_span, info, warn};

use super::{
    Shared,
    drive::{Driver, ordered},
    socket::{Metered, limits},
};
use crate::{
    bridge::Bridge,
    downstream::Codec,
    error::{Error, ErrorKind},
    mapping::{ClientMapping, Profile, upstream::Mode},
    net::Counted,
    session::{RelaySetup, Setup},
};

/// A request's head must be complete within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
/// Read buffer of a client socket: frames of microphone audio are small, and there are many sockets (libraries.md).
const READ_BUFFER_BYTES: usize = 4 * 1024;
/// Room for a head; hyper's least.
const HEAD_MAX_BYTES: usize = 8 * 1024;

type Answer = Response<Full<Bytes>>;

/// Serves one connection on a task of its own.
pub(super) fn spawn(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    // Small frames are to leave at once; a socket that cannot do it still works.
    let _ = stream.set_nodelay(true);
    tokio::spawn(async move {
        let stop = ordered(shared.drain.clone());
        let answer = service_fn(move |request| {
            let answer = answer(request, peer, &shared);
            async move { Ok::<_, Infallible>(answer) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_WITHIN)
            .max_buf_size(HEAD_MAX_BYTES)
            .serve_connection(TokioIo::new(stream), answer)
            .with_upgrades();
        tokio::pin!(connection);
        let served = tokio::select! {
            served = &mut connection => served,
            () = stop => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            debug!(%peer, %error, "connection without a session");
        }
    });
}

fn answer(mut request: Request<Incoming>, peer: SocketAddr, shared: &Arc<Shared>) -> Answer {
    let path = request.uri().path();
    let Some(mapping) = shared.service.library.client_at(path).cloned() else {
        let known: Vec<&str> = shared
            .service
            .library
            .clients()
            .flat_map(|client| client.paths.iter().map(String::as_str))
            .collect();
        let message =
            format!("There is nothing at {path}; WebSocket clients are served at {}", known.join(", "));
        return refuse(StatusCode::NOT_FOUND, "not_found", &message);
    };
    if request.method() != Method::GET {
        let mut answer =
            refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET, to open a WebSocket");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if !upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        let mut answer = refuse(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            &format!("This endpoint requires a WebSocket connection: ws://<host>{path}?model=<name>"),
        );
        answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return answer;
    }
    let query = request.uri().query().unwrap_or_default().to_owned();
    let relayed = relayed(&shared.service, path, &query);
    if let Some(Err(status)) = relayed {
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
        return refuse(status, "no_such_mode", "There is no such mode");
    }
    if *shared.drain.borrow() {
        return busy("voxbridge is stopping");
    }
    let Ok(permit) = shared.sessions.clone().try_acquire_owned() else {
        warn!(%peer, limit = shared.service.sessions_max, "refused: too many sessions");
        return busy("Too many sessions");
    };
    match create_response_with_body(&request, Full::default) {
        Ok(answer) => {
            let upgraded = hyper::upgrade::on(&mut request);
            let shared = shared.clone();
            match relayed {
                Some(Ok(relayed)) => tokio::spawn(relay(upgraded, relayed, peer, shared, permit)),
                _ => tokio::spawn(session(upgraded, mapping, query, peer, shared, permit)),
            };
            answer
        }
        Err(error) => {
            let mut answer = refuse(StatusCode::BAD_REQUEST, "bad_handshake", &error.to_string());
            // RFC 6455 §4.4: which version would have been right.
            answer.headers_mut().insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            answer
        }
    }
}

/// A client's session, from the upgrade to its end.
async fn session(
    upgraded: hyper::upgrade::OnUpgrade,
    mapping: Arc<ClientMapping>,
    query: String,
    peer: SocketAddr,
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
) {
    let Some((stream, read)) = raw_stream(upgraded, peer).await else { return };
    let limits = limits(READ_BUFFER_BYTES, mapping.audio_in.message_max_bytes);
    let (stream, traffic) = Counted::new(stream);
    let stream = WebSocketStream::from_partially_read(stream, read, Role::Server, Some(limits)).await;
    let client = Metered { stream, traffic };
    let bridge = open(mapping.clone(), &query, &shared);
    // Of the highest level, so that whatever is logged says which session it is about.
    let span = error_span!("session", id = bridge.session_id(), client = mapping.name, %peer);
    let service = &shared.service;
    let (pool, tap) = (service.pool.clone(), service.tap.clone());
    let driver = Driver::new(bridge, client, pool, tap, shared.drain.clone(), shared.alive.clone());
    drop(shared);
    driver.run().instrument(span).await;
    drop(permit);
}

/// The protocols of relayed clients that a connection may be of, its query, and the profile; or the status that refuses it.
type Relayed = (Vec<Arc<ClientMapping>>, String, Arc<Profile>);

fn relayed(service: &super::Service, path: &str, query: &str) -> Option<Result<Relayed, u16>> {
    let candidates = service.library.relayed_at(path, query);
    let mode = candidates.first()?.relay.as_ref()?.mode(query);
    let profile = service.library.profile("relay").ok()?;
    Some(mode.map(|_| (candidates, query.to_owned(), profile)))
}

/// A relayed client's session, from the upgrade to its end.
async fn relay(
    upgraded: hyper::upgrade::OnUpgrade,
    (candidates, query, profile): Relayed,
    peer: SocketAddr,
    shared: Arc<Shared>,
    permit: OwnedSemaphorePermit,
) {
    let Some((stream, read)) = raw_stream(upgraded, peer).await else { return };
    let most = candidates.iter().map(|client| client.audio_in.message_max_bytes).max().unwrap_or_default();
    let (stream, traffic) = Counted::new(stream);
    let limits = limits(READ_BUFFER_BYTES, most);
    let stream = WebSocketStream::from_partially_read(stream, read, Role::Server, Some(limits)).await;
    let service = &shared.service;
    let now = tokio::time::Instant::now().into_std();
    let (idle_ms, seed) = (service.idle_ms, fastrand::u64(..));
    let setup = RelaySetup { profile, idle_ms, unix_s: unix_seconds(), seed };
    let bridge = Bridge::open_relay(now, &candidates, &query, service.dialect.clone(), setup);
    let span = error_span!("session", id = bridge.session_id(), client = "relay", %peer);
    let (pool, tap) = (service.pool.clone(), service.tap.clone());
    let client = Metered { stream, traffic };
    let driver = Driver::new(bridge, client, pool, tap, shared.drain.clone(), shared.alive.clone());
    drop(shared);
    driver.run().instrument(span).await;
    drop(permit);
}

/// The TCP stream under an upgraded connection, and what was read of it beyond the head.
async fn raw_stream(upgraded: hyper::upgrade::OnUpgrade, peer: SocketAddr) -> Option<(TcpStream, Vec<u8>)> {
    let upgraded = match upgraded.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%peer, %error, "the upgrade did not happen");
            return None;
        }
    };
    let parts = upgraded.downcast::<TokioIo<TcpStream>>().ok()?;
    Some((parts.io.into_inner(), parts.read_buf.to_vec()))
}

/// The bridge for a connection; one that says why not, when there is nobody to serve it.
fn open(mapping: Arc<ClientMapping>, query: &str, shared: &Shared) -> Bridge {
    let service = &shared.service;
    let now = tokio::time::Instant::now().into_std();
    let mut codec = Codec::new(mapping.clone(), unix_seconds());
    let connect = codec.connect(query);
    let found = match &connect.model {
        None => Err(Error::new(ErrorKind::NoModel, "")),
        Some(model) => service
            .routes
            .find(&mapping.name, model)
            .filter(|profile| !model.is_empty() && !profile.relays())
            .ok_or_else(|| Error::new(ErrorKind::UnknownModel, model.clone())),
    };
    let profile = match found {
        Ok(profile) => profile.clone(),
        Err(error) => {
            info!(%error, "refused");
            return Bridge::refuse(now, codec, service.dialect.clone(), &error);
        }
    };
    let mut audio_in = mapping.audio_in.clone();
    audio_in.idle_ms = service.idle_ms.unwrap_or(audio_in.idle_ms);
    let setup = Setup {
        profile,
        audio_in,
        audio_out: mapping.audio_out.clone(),
        audio_max_ms: service.dialect.audio_max_ms,
        duplex: service.dialect.duplex.clone(),
        chat: service.dialect.modes.contains_key(&Mode::Chat),
        voice_encodings: service.dialect.voice_encodings.clone(),
        voices: service.voices.clone(),
        seed: fastrand::u64(..),
    };
    Bridge::open(now, codec, connect, service.dialect.clone(), setup)
}

fn busy(message: &str) -> Answer {
    let mut answer = refuse(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", message);
    answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    answer
}

/// An HTTP error in the shape of the Macaw server's (field notes macaw.md §6), understandable to any client.
fn refuse(status: StatusCode, code: &str, message: &str) -> Answer {
    let body =
        serde_json::json!({"error": {"message": message, "type": "invalid_request_error", "code": code}});
    let mut answer = Response::new(Full::from(body.to_string()));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

#[expect(clippy::disallowed_methods, reason = "the one place where a session learns the wall clock")]
fn unix_seconds() -> f64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0.0, |since| since.as_secs_f64())
}
