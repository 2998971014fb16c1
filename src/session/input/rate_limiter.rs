//! How fast audio comes, against the clock: warns a client that sends faster than real time, and refuses what runs too
//! far ahead. Counted from the first frame on, as the Macaw server does (field notes macaw.md §1.7).

use std::time::{Duration, Instant};

use crate::session::upstream::connection::millis;

/// No verdict before this much time has passed.
const SETTLING: Duration = Duration::from_millis(500);
/// One warning in this time at most.
const WARNING_EVERY: Duration = Duration::from_secs(1);

/// What to do with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Take it.
    Take,
    /// Take it and ask the client to wait this long, ms.
    TakeAndWarn(u64),
    /// Drop it.
    Drop,
}

/// One session's meter.
#[derive(Debug)]
pub(crate) struct Meter {
    /// Seconds of audio a second above which a warning is due; 0 for never.
    rate_limit: f64,
    /// Audio ahead of the clock above which frames are dropped; zero for never.
    ahead_max: Duration,
    first_at: Option<Instant>,
    /// Length of the first frame. It is no audio "since then": a client with frames of 256 ms in real time would
    /// otherwise be 1.5 times too fast half a second later (golden c07c).
    first: Duration,
    taken: Duration,
    warned_at: Option<Instant>,
}

impl Meter {
    pub(crate) const fn new(rate_limit: f64, ahead_max_ms: u64) -> Self {
        let ahead_max = Duration::from_millis(ahead_max_ms);
        let zero = Duration::ZERO;
        Self { rate_limit, ahead_max, first_at: None, first: zero, taken: zero, warned_at: None }
    }

    /// Judges a frame of that length.
    pub(crate) fn frame(&mut self, now: Instant, length: Duration) -> Verdict {
        let Some(first_at) = self.first_at else {
            self.first_at = Some(now);
            self.first = length;
            self.taken = length;
            return Verdict::Take;
        };
        let elapsed = now.saturating_duration_since(first_at);
        let total = self.taken + length;
        if !self.ahead_max.is_zero() && total > elapsed + self.ahead_max {
            return Verdict::Drop;
        }
        self.taken = total;
        let rate = (total - self.first).as_secs_f64() / elapsed.as_secs_f64();
        let fast = self.rate_limit > 0.0 && elapsed >= SETTLING && rate > self.rate_limit;
        let quiet = self.warned_at.is_none_or(|at| now >= at + WARNING_EVERY);
        if !fast || !quiet {
            return Verdict::Take;
        }
        self.warned_at = Some(now);
        Verdict::TakeAndWarn(millis(length.mul_f64((rate - 1.0).max(0.0))).max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Instant {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        Instant::now()
    }

    #[test]
    fn twice_real_time_is_warned_once_a_second() {
        let (mut meter, start) = (Meter::new(1.2, 10_000), start());
        let mut warnings = Vec::new();
        for frame in 0..150 {
            let now = start + Duration::from_millis(20 * frame);
            if let Verdict::TakeAndWarn(delay_ms) = meter.frame(now, Duration::from_millis(40)) {
                warnings.push((20 * frame, delay_ms));
            }
        }
        assert_eq!(
            warnings,
            [(500, 40), (1500, 40), (2500, 40)],
            "golden c12a, where timers cost a millisecond"
        );
    }

    #[test]
    fn a_limit_below_real_time_asks_for_no_negative_wait() {
        let (mut meter, start) = (Meter::new(0.5, 10_000), start());
        let late = start + Duration::from_secs(1);
        meter.frame(start, Duration::from_millis(100));
        assert_eq!(meter.frame(late, Duration::from_millis(600)), Verdict::TakeAndWarn(1));
    }

    #[test]
    fn a_burst_is_taken_up_to_ten_seconds_ahead() {
        let (mut meter, start) = (Meter::new(1.2, 10_000), start());
        let verdicts: Vec<Verdict> =
            (0..120).map(|_| meter.frame(start, Duration::from_millis(100))).collect();
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Drop).count(), 20, "golden c12b");
    }

    #[test]
    fn real_time_and_switched_off_limits_say_nothing() {
        for frame_ms in [20, 40, 100, 256, 400] {
            let (mut meter, mut off, start) = (Meter::new(1.2, 10_000), Meter::new(0.0, 0), start());
            for frame in 0..200 {
                let now = start + Duration::from_millis(frame_ms * frame);
                assert_eq!(meter.frame(now, Duration::from_millis(frame_ms)), Verdict::Take, "{frame_ms} ms");
                assert_eq!(off.frame(start, Duration::from_secs(1)), Verdict::Take);
            }
        }
    }
}
