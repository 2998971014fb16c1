//! Converts the model's audio, float32 mono at 24 kHz ([`MODEL_RATE_HZ`]), to the rate that a client plays.

use std::collections::VecDeque;

use super::MODEL_RATE_HZ;
use super::resample::{Resampler, UnsupportedRate};

/// Converter for one client.
#[derive(Debug)]
pub struct OutputConverter {
    resampler: Resampler,
    /// True at [`MODEL_RATE_HZ`]: samples are copied only.
    passthrough: bool,
    /// Reused between calls; empty unless the rates differ.
    resampled: Vec<f32>,
}

impl Default for OutputConverter {
    /// A converter to [`MODEL_RATE_HZ`].
    fn default() -> Self {
        Self::new(MODEL_RATE_HZ).expect("the model's own rate is within the supported range")
    }
}

impl OutputConverter {
    /// A converter to `out_rate_hz` samples per second; [`MODEL_RATE_HZ`] needs no resampling.
    ///
    /// # Errors
    /// [`UnsupportedRate`] outside 8 to 192 kHz.
    pub fn new(out_rate_hz: u32) -> Result<Self, UnsupportedRate> {
        Ok(Self {
            resampler: Resampler::new(MODEL_RATE_HZ, out_rate_hz)?,
            passthrough: out_rate_hz == MODEL_RATE_HZ,
            resampled: Vec::new(),
        })
    }

    /// Converts samples of the model and appends those that are ready to `out`.
    pub fn push(&mut self, samples: &[f32], out: &mut VecDeque<f32>) {
        if self.passthrough {
            return out.extend(samples);
        }
        self.resampler.push(samples, &mut self.resampled);
        out.extend(self.resampled.as_slice());
        self.resampled.clear();
    }

    /// Ends a turn: appends everything that is still in the resampler, which is then ready for the next turn.
    pub fn flush(&mut self, out: &mut VecDeque<f32>) {
        self.resampler.flush(&mut self.resampled);
        out.extend(self.resampled.as_slice());
        self.resampled.clear();
    }

    /// Discards everything that is still in the resampler, because the turn was cancelled.
    pub fn clear(&mut self) {
        self.resampler.reset();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speech() -> Vec<f32> {
        (0..24_000).map(|i| (i as f32 * 0.05).sin() * 0.8 + (i as f32 * 0.31).sin() * 0.1).collect()
    }

    #[test]
    fn model_rate_output_is_not_resampled() {
        let (mut converter, mut out) = (OutputConverter::new(24_000).unwrap(), VecDeque::new());
        converter.push(&speech(), &mut out);
        converter.flush(&mut out);
        assert_eq!(out, speech());
    }

    #[test]
    fn resampled_output_has_exact_length_for_any_framing() {
        for rate_hz in [8_000u32, 16_000, 22_050, 44_100, 48_000] {
            let (mut converter, mut whole, mut pieces) =
                (OutputConverter::new(rate_hz).unwrap(), VecDeque::new(), VecDeque::new());
            converter.push(&speech(), &mut whole);
            converter.flush(&mut whole);
            assert_eq!(whole.len(), rate_hz as usize, "one second");
            for piece in speech().chunks(777) {
                converter.push(piece, &mut pieces);
            }
            converter.flush(&mut pieces);
            assert_eq!(whole.len(), pieces.len(), "{rate_hz} Hz");
            // Sums may be rounded in another order: by no more than one step of int16.
            let differs = |(a, b): (&f32, &f32)| (a - b).abs() > 1.0 / 32_768.0;
            assert!(!whole.iter().zip(&pieces).any(differs), "{rate_hz} Hz depends on the framing");
        }
    }

    #[test]
    fn cleared_audio_never_reaches_the_output() {
        let (mut converter, mut out) = (OutputConverter::new(48_000).unwrap(), VecDeque::new());
        converter.push(&speech()[..1_000], &mut out);
        converter.clear();
        out.clear();
        converter.push(&[0.0; 1_000], &mut out);
        converter.flush(&mut out);
        assert_eq!(out, vec![0.0; 2_000]);
    }
}
