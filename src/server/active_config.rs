//! What new sessions are served with, all of it together: it is found and checked as a whole, and replaced as a whole.

use std::sync::{Arc, PoisonError, RwLock};

use super::{
    access::{Access, Limits},
    process::lifecycle::Leave,
    route::Routes,
    tap::Tap,
    tls::Acceptor,
    trace_files::Traces,
    upstream_pool::Pool,
};
use crate::{mapping::Library, session::VoiceBook};

/// What a server is made of.
pub struct Service {
    /// Client protocols, profiles, dialects.
    pub library: Library,
    /// What serves which connection.
    pub routes: Routes,
    /// All upstreams; routes go to parts of it.
    pub pool: Pool,
    /// Voices by name.
    pub voices: Arc<VoiceBook>,
    /// A session without a binary frame for this long is closed, ms; 0 for never, `None` for what the protocol says.
    pub idle_ms: Option<u64>,
    /// Sessions at a time; more are refused with HTTP 503.
    pub sessions_max: usize,
    /// How it takes leave.
    pub leave: Leave,
    /// Who may in.
    pub access: Access,
    /// How much of everything else.
    pub limits: Limits,
    /// How clients are encrypted; `None` for not at all.
    pub tls: Option<Acceptor>,
    /// Sees every frame.
    pub tap: Option<Arc<dyn Tap>>,
    /// Where sessions are recorded.
    pub traces: Option<Arc<Traces>>,
}

impl Service {
    /// This, with what another one knows of upstreams that both have.
    #[must_use]
    pub fn keeping(mut self, other: &Self) -> Self {
        self.pool = self.pool.keeping(&other.pool);
        self.routes.go_to(&self.pool);
        self
    }
}

/// What new sessions are served with; it may be another one from one session to the next.
#[derive(Clone)]
pub struct Current(Arc<RwLock<Arc<Service>>>);

impl Current {
    pub(super) fn new(service: Service) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(service))))
    }

    /// What new sessions are served with now.
    #[must_use]
    pub fn get(&self) -> Arc<Service> {
        // It is replaced as a whole, whatever panicked.
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Serves new sessions with this. Those that are open keep what they have; how many there may be stays as it was.
    pub fn replace(&self, service: Service) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(service);
    }
}
