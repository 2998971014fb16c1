//! rubato's resamplers with their buffers: one chunk in, what it becomes out.
//!
//! Which of them fits two rates is decided here (field notes "Resampling quality").

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{
    Async, Fft, FixedAsync, FixedSync, SincInterpolationParameters, SincInterpolationType, WindowFunction,
    calculate_cutoff,
};

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
pub(super) struct Engine {
    core: Box<dyn rubato::Resampler<f32>>,
    output: Vec<f32>,
}

impl Engine {
    pub(super) fn new(from_hz: u32, to_hz: u32) -> Self {
        let core = match fft_chunk(from_hz, to_hz) {
            Some(chunk) => fft(from_hz, to_hz, chunk),
            None => sinc(from_hz, to_hz),
        };
        let most = core.output_frames_max();
        Self { core, output: vec![0.0; most] }
    }

    /// Samples of a chunk.
    pub(super) fn chunk(&self) -> usize {
        self.core.input_frames_max()
    }

    /// Samples of the filter's delay, at the output.
    pub(super) fn delay(&self) -> usize {
        self.core.output_delay()
    }

    /// What a chunk becomes, given those before it.
    pub(super) fn process(&mut self, chunk: &[f32]) -> &[f32] {
        let frames = self.output.len();
        let done = InterleavedSlice::new(chunk, 1, chunk.len())
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
        &self.output[..made]
    }

    /// Forgets every chunk.
    pub(super) fn reset(&mut self) {
        self.core.reset();
    }
}

/// The FFT's input chunk in samples: the multiple of the shortest common chunk of the two rates that is nearest above
/// [`CHUNK_MS`], or none if that is longer than [`MAX_CHUNK_MS`].
pub(super) fn fft_chunk(from_hz: u32, to_hz: u32) -> Option<usize> {
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
