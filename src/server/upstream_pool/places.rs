//! Places of an upstream that has no queue of its own: lanes wait here, first come, first served.
//!
//! An upstream without a limit has no places; its lanes never wait.

use std::{
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places of one upstream.
#[derive(Debug, Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    waiting: Arc<AtomicU32>,
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
    /// Position when the wait began, from 1.
    pub(super) position: u32,
}

impl Places {
    pub(super) fn new(count: NonZero<u32>) -> Self {
        Self { free: Arc::new(Semaphore::new(count.get() as usize)), waiting: Arc::default() }
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
                let position = self.waiting.fetch_add(1, Relaxed) + 1;
                PlaceRequest::Waiting(PlaceInLine { places: self.clone(), position })
            }
        }
    }
}

impl PlaceInLine {
    /// Waits for the place. It stays taken as long as the permit exists.
    pub(super) async fn wait(self) -> Option<OwnedSemaphorePermit> {
        // The semaphore is never closed.
        self.places.free.clone().acquire_owned().await.ok()
    }
}

impl Drop for PlaceInLine {
    fn drop(&mut self) {
        self.places.waiting.fetch_sub(1, Relaxed);
    }
}
