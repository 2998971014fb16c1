//! Everything that touches a socket: accepting clients, dialling upstreams, driving sessions.
//!
//! - [`accept`] answers HTTP and upgrades; [`open`] begins a session: [`recognise`] finds out which protocol it speaks,
//!   [`route`] what serves it
//! - [`drive`] is the one task of a session: sockets on one side, the [`crate::bridge`] on the other
//! - [`lines`] polls its sockets, [`socket`] is one of them, [`dial`] opens those towards upstreams, [`tap`] looks on
//! - [`observer`] lets operators see what a session does
//! - [`live`] knows the sessions that run, and gives them orders
//! - [`trace`] writes what sessions do to files
//! - [`pool`] chooses among upstreams; [`feedback`] tells it what sessions say of theirs

mod accept;
pub mod dial;
mod drive;
mod feedback;
mod lines;
pub mod live;
mod observer;
mod open;
pub mod pool;
mod recognise;
pub mod route;
mod socket;
pub mod tap;
pub mod trace;

use std::{
    io,
    net::SocketAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, watch},
};
use tracing::{info, warn};

use self::{live::Registry, pool::Pool, route::Routes, tap::Tap, trace::Traces};
use crate::{
    mapping::Library,
    session::VoiceBook,
    telemetry::{
        access_log::AccessLog,
        metrics::{
            Metrics,
            scrape::{Seen, SeenUpstream},
        },
    },
};

/// After the order to stop, sessions have this long: five seconds a transcript may take, ten until answers for nobody are
/// given up, three for the lanes' polite end. Service managers grant thirty.
const STOP_WITHIN: Duration = Duration::from_secs(15);

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
    fn new(service: Service) -> Self {
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

/// A server whose address is bound.
pub struct Server {
    listener: TcpListener,
    service: Current,
    registry: Registry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
}

impl Server {
    /// Binds the address.
    ///
    /// # Errors
    /// The system's own, such as an address in use.
    pub async fn bind(listen: &str, service: Service) -> io::Result<Self> {
        let listener = TcpListener::bind(listen).await?;
        let (service, registry) = (Current::new(service), Registry::default());
        let (current, sessions) = (service.clone(), registry.clone());
        let metrics = Metrics::new(move || seen(&current.get(), &sessions));
        Ok(Self { listener, service, registry, metrics, access_log: None })
    }

    /// The address, with the port the system chose.
    ///
    /// # Errors
    /// The system's own.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// What new sessions are served with, to be replaced while it runs.
    #[must_use]
    pub fn current(&self) -> Current {
        self.service.clone()
    }

    /// The sessions that run.
    #[must_use]
    pub fn registry(&self) -> Registry {
        self.registry.clone()
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Every session that ends from now on has a line there.
    pub fn log_access(&mut self, log: AccessLog) {
        self.access_log = Some(log);
    }

    /// Serves until `stop` is done, then lets sessions finish within a bound.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let (draining, drain) = watch::channel(false);
        let (alive, mut none_left) = mpsc::channel::<()>(1);
        let shared = Arc::new(Shared {
            sessions: Arc::new(Semaphore::new(self.service.get().sessions_max)),
            service: self.service,
            registry: self.registry,
            metrics: self.metrics,
            access_log: self.access_log,
            drain,
            alive,
        });
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => accept::spawn(stream, peer, shared.clone()),
                    Err(error) => {
                        // Out of file descriptors, mostly: sessions go on, and so must accepting.
                        warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
            }
        }
        drop(self.listener);
        info!("stopping: sessions finish what is being said");
        draining.send_replace(true);
        drop(shared);
        if tokio::time::timeout(STOP_WITHIN, none_left.recv()).await.is_err() {
            warn!("some sessions did not finish in time");
        }
    }
}

/// What metrics want to know when they are asked.
fn seen(service: &Service, registry: &Registry) -> Seen {
    let sessions = registry.all().into_iter();
    let kind = |live: Arc<live::Live>| {
        (live.who.client.as_str().into(), live.who.profile.as_str().into(), live.state())
    };
    let upstream = |(name, standing): (String, pool::Standing)| SeenUpstream {
        name,
        in_service: standing.burden.out_until.is_none(),
        load: standing.burden.lanes,
        failures: standing.failures,
        left_out: standing.left_out,
    };
    Seen {
        sessions: sessions.map(kind).collect(),
        upstreams: service.pool.standing().into_iter().map(upstream).collect(),
        trace_lines_lost: service.traces.as_ref().map_or(0, |traces| traces.lost()),
    }
}

/// What every connection shares.
struct Shared {
    service: Current,
    sessions: Arc<Semaphore>,
    registry: Registry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
    drain: watch::Receiver<bool>,
    /// Held by every connection; when all are gone its channel ends.
    alive: mpsc::Sender<()>,
}

impl Shared {
    fn service(&self) -> Arc<Service> {
        self.service.get()
    }
}
