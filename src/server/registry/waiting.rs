//! Connections, calls and pages that wait for their session. They have no session slot and no upstream; operators see their
//! number.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use crate::server::access::handshakes::Handshakes;

/// Everything that waits for its session. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Waiting {
    /// Connections without a session.
    pub(in crate::server) connections: Handshakes,
    calls: Arc<AtomicUsize>,
    pages: Arc<AtomicUsize>,
}

/// A call or a page that waits, as long as this value lives.
#[derive(Debug)]
pub(crate) struct WaitingEntry(Arc<AtomicUsize>);

impl Waiting {
    /// Counts a call whose client has not connected.
    #[cfg(feature = "webrtc")]
    pub(in crate::server) fn add_call(&self) -> WaitingEntry {
        WaitingEntry::new(&self.calls)
    }

    /// Counts a page of the playground that has no session.
    pub(in crate::server) fn add_page(&self) -> WaitingEntry {
        WaitingEntry::new(&self.pages)
    }

    /// Number of waiting clients, by kind.
    pub(in crate::server) fn counts(&self) -> [(&'static str, usize); 3] {
        let count = |counter: &AtomicUsize| counter.load(Relaxed);
        [
            ("connections", self.connections.pending()),
            ("calls", count(&self.calls)),
            ("pages", count(&self.pages)),
        ]
    }
}

impl WaitingEntry {
    fn new(counter: &Arc<AtomicUsize>) -> Self {
        counter.fetch_add(1, Relaxed);
        Self(counter.clone())
    }
}

impl Drop for WaitingEntry {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
