//! Rate of the user's audio, for models that take it at another than [`SPEECH_RATE_HZ`].

use std::borrow::Cow;

use crate::audio::{
    SPEECH_RATE_HZ, pcm,
    resample::{OutputSample, Resampler},
    wav,
};

/// Converter of a session's audio from [`SPEECH_RATE_HZ`].
#[derive(Debug)]
pub(super) struct InputRate {
    /// Rate that the model takes, Hz.
    pub(super) rate_hz: u32,
    resampler: Resampler,
}

impl InputRate {
    /// Converter to this rate, which begins with the audio itself. `None` for a rate that cannot be converted.
    pub(super) fn aligned(rate_hz: u32) -> Option<Self> {
        Resampler::new(SPEECH_RATE_HZ, rate_hz).ok().map(|resampler| Self { rate_hz, resampler })
    }

    /// Like [`InputRate::aligned`], but each audio is converted at once, behind the filter's delay.
    pub(super) fn with_lead_in(rate_hz: u32) -> Option<Self> {
        Resampler::with_lead_in(SPEECH_RATE_HZ, rate_hz).ok().map(|resampler| Self { rate_hz, resampler })
    }

    /// The next audio, as far as it is ready.
    pub(super) fn convert<S: OutputSample>(&mut self, audio: &[i16]) -> Vec<S> {
        let samples: Vec<f32> = audio.iter().map(|sample| pcm::to_f32(*sample)).collect();
        let mut converted = Vec::new();
        self.resampler.push(&samples, &mut converted);
        converted
    }

    /// Samples of each second of audio that stay here until the next second.
    pub(super) fn held_samples(&self) -> usize {
        let mut resampler = self.resampler.renewed();
        resampler.push::<i16>(&[0.0; SPEECH_RATE_HZ as usize], &mut Vec::new());
        resampler.pending_samples() as usize
    }
}

/// Whole audio of the user at a server's rate, which was checked when the server granted it.
pub(super) fn at_rate(audio: &[i16], rate_hz: u32) -> Cow<'_, [i16]> {
    if rate_hz == SPEECH_RATE_HZ {
        return audio.into();
    }
    let samples: Vec<f32> = audio.iter().map(|sample| pcm::to_f32(*sample)).collect();
    let converted = wav::resample_all(&samples, SPEECH_RATE_HZ, rate_hz).unwrap_or_default();
    converted.into_iter().map(pcm::to_i16).collect()
}
