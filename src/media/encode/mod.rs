//! Encodes speech output to the formats of OpenAI's `POST /v1/audio/speech`, as a stream.
//!
//! Every format leaves as the audio comes: the first [`Encoder::push`] returns the file's header, and nothing that was
//! written changes later. The length is therefore unknown to the headers.

mod wav;

use super::MediaError;
use crate::audio::resample;
use crate::named_enum::named_enum;
use std::ops::RangeInclusive;

named_enum! {
    /// File format of an answer.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum AudioFormat {
        /// RIFF WAVE with int16 samples.
        Wav = "wav",
        /// int16 little endian samples without a header.
        Pcm = "pcm",
    }
}

impl AudioFormat {
    /// Finds the format with this name in `response_format`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Value of the `Content-Type` header, as OpenAI and Macaw send it.
    pub const fn mime_type(self) -> &'static str {
        match self {
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }

    /// Sample rates in Hz that the format can have, in ascending order.
    const fn rates_hz(self) -> Rates {
        match self {
            Self::Wav | Self::Pcm => Rates::Range(resample::SUPPORTED_HZ),
        }
    }
}

enum Rates {
    Range(RangeInclusive<u32>),
}

/// Encodes one mono answer.
pub struct Encoder {
    stream: Stream,
}

enum Stream {
    Pcm,
    Wav(wav::WavStream),
}

impl Encoder {
    /// An encoder for audio at this rate. Every format takes 24 kHz.
    ///
    /// # Errors
    /// [`MediaError::RateNotSupported`] if the format cannot have this rate.
    pub fn new(format: AudioFormat, rate_hz: u32) -> Result<Self, MediaError> {
        format.rates_hz().check(rate_hz)?;
        let stream = match format {
            AudioFormat::Pcm => Stream::Pcm,
            AudioFormat::Wav => Stream::Wav(wav::WavStream::new(rate_hz)),
        };
        Ok(Self { stream })
    }

    /// Encodes samples and appends the bytes that are ready to `out`.
    pub fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        match &mut self.stream {
            Stream::Pcm => push_s16le(samples, out),
            Stream::Wav(wav) => wav.push(samples, out),
        }
    }

    /// Ends the file: appends what is still pending. Without audio, the file is complete and empty.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match &mut self.stream {
            Stream::Pcm => {}
            Stream::Wav(wav) => wav.push(&[], out),
        }
    }
}

impl Rates {
    fn check(self, actual: u32) -> Result<(), MediaError> {
        let Self::Range(range) = self;
        let (min, max) = range.into_inner();
        if (min..=max).contains(&actual) {
            Ok(())
        } else {
            Err(MediaError::RateNotSupported { actual, min, max })
        }
    }
}

fn push_s16le(samples: &[i16], out: &mut Vec<u8>) {
    out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes()));
}
