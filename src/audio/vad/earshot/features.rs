//! What the net is told of a hop: how loud it is in 40 bands, of a window over three hops, whatever the level.

use std::{array::from_fn, cell::RefCell, f32::consts::PI, sync::Arc};

use fearless_simd::{Level, Simd, dispatch, f32x8, prelude::*};
use rustfft::{Fft, FftPlanner, num_complex::Complex32};

use super::HOP_SAMPLES;

/// Bands, spaced as the ear hears.
pub(super) const BANDS: usize = 40;
/// How many hops' bands the net looks at together.
pub(super) const CONTEXT_HOPS: usize = 3;

const WINDOW_SAMPLES: usize = 3 * HOP_SAMPLES;
const FFT_SAMPLES: usize = 1024;
/// What is left of a sample when the next one has had its share taken off: treble counts for more.
const PRE_EMPHASIS: f32 = 0.97;
/// Powers are those of samples in ±1.
const POWER_SCALE: f32 = 1.0 / (32_768.0 * 32_768.0);
/// Where bands begin, in lines of the spectrum: each rises from its edge to the next one and falls to the one after.
const EDGES: [usize; BANDS + 2] = [
    4, 7, 10, 13, 17, 21, 25, 29, 33, 38, 43, 48, 54, 60, 66, 73, 80, 87, 95, 103, 112, 122, 132, 142, 153,
    165, 178, 191, 205, 220, 236, 253, 270, 289, 309, 330, 353, 376, 402, 428, 456, 486,
];

/// Silence has a logarithm too.
const LOG_FLOOR: f32 = 1e-20;

thread_local! {
    /// Its tables and buffers are the same for everybody.
    static SPECTRUM: RefCell<Option<Box<Spectrum>>> = const { RefCell::new(None) };
}

/// The bands of one stream's last hops.
pub(super) struct Features {
    /// The last sample.
    last: f32,
    /// The two hops before, emphasised.
    previous: [f32; WINDOW_SAMPLES - HOP_SAMPLES],
    frames: [f32; CONTEXT_HOPS * BANDS],
}

impl Features {
    pub(super) const fn new() -> Self {
        Self { last: 0.0, previous: [0.0; WINDOW_SAMPLES - HOP_SAMPLES], frames: [0.0; CONTEXT_HOPS * BANDS] }
    }

    /// Takes a hop so much amplified, with such instructions; the bands of the last [`CONTEXT_HOPS`] hops, each times its weight, the newest last.
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

/// Brings the bands to one level, whatever theirs was.
fn normalize_level(bands: &mut [f32], weights: &[f32; BANDS]) {
    let scale = (bands.iter().map(|band| band * band).sum::<f32>() / BANDS as f32).sqrt().recip();
    for (band, weight) in bands.iter_mut().zip(weights) {
        *band *= weight * scale;
    }
}

/// Half a window's transform: of real numbers, two are taken for one complex.
const HALF_FFT: usize = FFT_SAMPLES / 2;

/// Finds the bands of a window.
struct Spectrum {
    fft: Arc<dyn Fft<f32>>,
    window: [f32; WINDOW_SAMPLES],
    /// Cosine and sine by which the odd samples are late at each line.
    twiddles: [[f32; HALF_FFT / 2]; 2],
    /// How much of a line is the band's that rises there; the rest is the one's that falls.
    rising: [f32; HALF_FFT],
    /// Pairs of samples, and then lines.
    pairs: [Complex32; HALF_FFT],
    /// Their real and imaginary parts.
    parts: [[f32; HALF_FFT + 1]; 2],
    powers: [f32; HALF_FFT + 1],
    /// What of them rises.
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

    /// The bands of `previous` and `hop` behind it.
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
            *band = (rises + (all - rises_next) + LOG_FLOOR).ln();
            rises = rises_next;
        }
    }

    /// The power of each line, from the transform of pairs.
    #[inline(always)]
    fn find_powers<S: Simd>(&mut self, simd: S) {
        let Self { pairs, parts: [re, im], twiddles: [cosine, sine], powers, .. } = self;
        let parts = re.as_chunks_mut::<8>().0.iter_mut().zip(im.as_chunks_mut::<8>().0);
        for ((re, im), pairs) in parts.zip(pairs.as_chunks::<8>().0) {
            (*re, *im) = (pairs.map(|pair| pair.re), pairs.map(|pair| pair.im));
        }
        // It begins anew.
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
            // Twice what the even samples give, and the odd ones, which a line and its mirror share.
            let (even_re, even_im) = (re_here + re_there, im_here - im_there);
            let (odd_re, odd_im) = (im_here + im_there, re_there - re_here);
            let (late_re, late_im) = (cosine * odd_re - sine * odd_im, cosine * odd_im + sine * odd_re);
            power(even_re + late_re, even_im + late_im).store_slice(&mut powers[here]);
            power(even_re - late_re, even_im - late_im).reverse().store_slice(&mut powers[there]);
        }
        powers[HALF_FFT / 2] = pairs[HALF_FFT / 2].norm_sqr() * POWER_SCALE;
    }
}

/// The power of eight lines, twice as large as they are.
#[inline(always)]
fn power<S: Simd>(re: f32x8<S>, im: f32x8<S>) -> f32x8<S> {
    (re * re + im * im) * (POWER_SCALE / 4.0)
}

/// All of them, four at a time.
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

/// Pairs of samples times their weights.
#[inline(always)]
fn apply_window(samples: &[f32], weights: &[f32], pairs: &mut [Complex32]) {
    let samples = samples.as_chunks::<2>().0.iter().zip(weights.as_chunks::<2>().0);
    for (pair, (sample, weight)) in pairs.iter_mut().zip(samples) {
        *pair = Complex32::new(sample[0] * weight[0], sample[1] * weight[1]);
    }
}
