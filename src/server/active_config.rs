//! What new sessions are served with, all of it together: it is found and checked as a whole, and replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    access::{AccessPolicy, ClientLimits},
    process::lifecycle::DrainPolicy,
    route::Routes,
    tap::Tap,
    tls::ReloadableAcceptor,
    trace_files::TraceDirectory,
    upstream_pool::Pool,
};
use crate::{mapping::Library, session::VoiceCatalog};

/// What a server is made of.
pub struct ServiceConfig {
    /// Client protocols, profiles, dialects.
    pub library: Library,
    /// What serves which connection.
    pub routes: Routes,
    /// All upstreams; routes go to parts of it.
    pub pool: Pool,
    /// Voices by name.
    pub voices: Arc<VoiceCatalog>,
    /// A session without a binary frame for this long is closed, ms; 0 for never, `None` for what the protocol says.
    pub idle_ms: Option<u64>,
    /// Sessions at a time; more are refused with HTTP 503.
    pub sessions_max: usize,
    /// How it takes leave.
    pub drain_policy: DrainPolicy,
    /// Who may in.
    pub access: AccessPolicy,
    /// How much of everything else.
    pub limits: ClientLimits,
    /// How clients are encrypted; `None` for not at all.
    pub tls: Option<ReloadableAcceptor>,
    /// Sees every frame.
    pub tap: Option<Arc<dyn Tap>>,
    /// Where sessions are recorded.
    pub traces: Option<Arc<TraceDirectory>>,
}

impl ServiceConfig {
    /// This, with what another one knows of upstreams that both have.
    #[must_use]
    pub fn with_upstream_state_of(mut self, previous: &Self) -> Self {
        self.pool = self.pool.with_state_of(&previous.pool);
        self.routes.use_pool(&self.pool);
        self
    }
}

/// What new sessions are served with; it may be another one from one session to the next.
#[derive(Clone)]
pub struct ActiveConfig(Arc<RwLock<Arc<ServiceConfig>>>);

impl ActiveConfig {
    pub(super) fn new(config: ServiceConfig) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(config))))
    }

    /// What new sessions are served with now.
    #[must_use]
    pub fn get(&self) -> Arc<ServiceConfig> {
        // It is replaced as a whole, whatever panicked.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves new sessions with this. Those that are open keep what they have; how many there may be stays as it was.
    pub fn replace(&self, config: ServiceConfig) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }
}
