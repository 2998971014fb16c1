//! Places of an upstream that has no queue of its own: lanes wait here, first come, first served.
//!
//! An upstream without a limit has no places; its lanes never wait.

use std::{
    collections::VecDeque,
    num::NonZero,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places of one upstream.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    line: Arc<Mutex<Line>>,
}

/// Tickets of the lanes that wait, in order.
#[derive(Debug, Default)]
struct Line {
    next_ticket: u64,
    tickets: VecDeque<u64>,
}

/// Result of a request for a place.
#[derive(Debug)]
pub(super) enum PlaceRequest {
    /// A place was free.
    Granted(OwnedSemaphorePermit),
    /// All places are taken.
    Waiting(PlaceInLine),
}

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

impl Places {
    pub(super) fn new(count: NonZero<u32>) -> Self {
        Self { free: Arc::new(Semaphore::new(count.get() as usize)), line: Arc::default() }
    }

    /// True if the next lane would wait.
    pub(super) fn are_taken(&self) -> bool {
        self.free.available_permits() == 0
    }

    /// Takes a place, or joins the line.
    pub(super) fn request(&self) -> PlaceRequest {
        match self.free.clone().try_acquire_owned() {
            Ok(place) => PlaceRequest::Granted(place),
            Err(_) => {
                let mut line = self.line();
                let ticket = line.next_ticket;
                line.next_ticket += 1;
                line.tickets.push_back(ticket);
                PlaceRequest::Waiting(PlaceInLine { places: self.clone(), ticket })
            }
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Waits for the place. It stays taken as long as the permit exists.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.places.free.clone().acquire_owned().await.ok()
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        self.places.line().tickets.retain(|ticket| *ticket != self.ticket);
    }
}
