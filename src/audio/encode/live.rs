//! A file format as a live stream: each speech is encoded as its audio leaves, and is whole when it ends.

use bytes::Bytes;

use super::{AudioFormat, Encoder};
use crate::{encoding::Encoding, format::FormatError, opus};

/// Encoder of one speech to a stream. Allocates its state with the first audio.
///
/// Each speech is a stream of its own, so that a client may decode it alone or behind the one before: MP3 frames follow each other,
/// and Ogg chains its streams (RFC 3533 §4). Only a WAV file begins once, with the first speech of its format.
#[derive(Debug)]
pub struct LiveEncoder {
    format: AudioFormat,
    rate_hz: u32,
    bit_rate: Option<u32>,
    /// `None` until the first audio, and after the end.
    encoder: Option<Encoder>,
}

impl LiveEncoder {
    /// An encoder for an encoding that is a file format; `None` for the others.
    ///
    /// # Errors
    /// [`FormatError`] for a rate that the format does not have. Opus is encoded at its next higher rate.
    pub fn new(encoding: Encoding, rate_hz: u32, bit_rate: Option<u32>) -> Result<Option<Self>, FormatError> {
        let (format, rate_hz) = match encoding {
            Encoding::Mp3 => (AudioFormat::Mp3, rate_hz),
            Encoding::OggOpus => (AudioFormat::Opus, opus::next_rate(rate_hz)),
            Encoding::Wav => (AudioFormat::Wav, rate_hz),
            _ => return Ok(None),
        };
        Encoder::check_rate(format, rate_hz)?;
        Ok(Some(Self { format, rate_hz, bit_rate, encoder: None }))
    }

    /// An encoder of the same format for another speech.
    #[must_use]
    pub const fn renewed(&self) -> Self {
        Self { format: self.format, rate_hz: self.rate_hz, bit_rate: self.bit_rate, encoder: None }
    }

    /// Sample rate of the stream, Hz.
    pub const fn rate_hz(&self) -> u32 {
        self.rate_hz
    }

    /// The client has the beginning of the file: a WAV header is not repeated.
    pub fn continue_file(&mut self) {
        if self.format == AudioFormat::Wav {
            self.format = AudioFormat::Pcm;
        }
    }

    /// Encodes little-endian int16. Returns what is ready, which may be nothing.
    pub fn encode(&mut self, s16le: &[u8]) -> Bytes {
        let samples: Vec<i16> = s16le.as_chunks().0.iter().map(|two| i16::from_le_bytes(*two)).collect();
        let mut out = Vec::new();
        if self.encoder.is_none() {
            // The rate was checked.
            self.encoder =
                Encoder::with_options(self.format, Encoding::S16le, self.rate_hz, self.bit_rate).ok();
        }
        if let Some(encoder) = &mut self.encoder {
            encoder.push(&samples, &mut out);
        }
        out.into()
    }

    /// Ends the stream: returns the rest of the audio, which the encoder holds back. Nothing without audio since the last end.
    pub fn finish(&mut self) -> Bytes {
        let mut out = Vec::new();
        if let Some(mut encoder) = self.encoder.take() {
            encoder.finish(&mut out);
        }
        out.into()
    }
}
