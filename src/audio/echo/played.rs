//! Audio that the client plays, on the clock of its microphone.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use super::super::{SPEECH_RATE_HZ, encoding::Encoding, input_converter::InputConverter};

const SAMPLE_NS: u64 = 1_000_000_000 / SPEECH_RATE_HZ as u64;
/// Most audio that is kept: as much as the floor sends ahead of playback.
const KEPT_MAX: Duration = Duration::from_secs(90);
/// Longest delay of a microphone's frame by the network. A later one begins after a gap.
const LATE_MAX: Duration = Duration::from_secs(1);

/// Audio that was sent to the client and not compared with the microphone yet, at 16 kHz.
#[derive(Debug, Default)]
pub(super) struct PlayedAudio {
    converter: Option<(Encoding, u32, InputConverter)>,
    queue: VecDeque<i16>,
    /// When the client plays the queue's first sample, if it plays audio as soon as it was sent.
    starts_at: Option<Instant>,
    now: Option<Instant>,
    /// When the last sample taken from the microphone was recorded, if its fastest frame came without delay.
    recorded_until: Option<Instant>,
}

impl PlayedAudio {
    /// Adds audio that the client plays after what it plays already.
    pub(super) fn push(&mut self, at: Instant, encoding: Encoding, rate_hz: u32, bytes: &[u8]) {
        let queued = duration_of(self.queue.len());
        let gap = self.starts_at.map(|starts_at| at.saturating_duration_since(starts_at + queued));
        match gap {
            Some(gap) if gap.is_zero() => {}
            Some(gap) if gap < LATE_MAX => {
                self.flush_converter();
                self.queue.resize(self.queue.len() + samples_in(gap), 0);
            }
            _ => {
                self.clear();
                self.starts_at = Some(at);
            }
        }
        if self.converter.as_ref().is_none_or(|known| (known.0, known.1) != (encoding, rate_hz)) {
            let converter = InputConverter::live(encoding, rate_hz, 1);
            self.converter = converter.ok().map(|converter| (encoding, rate_hz, converter));
        }
        let mut samples = Vec::new();
        if let Some((.., converter)) = &mut self.converter {
            converter.push(bytes, &mut samples);
        }
        let room = samples_in(KEPT_MAX).saturating_sub(self.queue.len());
        self.queue.extend(samples.iter().take(room));
    }

    /// Drops what the client has not played at this instant.
    pub(super) fn cut(&mut self, at: Instant) {
        let starts_at = self.starts_at.unwrap_or(at);
        self.queue.truncate(samples_in(at.saturating_duration_since(starts_at)));
        self.converter = None;
    }

    /// A frame of the microphone arrives now.
    pub(super) const fn begin_frame(&mut self, now: Instant) {
        self.now = Some(now);
    }

    /// Skips audio of the microphone.
    pub(super) fn skip(&mut self, length: Duration) {
        self.advance(length);
    }

    /// Appends what was played while the microphone recorded its next `samples`.
    pub(super) fn take(&mut self, samples: usize, out: &mut Vec<i16>) {
        let end = out.len() + samples;
        let begin = self.advance(duration_of(samples));
        if let Some((begin, starts_at)) = begin.zip(self.starts_at) {
            let late = samples_in(begin.saturating_duration_since(starts_at)).min(self.queue.len());
            self.queue.drain(..late);
            let early = samples_in(starts_at.saturating_duration_since(begin)).min(samples);
            out.resize(out.len() + early, 0);
            let count = (samples - early).min(self.queue.len());
            out.extend(self.queue.drain(..count));
            self.starts_at = Some(starts_at + duration_of(late + count)).filter(|_| !self.queue.is_empty());
        }
        out.resize(end, 0);
    }

    /// Advances the microphone's clock by this length, and returns where that begins.
    fn advance(&mut self, length: Duration) -> Option<Instant> {
        let now = self.now?;
        let end = self.recorded_until.map_or(now, |until| until + length).min(now);
        let end = if now - end > LATE_MAX { now } else { end };
        self.recorded_until = Some(end);
        end.checked_sub(length)
    }

    fn flush_converter(&mut self) {
        let mut rest = Vec::new();
        if let Some((.., converter)) = &mut self.converter {
            converter.flush(&mut rest);
        }
        self.queue.extend(rest);
    }

    fn clear(&mut self) {
        self.queue.clear();
        self.converter = None;
    }
}

fn samples_in(length: Duration) -> usize {
    (length.as_nanos() / u128::from(SAMPLE_NS)) as usize
}

const fn duration_of(samples: usize) -> Duration {
    Duration::from_nanos(samples as u64 * SAMPLE_NS)
}
