//! Histograms of durations, and the counters of a run.

use std::cell::Cell;

use super::sample_tracker::SampleCounts;

/// Steps per doubling: a percentile is accurate to 1.6 %.
const STEPS_PER_DOUBLING: u64 = 64;

/// Histogram of durations, µs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    max: u64,
}

impl Histogram {
    pub(crate) fn add(&mut self, micros: u64) {
        let at = Self::bucket_index(micros);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.max = self.max.max(micros);
    }

    fn bucket_index(micros: u64) -> usize {
        let doublings = (micros / STEPS_PER_DOUBLING).checked_ilog2().map_or(0, |log| u64::from(log) + 1);
        let shift = doublings.saturating_sub(1);
        (doublings * STEPS_PER_DOUBLING + (micros >> shift) % STEPS_PER_DOUBLING) as usize
    }

    /// Longest duration of a bucket, µs.
    fn bucket_max_us(bucket: usize) -> u64 {
        let (doublings, step) = (bucket as u64 / STEPS_PER_DOUBLING, bucket as u64 % STEPS_PER_DOUBLING);
        if doublings == 0 { step } else { ((STEPS_PER_DOUBLING + step + 1) << (doublings - 1)) - 1 }
    }

    pub(crate) const fn total(&self) -> u64 {
        self.total
    }

    pub(crate) fn max_ms(&self) -> f64 {
        self.max as f64 / 1000.0
    }

    /// Quantile, ms.
    pub(crate) fn quantile_ms(&self, part: f64) -> f64 {
        let wanted = (self.total as f64 * part).ceil() as u64;
        let mut seen = 0;
        let bucket = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        bucket.map_or(0.0, |bucket| Self::bucket_max_us(bucket).min(self.max) as f64 / 1000.0)
    }
}

/// All counters of a run.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Records latencies only while true, not before or after the measurement.
    pub(crate) is_measuring: Cell<bool>,
    /// From the frame with a unit's last sample to the unit's arrival upstream; through a relay, of each frame.
    pub(crate) up_latency: Histogram,
    /// From the later frame that the bridge's resampler also needs; through a relay, of the long messages.
    pub(crate) up_excess_latency: Histogram,
    /// From a delta, or its due time, to its first audio.
    pub(crate) down_latency: Histogram,
    /// From the first delta of a turn to its first audio, including intentional delay.
    pub(crate) turn_start_latency: Histogram,
    /// From the frame that ended an utterance to the first audio of its answer, without the question's transfer.
    pub(crate) answer_latency: Histogram,
    /// Lateness of sent frames.
    pub(crate) send_lateness: Histogram,
    /// From the request to the first message.
    pub(crate) open_latency: Histogram,
    pub(crate) frames: u64,
    /// Frames late by more than half a frame.
    pub(crate) late_frames: u64,
    /// Frames not accepted at once by the socket, because the bridge is too slow.
    pub(crate) blocked_frames: u64,
    pub(crate) errors: u64,
    pub(crate) last_error: String,
    pub(crate) closed_early: u64,
    pub(crate) failed_opens: u64,
    pub(crate) interrupted_turns: u64,
    pub(crate) units: u64,
    pub(crate) units_spot_checked: u64,
    /// Silent samples inserted for audio that was sent.
    pub(crate) silence_samples: u64,
    /// Units of unknown clients.
    pub(crate) unidentified_units: u64,
    pub(crate) transcripts: u64,
    pub(crate) utterances: u64,
    pub(crate) up_samples: SampleCounts,
    pub(crate) down_samples: SampleCounts,
}

impl Tally {
    /// True if no sample and no session was lost.
    pub(crate) const fn is_clean(&self) -> bool {
        self.up_samples.is_clean()
            && self.down_samples.is_clean()
            && self.unidentified_units == 0
            && self.closed_early == 0
            && self.failed_opens == 0
    }

    pub(crate) fn record_error(&mut self, message: &str) {
        self.errors += 1;
        if self.last_error.is_empty() {
            self.last_error = message.chars().take(200).collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_exact_within_one_bucket() {
        let mut histogram = Histogram::default();
        (1..=10_000).for_each(|micros| histogram.add(micros));
        for part in [0.01, 0.5, 0.99, 0.999] {
            let exact = 10.0 * part;
            assert!((histogram.quantile_ms(part) / exact - 1.0).abs() < 0.02, "{part}");
        }
        assert_eq!((histogram.max_ms(), histogram.total()), (10.0, 10_000));
    }

    #[test]
    fn bucket_index_and_duration_are_inverse() {
        for micros in (0..5_000).chain([70_000, 1 << 30]) {
            let bucket = Histogram::bucket_index(micros);
            assert!(
                Histogram::bucket_max_us(bucket) >= micros
                    && (bucket == 0 || Histogram::bucket_max_us(bucket - 1) < micros)
            );
        }
    }
}
