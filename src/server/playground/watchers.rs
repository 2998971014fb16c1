//! Pages that wait for a session. A page chooses a name that cannot be guessed, waits under it, and gives the name to the one
//! session that it opens. Both must have shown the same API key.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::oneshot;

use crate::{
    server::{
        access::address::client_subnet,
        registry::WaitingEntry,
        session_queue::QueueTotals,
        trace_files::{SessionTrace, TraceLines},
    },
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
    number: u64,
    key: Option<Arc<str>>,
    /// The network of the page.
    from: IpAddr,
    session: oneshot::Sender<WatchedSession>,
    _waiting: WaitingEntry,
}

#[derive(Default)]
struct Pages {
    /// By their names.
    waiting: BTreeMap<String, Watcher>,
    /// Numbers of those whose session has come.
    watching: BTreeSet<u64>,
    next_number: u64,
}

/// All pages that wait for a session or watch one.
#[derive(Clone, Default)]
pub(in crate::server) struct Watchers {
    pages: Arc<Mutex<Pages>>,
    /// Records that pages have not taken, and lost ones.
    totals: QueueTotals,
}

/// A page's place among the watchers; dropping it gives it up.
pub(in crate::server) struct WatcherPlace {
    name: String,
    number: u64,
    watchers: Watchers,
}

impl Watchers {
    /// Waits for a session under this name; `None` if the name is taken or too many pages watch sessions. Of those that wait, the
    /// oldest of the address with the most makes room.
    pub(in crate::server) fn wait(
        &self,
        name: String,
        key: Option<Arc<str>>,
        client: IpAddr,
        waiting_entry: WaitingEntry,
    ) -> Option<(WatcherPlace, oneshot::Receiver<WatchedSession>)> {
        let mut pages = self.pages();
        if pages.waiting.contains_key(&name) || (pages.is_full() && !pages.make_room()) {
            return None;
        }
        let (session, found) = oneshot::channel();
        let number = pages.next_number;
        pages.next_number += 1;
        let from = client_subnet(client);
        let watcher = Watcher { number, key, from, session, _waiting: waiting_entry };
        pages.waiting.insert(name.clone(), watcher);
        Some((WatcherPlace { name, number, watchers: self.clone() }, found))
    }

    /// The page that waits under this name and has shown this key.
    pub(in crate::server) fn take(&self, name: &str, key: Option<&str>) -> Option<Watcher> {
        let mut pages = self.pages();
        let has_same_key = pages.waiting.get(name)?.key.as_deref() == key;
        let watcher = if has_same_key { pages.waiting.remove(name) } else { None }?;
        pages.watching.insert(watcher.number);
        Some(watcher)
    }

    /// Starts to record a session for a page; `None` if the page has gone.
    pub(in crate::server) fn start_session(
        &self,
        watcher: Watcher,
        opened: Instant,
        header: TraceHeader,
    ) -> Option<SessionTrace> {
        let (session_trace, lines) = SessionTrace::new(opened, AudioRetention::All, self.totals.clone());
        watcher.session.send(WatchedSession { header, lines }).is_ok().then_some(session_trace)
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        // Every change leaves valid collections, so a poisoned lock holds some.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pages {
    fn is_full(&self) -> bool {
        self.waiting.len() + self.watching.len() >= WATCHERS_MAX
    }

    /// Ends the wait of one page; false if none waits.
    fn make_room(&mut self) -> bool {
        let mut counts = BTreeMap::<IpAddr, usize>::new();
        self.waiting.values().for_each(|page| *counts.entry(page.from).or_default() += 1);
        let weight = |page: &Watcher| (counts.get(&page.from), Reverse(page.number));
        let chosen = self.waiting.iter().max_by_key(|(_, page)| weight(page)).map(|(name, _)| name.clone());
        chosen.and_then(|name| self.waiting.remove(&name)).is_some()
    }
}

impl Drop for WatcherPlace {
    fn drop(&mut self) {
        let mut pages = self.watchers.pages();
        pages.watching.remove(&self.number);
        if pages.waiting.get(&self.name).is_some_and(|page| page.number == self.number) {
            pages.waiting.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::registry::Waiting;

    type Wait = Option<(WatcherPlace, oneshot::Receiver<WatchedSession>)>;

    fn wait(watchers: &Watchers, name: impl ToString, key: Option<&str>, from: u8) -> Wait {
        let entry = Waiting::default().add_page();
        watchers.wait(name.to_string(), key.map(Arc::from), [10, 0, 0, from].into(), entry)
    }

    #[test]
    fn address_with_the_most_waiting_pages_makes_room() {
        let watchers = Watchers::default();
        let (_first, mut of_first) = wait(&watchers, "first", None, 1).unwrap();
        let mut strangers: Vec<_> =
            (1..WATCHERS_MAX).map(|number| wait(&watchers, number, None, 2).unwrap()).collect();
        assert!(wait(&watchers, "first", None, 3).is_none(), "the name is taken");
        let _second = wait(&watchers, "second", None, 3).unwrap();
        assert!(strangers[0].1.try_recv().is_err_and(|error| error == oneshot::error::TryRecvError::Closed));
        assert_eq!(of_first.try_recv().err(), Some(oneshot::error::TryRecvError::Empty));
        // The place of the page that had to go is no other page's.
        drop(strangers.remove(0));
        assert!(watchers.pages().is_full());
        for number in 2..WATCHERS_MAX {
            assert!(watchers.take(&number.to_string(), None).is_some());
        }
        assert!(watchers.take("first", None).is_some() && watchers.take("second", None).is_some());
        assert!(wait(&watchers, "third", None, 4).is_none(), "pages that watch a session stay");
        drop(strangers);
        assert!(wait(&watchers, "third", None, 4).is_some());
    }

    #[test]
    fn only_a_session_with_the_same_key_is_shown() {
        let watchers = Watchers::default();
        let _ann = wait(&watchers, "page", Some("ann"), 1).unwrap();
        assert!(watchers.take("page", None).is_none() && watchers.take("page", Some("bob")).is_none());
        assert!(watchers.take("other", Some("ann")).is_none());
        assert!(watchers.take("page", Some("ann")).is_some());
        assert!(watchers.take("page", Some("ann")).is_none(), "one session for each page");
    }
}
