//! Time slice of a session on its thread: what it handles before other sessions of the thread run.
//!
//! A slice lasts until the session waits, or until it is over by weight or by time. Messages that cost little end no slice: a
//! slice of one message reads no clock beyond the instant that the bridge needs anyway.

use std::time::{Duration, Instant};

/// Weight after which a slice is over: a little more than one second of a model's speech, so that an ordinary message does not
/// end it.
const SLICE_MAX_WEIGHT: usize = 160 * 1024;
/// Weight of a message beside its bytes: eighty short ones are a slice.
const MESSAGE_WEIGHT: usize = 2 * 1024;
/// Time after which a slice is over. Neighbours wait for the slices of all busy sessions of their thread.
const SLICE_MAX: Duration = Duration::from_millis(2);

/// The time slice of one session.
#[derive(Debug)]
pub(super) struct TimeSlice {
    began: Instant,
    /// Bytes and messages handled since the session waited; 0 before the first message.
    weight: usize,
    /// Other sessions must run before the next message.
    pub(super) is_over: bool,
}

impl TimeSlice {
    pub(super) const fn new(now: Instant) -> Self {
        Self { began: now, weight: 0, is_over: false }
    }

    /// Counts a message that is handled now.
    pub(super) fn count_message(&mut self, now: Instant, bytes: usize) {
        if self.weight == 0 {
            self.began = now;
        } else if now - self.began >= SLICE_MAX {
            self.is_over = true;
        }
        self.weight += bytes + MESSAGE_WEIGHT;
        self.is_over |= self.weight > SLICE_MAX_WEIGHT;
    }

    /// The session waits, so that others run.
    pub(super) const fn end(&mut self) {
        (self.weight, self.is_over) = (0, false);
    }
}

#[cfg(test)]
mod tests {
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
