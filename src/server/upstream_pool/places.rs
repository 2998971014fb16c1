//! Places of an upstream that has no queue of its own: lanes wait here, first come, first served.
//!
//! The number of places is configured, or learnt: an upstream that refuses a session has as many places as lanes are open then.
//! A learnt number is forgotten after a while, because the upstream may serve others too.

use std::{
    collections::VecDeque,
    num::NonZero,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::Notify,
    time::{Instant, sleep_until},
};

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
    line: Arc<Mutex<Line>>,
    /// A place became free, or the line moved.
    changed: Arc<Notify>,
}

#[derive(Debug)]
struct Line {
    /// The configured number.
    max: u32,
    /// The number for now, and when it is forgotten.
    learnt: Option<(u32, Instant)>,
    /// No attempt before this instant.
    not_before: Option<Instant>,
    taken: u32,
    next_ticket: u64,
    /// Tickets of the lanes that wait, in order.
    tickets: VecDeque<u64>,
}

/// Places of an upstream, for reports.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PlacesStatus {
    /// The configured number or the learnt one; `None` if it is unknown.
    pub max: Option<u32>,
    /// Lanes in line.
    pub waiting: u32,
}

/// Result of a request for a place.
#[derive(Debug)]
pub(super) enum PlaceRequest {
    /// A place was free.
    Granted(Place),
    /// All places are taken.
    Waiting(PlaceInLine),
}

/// A taken place; free when it is dropped.
#[derive(Debug)]
pub(super) struct Place(Places);

/// A wait for a place.
#[derive(Debug)]
pub(super) struct PlaceInLine {
    places: Places,
    ticket: u64,
}

/// Where a lane waits, for reports to its session.
#[derive(Debug)]
pub(super) struct LineView {
    places: Places,
    ticket: u64,
}

impl Line {
    /// True if the next attempt may be made now. Forgets what was learnt long ago.
    fn has_place(&mut self, now: Instant) -> bool {
        self.learnt.take_if(|(_, until)| *until <= now);
        self.not_before.take_if(|instant| *instant <= now);
        self.not_before.is_none() && self.taken < self.learnt.map_or(self.max, |(count, _)| count)
    }

    /// When more may be possible without an event.
    fn changes_at(&self) -> Option<Instant> {
        self.not_before.into_iter().chain(self.learnt.map(|(_, until)| until)).min()
    }
}

impl Places {
    /// Places for this capacity; `None` if the upstream queues sessions itself.
    pub(super) fn new(capacity: Capacity) -> Option<Self> {
        let max = match capacity {
            Capacity::QueuesItself => return None,
            Capacity::AtMost(count) => count.get(),
            Capacity::Unknown => u32::MAX,
        };
        let (learnt, not_before, tickets) = (None, None, VecDeque::new());
        let line = Line { max, learnt, not_before, taken: 0, next_ticket: 0, tickets };
        Some(Self { line: Arc::new(Mutex::new(line)), changed: Arc::default() })
    }

    /// The number of places, and how many lanes wait for one.
    pub(super) fn status(&self) -> PlacesStatus {
        let mut line = self.line();
        line.has_place(Instant::now());
        let max = line.learnt.map_or(line.max, |(count, _)| count);
        let waiting = u32::try_from(line.tickets.len()).unwrap_or(u32::MAX);
        PlacesStatus { max: Some(max).filter(|max| *max != u32::MAX), waiting }
    }

    /// True if the next lane would wait.
    pub(super) fn are_taken(&self) -> bool {
        let mut line = self.line();
        !line.tickets.is_empty() || !line.has_place(Instant::now())
    }

    /// Takes a place, or joins the line: at its front if the upstream has just refused the lane.
    pub(super) fn request(&self, was_refused: bool) -> PlaceRequest {
        let mut line = self.line();
        if (was_refused || line.tickets.is_empty()) && line.has_place(Instant::now()) {
            line.taken += 1;
            return PlaceRequest::Granted(Place(self.clone()));
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        match was_refused {
            true => line.tickets.push_front(ticket),
            false => line.tickets.push_back(ticket),
        }
        PlaceRequest::Waiting(PlaceInLine { places: self.clone(), ticket })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        // Every change leaves valid counters, so a poisoned lock holds valid state.
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// True if the number of places is known: another program has it if the upstream then ends a session at once.
    pub(super) fn is_numbered(&self) -> bool {
        self.0.line().max != u32::MAX
    }

    /// Learns from the refusal of the session that took this place. The upstream may ask for a pause.
    pub(super) fn report_refused(&self, retry_after: Option<Duration>) {
        let (mut line, now) = (self.0.line(), Instant::now());
        let others = line.taken.saturating_sub(1);
        let is_numbered = line.max != u32::MAX;
        if !is_numbered {
            line.learnt = Some((others.max(1), now + FORGET_AFTER));
        }
        let own_pause = (others == 0 || is_numbered).then_some(RETRY_AFTER);
        let pause = retry_after.map(|pause| pause.min(RETRY_AFTER_MAX)).or(own_pause);
        line.not_before = pause.map(|pause| now + pause);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.line().taken -= 1;
        self.0.changed.notify_waiters();
    }
}

impl LineView {
    /// Position from 1; `None` once the lane has left the line.
    pub(super) fn position(&self) -> Option<u32> {
        let at = self.places.line().tickets.iter().position(|ticket| *ticket == self.ticket)?;
        u32::try_from(at + 1).ok()
    }
}

impl PlaceInLine {
    /// The way to see where it waits.
    pub(super) fn view(&self) -> LineView {
        LineView { places: self.places.clone(), ticket: self.ticket }
    }

    /// Waits for the place.
    pub(super) async fn wait(self) -> Place {
        loop {
            let mut changed = pin!(self.places.changed.notified());
            changed.as_mut().enable();
            let changes_at = match self.take() {
                Ok(place) => return place,
                Err(changes_at) => changes_at,
            };
            match changes_at {
                Some(instant) => tokio::select! { () = changed => {} () = sleep_until(instant) => {} },
                None => changed.await,
            }
        }
    }

    /// Takes the place if it is this lane's turn. The error says when that may change without an event.
    fn take(&self) -> Result<Place, Option<Instant>> {
        let mut line = self.places.line();
        if line.tickets.front() == Some(&self.ticket) && line.has_place(Instant::now()) {
            line.taken += 1;
            return Ok(Place(self.places.clone()));
        }
        Err(line.changes_at())
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        self.places.line().tickets.retain(|ticket| *ticket != self.ticket);
        self.places.changed.notify_waiters();
    }
}
