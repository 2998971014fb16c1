//! Admission: the checks that may reject a request before its upgrade.
//!
//! Rejections before the upgrade are HTTP errors. Rejections that belong to the client protocol, such as a missing
//! model, follow after the upgrade in the protocol's own form (field notes macaw.md §1.2). The checks run in the
//! order that reveals least to strangers: public facts, then origin and API key, then permissions, and capacity last.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{
        ALLOW, AUTHORIZATION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue,
        SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, TRANSFER_ENCODING, UPGRADE,
    },
};
use serde_json::json;
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    time::Instant,
};
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tracing::{info, warn};

use super::{
    client_signs::{self, DetectedBy},
    http_error::{HttpError, HttpResponse},
    protocol_detection::{self, NotServed},
    session_start::{Admission, ConnectRequest, run_session, unix_now},
};
use crate::{
    downstream::Codec,
    mapping::ClientMapping,
    server::{
        ServerContext, ServiceConfig,
        access::{
            Credentials,
            address::client_subnet,
            client_secrets::ClientSecrets,
            credential::{SUBPROTOCOL, find_key, split_query_parameter},
            has_own_subprotocol,
            keys::{AccessTarget, ApiKey, KeyRejection},
            quota::{Quota, QuotaExceeded, QuotaSubject, QuotaTicket},
        },
    },
    telemetry::{
        context::{TRACEPARENT, TRACESTATE, TraceContext},
        metrics::RejectReason,
    },
};

/// The other end of a connection, and the names in its certificate.
pub(super) struct ClientPeer {
    pub(super) address: SocketAddr,
    pub(super) certificate_names: Vec<String>,
}

/// Runs every check that may reject the request, then spawns the session.
pub(super) fn admit(
    mut request: Request<Incoming>,
    peer: &ClientPeer,
    server: &Arc<ServerContext>,
) -> Result<HttpResponse, Box<HttpError>> {
    let config = server.config();
    let path = request.uri().path().to_owned();
    let (query, query_keys) = config.access.extract_query_keys(request.uri().query().unwrap_or_default());
    let headers = request.headers();
    check_single_headers(headers)?;
    let client_address = config.access.client_address(peer.address.ip(), headers);

    let candidates = protocol_detection::candidates_for_request(&config, &path, &query);
    check_path(&config, &path, &candidates)?;
    check_upgrade(&request, (&path, &query), candidates.as_deref().unwrap_or_default())?;
    check_origin(&config, headers)?;
    let key = match check_signature(&config, headers, &path, request.uri().query())? {
        true => None,
        false => authenticate(&config, headers, &query_keys, peer, &path, Some(&server.client_secrets))?,
    };
    let mut candidates = candidates.map_err(|cause| not_served_error(&config, &path, &cause))?;
    let by_place = protocol_detection::detected_by_place(&config, &path, &candidates);
    let asks_for_keys = config.access.keys.is_some();
    let by_sign = client_signs::narrow_by_signs(&mut candidates, headers, &query, asks_for_keys);
    let query = client_signs::add_shape(&candidates, headers, query);
    let session = secret_session(&config, headers, &query_keys, &path, &server.client_secrets);
    let query = client_signs::add_session(&candidates, session.as_deref(), query);
    let was_open = candidates.len() > 1;
    let candidates = authorize(&config, key.as_deref(), &path, &query, candidates)?;
    let by_key = (was_open && candidates.len() == 1).then_some(DetectedBy::Key);
    let detected_by = by_key.or(by_place).or(by_sign).unwrap_or(DetectedBy::Default);
    let mut response = handshake_response(&request)?;
    // The slot comes first: a client that finds the server full uses up no quota.
    let session_slot = reserve_slot(&config, server)?;
    let tickets = acquire_quota_tickets(&config, server, key.as_ref(), client_address)?;

    response
        .headers_mut()
        .extend(negotiate_subprotocol(headers, &candidates).map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
    // A proxy reports the client's address without a port.
    let port = if client_address == peer.address.ip().to_canonical() { peer.address.port() } else { 0 };
    let trace_context = trace_context(headers);
    let connect_request = ConnectRequest {
        path,
        query,
        peer: SocketAddr::new(client_address, port),
        trace_context,
        candidates,
        detected_by,
    };
    let subject = peer.certificate_names.first().cloned();
    let admission = Admission::new(key, subject, session_slot, tickets);
    let upgraded = hyper::upgrade::on(&mut request);
    // Boxed, because otherwise the task's future would hold it twice.
    let session = Box::pin(run_session(upgraded, connect_request, (server.clone(), config), admission));
    let cut_off = server.cut_off.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = session => {}
            () = wait_for_cut_off(cut_off) => {}
        }
    });
    Ok(response)
}

/// Completes when sessions are cut off.
async fn wait_for_cut_off(mut cut_off: watch::Receiver<bool>) {
    if cut_off.wait_for(|is_cut_off| *is_cut_off).await.is_err() {
        // The sender is gone, so the order never comes.
        std::future::pending::<()>().await;
    }
}

/// The protocols that a request may speak.
type CandidateResult = Result<Vec<Arc<ClientMapping>>, NotServed>;

/// Rejects paths where nothing is served.
fn check_path(
    config: &ServiceConfig,
    path: &str,
    candidates: &CandidateResult,
) -> Result<(), Box<HttpError>> {
    match candidates {
        Err(cause @ NotServed::NotFound) => Err(not_served_error(config, path, cause)),
        _ => Ok(()),
    }
}

/// Rejects requests in which a header that may occur once occurs repeatedly: a proxy in front may have looked at
/// another one (RFC 9112 §3.2 for `Host`).
pub(super) fn check_single_headers(headers: &HeaderMap) -> Result<(), Box<HttpError>> {
    let count = |name: &HeaderName| headers.get_all(name).iter().count();
    match [HOST, AUTHORIZATION].iter().find(|name| count(name) > 1) {
        Some(name) => {
            let message = format!("The request has {} {name} headers; send one", count(name));
            Err(HttpError::bad_request(&message))
        }
        None => Ok(()),
    }
}

/// Rejects requests that are no WebSocket upgrade, in the words of the real Macaw server (field notes macaw.md §1.1).
fn check_upgrade(
    request: &Request<Incoming>,
    (path, query): (&str, &str),
    candidates: &[Arc<ClientMapping>],
) -> Result<(), Box<HttpError>> {
    if request.method() != Method::GET {
        let (reason, status) = (RejectReason::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED);
        let body = json!({"detail": "Method Not Allowed"}).to_string();
        return Err(HttpError::with_body(reason, status, body).with_header(ALLOW, "GET"));
    }
    let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        return Ok(());
    }
    let parameter = candidates.iter().find_map(|client| client.required_model_parameter());
    let value_of = |parameter: &str| split_query_parameter(query, parameter).1.into_iter().next_back();
    let model = parameter.map(|parameter| (parameter, value_of(parameter)));
    let reason = RejectReason::NoUpgrade;
    if let Some((parameter, None)) = model {
        // A text, because a JSON object would sort its keys.
        let body = format!(
            r#"{{"detail":[{{"type":"missing","loc":["query",{}],"msg":"Field required","input":null}}]}}"#,
            json!(parameter)
        );
        return Err(HttpError::with_body(reason, StatusCode::UNPROCESSABLE_ENTITY, body));
    }
    let model =
        model.map_or_else(String::new, |(name, value)| format!("?{name}={}", value.unwrap_or_default()));
    let body = json!({
        "error": "This endpoint requires a WebSocket connection",
        "hint": format!("Connect using: ws://<host>{path}{model}"),
    });
    Err(HttpError::with_body(reason, StatusCode::UPGRADE_REQUIRED, body.to_string())
        .with_header(UPGRADE, "websocket"))
}

/// Rejects browsers' requests from pages that are not allowed.
pub(super) fn check_origin(config: &ServiceConfig, headers: &HeaderMap) -> Result<(), Box<HttpError>> {
    if config.access.is_origin_allowed(headers) {
        return Ok(());
    }
    let message = "This Origin is not allowed to connect ([access] origins)";
    Err(HttpError::forbidden(RejectReason::Origin, "origin_not_allowed", message))
}

/// Checks the signature of a request whose protocol signs requests. True if it is valid and no key is needed. Rejects a
/// missing or wrong one, unless keys are configured and may admit the client instead.
fn check_signature(
    config: &ServiceConfig,
    headers: &HeaderMap,
    path: &str,
    query: Option<&str>,
) -> Result<bool, Box<HttpError>> {
    let mut at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
    let Some(header) = at_path.find_map(|client| client.signature_header.as_deref()) else {
        return Ok(false);
    };
    match config.access.check_signature(headers, header, (path, query.unwrap_or_default())) {
        Some(true) => Ok(true),
        Some(false) if config.access.keys.is_none() => {
            info!(path, header, "rejected: missing or wrong signature");
            let message =
                format!("The header {header} is missing or does not match this URL ([access.signature])");
            Err(HttpError::unauthorized(&message))
        }
        Some(false) | None => Ok(false),
    }
}

/// Finds the API key of the request; rejects a wrong key, and a missing one where a key is required.
pub(super) fn authenticate(
    config: &ServiceConfig,
    headers: &HeaderMap,
    query_keys: &[String],
    peer: &ClientPeer,
    path: &str,
    secrets: Option<&ClientSecrets>,
) -> Result<Option<Arc<ApiKey>>, Box<HttpError>> {
    let names = subprotocols_at(config, path);
    let certificate_names = &peer.certificate_names;
    let shown = Credentials { headers, query_keys, subprotocols: &names, certificate_names };
    config.access.authenticate(&shown, secrets, unix_now().as_secs()).map_err(|refused| {
        info!(peer = %peer.address, reason = %refused, "rejected: missing or unknown API key");
        match refused {
            KeyRejection::Several => HttpError::bad_request(&refused.to_string()),
            _ => HttpError::unauthorized(&refused.to_string()),
        }
    })
}

/// Settings of the client secret in an admitted request.
fn secret_session(
    config: &ServiceConfig,
    headers: &HeaderMap,
    query_keys: &[String],
    path: &str,
    secrets: &ClientSecrets,
) -> Option<Arc<str>> {
    let key = find_key(headers, query_keys, &subprotocols_at(config, path)).ok()??;
    secrets.session_of(&key, unix_now().as_secs())
}

fn subprotocols_at<'c>(config: &'c ServiceConfig, path: &'c str) -> Vec<&'c str> {
    let at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
    at_path.flat_map(|client| &client.subprotocols).map(String::as_str).collect()
}

/// Keeps the protocols that the key may use for this path and model; rejects the request if none is left.
fn authorize(
    config: &ServiceConfig,
    key: Option<&ApiKey>,
    path: &str,
    query: &str,
    mut candidates: Vec<Arc<ClientMapping>>,
) -> Result<Vec<Arc<ClientMapping>>, Box<HttpError>> {
    let Some(key) = key else { return Ok(candidates) };
    candidates.retain(|client| {
        let requested_model = || Codec::new(client.clone(), 0.0).decode_query(query).model;
        let model = if client.is_relayed() { Some(String::new()) } else { requested_model() };
        let route = config.routes.find(path, client, model.as_deref().unwrap_or_default());
        let profile = route.map(|route| route.profile.name.as_str());
        key.can_access(&AccessTarget { path, protocol: &client.name, model: model.as_deref(), profile })
    });
    if candidates.is_empty() {
        info!(
            key = &*key.name,
            path, "rejected: the API key does not allow this path, protocol, model or profile"
        );
        let message = "This key does not allow this path, protocol, model or profile";
        return Err(HttpError::forbidden(RejectReason::Forbidden, "not_allowed", message));
    }
    Ok(candidates)
}

/// Checks the WebSocket handshake and builds the response to it.
fn handshake_response(request: &Request<Incoming>) -> Result<HttpResponse, Box<HttpError>> {
    let length = request.headers().get(CONTENT_LENGTH);
    if request.headers().contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0") {
        // A proxy in front might take a body for the first bytes of the session, or the reverse.
        let message = "A WebSocket handshake must not have a body (Content-Length or Transfer-Encoding)";
        return Err(HttpError::bad_request(message));
    }
    create_response_with_body(request, Full::default).map_err(|error| {
        // RFC 6455 §4.4: name the supported version.
        HttpError::bad_request(&error.to_string()).with_header(SEC_WEBSOCKET_VERSION, "13")
    })
}

/// Takes a session from the quota of the key and of the address.
fn acquire_quota_tickets(
    config: &ServiceConfig,
    server: &ServerContext,
    key: Option<&Arc<ApiKey>>,
    client_address: IpAddr,
) -> Result<Vec<QuotaTicket>, Box<HttpError>> {
    let of_address = Quota { sessions_max: config.limits.sessions_per_address, ..Quota::default() };
    let of_key = key.map(|key| {
        let quota = Quota { sessions_max: key.sessions_max, sessions_per_minute: key.sessions_per_minute };
        (QuotaSubject::Key(key.name.clone()), quota)
    });
    let quotas =
        [(QuotaSubject::Address(client_subnet(client_address)), of_address)].into_iter().chain(of_key);
    let now = Instant::now().into_std();
    let acquired = quotas.map(|(who, quota)| {
        let (reason, subject) = match who {
            QuotaSubject::Key(_) => (RejectReason::KeyLimit, "this key"),
            QuotaSubject::Address(_) => (RejectReason::AddressLimit, "this address"),
        };
        server.quotas.acquire(now, who.clone(), quota).map_err(|over| {
            info!(?who, ?over, "refused: too much");
            match over {
                QuotaExceeded::Sessions(max) => HttpError::too_many_requests(
                    reason,
                    &format!("Too many sessions of {subject}; at most {max}"),
                    None,
                ),
                QuotaExceeded::Rate(rate, retry) => {
                    let message = format!("Too many new sessions of {subject}; at most {rate} a minute");
                    HttpError::too_many_requests(RejectReason::RateLimit, &message, Some(retry))
                }
            }
        })
    });
    acquired.collect()
}

/// Reserves a session slot; fails if the server is full or shutting down.
fn reserve_slot(
    config: &ServiceConfig,
    server: &ServerContext,
) -> Result<OwnedSemaphorePermit, Box<HttpError>> {
    if server.lifecycle.is_shutting_down() {
        return Err(HttpError::service_unavailable(RejectReason::Stopping, "voxbridge is stopping"));
    }
    if server.memory.is_scarce(config.limits.memory_max_bytes) {
        warn!(
            memory_max_bytes = config.limits.memory_max_bytes,
            "rejected: messages in transit fill the memory"
        );
        return Err(HttpError::service_unavailable(
            RejectReason::OutOfMemory,
            "Out of memory, try again later",
        ));
    }
    server.session_slots.clone().try_acquire_owned().map_err(|_| {
        warn!(sessions_max = config.sessions_max, "rejected: too many sessions");
        HttpError::service_unavailable(RejectReason::TooManySessions, "Too many sessions")
    })
}

/// The trace context in the request's headers.
fn trace_context(headers: &HeaderMap) -> Arc<TraceContext> {
    let all = |name| headers.get_all(name).into_iter();
    // A header that is not text still counts as sent, and as invalid.
    let values = |name| all(name).map(|value| value.to_str().unwrap_or("?"));
    Arc::new(TraceContext::from_headers(values(TRACEPARENT), values(TRACESTATE), &mut fastrand::Rng::new()))
}

/// The HTTP error for a request that cannot be served. The real gateway also rejects unknown modes before the
/// upgrade.
fn not_served_error(config: &ServiceConfig, path: &str, cause: &NotServed) -> Box<HttpError> {
    match cause {
        NotServed::NotFound => {
            let known: BTreeSet<_> = config.library.clients().flat_map(|client| &client.paths).collect();
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("There is nothing at {path}; WebSocket clients are served at {known}");
            HttpError::new(RejectReason::NotFound, StatusCode::NOT_FOUND, "not_found", &message)
        }
        NotServed::NoSuchMode(status) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::FORBIDDEN);
            HttpError::new(RejectReason::NoSuchMode, status, "no_such_mode", "There is no such mode")
        }
        NotServed::NoRoute(client) => {
            let message =
                format!("No route leads {client} clients anywhere; one is needed whose profile serves them");
            HttpError::forbidden(RejectReason::NoRoute, "no_route", &message)
        }
    }
}

/// The subprotocol to agree to: the first offered one that the client's protocol knows, or the one that carries a
/// key. Browsers fail a connection whose subprotocols are all ignored (RFC 6455 §4.1).
fn negotiate_subprotocol(headers: &HeaderMap, candidates: &[Arc<ClientMapping>]) -> Option<HeaderValue> {
    let known = candidates.iter().find_map(|mapping| match_subprotocol(headers, mapping));
    known.or_else(|| has_own_subprotocol(headers).then(|| HeaderValue::from_static(SUBPROTOCOL)))
}

fn match_subprotocol(offered: &HeaderMap, mapping: &ClientMapping) -> Option<HeaderValue> {
    let lines = offered.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',')).map(str::trim);
    let agreed = names.find_map(|name| mapping.subprotocols.iter().find(|known| *known == name))?;
    HeaderValue::from_str(agreed).ok()
}
