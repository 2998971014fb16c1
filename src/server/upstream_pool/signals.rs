//! Signals of a pool: its upstreams send them, and the lanes in line and the probes wait for them.

use std::sync::Arc;

use tokio::sync::{Notify, futures::Notified};

/// Signals of a pool.
#[derive(Debug, Default, Clone)]
pub(super) struct Signals(Arc<SignalsShared>);

#[derive(Debug, Default)]
struct SignalsShared {
    /// A place became free, the line moved, or an upstream was ejected or readmitted.
    places_changed: Notify,
    /// An upstream was readmitted.
    readmitted: Notify,
}

impl Signals {
    /// The next change of places. Take it, and enable it, before looking for a place.
    pub(super) fn places_changed(&self) -> Notified<'_> {
        self.0.places_changed.notified()
    }

    /// Lets every lane in line look for a place.
    pub(super) fn notify_places(&self) {
        self.0.places_changed.notify_waiters();
    }

    /// The next readmission of an upstream.
    pub(super) fn readmitted(&self) -> Notified<'_> {
        self.0.readmitted.notified()
    }

    /// An upstream is back in service: lanes in line may take its places, and other upstreams may be back too.
    pub(super) fn notify_readmission(&self) {
        self.notify_places();
        self.0.readmitted.notify_waiters();
    }
}
