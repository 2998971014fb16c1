//! Encodes speech output to the formats of OpenAI's `POST /v1/audio/speech`, as a stream. Their tests are in
//! voxbridge's module `media`, which decodes them.
//!
//! Every format leaves as the audio comes: the first [`Encoder::push`] returns the file's header, and nothing that was
//! written changes later. The length is therefore unknown to the headers.

mod bits;
mod flac;
mod live;
mod mp3;
mod opus;
mod wav;

pub use self::{live::LiveEncoder, opus::OpusStream};
pub use super::format::UnsupportedFileRate;
use super::{encoding::Encoding, resample};

/// File format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum AudioFormat {
    /// MP3, OpenAI's default; at 96 kb/s by default.
    Mp3,
    /// Opus in Ogg; at about 48 kb/s by default.
    Opus,
    /// FLAC with 16 bits.
    Flac,
    /// RIFF WAVE; with int16 samples by default.
    Wav,
    /// Samples without a header; int16 by default.
    Pcm,
}

impl AudioFormat {
    /// All formats.
    pub const ALL: [Self; 5] = [Self::Mp3, Self::Opus, Self::Flac, Self::Wav, Self::Pcm];

    /// Name of the format in `response_format`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Mp3 => "mp3",
            Self::Opus => "opus",
            Self::Flac => "flac",
            Self::Wav => "wav",
            Self::Pcm => "pcm",
        }
    }

    /// Finds the format with this name in `response_format`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Value of the `Content-Type` header, as OpenAI and Macaw send it.
    pub const fn mime_type(self) -> &'static str {
        match self {
            Self::Mp3 => "audio/mpeg",
            Self::Opus => "audio/opus",
            Self::Flac => "audio/flac",
            Self::Wav => "audio/wav",
            Self::Pcm => "audio/pcm",
        }
    }

    /// The sample rates in Hz that the format is limited to, in ascending order; `None` if it takes any rate.
    pub const fn rates_hz(self) -> Option<&'static [u32]> {
        match self {
            Self::Mp3 => Some(mp3::RATES_HZ),
            Self::Opus => Some(&super::opus::RATES_HZ),
            Self::Flac | Self::Wav | Self::Pcm => None,
        }
    }
}

/// Encodes one mono answer.
pub struct Encoder {
    stream: Stream,
}

enum Stream {
    Mp3(Box<mp3::Mp3Stream>),
    Opus(Box<OpusStream>),
    Flac(flac::FlacStream),
    Samples(wav::SampleStream),
}

impl std::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}

impl Encoder {
    /// An encoder for audio at this rate. Every format takes 24 kHz, the model's rate.
    ///
    /// # Errors
    /// [`UnsupportedFileRate`] if the format cannot have this rate.
    pub fn new(format: AudioFormat, rate_hz: u32) -> Result<Self, UnsupportedFileRate> {
        Self::with_options(format, Encoding::S16le, rate_hz, None)
    }

    /// Like [`Encoder::new`]. The encoding of samples counts for `Wav` and `Pcm`; the bit rate, bit/s, for `Mp3` and `Opus`,
    /// which take the nearest that they have.
    ///
    /// # Errors
    /// As for [`Encoder::new`].
    pub fn with_options(
        format: AudioFormat,
        samples: Encoding,
        rate_hz: u32,
        bit_rate: Option<u32>,
    ) -> Result<Self, UnsupportedFileRate> {
        Self::check_rate(format, rate_hz)?;
        let unsupported = || rate_error(format, rate_hz);
        let stream = match format {
            AudioFormat::Mp3 => {
                Stream::Mp3(Box::new(mp3::Mp3Stream::new(rate_hz, bit_rate).ok_or_else(unsupported)?))
            }
            AudioFormat::Opus => {
                Stream::Opus(Box::new(OpusStream::new(rate_hz, 1, bit_rate).ok_or_else(unsupported)?))
            }
            AudioFormat::Flac => Stream::Flac(flac::FlacStream::new(rate_hz)),
            AudioFormat::Wav => Stream::Samples(wav::SampleStream::with_header(samples, rate_hz)),
            AudioFormat::Pcm => Stream::Samples(wav::SampleStream::bare(samples)),
        };
        Ok(Self { stream })
    }

    /// Checks that the format has this rate.
    ///
    /// # Errors
    /// [`UnsupportedFileRate`] if not.
    pub fn check_rate(format: AudioFormat, rate_hz: u32) -> Result<(), UnsupportedFileRate> {
        let is_known = format.rates_hz().is_none_or(|rates| rates.contains(&rate_hz));
        let is_valid = is_known && resample::check_rate(rate_hz).is_ok();
        if is_valid { Ok(()) } else { Err(rate_error(format, rate_hz)) }
    }

    /// Encodes samples and appends the bytes that are ready to `out`.
    pub fn push(&mut self, samples: &[i16], out: &mut Vec<u8>) {
        match &mut self.stream {
            Stream::Mp3(mp3) => mp3.push(samples, out),
            Stream::Opus(opus) => opus.push(samples, out),
            Stream::Flac(flac) => flac.push(samples, out),
            Stream::Samples(file) => file.push(samples, out),
        }
    }

    /// Ends the file: appends what is still pending. Call it once. A file without audio is complete too.
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        match &mut self.stream {
            Stream::Mp3(mp3) => mp3.finish(out),
            Stream::Opus(opus) => opus.finish(out),
            Stream::Flac(flac) => flac.finish(out),
            Stream::Samples(file) => file.push(&[], out),
        }
    }
}

fn rate_error(format: AudioFormat, actual: u32) -> UnsupportedFileRate {
    let rates = format.rates_hz().unwrap_or_default();
    let min = rates.first().copied().unwrap_or(*resample::SUPPORTED_HZ.start());
    let max = rates.last().copied().unwrap_or(*resample::SUPPORTED_HZ.end());
    UnsupportedFileRate { actual, min, max }
}
