//! How fast audio comes, against the clock: warns a client that sends faster than real time, and refuses what runs too
//! far ahead. Counted from the first frame on, as the Macaw server does (field notes macaw.md §1.7).

use std::time::{Duration, Instant};

use super::link::millis;

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
    /// When the first frame came, and its length.
    first: Option<(Instant, Duration)>,
    taken: Duration,
    warned_at: Option<Instant>,
}

impl Meter {
    pub(crate) const fn new(rate_limit: f64, ahead_max_ms: u64) -> Self {
        let ahead_max = Duration::from_millis(ahead_max_ms);
        Self { rate_limit, ahead_max, first: None, taken: Duration::ZERO, warned_at: None }
    }

    /// Judges a frame of that length.
    pub(crate) fn frame(&mut self, now: Instant, length: Duration) -> Verdict {
        let Some((first_at, first_length)) = self.first else {
            self.first = Some((now, length));
            self.taken = length;
            return Verdict::Take;
        };
        let elapsed = now.saturating_duration_since(first_at);
        let total = self.taken + length;
        if !self.ahead_max.is_zero() && total > elapsed + self.ahead_max {
            return Verdict::Drop;
        }
        self.taken = total;
        // The first frame came before the clock started: without this, long frames at the speed of sound seem fast.
        let rate = total.saturating_sub(first_length).as_secs_f64() / elapsed.as_secs_f64();
        let fast = self.rate_limit > 0.0 && elapsed >= SETTLING && rate > self.rate_limit;
        let quiet = self.warned_at.is_none_or(|at| now >= at + WARNING_EVERY);
        if !fast || !quiet {
            return Verdict::Take;
        }
        self.warned_at = Some(now);
        Verdict::TakeAndWarn(millis(length.mul_f64(rate - 1.0)).max(1))
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
        // Golden c12a: delay 39 to 40 at 0.5, 1.5 and 2.5 s.
        let times: Vec<u64> = warnings.iter().map(|(at, _)| *at).collect();
        assert_eq!(times, [500, 1500, 2500]);
        assert!(warnings.iter().all(|(_, delay_ms)| (39..=40).contains(delay_ms)), "{warnings:?}");
    }

    #[test]
    fn a_burst_is_taken_up_to_ten_seconds_ahead() {
        let (mut meter, start) = (Meter::new(1.2, 10_000), start());
        let verdicts: Vec<Verdict> =
            (0..120).map(|_| meter.frame(start, Duration::from_millis(100))).collect();
        assert_eq!(verdicts.iter().filter(|verdict| **verdict == Verdict::Drop).count(), 20, "golden c12b");
    }

    #[test]
    fn real_time_says_nothing() {
        // The macaw command line's frames, the demo page's (golden c07c), and long ones.
        for frame_ms in [40, 256, 1_000] {
            let (mut meter, start) = (Meter::new(1.2, 10_000), start());
            for frame in 0..200 {
                let now = start + Duration::from_millis(frame_ms * frame);
                assert_eq!(meter.frame(now, Duration::from_millis(frame_ms)), Verdict::Take, "{frame_ms} ms");
            }
        }
    }

    #[test]
    fn switched_off_limits_say_nothing() {
        let (mut off, start) = (Meter::new(0.0, 0), start());
        for _ in 0..200 {
            assert_eq!(off.frame(start, Duration::from_secs(1)), Verdict::Take);
        }
    }
}
