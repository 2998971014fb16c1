//! Queue from a session to the task that writes it to disk, or shows it to a page: bounded in items and in memory, so that a slow
//! reader never delays the session. Items that find no room are lost and counted.

use std::sync::{
    Arc,
    atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{Relaxed, SeqCst},
    },
};

use tokio::sync::mpsc;

/// Limits on what waits for one session's reader: about a second of the busiest session.
pub(super) const ITEMS_MAX: usize = 1024;
pub(super) const BYTES_MAX: usize = 16 << 20;
/// Limit on the waiting items of all sessions together: a slow disk delays every session's file.
pub(super) const TOTAL_BYTES_MAX: usize = 64 << 20;

/// The queues of all sessions. Clones share the counters.
#[derive(Debug, Clone, Default)]
pub(super) struct QueueTotals {
    /// Memory of the items that wait, bytes.
    bytes: Arc<AtomicUsize>,
    /// Items lost since the start.
    lost: Arc<AtomicU64>,
}

impl QueueTotals {
    /// Memory of the items that wait, bytes.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.bytes.load(SeqCst)
    }

    /// Items lost since the start.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Counts items as lost.
    #[cfg(test)]
    pub(super) fn lose(&self, count: u64) {
        self.lost.fetch_add(count, Relaxed);
    }
}

/// Counters of one queue.
#[derive(Debug, Default)]
struct Backlog {
    bytes: AtomicUsize,
    /// Items lost since the reader last asked.
    lost: AtomicU64,
    totals: QueueTotals,
}

impl Backlog {
    /// Reserves memory for an item; `None` if the session or all sessions together exceed their limit.
    fn reserve(self: &Arc<Self>, bytes: usize) -> Option<QueuePermit> {
        let in_session = self.bytes.fetch_add(bytes, SeqCst) + bytes;
        let total = self.totals.bytes.fetch_add(bytes, SeqCst) + bytes;
        let permit = QueuePermit { backlog: self.clone(), bytes };
        (in_session <= BYTES_MAX && total <= TOTAL_BYTES_MAX).then_some(permit)
    }
}

/// Memory reserved for an item, returned on drop.
#[derive(Debug)]
pub(super) struct QueuePermit {
    backlog: Arc<Backlog>,
    bytes: usize,
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.backlog.bytes.fetch_sub(self.bytes, SeqCst);
        self.backlog.totals.bytes.fetch_sub(self.bytes, SeqCst);
    }
}

/// The session's end; dropping it ends the queue.
#[derive(Debug)]
pub(super) struct QueueSender<T> {
    items: mpsc::Sender<(T, QueuePermit)>,
    backlog: Arc<Backlog>,
}

/// The reader's end. Dropping it returns all memory and takes no further items.
#[derive(Debug)]
pub(super) struct QueueReceiver<T> {
    items: mpsc::Receiver<(T, QueuePermit)>,
    backlog: Arc<Backlog>,
}

/// Makes a queue whose memory counts in these totals.
pub(super) fn session_queue<T>(totals: QueueTotals) -> (QueueSender<T>, QueueReceiver<T>) {
    let backlog = Arc::new(Backlog { totals, ..Backlog::default() });
    let (sender, receiver) = mpsc::channel(ITEMS_MAX);
    (QueueSender { items: sender, backlog: backlog.clone() }, QueueReceiver { items: receiver, backlog })
}

impl<T> QueueSender<T> {
    /// True while the reader takes items.
    pub(super) fn is_open(&self) -> bool {
        !self.items.is_closed()
    }

    /// Queues an item of this size. It is lost if there is no room.
    pub(super) fn push(&self, item: T, bytes: usize) {
        let permit = self.backlog.reserve(bytes);
        if permit.is_none_or(|permit| self.items.try_send((item, permit)).is_err()) {
            self.backlog.lost.fetch_add(1, SeqCst);
            self.backlog.totals.lost.fetch_add(1, Relaxed);
        }
    }

    /// Memory of the items that wait, bytes.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        self.backlog.bytes.load(SeqCst)
    }
}

impl<T> QueueReceiver<T> {
    /// The next item, which counts until its permit is dropped; `None` after the end of the session.
    pub(super) async fn next(&mut self) -> Option<(T, QueuePermit)> {
        self.items.recv().await
    }

    /// Number of items lost since the last call.
    pub(super) fn take_lost(&self) -> u64 {
        self.backlog.lost.swap(0, SeqCst)
    }
}
