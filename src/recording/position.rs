//! Instants and lengths in samples of a recording.

use std::time::Duration;

use super::RATE_HZ;

/// Number of samples before this time since the start.
pub(super) fn sample_at(time: Duration) -> u64 {
    let samples = (time.as_nanos() * u128::from(RATE_HZ) + 500_000_000) / 1_000_000_000;
    u64::try_from(samples).unwrap_or(u64::MAX)
}

/// The time of a position.
pub(super) fn time_of(position: u64) -> Duration {
    Duration::from_nanos(position * 1_000_000_000 / u64::from(RATE_HZ))
}

/// A stretch of audio without a gap: its start, and how much of it has come.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stretch {
    pub(super) start: Duration,
    groups: u64,
    rate_hz: u32,
}

impl Stretch {
    pub(super) const fn new(start: Duration, rate_hz: u32) -> Self {
        Self { start, groups: 0, rate_hz }
    }

    pub(super) const fn add(&mut self, groups: u64) {
        self.groups += groups;
    }

    /// Length of this many sample groups.
    pub(super) fn length(&self, groups: u64) -> Duration {
        let nanos = u128::from(groups) * 1_000_000_000 / u128::from(self.rate_hz.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// The end of the audio so far. It does not depend on how the audio was divided.
    pub(super) fn end(&self) -> Duration {
        self.start.saturating_add(self.length(self.groups))
    }
}
