//! Sample rate conversion of one mono stream, float32 to float32.
//!
//! A stretch of audio goes in by [`Resampler::push`], framed any way, and ends with [`Resampler::flush`]; what comes
//! out is aligned with what went in (the filter's delay is trimmed) and has exactly [`resampled_len`] samples. The
//! filter is that of rubato's FFT resampler in chunks of 20 ms (field notes "Resampling quality": 136 dB in band,
//! 143 dB of alias rejection, 10 ms of delay) wherever the two rates have a common chunk that short, and rubato's windowed
//! sinc for the odd ones (12 345 Hz). [`engine`] is how they are computed, [`shared`] what a stream keeps. Not here: sample formats and channels, which are [`super::input_converter`]'s.

mod engine;
mod shared;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use self::shared::ResampleStream;

/// Rates that can be converted, in Hz: telephone speech up to the fastest sound cards.
pub const SUPPORTED_HZ: RangeInclusive<u32> = 8_000..=192_000;

/// A sample rate outside [`SUPPORTED_HZ`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sample rate {actual} Hz is not supported (expected {} to {} Hz)", SUPPORTED_HZ.start(), SUPPORTED_HZ.end())]
pub struct UnsupportedRate {
    /// The rate asked for, in Hz.
    pub actual: u32,
}

/// Checks that `rate_hz` is one that can be converted, and gives it back.
///
/// # Errors
/// [`UnsupportedRate`] outside [`SUPPORTED_HZ`].
pub fn check_rate(rate_hz: u32) -> Result<u32, UnsupportedRate> {
    if SUPPORTED_HZ.contains(&rate_hz) { Ok(rate_hz) } else { Err(UnsupportedRate { actual: rate_hz }) }
}

/// How many samples at `to_hz` a stretch of `samples` at `from_hz` becomes: rounded up, so that no sound vanishes.
#[must_use]
pub const fn resampled_len(samples: u64, from_hz: u32, to_hz: u32) -> u64 {
    (samples * to_hz as u64).div_ceil(from_hz as u64)
}

/// Converts one mono stream from one rate to another. Holds no buffers until it gets audio.
#[derive(Debug)]
pub struct Resampler {
    from_hz: u32,
    to_hz: u32,
    stream: Option<ResampleStream>,
    /// Samples of this stretch taken in and given out.
    samples_in: u64,
    samples_out: u64,
}

impl Resampler {
    /// A resampler between two rates in Hz; equal rates are passed through.
    ///
    /// # Errors
    /// [`UnsupportedRate`] if either rate is outside [`SUPPORTED_HZ`].
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self {
            from_hz: check_rate(from_hz)?,
            to_hz: check_rate(to_hz)?,
            stream: None,
            samples_in: 0,
            samples_out: 0,
        })
    }

    /// Takes samples in and appends to `sink` what is ready. How the input is framed changes the output by no more
    /// than float32 rounds, 120 dB below full scale.
    pub fn push(&mut self, samples: &[f32], sink: &mut Vec<f32>) {
        self.samples_in += samples.len() as u64;
        if self.from_hz == self.to_hz {
            self.samples_out += samples.len() as u64;
            sink.extend_from_slice(samples);
            return;
        }
        let stream = self.stream.get_or_insert_with(|| ResampleStream::new(self.from_hz, self.to_hz));
        let before = sink.len();
        stream.push(samples, sink);
        self.samples_out += (sink.len() - before) as u64;
    }

    /// Ends the stretch: appends the rest of its [`resampled_len`] samples to `sink` and is fresh for the next one.
    pub fn flush(&mut self, sink: &mut Vec<f32>) {
        let total = resampled_len(self.samples_in, self.from_hz, self.to_hz);
        if let Some(stream) = &mut self.stream {
            let end = sink.len() + (total.saturating_sub(self.samples_out)) as usize;
            while sink.len() < end {
                stream.pad_chunk(sink);
            }
            sink.truncate(end);
        }
        self.reset();
    }

    /// Forgets what has not come out and is fresh for the next stretch.
    pub fn reset(&mut self) {
        if self.samples_in > 0
            && let Some(stream) = &mut self.stream
        {
            stream.reset();
        }
        self.samples_in = 0;
        self.samples_out = 0;
    }

    /// Samples taken in of which nothing has come out yet, at the input rate, rounded down.
    #[must_use]
    pub fn pending_samples(&self) -> u64 {
        self.samples_in.saturating_sub(resampled_len(self.samples_out, self.to_hz, self.from_hz))
    }
}
