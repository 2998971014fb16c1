//! The end that is not the client's wish: how much time there is, and what for.
//!
//! Whoever is in the middle of a sentence is heard to its end, what was said is answered, and the lanes are told goodbye;
//! each has a part of the time, so that the last is not paid for with the first.

use std::time::{Duration, Instant};

/// Worth waiting for a worker that is given back politely, and no more.
pub(crate) const LANE_DRAIN_MAX: Duration = Duration::from_secs(10);

/// Beyond the longest time that a session may last, for what is going on then.
pub(crate) const TIME_LIMIT_GRACE: Duration = Duration::from_secs(25);

/// A session that is to end as soon as nobody is cut off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DrainPlan<R> {
    /// Why.
    pub(crate) reason: R,
    /// Who still speaks then is cut off: what follows needs the rest of the time.
    pub(crate) speech_deadline: Instant,
    /// What is not answered or spoken by then will not be; the rest is for the lanes' polite end.
    pub(crate) reply_deadline: Instant,
    /// Answers that nobody waits for any more are waited out no longer than until then.
    pub(crate) drain_deadline: Instant,
}

impl<R> DrainPlan<R> {
    /// To be over `within` from now.
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
