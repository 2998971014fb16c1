//! A client's connection up to its session: HTTP and the upgrade.
//!
//! What is refused before the upgrade is refused in HTTP; what the protocol refuses itself, such as a missing model, is
//! refused in its own words after it (field notes macaw.md §1.2).

use std::{collections::BTreeSet, convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::Incoming,
    header::{
        ALLOW, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_PROTOCOL,
        SEC_WEBSOCKET_VERSION, UPGRADE,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tracing::{debug, warn};

use super::{
    Service, Shared,
    drive::ordered,
    open::{Visit, session},
    recognise::{self, Nobody},
};
use crate::mapping::ClientMapping;

/// A request's head must be complete within this time.
const HEAD_WITHIN: Duration = Duration::from_secs(10);
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
            _ = stop => {
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
    let service = shared.service();
    let path = request.uri().path();
    let query = request.uri().query().unwrap_or_default();
    let candidates = match recognise::by_request(&service, path, query) {
        Ok(candidates) => candidates,
        Err(nobody) => return for_nobody(&service, path, &nobody),
    };
    if request.method() != Method::GET {
        let mut answer =
            refuse(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "Only GET, to open a WebSocket");
        answer.headers_mut().insert(ALLOW, HeaderValue::from_static("GET"));
        return answer;
    }
    let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if !upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        let model = candidates.iter().find_map(|client| client.model_parameter());
        let example = model.map_or(String::new(), |model| format!("?{model}=<name>"));
        let mut answer = refuse(
            StatusCode::UPGRADE_REQUIRED,
            "upgrade_required",
            &format!("This endpoint requires a WebSocket connection: ws://<host>{path}{example}"),
        );
        answer.headers_mut().insert(UPGRADE, HeaderValue::from_static("websocket"));
        return answer;
    }
    if shared.life.is_leaving() {
        return busy("voxbridge is stopping");
    }
    let Ok(permit) = shared.sessions.clone().try_acquire_owned() else {
        warn!(%peer, limit = service.sessions_max, "refused: too many sessions");
        return busy("Too many sessions");
    };
    match create_response_with_body(&request, Full::default) {
        Ok(mut answer) => {
            let agreed = candidates.iter().find_map(|mapping| subprotocol(request.headers(), mapping));
            answer.headers_mut().extend(agreed.map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
            let visit = Visit { path: path.to_owned(), query: query.to_owned(), peer, candidates };
            let upgraded = hyper::upgrade::on(&mut request);
            tokio::spawn(session(upgraded, visit, (shared.clone(), service), permit));
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

/// Why not, before anything is upgraded: the real gateway refuses unknown modes there, too.
fn for_nobody(service: &Service, path: &str, nobody: &Nobody) -> Answer {
    match nobody {
        Nobody::NotFound => {
            let known: BTreeSet<_> = service.library.clients().flat_map(|client| &client.paths).collect();
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("There is nothing at {path}; WebSocket clients are served at {known}");
            refuse(StatusCode::NOT_FOUND, "not_found", &message)
        }
        Nobody::NoSuchMode(status) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::FORBIDDEN);
            refuse(status, "no_such_mode", "There is no such mode")
        }
        Nobody::NoRoute(client) => {
            let message =
                format!("No route leads {client} clients anywhere; one is needed whose profile serves them");
            refuse(StatusCode::FORBIDDEN, "no_route", &message)
        }
    }
}

/// The first subprotocol a client offers that the protocol knows: browsers fail a connection that agrees to none of
/// theirs (RFC 6455 §4.1).
fn subprotocol(offered: &HeaderMap, mapping: &ClientMapping) -> Option<HeaderValue> {
    let lines = offered.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',')).map(str::trim);
    let agreed = names.find_map(|name| mapping.subprotocols.iter().find(|known| *known == name))?;
    HeaderValue::from_str(agreed).ok()
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
