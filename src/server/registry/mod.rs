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

pub use self::stats::{Bytes, View};

/// Orders that may wait for a session; whoever gives more is told to wait.
const ORDERS_MAX: usize = 4;

/// What an operator may tell one session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Finish what is being said and spoken, then end.
    Close,
    /// Go on in another upstream session, at a quiet moment.
    Rollover,
}

/// Who a session is.
#[derive(Debug, Clone)]
pub struct Who {
    /// Its id.
    pub id: String,
    /// The client protocol.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// It has a conversation, which can be rolled over.
    pub converses: bool,
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
pub struct Live {
    /// Who it is.
    pub who: Who,
    /// When it began.
    pub opened: Instant,
    pub(super) facts: stats::Facts,
    orders: mpsc::Sender<Order>,
}

impl Live {
    /// Gives it an order; whether it can take one.
    #[must_use]
    pub fn order(&self, order: Order) -> bool {
        self.orders.try_send(order).is_ok()
    }
}

/// All sessions that run.
#[derive(Debug, Clone, Default)]
pub struct Registry(Arc<Mutex<Sessions>>);

type Sessions = BTreeMap<String, Weak<Live>>;

impl Registry {
    /// A session begins; it is among those that run for as long as what this gives is held.
    #[must_use]
    pub fn begin(&self, who: Who) -> (Entry, mpsc::Receiver<Order>) {
        let (orders, ordered) = mpsc::channel(ORDERS_MAX);
        let live = Arc::new(Live { who, opened: Instant::now(), facts: stats::Facts::default(), orders });
        self.sessions().insert(live.who.id.clone(), Arc::downgrade(&live));
        (Entry { live, registry: self.clone() }, ordered)
    }

    /// The session of this id.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<Arc<Live>> {
        self.sessions().get(id)?.upgrade()
    }

    /// Every session, by id.
    #[must_use]
    pub fn all(&self) -> Vec<Arc<Live>> {
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

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        // A map is whole between two of its changes, whatever panicked.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's place among those that run.
#[derive(Debug)]
pub struct Entry {
    live: Arc<Live>,
    registry: Registry,
}

impl Entry {
    /// The session, also after it is no longer among those that run.
    pub(super) fn live(&self) -> Arc<Live> {
        self.live.clone()
    }
}

impl std::ops::Deref for Entry {
    type Target = Live;

    fn deref(&self) -> &Live {
        &self.live
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.registry.sessions().remove(&self.live.who.id);
    }
}
