//! Admission: the checks that may reject a request before its upgrade.
//!
//! Rejections before the upgrade are HTTP errors. Rejections that belong to the client protocol, such as a missing
//! model, follow after the upgrade in the protocol's own form (mappings/notes/macaw.md#refused-models). The checks run
//! in the order that reveals least to strangers: public facts, then origin and API key, then permissions, and capacity
//! last.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use hyper::{
    Request, StatusCode,
    header::{AUTHORIZATION, HeaderMap, SEC_WEBSOCKET_PROTOCOL},
};
use tokio::{
    sync::{OwnedSemaphorePermit, watch},
    task::JoinHandle,
    time::Instant,
};
use tracing::{info, warn};

use super::{
    WrittenPath,
    http_error::{HttpError, HttpResponse, HttpResult},
    not_found,
    request_body::ReceivedRequest,
    session_opening::{ConnectRequest, unix_now},
    session_start::{Admission, run_session},
    upgrade::{
        ANSWERS_HEADER, answers_header, check_query, check_upgrade, handshake_response,
        negotiate_subprotocol, own_headers,
    },
};
use crate::{
    client::Codec,
    server::{
        ServerContext, ServiceConfig, Snapshot,
        access::{
            Credentials, SignedUrl,
            address::client_subnet,
            client_secrets::ClientSecrets,
            credential::{KeyPlaces, find_key, find_watch_name},
            keys::{AccessTarget, ApiKey, KeyRejection},
            quota::{CallerName, Quota, QuotaExceeded, QuotaSubject},
        },
        cut_off::wait_for_cut_off,
        identify::{
            self, Identified,
            place::NotServed,
            query::{add_headers, add_path, add_session, add_shape},
        },
    },
    spelling::ClientMapping,
    telemetry::{
        context::{TRACEPARENT, TRACESTATE, TraceContext},
        metrics::RejectReason,
    },
};

/// Offers of calls that an address may make in a minute, and at once. Each costs milliseconds.
const OFFERS_PER_MINUTE: u32 = 60;

/// The other end of a connection, and the names in its certificate.
pub(in crate::server) struct ClientPeer {
    pub(in crate::server) address: SocketAddr,
    pub(in crate::server) certificate_names: Vec<String>,
}

impl ClientPeer {
    /// What it shows in a request with these headers and these keys in the query.
    fn credentials<'r>(
        &'r self,
        headers: &'r HeaderMap,
        query_keys: &'r [String],
        places: &'r KeyPlaces<'r>,
    ) -> Credentials<'r> {
        Credentials { headers, query_keys, places, certificate_names: &self.certificate_names }
    }
}

/// The sender of a request that is served without an upgrade.
#[derive(Clone)]
pub(in crate::server) struct Caller {
    pub(in crate::server) key: Option<Arc<ApiKey>>,
    /// The client's address, which a proxy may have reported.
    pub(in crate::server) address: SocketAddr,
    /// The first name in its certificate.
    subject: Option<String>,
    pub(in crate::server) trace_context: Arc<TraceContext>,
}

impl Caller {
    /// Checks the origin and the key of a request. `secrets` are those that count as a key.
    pub(in crate::server) fn identify<B>(
        config: &ServiceConfig,
        request: &Request<B>,
        peer: &ClientPeer,
        secrets: Option<&ClientSecrets>,
    ) -> HttpResult<Self> {
        let headers = request.headers();
        check_single_key(headers)?;
        check_origin(config, headers)?;
        let (mut places, query) = (key_places(config, request.uri().path()), request.uri().query());
        let rest = config.library.clients().filter(|client| client.is_rest);
        places.headers.extend(rest.flat_map(|client| &client.key_headers).map(String::as_str));
        let (_, query_keys) = config.access.extract_query_keys(query.unwrap_or_default(), &places);
        let shown = peer.credentials(headers, &query_keys, &places);
        let key = authenticate(config, &shown, peer, secrets)?;
        Ok(Self::with_key(config, headers, peer, key))
    }

    fn with_key(
        config: &ServiceConfig,
        headers: &HeaderMap,
        peer: &ClientPeer,
        key: Option<Arc<ApiKey>>,
    ) -> Self {
        let reported = config.access.client_address(peer.address.ip(), headers);
        // A proxy reports the client without a port.
        let port = if reported == peer.address.ip().to_canonical() { peer.address.port() } else { 0 };
        let (address, subject) = (SocketAddr::new(reported, port), peer.certificate_names.first().cloned());
        Self { key, address, subject, trace_context: trace_context(headers) }
    }

    /// A command in the server's own process.
    pub(in crate::server) fn of_this_process() -> Self {
        Self::at(SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0)))
    }

    /// A client known by its address alone.
    pub(in crate::server) fn at(address: SocketAddr) -> Self {
        Self { key: None, address, subject: None, trace_context: trace_context(&HeaderMap::new()) }
    }

    /// Takes a session slot, and a session from the quotas of the key and of the address. The slot comes first: a client that
    /// finds the server full uses up no quota.
    pub(in crate::server) fn admit(
        &self,
        config: &ServiceConfig,
        server: &ServerContext,
    ) -> HttpResult<Admission> {
        let session_slot = reserve_slot(config, server)?;
        let now = Instant::now().into_std();
        let acquired =
            quotas(config, self.key.as_ref(), self.address.ip()).into_iter().map(|(who, quota)| {
                server.quotas.acquire(now, who.clone(), quota).map_err(|over| quota_error(&who, over))
            });
        let tickets = acquired.collect::<Result<_, _>>()?;
        Ok(Admission::new(self.key.clone(), self.subject.clone(), session_slot, tickets))
    }

    /// Fails if a session would not be admitted now; takes nothing.
    pub(in crate::server) fn check_room(
        &self,
        config: &ServiceConfig,
        server: &ServerContext,
    ) -> HttpResult<()> {
        drop(reserve_slot(config, server)?);
        let now = Instant::now().into_std();
        for (who, quota) in quotas(config, self.key.as_ref(), self.address.ip()) {
            server.quotas.check(now, &who, quota).map_err(|over| quota_error(&who, over))?;
        }
        Ok(())
    }

    /// Name of its key.
    pub(in crate::server) fn key_name(&self) -> Option<Arc<str>> {
        self.key.as_ref().map(|key| Arc::from(&*key.name))
    }

    /// Counts an offer of a call, which may never become a session and has a rate for each key, or for each address of clients
    /// without one.
    pub(in crate::server) fn count_offer(&self, server: &ServerContext) -> HttpResult<()> {
        let now = Instant::now().into_std();
        let who = QuotaSubject::Offers(CallerName::new(self.key_name().as_ref(), self.address.ip()));
        let quota = Quota { sessions_per_minute: Some(OFFERS_PER_MINUTE), ..Quota::default() };
        server.quotas.acquire(now, who.clone(), quota).map(drop).map_err(|over| quota_error(&who, over))
    }
}

/// A request for a session whose sender may have one.
struct Authorized {
    path: String,
    /// Without keys, and completed.
    query: String,
    client: Identified,
    caller: Caller,
}

/// Identifies the protocol and the sender of a request for a session; rejects what may have none.
fn authorize_request(
    request: &ReceivedRequest,
    peer: &ClientPeer,
    Snapshot { server, config }: &Snapshot,
) -> HttpResult<Authorized> {
    let path = request.uri().path().to_owned();
    let places = key_places(config, &path);
    let query = request.uri().query().unwrap_or_default();
    let (query, query_keys) = config.access.extract_query_keys(query, &places);
    let headers = request.headers();
    check_single_key(headers)?;
    let at_path = config.library.clients_at(&path).chain(config.routes.forced_protocol(&path));
    let query = add_path(at_path, &path, query);
    let client = identify::place::at_path(config, &path, &query);
    if let Err(cause @ NotServed::NotFound) = &client {
        return Err(not_served_error(config, &path, cause));
    }
    let candidates = client.as_ref().map(Identified::candidates);
    check_upgrade(request, config, &query, candidates.unwrap_or_default())?;
    check_origin(config, headers)?;
    let key = match check_signature(config, request)? {
        true => None,
        false => {
            let shown = peer.credentials(headers, &query_keys, &places);
            authenticate(config, &shown, peer, Some(&server.client_secrets))?
        }
    };
    let mut client = client.map_err(|cause| not_served_error(config, &path, &cause))?;
    client.narrow_by_signs(headers, &query, config.access.keys.is_some());
    let query = add_shape(client.candidates(), headers, query);
    let query = add_headers(client.candidates(), headers, query);
    let session = secret_session(config, headers, &query_keys, &path, &server.client_secrets);
    let query = add_session(client.candidates(), session.as_deref(), query);
    authorize(config, key.as_deref(), &path, &query, &mut client)?;
    let caller = Caller::with_key(config, headers, peer, key);
    Ok(Authorized { path, query, client, caller })
}

/// Runs every check that may reject the request, then spawns the session.
pub(in crate::server) fn admit(
    mut request: ReceivedRequest,
    peer: &ClientPeer,
    snapshot: Snapshot,
) -> HttpResult<HttpResponse> {
    let Snapshot { server, config } = &snapshot;
    let Authorized { path, query, client, caller } = authorize_request(&request, peer, &snapshot)?;
    let (headers, candidates, seed) = (request.headers(), client.candidates(), fastrand::u64(..));
    let own_headers = own_headers(candidates, seed);
    if !client.is_open() {
        check_query(client.likeliest(), &query, &own_headers)?;
    }
    let mut response = handshake_response(&request)?;
    let admission = caller.admit(config, server)?;
    let answer = response.headers_mut();
    answer.extend(negotiate_subprotocol(headers, candidates).map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
    let answers = answers_header(config, headers, &path, &query, candidates);
    answer.extend(answers.map(|answers| (ANSWERS_HEADER, answers)));
    answer.extend(own_headers);
    let is_bridge = identify::signs::is_bridge(headers);
    let watch_name = find_watch_name(headers).filter(|_| config.playground).map(str::to_owned);
    let connect_request = ConnectRequest {
        path,
        query,
        peer: caller.address,
        trace_context: caller.trace_context,
        client,
        is_bridge,
        watch_name,
        seed,
    };
    let upgraded = hyper::upgrade::on(&mut request);
    let cut_off = server.cut_off.clone();
    // Boxed, because otherwise the task's future would hold it twice.
    spawn_session(Box::pin(run_session(upgraded, connect_request, snapshot, admission)), cut_off);
    Ok(response)
}

/// Runs a session in a task of its own, until sessions are cut off.
pub(in crate::server) fn spawn_session(
    session: impl Future<Output = ()> + Send + 'static,
    cut_off: watch::Receiver<bool>,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        tokio::select! {
            () = session => {}
            () = wait_for_cut_off(cut_off) => {}
        }
    })
}

/// Rejects requests with several keys in headers: a proxy in front may have looked at another one.
fn check_single_key(headers: &HeaderMap) -> HttpResult<()> {
    match headers.get_all(AUTHORIZATION).iter().count() {
        0 | 1 => Ok(()),
        count => {
            let message = format!("The request has {count} authorization headers; send one");
            Err(HttpError::bad_request(&message))
        }
    }
}

/// Rejects browsers' requests from pages that are not allowed.
pub(in crate::server) fn check_origin(config: &ServiceConfig, headers: &HeaderMap) -> HttpResult<()> {
    if config.access.is_origin_allowed(headers) {
        return Ok(());
    }
    let message = "This Origin is not allowed to connect ([access] origins)";
    Err(HttpError::forbidden(RejectReason::Origin, "origin_not_allowed", message))
}

/// Checks the signature of a request whose protocol signs requests. True if it is valid and no key is needed. Rejects a
/// missing or wrong one, unless keys are configured and may admit the client instead. The signature is of the path as the client
/// wrote it.
fn check_signature(config: &ServiceConfig, request: &ReceivedRequest) -> HttpResult<bool> {
    let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
    let mut at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
    let Some(header) = at_path.find_map(|client| client.signature_header.as_deref()) else {
        return Ok(false);
    };
    let written = request.extensions().get().map_or(path, |WrittenPath(written)| written.as_str());
    match config.access.check_signature(request.headers(), header, SignedUrl { path: written, query }) {
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
fn authenticate(
    config: &ServiceConfig,
    shown: &Credentials<'_>,
    peer: &ClientPeer,
    secrets: Option<&ClientSecrets>,
) -> HttpResult<Option<Arc<ApiKey>>> {
    config.access.authenticate(shown, secrets, unix_now().as_secs()).map_err(|refused| {
        info!(peer = %peer.address, reason = %refused, "rejected: missing or unknown API key");
        match refused {
            KeyRejection::Several => HttpError::bad_request(&refused.to_string()),
            _ => HttpError::unauthorized(&refused.to_string()),
        }
    })
}

/// Settings of the client secret in an admitted request.
pub(in crate::server) fn secret_session(
    config: &ServiceConfig,
    headers: &HeaderMap,
    query_keys: &[String],
    path: &str,
    secrets: &ClientSecrets,
) -> Option<Arc<str>> {
    let key = find_key(headers, query_keys, &key_places(config, path)).ok()??;
    secrets.session_of(&key, unix_now().as_secs())
}

/// Where the protocols at a path expect a key.
pub(in crate::server) fn key_places<'c>(config: &'c ServiceConfig, path: &str) -> KeyPlaces<'c> {
    let at_path = config.library.clients_at(path).chain(config.routes.forced_protocol(path));
    let has_requests_at = |client: &&Arc<ClientMapping>| {
        client.setup_page.as_ref().is_some_and(|page| *page.path == *path)
            || client.jobs.as_ref().is_some_and(|jobs| jobs.serves(path))
    };
    let mut places = KeyPlaces::default();
    for client in at_path.chain(config.library.clients().filter(has_requests_at)) {
        places.subprotocols.extend(client.subprotocols.iter().map(String::as_str));
        places.headers.extend(client.key_headers.iter().map(String::as_str));
        places.parameters.extend(client.key_parameters.iter().map(String::as_str));
    }
    places
}

/// Keeps the protocols that the key may use for this path and model; rejects the request if none is left.
pub(in crate::server) fn authorize(
    config: &ServiceConfig,
    key: Option<&ApiKey>,
    path: &str,
    query: &str,
    client: &mut Identified,
) -> HttpResult<()> {
    let Some(key) = key else { return Ok(()) };
    let has_permitted = client.keep_permitted(|client| {
        let requested_model = || Codec::new(client.clone(), 0.0).decode_query(query).model;
        let model = if client.is_relayed() { Some(String::new()) } else { requested_model() };
        let route = config.routes.find(path, client, model.as_deref().unwrap_or_default());
        let profile = route.map(|route| route.profile.name.as_str());
        key.can_access(&AccessTarget { path, protocol: &client.name, model: model.as_deref(), profile })
    });
    if !has_permitted {
        info!(
            key = &*key.name,
            path, "rejected: the API key does not allow this path, protocol, model or profile"
        );
        let message = "This key does not allow this path, protocol, model or profile";
        return Err(HttpError::forbidden(RejectReason::Forbidden, "not_allowed", message));
    }
    Ok(())
}

/// The quotas that a session of this key and address takes from.
fn quotas(
    config: &ServiceConfig,
    key: Option<&Arc<ApiKey>>,
    client_address: IpAddr,
) -> Vec<(QuotaSubject, Quota)> {
    let of_address = Quota { sessions_max: config.limits.sessions_per_address, ..Quota::default() };
    let of_key = key.map(|key| {
        let quota = Quota { sessions_max: key.sessions_max, sessions_per_minute: key.sessions_per_minute };
        (QuotaSubject::Key(key.name.clone()), quota)
    });
    [(QuotaSubject::Address(client_subnet(client_address)), of_address)].into_iter().chain(of_key).collect()
}

fn quota_error(who: &QuotaSubject, over: QuotaExceeded) -> Box<HttpError> {
    info!("refused: {who} {over}");
    let (reason, subject) = match who {
        QuotaSubject::Key(_) => (RejectReason::KeyLimit, "this key"),
        QuotaSubject::Address(_) | QuotaSubject::Offers(_) => (RejectReason::AddressLimit, "this address"),
    };
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
}

/// Why a client gets no session, in words for its protocol.
pub(in crate::server) const fn refusal_words(reason: RejectReason) -> &'static str {
    match reason {
        RejectReason::Stopping => "voxbridge is stopping",
        RejectReason::AddressLimit => "too many sessions of this address",
        RejectReason::KeyLimit | RejectReason::RateLimit => "too many sessions of this key",
        _ => "too many sessions",
    }
}

/// Reserves a session slot; fails if the server is full or shutting down.
fn reserve_slot(config: &ServiceConfig, server: &ServerContext) -> HttpResult<OwnedSemaphorePermit> {
    if server.lifecycle.is_shutting_down() {
        return Err(HttpError::service_unavailable(RejectReason::Stopping, "voxbridge is stopping"));
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
            let message = not_found::message(path, &config.library);
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
