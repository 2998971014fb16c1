//! Time slice of a session on its thread: what it handles before other sessions of the thread run.
//!
//! A slice lasts until the session waits, or until it is over by weight or by time. Messages that cost little end no slice: a
//! slice of one message reads no clock beyond the instants that the bridge needs anyway.
//!
//! The sessions of a thread whose slices last long take turns: between two such slices, everything else on the thread runs. So
//! the other sessions wait for one slice at most, however many sessions are busy.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

thread_local! {
    /// The turn of the busy sessions of this thread.
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// Weight after which a slice is over: a little more than one second of a model's speech, so that an ordinary message does not
/// end it.
const SLICE_MAX_WEIGHT: usize = 160 * 1024;
/// Weight of a message beside its bytes: eighty short ones are a slice.
const MESSAGE_WEIGHT: usize = 2 * 1024;
/// Time after which a slice is over. Neighbours wait for the slices of all busy sessions of their thread.
const SLICE_MAX: Duration = Duration::from_millis(2);

/// A session whose last slice took this long is busy.
const BUSY_MIN: Duration = Duration::from_millis(1);

/// The time slice of one session.
#[derive(Debug)]
pub(super) struct TimeSlice {
    began: Instant,
    /// Bytes and messages handled since the session waited; 0 before the first message.
    weight: usize,
    /// Other sessions must run before the next message.
    pub(super) is_over: bool,
    /// The last slices took long.
    is_busy: bool,
    /// The turn of the busy sessions.
    turn: Option<OwnedSemaphorePermit>,
}

impl TimeSlice {
    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, weight: 0, is_over: false, is_busy: false, turn: None }
    }

    /// Counts a message that is handled now.
    pub(super) fn count_message(&mut self, now: Instant, bytes: usize) {
        if self.weight == 0 {
            self.began = now;
        }
        self.weight += bytes + MESSAGE_WEIGHT;
        self.is_over |= self.weight > SLICE_MAX_WEIGHT;
        self.count_time(now);
    }

    /// Counts the time until now, when the messages so far are handled.
    pub(super) fn count_time(&mut self, now: Instant) {
        let took = if self.weight == 0 { Duration::ZERO } else { now.saturating_duration_since(self.began) };
        self.is_over |= took >= SLICE_MAX;
        self.is_busy |= took >= BUSY_MIN;
    }

    /// Waits for the turn of a busy session.
    pub(super) async fn take_turn(&mut self) {
        if self.is_busy && self.turn.is_none() {
            self.turn = TURN.with(Clone::clone).acquire_owned().await.ok();
            // The slice begins with the next message.
            (self.weight, self.is_busy) = (0, false);
        }
    }

    /// The session waits, so that others run.
    pub(super) fn end(&mut self) {
        (self.weight, self.is_over, self.turn) = (0, false, None);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::{super::std_now, *};

    /// Messages of `bytes` that each take `cost`, handled until the slice is over.
    fn messages_in_a_slice(bytes: usize, cost: Duration) -> usize {
        let mut now = std_now();
        let mut slice = TimeSlice::new(now);
        (1..)
            .find(|_| {
                slice.count_message(now, bytes);
                now += cost;
                slice.is_over
            })
            .unwrap()
    }

    #[test]
    fn slice_is_over_by_bytes_by_messages_and_by_time() {
        assert_eq!(messages_in_a_slice(240_000, Duration::ZERO), 1);
        assert_eq!(messages_in_a_slice(60_000, Duration::ZERO), 3);
        assert_eq!(messages_in_a_slice(100, Duration::ZERO), 77);
        assert_eq!(messages_in_a_slice(100, Duration::from_millis(5)), 2);
        assert_eq!(messages_in_a_slice(100, Duration::from_micros(500)), 5);
    }

    #[tokio::test]
    async fn busy_sessions_of_a_thread_take_turns() {
        let now = std_now();
        let [mut first, mut second, mut light] = [(); 3].map(|()| TimeSlice::new(now));
        for slice in [&mut first, &mut second] {
            slice.count_message(now, 100);
            slice.count_time(now + Duration::from_millis(5));
            assert!(slice.is_over, "one message can take a slice");
            slice.end();
        }
        first.take_turn().await;
        light.take_turn().now_or_never().expect("a session that is not busy does not wait");
        assert!(second.take_turn().now_or_never().is_none(), "the turn of the first");
        first.count_message(now, 100);
        first.count_time(now + Duration::from_micros(50));
        first.end();
        second.take_turn().now_or_never().expect("the first has given its turn away");
        first.take_turn().now_or_never().expect("it is not busy any more");
    }

    #[test]
    fn waiting_ends_a_slice() {
        let now = std_now();
        let mut slice = TimeSlice::new(now);
        slice.count_message(now, 1000);
        slice.end();
        slice.count_message(now + Duration::from_secs(1), 100_000);
        assert!(!slice.is_over, "the time before the wait does not count");
    }
}
