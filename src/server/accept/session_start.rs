//! A client's session from the upgrade to its end: which protocol it speaks, what serves it, the task that drives it.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::{Message, protocol::Role};
use tracing::{Instrument as _, debug, error_span, info};

use super::{Admission, protocol_detection};
use crate::server::{
    Service, Shared,
    access::Limits,
    registry::{
        Who,
        observer::{Observer, Sinks},
    },
    route::{Route, Upstreams},
    session_task::{Around, Driver, Place},
    websocket::{
        Wire,
        outbox::{Metered, limits},
        stream::ClientStream,
    },
};
use crate::{
    bridge::Bridge,
    downstream::Codec,
    error::{Error, ErrorKind},
    mapping::ClientMapping,
    net::Counted,
    session::{RelaySetup, Setup},
    telemetry::{context::TraceContext, metrics::Refused},
    trace::{Start, start::Parts},
};

/// What a connection asked for.
pub(crate) struct Visit {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) peer: SocketAddr,
    /// Whose request it is part of.
    pub(crate) trace: Arc<TraceContext>,
    /// The protocols it may speak, the likeliest first.
    pub(crate) candidates: Vec<Arc<ClientMapping>>,
}

/// Serves a session until its end.
pub(crate) async fn session(
    upgraded: OnUpgrade,
    mut visit: Visit,
    (shared, service): (Arc<Shared>, Arc<Service>),
    admission: Admission,
) {
    let most = service.limits.with(admission.key.as_deref());
    let Some(mut client) = websocket(upgraded, &visit, most).await else { return };
    let Ok(first) = recognised(&mut client, &mut visit, &service).await else { return };
    let Some(mapping) = visit.candidates.first() else { return };
    let opened = match mapping.relays() {
        true => relay(&visit, &service, most),
        false => open(mapping, &visit, &service, most),
    };
    let Some(Opened { bridge, upstreams, profile, start, refused }) = opened else { return };
    // A connection that is refused after all is no session, and has no id.
    let profile = profile.filter(|_| !bridge.session_id().is_empty());
    let start = start.filter(|_| profile.is_some());
    // Of the highest level, so that whatever is logged says which session it is about.
    let (peer, trace_id) = (visit.peer, visit.trace.trace_id);
    let key = admission.key.as_deref().map(|key| &*key.name);
    let span = error_span!("session", id = bridge.session_id(), client = mapping.name, %peer, key, %trace_id);
    let trace = service.traces.as_ref().zip(start).map(|(traces, (opened, start))| {
        let _in = span.enter();
        traces.begin(opened, bridge.session_id(), start, shared.alive.clone())
    });
    if profile.is_none() {
        shared.metrics.refused(refused.unwrap_or(Refused::BadRequest));
    }
    let place = profile.map(|profile| place(&shared, &visit, &admission, (&bridge, profile), &client));
    let (tap, drain, alive) = (service.tap.clone(), shared.drain.clone(), shared.alive.clone());
    let close_within = service.leave.within;
    let around = Around { tap, trace, context: visit.trace, place, drain, close_within, alive };
    let driver = Box::new(Driver::new(bridge, client, upstreams.pool, around));
    drop((shared, service));
    driver.run(first).instrument(span).await;
    drop(admission);
}

/// The client's WebSocket, with its limits.
async fn websocket(
    upgraded: OnUpgrade,
    visit: &Visit,
    most: Limits,
) -> Option<Metered<Counted<ClientStream>>> {
    let (stream, read) = raw_stream(upgraded, visit.peer).await?;
    let message_max = visit.candidates.iter().map(|client| client.audio_in.message_max_bytes).max();
    let message_max = message_max.into_iter().chain(most.message_max_bytes).min();
    let limits = limits(message_max.unwrap_or_default());
    let (stream, traffic) = Counted::new(stream);
    Some(Metered { stream: Wire::new(stream, read, Role::Server, limits), traffic })
}

/// Finds out which protocol it speaks, where that makes a difference: by its first message, which is given back. An error
/// if it left before.
async fn recognised(
    client: &mut Metered<Counted<ClientStream>>,
    visit: &mut Visit,
    service: &Service,
) -> Result<Option<Message>, ()> {
    if leads_one_way(visit, service) {
        return Ok(None);
    }
    let Ok(first) = protocol_detection::first_message(&mut client.stream).await else {
        debug!(peer = %visit.peer, "left before it was known which protocol it speaks");
        return Err(());
    };
    visit.candidates = protocol_detection::by_message(&visit.candidates, first.as_ref());
    Ok(first)
}

/// Its place among the sessions that run.
fn place(
    shared: &Shared,
    visit: &Visit,
    admission: &Admission,
    (bridge, profile): (&Bridge, String),
    client: &Metered<Counted<ClientStream>>,
) -> Place {
    let who = Who {
        id: bridge.session_id().to_owned(),
        client: visit.candidates.first().map(|client| client.name.clone()).unwrap_or_default(),
        profile,
        converses: bridge.converses(),
        peer: visit.peer,
        path: visit.path.clone(),
        key: admission.key.as_ref().map(|key| key.name.clone()),
        subject: admission.subject.clone(),
        opened_unix: unix_now(),
    };
    let (entry, orders) = shared.registry.begin(who);
    let (metrics, access_log) = (shared.metrics.clone(), shared.access_log.clone());
    let sinks = Sinks { metrics, access_log, trace: visit.trace.clone() };
    let observer = Observer::begin(entry.live(), client.traffic.clone(), sinks);
    Place { entry, orders, observer }
}

/// Whichever of its protocols it speaks, one session serves it: those that are relayed begin alike, and one that is led to
/// the same upstreams finds out by itself.
fn leads_one_way(visit: &Visit, service: &Service) -> bool {
    let mut routes = visit.candidates.iter().map(|client| {
        let route = service.routes.find(&visit.path, client, "").filter(|_| client.relays());
        route.map(std::ptr::from_ref)
    });
    let first = routes.next();
    visit.candidates.len() < 2 || routes.all(|route| route.is_some() && Some(route) == first)
}

/// The byte stream under an upgraded connection, and what was read of it beyond the head.
async fn raw_stream(upgraded: OnUpgrade, peer: SocketAddr) -> Option<(ClientStream, Vec<u8>)> {
    let upgraded = match upgraded.await {
        Ok(upgraded) => upgraded,
        Err(error) => {
            debug!(%peer, %error, "the upgrade did not happen");
            return None;
        }
    };
    let parts = upgraded.downcast::<TokioIo<ClientStream>>().ok()?;
    Some((parts.io.into_inner(), parts.read_buf.to_vec()))
}

/// A session that begins.
struct Opened {
    bridge: Bridge,
    /// Who serves it.
    upstreams: Upstreams,
    /// By which profile; none where it is refused.
    profile: Option<String>,
    /// How its trace begins, where it is traced.
    start: Option<(Instant, Start)>,
    /// Why it is refused, where that was found out here.
    refused: Option<Refused>,
}

/// The bridge for a connection; one that says why not when there is nobody to serve it, which is no session and has no
/// trace.
fn open(mapping: &Arc<ClientMapping>, visit: &Visit, service: &Service, most: Limits) -> Option<Opened> {
    let (now, opened_unix) = (tokio::time::Instant::now().into_std(), unix_now());
    let mut codec = Codec::new(mapping.clone(), opened_unix.as_secs_f64());
    let connect = codec.connect(&visit.query);
    let found = match &connect.model {
        None => Err(Error::new(ErrorKind::NoModel, "")),
        Some(model) => service
            .routes
            .find(&visit.path, mapping, model)
            .filter(|_| !model.is_empty())
            .ok_or_else(|| Error::new(ErrorKind::UnknownModel, model.clone())),
    };
    let route = match found {
        Ok(route) => route,
        Err(error) => {
            info!(%error, "refused");
            let refused = Some(Refused::UnknownModel);
            let upstreams = service.routes.iter().next()?.upstreams.clone();
            let bridge = Bridge::refuse(now, codec, upstreams.dialect.clone(), &error);
            return Some(Opened { bridge, upstreams, profile: None, start: None, refused });
        }
    };
    let dialect = &route.upstreams.dialect;
    let mut setup = Setup::new(mapping, route.profile.clone(), dialect, fastrand::u64(..));
    setup.audio_in.idle_ms = service.idle_ms.unwrap_or(setup.audio_in.idle_ms);
    setup.session_max_ms = most.session_max_ms;
    setup.voices = service.voices.clone();
    let start = service.traces.is_some().then(|| {
        let parts =
            Parts { library: &service.library, client: mapping, dialect, query: &visit.query, opened_unix };
        (now, Start::new(parts, &setup))
    });
    let bridge = Bridge::open(now, codec, connect, dialect.clone(), setup);
    let profile = Some(route.profile.name.clone());
    Some(Opened { bridge, upstreams: route.upstreams.clone(), profile, start, refused: None })
}

/// The bridge for a client that is relayed; what it was refused for was said before the upgrade.
fn relay(visit: &Visit, service: &Service, most: Limits) -> Option<Opened> {
    let (now, opened_unix) = (tokio::time::Instant::now().into_std(), unix_now());
    let client = visit.candidates.first()?;
    let Route { profile, upstreams, .. } = service.routes.find(&visit.path, client, "")?;
    let setup = RelaySetup {
        profile: profile.clone(),
        idle_ms: service.idle_ms,
        session_max_ms: most.session_max_ms,
        unix_s: opened_unix.as_secs_f64(),
        seed: fastrand::u64(..),
    };
    let start = service.traces.is_some().then(|| {
        let (library, dialect, query) = (&service.library, &upstreams.dialect, visit.query.as_str());
        let parts = Parts { library, client, dialect, query, opened_unix };
        (now, Start::relayed(parts, &visit.candidates[1..], &setup))
    });
    let bridge = Bridge::open_relay(now, &visit.candidates, &visit.query, upstreams.dialect.clone(), setup);
    // A relay refuses in its own words, and has no id then.
    let profile = Some(profile.name.clone()).filter(|_| !bridge.session_id().is_empty());
    Some(Opened { bridge, upstreams: upstreams.clone(), profile, start, refused: None })
}

#[expect(clippy::disallowed_methods, reason = "the one place where a session learns the wall clock")]
pub(crate) fn unix_now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
