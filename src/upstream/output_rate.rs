//! Rate of the model's audio. MiniCPM-o sends 24 kHz; other models have other rates, which the session or each delta of audio
//! names.

use std::borrow::Cow;

use crate::audio::{MODEL_RATE_HZ, resample::Resampler};

/// Converter of one answer's audio to [`MODEL_RATE_HZ`].
#[derive(Debug, Default)]
pub(super) struct OutputRate {
    /// Rate of the audio and its resampler; `None` until audio of another rate comes.
    other: Option<(u32, Resampler)>,
}

impl OutputRate {
    /// Audio of one message, as far as it is ready. No rate, and one that cannot be converted, count as [`MODEL_RATE_HZ`].
    pub(super) fn convert<'s>(&mut self, samples: &'s [f32], rate_hz: Option<u32>) -> Cow<'s, [f32]> {
        let Some(rate_hz) = rate_hz.filter(|rate_hz| *rate_hz != MODEL_RATE_HZ) else {
            return samples.into();
        };
        if self.other.as_ref().is_none_or(|(known, _)| *known != rate_hz) {
            let Ok(resampler) = Resampler::new(rate_hz, MODEL_RATE_HZ) else { return samples.into() };
            self.other = Some((rate_hz, resampler));
        }
        let mut converted = Vec::new();
        if let Some((_, resampler)) = &mut self.other {
            resampler.push(samples, &mut converted);
        }
        converted.into()
    }

    /// The rest of the answer's audio.
    pub(super) fn finish(&mut self) -> Vec<f32> {
        let mut rest = Vec::new();
        if let Some((_, resampler)) = &mut self.other {
            resampler.flush(&mut rest);
        }
        rest
    }
}
