//! The configuration that new sessions use. It is checked as a whole and replaced as a whole.

use std::{
    collections::BTreeMap,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use super::{
    access::{AccessPolicy, ClientLimits},
    process::lifecycle::DrainPolicy,
    recordings::RecordingDirectory,
    rest::PROTOCOL as REST_PROTOCOL,
    route::Routes,
    tap::Tap,
    tls::ReloadableAcceptor,
    tool_servers::ToolServerSettings,
    trace_files::TraceDirectory,
    upstream_pool::Pool,
    webhooks::WebhookSettings,
};
use crate::{
    session::VoiceCatalog,
    spelling::{ClientMapping, Library},
};

/// Everything a server is configured with.
pub struct ServiceConfig {
    /// Client protocols, profiles and upstream dialects.
    pub library: Library,
    /// Which profile and upstreams serve which connection.
    pub routes: Routes,
    /// All upstreams; each route uses a subset.
    pub pool: Pool,
    /// Voices by name.
    pub voices: Arc<VoiceCatalog>,
    /// Closes a session without a binary frame for this long, ms; 0 for never, `None` for the protocol's own limit.
    pub idle_ms: Option<u64>,
    /// Limit on concurrent sessions; further clients are rejected with HTTP 503.
    pub sessions_max: usize,
    /// How the server drains.
    pub drain_policy: DrainPolicy,
    /// Rules for admission.
    pub access: AccessPolicy,
    /// Per-client limits.
    pub limits: ClientLimits,
    /// TLS towards clients; `None` for plain TCP.
    pub tls: Option<ReloadableAcceptor>,
    /// Servers of tools. Those of the start serve until the end.
    pub tool_servers: Vec<ToolServerSettings>,
    /// Servers that are told about sessions. Those of the start are told until the end.
    pub webhooks: Option<WebhookSettings>,
    /// Sees every frame of every session.
    pub tap: Option<Arc<dyn Tap>>,
    /// Where traces are written; `None` for no traces.
    pub traces: Option<Arc<TraceDirectory>>,
    /// Where sessions are recorded; `None` for no recordings.
    pub recordings: Option<Arc<RecordingDirectory>>,
    /// Serves the playground.
    pub playground: bool,
    /// True if this program also simulates the model, so that the playground says so.
    pub simulated: bool,
    /// Errors for clients contain the addresses of unreachable upstreams. Set only where the operator is the client.
    pub tells_upstream_addresses: bool,
    /// All sessions are recorded, whatever their profile says.
    pub records_all_sessions: bool,
}

impl ServiceConfig {
    /// Takes over what `previous` knows of the upstreams that both configurations have.
    #[must_use]
    pub fn with_upstream_state_of(mut self, previous: &Self) -> Self {
        self.pool = self.pool.with_state_of(&previous.pool);
        self
    }

    /// URL of the playground at this address, if it is served.
    pub fn playground_url(&self, address: &str) -> Option<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        self.playground.then(|| format!("{scheme}://{address}{}", super::playground::PATH))
    }

    /// Name of the profile that serves most clients of a protocol: that of the first route for them.
    pub fn usual_profile(&self, protocol: &str) -> Option<String> {
        let client = self.library.client(protocol).ok()?;
        let route = self.routes.iter().find(|route| route.model == "*" && route.can_serve(&client));
        route
            .or_else(|| self.routes.iter().find(|route| route.can_serve(&client)))
            .map(|it| it.profile.name.clone())
    }

    /// The protocols and profiles of sessions that routes lead to.
    pub fn session_kinds(&self) -> Vec<(Arc<str>, Arc<str>)> {
        self.routes.session_kinds(&self.library)
    }

    /// The protocols that a route serves.
    fn served_clients(&self) -> impl Iterator<Item = &Arc<ClientMapping>> {
        self.library.clients().filter(|client| self.routes.can_serve(client))
    }

    /// The protocols that routes serve at the addresses for HTTP and WebSockets: their names by family.
    pub fn served_families(&self) -> BTreeMap<&str, Vec<&str>> {
        let mut families: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        let is_listened_for = |client: &&Arc<ClientMapping>| !client.paths.is_empty() || client.is_rest;
        for client in self.served_clients().filter(is_listened_for) {
            families.entry(&client.family).or_default().push(&client.name);
        }
        families
    }

    /// URL for WebSocket clients at this address, without a path.
    pub fn websocket_url(&self, address: &str) -> String {
        format!("{}://{address}", self.websocket_scheme())
    }

    /// Scheme of URLs for WebSocket clients.
    pub const fn websocket_scheme(&self) -> &'static str {
        if self.tls.is_some() { "wss" } else { "ws" }
    }

    /// URLs for clients at this address: the name of each protocol that a route serves, and an example for each of its
    /// paths.
    pub fn client_urls(&self, address: &str) -> Vec<(String, String)> {
        let base = self.websocket_url(address);
        let urls = self.served_clients().flat_map(|client| {
            let model = client.required_model_parameter().map(|model| format!("?{model}=NAME"));
            let mode = client.relay.as_ref().and_then(|relay| {
                let mode = relay.mode.values.keys().next()?;
                Some(format!("?{}={mode}", relay.mode.key))
            });
            let query = model.or(mode).unwrap_or_default();
            let base = base.clone();
            let url = move |path: &String| format!("{base}{path}{query}");
            // Some libraries double the first slash. People need not.
            let paths = client.paths.iter().filter(|path| !path.starts_with("//"));
            paths.map(move |path| (client.name.clone(), url(path)))
        });
        let rest = self.served_clients().any(|client| client.name == REST_PROTOCOL);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let rest =
            rest.then(|| (REST_PROTOCOL.to_owned(), format!("{scheme}://{address}/v1/audio/transcriptions")));
        urls.chain(rest).collect()
    }
}

/// The current [`ServiceConfig`], which a reload replaces between two sessions.
#[derive(Clone)]
pub struct ActiveConfig(Arc<RwLock<Arc<ServiceConfig>>>);

impl ActiveConfig {
    pub(super) fn new(config: ServiceConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    /// The configuration for new sessions.
    pub fn get(&self) -> Arc<ServiceConfig> {
        // The value is replaced as a whole, so a poisoned lock holds a valid one.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the configuration for new sessions. Open sessions keep theirs, and the session limit stays as it was.
    pub fn replace(&self, config: ServiceConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Probes idle upstreams of the current configuration, and asks gateways for their idle workers: the readiness check of
    /// the admin listener needs that, and a choice among several upstreams.
    pub fn probe_upstreams(&self, has_admin: bool) {
        let config = self.get();
        let pool = &config.pool;
        if has_admin || pool.usable_and_total().1 > 1 {
            pool.probe_idle();
        }
    }

    /// Does so at this interval, for ever: readiness depends on upstreams that died unused.
    pub async fn probe_upstreams_every(self, interval: Duration, has_admin: bool) {
        self.probe_upstreams(has_admin);
        // Replicas that start together do not probe together.
        tokio::time::sleep(interval.mul_f64(fastrand::f64())).await;
        let mut ticks = tokio::time::interval(interval);
        loop {
            ticks.tick().await;
            self.probe_upstreams(has_admin);
        }
    }
}
