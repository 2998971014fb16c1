//! Bounds the memory of messages in transit: those that peers have not sent to the end, and those that wait for
//! peers that do not read.
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
}

impl MemoryShare {
    /// A share that holds nothing yet.
    pub(crate) const fn new(budget: Arc<MemoryBudget>, max_bytes: usize) -> Self {
        Self { budget: Some((budget, max_bytes)), incoming_bytes: 0, outgoing_bytes: 0 }
    }

    /// Counts the message that the peer is sending. False if that exceeds the budget.
    pub(crate) fn hold_incoming(&mut self, bytes: usize) -> bool {
        let outgoing = self.outgoing_bytes;
        self.hold(bytes, outgoing)
    }

    /// Counts the messages that wait for the peer. False if that exceeds the budget.
    pub(crate) fn hold_outgoing(&mut self, bytes: usize) -> bool {
        let incoming = self.incoming_bytes;
        self.hold(incoming, bytes)
    }

    /// Counts both directions. Returning to an earlier amount always succeeds.
    fn hold(&mut self, incoming: usize, outgoing: usize) -> bool {
        let (before, after) = (self.counted_bytes(), counted(incoming + outgoing));
        (self.incoming_bytes, self.outgoing_bytes) = (incoming, outgoing);
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
        counted(self.incoming_bytes + self.outgoing_bytes)
    }
}

/// The part of `bytes` that counts.
const fn counted(bytes: usize) -> usize {
    bytes.saturating_sub(FREE_BYTES)
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
        assert!(first.hold_outgoing(300_000) && is_scarce(), "both directions count");
        let mut second = share();
        assert!(second.hold_outgoing(FREE_BYTES + 50_000));
        assert!(!second.hold_outgoing(FREE_BYTES + 200_000), "the one that asks for more is refused");
        drop(second);
        assert!(first.hold_incoming(0) && first.hold_outgoing(0) && !is_scarce());
        drop(first);
        assert_eq!(budget.held_bytes.load(Relaxed), 0);
    }
}
