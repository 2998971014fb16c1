//! A client's connection up to its session: TLS, HTTP and the upgrade.
//!
//! What is refused before the upgrade is refused in HTTP; what the protocol refuses itself, such as a missing model, is
//! refused in its own words after it (field notes macaw.md §1.2). The steps stand in the order that tells strangers least:
//! what is public first, then whence they come and who they are, then what they may, and last how much room there is.

pub(crate) mod http_error;
pub(crate) mod protocol_detection;
pub(crate) mod session_start;

use std::{
    collections::BTreeSet,
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http_body_util::Full;
use hyper::{
    Method, Request, StatusCode,
    body::Incoming,
    header::{
        ALLOW, CONTENT_LENGTH, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION,
        TRANSFER_ENCODING, UPGRADE,
    },
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::TcpStream,
    sync::{OwnedSemaphorePermit, watch},
    time::{Instant, sleep, timeout},
};
use tokio_tungstenite::tungstenite::handshake::server::create_response_with_body;
use tracing::{debug, info, warn};

use super::{
    Service, Shared,
    accept::{
        http_error::{Answer, Refusal},
        protocol_detection::Nobody,
        session_start::{Visit, session, unix_now},
    },
    access::{
        address::household,
        credential::SUBPROTOCOL,
        keys::{Goal, Key},
        offers_own_subprotocol,
        quota::{Over, Quota, Ticket, Who},
    },
    session_task::ordered,
    websocket::{pausable_stream::Clocked, stream::ClientStream},
};
use crate::{
    downstream::Codec,
    mapping::ClientMapping,
    telemetry::{
        context::{TRACEPARENT, TRACESTATE, TraceContext},
        metrics::Refused,
    },
};

/// Room for a head; hyper's least.
const HEAD_MAX_BYTES: usize = 8 * 1024;

/// Who has not been upgraded when sessions are told to finish has this long to be answered.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What somebody was let in with. What it counts for is given back with it.
pub(super) struct Admission {
    /// Whose key it was.
    pub(super) key: Option<Arc<Key>>,
    /// The first name in the certificate that was shown.
    pub(super) subject: Option<String>,
    _place: OwnedSemaphorePermit,
    _tickets: Vec<Ticket>,
}

/// Who connects: the other end, and the names in its certificate.
struct Peer {
    address: SocketAddr,
    names: Vec<String>,
}

/// Serves one connection on a task of its own, and maybe on a thread of its own, where the stream is made known anew.
pub(super) fn spawn(stream: TcpStream, peer: SocketAddr, shared: Arc<Shared>) {
    // Small frames are to leave at once; a socket that cannot do it still works.
    let _ = stream.set_nodelay(true);
    let stream = stream.into_std();
    let limits = shared.service().limits;
    let until_upgraded = {
        let (shared, metrics) = (shared.clone(), shared.metrics.clone());
        let answered = Arc::new(AtomicBool::new(false));
        let drain = shared.drain.clone();
        let leaving = async {
            ordered(drain).await;
            sleep(LAST_WORDS).await;
        };
        async move {
            let served = tokio::select! {
                served = timeout(limits.handshake, connection(stream, peer, shared, answered.clone())) => served,
                // A stranger who stalls must not hold up the end.
                () = leaving => return,
            };
            let late = match served {
                Ok(Ok(())) => false,
                Ok(Err(error)) => {
                    debug!(%peer, %error, "connection without a session");
                    is_timeout(&error)
                }
                Err(_) => {
                    debug!(%peer, "connection without a session: it takes too long");
                    true
                }
            };
            // Who was answered and only keeps its connection has nothing more to say.
            if late && !answered.load(Relaxed) {
                metrics.refused(Refused::Timeout);
            }
        }
    };
    let task = shared.workers.spawn(until_upgraded);
    if shared.handshakes.add(limits.connections_max, task) {
        shared.metrics.refused(Refused::HandshakeOverflow);
        debug!(limit = limits.connections_max, "too many connections without a session: the oldest is ended");
    }
}

/// One connection up to its upgrade or its end; the caller bounds the time.
async fn connection(
    stream: io::Result<std::net::TcpStream>,
    address: SocketAddr,
    shared: Arc<Shared>,
    answered: Arc<AtomicBool>,
) -> io::Result<()> {
    let service = shared.service();
    let (handshake, tls) = (service.limits.handshake, service.tls.clone());
    drop(service);
    let stream = TcpStream::from_std(stream?)?;
    let stream = match tls {
        Some(tls) => {
            let spoke = stream.peek(&mut [0]).await? > 0;
            let accepted = tls.accept(stream).await;
            // Who connects and leaves without a byte looks whether somebody listens, and is refused nothing.
            if spoke && accepted.is_err() {
                shared.metrics.refused(Refused::Tls);
            }
            ClientStream::Tls(Box::new(accepted?))
        }
        None => ClientStream::Plain(Clocked::from(stream)),
    };
    let peer = Peer { address, names: stream.names() };
    let stop = ordered(shared.drain.clone());
    let answer = service_fn(move |request| {
        answered.store(true, Relaxed);
        let answer = answer(request, &peer, &shared);
        async move { Ok::<_, Infallible>(answer) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(handshake)
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
    served.map_err(io::Error::other)
}

/// Whether HTTP was waited for in vain.
fn is_timeout(error: &io::Error) -> bool {
    error
        .get_ref()
        .and_then(|error| error.downcast_ref::<hyper::Error>())
        .is_some_and(hyper::Error::is_timeout)
}

/// Upgrades a request to a session, or says why not.
fn answer(request: Request<Incoming>, peer: &Peer, shared: &Arc<Shared>) -> Answer {
    admit(request, peer, shared).unwrap_or_else(|refusal| {
        shared.metrics.refused(refusal.why);
        refusal.answer
    })
}

/// Every step that may refuse it.
fn admit(mut request: Request<Incoming>, peer: &Peer, shared: &Arc<Shared>) -> Result<Answer, Box<Refusal>> {
    let service = shared.service();
    let path = request.uri().path().to_owned();
    let (query, in_query) = service.access.take_from_query(request.uri().query().unwrap_or_default());
    let headers = request.headers();
    let visitor = service.access.address(peer.address.ip(), headers);

    let found = protocol_detection::by_request(&service, &path, &query);
    expect_place(&service, &path, &found)?;
    expect_upgrade(&request, &path, found.as_deref().unwrap_or_default())?;
    expect_origin(&service, headers)?;
    let key = holder(&service, headers, in_query.as_deref(), peer, &path)?;
    let candidates = found.map_err(|nobody| for_nobody(&service, &path, &nobody))?;
    let candidates = permitted(&service, key.as_deref(), &path, &query, candidates)?;
    let mut answer = handshake(&request)?;
    // Who finds no room has used up nothing of its own.
    let place = place(&service, shared)?;
    let tickets = tickets(&service, shared, key.as_ref(), visitor)?;

    answer.headers_mut().extend(agreed(headers, &candidates).map(|name| (SEC_WEBSOCKET_PROTOCOL, name)));
    // Of whom a proxy has it there is no port.
    let port = if visitor == peer.address.ip().to_canonical() { peer.address.port() } else { 0 };
    let trace = trace_of(headers);
    let visit = Visit { path, query, peer: SocketAddr::new(visitor, port), trace, candidates };
    let admission = Admission { key, subject: peer.names.first().cloned(), _place: place, _tickets: tickets };
    let upgraded = hyper::upgrade::on(&mut request);
    // In a box, or what waits for it has room for it twice.
    let session = Box::pin(session(upgraded, visit, (shared.clone(), service), admission));
    let cut = shared.cut.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = session => {}
            () = cut_off(cut) => {}
        }
    });
    Ok(answer)
}

/// Done when there is no time left.
async fn cut_off(mut cut: watch::Receiver<bool>) {
    if cut.wait_for(|cut| *cut).await.is_err() {
        // Who would say so is gone.
        std::future::pending::<()>().await;
    }
}

/// What protocols a request may be of.
type Found = Result<Vec<Arc<ClientMapping>>, Nobody>;

/// There is something at the path.
fn expect_place(service: &Service, path: &str, found: &Found) -> Result<(), Box<Refusal>> {
    match found {
        Err(nobody @ Nobody::NotFound) => Err(for_nobody(service, path, nobody)),
        _ => Ok(()),
    }
}

/// It wants a WebSocket.
fn expect_upgrade(
    request: &Request<Incoming>,
    path: &str,
    candidates: &[Arc<ClientMapping>],
) -> Result<(), Box<Refusal>> {
    if request.method() != Method::GET {
        let words = "Only GET, to open a WebSocket";
        let (why, status) = (Refused::MethodNotAllowed, StatusCode::METHOD_NOT_ALLOWED);
        return Err(Refusal::new(why, status, "method_not_allowed", words).with(ALLOW, "GET"));
    }
    let upgrade = request.headers().get(UPGRADE).and_then(|value| value.to_str().ok());
    if upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        return Ok(());
    }
    let model = candidates.iter().find_map(|client| client.model_parameter());
    let example = model.map_or(String::new(), |model| format!("?{model}=<name>"));
    let words = format!("This endpoint requires a WebSocket connection: ws://<host>{path}{example}");
    let (why, status) = (Refused::NoUpgrade, StatusCode::UPGRADE_REQUIRED);
    Err(Refusal::new(why, status, "upgrade_required", &words).with(UPGRADE, "websocket"))
}

/// It comes from a page that may, or from no page.
fn expect_origin(service: &Service, headers: &HeaderMap) -> Result<(), Box<Refusal>> {
    if service.access.admits_origin(headers) {
        return Ok(());
    }
    let words = "This Origin is not on the list of those that may connect ([access] origins)";
    Err(Refusal::forbidden(Refused::Origin, "origin_not_allowed", words))
}

/// Whose key it shows, where one is needed or shown.
fn holder(
    service: &Service,
    headers: &HeaderMap,
    in_query: Option<&str>,
    peer: &Peer,
    path: &str,
) -> Result<Option<Arc<Key>>, Box<Refusal>> {
    let at_path = service.library.clients_at(path).chain(service.routes.protocol_at(path));
    let names: Vec<&str> = at_path.flat_map(|client| &client.subprotocols).map(String::as_str).collect();
    let found = service.access.holder(headers, in_query, &names, &peer.names, unix_now().as_secs());
    found.map_err(|refused| {
        info!(peer = %peer.address, ?refused, "refused: no key that is good");
        Refusal::unauthorised(&refused.to_string())
    })
}

/// Of these protocols those that the key may use there, with what is asked for; none is a refusal.
fn permitted(
    service: &Service,
    key: Option<&Key>,
    path: &str,
    query: &str,
    mut candidates: Vec<Arc<ClientMapping>>,
) -> Result<Vec<Arc<ClientMapping>>, Box<Refusal>> {
    let Some(key) = key else { return Ok(candidates) };
    candidates.retain(|client| {
        let named = || Codec::new(client.clone(), 0.0).connect(query).model;
        let model = if client.relays() { Some(String::new()) } else { named() };
        let route = service.routes.find(path, client, model.as_deref().unwrap_or_default());
        let profile = route.map(|route| route.profile.name.as_str());
        key.opens(&Goal { path, protocol: &client.name, model: model.as_deref(), profile })
    });
    if candidates.is_empty() {
        info!(key = &*key.name, path, "refused: the key is not for this");
        let words = "This key is not for what was asked for (path, protocol, model or profile)";
        return Err(Refusal::forbidden(Refused::Forbidden, "not_allowed", words));
    }
    Ok(candidates)
}

/// It knows how to shake hands.
fn handshake(request: &Request<Incoming>) -> Result<Answer, Box<Refusal>> {
    let length = request.headers().get(CONTENT_LENGTH);
    if request.headers().contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0") {
        // Who stands in front may take for its end what is the first of the session, or the other way round.
        let words = "A handshake has no body; Content-Length or Transfer-Encoding says that there is one";
        return Err(Refusal::new(Refused::BadHandshake, StatusCode::BAD_REQUEST, "bad_handshake", words));
    }
    create_response_with_body(request, Full::default).map_err(|error| {
        let (why, status) = (Refused::BadHandshake, StatusCode::BAD_REQUEST);
        // RFC 6455 §4.4: which version would have been right.
        Refusal::new(why, status, "bad_handshake", &error.to_string()).with(SEC_WEBSOCKET_VERSION, "13")
    })
}

/// The key and the address have not had their share.
fn tickets(
    service: &Service,
    shared: &Shared,
    key: Option<&Arc<Key>>,
    visitor: std::net::IpAddr,
) -> Result<Vec<Ticket>, Box<Refusal>> {
    let of_address = Quota { sessions_max: service.limits.sessions_per_address, ..Quota::default() };
    let of_key = key.map(|key| {
        let quota = Quota { sessions_max: key.sessions_max, new_per_minute: key.new_per_minute };
        (Who::Key(key.name.clone()), quota)
    });
    let all = [(Who::Address(household(visitor)), of_address)].into_iter().chain(of_key);
    let now = Instant::now().into_std();
    let taken = all.map(|(who, quota)| {
        let (why, words) = match who {
            Who::Key(_) => (Refused::KeyLimit, "this key"),
            Who::Address(_) => (Refused::AddressLimit, "this address"),
        };
        shared.quotas.take(now, who.clone(), quota).map_err(|over| {
            info!(?who, ?over, "refused: too much");
            match over {
                Over::Sessions(max) => {
                    Refusal::too_many(why, &format!("Too many sessions of {words}; at most {max}"), None)
                }
                Over::Rate(rate, retry) => {
                    let words = format!("Too many new sessions of {words}; at most {rate} a minute");
                    Refusal::too_many(Refused::RateLimit, &words, Some(retry))
                }
            }
        })
    });
    taken.collect()
}

/// There is room, and a future.
fn place(service: &Service, shared: &Shared) -> Result<OwnedSemaphorePermit, Box<Refusal>> {
    if shared.life.is_leaving() {
        return Err(Refusal::busy(Refused::Stopping, "voxbridge is stopping"));
    }
    shared.sessions.clone().try_acquire_owned().map_err(|_| {
        warn!(limit = service.sessions_max, "refused: too many sessions");
        Refusal::busy(Refused::TooManySessions, "Too many sessions")
    })
}

/// Whose request it is part of, by its headers.
fn trace_of(headers: &HeaderMap) -> Arc<TraceContext> {
    let all = |name| headers.get_all(name).into_iter();
    // Who sends what is no text has sent something: it is not nothing, and it is wrong.
    let texts = |name| all(name).map(|value| value.to_str().unwrap_or("?"));
    Arc::new(TraceContext::accept(texts(TRACEPARENT), texts(TRACESTATE), &mut fastrand::Rng::new()))
}

/// Why not, before anything is upgraded: the real gateway refuses unknown modes there, too.
fn for_nobody(service: &Service, path: &str, nobody: &Nobody) -> Box<Refusal> {
    match nobody {
        Nobody::NotFound => {
            let known: BTreeSet<_> = service.library.clients().flat_map(|client| &client.paths).collect();
            let known = known.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            let message = format!("There is nothing at {path}; WebSocket clients are served at {known}");
            Refusal::new(Refused::NotFound, StatusCode::NOT_FOUND, "not_found", &message)
        }
        Nobody::NoSuchMode(status) => {
            let status = StatusCode::from_u16(*status).unwrap_or(StatusCode::FORBIDDEN);
            Refusal::new(Refused::NoSuchMode, status, "no_such_mode", "There is no such mode")
        }
        Nobody::NoRoute(client) => {
            let message =
                format!("No route leads {client} clients anywhere; one is needed whose profile serves them");
            Refusal::forbidden(Refused::NoRoute, "no_route", &message)
        }
    }
}

/// What is agreed to: the first subprotocol a client offers that its protocol knows, for browsers fail a connection that
/// agrees to none of theirs (RFC 6455 §4.1); or the one that stands beside a key.
fn agreed(headers: &HeaderMap, candidates: &[Arc<ClientMapping>]) -> Option<HeaderValue> {
    let known = candidates.iter().find_map(|mapping| subprotocol(headers, mapping));
    known.or_else(|| offers_own_subprotocol(headers).then(|| HeaderValue::from_static(SUBPROTOCOL)))
}

fn subprotocol(offered: &HeaderMap, mapping: &ClientMapping) -> Option<HeaderValue> {
    let lines = offered.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    let mut names = lines.flat_map(|line| line.split(',')).map(str::trim);
    let agreed = names.find_map(|name| mapping.subprotocols.iter().find(|known| *known == name))?;
    HeaderValue::from_str(agreed).ok()
}
