//! Messages that wait for their turn, within bounds.

use std::collections::VecDeque;

/// A bounded queue; the real messages wait in socket buffers.
#[derive(Debug)]
pub(super) struct Backlog<T> {
    waiting: VecDeque<T>,
    bytes: usize,
}

/// More than any client that follows the protocol leaves waiting.
const BACKLOG_FRAMES: usize = 1024;
/// Two messages of the largest size.
const BACKLOG_BYTES: usize = 256 << 20;

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { waiting: VecDeque::new(), bytes: 0 }
    }
}

impl<T> Backlog<T> {
    /// `false` if there is no more room.
    #[must_use]
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

/// The simulator's own limit; the real gateway would stop reading instead.
pub(super) const BACKLOG_FULL: &str = "simulator: too many messages wait";
