//! The two resampling methods, chunk by chunk, and the choice between them.
//!
//! Overlap-save in the frequency domain serves rates that have a short common chunk. It works like rubato's FFT resampler
//! (mappings/notes/libraries.md#resampling), at a sixth of the work for three reasons. The more chunks arrive at once,
//! the longer the transform, so that less of it repeats the past. Filtering is linear: one half of the new audio is the
//! real part and the other the imaginary part, and their spectra never need to be separated. And a Kaiser window needs
//! half the filter's length for the same band. Other rates use rubato's windowed sinc.

use std::{f64::consts::PI, sync::Arc};

use super::OutputSample;
use fearless_simd::{Level, Simd, dispatch};
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, FixedAsync, SincInterpolationParameters, SincInterpolationType, WindowFunction, calculate_cutoff,
};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};

/// Shortest chunk, and thus the filter's length, in samples of the lower rate; the delay is half of it. It is 10 ms at
/// 16 kHz. The filter is flat up to 0.9 of the lower Nyquist frequency.
const CHUNK_MIN_SAMPLES: u32 = 160;

/// Rejection of what lies above the lower Nyquist frequency, dB. int16 ends at 98.
const REJECTION_DB: f64 = 124.0;

/// Longest chunk of overlap-save (11 025 Hz needs 40 ms). Rates that need more use the sinc, because voice activity
/// detection waits for a whole chunk.
const MAX_CHUNK_MS: u32 = 40;

/// Length of the sinc filter in samples of the lower rate: half the FFT's, flat up to 0.87 of the Nyquist frequency.
const SINC_LEN: usize = 160;

/// Length of a chunk of the sinc.
const SINC_CHUNK_MS: u32 = 20;

/// Sub-filters of the sinc table; with cubic interpolation between them images stay below −120 dB.
const SINC_OVERSAMPLING: usize = 256;

const WINDOW: WindowFunction = WindowFunction::BlackmanHarris2;

/// New chunks that one transform takes at most. Twice as many cost more instructions a chunk: 11 is a factor of that length.
const MAX_NEW_CHUNKS: usize = 10;

/// Overlap-save for one pair of rates: tables and working buffers, without any state of a stream.
pub(super) struct OverlapSave {
    /// Samples of a chunk at the input and at the output. The filter is as long as a chunk.
    chunk_in: usize,
    chunk_out: usize,
    /// The transform for each number of half chunks that one half of the new audio has, from one on.
    blocks: [Option<BlockFilter>; MAX_NEW_CHUNKS],
    spectrum: Vec<Complex32>,
    output: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl OverlapSave {
    /// An engine for chunks of `chunk_in` samples, as [`overlap_save_chunk`] gives them.
    pub(super) fn new(from_hz: u32, to_hz: u32, chunk_in: usize) -> Self {
        Self {
            chunk_in,
            chunk_out: chunk_in * to_hz as usize / from_hz as usize,
            blocks: [const { None }; MAX_NEW_CHUNKS],
            spectrum: Vec::new(),
            output: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Filters consecutive whole chunks and appends the result to `sink`. The first chunk is the one before the new ones:
    /// it only gives the filter its past.
    pub(super) fn process<S: OutputSample>(&mut self, chunks: &[f32], sink: &mut Vec<S>) {
        let (mut from, count) = (0, chunks.len() / self.chunk_in);
        while from + 1 < count {
            let new_chunks = (count - from - 1).min(MAX_NEW_CHUNKS);
            let first = self.transform(&chunks[from * self.chunk_in..][..(new_chunks + 1) * self.chunk_in]);
            let both = new_chunks * self.chunk_out;
            // The first chunk of the output lacks its past.
            let produced = &self.output[self.chunk_out..];
            dispatch!(Level::new(), simd => take_parts(simd, produced, first, both, sink));
            from += new_chunks;
        }
    }

    /// Filters both halves of the new chunks at once: the first as the real part, the second as the imaginary part, each
    /// behind the chunk of audio before it. A single chunk has two halves, too. Gives the length of a half in output samples.
    fn transform(&mut self, chunks: &[f32]) -> usize {
        let Self { chunk_in, chunk_out, spectrum, output, scratch, .. } = self;
        let new_chunks = chunks.len() / *chunk_in - 1;
        // Half a chunk may be no whole number of samples; then a half is rounded up to whole chunks.
        let splits = chunk_in.is_multiple_of(2) && chunk_out.is_multiple_of(2);
        let half_chunks = if splits { new_chunks } else { new_chunks.next_multiple_of(2) };
        let (half_in, half_out) = (half_chunks * *chunk_in / 2, half_chunks * *chunk_out / 2);
        let block = self.blocks[half_chunks - 1]
            .get_or_insert_with(|| BlockFilter::new(*chunk_in, *chunk_out, half_chunks));
        let (first, second) = (&chunks[..*chunk_in + half_in], &chunks[half_in..]);
        let spectrum = grown(spectrum, first.len());
        dispatch!(Level::new(), simd => interleave(simd, first, second, spectrum));
        block.filter(spectrum, grown(output, *chunk_out + half_out), grown(scratch, block.scratch));
        half_out
    }
}

/// The first `len` places of a buffer that is as long as the longest block so far. The caller overwrites them.
fn grown(buffer: &mut Vec<Complex32>, len: usize) -> &mut [Complex32] {
    if buffer.len() < len {
        buffer.resize(len, Complex32::default());
    }
    &mut buffer[..len]
}

/// The transforms for one block length, and the filter's spectrum at that length.
struct BlockFilter {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// The filter's spectrum from zero up to the lower of both Nyquist frequencies.
    positive: Vec<Complex32>,
    /// The same for negative frequencies, the lowest first: the mirror of `positive` without zero.
    negative: Vec<Complex32>,
    scratch: usize,
}

impl BlockFilter {
    /// The transforms of a block that holds the past chunk and `half_chunks` halves of a chunk.
    fn new(chunk_in: usize, chunk_out: usize, half_chunks: usize) -> Self {
        let len = |chunk: usize| chunk + half_chunks * chunk / 2;
        let (len_in, len_out) = (len(chunk_in), len(chunk_out));
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(len_in), planner.plan_fft_inverse(len_out));
        // rustfft does not divide by the length.
        let scale = 1.0 / len_in as f32;
        let mut positive: Vec<_> =
            filter_taps(chunk_in, chunk_out).map(|tap| Complex32::from(tap * scale)).collect();
        positive.resize(len_in, Complex32::default());
        forward.process(&mut positive);
        positive.truncate(len_in.min(len_out).div_ceil(2));
        let negative = positive[1..].iter().rev().map(Complex32::conj).collect();
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self { forward, inverse, positive, negative, scratch }
    }

    fn filter(&self, spectrum: &mut [Complex32], output: &mut [Complex32], scratch: &mut [Complex32]) {
        self.forward.process_with_scratch(spectrum, scratch);
        let (positive, negative) = (self.positive.len(), output.len() - self.negative.len());
        let behind = spectrum.len() - self.negative.len();
        dispatch!(Level::new(), simd => {
            multiply(simd, &mut output[..positive], &spectrum[..positive], &self.positive);
            multiply(simd, &mut output[negative..], &spectrum[behind..], &self.negative);
        });
        output[positive..negative].fill(Complex32::default());
        self.inverse.process_with_scratch(output, scratch);
    }
}

/// Appends `both` samples to `sink`: the first ones from the real parts, and the rest from the imaginary parts.
#[inline(always)]
fn take_parts<S: Simd, T: OutputSample>(
    _: S,
    pairs: &[Complex32],
    first: usize,
    both: usize,
    sink: &mut Vec<T>,
) {
    sink.reserve(both);
    sink.extend(pairs[..first].iter().map(|pair| T::from_f32(pair.re)));
    sink.extend(pairs[..both - first].iter().map(|pair| T::from_f32(pair.im)));
}

/// Makes complex numbers from real and imaginary parts; the imaginary part that is missing at the end is zero. The compiler
/// turns the loops here and in [`multiply`] into the vector instructions of the given level.
#[inline(always)]
fn interleave<S: Simd>(_: S, re: &[f32], im: &[f32], pairs: &mut [Complex32]) {
    let (both, rest) = pairs.split_at_mut(im.len());
    for ((pair, re), im) in both.iter_mut().zip(re).zip(im) {
        *pair = Complex32::new(*re, *im);
    }
    for (pair, re) in rest.iter_mut().zip(&re[im.len()..]) {
        *pair = Complex32::new(*re, 0.0);
    }
}

/// Multiplies pair by pair.
#[inline(always)]
fn multiply<S: Simd>(_: S, product: &mut [Complex32], left: &[Complex32], right: &[Complex32]) {
    for ((product, left), right) in product.iter_mut().zip(left).zip(right) {
        *product = left * right;
    }
}

/// Taps of the filter: a sinc as long as a chunk in a Kaiser window, with unit gain. The formulas for the window's shape and
/// for the width of the transition are Kaiser's (Oppenheim and Schafer, Discrete-Time Signal Processing, section 7.6). The
/// transition ends at the lower Nyquist frequency.
pub(super) fn filter_taps(chunk_in: usize, chunk_out: usize) -> impl Iterator<Item = f32> {
    let lower = chunk_in.min(chunk_out) as f64;
    let transition = (REJECTION_DB - 7.95) / (2.285 * lower) / PI;
    let cutoff = (1.0 - transition / 2.0) * lower / chunk_in as f64;
    let shape = 0.1102 * (REJECTION_DB - 8.7);
    let half = chunk_in as f64 / 2.0;
    // The delay is a whole number of output samples, though not always of input samples.
    let middle = (chunk_out / 2 * chunk_in) as f64 / chunk_out as f64;
    let tap = move |at: usize| {
        let from_middle = at as f64 - middle;
        let window = bessel_i0(shape * (1.0 - (from_middle / half).powi(2)).max(0.0).sqrt());
        let angle = PI * from_middle * cutoff;
        let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
        window * sinc
    };
    let sum: f64 = (0..chunk_in).map(tap).sum();
    (0..chunk_in).map(move |at| (tap(at) / sum) as f32)
}

/// Modified Bessel function of the first kind and order zero, by its power series. 60 terms are enough for arguments to 30.
pub(super) fn bessel_i0(x: f64) -> f64 {
    let terms = (1..60).scan(1.0, |term, k| {
        *term *= (x / 2.0 / f64::from(k)).powi(2);
        Some(*term)
    });
    1.0 + terms.sum::<f64>()
}

/// rubato's sinc resampler for one stretch of audio, with its buffers.
pub(super) struct Sinc {
    core: Async<f32>,
    output: Vec<f32>,
}

impl Sinc {
    #[expect(clippy::expect_used, reason = "construction fails for zeros and ratios out of range only")]
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Self {
        let ratio = f64::from(to_hz) / f64::from(from_hz);
        // rubato's automatic cutoff ignores that a longer filter is needed when going down, which leaves 24 dB of alias
        // rejection near the Nyquist frequency. So both length and cutoff are given.
        let len = (SINC_LEN as f64 * (1.0 / ratio).max(1.0)).ceil() as usize;
        let parameters = SincInterpolationParameters::new(len, WINDOW)
            .f_cutoff(calculate_cutoff(SINC_LEN, WINDOW))
            .oversampling_factor(SINC_OVERSAMPLING)
            .interpolation(SincInterpolationType::Cubic);
        let chunk = (from_hz * SINC_CHUNK_MS / 1000) as usize;
        let core = Async::new_sinc(ratio, 1.0, &parameters, chunk, 1, FixedAsync::Input)
            .expect("the ratio is positive and the chunk not empty");
        let max_output = rubato::Resampler::output_frames_max(&core);
        Self { core, output: vec![0.0; max_output] }
    }

    /// Samples of a chunk.
    pub(super) fn chunk(&self) -> usize {
        rubato::Resampler::input_frames_max(&self.core)
    }

    /// Samples of the filter's delay, at the output.
    pub(super) fn delay(&self) -> usize {
        rubato::Resampler::output_delay(&self.core)
    }

    /// Resamples the next chunk.
    pub(super) fn process(&mut self, chunk: &[f32]) -> &[f32] {
        let frames = self.output.len();
        let done = InterleavedSlice::new(chunk, 1, chunk.len())
            .ok()
            .zip(InterleavedSlice::new_mut(&mut self.output, 1, frames).ok())
            .and_then(|(input, mut output)| {
                rubato::Resampler::process_into_buffer(&mut self.core, &input, &mut output, None).ok()
            });
        // The buffers have the sizes that rubato asked for, so this cannot fail. If it did, silence would keep the timing.
        let produced = match done {
            Some((_, produced)) => produced,
            None => {
                debug_assert!(false, "rubato refused buffers of its own sizes");
                self.output.fill(0.0);
                rubato::Resampler::output_frames_next(&self.core)
            }
        };
        &self.output[..produced]
    }

    /// Starts a new stretch.
    pub(super) fn reset(&mut self) {
        rubato::Resampler::reset(&mut self.core);
    }
}

/// Input chunk of overlap-save in samples: the smallest multiple of the two rates' shortest common chunk that has at least
/// [`CHUNK_MIN_SAMPLES`] at the lower rate; `None` if that exceeds [`MAX_CHUNK_MS`].
pub(super) fn overlap_save_chunk(from_hz: u32, to_hz: u32) -> Option<usize> {
    let common_chunk = from_hz / gcd(from_hz, to_hz);
    let shortest = (CHUNK_MIN_SAMPLES * from_hz).div_ceil(from_hz.min(to_hz));
    let chunk = shortest.next_multiple_of(common_chunk);
    (chunk <= from_hz * MAX_CHUNK_MS / 1000).then_some(chunk as usize)
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
