//! Sample rate conversion of one mono stream, from float32 to float32 or int16.
//!
//! Call [`Resampler::push`] with a stretch of audio, in frames of any size, and [`Resampler::flush`] at its end.
//! The output has exactly [`resampled_len`] samples and is aligned with the input, because the filter's delay is dropped
//! from its beginning. Then its end is late by the delay, so a live stream keeps the delay as a lead-in instead
//! ([`Resampler::with_lead_in`]).
//!
//! Where both rates have a short common chunk, a windowed sinc works in the frequency domain (more than 120 dB in band and of
//! alias rejection, 5 ms of delay at 16 kHz). Other rates, such as 12 345 Hz, use rubato's windowed sinc. [`engine`] computes
//! the filters, [`shared`] keeps the state of each stream. [`speech`] is cheaper, for one pair of rates. Sample formats and channels belong to [`super::input_converter`].

mod engine;
mod shared;
pub mod speech;
#[cfg(test)]
mod tests;

use std::ops::RangeInclusive;

use self::shared::ResampleStream;

/// Supported rates in Hz: from telephone speech to the fastest sound cards.
pub const SUPPORTED_HZ: RangeInclusive<u32> = 8_000..=192_000;

/// A sample rate outside [`SUPPORTED_HZ`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("sample rate {actual} Hz is not supported (expected {} to {} Hz)", SUPPORTED_HZ.start(), SUPPORTED_HZ.end())]
pub struct UnsupportedRate {
    /// The requested rate in Hz.
    pub actual: u32,
}

/// Checks that `rate_hz` is supported and returns it.
///
/// # Errors
/// [`UnsupportedRate`] outside [`SUPPORTED_HZ`].
pub fn check_rate(rate_hz: u32) -> Result<u32, UnsupportedRate> {
    if SUPPORTED_HZ.contains(&rate_hz) { Ok(rate_hz) } else { Err(UnsupportedRate { actual: rate_hz }) }
}

/// Number of samples at `to_hz` for `samples` samples at `from_hz`, rounded up so that no sound vanishes.
pub const fn resampled_len(samples: u64, from_hz: u32, to_hz: u32) -> u64 {
    (samples * to_hz as u64).div_ceil(from_hz as u64)
}

/// Most samples to take in at a time. The buffers that a thread's resamplers share are as long.
pub(super) const BLOCK_SAMPLES: usize = 16 * 1024;

/// Louder samples are clipped to this amplitude. It is far above full scale, where the output is clipped anyway,
/// and far below an FFT overflow.
const MAX_AMPLITUDE: f32 = 8.0;

/// Sample type of the output.
pub trait OutputSample {
    /// Converts from float32 with full scale at 1.
    fn from_f32(sample: f32) -> Self;

    /// Converts from int16.
    fn from_s16(sample: i16) -> Self;
}

impl OutputSample for f32 {
    #[inline(always)]
    fn from_f32(sample: f32) -> Self {
        sample
    }

    #[inline(always)]
    fn from_s16(sample: i16) -> Self {
        super::pcm::to_f32(sample)
    }
}

impl OutputSample for i16 {
    /// Rounds and clips: the filter overshoots full scale where the input was clipped.
    #[inline(always)]
    fn from_f32(sample: f32) -> Self {
        super::pcm::to_i16(sample)
    }

    #[inline(always)]
    fn from_s16(sample: i16) -> Self {
        sample
    }
}

/// Sample rate converter for one mono stream. Allocates no buffers until it receives audio.
#[derive(Debug)]
pub struct Resampler {
    from_hz: u32,
    to_hz: u32,
    stream: Option<ResampleStream>,
    /// Stretches begin with the filter's delay instead of being aligned.
    has_lead_in: bool,
    /// Samples of this stretch taken in and given out.
    samples_in: u64,
    samples_out: u64,
    /// Samples of this stretch's delay that are still to be dropped.
    to_drop: usize,
    /// Lead-in samples of the stretches since they were last taken.
    pub(super) lead_in_samples: u64,
}

impl Resampler {
    /// A resampler between two rates in Hz; equal rates pass audio through.
    ///
    /// # Errors
    /// [`UnsupportedRate`] if either rate is outside [`SUPPORTED_HZ`].
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self {
            from_hz: check_rate(from_hz)?,
            to_hz: check_rate(to_hz)?,
            stream: None,
            has_lead_in: false,
            samples_in: 0,
            samples_out: 0,
            to_drop: 0,
            lead_in_samples: 0,
        })
    }

    /// Like [`Resampler::new`], for live audio: each stretch begins with the filter's delay, so that a whole chunk of input
    /// gives all of its output at once. A stretch is longer by that lead-in.
    ///
    /// # Errors
    /// As for [`Resampler::new`].
    pub fn with_lead_in(from_hz: u32, to_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self { has_lead_in: true, ..Self::new(from_hz, to_hz)? })
    }

    /// A resampler between the same rates, at the beginning of its first stretch.
    #[must_use]
    pub const fn renewed(&self) -> Self {
        Self {
            from_hz: self.from_hz,
            to_hz: self.to_hz,
            stream: None,
            has_lead_in: self.has_lead_in,
            samples_in: 0,
            samples_out: 0,
            to_drop: 0,
            lead_in_samples: 0,
        }
    }

    /// Takes samples in and appends the output that is ready to `sink`. Framing changes the output only by
    /// float32 rounding, 120 dB below full scale. NaN becomes silence: a single one would spoil a whole chunk.
    pub fn push<S: OutputSample>(&mut self, samples: &[f32], sink: &mut Vec<S>) {
        for samples in samples.chunks(BLOCK_SAMPLES) {
            self.push_with(
                samples.len(),
                |block| {
                    for (place, sample) in block.iter_mut().zip(samples) {
                        *place =
                            if sample.is_nan() { 0.0 } else { sample.clamp(-MAX_AMPLITUDE, MAX_AMPLITUDE) };
                    }
                },
                sink,
            );
        }
    }

    /// Takes in `len` samples, at most [`BLOCK_SAMPLES`], which `read` writes: finite and no louder than a few times full
    /// scale. Appends the output that is ready to `sink`.
    pub(super) fn push_with<S: OutputSample>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [f32]),
        sink: &mut Vec<S>,
    ) {
        let before = sink.len();
        if self.from_hz == self.to_hz {
            let mut block = vec![0.0; len];
            read(&mut block);
            sink.extend(block.into_iter().map(S::from_f32));
        } else {
            let stream = self.stream.get_or_insert_with(|| ResampleStream::new(self.from_hz, self.to_hz));
            if self.samples_in == 0 && len > 0 {
                match self.has_lead_in {
                    true => self.lead_in_samples += stream.delay() as u64,
                    false => self.to_drop = stream.delay(),
                }
            }
            stream.push(len, read, sink);
            if self.to_drop > 0 {
                let dropped = self.to_drop.min(sink.len() - before);
                sink.drain(before..before + dropped);
                self.to_drop -= dropped;
            }
        }
        self.samples_in += len as u64;
        self.samples_out += (sink.len() - before) as u64;
    }

    /// True once [`skip`](Self::skip) is possible: the stretch has begun, and its delay is over.
    pub(super) fn can_skip(&self) -> bool {
        self.samples_out > 0 && self.stream.as_ref().is_some_and(ResampleStream::is_overlap_save)
    }

    /// Goes on `len` input samples later, without the output until there; returns that output's length. The output of the
    /// next [`blurred_len`](Self::blurred_len) input samples misses its past.
    pub(super) fn skip(&mut self, len: u64) -> u64 {
        debug_assert!(self.can_skip(), "the stretch has begun");
        let skipped = self.stream.as_mut().map_or(0, |stream| stream.skip(len));
        self.samples_in += len;
        self.samples_out += skipped;
        skipped
    }

    /// Input samples after a [`skip`](Self::skip) whose output misses its past; a whole number of chunks.
    pub(super) fn blurred_len(&self) -> usize {
        self.stream.as_ref().map_or(0, ResampleStream::blurred_len)
    }

    /// Output samples that become ready with `len` more input samples.
    pub(super) fn ready_len(&self, len: u64) -> u64 {
        self.stream.as_ref().map_or(0, |stream| stream.ready_len(len))
    }

    /// Ends the stretch: appends the rest of its [`resampled_len`] samples, and the lead-in's length, to `sink`. Resets for
    /// the next stretch.
    pub fn flush<S: OutputSample>(&mut self, sink: &mut Vec<S>) {
        let total = resampled_len(self.samples_in, self.from_hz, self.to_hz) + self.stretch_lead_in();
        if let Some(stream) = &mut self.stream {
            let before = sink.len();
            let end = before + self.to_drop + total.saturating_sub(self.samples_out) as usize;
            while sink.len() < end {
                stream.pad_chunk(sink);
            }
            sink.truncate(end);
            sink.drain(before..before + self.to_drop);
        }
        self.reset();
    }

    /// Discards pending samples and resets for the next stretch.
    pub fn reset(&mut self) {
        if self.samples_in > 0
            && let Some(stream) = &mut self.stream
        {
            stream.reset();
        }
        self.samples_in = 0;
        self.samples_out = 0;
        self.to_drop = 0;
    }

    /// Input samples whose output is still pending, at the input rate, rounded down.
    pub fn pending_samples(&self) -> u64 {
        let out = self.samples_out.saturating_sub(self.stretch_lead_in());
        self.samples_in.saturating_sub(resampled_len(out, self.to_hz, self.from_hz))
    }

    /// Length of the current stretch's lead-in, output samples.
    pub fn stretch_lead_in(&self) -> u64 {
        let stream = self.stream.as_ref().filter(|_| self.has_lead_in && self.samples_in > 0);
        stream.map_or(0, |stream| stream.delay() as u64)
    }
}
