//! Queues whose entries are numbered over several queues: the outboxes of the client and of the lanes are separate, and their
//! actions leave in the order in which they were made.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

/// Source of numbers that several queues share.
#[derive(Debug, Default, Clone)]
pub(crate) struct Numbers(Arc<AtomicU64>);

/// Queue of numbered entries, oldest first.
#[derive(Debug)]
pub(crate) struct Numbered<T> {
    entries: VecDeque<(u64, T)>,
    numbers: Numbers,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self::new(Numbers::default())
    }
}

impl<T> Numbered<T> {
    /// An empty queue.
    pub(crate) const fn new(numbers: Numbers) -> Self {
        Self { entries: VecDeque::new(), numbers }
    }

    /// The source of its numbers.
    pub(crate) fn numbers(&self) -> Numbers {
        self.numbers.clone()
    }

    pub(crate) fn push(&mut self, entry: T) {
        // One task runs a session, so the order needs no fence.
        let number = self.numbers.0.fetch_add(1, Ordering::Relaxed);
        self.entries.push_back((number, entry));
    }

    /// Takes the oldest entry, if it is older than all of the other queue.
    pub(crate) fn pop_before<U>(&mut self, other: &Numbered<U>) -> Option<T> {
        let (own, _) = self.entries.front()?;
        let is_older = other.entries.front().is_none_or(|(number, _)| own < number);
        if !is_older {
            return None;
        }
        let oldest = self.entries.pop_front();
        if self.entries.is_empty() {
            // Most of the time there is nothing to do, and an entry is large.
            self.entries = VecDeque::new();
        }
        oldest.map(|(_, entry)| entry)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_the_order_of_entries_in_two_queues() {
        let mut left = Numbered::default();
        let mut right = Numbered::new(left.numbers());
        left.push('a');
        right.push('b');
        right.push('c');
        left.push('d');
        let mut taken = String::new();
        while let Some(entry) = left.pop_before(&right).or_else(|| right.pop_before(&left)) {
            taken.push(entry);
        }
        assert_eq!((taken.as_str(), left.is_empty(), right.is_empty()), ("abcd", true, true));
        assert_eq!(
            (left.entries.capacity(), right.entries.capacity()),
            (0, 0),
            "empty queues take no memory"
        );
    }
}
