//! Rate of the user's audio, for models that take it at another than [`SPEECH_RATE_HZ`].

use std::borrow::Cow;

use crate::audio::{
    SPEECH_RATE_HZ, pcm,
    resample::{
        OutputSample, Resampler,
        speech::{self, SpeechUpsampler},
    },
    wav,
};

/// Converter of a session's audio from [`SPEECH_RATE_HZ`].
#[derive(Debug)]
pub(super) struct InputRate {
    /// Rate that the model takes, Hz.
    pub(super) rate_hz: u32,
    converter: Converter,
}

#[derive(Debug)]
enum Converter {
    /// To the usual rate.
    Speech(SpeechUpsampler),
    Other(Resampler),
}

impl InputRate {
    /// Converter to this rate, which begins with the audio itself. `None` for a rate that cannot be converted.
    pub(super) fn aligned(rate_hz: u32) -> Option<Self> {
        let converter = match rate_hz {
            speech::TO_HZ => Converter::Speech(SpeechUpsampler::aligned()),
            _ => Converter::Other(Resampler::new(SPEECH_RATE_HZ, rate_hz).ok()?),
        };
        Some(Self { rate_hz, converter })
    }

    /// Like [`InputRate::aligned`], but each audio is converted at once, behind the filter's delay.
    pub(super) fn with_lead_in(rate_hz: u32) -> Option<Self> {
        let converter = match rate_hz {
            speech::TO_HZ => Converter::Speech(SpeechUpsampler::with_lead_in()),
            _ => Converter::Other(Resampler::with_lead_in(SPEECH_RATE_HZ, rate_hz).ok()?),
        };
        Some(Self { rate_hz, converter })
    }

    /// The next audio, as far as it is ready.
    pub(super) fn convert<S: OutputSample>(&mut self, audio: &[i16]) -> Vec<S> {
        let mut converted = Vec::new();
        match &mut self.converter {
            Converter::Speech(upsampler) => upsampler.push(audio, &mut converted),
            Converter::Other(resampler) => {
                let samples: Vec<f32> = audio.iter().map(|sample| pcm::to_f32(*sample)).collect();
                resampler.push(&samples, &mut converted);
            }
        }
        converted
    }

    /// Samples of each second of audio that stay here until the next second, if the output begins with the audio itself.
    pub(super) fn held_samples(&self) -> usize {
        let Converter::Other(resampler) = &self.converter else { return SpeechUpsampler::HELD_SAMPLES };
        let mut resampler = resampler.renewed();
        resampler.push::<i16>(&[0.0; SPEECH_RATE_HZ as usize], &mut Vec::new());
        resampler.pending_samples() as usize
    }
}

/// Whole audio of the user at a server's rate, which was checked when the server granted it.
pub(super) fn at_rate(audio: &[i16], rate_hz: u32) -> Cow<'_, [i16]> {
    match rate_hz {
        SPEECH_RATE_HZ => return audio.into(),
        speech::TO_HZ => return SpeechUpsampler::convert_all(audio).into(),
        _ => {}
    }
    let samples: Vec<f32> = audio.iter().map(|sample| pcm::to_f32(*sample)).collect();
    let converted = wav::resample_all(&samples, SPEECH_RATE_HZ, rate_hz).unwrap_or_default();
    converted.into_iter().map(pcm::to_i16).collect()
}
