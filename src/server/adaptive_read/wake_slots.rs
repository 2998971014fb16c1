//! Wake slots: ticks shared by all sessions of a thread, so that one wake-up serves every session that is due.
//!
//! Waking a processor costs as much as processing half a millisecond of audio. The fewer the sessions, the wider the
//! slots, because the sessions that wake last in a slot wait for the others.

use std::{ops::RangeInclusive, sync::LazyLock, time::Duration};

use tokio::{runtime::Handle, time::Instant};

/// Range of the slot width, ms.
const SPACING_MS: RangeInclusive<usize> = 2..=5;
/// Slot width times the number of sessions, ms. A busy session wakes six times a second, which makes up to six
/// wake-ups per slot.
const SPACING_TIMES_SESSIONS_MS: usize = 1_000;

static FIRST_SLOT: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A grid of wake slots.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WakeSlots {
    first: Instant,
    spacing: Duration,
}

impl WakeSlots {
    /// The slots of the current thread.
    ///
    /// # Panics
    /// Panics outside a runtime.
    pub(crate) fn of_current_thread() -> Self {
        let metrics = Handle::current().metrics();
        Self::new(*FIRST_SLOT, metrics.num_alive_tasks() / metrics.num_workers().max(1))
    }

    /// Slots for a number of sessions, counted from `first`.
    pub(crate) fn new(first: Instant, sessions: usize) -> Self {
        let spacing_ms =
            (SPACING_TIMES_SESSIONS_MS / sessions.max(1)).clamp(*SPACING_MS.start(), *SPACING_MS.end());
        Self { first, spacing: Duration::from_millis(spacing_ms as u64) }
    }

    /// The first slot at or after `at`. Every instant before the first slot counts as a slot.
    pub(crate) fn slot_at_or_after(self, at: Instant) -> Instant {
        let since_slot = self.since_slot(at);
        if since_slot.is_zero() { at } else { at + (self.spacing - since_slot) }
    }

    /// The last slot at or before `at`.
    pub(crate) fn slot_at_or_before(self, at: Instant) -> Instant {
        at - self.since_slot(at)
    }

    fn since_slot(self, at: Instant) -> Duration {
        let since_slot = at.saturating_duration_since(self.first).as_nanos() % self.spacing.as_nanos();
        Duration::from_nanos(u64::try_from(since_slot).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slot_is_never_early_and_shared_by_sessions(
            (first, spacing) in (0u64..20_000, 0u64..5_000_000),
            sessions in 0usize..3_000,
        ) {
            let start = Instant::now();
            let slots = WakeSlots::new(start, sessions);
            let (one, other) = (start + Duration::from_micros(first), start + Duration::from_micros(first + spacing));
            for at in [one, other] {
                let slot = slots.slot_at_or_after(at);
                prop_assert!(at <= slot && slot < at + slots.spacing);
                prop_assert_eq!(slots.slot_at_or_after(slot), slot);
                let before = slots.slot_at_or_before(at);
                prop_assert!(before <= at && at < before + slots.spacing);
                prop_assert_eq!(slots.slot_at_or_after(before), before);
            }
            let between = slots.slot_at_or_after(other) - slots.slot_at_or_after(one);
            prop_assert_eq!(between.as_nanos() % slots.spacing.as_nanos(), 0);
        }
    }

    #[test]
    fn slots_are_closer_with_more_sessions() {
        let spacing = [0, 1, 100, 200, 300, 500, 100_000]
            .map(|sessions| WakeSlots::new(Instant::now(), sessions).spacing.as_millis());
        assert_eq!(spacing, [5, 5, 5, 5, 3, 2, 2]);
    }

    #[tokio::test]
    async fn ended_tasks_are_not_counted() {
        let many: Vec<_> = (0..500).map(|_| tokio::spawn(std::future::pending::<()>())).collect();
        assert_eq!(WakeSlots::of_current_thread().spacing.as_millis(), 2);
        for one in many {
            one.abort();
            assert!(one.await.is_err());
        }
        assert_eq!(WakeSlots::of_current_thread().spacing.as_millis(), 5);
    }

    #[test]
    fn instants_before_first_slot_are_unchanged() {
        let start = Instant::now();
        let slots = WakeSlots::new(start + Duration::from_secs(1), 1);
        let at = start + Duration::from_micros(1_234);
        assert_eq!(slots.slot_at_or_after(at), at);
    }
}
