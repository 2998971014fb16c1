//! The two ways from one rate to another, chunk by chunk: which of them fits is decided here.
//!
//! Where the rates meet within a short chunk it is overlap-add in the frequency domain, with the filter that rubato's FFT
//! resampler has (field notes "Resampling quality") and half of its work: filtering is linear, so one complex transform
//! takes two chunks at a time, one as its real and one as its imaginary part, and nobody has to take their spectra apart.
//! Elsewhere it is rubato's windowed sinc.

use std::{f64::consts::TAU, sync::Arc};

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, FixedAsync, SincInterpolationParameters, SincInterpolationType, WindowFunction, calculate_cutoff,
};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};

/// Length of a chunk, hence half of it the delay, that the measurements of the field notes found best.
const CHUNK_MS: u32 = 20;

/// The longest chunk overlap-add may need for two rates to meet (11 025 Hz needs 40 ms); beyond it the sinc takes over,
/// since a chunk is what voice detection has to wait for.
const MAX_CHUNK_MS: u32 = 40;

/// Length of the sinc filter in samples of the lower rate: half the FFT's, flat up to 0.87 of the Nyquist frequency.
const SINC_LEN: usize = 160;

/// Sub-filters of the sinc table; with cubic interpolation between them images stay below −120 dB.
const SINC_OVERSAMPLING: usize = 256;

const WINDOW: WindowFunction = WindowFunction::BlackmanHarris2;

/// Overlap-add for one pair of rates: tables and room to work in, and no memory of what was done.
pub(super) struct OverlapAdd {
    chunk_in: usize,
    chunk_out: usize,
    forward: Arc<dyn Fft<f32>>,
    inverse: Arc<dyn Fft<f32>>,
    /// The filter's spectrum from zero up, as far as both rates reach. The one below zero is its mirror.
    filter: Vec<Complex32>,
    spectrum: Vec<Complex32>,
    output: Vec<Complex32>,
    scratch: Vec<Complex32>,
    /// What is to be added to the next chunk's output.
    overlap: Vec<f32>,
}

impl OverlapAdd {
    /// For chunks of that many samples, which [`chunk`] gives.
    pub(super) fn new(from_hz: u32, to_hz: u32, chunk_in: usize) -> Self {
        let chunk_out = chunk_in * to_hz as usize / from_hz as usize;
        let mut planner = FftPlanner::new();
        let forward = planner.plan_fft_forward(2 * chunk_in);
        let inverse = planner.plan_fft_inverse(2 * chunk_out);
        let mut filter: Vec<_> = taps(chunk_in, chunk_out).map(Complex32::from).collect();
        filter.resize(2 * chunk_in, Complex32::default());
        forward.process(&mut filter);
        filter.truncate(chunk_in.min(chunk_out));
        let scratch = forward.get_inplace_scratch_len().max(inverse.get_inplace_scratch_len());
        Self {
            chunk_in,
            chunk_out,
            forward,
            inverse,
            filter,
            spectrum: vec![Complex32::default(); 2 * chunk_in],
            output: vec![Complex32::default(); 2 * chunk_out],
            scratch: vec![Complex32::default(); scratch],
            overlap: vec![0.0; chunk_out],
        }
    }

    /// Samples of the filter's delay, at the output.
    pub(super) const fn delay(&self) -> usize {
        self.chunk_out / 2
    }

    /// What whole chunks in a row become, appended to `sink`; nothing came before the first.
    pub(super) fn process(&mut self, chunks: &[f32], sink: &mut Vec<f32>) {
        self.overlap.fill(0.0);
        sink.reserve(chunks.len() / self.chunk_in * self.chunk_out);
        for pair in chunks.chunks(2 * self.chunk_in) {
            let (first, second) = pair.split_at(self.chunk_in);
            self.transform(first, second);
            let (own, late) = self.output.split_at(self.chunk_out);
            sink.extend(own.iter().zip(&self.overlap).map(|(own, before)| own.re + before));
            if second.is_empty() {
                self.overlap.iter_mut().zip(late).for_each(|(overlap, late)| *overlap = late.re);
            } else {
                sink.extend(own.iter().zip(late).map(|(own, before)| own.im + before.re));
                self.overlap.iter_mut().zip(late).for_each(|(overlap, late)| *overlap = late.im);
            }
        }
    }

    /// What two chunks become, each by itself: its own part, and as long a part that overlaps the next.
    fn transform(&mut self, first: &[f32], second: &[f32]) {
        let Self { spectrum, output, scratch, .. } = self;
        for (place, re) in spectrum.iter_mut().zip(first) {
            *place = Complex32::new(*re, 0.0);
        }
        for (place, im) in spectrum.iter_mut().zip(second) {
            place.im = *im;
        }
        spectrum[self.chunk_in..].fill(Complex32::default());
        self.forward.process_with_scratch(spectrum, scratch);

        output.fill(Complex32::default());
        for ((place, above), filter) in output.iter_mut().zip(spectrum.iter()).zip(&self.filter) {
            *place = above * filter;
        }
        let below = output.iter_mut().rev().zip(spectrum.iter().rev());
        for ((place, below), filter) in below.zip(&self.filter[1..]) {
            *place = below * filter.conj();
        }
        self.inverse.process_with_scratch(output, scratch);
    }
}

/// A windowed sinc as long as a chunk, of unit gain over both transforms.
fn taps(chunk_in: usize, chunk_out: usize) -> impl Iterator<Item = f32> {
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
    let scale = 1.0 / (sum * 2.0 * chunk_in as f64);
    (0..chunk_in).map(move |at| (tap(at) * scale) as f32)
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
        let most = rubato::Resampler::output_frames_max(&core);
        Self { core, output: vec![0.0; most] }
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
        let made = match done {
            Some((_, made)) => made,
            None => {
                debug_assert!(false, "rubato refused buffers of its own sizes");
                self.output.fill(0.0);
                rubato::Resampler::output_frames_next(&self.core)
            }
        };
        &self.output[..made]
    }

    /// Forgets every chunk.
    pub(super) fn reset(&mut self) {
        rubato::Resampler::reset(&mut self.core);
    }
}

/// The input chunk of overlap-add in samples: the multiple of the shortest common chunk of the two rates that is nearest
/// above [`CHUNK_MS`], or none if that is longer than [`MAX_CHUNK_MS`].
pub(super) fn chunk(from_hz: u32, to_hz: u32) -> Option<usize> {
    let shortest = from_hz / gcd(from_hz, to_hz);
    let chunk = (from_hz * CHUNK_MS / 1000).next_multiple_of(shortest);
    (chunk <= from_hz * MAX_CHUNK_MS / 1000).then_some(chunk as usize)
}

const fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}
