//! The sessions that run: who they are, how they do, and the way to give one of them an order.
//!
//! Each is written by its own task alone, with plain stores, and read by whoever looks: numbers that are read while they
//! change may be a moment apart from one another.

pub(crate) mod observer;
mod stats;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::mpsc, time::Instant};

use self::stats::SessionStats;
pub use self::stats::{LiveSessionView, WireBytes};

/// Orders that may wait for a session; whoever gives more is told to wait.
const PENDING_ORDERS_MAX: usize = 4;

/// What an operator may tell one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorOrder {
    /// Finish what is being said and spoken, then end.
    Close,
    /// Go on in another upstream session, at a quiet moment.
    Rollover,
}

/// Who a session is.
#[derive(Debug, Clone)]
pub struct SessionInfo {
    /// Its id.
    pub id: String,
    /// The client protocol.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// It has a conversation, which can be rolled over.
    pub has_conversation: bool,
    /// Where the client is, as far as the TCP connection tells.
    pub peer: SocketAddr,
    /// The path it asked for.
    pub path: String,
    /// The name of the key it came with.
    pub key: Option<Arc<str>>,
    /// The subject of the certificate it came with.
    pub subject: Option<String>,
    /// When it began, since 1970.
    pub opened_unix: Duration,
}

/// One session that runs.
#[derive(Debug)]
pub struct LiveSession {
    /// Who it is.
    pub info: SessionInfo,
    /// When it began.
    pub opened: Instant,
    pub(super) stats: SessionStats,
    orders: mpsc::Sender<OperatorOrder>,
}

impl LiveSession {
    /// Gives it an order; whether it can take one.
    #[must_use]
    pub fn send_order(&self, order: OperatorOrder) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// All sessions that run.
#[derive(Debug, Clone, Default)]
pub struct SessionRegistry(Arc<Mutex<SessionMap>>);

type SessionMap = BTreeMap<String, Weak<LiveSession>>;

impl SessionRegistry {
    /// A session begins; it is among those that run for as long as what this gives is held.
    #[must_use]
    pub fn register(&self, info: SessionInfo) -> (RegistryEntry, mpsc::Receiver<OperatorOrder>) {
        let (sender, orders) = mpsc::channel(PENDING_ORDERS_MAX);
        let session = Arc::new(LiveSession {
            info,
            opened: Instant::now(),
            stats: SessionStats::default(),
            orders: sender,
        });
        self.sessions().insert(session.info.id.clone(), Arc::downgrade(&session));
        (RegistryEntry { session, registry: self.clone() }, orders)
    }

    /// The session of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<LiveSession>> {
        self.sessions().get(id)?.upgrade()
    }

    /// Every session, by id.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<LiveSession>> {
        self.sessions().values().filter_map(Weak::upgrade).collect()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sessions().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn sessions(&self) -> MutexGuard<'_, SessionMap> {
        // A map is whole between two of its changes, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's place among those that run.
#[derive(Debug)]
pub struct RegistryEntry {
    session: Arc<LiveSession>,
    registry: SessionRegistry,
}

impl RegistryEntry {
    /// The session, also after it is no longer among those that run.
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
        self.registry.sessions().remove(&self.session.info.id);
    }
}
