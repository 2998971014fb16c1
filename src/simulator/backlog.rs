//! Bounded queue of unprocessed messages.

use std::collections::VecDeque;

/// Queue bounded in messages and bytes. The real messages wait in socket buffers.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    waiting: VecDeque<T>,
    bytes: usize,
}

/// Exceeds what any conforming client leaves unprocessed.
const BACKLOG_FRAMES: usize = 1024;
/// Two messages of the maximum size.
const BACKLOG_BYTES: usize = 256 << 20;

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Backlog<T> {
    /// Appends an item; returns `false` if the queue is full.
    pub(super) fn try_push(&mut self, item: T, bytes: usize) -> bool {
        let fits = self.waiting.len() < BACKLOG_FRAMES && self.bytes.saturating_add(bytes) <= BACKLOG_BYTES;
        if fits {
            self.bytes += bytes;
            self.waiting.push_back(item);
        }
        fits
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        let item = self.waiting.pop_front();
        if self.waiting.is_empty() {
            self.bytes = 0;
        }
        item
    }
}

/// Error text of the simulator's own limit; the real gateway would stop reading instead.
pub(super) const BACKLOG_FULL: &str = "simulator: too many messages wait";
