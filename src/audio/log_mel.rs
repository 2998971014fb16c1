//! Log-mel spectrogram of the newest speech: the input of end-of-turn models such as Smart Turn 3, which hears 8 s.
//!
//! The numbers are those of Pipecat's `_whisper_features.py` (Whisper's features in Hugging Face's transformers): the audio is
//! padded in front, brought to mean 0 and variance 1, and cut into frames of 25 ms every 10 ms. Each frame gives the power in
//! some bands of the Slaney mel scale (80 for Smart Turn 3), as a logarithm that is clipped 8 below the highest.

use std::{f64::consts::TAU, sync::Arc};

use rustfft::{Fft, FftPlanner, num_complex::Complex};

/// Size of a spectrogram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Bands.
    pub bands: usize,
    /// Frames, one every 10 ms.
    pub frames: usize,
}

impl Size {
    /// The size that Smart Turn 3 takes: 8 s.
    pub const SMART_TURN: Self = Self { bands: 80, frames: 800 };

    /// Number of values.
    #[must_use]
    pub const fn values(self) -> usize {
        self.bands * self.frames
    }

    /// Samples at 16 kHz that the spectrogram covers.
    #[must_use]
    pub const fn samples(self) -> usize {
        self.frames * STEP
    }
}

/// Samples of a frame: 25 ms.
const WINDOW: usize = 400;
/// Samples from one frame to the next: 10 ms.
const STEP: usize = 160;
/// Distance of the bins of the Fourier transform, Hz.
const BIN_HZ: f64 = 40.0;
/// Highest frequency of the bands, Hz.
const TOP_HZ: f64 = 8000.0;
/// Added to the variance, so that silence is not divided by zero.
const VARIANCE_FLOOR: f64 = 1e-7;
/// Least power of a band.
const POWER_FLOOR: f64 = 1e-10;

/// Computes spectrograms. Holds the tables that all of them need.
pub struct LogMel {
    fft: Arc<dyn Fft<f64>>,
    window: Vec<f64>,
    bands: Vec<Band>,
    size: Size,
}

/// Triangular filter of one band.
struct Band {
    first_bin: usize,
    weights: Vec<f64>,
}

impl LogMel {
    /// Computes spectrograms of this size, which has at least two frames.
    #[must_use]
    pub fn new(size: Size) -> Self {
        let hann = |at: usize| 0.5 - 0.5 * (TAU * at as f64 / WINDOW as f64).cos();
        Self {
            fft: FftPlanner::new().plan_fft_forward(WINDOW),
            window: (0..WINDOW).map(hann).collect(),
            bands: bands(size.bands),
            size,
        }
    }

    /// Its size.
    #[must_use]
    pub const fn size(&self) -> Size {
        self.size
    }

    /// Computes the spectrogram of the newest int16 mono audio at 16 kHz. Shorter audio is padded with silence in front. Returns
    /// a row of values for each band, about −1 to 1.5.
    #[must_use]
    pub fn compute(&self, audio: &[i16]) -> Vec<f32> {
        let samples = normalise(audio, self.size.samples());
        let mut features = vec![0.0; self.size.values()];
        let mut frame = vec![Complex::default(); WINDOW];
        let mut scratch = vec![Complex::default(); self.fft.get_inplace_scratch_len()];
        let mut highest = f64::NEG_INFINITY;
        for at in 0..self.size.frames {
            self.fill_frame(&samples, at, &mut frame);
            self.fft.process_with_scratch(&mut frame, &mut scratch);
            for (row, band) in self.bands.iter().enumerate() {
                let level = band.power(&frame).max(POWER_FLOOR).log10();
                highest = highest.max(level);
                features[row * self.size.frames + at] = level as f32;
            }
        }
        let floor = (highest - 8.0) as f32;
        features.iter_mut().for_each(|value| *value = (value.max(floor) + 4.0) / 4.0);
        features
    }

    /// Fills the windowed frame. Its middle lies at the frame's position, and the audio is mirrored at both ends.
    fn fill_frame(&self, samples: &[f64], at: usize, frame: &mut [Complex<f64>]) {
        let start = (at * STEP) as isize - (WINDOW / 2) as isize;
        for (place, (value, weight)) in (start..).zip(frame.iter_mut().zip(&self.window)) {
            let place = place.unsigned_abs();
            let mirrored = if place < samples.len() { place } else { 2 * (samples.len() - 1) - place };
            *value = Complex::new(samples[mirrored] * weight, 0.0);
        }
    }
}

impl Band {
    /// Power of a transformed frame in this band.
    fn power(&self, spectrum: &[Complex<f64>]) -> f64 {
        let bins = &spectrum[self.first_bin..];
        self.weights.iter().zip(bins).map(|(weight, bin)| weight * bin.norm_sqr()).sum()
    }
}

/// The newest audio, padded in front, with mean 0 and variance 1.
fn normalise(audio: &[i16], length: usize) -> Vec<f64> {
    let newest = &audio[audio.len().saturating_sub(length)..];
    let mut samples = vec![0.0; length];
    for (sample, value) in samples[length - newest.len()..].iter_mut().zip(newest) {
        *sample = f64::from(*value) / 32_768.0;
    }
    let mean = samples.iter().sum::<f64>() / length as f64;
    let variance = samples.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / length as f64;
    let scale = 1.0 / (variance + VARIANCE_FLOOR).sqrt();
    samples.iter_mut().for_each(|sample| *sample = (*sample - mean) * scale);
    samples
}

/// Filters whose edges are equally spaced on the Slaney mel scale, each with the same area.
fn bands(count: usize) -> Vec<Band> {
    let log_step = 6.4_f64.ln() / 27.0;
    let to_hz = |mel: f64| match mel < 15.0 {
        true => 200.0 * mel / 3.0,
        false => 1000.0 * ((mel - 15.0) * log_step).exp(),
    };
    let top_mel = 15.0 + (TOP_HZ / 1000.0).ln() / log_step;
    let edges: Vec<f64> = (0..count + 2).map(|at| to_hz(top_mel * at as f64 / (count + 1) as f64)).collect();
    let filter = |edges: &[f64]| {
        let (low, middle, high) = (edges[0], edges[1], edges[2]);
        let weight = |bin: usize| {
            let hz = bin as f64 * BIN_HZ;
            ((hz - low) / (middle - low)).min((high - hz) / (high - middle)) * 2.0 / (high - low)
        };
        let bins = 0..=WINDOW / 2;
        let first_bin = bins.clone().find(|bin| weight(*bin) > 0.0).unwrap_or_default();
        let weights = bins.skip(first_bin).map(weight).take_while(|weight| *weight > 0.0).collect();
        Band { first_bin, weights }
    };
    edges.windows(3).map(filter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every 40th frame of the features that Pipecat's `_whisper_features.py` computes (pipecat-ai 1.14.0), as float32, band by
    /// band: of a recording shorter than 8 s and of a longer one.
    const REFERENCE: &[u8] = include_bytes!("log_mel_reference.bin");

    fn recording(file: &str) -> Vec<i16> {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/speech").join(file);
        hound::WavReader::open(path).unwrap().samples().map(Result::unwrap).collect()
    }

    #[test]
    fn features_are_those_of_the_reference() {
        let reference: Vec<f32> =
            REFERENCE.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect();
        let log_mel = LogMel::new(Size::SMART_TURN);
        for (file, expected) in
            ["arctic_a0007_16k.wav", "jfk_16k.wav"].iter().zip(reference.chunks(Size::SMART_TURN.bands * 20))
        {
            let features = log_mel.compute(&recording(file));
            assert_eq!(features.len(), Size::SMART_TURN.values());
            for (at, (found, expected)) in features.iter().step_by(40).zip(expected).enumerate() {
                assert!((found - expected).abs() < 1e-3, "{file}, value {at}: {found} instead of {expected}");
            }
        }
    }

    #[test]
    fn other_sizes_have_a_row_of_their_length_for_each_band() {
        let audio = recording("arctic_a0007_16k.wav");
        for size in [Size { bands: 128, frames: 1600 }, Size { bands: 40, frames: 2 }] {
            let features = LogMel::new(size).compute(&audio);
            assert_eq!(features.len(), size.values());
            assert!(features.iter().all(|value| value.is_finite()), "{size:?}");
        }
    }

    #[test]
    fn silence_and_no_audio_have_finite_features() {
        let log_mel = LogMel::new(Size::SMART_TURN);
        for audio in
            [vec![], vec![0; Size::SMART_TURN.samples()], vec![i16::MIN; 2 * Size::SMART_TURN.samples()]]
        {
            assert!(log_mel.compute(&audio).iter().all(|value| value.is_finite()));
        }
    }
}
