//! Opens the bridge of a session whose protocol is known: finds its route, and says what its trace begins with.

use std::{
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant},
};

use tracing::info;

use crate::{
    bridge::Bridge,
    client::Codec,
    error::{Error, ErrorKind},
    recording::document::RecordingHead,
    server::{
        ServiceConfig, Snapshot,
        access::{ClientLimits, keys::ApiKey},
        identify::Identified,
        recordings::SessionRecording,
        route::{Route, RouteUpstreams},
        tool_servers::SessionTools,
    },
    session::{RecordOptions, RelaySetup, SessionSetup},
    spelling::{ClientMapping, client::RealtimeNames},
    telemetry::{context::TraceContext, metrics::RejectReason},
    trace::{TraceHeader, header::SessionParts},
};

/// A connection's request.
pub(crate) struct ConnectRequest {
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) peer: SocketAddr,
    /// The trace context of the request.
    pub(crate) trace_context: Arc<TraceContext>,
    pub(in crate::server) client: Identified,
    /// The client is another voxbridge.
    pub(crate) is_bridge: bool,
    /// The name by which the playground watches the session.
    pub(crate) watch_name: Option<String>,
    /// Seed of the session's ids. The answer to the handshake may have one of them.
    pub(crate) seed: u64,
}

/// The start of a session's trace.
pub(in crate::server) struct TraceStart {
    pub(in crate::server) opened: Instant,
    pub(in crate::server) header: TraceHeader,
}

/// A session that was opened, or a rejected connection.
pub(in crate::server) struct OpenedSession {
    pub(in crate::server) bridge: Bridge,
    /// The upstreams that serve it.
    pub(in crate::server) upstreams: RouteUpstreams,
    /// Since 1970.
    pub(in crate::server) opened_unix: Duration,
    /// The profile's name; `None` if the connection is rejected.
    pub(in crate::server) profile: Option<String>,
    /// The start of its trace, if it is traced.
    pub(in crate::server) start: Option<TraceStart>,
    /// Why the connection is rejected.
    pub(in crate::server) rejection: Option<RejectReason>,
    /// The tool servers that its profile names.
    pub(in crate::server) tools: Option<SessionTools>,
    /// Whether it is to be recorded.
    pub(in crate::server) wish: RecordingWish,
}

/// A profile's wish for a recording.
#[derive(Debug, Clone, Copy)]
pub(in crate::server) struct RecordingWish {
    /// The start of the session on its own clock.
    opened: Instant,
    is_in_profile: bool,
}

/// Opens the bridge of a session. Without a route, the bridge answers with the error; that is no session and has no
/// trace.
pub(in crate::server) fn open_session(
    request: &ConnectRequest,
    Snapshot { server, config }: &Snapshot,
    limits: ClientLimits,
    is_traced: bool,
) -> Option<OpenedSession> {
    let mapping = request.client.likeliest();
    let (now, opened_unix) = (tokio::time::Instant::now().into_std(), unix_now());
    let mut codec = Codec::new(mapping.clone(), opened_unix.as_secs_f64());
    let connect = codec.decode_query(&request.query);
    let found = match &connect.model {
        None => Err(Error::new(ErrorKind::NoModel, "")),
        Some(model) => config
            .routes
            .find(&request.path, mapping, model)
            .filter(|_| !model.is_empty())
            .ok_or_else(|| Error::new(ErrorKind::UnknownModel, model.clone())),
    };
    let route = match found {
        Ok(route) => route,
        Err(error) => {
            info!(%error, "rejected: no route for the requested model");
            let rejection = Some(RejectReason::UnknownModel);
            let upstreams = config.routes.iter().next()?.upstreams.clone();
            let bridge = Bridge::reject(now, codec, upstreams.dialects.clone(), &error);
            return Some(OpenedSession {
                bridge,
                upstreams,
                opened_unix,
                profile: None,
                start: None,
                rejection,
                tools: None,
                wish: RecordingWish { opened: now, is_in_profile: false },
            });
        }
    };
    let dialects = &route.upstreams.dialects;
    let mut setup = SessionSetup::new(mapping, route.profile.clone(), dialects, request.seed);
    setup.audio_in.idle_ms = config.idle_ms.unwrap_or(setup.audio_in.idle_ms);
    setup.session_max_ms = limits.session_duration_max_ms;
    setup.voice_catalog = config.voices.clone();
    setup.has_turn_judge = server.turn_judge.is_some();
    setup.asks_soon = request.is_bridge;
    let start = is_traced.then(|| {
        let parts = SessionParts {
            library: &config.library,
            client: mapping,
            dialects,
            query: &request.query,
            opened_unix,
        };
        TraceStart { opened: now, header: TraceHeader::new(parts, &setup) }
    });
    let bridge = Bridge::open(now, codec, connect, dialects.clone(), setup);
    let profile = Some(route.profile.name.clone());
    let upstreams = route.upstreams.clone();
    let names_servers = mapping.realtime.as_ref().is_some_and(RealtimeNames::serves_tool_servers);
    let allowed = Some(&config.access.tool_servers).filter(|_| names_servers);
    let tools = SessionTools::new(&server.tool_servers, route.profile.tool_servers(), allowed);
    let wish = RecordingWish { opened: now, is_in_profile: route.profile.record };
    Some(OpenedSession { bridge, upstreams, opened_unix, profile, start, rejection: None, tools, wish })
}

/// Opens the bridge of a relayed client. Its request was checked before the upgrade.
pub(in crate::server) fn open_relay_session(
    request: &ConnectRequest,
    config: &ServiceConfig,
    limits: ClientLimits,
    is_traced: bool,
) -> Option<OpenedSession> {
    let (now, opened_unix) = (tokio::time::Instant::now().into_std(), unix_now());
    let (client, candidates) = (request.client.likeliest(), request.client.candidates());
    let Route { profile, upstreams, .. } = config.routes.find(&request.path, client, "")?;
    let setup = RelaySetup {
        profile: profile.clone(),
        idle_ms: config.idle_ms,
        session_max_ms: limits.session_duration_max_ms,
        unix_s: opened_unix.as_secs_f64(),
        seed: request.seed,
    };
    let start = is_traced.then(|| {
        let (library, dialects, query) = (&config.library, &upstreams.dialects, request.query.as_str());
        let parts = SessionParts { library, client, dialects, query, opened_unix };
        let header = TraceHeader::relayed(parts, &candidates[1..], &setup);
        TraceStart { opened: now, header: header.with_default_voice(config.voices.default_voice()) }
    });
    let bridge = Bridge::open_relay(now, candidates, &request.query, upstreams.dialects.clone(), setup);
    let bridge = match config.voices.default_voice() {
        Some(voice) => bridge.with_default_voice(voice.clone()),
        None => bridge,
    };
    let profile = Some(profile.name.clone());
    let upstreams = upstreams.clone();
    let wish = RecordingWish { opened: now, is_in_profile: false };
    Some(OpenedSession { bridge, upstreams, opened_unix, profile, start, rejection: None, tools: None, wish })
}

/// What a recording says about its session.
pub(in crate::server) struct RecordedSession<'a> {
    /// `None` for a rejected connection.
    pub(in crate::server) profile: Option<&'a str>,
    pub(in crate::server) key: Option<&'a ApiKey>,
    /// Since 1970.
    pub(in crate::server) opened_unix: Duration,
    pub(in crate::server) wish: RecordingWish,
}

/// Starts the recording of a session, if its profile or key wants it and voxbridge hears the audio while it is spoken: not of a
/// relayed session, whose audio it does not decode, and not of a request with files. The bridge gives what is recorded or told.
pub(in crate::server) fn start_recording(
    Snapshot { server, config }: &Snapshot,
    client: &ClientMapping,
    bridge: Bridge,
    session: RecordedSession<'_>,
) -> (Bridge, Option<SessionRecording>) {
    let RecordedSession { profile, key, opened_unix, wish } = session;
    let is_wanted = config.records_all_sessions || wish.is_in_profile || key.is_some_and(|key| key.record);
    let is_recorded = is_wanted && !client.is_relayed() && !client.is_rest;
    let recording = config.recordings.as_ref().zip(profile).filter(|_| is_recorded);
    let recording = recording.map(|(recordings, profile)| {
        let head = RecordingHead {
            session: bridge.session_id().to_owned(),
            client: client.name.clone(),
            profile: profile.to_owned(),
            key: key.map(|key| key.name.to_string()),
            opened_unix_ms: u64::try_from(opened_unix.as_millis()).unwrap_or(u64::MAX),
        };
        recordings.start_session(wish.opened, head, server.drain_guard.clone())
    });
    let audio = recording.is_some();
    let bridge = bridge.record(RecordOptions { audio, events: audio || server.webhooks.is_some() });
    (bridge, recording)
}

#[expect(clippy::disallowed_methods, reason = "the only place where a session reads the wall clock")]
pub(crate) fn unix_now() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
