//! Pages that wait for a session. A page chooses a name that cannot be guessed, waits under it, and gives the name to the one
//! session that it opens. Both must have shown the same API key.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    time::Instant,
};

use tokio::sync::oneshot;

use crate::{
    server::trace_files::{SessionTrace, TraceLines},
    trace::{AudioRetention, TraceHeader},
};

/// Pages that may wait or watch at a time.
const WATCHERS_MAX: usize = 64;

/// A session that is watched: the header of its trace, and its records.
pub(in crate::server) struct WatchedSession {
    pub(super) header: TraceHeader,
    pub(super) lines: TraceLines,
}

/// A page that waits for its session.
pub(in crate::server) struct Watcher {
    key: Option<Arc<str>>,
    session: oneshot::Sender<WatchedSession>,
}

type WaitingPages = BTreeMap<String, Watcher>;

/// All pages that wait for a session.
#[derive(Clone, Default)]
pub(in crate::server) struct Watchers {
    waiting: Arc<Mutex<WaitingPages>>,
    /// Number of pages that wait or watch.
    pages: Arc<AtomicUsize>,
    /// Memory of all records that pages have not taken, bytes.
    pending_bytes: Arc<AtomicUsize>,
    lost: Arc<AtomicU64>,
}

/// A page's place among the watchers; dropping it gives it up.
pub(in crate::server) struct WatcherPlace {
    name: String,
    watchers: Watchers,
}

impl Watchers {
    /// Waits for a session under this name; `None` if the name is taken or too many pages wait.
    pub(in crate::server) fn wait(
        &self,
        name: String,
        key: Option<Arc<str>>,
    ) -> Option<(WatcherPlace, oneshot::Receiver<WatchedSession>)> {
        let mut waiting = self.waiting();
        if waiting.contains_key(&name) || self.pages.load(SeqCst) >= WATCHERS_MAX {
            return None;
        }
        self.pages.fetch_add(1, SeqCst);
        let (session, found) = oneshot::channel();
        waiting.insert(name.clone(), Watcher { key, session });
        Some((WatcherPlace { name, watchers: self.clone() }, found))
    }

    /// The page that waits under this name and has shown this key.
    pub(in crate::server) fn take(&self, name: &str, key: Option<&str>) -> Option<Watcher> {
        let mut waiting = self.waiting();
        let has_same_key = waiting.get(name)?.key.as_deref() == key;
        if has_same_key { waiting.remove(name) } else { None }
    }

    /// Starts to record a session for a page; `None` if the page has gone.
    pub(in crate::server) fn start_session(
        &self,
        watcher: Watcher,
        opened: Instant,
        header: TraceHeader,
    ) -> Option<SessionTrace> {
        let totals = (self.pending_bytes.clone(), self.lost.clone());
        let (session_trace, lines) = SessionTrace::new(opened, AudioRetention::All, totals);
        watcher.session.send(WatchedSession { header, lines }).is_ok().then_some(session_trace)
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingPages> {
        // Every change leaves a valid map, so a poisoned lock holds one.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WatcherPlace {
    fn drop(&mut self) {
        self.watchers.waiting().remove(&self.name);
        self.watchers.pages.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_limited_and_given_back() {
        let watchers = Watchers::default();
        let wait = |number: usize| watchers.wait(number.to_string(), None);
        let mut waiting: Vec<_> = (0..WATCHERS_MAX).map(|number| wait(number).unwrap()).collect();
        assert!(wait(WATCHERS_MAX).is_none(), "too many");
        waiting.pop();
        assert!(wait(0).is_none(), "the name is taken");
        assert!(wait(WATCHERS_MAX).is_some());
        drop(waiting);
        assert_eq!((watchers.waiting().len(), watchers.pages.load(SeqCst)), (0, 0));
    }

    #[test]
    fn only_a_session_with_the_same_key_is_shown() {
        let watchers = Watchers::default();
        let _ann = watchers.wait("page".into(), Some("ann".into())).unwrap();
        assert!(watchers.take("page", None).is_none() && watchers.take("page", Some("bob")).is_none());
        assert!(watchers.take("other", Some("ann")).is_none());
        assert!(watchers.take("page", Some("ann")).is_some());
        assert!(watchers.take("page", Some("ann")).is_none(), "one session for each page");
    }
}
