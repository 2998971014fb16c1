//! The two ways from one rate to another, chunk by chunk: which of them fits is decided here.
//!
//! Where the rates meet within a short chunk it is overlap-save in the frequency domain, with the filter that rubato's FFT
//! resampler has (field notes "Resampling quality") and a quarter of its work: the more chunks there are the longer is the
//! transform, so that less of it is what came before; and filtering is linear, so one half of them is its real and the other
//! its imaginary part, and nobody has to take their spectra apart. Elsewhere it is rubato's windowed sinc.

use std::{f64::consts::TAU, sync::Arc};

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, FixedAsync, SincInterpolationParameters, SincInterpolationType, WindowFunction, calculate_cutoff,
};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};

/// Length of a chunk, hence half of it the delay, that the measurements of the field notes found best.
const CHUNK_MS: u32 = 20;

/// The longest chunk overlap-save may need for two rates to meet (11 025 Hz needs 40 ms); beyond it the sinc takes over,
/// since a chunk is what voice detection has to wait for.
const MAX_CHUNK_MS: u32 = 40;

/// Length of the sinc filter in samples of the lower rate: half the FFT's, flat up to 0.87 of the Nyquist frequency.
const SINC_LEN: usize = 160;

/// Sub-filters of the sinc table; with cubic interpolation between them images stay below −120 dB.
const SINC_OVERSAMPLING: usize = 256;

const WINDOW: WindowFunction = WindowFunction::BlackmanHarris2;

/// Chunks that half a transform takes at most. What comes in a look at a client that streams is fewer than twice as many.
const MAX_HALF_CHUNKS: usize = 5;

/// Overlap-save for one pair of rates: tables and room to work in, and no memory of what was done.
pub(super) struct OverlapSave {
    chunk_in: usize,
    chunk_out: usize,
    /// By how many chunks they take in half a transform, from one on.
    blocks: [Option<BlockFilter>; MAX_HALF_CHUNKS],
    spectrum: Vec<Complex32>,
    output: Vec<Complex32>,
    scratch: Vec<Complex32>,
}

impl OverlapSave {
    /// For chunks of that many samples, which [`overlap_save_chunk`] gives.
    pub(super) fn new(from_hz: u32, to_hz: u32, chunk_in: usize) -> Self {
        Self {
            chunk_in,
            chunk_out: chunk_in * to_hz as usize / from_hz as usize,
            blocks: [const { None }; MAX_HALF_CHUNKS],
            spectrum: Vec::new(),
            output: Vec::new(),
            scratch: Vec::new(),
        }
    }

    /// Samples of the filter's delay, at the output.
    pub(super) const fn delay(&self) -> usize {
        self.chunk_out / 2
    }

    /// What whole chunks in a row become, appended to `sink`, but for the first one, which is what came before.
    pub(super) fn process(&mut self, chunks: &[f32], sink: &mut Vec<f32>) {
        let (mut from, count) = (0, chunks.len() / self.chunk_in);
        while from + 1 < count {
            let new_chunks = (count - from - 1).min(2 * MAX_HALF_CHUNKS);
            self.transform(
                &chunks[from * self.chunk_in..][..(new_chunks + 1) * self.chunk_in],
                new_chunks.div_ceil(2),
            );
            let (first, both) = (new_chunks.div_ceil(2) * self.chunk_out, new_chunks * self.chunk_out);
            // What comes before depends on what the transform takes to have come before it.
            let produced = &self.output[self.chunk_out..];
            sink.reserve(both);
            sink.extend(produced[..first].iter().map(|produced| produced.re));
            sink.extend(produced[..both - first].iter().map(|produced| produced.im));
            from += new_chunks;
        }
    }

    /// Filters a chunk and so many more, and the last of these and what is behind it.
    fn transform(&mut self, chunks: &[f32], half: usize) {
        let Self { chunk_in, chunk_out, spectrum, output, scratch, .. } = self;
        let block =
            self.blocks[half - 1].get_or_insert_with(|| BlockFilter::new(*chunk_in, *chunk_out, half + 1));
        let (first, second) = (&chunks[..(half + 1) * *chunk_in], &chunks[half * *chunk_in..]);
        spectrum.clear();
        spectrum.extend(first.iter().zip(second).map(|(re, im)| Complex32::new(*re, *im)));
        spectrum.extend(first[second.len()..].iter().map(|re| Complex32::new(*re, 0.0)));
        output.resize((half + 1) * *chunk_out, Complex32::default());
        scratch.resize(block.scratch, Complex32::default());
        block.filter(spectrum, output, scratch);
    }
}

/// A transform of a number of chunks, and the filter's at that length.
struct BlockFilter {
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// The filter's spectrum from zero up, as far as both rates reach. The one below zero is its mirror.
    filter: Vec<Complex32>,
    scratch: usize,
}

impl BlockFilter {
    fn new(chunk_in: usize, chunk_out: usize, chunks: usize) -> Self {
        let (len_in, len_out) = (chunks * chunk_in, chunks * chunk_out);
        let mut planner = FftPlanner::new();
        let (forward, inverse) = (planner.plan_fft_forward(len_in), planner.plan_fft_inverse(len_out));
        // rustfft does not divide by the length.
        let scale = 1.0 / len_in as f32;
        let mut filter: Vec<_> =
            filter_taps(chunk_in, chunk_out).map(|tap| Complex32::from(tap * scale)).collect();
        filter.resize(len_in, Complex32::default());
        forward.process(&mut filter);
        filter.truncate(len_in.min(len_out).div_ceil(2));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self { forward, inverse, filter, scratch }
    }

    fn filter(&self, spectrum: &mut [Complex32], output: &mut [Complex32], scratch: &mut [Complex32]) {
        self.forward.process_with_scratch(spectrum, scratch);
        let (above, len) = (self.filter.len(), output.len());
        for ((place, line), filter) in output.iter_mut().zip(spectrum.iter()).zip(&self.filter) {
            *place = line * filter;
        }
        output[above..=len - above].fill(Complex32::default());
        let below = output.iter_mut().rev().zip(spectrum.iter().rev());
        for ((place, line), filter) in below.zip(&self.filter[1..]) {
            *place = line * filter.conj();
        }
        self.inverse.process_with_scratch(output, scratch);
    }
}

/// A windowed sinc as long as a chunk, of unit gain.
fn filter_taps(chunk_in: usize, chunk_out: usize) -> impl Iterator<Item = f32> {
    let cutoff = match chunk_in > chunk_out {
        true => calculate_cutoff::<f64>(chunk_out, WINDOW) * chunk_out as f64 / chunk_in as f64,
        false => calculate_cutoff::<f64>(chunk_in, WINDOW),
    };
    let tap = move |at: usize| {
        let phase = TAU * at as f64 / chunk_in as f64;
        let harmonics = [(0.48829, 1.0), (-0.14128, 2.0), (0.01168, 3.0)];
        let window = harmonics.iter().fold(0.35875, |sum, (part, times)| sum - part * (times * phase).cos());
        let angle = TAU / 2.0 * (at as f64 - (chunk_in / 2) as f64) * cutoff;
        let sinc = if angle == 0.0 { 1.0 } else { angle.sin() / angle };
        window * window * sinc
    };
    let sum: f64 = (0..chunk_in).map(tap).sum();
    (0..chunk_in).map(move |at| (tap(at) / sum) as f32)
}

/// rubato's sinc for one stretch at a time, with its buffers.
pub(super) struct Sinc {
    core: Async<f32>,
    output: Vec<f32>,
}

impl Sinc {
    #[expect(clippy::expect_used, reason = "construction fails for zeros and ratios out of range only")]
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Self {
        let ratio = f64::from(to_hz) / f64::from(from_hz);
        // rubato's automatic cutoff takes the filter for as long at the lower rate as it is at the input rate, which
        // leaves 24 dB of alias rejection near the Nyquist frequency when going down; so both are given.
        let len = (SINC_LEN as f64 * (1.0 / ratio).max(1.0)).ceil() as usize;
        let parameters = SincInterpolationParameters::new(len, WINDOW)
            .f_cutoff(calculate_cutoff(SINC_LEN, WINDOW))
            .oversampling_factor(SINC_OVERSAMPLING)
            .interpolation(SincInterpolationType::Cubic);
        let chunk = (from_hz * CHUNK_MS / 1000) as usize;
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

    /// What a chunk becomes, given those before it.
    pub(super) fn process(&mut self, chunk: &[f32]) -> &[f32] {
        let frames = self.output.len();
        let done = InterleavedSlice::new(chunk, 1, chunk.len())
            .ok()
            .zip(InterleavedSlice::new_mut(&mut self.output, 1, frames).ok())
            .and_then(|(input, mut output)| {
                rubato::Resampler::process_into_buffer(&mut self.core, &input, &mut output, None).ok()
            });
        // The buffers have the sizes rubato asked for, so this cannot fail; should it, silence keeps the time.
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

    /// Forgets every chunk.
    pub(super) fn reset(&mut self) {
        rubato::Resampler::reset(&mut self.core);
    }
}

/// The input chunk of overlap-save in samples: the multiple of the shortest common chunk of the two rates that is nearest
/// above [`CHUNK_MS`], or none if that is longer than [`MAX_CHUNK_MS`].
pub(super) fn overlap_save_chunk(from_hz: u32, to_hz: u32) -> Option<usize> {
    let common_chunk = from_hz / gcd(from_hz, to_hz);
    let chunk = (from_hz * CHUNK_MS / 1000).next_multiple_of(common_chunk);
    (chunk <= from_hz * MAX_CHUNK_MS / 1000).then_some(chunk as usize)
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
