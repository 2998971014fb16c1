//! What the net is told of a hop: how loud it is in 40 bands, of a window over three hops, whatever the level.

use std::{cell::RefCell, f32::consts::PI, sync::Arc};

use rustfft::{Fft, FftPlanner, num_complex::Complex32};

use super::HOP_SAMPLES;

/// Bands, spaced as the ear hears.
pub(super) const BANDS: usize = 40;
/// How many hops' bands the net looks at together.
pub(super) const FRAMES: usize = 3;

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

/// The lines up to where the last band ends.
const LINES: usize = EDGES[BANDS + 1];
/// Silence has a logarithm too.
const NEXT_TO_NOTHING: f32 = 1e-20;

thread_local! {
    /// Its tables and buffers are the same for everybody.
    static SPECTRUM: RefCell<Option<Spectrum>> = const { RefCell::new(None) };
}

/// The bands of one stream's last hops.
pub(super) struct Features {
    /// The last sample.
    last: f32,
    /// The two hops before, emphasised.
    heard: [f32; WINDOW_SAMPLES - HOP_SAMPLES],
    frames: [f32; FRAMES * BANDS],
}

impl Features {
    pub(super) const fn new() -> Self {
        Self { last: 0.0, heard: [0.0; WINDOW_SAMPLES - HOP_SAMPLES], frames: [0.0; FRAMES * BANDS] }
    }

    /// Takes a hop so much louder; the bands of the last [`FRAMES`] hops, each times its weight, the newest last.
    pub(super) fn push(&mut self, hop: &[i16], gain: f32, weights: &[f32; BANDS]) -> &[f32; FRAMES * BANDS] {
        let mut emphasised = [0.0; HOP_SAMPLES];
        for (emphasised, sample) in emphasised.iter_mut().zip(hop) {
            let sample = (f32::from(*sample) * gain).clamp(i16::MIN.into(), i16::MAX.into());
            *emphasised = sample - PRE_EMPHASIS * self.last;
            self.last = sample;
        }
        self.frames.copy_within(BANDS.., 0);
        let frame = &mut self.frames[(FRAMES - 1) * BANDS..];
        SPECTRUM.with_borrow_mut(|spectrum| {
            let spectrum = spectrum.get_or_insert_with(Spectrum::new);
            spectrum.bands(&self.heard, &emphasised, frame);
        });
        self.heard.copy_within(HOP_SAMPLES.., 0);
        self.heard[HOP_SAMPLES..].copy_from_slice(&emphasised);
        level(frame, weights);
        &self.frames
    }
}

/// Brings the bands to one level, whatever theirs was.
fn level(bands: &mut [f32], weights: &[f32; BANDS]) {
    let scale = (bands.iter().map(|band| band * band).sum::<f32>() / BANDS as f32).sqrt().recip();
    for (band, weight) in bands.iter_mut().zip(weights) {
        *band *= weight * scale;
    }
}

/// Finds the bands of a window.
struct Spectrum {
    fft: Arc<dyn Fft<f32>>,
    window: Vec<f32>,
    /// How much of a line is the band's that rises there; the rest is the one's that falls.
    rising: Vec<f32>,
    /// Samples, and then lines.
    lines: Vec<Complex32>,
    powers: Vec<f32>,
    /// What of them rises.
    rises: Vec<f32>,
    scratch: Vec<Complex32>,
}

impl Spectrum {
    fn new() -> Self {
        // One of real numbers only is half the work, and costs more: its last step is not made for vectors.
        let fft = FftPlanner::new().plan_fft_forward(FFT_SAMPLES);
        let window =
            (0..WINDOW_SAMPLES).map(|at| (PI * at as f32 / WINDOW_SAMPLES as f32).sin().powi(2)).collect();
        let mut rising = vec![0.0; LINES];
        for pair in EDGES.windows(2) {
            let width = (pair[1] - pair[0]) as f32;
            for (at, rising) in rising[pair[0]..pair[1]].iter_mut().enumerate() {
                *rising = at as f32 / width;
            }
        }
        let nothing = Complex32::default();
        Self {
            window,
            rising,
            lines: vec![nothing; FFT_SAMPLES],
            powers: vec![0.0; LINES],
            rises: vec![0.0; LINES],
            scratch: vec![nothing; fft.get_inplace_scratch_len()],
            fft,
        }
    }

    /// The bands of `heard` and `hop` behind it.
    fn bands(&mut self, heard: &[f32], hop: &[f32], bands: &mut [f32]) {
        let (window, padding) = self.lines.split_at_mut(WINDOW_SAMPLES);
        let (before, now) = window.split_at_mut(heard.len());
        weigh(heard, &self.window, before);
        weigh(hop, &self.window[heard.len()..], now);
        padding.fill(Complex32::default());
        self.fft.process_with_scratch(&mut self.lines, &mut self.scratch);
        for (power, line) in self.powers.iter_mut().zip(&self.lines) {
            *power = line.norm_sqr() * POWER_SCALE;
        }
        for ((rises, power), rising) in self.rises.iter_mut().zip(&self.powers).zip(&self.rising) {
            *rises = power * rising;
        }
        let sums = |at: usize| -> (f32, f32) {
            let lines = EDGES[at]..EDGES[at + 1];
            (self.rises[lines.clone()].iter().sum(), self.powers[lines].iter().sum())
        };
        let mut rises = sums(0).0;
        for (at, band) in bands.iter_mut().enumerate() {
            let (rises_next, all) = sums(at + 1);
            *band = (rises + (all - rises_next) + NEXT_TO_NOTHING).ln();
            rises = rises_next;
        }
    }
}

/// Samples times their weights, as complex numbers.
fn weigh(samples: &[f32], weights: &[f32], lines: &mut [Complex32]) {
    for ((line, sample), weight) in lines.iter_mut().zip(samples).zip(weights) {
        *line = Complex32::new(sample * weight, 0.0);
    }
}
