//! The ticks of a clock that all sessions share: who waits for the clock waits for one of them, if it can.
//!
//! Waking up a processor costs as much as half a millisecond of audio does. Sessions that wait for instants of their own wake
//! it up for each of them; on ticks it serves all whose time has come.

use std::{sync::LazyLock, time::Duration};

use tokio::time::Instant;

/// From one tick to the next, and how late somebody may be for it.
const TICK: Duration = Duration::from_millis(2);

static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Ticks since the first one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ticks(Instant);

impl Ticks {
    /// Those of the process.
    pub(super) fn shared() -> Self {
        Self(*FIRST)
    }

    /// Those that begin then.
    #[cfg(test)]
    pub(super) const fn since(first: Instant) -> Self {
        Self(first)
    }

    /// The tick at that instant, or the next one. Before the first one every instant is a tick.
    pub(super) fn at_or_after(self, at: Instant) -> Instant {
        let past = at.saturating_duration_since(self.0).as_nanos() % TICK.as_nanos();
        let past = Duration::from_nanos(u64::try_from(past).unwrap_or_default());
        if past.is_zero() { at } else { at + (TICK - past) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn who_waits_is_never_early_and_meets_others(first in 0u64..20_000, apart in 0u64..5_000_000) {
            let start = Instant::now();
            let ticks = Ticks::since(start);
            let (one, other) = (start + Duration::from_micros(first), start + Duration::from_micros(first + apart));
            for at in [one, other] {
                let tick = ticks.at_or_after(at);
                prop_assert!(at <= tick && tick < at + TICK);
                prop_assert_eq!(ticks.at_or_after(tick), tick);
            }
            let between = ticks.at_or_after(other) - ticks.at_or_after(one);
            prop_assert_eq!(between.as_nanos() % TICK.as_nanos(), 0);
        }
    }

    #[test]
    fn before_the_first_nobody_waits_for_one() {
        let start = Instant::now();
        let ticks = Ticks::since(start + Duration::from_secs(1));
        let at = start + Duration::from_micros(1_234);
        assert_eq!(ticks.at_or_after(at), at);
    }
}
