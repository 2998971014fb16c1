//! Bounds the memory of messages in transit: those that peers have not sent to the end, those that wait for peers that do not
//! read, and those of relayed clients that wait for an upstream or for its answer. What a session keeps of its client's
//! conversation counts, too.
//!
//! Each connection may hold a little without asking. The rest counts towards one bound for the whole server. A
//! connection that would exceed it is closed, and new connections are refused until there is room again.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

/// Memory of a connection that does not count, bytes: more than ordinary traffic ever needs.
const FREE_BYTES: usize = 128 * 1024;

/// The memory that all connections hold together.
#[derive(Debug, Default)]
pub(crate) struct MemoryBudget {
    held_bytes: AtomicUsize,
}

impl MemoryBudget {
    /// Bound without a setting, bytes: sixteen reference voices of the longest kind at once.
    pub(crate) const DEFAULT_MAX_BYTES: usize = 256 * 1024 * 1024;

    /// True if new connections are refused: less than an eighth of `max_bytes` is left.
    pub(crate) fn is_scarce(&self, max_bytes: usize) -> bool {
        self.held_bytes.load(Relaxed) > max_bytes - max_bytes / 8
    }
}

/// The share of one socket. Dropping it gives everything back.
#[derive(Debug, Default)]
pub(crate) struct MemoryShare {
    /// The budget and its bound in bytes; `None` counts nothing.
    budget: Option<(Arc<MemoryBudget>, usize)>,
    incoming_bytes: usize,
    outgoing_bytes: usize,
    kept_bytes: usize,
}

impl MemoryShare {
    /// A share that holds nothing yet.
    pub(crate) const fn new(budget: Arc<MemoryBudget>, max_bytes: usize) -> Self {
        Self { budget: Some((budget, max_bytes)), incoming_bytes: 0, outgoing_bytes: 0, kept_bytes: 0 }
    }

    /// Counts the message that the peer is sending. False if that exceeds the budget.
    pub(crate) fn hold_incoming(&mut self, bytes: usize) -> bool {
        self.update(|share| share.incoming_bytes = bytes)
    }

    /// Counts the messages that wait for the peer. False if that exceeds the budget.
    pub(crate) fn hold_outgoing(&mut self, bytes: usize) -> bool {
        self.update(|share| share.outgoing_bytes = bytes)
    }

    /// Counts the peer's messages that the session keeps. False if that exceeds the budget.
    pub(crate) fn hold_kept(&mut self, bytes: usize) -> bool {
        self.update(|share| share.kept_bytes = bytes)
    }

    /// True if less than this part of the budget is left, such as 4 for a quarter.
    pub(crate) fn leaves_less_than(&self, part: usize) -> bool {
        let budget = self.budget.as_ref();
        budget.is_some_and(|(budget, max)| budget.held_bytes.load(Relaxed) > max - max / part)
    }

    /// Counts another amount. To count less always succeeds.
    fn update(&mut self, set: impl FnOnce(&mut Self)) -> bool {
        let before = self.counted_bytes();
        set(self);
        let after = self.counted_bytes();
        let Some((budget, max_bytes)) = self.budget.as_ref().filter(|_| before != after) else { return true };
        if after <= before {
            budget.held_bytes.fetch_sub(before - after, Relaxed);
            return true;
        }
        let more = after - before;
        let held = budget.held_bytes.fetch_add(more, Relaxed) + more;
        held <= *max_bytes
    }

    const fn counted_bytes(&self) -> usize {
        (self.incoming_bytes + self.outgoing_bytes + self.kept_bytes).saturating_sub(FREE_BYTES)
    }
}

impl Drop for MemoryShare {
    fn drop(&mut self) {
        if let Some((budget, _)) = &self.budget {
            budget.held_bytes.fetch_sub(self.counted_bytes(), Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_memory_is_bounded_and_given_back() {
        let budget = Arc::<MemoryBudget>::default();
        let share = || MemoryShare::new(budget.clone(), 1_000_000);
        let is_scarce = || budget.is_scarce(1_000_000);
        let mut first = share();
        assert!(first.hold_incoming(FREE_BYTES) && budget.held_bytes.load(Relaxed) == 0);
        assert!(first.hold_incoming(FREE_BYTES + 600_000) && !is_scarce());
        assert!(first.hold_outgoing(200_000) && !is_scarce());
        assert!(first.hold_kept(100_000) && is_scarce(), "both directions and kept messages count");
        let mut second = share();
        assert!(second.hold_outgoing(FREE_BYTES + 50_000));
        assert!(!second.hold_outgoing(FREE_BYTES + 200_000), "the one that asks for more is refused");
        drop(second);
        assert!(first.hold_incoming(0) && first.hold_outgoing(0) && first.hold_kept(0) && !is_scarce());
        drop(first);
        assert_eq!(budget.held_bytes.load(Relaxed), 0);
    }
}
