//! Everything that touches a socket: accepting clients, dialling upstreams, driving sessions.
//!
//! - [`service`] is what new sessions are served with
//! - [`mod@accept`] answers HTTP and upgrades who may in by [`access`], or says why not ([`refusal`]); [`open`] begins a
//!   session: [`recognise`] finds out which protocol it speaks, [`route`] what serves it
//! - [`descriptors`] sees to it that the system lets it open enough
//! - [`workers`] are the threads sessions run on; [`drive`] is the one task of a session: sockets on one side, the [`crate::bridge`] on the other
//! - [`lines`] polls its sockets, [`socket`] is one of them, [`dial`] opens those towards upstreams, [`tap`] looks on
//! - [`observer`] lets operators see what a session does
//! - [`live`] knows the sessions that run, and gives them orders; [`life`] is the server's own from start to end
//! - [`admin`] is what operators see and do, at an address apart from the clients'; [`notify`] tells the service manager
//! - [`trace`] writes what sessions do to files
//! - [`tls`] encrypts what clients send and are sent, [`stream`] is what it does so on, [`clocked`] what is under both
//! - [`pool`] chooses among upstreams; [`feedback`] tells it what sessions say of theirs

mod accept;
pub mod access;
mod active_config;
pub(crate) mod adaptive_read;
pub mod admin;
pub mod process;
pub mod registry;
pub mod route;
mod session_task;
pub mod tap;
pub mod tls;
pub mod trace_files;
pub mod upstream_pool;
mod websocket;

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use tokio::{
    net::TcpListener,
    sync::{Semaphore, mpsc, oneshot, watch},
    time::timeout,
};
use tracing::{info, warn};

pub use self::active_config::{Current, Service};
use self::{
    access::{handshakes::Handshakes, quota::Quotas},
    process::{
        lifecycle::{Ended, Leave, Life, State},
        workers::Workers,
    },
    registry::Registry,
};
use crate::telemetry::{
    access_log::AccessLog,
    metrics::{
        Metrics, Refused,
        scrape::{Seen, SeenUpstream},
    },
};

/// A server whose address is bound.
pub struct Server {
    listener: TcpListener,
    service: Current,
    registry: Registry,
    metrics: Metrics,
    access_log: Option<AccessLog>,
    workers: Option<Workers>,
    room: Room,
    life: Life,
    pulse: (Pulse, mpsc::Receiver<Beat>),
}

/// An answer that only who accepts connections can give.
type Beat = oneshot::Sender<()>;

/// A way to ask whether connections are still accepted.
#[derive(Debug, Clone)]
pub struct Pulse(mpsc::Sender<Beat>);

impl Pulse {
    /// Done when the loop that accepts connections, or that waits for the last sessions, has come round; never if it does
    /// not.
    pub async fn beat(&self) {
        let (beat, beaten) = oneshot::channel();
        if self.0.send(beat).await.is_err() || beaten.await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

/// How many sessions there may be.
#[derive(Debug, Clone)]
pub struct Room {
    places: Arc<Semaphore>,
    /// All of them, taken or not.
    pub max: usize,
}

impl Room {
    fn of(max: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(max)), max }
    }

    /// How many more.
    #[must_use]
    pub fn left(&self) -> usize {
        self.places.available_permits()
    }

    /// Done when nobody has a place.
    async fn is_empty(&self) {
        let all = u32::try_from(self.max).unwrap_or(u32::MAX);
        // Nobody closes it.
        let _ = self.places.acquire_many(all).await;
    }
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
        let (ask, asked) = mpsc::channel(1);
        let room = Room::of(service.get().sessions_max);
        Ok(Self {
            listener,
            service,
            registry,
            metrics,
            access_log: None,
            workers: None,
            room,
            life: Life::default(),
            pulse: (Pulse(ask), asked),
        })
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

    /// How many sessions there may be.
    #[must_use]
    pub fn room(&self) -> Room {
        self.room.clone()
    }

    /// Its life, to be watched and ended.
    #[must_use]
    pub fn life(&self) -> Life {
        self.life.clone()
    }

    /// Whether it still accepts.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.0.clone()
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

    /// Sessions run on these threads; on those that accept them unless this is said.
    pub fn run_on(&mut self, workers: Workers) {
        self.workers = Some(workers);
    }

    /// Serves until `stop` is done, then lets sessions finish within a bound.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let life = self.life.clone();
        let stopping = async {
            stop.await;
            life.drain();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = self.serve() => {}
            () = stopping => {}
        }
    }

    /// Serves until its life is to end, then lets sessions finish within a bound.
    pub async fn serve(self) -> Ended {
        let Self { listener, service, registry, metrics, access_log, workers, room, life, pulse } = self;
        let (_, mut asked) = pulse;
        let ((draining, drain), (cutting, cut)) = (watch::channel(None), watch::channel(false));
        let (alive, none_left) = mpsc::channel::<()>(1);
        let (sessions, lines) = (room.clone(), access_log.clone());
        let shared = Arc::new(Shared {
            sessions: room.places.clone(),
            service: service.clone(),
            registry: registry.clone(),
            life: life.clone(),
            metrics,
            access_log,
            workers: workers.unwrap_or_else(Workers::here),
            quotas: Quotas::default(),
            handshakes: Handshakes::default(),
            drain,
            cut,
            alive,
        });
        life.serve();
        accept(&listener, &shared, &mut asked, life.reached(State::Draining)).await;
        let Leave { grace, within } = service.get().leave;
        info!(sessions = registry.len(), "draining: no new sessions");
        let noticed = async {
            tokio::select! {
                () = tokio::time::sleep(grace) => {}
                () = life.reached(State::Stopped) => {}
            }
        };
        if !grace.is_zero() {
            accept(&listener, &shared, &mut asked, noticed).await;
        }
        drop(listener);
        info!(sessions = registry.len(), "stopping: sessions finish what is being said");
        draining.send_replace(Some(within));
        drop(shared);
        let ended = last_sessions((none_left, within), &registry, &mut asked, &life).await;
        cutting.send_replace(true);
        life.stop();
        let last = timeout(LAST_LINES, async {
            sessions.is_empty().await;
            if let Some(lines) = lines {
                lines.written().await;
            }
        });
        if last.await.is_err() {
            warn!("some lines of the access log were not written in time");
        }
        ended
    }
}

/// Sessions that were cut off are told of within this time: that is no more work than a line each.
const LAST_LINES: Duration = Duration::from_secs(1);

/// When nothing can be accepted it is tried again so much later: at once is no use, and too much is logged.
const NO_ROOM: Duration = Duration::from_millis(100);
/// The same if somebody was ended for it.
const MADE_ROOM: Duration = Duration::from_millis(10);

/// Accepts connections until then.
async fn accept(
    listener: &TcpListener,
    shared: &Arc<Shared>,
    asked: &mut mpsc::Receiver<Beat>,
    until: impl Future<Output = ()>,
) {
    tokio::pin!(until);
    loop {
        tokio::select! {
            () = &mut until => return,
            Some(beat) = asked.recv() => drop(beat.send(())),
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => accept::spawn(stream, peer, shared.clone()),
                Err(error) => {
                    // Out of file descriptors, mostly: sessions go on, and so must accepting, at the cost of who stalls.
                    let ended = shared.handshakes.end_oldest();
                    if ended {
                        shared.metrics.refused(Refused::HandshakeOverflow);
                    }
                    warn!(%error, ended, "cannot accept a connection");
                    tokio::time::sleep(if ended { MADE_ROOM } else { NO_ROOM }).await;
                }
            },
        }
    }
}

/// Waits for the sessions that run, within a bound.
async fn last_sessions(
    (mut none_left, within): (mpsc::Receiver<()>, Duration),
    registry: &Registry,
    asked: &mut mpsc::Receiver<Beat>,
    life: &Life,
) -> Ended {
    let over = tokio::time::sleep(within);
    tokio::pin!(over);
    loop {
        tokio::select! {
            biased;
            _ = none_left.recv() => return Ended::Drained,
            () = life.reached(State::Stopped) => {
                warn!(sessions = registry.len(), "stopped at once");
                return Ended::AtOnce(registry.len());
            }
            () = &mut over => {
                // Some goodbyes may still be on their way to clients that do not read them.
                let left = registry.len();
                if left > 0 {
                    warn!(sessions = left, "some sessions did not finish in time, and are cut off");
                }
                return if left > 0 { Ended::Cut(left, within) } else { Ended::Drained };
            }
            Some(beat) = asked.recv() => drop(beat.send(())),
        }
    }
}

/// What metrics want to know when they are asked.
fn seen(service: &Service, registry: &Registry) -> Seen {
    let sessions = registry.all().into_iter();
    let kind = |live: Arc<registry::Live>| {
        (live.who.client.as_str().into(), live.who.profile.as_str().into(), live.state())
    };
    let upstream = |(name, standing): (String, upstream_pool::Standing)| SeenUpstream {
        name,
        in_service: standing.burden.out_until.is_none(),
        load: standing.burden.lanes,
        failures: standing.failures,
        left_out: standing.left_out,
    };
    Seen {
        kinds: service.routes.kinds(&service.library),
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
    life: Life,
    workers: Workers,
    /// Who has how many of them.
    quotas: Quotas,
    /// Connections without a session.
    handshakes: Handshakes,
    /// The order to finish, and within which time.
    drain: watch::Receiver<Option<Duration>>,
    /// Sessions that still run are cut off.
    cut: watch::Receiver<bool>,
    /// Held by every connection; when all are gone its channel ends.
    alive: mpsc::Sender<()>,
}

impl Shared {
    fn service(&self) -> Arc<Service> {
        self.service.get()
    }
}
