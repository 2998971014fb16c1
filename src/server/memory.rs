//! Bounds the memory of messages in transit: those that peers have not sent to the end, those that wait for peers that do not
//! read, and those of relayed clients that wait for an upstream or for its answer. The conversations that sessions keep count,
//! too.
//!
//! The first [`FREE_BYTES`] of a connection do not count, so that a new one with short messages always comes in. The rest counts
//! towards one bound for the whole server. When a connection would exceed the bound, the largest connection is evicted: it
//! closes, and its memory no longer counts. If no larger connection can be evicted, the request for memory fails.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use tokio::sync::Notify;

/// Memory of a connection that does not count, bytes: more than ordinary traffic ever needs.
pub(crate) const FREE_BYTES: usize = 128 * 1024;

/// The memory that all connections hold together.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget(Mutex<HeldMemory>);

#[derive(Debug, Default)]
struct HeldMemory {
    /// Of all connections, bytes.
    bytes: usize,
    /// Connections that can be evicted, by the address of their eviction.
    evictable: BTreeMap<usize, Holder>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    eviction: Arc<Eviction>,
}

/// Tells a connection that it must close, because others need its memory.
#[derive(Debug, Default)]
pub(crate) struct Eviction {
    is_due: AtomicBool,
    notice: Notify,
}

impl Eviction {
    /// Completes when the connection must close; for one waiter.
    pub(crate) async fn wait(self: Arc<Self>) {
        self.notice.notified().await;
    }
}

impl MemoryBudget {
    /// Bound without a setting, bytes: sixteen reference voices of the longest kind at once.
    pub(crate) const DEFAULT_MAX_BYTES: usize = 256 * 1024 * 1024;

    fn lock(&self) -> MutexGuard<'_, HeldMemory> {
        // Every change leaves valid numbers, so a poisoned lock holds some.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HeldMemory {
    /// Counts another amount of a connection. False if that exceeds `max_bytes`, or if the connection must close. Counting
    /// less always succeeds.
    fn count(
        &mut self,
        eviction: Option<&Arc<Eviction>>,
        before: usize,
        now: usize,
        max_bytes: usize,
    ) -> bool {
        if eviction.is_some_and(|eviction| eviction.is_due.load(Relaxed)) {
            return now <= before;
        }
        self.bytes = self.bytes - before + now;
        if let Some(eviction) = eviction {
            let address = Arc::as_ptr(eviction).addr();
            if now == 0 {
                self.evictable.remove(&address);
            } else {
                self.evictable.insert(address, Holder { bytes: now, eviction: eviction.clone() });
            }
        }
        now <= before || self.make_room(now, max_bytes)
    }

    /// Evicts the largest connections until the rest fits. Spares those that hold no more than `asking_bytes`; false if the
    /// rest does not fit then.
    fn make_room(&mut self, asking_bytes: usize, max_bytes: usize) -> bool {
        while self.bytes > max_bytes {
            if !self.evict_larger(asking_bytes) {
                return false;
            }
        }
        true
    }

    /// Tells the largest connection to close. False if none holds more than `asking_bytes`.
    fn evict_larger(&mut self, asking_bytes: usize) -> bool {
        let largest = self.evictable.iter().max_by_key(|(_, holder)| holder.bytes);
        let address = largest.filter(|(_, holder)| holder.bytes > asking_bytes).map(|(address, _)| *address);
        let Some(Holder { bytes, eviction }) = address.and_then(|at| self.evictable.remove(&at)) else {
            return false;
        };
        self.bytes -= bytes;
        eviction.is_due.store(true, Relaxed);
        eviction.notice.notify_one();
        true
    }
}

/// Purpose of a connection's memory.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Held {
    /// The message that the peer is sending.
    Incoming,
    /// The messages that wait for the peer.
    Outgoing,
    /// The peer's messages that the session keeps.
    Kept,
}

/// The share of one socket. Dropping it gives everything back.
#[derive(Debug, Default)]
pub(crate) struct MemoryShare {
    /// The budget and its bound in bytes; `None` counts nothing.
    budget: Option<(Arc<MemoryBudget>, usize)>,
    /// `None` for a socket that does not wait for its eviction, and keeps its memory.
    eviction: Option<Arc<Eviction>>,
    /// By [`Held`].
    bytes: [usize; 3],
}

impl MemoryShare {
    /// A share that holds nothing yet, and keeps what it gets.
    pub(crate) const fn new(budget: Arc<MemoryBudget>, max_bytes: usize) -> Self {
        Self { budget: Some((budget, max_bytes)), eviction: None, bytes: [0; 3] }
    }

    /// A share that holds nothing yet, whose owner closes the connection once the eviction is due.
    pub(crate) fn evictable(budget: Arc<MemoryBudget>, max_bytes: usize) -> (Self, Arc<Eviction>) {
        let eviction = Arc::<Eviction>::default();
        let mut share = Self::new(budget, max_bytes);
        share.eviction = Some(eviction.clone());
        (share, eviction)
    }

    /// Counts another amount of a kind. False if the server has no memory for it; counting less always succeeds.
    pub(crate) fn hold(&mut self, kind: Held, bytes: usize) -> bool {
        if self.bytes[kind as usize] == bytes {
            return true;
        }
        let before = self.counted_bytes();
        self.bytes[kind as usize] = bytes;
        let now = self.counted_bytes();
        let Some((budget, max_bytes)) = self.budget.as_ref().filter(|_| before != now) else { return true };
        budget.lock().count(self.eviction.as_ref(), before, now, *max_bytes)
    }

    /// True if less than this part of the budget is left, such as 4 for a quarter.
    pub(crate) fn leaves_less_than(&self, part: usize) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|(budget, max)| budget.lock().bytes > max - max / part)
    }

    /// Tells the largest connection to close, if it holds more than this share.
    pub(crate) fn evict_larger(&self) -> bool {
        let asking_bytes = self.counted_bytes();
        self.budget.as_ref().is_some_and(|(budget, _)| budget.lock().evict_larger(asking_bytes))
    }

    const fn counted_bytes(&self) -> usize {
        let [incoming, outgoing, kept] = self.bytes;
        (incoming + outgoing + kept).saturating_sub(FREE_BYTES)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        let counted = self.counted_bytes();
        if let Some((budget, max_bytes)) = self.budget.as_ref().filter(|_| counted > 0) {
            budget.lock().count(self.eviction.as_ref(), counted, 0, *max_bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    const MAX_BYTES: usize = 1_000_000;

    fn held(budget: &MemoryBudget) -> usize {
        budget.lock().bytes
    }

    #[test]
    fn held_memory_is_bounded_and_given_back() {
        let budget = Arc::<MemoryBudget>::default();
        let share = || MemoryShare::new(budget.clone(), MAX_BYTES);
        let mut first = share();
        assert!(first.hold(Held::Incoming, FREE_BYTES) && held(&budget) == 0);
        assert!(first.hold(Held::Incoming, FREE_BYTES + 600_000) && first.hold(Held::Outgoing, 200_000));
        assert!(first.hold(Held::Kept, 100_000), "both directions and kept messages count");
        assert_eq!(held(&budget), 900_000);
        let mut second = share();
        assert!(second.hold(Held::Outgoing, FREE_BYTES + 50_000));
        assert!(!second.hold(Held::Outgoing, FREE_BYTES + 200_000), "no other can be told to close");
        drop(second);
        assert!(first.hold(Held::Incoming, 0) && first.hold(Held::Outgoing, 0) && first.hold(Held::Kept, 0));
        drop(first);
        assert_eq!(held(&budget), 0);
    }

    #[test]
    fn largest_connection_makes_room_for_smaller_ones() {
        let budget = Arc::<MemoryBudget>::default();
        let share = || MemoryShare::evictable(budget.clone(), MAX_BYTES);
        let is_due = |eviction: &Arc<Eviction>| eviction.clone().wait().now_or_never().is_some();
        let ((mut small, of_small), (mut large, of_large), (mut new, of_new)) = (share(), share(), share());
        assert!(
            small.hold(Held::Incoming, FREE_BYTES + 300_000) && large.hold(Held::Kept, FREE_BYTES + 650_000)
        );
        assert!(!is_due(&of_large));
        assert!(new.hold(Held::Incoming, FREE_BYTES + 100_000), "the largest goes, although it did not ask");
        assert!(is_due(&of_large) && !is_due(&of_small) && !is_due(&of_new));
        assert_eq!(held(&budget), 400_000);
        assert!(!large.hold(Held::Kept, FREE_BYTES + 660_000), "it gets no more");
        assert!(large.hold(Held::Kept, 0) && held(&budget) == 400_000, "what it held is given back once");
        drop(large);
        assert!(!new.hold(Held::Incoming, FREE_BYTES + 800_000), "the one that asks is the largest itself");
        assert!(!new.evict_larger(), "it does not wait for a smaller one to go");
        assert!(
            share().0.evict_larger() && is_due(&of_new),
            "one that waits for memory has the largest close"
        );
        drop((small, new));
        assert_eq!(held(&budget), 0);
        assert!(budget.lock().evictable.is_empty());
    }
}
