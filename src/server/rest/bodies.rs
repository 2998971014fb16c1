//! The bodies of requests that are being received: bounds their number, and gives up the slowest when there is no room.
//!
//! A body in progress holds no session slot, so stalled uploads keep no client out. Beyond [`BODIES_MAX`], and when others wait
//! for memory, the body with the least recent progress is given up. A client that sends at any usual speed is never
//! the slowest beside one that stalls.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

/// Most bodies in progress. Each may hold [`super::body::SMALL_BYTES`] beyond the memory of large ones.
const BODIES_MAX: usize = 256;
/// Progress is measured in intervals of this length: the current one and the one before.
const INTERVAL: Duration = Duration::from_secs(5);
/// Bytes that each body counts as received from its start, so that a new one is not the slowest.
const HEAD_START_BYTES: usize = 64 * 1024;

/// All bodies in progress, the oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Bodies(Arc<Mutex<Vec<Arc<BodyInProgress>>>>);

/// A body in progress.
#[derive(Debug)]
struct BodyInProgress {
    started: Instant,
    progress: Mutex<Progress>,
    given_up: Notify,
}

#[derive(Debug, Clone, Copy, Default)]
struct Progress {
    received: usize,
    /// Number of the current interval, and the bytes in it and in the one before.
    interval: u64,
    recent: [usize; 2],
    /// The server does not read for now, because it lacks memory.
    is_held: bool,
}

/// The place of one body. Dropping it frees the place.
#[derive(Debug)]
pub(super) struct BodyPlace {
    pub(super) bodies: Bodies,
    body: Arc<BodyInProgress>,
}

impl Bodies {
    /// Adds a body. If there are [`BODIES_MAX`] already, gives up the slowest.
    pub(super) fn begin(&self) -> BodyPlace {
        if self.lock().len() >= BODIES_MAX {
            self.give_up_slowest(0);
        }
        let (progress, given_up) = (Mutex::default(), Notify::new());
        let body = Arc::new(BodyInProgress { started: Instant::now(), progress, given_up });
        self.lock().push(body.clone());
        BodyPlace { bodies: self.clone(), body }
    }

    /// Gives up the body with the least recent progress among those that have received more than this. False if there is none.
    pub(super) fn give_up_slowest(&self, received_min: usize) -> bool {
        let now = Instant::now();
        let mut bodies = self.lock();
        let speeds = bodies.iter().enumerate().filter_map(|(at, body)| {
            let progress = *body.progress();
            let counts = progress.received >= received_min && !progress.is_held;
            counts.then(|| (progress.speed(now.duration_since(body.started)), at))
        });
        let slowest = speeds.min().map(|(_, at)| bodies.remove(at));
        slowest.inspect(|body| body.given_up.notify_one()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<BodyInProgress>>> {
        // A panic cannot leave the list inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BodyInProgress {
    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Progress {
    fn add(&mut self, age: Duration, bytes: usize) {
        self.recent = self.recent_at(age);
        self.interval = interval_at(age);
        self.recent[1] += bytes;
        self.received += bytes;
    }

    /// The bytes received in the interval before the one at this age, and in the one at this age.
    fn recent_at(&self, age: Duration) -> [usize; 2] {
        // Another thread may have counted bytes since the age was taken.
        match interval_at(age).saturating_sub(self.interval) {
            0 => self.recent,
            1 => [self.recent[1], 0],
            _ => [0, 0],
        }
    }

    /// Recent progress, bytes a second.
    fn speed(&self, age: Duration) -> u64 {
        let head_start = if age < INTERVAL { HEAD_START_BYTES } else { 0 };
        let bytes = self.recent_at(age).iter().sum::<usize>() + head_start;
        let whole = age.as_millis() % INTERVAL.as_millis() + INTERVAL.as_millis();
        let measured_ms = age.as_millis().min(whole).max(1);
        u64::try_from(bytes as u128 * 1000 / measured_ms).unwrap_or(u64::MAX)
    }
}

fn interval_at(age: Duration) -> u64 {
    age.as_secs() / INTERVAL.as_secs()
}

impl BodyPlace {
    /// Counts received bytes.
    pub(super) fn add(&self, bytes: usize) {
        self.body.progress().add(self.body.started.elapsed(), bytes);
    }

    /// Sets whether the server does not read this body for now. A held body is never the slowest.
    pub(super) fn set_held(&self, is_held: bool) {
        self.body.progress().is_held = is_held;
    }

    /// Completes when another body needs the place.
    pub(super) async fn given_up(&self) {
        self.body.given_up.notified().await;
    }

    /// Number of older bodies in progress.
    pub(super) fn older(&self) -> usize {
        self.bodies.lock().iter().take_while(|body| !Arc::ptr_eq(body, &self.body)).count()
    }
}

impl Drop for BodyPlace {
    fn drop(&mut self) {
        self.bodies.lock().retain(|body| !Arc::ptr_eq(body, &self.body));
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::advance;

    use super::*;

    fn is_given_up(place: &BodyPlace) -> bool {
        place.given_up().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_body_makes_room_for_new_ones() {
        let bodies = Bodies::default();
        let (stalled, slow) = (bodies.begin(), bodies.begin());
        stalled.add(20_000_000);
        for _ in 0..30 {
            advance(Duration::from_secs(1)).await;
            slow.add(30_000);
        }
        let others: Vec<_> = (2..BODIES_MAX).map(|_| bodies.begin()).collect();
        let newcomer = bodies.begin();
        assert!(is_given_up(&stalled), "it has received most, but nothing of late");
        assert!(![&slow, &newcomer].into_iter().chain(&others).any(is_given_up));
        assert_eq!((slow.older(), others[0].older()), (0, 1));
        drop(slow);
        assert_eq!(others[0].older(), 0, "a place is free again");
    }

    #[tokio::test(start_paused = true)]
    async fn body_that_the_server_holds_back_is_not_given_up() {
        let bodies = Bodies::default();
        let (held, small, sending) = (bodies.begin(), bodies.begin(), bodies.begin());
        held.add(2_000_000);
        held.set_held(true);
        small.add(10);
        sending.add(2_000_000);
        advance(Duration::from_secs(60)).await;
        sending.add(1);
        assert!(bodies.give_up_slowest(1_000_000) && is_given_up(&sending));
        assert!(!bodies.give_up_slowest(1_000_000), "one is held back, the other is small");
        assert!(!is_given_up(&held) && !is_given_up(&small));
    }
}
