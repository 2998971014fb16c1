//! Deadlines of a graceful end that the client did not ask for: shutdown, an operator's close, the time limit.
//!
//! The plan splits the time available into three parts: the current speaker finishes, pending replies are sent, and
//! the lanes close politely. No part can use up the time of the next one.

use std::time::{Duration, Instant};

/// Longest wait for a worker to be returned politely while the session drains.
pub(crate) const LANE_DRAIN_MAX: Duration = Duration::from_secs(10);

/// Time granted beyond a session's longest permitted duration, to finish what is going on.
pub(crate) const TIME_LIMIT_GRACE: Duration = Duration::from_secs(25);

/// Deadlines of a session that ends as soon as that interrupts no one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainPlan<R> {
    /// Reason for the end.
    pub(crate) reason: R,
    /// Latest end of current speech. Speech that lasts longer is cut off.
    pub(crate) speech_deadline: Instant,
    /// Latest reply to the client. Later replies are dropped; the remaining time is for closing the lanes.
    pub(crate) reply_deadline: Instant,
    /// Latest end of cancelled upstream answers that are still being drained.
    pub(crate) drain_deadline: Instant,
}

impl<R> DrainPlan<R> {
    /// Plans an end that is complete `within` from now.
    pub(crate) fn new(now: Instant, within: Duration, reason: R) -> Self {
        let reply_deadline = now + within * 5 / 6;
        Self {
            reason,
            speech_deadline: now + within * 2 / 3,
            reply_deadline,
            drain_deadline: reply_deadline.min(now + LANE_DRAIN_MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_plan_reserves_time_for_each_phase() {
        #[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
        let now = Instant::now();
        let plan = DrainPlan::new(now, Duration::from_secs(30), ());
        assert_eq!(plan.speech_deadline - now, Duration::from_secs(20));
        assert_eq!(plan.reply_deadline - now, Duration::from_secs(25));
    }
}
