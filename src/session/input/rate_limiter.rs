//! Rate limiter: warns a client whose audio arrives faster than real time, and drops audio too far ahead of the clock.
//!
//! The rate counts from the first frame, as on the Macaw server (mappings/notes/macaw.md#audio-in).

use std::time::{Duration, Instant};

use crate::session::millis;

/// Time after the first frame in which no warning is sent.
const WARM_UP: Duration = Duration::from_millis(500);
/// Shortest time between two warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(1);

/// Decision about one frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RateDecision {
    /// Accept the frame.
    Accept,
    /// Accept the frame and ask the client to wait this long, ms.
    AcceptAndWarn(u64),
    /// Drop the frame.
    Drop,
}

/// One session's rate limiter.
#[derive(Debug)]
pub(crate) struct RateLimiter {
    /// Highest rate without a warning, in seconds of audio per second; 0 for no limit.
    rate_limit: f64,
    /// Longest audio ahead of the clock before frames are dropped; zero for no limit.
    max_ahead: Duration,
    first_at: Option<Instant>,
    /// Length of the first frame, which the rate leaves out. Otherwise a real-time client with frames of 256 ms would
    /// measure 1.5 times too fast half a second later (tests/golden/macaw/c07c_stt_256ms_frames_demo_frontend.json).
    first_length: Duration,
    accepted: Duration,
    warned_at: Option<Instant>,
}

impl RateLimiter {
    pub(crate) const fn new(rate_limit: f64, max_ahead_ms: u64) -> Self {
        let max_ahead = Duration::from_millis(max_ahead_ms);
        let zero = Duration::ZERO;
        Self { rate_limit, max_ahead, first_at: None, first_length: zero, accepted: zero, warned_at: None }
    }

    /// Decides about a frame of this length.
    pub(crate) fn check_frame(&mut self, now: Instant, length: Duration) -> RateDecision {
        let Some(first_at) = self.first_at else {
            self.first_at = Some(now);
            self.first_length = length;
            self.accepted = length;
            return RateDecision::Accept;
        };
        let elapsed = now.saturating_duration_since(first_at);
        let total = self.accepted + length;
        if !self.max_ahead.is_zero() && total > elapsed + self.max_ahead {
            return RateDecision::Drop;
        }
        self.accepted = total;
        let rate = (total - self.first_length).as_secs_f64() / elapsed.as_secs_f64();
        let too_fast = self.rate_limit > 0.0 && elapsed >= WARM_UP && rate > self.rate_limit;
        let may_warn = self.warned_at.is_none_or(|at| now >= at + WARNING_INTERVAL);
        if !too_fast || !may_warn {
            return RateDecision::Accept;
        }
        self.warned_at = Some(now);
        RateDecision::AcceptAndWarn(millis(length.mul_f64((rate - 1.0).max(0.0))).max(1))
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
    fn audio_at_twice_real_time_is_warned_once_a_second() {
        let (mut limiter, start) = (RateLimiter::new(1.2, 10_000), start());
        let mut warnings = Vec::new();
        for frame in 0..150 {
            let now = start + Duration::from_millis(20 * frame);
            if let RateDecision::AcceptAndWarn(delay_ms) = limiter.check_frame(now, Duration::from_millis(40))
            {
                warnings.push((20 * frame, delay_ms));
            }
        }
        assert_eq!(
            warnings,
            [(500, 40), (1500, 40), (2500, 40)],
            "tests/golden/macaw/c12a_rate_2x.json, where timers cost a millisecond"
        );
    }

    #[test]
    fn rate_limit_below_real_time_never_yields_a_negative_delay() {
        let (mut limiter, start) = (RateLimiter::new(0.5, 10_000), start());
        let later = start + Duration::from_secs(1);
        limiter.check_frame(start, Duration::from_millis(100));
        assert_eq!(limiter.check_frame(later, Duration::from_millis(600)), RateDecision::AcceptAndWarn(1));
    }

    #[test]
    fn burst_is_accepted_up_to_ten_seconds_ahead() {
        let (mut limiter, start) = (RateLimiter::new(1.2, 10_000), start());
        let decisions: Vec<RateDecision> =
            (0..120).map(|_| limiter.check_frame(start, Duration::from_millis(100))).collect();
        assert_eq!(
            decisions.iter().filter(|decision| **decision == RateDecision::Drop).count(),
            20,
            "tests/golden/macaw/c12b_burst_12s.json"
        );
    }

    #[test]
    fn real_time_audio_and_disabled_limits_are_never_warned() {
        for frame_ms in [20, 40, 100, 256, 400] {
            let (mut limiter, mut disabled, start) =
                (RateLimiter::new(1.2, 10_000), RateLimiter::new(0.0, 0), start());
            for frame in 0..200 {
                let now = start + Duration::from_millis(frame_ms * frame);
                assert_eq!(
                    limiter.check_frame(now, Duration::from_millis(frame_ms)),
                    RateDecision::Accept,
                    "{frame_ms} ms"
                );
                assert_eq!(disabled.check_frame(start, Duration::from_secs(1)), RateDecision::Accept);
            }
        }
    }
}
