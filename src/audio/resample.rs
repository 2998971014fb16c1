//! Sample rate conversion of one mono stream, float32 to float32.
//!
//! A stretch of audio goes in by [`Resampler::push`], framed any way, and ends with [`Resampler::flush`]; what comes
//! out is aligned with what went in (the filter's delay is trimmed) and has exactly [`resampled_len`] samples. The
//! filtering is rubato's: its FFT resampler in chunks of 20 ms (field notes "Resampling quality": 136 dB in band,
//! 143 dB of alias rejection, 10 ms of delay) wherever the two rates have a common chunk that short, and its windowed
//! sinc for the odd ones (12 345 Hz). Not here: sample formats and channels, which are [`super::intake`]'s.

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, Fft, FixedAsync, FixedSync, SincInterpolationParameters, SincInterpolationType, WindowFunction,
    calculate_cutoff,
};
use std::ops::RangeInclusive;

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
pub fn supported(rate_hz: u32) -> Result<u32, UnsupportedRate> {
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
    engine: Option<Box<Engine>>,
    /// Samples of this stretch taken in and given out.
    taken: u64,
    given: u64,
}

impl Resampler {
    /// A resampler between two rates in Hz; equal rates are passed through.
    ///
    /// # Errors
    /// [`UnsupportedRate`] if either rate is outside [`SUPPORTED_HZ`].
    pub fn new(from_hz: u32, to_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self { from_hz: supported(from_hz)?, to_hz: supported(to_hz)?, engine: None, taken: 0, given: 0 })
    }

    /// Takes samples in and appends to `sink` what is ready. How the input is framed does not change the output.
    pub fn push(&mut self, samples: &[f32], sink: &mut Vec<f32>) {
        self.taken += samples.len() as u64;
        if self.from_hz == self.to_hz {
            self.given += samples.len() as u64;
            sink.extend_from_slice(samples);
            return;
        }
        let engine = self.engine.get_or_insert_with(|| Box::new(Engine::new(self.from_hz, self.to_hz)));
        let mut rest = samples;
        while !rest.is_empty() {
            let (head, tail) = rest.split_at(rest.len().min(engine.missing()));
            rest = tail;
            if let Some(ready) = engine.push(head) {
                self.given += ready.len() as u64;
                sink.extend_from_slice(ready);
            }
        }
    }

    /// Ends the stretch: appends the rest of its [`resampled_len`] samples to `sink` and is fresh for the next one.
    pub fn flush(&mut self, sink: &mut Vec<f32>) {
        let total = resampled_len(self.taken, self.from_hz, self.to_hz);
        if let Some(engine) = &mut self.engine {
            while self.given < total {
                let ready = engine.pad();
                let wanted = ready.len().min((total - self.given) as usize);
                self.given += wanted as u64;
                sink.extend_from_slice(&ready[..wanted]);
            }
        }
        self.reset();
    }

    /// Forgets what has not come out and is fresh for the next stretch.
    pub fn reset(&mut self) {
        if self.taken > 0
            && let Some(engine) = &mut self.engine
        {
            engine.reset();
        }
        self.taken = 0;
        self.given = 0;
    }

    /// Samples taken in of which nothing has come out yet, at the input rate, rounded down.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.taken.saturating_sub(resampled_len(self.given, self.to_hz, self.from_hz))
    }
}

/// Length of a chunk, hence half of it the delay, that the measurements of the field notes found best.
const CHUNK_MS: u32 = 20;

/// The longest chunk the FFT may need for two rates to meet (11 025 Hz needs 40 ms); beyond it the sinc takes over,
/// since a chunk is what voice detection has to wait for.
const MAX_CHUNK_MS: u32 = 40;

/// Length of the sinc filter in samples of the lower rate: half the FFT's, flat up to 0.87 of the Nyquist frequency.
const SINC_LEN: usize = 160;

/// Sub-filters of the sinc table; with cubic interpolation between them images stay below −120 dB.
const SINC_OVERSAMPLING: usize = 256;

/// A rubato resampler of one fixed input chunk with its buffers.
struct Engine {
    core: Box<dyn rubato::Resampler<f32>>,
    /// The chunk being gathered: `input[..filled]` is audio.
    input: Vec<f32>,
    filled: usize,
    output: Vec<f32>,
    /// Samples of the filter's delay still to be dropped.
    trim: usize,
}

impl Engine {
    fn new(from_hz: u32, to_hz: u32) -> Self {
        let core = match fft_chunk(from_hz, to_hz) {
            Some(chunk) => fft(from_hz, to_hz, chunk),
            None => sinc(from_hz, to_hz),
        };
        let (chunk, most) = (core.input_frames_max(), core.output_frames_max());
        let trim = core.output_delay();
        Self { core, input: vec![0.0; chunk], filled: 0, output: vec![0.0; most], trim }
    }

    /// How many samples complete the chunk; at least one.
    fn missing(&self) -> usize {
        self.input.len() - self.filled
    }

    /// Takes at most [`missing`](Self::missing) samples; gives the output once the chunk is complete.
    fn push(&mut self, samples: &[f32]) -> Option<&[f32]> {
        let room = &mut self.input[self.filled..self.filled + samples.len()];
        room.iter_mut().zip(samples).for_each(|(place, sample)| *place = tamed(*sample));
        self.filled += samples.len();
        (self.missing() == 0).then(|| self.process())
    }

    /// Completes the chunk with zeros and gives its output.
    fn pad(&mut self) -> &[f32] {
        self.input[self.filled..].fill(0.0);
        self.process()
    }

    fn process(&mut self) -> &[f32] {
        self.filled = 0;
        let frames = self.output.len();
        let done = InterleavedSlice::new(&self.input, 1, self.input.len())
            .ok()
            .zip(InterleavedSlice::new_mut(&mut self.output, 1, frames).ok())
            .and_then(|(input, mut output)| self.core.process_into_buffer(&input, &mut output, None).ok());
        // The buffers have the sizes rubato asked for, so this cannot fail; should it, silence keeps the time.
        let made = match done {
            Some((_, made)) => made,
            None => {
                debug_assert!(false, "rubato refused buffers of its own sizes");
                self.output.fill(0.0);
                self.core.output_frames_next()
            }
        };
        let dropped = self.trim.min(made);
        self.trim -= dropped;
        &self.output[dropped..made]
    }

    fn reset(&mut self) {
        self.core.reset();
        self.filled = 0;
        self.trim = self.core.output_delay();
    }
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let chunk = self.input.len();
        formatter
            .debug_struct("Engine")
            .field("chunk", &chunk)
            .field("filled", &self.filled)
            .finish_non_exhaustive()
    }
}

/// Louder samples than this are clipped: far above full scale, where everything is clipped in the end, and far below
/// what makes an FFT overflow.
const LOUDEST: f32 = 8.0;

/// What a filter can take: rubato's FFT panics on infinities and NaN, which a float WAV file and a model may contain.
const fn tamed(sample: f32) -> f32 {
    if sample.is_nan() { 0.0 } else { sample.clamp(-LOUDEST, LOUDEST) }
}

/// The FFT's input chunk in samples: the multiple of the shortest common chunk of the two rates that is nearest above
/// [`CHUNK_MS`], or none if that is longer than [`MAX_CHUNK_MS`].
fn fft_chunk(from_hz: u32, to_hz: u32) -> Option<usize> {
    let shortest = from_hz / gcd(from_hz, to_hz);
    let chunk = (from_hz * CHUNK_MS / 1000).next_multiple_of(shortest);
    (chunk <= from_hz * MAX_CHUNK_MS / 1000).then_some(chunk as usize)
}

#[expect(clippy::expect_used, reason = "construction fails for zeros only")]
fn fft(from_hz: u32, to_hz: u32, chunk: usize) -> Box<dyn rubato::Resampler<f32>> {
    // The chunk is a whole number of FFT blocks of one each, so every call transforms exactly one block. One block
    // per chunk, not `Fft::new`, which picks prime-sized blocks at 48 kHz (field notes).
    let fft = Fft::new_custom(
        from_hz as usize,
        to_hz as usize,
        chunk,
        1,
        1,
        WindowFunction::BlackmanHarris2,
        FixedSync::Input,
    );
    Box::new(fft.expect("neither rate nor the chunk is zero"))
}

#[expect(clippy::expect_used, reason = "construction fails for zeros and ratios out of range only")]
fn sinc(from_hz: u32, to_hz: u32) -> Box<dyn rubato::Resampler<f32>> {
    let ratio = f64::from(to_hz) / f64::from(from_hz);
    // rubato's automatic cutoff takes the filter for as long at the lower rate as it is at the input rate, which
    // leaves 24 dB of alias rejection near the Nyquist frequency when going down; so both are given.
    let len = (SINC_LEN as f64 * (1.0 / ratio).max(1.0)).ceil() as usize;
    let parameters = SincInterpolationParameters::new(len, WindowFunction::BlackmanHarris2)
        .f_cutoff(calculate_cutoff(SINC_LEN, WindowFunction::BlackmanHarris2))
        .oversampling_factor(SINC_OVERSAMPLING)
        .interpolation(SincInterpolationType::Cubic);
    let chunk = (from_hz * CHUNK_MS / 1000) as usize;
    let sinc = Async::new_sinc(ratio, 1.0, &parameters, chunk, 1, FixedAsync::Input);
    Box::new(sinc.expect("the ratio is positive and the chunk not empty"))
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::f64::consts::TAU;

    fn tone(hz: f64, rate_hz: u32, len: usize) -> Vec<f32> {
        (0..len).map(|i| (0.5 * (TAU * hz * i as f64 / f64::from(rate_hz)).sin()) as f32).collect()
    }

    fn convert(samples: &[f32], from_hz: u32, to_hz: u32) -> Vec<f32> {
        let mut resampler = Resampler::new(from_hz, to_hz).unwrap();
        let mut out = Vec::new();
        resampler.push(samples, &mut out);
        resampler.flush(&mut out);
        out
    }

    fn rms(samples: &[f64]) -> f64 {
        (samples.iter().map(|s| s * s).sum::<f64>() / samples.len() as f64).sqrt()
    }

    /// Level in dB of what is not the tone, against the tone: least squares over the middle of the output.
    fn noise_db(out: &[f32], hz: f64, rate_hz: u32) -> f64 {
        let middle = out.len() / 4..out.len() * 3 / 4;
        let (mut ss, mut sc, mut cc, mut sx, mut cx) = (0.0, 0.0, 0.0, 0.0, 0.0);
        let basis = |i: usize| (TAU * hz * i as f64 / f64::from(rate_hz)).sin_cos();
        for i in middle.clone() {
            let ((s, c), x) = (basis(i), f64::from(out[i]));
            (ss, sc, cc, sx, cx) = (ss + s * s, sc + s * c, cc + c * c, sx + s * x, cx + c * x);
        }
        let determinant = ss * cc - sc * sc;
        let (a, b) = ((sx * cc - cx * sc) / determinant, (cx * ss - sx * sc) / determinant);
        let rest: Vec<f64> = middle.map(|i| f64::from(out[i]) - a * basis(i).0 - b * basis(i).1).collect();
        assert!((a.hypot(b) / 0.5 - 1.0).abs() < 0.02, "{hz} Hz comes out at {}", a.hypot(b));
        20.0 * (rms(&rest) / a.hypot(b)).log10()
    }

    #[test]
    fn tones_in_band_come_out_clean() {
        let pairs = [
            (48_000, 16_000, 7_000.0),
            (44_100, 16_000, 7_000.0),
            (24_000, 16_000, 7_000.0),
            (8_000, 16_000, 3_400.0),
            (22_050, 16_000, 7_000.0),
            (11_025, 16_000, 4_800.0),
            (12_345, 16_000, 5_200.0),
            (16_000, 24_000, 7_000.0),
            (24_000, 48_000, 10_000.0),
            (24_000, 44_100, 10_000.0),
            (24_000, 8_000, 3_400.0),
        ];
        for (from_hz, to_hz, top_hz) in pairs {
            let worst = (0..12)
                .map(|step| 100.0 + f64::from(step) / 11.0 * (top_hz - 100.0))
                .map(|hz| {
                    noise_db(&convert(&tone(hz, from_hz, from_hz as usize / 2), from_hz, to_hz), hz, to_hz)
                })
                .fold(f64::MIN, f64::max);
            println!("{from_hz} -> {to_hz}: in band up to {top_hz} Hz: {:.1} dB", -worst);
            assert!(worst < -120.0, "{from_hz} -> {to_hz}: {worst} dB");
        }
    }

    #[test]
    fn tones_above_the_band_vanish() {
        for (from_hz, to_hz) in
            [(48_000, 16_000), (44_100, 16_000), (24_000, 16_000), (47_999, 16_000), (24_000, 8_000)]
        {
            let (low, high) = (f64::from(to_hz) / 2.0 + 50.0, f64::from(from_hz) / 2.0 - 50.0);
            let worst = (0..24)
                .map(|step| low + f64::from(step) / 23.0 * (high - low))
                .map(|hz| {
                    let out = convert(&tone(hz, from_hz, from_hz as usize / 2), from_hz, to_hz);
                    let middle = &out[out.len() / 4..out.len() * 3 / 4];
                    let middle: Vec<f64> = middle.iter().map(|s| f64::from(*s)).collect();
                    20.0 * (rms(&middle) / (0.5 / 2f64.sqrt())).log10()
                })
                .fold(f64::MIN, f64::max);
            println!("{from_hz} -> {to_hz}: alias rejection {:.1} dB", -worst);
            assert!(worst < -120.0, "{from_hz} -> {to_hz}: {worst} dB");
        }
    }

    #[test]
    fn output_is_aligned_with_the_input() {
        let out = convert(&tone(440.0, 48_000, 24_000), 48_000, 16_000);
        let expected = tone(440.0, 16_000, 8_000);
        let worst = (1_000..7_000).map(|i| (out[i] - expected[i]).abs()).fold(0.0, f32::max);
        assert!(worst < 1e-3, "off by {worst}: the delay is not trimmed");
    }

    #[test]
    fn flush_leaves_nothing_behind() {
        let mut resampler = Resampler::new(44_100, 16_000).unwrap();
        let clip = tone(300.0, 44_100, 10_000);
        let (mut first, mut second) = (Vec::new(), Vec::new());
        resampler.push(&clip, &mut first);
        assert!(resampler.pending() > 0);
        resampler.flush(&mut first);
        assert_eq!(resampler.pending(), 0);
        resampler.flush(&mut second);
        assert!(second.is_empty(), "an empty stretch has no samples");
        resampler.push(&clip, &mut second);
        resampler.flush(&mut second);
        assert_eq!(first, second, "a stretch does not depend on the one before");
    }

    #[test]
    fn what_is_no_number_is_silence_and_does_no_harm() {
        for from_hz in [44_100, 12_345, 24_000] {
            let mut clip = tone(440.0, from_hz, from_hz as usize);
            let odd = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN];
            clip[100..105].copy_from_slice(&odd);
            let out = convert(&clip, from_hz, 16_000);
            assert_eq!(out.len(), 16_000);
            assert!(out.iter().all(|sample| sample.is_finite()), "{from_hz}");
        }
    }

    #[test]
    fn rates_out_of_range_are_refused() {
        for rate in [0, 7_999, 192_001, u32::MAX] {
            assert_eq!(Resampler::new(rate, 16_000).unwrap_err(), UnsupportedRate { actual: rate });
            assert_eq!(Resampler::new(16_000, rate).unwrap_err(), UnsupportedRate { actual: rate });
        }
    }

    #[test]
    fn a_sink_with_room_for_one_chunk_never_grows() {
        let mut resampler = Resampler::new(48_000, 16_000).unwrap();
        let mut out = Vec::with_capacity(1_000);
        for _ in 0..100 {
            resampler.push(&[0.25; 960], &mut out);
            assert_eq!(out.capacity(), 1_000);
            out.clear();
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn framing_changes_nothing(
            from_hz in prop::sample::select(vec![8_000, 11_025, 12_345, 16_000, 24_000, 44_100, 48_000]),
            frames in prop::collection::vec(0usize..3_000, 1..12),
            seed: u64,
        ) {
            let mut random = fastrand::Rng::with_seed(seed);
            let clip: Vec<f32> = (0..frames.iter().sum()).map(|_| random.f32() - 0.5).collect();
            let whole = convert(&clip, from_hz, 16_000);
            let mut resampler = Resampler::new(from_hz, 16_000).unwrap();
            let (mut out, mut rest) = (Vec::new(), &clip[..]);
            for frame in frames {
                let (head, tail) = rest.split_at(frame);
                rest = tail;
                resampler.push(head, &mut out);
                let taken = (clip.len() - rest.len()) as u64;
                prop_assert!(out.len() as u64 <= resampled_len(taken, from_hz, 16_000));
            }
            resampler.flush(&mut out);
            prop_assert_eq!(out.len() as u64, resampled_len(clip.len() as u64, from_hz, 16_000));
            prop_assert_eq!(out, whole);
        }

        #[test]
        fn any_two_rates_meet(from_hz in SUPPORTED_HZ, to_hz in SUPPORTED_HZ, len in 0usize..5_000) {
            let out = convert(&vec![0.1; len], from_hz, to_hz);
            prop_assert_eq!(out.len() as u64, resampled_len(len as u64, from_hz, to_hz));
        }
    }
}
