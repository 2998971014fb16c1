//! The running sessions: their identity, their statistics, and a channel for operator orders; and the clients that wait for a
//! session.
//!
//! Only the session's own task writes its statistics.

pub(crate) mod observer;
mod session_notifier;
mod stats;
mod views;
mod waiting;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use crate::{named_enum::named_enum, telemetry::context::TraceId};

pub(crate) use self::session_notifier::SessionNotifier;
use self::stats::SessionStats;
pub(crate) use self::stats::TrafficCounts;
pub use self::views::{LiveSessionView, WireBytes};
pub(crate) use self::waiting::{Waiting, WaitingEntry};

/// Orders that may wait for a session; further orders are rejected.
const PENDING_ORDERS_MAX: usize = 4;

named_enum! {
    /// An operator's order to one session.
    pub enum OperatorOrder {
        /// Finish the current speech and answers, then end.
        Close = "close",
        /// Continue in another upstream session at a quiet moment.
        Rollover = "rollover",
    }
}

/// The identity of a session.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Session id.
    pub id: String,
    /// The client protocol.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// The session has a conversation, which can be rolled over.
    pub has_conversation: bool,
    /// Address of the client.
    pub peer: SocketAddr,
    /// The path of the request.
    pub path: String,
    /// The sign that decided on the client protocol.
    pub detected_by: String,
    /// Name of the API key.
    pub key: Option<Arc<str>>,
    /// Subject of the client's certificate.
    pub subject: Option<String>,
    /// Id of the distributed trace.
    pub trace_id: TraceId,
    /// Start of the session since 1970.
    pub opened_unix: Duration,
}

/// One running session.
#[derive(Debug)]
pub struct LiveSession {
    /// Identity.
    pub info: SessionInfo,
    /// Start of the session.
    pub opened: Instant,
    /// Its last speech or answer was cut off by the drain timeout.
    cut_off: AtomicBool,
    stats: Mutex<SessionStats>,
    orders: mpsc::Sender<OperatorOrder>,
}

impl LiveSession {
    /// Sends an order to the session; false if too many orders wait.
    pub fn send_order(&self, order: OperatorOrder) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// All running sessions.
#[derive(Debug, Clone, Default)]
pub struct SessionRegistry(Arc<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    sessions: Mutex<SessionMap>,
    /// Ended sessions whose last speech or answer was cut off by the drain timeout.
    cut_off: AtomicUsize,
    waiting: Waiting,
}

type SessionMap = BTreeMap<String, Weak<LiveSession>>;

impl SessionRegistry {
    /// Registers a session, which stays registered while the returned entry lives.
    pub fn register(&self, info: SessionInfo) -> (RegistryEntry, mpsc::Receiver<OperatorOrder>) {
        let (sender, orders) = mpsc::channel(PENDING_ORDERS_MAX);
        let session = Arc::new(LiveSession {
            info,
            opened: Instant::now(),
            cut_off: AtomicBool::new(false),
            stats: Mutex::default(),
            orders: sender,
        });
        self.sessions().insert(session.info.id.clone(), Arc::downgrade(&session));
        (RegistryEntry { session, registry: self.clone() }, orders)
    }

    /// The session with this id.
    pub fn get(&self, id: &str) -> Option<Arc<LiveSession>> {
        self.sessions().get(id)?.upgrade()
    }

    /// Every session, ordered by id.
    pub fn all(&self) -> Vec<Arc<LiveSession>> {
        self.sessions().values().filter_map(Weak::upgrade).collect()
    }

    /// Number of sessions.
    pub fn len(&self) -> usize {
        self.sessions().len()
    }

    /// True if no session runs.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of ended sessions whose last speech or answer was cut off by the drain timeout.
    pub(super) fn cut_off_count(&self) -> usize {
        self.0.cut_off.load(Ordering::Relaxed)
    }

    /// Connections, calls and pages that wait for their session.
    pub(in crate::server) fn waiting(&self) -> &Waiting {
        &self.0.waiting
    }

    fn sessions(&self) -> MutexGuard<'_, SessionMap> {
        // Every change leaves a valid map, so a poisoned lock holds one.
        self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registration of a running session, removed on drop.
#[derive(Debug)]
pub struct RegistryEntry {
    session: Arc<LiveSession>,
    registry: SessionRegistry,
}

impl RegistryEntry {
    /// The session; valid even after its registration ends.
    pub(super) fn session(&self) -> Arc<LiveSession> {
        self.session.clone()
    }
}

impl std::ops::Deref for RegistryEntry {
    type Target = LiveSession;

    fn deref(&self) -> &LiveSession {
        &self.session
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        if self.session.cut_off.load(Ordering::Relaxed) {
            self.registry.0.cut_off.fetch_add(1, Ordering::Relaxed);
        }
        self.registry.sessions().remove(&self.session.info.id);
    }
}
