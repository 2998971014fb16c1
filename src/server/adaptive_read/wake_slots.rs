//! The ticks of a clock that all sessions of a thread share: who waits for the clock waits for one of them, if it can.
//!
//! Waking up a processor costs as much as half a millisecond of audio does. Sessions that wait for instants of their own wake
//! it up for each of them; on ticks it serves all whose time has come. They are the further apart the fewer sessions there
//! are, so that there are always some to a tick and never many: those that come last wait for those before them.

use std::{ops::RangeInclusive, sync::LazyLock, time::Duration};

use tokio::{runtime::Handle, time::Instant};

/// From one tick to the next, and how late somebody may be for it, ms.
const APART_MS: RangeInclusive<usize> = 2..=5;
/// So far they are apart times the number of sessions, ms. A session that is talked to wakes up six times a second, which
/// makes up to six to a tick.
const APART_ALL_MS: usize = 1_000;

static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Ticks since the first one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticks {
    first: Instant,
    apart: Duration,
}

impl Ticks {
    /// Those of the thread that this is called on.
    ///
    /// # Panics
    /// Outside a runtime.
    pub(crate) fn here() -> Self {
        let metrics = Handle::current().metrics();
        Self::of(*FIRST, metrics.num_alive_tasks() / metrics.num_workers().max(1))
    }

    /// Those of so many sessions, that begin then.
    pub(crate) fn of(first: Instant, sessions: usize) -> Self {
        let apart_ms = (APART_ALL_MS / sessions.max(1)).clamp(*APART_MS.start(), *APART_MS.end());
        Self { first, apart: Duration::from_millis(apart_ms as u64) }
    }

    /// The tick at that instant, or the next one. Before the first one every instant is a tick.
    pub(crate) fn at_or_after(self, at: Instant) -> Instant {
        let past = at.saturating_duration_since(self.first).as_nanos() % self.apart.as_nanos();
        let past = Duration::from_nanos(u64::try_from(past).unwrap_or_default());
        if past.is_zero() { at } else { at + (self.apart - past) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn who_waits_is_never_early_and_meets_others(
            (first, apart) in (0u64..20_000, 0u64..5_000_000),
            sessions in 0usize..3_000,
        ) {
            let start = Instant::now();
            let ticks = Ticks::of(start, sessions);
            let (one, other) = (start + Duration::from_micros(first), start + Duration::from_micros(first + apart));
            for at in [one, other] {
                let tick = ticks.at_or_after(at);
                prop_assert!(at <= tick && tick < at + ticks.apart);
                prop_assert_eq!(ticks.at_or_after(tick), tick);
            }
            let between = ticks.at_or_after(other) - ticks.at_or_after(one);
            prop_assert_eq!(between.as_nanos() % ticks.apart.as_nanos(), 0);
        }
    }

    #[test]
    fn the_more_there_are_the_closer_they_are() {
        let apart = [0, 1, 100, 200, 300, 500, 100_000]
            .map(|sessions| Ticks::of(Instant::now(), sessions).apart.as_millis());
        assert_eq!(apart, [5, 5, 5, 5, 3, 2, 2]);
    }

    #[tokio::test]
    async fn who_ends_is_not_counted_any_more() {
        let many: Vec<_> = (0..500).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
        assert_eq!(Ticks::here().apart.as_millis(), 2);
        for one in many {
            one.abort();
            assert!(one.await.is_err());
        }
        assert_eq!(Ticks::here().apart.as_millis(), 5);
    }

    #[test]
    fn before_the_first_nobody_waits_for_one() {
        let start = Instant::now();
        let ticks = Ticks::of(start + Duration::from_secs(1), 1);
        let at = start + Duration::from_micros(1_234);
        assert_eq!(ticks.at_or_after(at), at);
    }
}
