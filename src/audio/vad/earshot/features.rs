//! Features for the voice activity net: the log energy of 40 bands over a window of three hops, normalized for
//! level.

use std::{array::from_fn, cell::RefCell, f32::consts::PI, sync::Arc};

use fearless_simd::{Level, Simd, dispatch, f32x8, prelude::*};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};

use super::HOP_SAMPLES;

/// Number of bands, spaced on the mel scale.
pub(super) const BANDS: usize = 40;
/// Number of hops whose bands the net sees together.
pub(super) const CONTEXT_HOPS: usize = 3;

const WINDOW_SAMPLES: usize = 3 * HOP_SAMPLES;
const FFT_SAMPLES: usize = 1024;
/// Pre-emphasis: the share of the previous sample subtracted from each sample. It raises the treble.
const PRE_EMPHASIS: f32 = 0.97;
/// Scales powers to samples in ±1.
const POWER_SCALE: f32 = 1.0 / (32_768.0 * 32_768.0);
/// Band edges as FFT bins. Each band rises from its edge to the next one and falls to the one after.
const EDGES: [usize; BANDS + 2] = [
    4, 7, 10, 13, 17, 21, 25, 29, 33, 38, 43, 48, 54, 60, 66, 73, 80, 87, 95, 103, 112, 122, 132, 142, 153,
    165, 178, 191, 205, 220, 236, 253, 270, 289, 309, 330, 353, 376, 402, 428, 456, 486,
];

/// Keeps the logarithm of silence finite.
const LOG_FLOOR: f32 = 1e-20;

thread_local! {
    /// Tables and buffers, shared by all streams of a thread.
    static SPECTRUM: RefCell<Option<Box<Spectrum>>> = const { RefCell::new(None) };
}

/// Bands of the last hops of one stream.
pub(super) struct Features {
    /// Last sample of the previous hop.
    last: f32,
    /// The two previous hops, pre-emphasised.
    previous: [f32; WINDOW_SAMPLES - HOP_SAMPLES],
    frames: [f32; CONTEXT_HOPS * BANDS],
}

impl Features {
    pub(super) const fn new() -> Self {
        Self { last: 0.0, previous: [0.0; WINDOW_SAMPLES - HOP_SAMPLES], frames: [0.0; CONTEXT_HOPS * BANDS] }
    }

    /// Computes the bands of a hop multiplied by `gain`, with the instructions of `level`. Returns the
    /// weighted bands of the last [`CONTEXT_HOPS`] hops, newest last.
    pub(super) fn push(
        &mut self,
        level: Level,
        hop: &[i16],
        gain: f32,
        weights: &[f32; BANDS],
    ) -> &[f32; CONTEXT_HOPS * BANDS] {
        SPECTRUM.with_borrow_mut(|spectrum| {
            let spectrum = spectrum.get_or_insert_with(Spectrum::new);
            dispatch!(level, simd => self.compute_bands(simd, spectrum, hop, gain));
        });
        normalize_level(&mut self.frames[(CONTEXT_HOPS - 1) * BANDS..], weights);
        &self.frames
    }

    #[inline(always)]
    fn compute_bands<S: Simd>(&mut self, simd: S, spectrum: &mut Spectrum, hop: &[i16], gain: f32) {
        let mut samples = [0.0; HOP_SAMPLES];
        for (amplified, sample) in samples.iter_mut().zip(hop) {
            *amplified = (f32::from(*sample) * gain).clamp(i16::MIN.into(), i16::MAX.into());
        }
        let mut emphasised = samples;
        emphasised[0] -= PRE_EMPHASIS * self.last;
        for (emphasised, before) in emphasised[1..].iter_mut().zip(&samples) {
            *emphasised -= PRE_EMPHASIS * before;
        }
        self.last = samples[HOP_SAMPLES - 1];
        self.frames.copy_within(BANDS.., 0);
        spectrum.bands(simd, &self.previous, &emphasised, &mut self.frames[(CONTEXT_HOPS - 1) * BANDS..]);
        self.previous.copy_within(HOP_SAMPLES.., 0);
        self.previous[HOP_SAMPLES..].copy_from_slice(&emphasised);
    }
}

/// Scales the bands to unit RMS and multiplies them by their weights.
fn normalize_level(bands: &mut [f32], weights: &[f32; BANDS]) {
    let scale = (bands.iter().map(|band| band * band).sum::<f32>() / BANDS as f32).sqrt().recip();
    for (band, weight) in bands.iter_mut().zip(weights) {
        *band *= weight * scale;
    }
}

/// Size of the complex FFT: two real samples form one complex input.
const HALF_FFT: usize = FFT_SAMPLES / 2;

/// Computes the bands of a window.
struct Spectrum {
    fft: Arc<dyn Fft<f32>>,
    window: [f32; WINDOW_SAMPLES],
    /// Twiddle factors (cosine and sine) that combine the spectra of even and odd samples.
    twiddles: [[f32; HALF_FFT / 2]; 2],
    /// Share of each bin that belongs to the band rising there; the rest belongs to the falling band.
    rising: [f32; HALF_FFT],
    /// Pairs of samples; after the FFT, bins.
    pairs: [Complex32; HALF_FFT],
    /// Real and imaginary parts of the bins.
    parts: [[f32; HALF_FFT + 1]; 2],
    powers: [f32; HALF_FFT + 1],
    /// Powers multiplied by `rising`.
    rises: [f32; HALF_FFT],
    scratch: Vec<Complex32>,
}

impl Spectrum {
    fn new() -> Box<Self> {
        let fft = FftPlanner::new().plan_fft_forward(HALF_FFT);
        let mut rising = [0.0; HALF_FFT];
        for pair in EDGES.windows(2) {
            let width = (pair[1] - pair[0]) as f32;
            for (at, rising) in rising[pair[0]..pair[1]].iter_mut().enumerate() {
                *rising = at as f32 / width;
            }
        }
        let angle = |line: usize| -2.0 * PI * line as f32 / FFT_SAMPLES as f32;
        Box::new(Self {
            window: from_fn(|at| (PI * at as f32 / WINDOW_SAMPLES as f32).sin().powi(2)),
            twiddles: [from_fn(|line| angle(line).cos()), from_fn(|line| angle(line).sin())],
            rising,
            pairs: [Complex32::default(); HALF_FFT],
            parts: [[0.0; HALF_FFT + 1]; 2],
            powers: [0.0; HALF_FFT + 1],
            rises: [0.0; HALF_FFT],
            scratch: vec![Complex32::default(); fft.get_inplace_scratch_len()],
            fft,
        })
    }

    /// Computes the bands of `previous` followed by `hop`.
    #[inline(always)]
    fn bands<S: Simd>(&mut self, simd: S, previous: &[f32], hop: &[f32], bands: &mut [f32]) {
        let (window, padding) = self.pairs.split_at_mut(WINDOW_SAMPLES / 2);
        let (before, now) = window.split_at_mut(previous.len() / 2);
        apply_window(previous, &self.window, before);
        apply_window(hop, &self.window[previous.len()..], now);
        padding.fill(Complex32::default());
        self.fft.process_with_scratch(&mut self.pairs, &mut self.scratch);
        self.find_powers(simd);
        for ((rises, power), rising) in self.rises.iter_mut().zip(&self.powers).zip(&self.rising) {
            *rises = power * rising;
        }
        let mut rises = sum(&self.rises[EDGES[0]..EDGES[1]]);
        for (band, edges) in bands.iter_mut().zip(EDGES[1..].windows(2)) {
            let (rises_next, all) =
                (sum(&self.rises[edges[0]..edges[1]]), sum(&self.powers[edges[0]..edges[1]]));
            *band = rises + (all - rises_next) + LOG_FLOOR;
            rises = rises_next;
        }
        bands.iter_mut().for_each(|band| *band = natural_log(*band));
    }

    /// Computes the power of each bin from the FFT of sample pairs.
    #[inline(always)]
    fn find_powers<S: Simd>(&mut self, simd: S) {
        let Self { pairs, parts: [re, im], twiddles: [cosine, sine], powers, .. } = self;
        let parts = re.as_chunks_mut::<8>().0.iter_mut().zip(im.as_chunks_mut::<8>().0);
        for ((re, im), pairs) in parts.zip(pairs.as_chunks::<8>().0) {
            (*re, *im) = (pairs.map(|pair| pair.re), pairs.map(|pair| pair.im));
        }
        // The spectrum is periodic.
        (re[HALF_FFT], im[HALF_FFT]) = (re[0], im[0]);
        let eights = cosine.as_chunks().0.iter().zip(sine.as_chunks().0);
        for (at, (cosine, sine)) in eights.enumerate() {
            let (cosine, sine) = (f32x8::load_array_ref(simd, cosine), f32x8::load_array_ref(simd, sine));
            let (here, there) = (8 * at..8 * at + 8, HALF_FFT - 8 * at - 7..=HALF_FFT - 8 * at);
            let (re_here, im_here) =
                (f32x8::from_slice(simd, &re[here.clone()]), f32x8::from_slice(simd, &im[here.clone()]));
            let (re_there, im_there) = (
                f32x8::from_slice(simd, &re[there.clone()]).reverse(),
                f32x8::from_slice(simd, &im[there.clone()]).reverse(),
            );
            // Twice the spectra of the even and the odd samples, which a bin and its mirror share.
            let (even_re, even_im) = (re_here + re_there, im_here - im_there);
            let (odd_re, odd_im) = (im_here + im_there, re_there - re_here);
            let (late_re, late_im) = (cosine * odd_re - sine * odd_im, cosine * odd_im + sine * odd_re);
            power(even_re + late_re, even_im + late_im).store_slice(&mut powers[here]);
            power(even_re - late_re, even_im - late_im).reverse().store_slice(&mut powers[there]);
        }
        powers[HALF_FFT / 2] = pairs[HALF_FFT / 2].norm_sqr() * POWER_SCALE;
    }
}

/// Power of eight bins whose amplitudes are doubled.
#[inline(always)]
fn power<S: Simd>(re: f32x8<S>, im: f32x8<S>) -> f32x8<S> {
    (re * re + im * im) * (POWER_SCALE / 4.0)
}

/// Natural logarithm of a positive normal number, to the last bit or two. Unlike the library's it has no branches, so that the
/// compiler computes eight at a time. The polynomial is that of Cephes' `logf`.
#[inline(always)]
fn natural_log(x: f32) -> f32 {
    const SQRT_HALF_BITS: i32 = 0x3f35_04f3;
    const COEFFICIENTS: [f32; 9] = [
        7.037_683_6e-2,
        -1.151_461e-1,
        1.167_699_9e-1,
        -1.242_014_1e-1,
        1.424_932_3e-1,
        -1.666_805_8e-1,
        2.000_071_5e-1,
        -2.499_999_4e-1,
        1.0 / 3.0,
    ];
    let bits = x.to_bits() as i32;
    let exponent = (bits - SQRT_HALF_BITS) >> 23;
    // x = 2^exponent · (1 + above), between √½ and √2.
    let above = f32::from_bits((bits - (exponent << 23)) as u32) - 1.0;
    let square = above * above;
    let polynomial = COEFFICIENTS.iter().fold(0.0, |sum, coefficient| sum * above + coefficient);
    let exponent = exponent as f32;
    // ln 2 in two parts: the first has few bits, so that its product is exact.
    let small = above * square * polynomial - 0.5 * square - 2.121_944_4e-4 * exponent;
    above + small + 0.693_359_4 * exponent
}

/// Sums the powers with four accumulators.
#[inline(always)]
fn sum(lines: &[f32]) -> f32 {
    let (fours, rest) = lines.as_chunks::<4>();
    let mut sums = [0.0; 4];
    for four in fours {
        for (sum, line) in sums.iter_mut().zip(four) {
            *sum += line;
        }
    }
    let mut all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for line in rest {
        all += line;
    }
    all
}

/// Multiplies samples by the window and stores them as pairs.
#[inline(always)]
fn apply_window(samples: &[f32], weights: &[f32], pairs: &mut [Complex32]) {
    let samples = samples.as_chunks::<2>().0.iter().zip(weights.as_chunks::<2>().0);
    for (pair, (sample, weight)) in pairs.iter_mut().zip(samples) {
        *pair = Complex32::new(sample[0] * weight[0], sample[1] * weight[1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_matches_the_library() {
        let mut x = LOG_FLOOR;
        while x < 1e20 {
            let right = x.ln();
            assert!((natural_log(x) - right).abs() <= 2.0 * f32::EPSILON * right.abs().max(1.0), "ln {x}");
            x *= 1.000_9;
        }
    }
}
