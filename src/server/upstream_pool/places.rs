//! Places of one upstream: how many more sessions it takes. Lanes without a place wait in the pool's line.
//!
//! The number of places is configured, or learnt: an upstream that refuses a session has as many places as lanes are open then.
//! A learnt number is forgotten after a while, because the upstream may serve others too.

use std::{
    num::NonZero,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::signals::Signals;

/// How many sessions an upstream takes at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Capacity {
    /// The upstream queues further sessions itself.
    QueuesItself,
    /// This many; a further one would fail.
    AtMost(NonZero<u32>),
    /// A number that shows when it refuses a session.
    Unknown,
}

/// Time after which a learnt number of places is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(60);
/// Pause before the next attempt at an upstream that refused a session although it had places: others use it.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Longest pause that an upstream may ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(60);

/// Places of one upstream.
#[derive(Debug, Clone)]
pub(super) struct Places {
    room: Arc<Mutex<Room>>,
    signals: Signals,
}

#[derive(Debug)]
struct Room {
    capacity: Capacity,
    /// The number of places for now, and when it is forgotten.
    learnt: Option<(u32, Instant)>,
    /// No attempt before this instant.
    not_before: Option<Instant>,
    taken: u32,
}

/// Places of an upstream, for reports.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PlacesStatus {
    /// The configured number or the learnt one; `None` if it is unknown.
    pub max: Option<u32>,
    /// Lanes in line.
    pub waiting: u32,
}

/// A taken place; free when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Places);

impl Room {
    /// The number of places, if it is known.
    fn max(&self) -> Option<u32> {
        let configured = match self.capacity {
            Capacity::AtMost(count) => Some(count.get()),
            Capacity::QueuesItself | Capacity::Unknown => None,
        };
        self.learnt.map(|(count, _)| count).or(configured)
    }

    /// True if the next attempt may be made now. Forgets what was learnt long ago.
    fn has_place(&mut self, now: Instant) -> bool {
        self.learnt.take_if(|(_, until)| *until <= now);
        self.not_before.take_if(|instant| *instant <= now);
        self.not_before.is_none() && self.max().is_none_or(|max| self.taken < max)
    }
}

impl Places {
    pub(super) fn new(capacity: Capacity, signals: Signals) -> Self {
        let room = Room { capacity, learnt: None, not_before: None, taken: 0 };
        Self { room: Arc::new(Mutex::new(room)), signals }
    }

    /// Changes the number of places. Sessions beyond it go on.
    pub(super) fn set_capacity(&self, capacity: Capacity) {
        let mut room = self.room();
        if room.capacity != capacity {
            (room.capacity, room.learnt, room.not_before) = (capacity, None, None);
        }
        drop(room);
        self.signals.notify_places();
    }

    /// The number of places, if it is known.
    pub(super) fn max(&self) -> Option<u32> {
        let mut room = self.room();
        room.has_place(Instant::now());
        room.max()
    }

    /// True if the upstream takes another session now.
    pub(super) fn has_place(&self) -> bool {
        self.room().has_place(Instant::now())
    }

    /// When it may have a place without an event.
    pub(super) fn changes_at(&self) -> Option<Instant> {
        let room = self.room();
        room.not_before.into_iter().chain(room.learnt.map(|(_, until)| until)).min()
    }

    /// Takes a place; `None` if there is none.
    pub(super) fn take(&self) -> Option<Place> {
        let mut room = self.room();
        room.has_place(Instant::now()).then(|| {
            room.taken += 1;
            Place(self.clone())
        })
    }

    fn room(&self) -> MutexGuard<'_, Room> {
        // Every change leaves valid counters, so a poisoned lock holds valid state.
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// How many such places the upstream has.
    pub(super) fn capacity(&self) -> Capacity {
        self.0.room().capacity
    }

    /// Learns from the refusal of the session that took this place. The upstream may ask for a pause.
    pub(super) fn report_refused(&self, retry_after: Option<Duration>) {
        let (mut room, now) = (self.0.room(), Instant::now());
        let others = room.taken.saturating_sub(1);
        let is_numbered = match room.capacity {
            Capacity::QueuesItself => return,
            Capacity::AtMost(_) => true,
            Capacity::Unknown => false,
        };
        if !is_numbered {
            room.learnt = Some((others.max(1), now + FORGET_AFTER));
        }
        let own_pause = (others == 0 || is_numbered).then_some(RETRY_AFTER);
        let pause = retry_after.map(|pause| pause.min(RETRY_AFTER_MAX)).or(own_pause);
        // An earlier refusal may have named a longer pause.
        room.not_before = room.not_before.max(pause.map(|pause| now + pause));
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut room = self.0.room();
        room.taken = room.taken.saturating_sub(1);
        let is_waited_for = room.capacity != Capacity::QueuesItself;
        drop(room);
        if is_waited_for {
            self.0.signals.notify_places();
        }
    }
}
