//! The format of speech in an answer, and the words of APIs for it.

use crate::audio::{
    encode::{AudioFormat, Encoder, UnsupportedFileRate},
    encoding::Encoding,
};

/// Sample rate of speech in OpenAI's and Macaw's APIs, Hz.
pub(super) const OPENAI_RATE_HZ: u32 = 24_000;

/// How speech is delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Delivery {
    /// The bytes of a file.
    Bytes,
    /// Server-sent events with base64.
    Events,
    /// JSON with base64 and the times of characters.
    Timed(TimedForm),
}

/// Form of an answer with times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum TimedForm {
    /// A line of JSON for each piece of audio, and lines with the times at the end.
    Lines,
    /// One object.
    Object,
}

/// Format of speech in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SpeechFormat {
    pub(super) file: AudioFormat,
    /// Samples of `Wav` and `Pcm`.
    pub(super) samples: Encoding,
    pub(super) rate_hz: u32,
    /// Bit rate of `Mp3` and `Opus`, bit/s; `None` for the default.
    pub(super) bit_rate: Option<u32>,
}

impl SpeechFormat {
    /// A file at this rate, with int16 samples if it is not compressed.
    pub(super) const fn new(file: AudioFormat, rate_hz: u32) -> Self {
        Self { file, samples: Encoding::S16le, rate_hz, bit_rate: None }
    }

    /// Reads a word of ElevenLabs or Speechmatics, such as `mp3_44100_128`, `opus_48000_32`, `pcm_16000`, `wav_16000` or
    /// `ulaw_8000`.
    pub(super) fn of_word(word: &str) -> Option<Self> {
        let mut parts = word.split('_');
        let kind = parts.next()?;
        let rate_hz = parts.next()?.parse().ok()?;
        let kbps = parts.next().map(str::parse::<u32>);
        let (file, samples) = match kind {
            "mp3" => (AudioFormat::Mp3, Encoding::S16le),
            "opus" => (AudioFormat::Opus, Encoding::S16le),
            "wav" => (AudioFormat::Wav, Encoding::S16le),
            "pcm" => (AudioFormat::Pcm, Encoding::S16le),
            "ulaw" => (AudioFormat::Pcm, Encoding::Mulaw),
            "alaw" => (AudioFormat::Pcm, Encoding::Alaw),
            _ => return None,
        };
        let is_compressed = matches!(file, AudioFormat::Mp3 | AudioFormat::Opus);
        let bit_rate = match kbps {
            Some(Ok(kbps @ 1..=320)) if is_compressed => Some(kbps * 1000),
            None => None,
            Some(_) => return None,
        };
        let format = Self { file, samples, rate_hz, bit_rate };
        (parts.next().is_none() && format.check().is_ok()).then_some(format)
    }

    /// Checks that the file format has the rate.
    pub(super) fn check(&self) -> Result<(), UnsupportedFileRate> {
        Encoder::check_rate(self.file, self.rate_hz)
    }

    pub(super) fn encoder(&self) -> Result<Encoder, UnsupportedFileRate> {
        Encoder::with_options(self.file, self.samples, self.rate_hz, self.bit_rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_name_file_rate_and_bit_rate() {
        let mp3 = SpeechFormat { bit_rate: Some(128_000), ..SpeechFormat::new(AudioFormat::Mp3, 44_100) };
        assert_eq!(SpeechFormat::of_word("mp3_44100_128"), Some(mp3));
        let ulaw = SpeechFormat { samples: Encoding::Mulaw, ..SpeechFormat::new(AudioFormat::Pcm, 8_000) };
        assert_eq!(SpeechFormat::of_word("ulaw_8000"), Some(ulaw));
        assert_eq!(SpeechFormat::of_word("wav_16000"), Some(SpeechFormat::new(AudioFormat::Wav, 16_000)));
        for wrong in
            ["", "mp3", "mp3_9000_32", "pcm_16000_32", "aac_44100_64", "mp3_44100_128_1", "opus_48000_0"]
        {
            assert_eq!(SpeechFormat::of_word(wrong), None, "{wrong}");
        }
    }
}
