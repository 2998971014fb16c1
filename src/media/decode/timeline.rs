//! The timeline: places decoded audio at its presentation time and resamples it to 16 kHz.
//!
//! Players show a packet at the time that the container states. So silence fills the time before the first packet and gaps
//! between packets, and what an edit cuts away is left out. Audio is never dropped because of times: where they go
//! back, as in a joined recording, the audio continues without a gap.

use super::packet::{Nanos, SECOND, samples_in};
use crate::audio::SPEECH_RATE_HZ;
use crate::audio::resample::Resampler;

/// Least silence before the first packet. Encoder delays are shorter.
const LATE_START_MIN: Nanos = 40_000_000;
/// Least difference between the times and the audio that is corrected.
const LAG_MIN: Nanos = 50_000_000;
/// Least step back that is one of the clock.
const BACK_MIN: Nanos = 100_000_000;
/// Least gap between two packets at which it is corrected, so that the clock of a recorder may drift.
const GAP_MIN: Nanos = 10_000_000;
/// Longest silence. A greater jump is one of the clock.
const GAP_MAX: Nanos = 3600 * SECOND;

/// Samples of silence that are resampled in one step.
const SILENCE_STEP_SAMPLES: usize = 16 * 1024;

/// Audio between the decoder and the caller.
#[derive(Default)]
pub(super) struct Timeline {
    clock: Clock,
    /// Input rate and resampler, from the first audio on. Rates may change within a file.
    resampler: Option<(u32, Resampler)>,
    /// Silence and audio that are not resampled yet, in this order.
    silence_samples: usize,
    audio: Vec<f32>,
    /// Resampled audio that was not returned yet.
    pending: Vec<f32>,
    returned_samples: u64,
}

impl Timeline {
    /// Takes the audio of a packet from `mono`, and leaves an empty buffer.
    pub(super) fn take(&mut self, mono: &mut Vec<f32>, at: Option<Nanos>, rate_hz: u32) {
        self.set_rate(rate_hz);
        let gap = self.clock.place(at, time_of(mono.len(), rate_hz));
        self.silence_samples += samples_in(gap, rate_hz);
        std::mem::swap(&mut self.audio, mono);
        mono.clear();
    }

    /// Silence in place of a packet that cannot be decoded.
    pub(super) fn take_silence(&mut self, at: Option<Nanos>, samples: usize, rate_hz: u32) {
        self.set_rate(rate_hz);
        let gap = self.clock.place(at, time_of(samples, rate_hz));
        self.silence_samples += samples_in(gap, rate_hz) + samples;
    }

    /// The times of another recording follow.
    pub(super) const fn restart_clock(&mut self) {
        self.clock.offset = None;
        self.clock.is_joined = true;
    }

    /// Resamples the next part of what was taken. False if nothing is left.
    pub(super) fn advance(&mut self) -> bool {
        let Some((_, resampler)) = &mut self.resampler else { return false };
        if self.silence_samples > 0 {
            let len = self.silence_samples.min(SILENCE_STEP_SAMPLES);
            resampler.push(&[0.0; SILENCE_STEP_SAMPLES][..len], &mut self.pending);
            self.silence_samples -= len;
            return true;
        }
        if self.audio.is_empty() {
            return false;
        }
        resampler.push(&self.audio, &mut self.pending);
        self.audio.clear();
        true
    }

    fn set_rate(&mut self, rate_hz: u32) {
        if self.resampler.as_ref().is_some_and(|(known, _)| *known != rate_hz) {
            self.flush();
        }
        if self.resampler.is_none() {
            self.resampler = Resampler::new(rate_hz, SPEECH_RATE_HZ).ok().map(|new| (rate_hz, new));
        }
    }

    /// Ends the stretch of audio at this rate.
    pub(super) fn flush(&mut self) {
        while self.advance() {}
        if let Some((_, mut resampler)) = self.resampler.take() {
            resampler.flush(&mut self.pending);
        }
    }

    /// Resampled samples that were not returned.
    pub(super) const fn pending_len(&self) -> usize {
        self.pending.len()
    }

    /// All samples so far.
    pub(super) const fn total_samples(&self) -> u64 {
        self.returned_samples + self.pending.len() as u64
    }

    /// Drops what is longer than `max_samples` in all. True if anything was.
    pub(super) fn truncate(&mut self, max_samples: u64) -> bool {
        let room = max_samples.saturating_sub(self.returned_samples);
        let is_longer = self.pending.len() as u64 > room;
        if is_longer {
            self.pending.truncate(room as usize);
        }
        is_longer
    }

    /// Up to `len` samples.
    pub(super) fn take_chunk(&mut self, len: usize) -> Vec<f32> {
        let rest = self.pending.split_off(self.pending.len().min(len));
        let chunk = std::mem::replace(&mut self.pending, rest);
        self.returned_samples += chunk.len() as u64;
        chunk
    }
}

fn time_of(samples: usize, rate_hz: u32) -> Nanos {
    super::packet::nanos(samples as i64, rate_hz)
}

/// Compares the times of packets with the length of the audio so far.
#[derive(Default)]
struct Clock {
    /// Length of the audio so far.
    length: Nanos,
    /// Presentation time minus length, once a packet stated its time.
    offset: Option<Nanos>,
    /// End of the last packet by its own time.
    packet_end: Nanos,
    /// Not the first recording in the file.
    is_joined: bool,
}

impl Clock {
    /// Adds a packet. Returns the silence before it.
    fn place(&mut self, at: Option<Nanos>, len: Nanos) -> Nanos {
        let at = at.unwrap_or(self.packet_end);
        let silence = self.silence_before(at);
        self.length = self.length.saturating_add(silence).saturating_add(len);
        self.packet_end = at.saturating_add(len);
        silence
    }

    fn silence_before(&mut self, at: Nanos) -> Nanos {
        let Some(offset) = self.offset else {
            let is_late = !self.is_joined && (LATE_START_MIN..=GAP_MAX).contains(&at);
            let silence = if is_late { at } else { 0 };
            self.offset = Some(at.saturating_sub(self.length).saturating_sub(silence));
            return silence;
        };
        let gap = at.saturating_sub(self.packet_end);
        let lag = at.saturating_sub(self.length.saturating_add(offset));
        if gap < -BACK_MIN || gap > GAP_MAX {
            self.offset = Some(at.saturating_sub(self.length));
            return 0;
        }
        if gap >= GAP_MIN && lag >= LAG_MIN { lag } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;

    /// Silence before each packet of 20 ms at these times, ms.
    fn silences(times: &[Option<i64>]) -> Vec<i64> {
        let mut clock = Clock::default();
        times.iter().map(|at| clock.place(at.map(|at| at * MS), 20 * MS) / MS).collect()
    }

    #[test]
    fn late_start_and_gaps_are_silent() {
        assert_eq!(silences(&[Some(5000), Some(5020), Some(11_040)]), [5000, 0, 6000]);
        assert_eq!(silences(&[Some(5000), None, None, Some(6060)]), [5000, 0, 0, 1000]);
    }

    #[test]
    fn delays_jitter_and_drift_of_clocks_are_no_gaps() {
        assert_eq!(silences(&[Some(21), Some(41), Some(76), Some(81), Some(101)]), [0; 5]);
        let drifting: Vec<_> = (0..1000).map(|at| Some(at * 21)).collect();
        assert_eq!(silences(&drifting), [0; 1000]);
    }

    #[test]
    fn times_that_stand_still_or_go_back_drop_nothing() {
        assert_eq!(silences(&[Some(0); 50]), [0; 50]);
        assert_eq!(silences(&[Some(0), Some(4000), Some(0), Some(20), Some(1040)]), [0, 3980, 0, 0, 1000]);
        assert_eq!(silences(&[Some(0), Some(20), Some(1_000_000_000), Some(1_000_000_020)]), [0; 4]);
    }
}
