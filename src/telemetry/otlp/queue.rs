//! Queues of spans and lines on their way to the exporters, and the counts of what was lost.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use tokio::sync::mpsc;

use super::signal::Signal;

/// Sender of a bounded queue; never waits.
#[derive(Debug)]
pub(super) struct RecordQueue<T> {
    sender: mpsc::Sender<T>,
    lost: Arc<AtomicU64>,
}

impl<T> Clone for RecordQueue<T> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), lost: self.lost.clone() }
    }
}

impl<T> RecordQueue<T> {
    pub(super) const fn new(sender: mpsc::Sender<T>, lost: Arc<AtomicU64>) -> Self {
        Self { sender, lost }
    }

    /// Queues a record. It is lost if there is no room.
    pub(super) fn push(&self, record: T) {
        if self.sender.try_send(record).is_err() {
            self.lost.fetch_add(1, Relaxed);
        }
    }
}

/// Counts of what was lost.
#[derive(Debug, Clone, Default)]
pub(super) struct Lost {
    pub(super) spans: Arc<AtomicU64>,
    pub(super) lines: Arc<AtomicU64>,
    /// Reports of all metrics.
    pub(super) reports: Arc<AtomicU64>,
}

impl Lost {
    pub(super) fn of(&self, signal: Signal) -> Arc<AtomicU64> {
        match signal {
            Signal::Traces => &self.spans,
            Signal::Logs => &self.lines,
            Signal::Metrics => &self.reports,
        }
        .clone()
    }

    /// Names of the signals, and their counts.
    pub(super) fn counts(&self) -> [(&'static str, u64); 3] {
        Signal::ALL.map(|signal| (signal.name(), self.of(signal).load(Relaxed)))
    }
}
