//! Requests for the playground: its files, its settings, and the messages of the session that it opened.

use bytes::Bytes;
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    header::{
        ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION, ORIGIN,
        REFERRER_POLICY, SEC_WEBSOCKET_PROTOCOL, UPGRADE, X_CONTENT_TYPE_OPTIONS,
    },
};

use crate::server::accept::{
    admission::{Caller, ClientPeer, spawn_session},
    host::{check_playground_host, host},
    http_error::{HttpError, HttpResponse, HttpResult, answer_with},
    request_body::ReceivedRequest,
    upgrade::handshake_response,
};
use crate::{
    server::{
        Snapshot,
        access::{credential::SUBPROTOCOL, has_own_subprotocol},
        playground::{PATH, files, settings, wires},
    },
    telemetry::metrics::RejectReason,
};

/// Content-Security-Policy of the page: it loads only its own files, and connects only to this server.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; \
     media-src 'self' blob:; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Headers of every file.
const HEADERS: [(HeaderName, &str); 7] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (REFERRER_POLICY, "no-referrer"),
    (CACHE_CONTROL, "no-cache"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(self), microphone=(self)"),
];

/// Lengths of the name under which a page watches a session: it must not be guessable.
const WATCH_NAME_CHARS: std::ops::RangeInclusive<usize> = 32..=64;

/// True for requests of the playground: its paths, and a browser at `/`, where some protocols have their WebSocket.
pub(in crate::server) fn is_addressed_by<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    let is_own = path.strip_prefix(PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    is_own || path == "/" && request.method() == Method::GET && !request.headers().contains_key(UPGRADE)
}

/// Answers a request for the playground.
pub(in crate::server) fn answer(
    request: ReceivedRequest,
    peer: &ClientPeer,
    snapshot: &Snapshot,
) -> HttpResult<HttpResponse> {
    let Snapshot { server, config } = snapshot;
    check_playground_host(config, request.headers())?;
    if request.method() != Method::GET {
        let (reason, status) = (RejectReason::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED);
        let message = "The playground only answers GET";
        return Err(HttpError::new(reason, status, "method_not_allowed", message).with_header(ALLOW, "GET"));
    }
    let Some(path) = request.uri().path().strip_prefix(PATH) else {
        // The playground may be turned off later.
        return Ok(redirect(StatusCode::TEMPORARY_REDIRECT, PATH.trim_start_matches('/')));
    };
    match path {
        "" => file("index.html"),
        // The page's links are relative to a path without a slash at its end.
        "/" => Ok(redirect(StatusCode::PERMANENT_REDIRECT, "../playground")),
        "/settings" => {
            Caller::identify(config, &request, peer, None)?;
            Ok(with_headers(
                "application/json",
                settings::describe(config, server.calls.is_some()).to_string(),
            ))
        }
        "/wires" => open_wires(request, peer, snapshot),
        name => file(name.trim_start_matches('/')),
    }
}

/// One of the embedded files.
fn file(name: &str) -> HttpResult<HttpResponse> {
    let (content_type, contents) = files::find(name).ok_or_else(|| {
        let message = format!("The playground has no file {name}");
        HttpError::new(RejectReason::NotFound, StatusCode::NOT_FOUND, "not_found", &message)
    })?;
    Ok(with_headers(content_type, contents))
}

fn with_headers(content_type: &'static str, body: impl Into<Bytes>) -> HttpResponse {
    let mut response = answer_with(content_type, body);
    response.headers_mut().extend(HEADERS.map(|(name, value)| (name, HeaderValue::from_static(value))));
    response
}

/// Redirects to a place relative to the request's, because a proxy may add a prefix.
fn redirect(status: StatusCode, place: &'static str) -> HttpResponse {
    let mut response = with_headers("text/plain", "");
    *response.status_mut() = status;
    response.headers_mut().insert(LOCATION, HeaderValue::from_static(place));
    response
}

/// Upgrades the connection of a page that will watch the session named in its query.
fn open_wires(
    mut request: ReceivedRequest,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
) -> HttpResult<HttpResponse> {
    check_same_origin(request.headers())?;
    let caller = Caller::identify(config, &request, peer, None)?;
    let query = request.uri().query().unwrap_or_default();
    let name = form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == "session");
    let is_name = |name: &str| {
        WATCH_NAME_CHARS.contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    let name = name.map(|(_, name)| name.into_owned()).filter(|name| is_name(name)).ok_or_else(|| {
        HttpError::bad_request("The parameter session must be a name of 32 to 64 letters and digits")
    })?;
    let mut response = handshake_response(&request)?;
    if has_own_subprotocol(request.headers()) {
        response.headers_mut().insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(SUBPROTOCOL));
    }
    let key = caller.key.map(|key| key.name.clone());
    let (place, found) = server
        .watchers
        .wait(name, key, caller.address.ip(), server.registry.waiting().add_page())
        .ok_or_else(|| {
            HttpError::service_unavailable(RejectReason::TooManySessions, "Too many pages watch sessions")
        })?;
    let upgraded = hyper::upgrade::on(&mut request);
    let sending = wires::run(upgraded, place, found, server.drain.clone());
    spawn_session(sending, server.cut_off.clone());
    Ok(response)
}

/// Rejects pages of other sites, whatever origins sessions may have.
fn check_same_origin(headers: &HeaderMap) -> HttpResult<()> {
    let Some(origin) = headers.get(ORIGIN) else { return Ok(()) };
    let site = origin.to_str().ok().and_then(|origin| Some(origin.split_once("://")?.1));
    if site.is_some() && site == host(headers) {
        return Ok(());
    }
    let message = "Only the playground's own page may watch a session";
    Err(HttpError::forbidden(RejectReason::Origin, "origin_not_allowed", message))
}
