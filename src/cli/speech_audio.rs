//! Received speech: int16 mono at the model's rate, in memory or encoded to a file as it comes.

use std::time::Duration;

use crate::audio::encode::{AudioFormat, Encoder};
use crate::audio::{MODEL_RATE_HZ, pcm::s16le_samples, wav};
use crate::media::id3::{self, Chapter};

use super::error::ClientError;
use super::output_file::{Destination, OutputFile};

/// Upper bound of audio in memory: three hours of speech, more than any answer has.
const AUDIO_MAX_BYTES: usize = 3 * 3600 * 2 * MODEL_RATE_HZ as usize;

/// Speech in memory: int16 little endian at [`MODEL_RATE_HZ`]. Messages may split samples.
#[derive(Debug, Default)]
pub(super) struct SpeechAudio {
    bytes: Vec<u8>,
}

impl SpeechAudio {
    /// Appends audio.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        if self.bytes.len() + bytes.len() > AUDIO_MAX_BYTES {
            return Err(ClientError::TooMuchAudio(AUDIO_MAX_BYTES));
        }
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    /// Duration of the audio.
    pub(super) fn duration(&self) -> Duration {
        duration_of(self.bytes.len() as u64 / 2)
    }

    /// Duration of what can be heard: windows of 20 ms whose level is above -50 dB of full scale.
    pub(super) fn audible_duration(&self) -> Duration {
        const WINDOW: usize = MODEL_RATE_HZ as usize / 50;
        const AUDIBLE_RMS: f64 = 100.0;
        let samples = s16le_samples(&self.bytes);
        let power = |window: &[i16]| window.iter().map(|sample| f64::from(*sample).powi(2)).sum::<f64>();
        let is_audible = |window: &&[i16]| power(window) > AUDIBLE_RMS.powi(2) * window.len() as f64;
        let audible: usize = samples.chunks(WINDOW).filter(is_audible).map(<[i16]>::len).sum();
        duration_of(audible as u64)
    }

    /// Encodes the audio.
    pub(super) fn encode(&self, format: AudioFormat) -> Result<Vec<u8>, ClientError> {
        let (mut encoder, mut file) = (encoder(format)?, Vec::new());
        encoder.push(&s16le_samples(&self.bytes), &mut file);
        encoder.finish(&mut file);
        Ok(file)
    }

    /// Converts the audio to a WAV file.
    pub(super) fn to_wav(&self) -> Vec<u8> {
        wav::write_s16(&s16le_samples(&self.bytes), MODEL_RATE_HZ)
    }
}

/// Speech on its way to a file.
pub(super) struct SpeechFile {
    out: OutputFile,
    format: AudioFormat,
    encoder: Encoder,
    /// First byte of a sample that a message has split.
    split: Vec<u8>,
    samples: u64,
    encoded: Vec<u8>,
    /// Title and chapters of an mp3 file with several chapters.
    contents: Option<(String, Vec<Chapter>)>,
    /// Number of chapters that have begun.
    chapters_begun: usize,
}

impl SpeechFile {
    /// Begins the file.
    pub(super) fn create(destination: &Destination, format: AudioFormat) -> Result<Self, ClientError> {
        let encoder = encoder(format)?;
        let out = OutputFile::create(destination)?;
        Ok(Self {
            out,
            format,
            encoder,
            split: Vec::new(),
            samples: 0,
            encoded: Vec::new(),
            contents: None,
            chapters_begun: 0,
        })
    }

    /// Announces the title and the chapters of the file, before any audio. Only mp3 files have them, if they are several.
    pub(super) fn announce(&mut self, title: &str, chapters: Vec<String>) -> Result<(), ClientError> {
        if self.format != AudioFormat::Mp3 || chapters.len() < 2 || !self.out.is_replaceable() {
            return Ok(());
        }
        let chapter = |title: String| Chapter { title, start_ms: 0, end_ms: 0 };
        let chapters: Vec<Chapter> = chapters.into_iter().map(chapter).collect();
        // Its times are known at the end.
        self.out.write(&id3::tag(title, &chapters))?;
        self.contents = Some((title.to_owned(), chapters));
        Ok(())
    }

    /// The next chapter begins.
    pub(super) fn begin_chapter(&mut self) {
        let now_ms = self.now_ms();
        let number = self.chapters_begun;
        self.chapters_begun += 1;
        let Some((_, chapters)) = &mut self.contents else { return };
        if let Some(last) = number.checked_sub(1).and_then(|last| chapters.get_mut(last)) {
            last.end_ms = now_ms;
        }
        if let Some(chapter) = chapters.get_mut(number) {
            (chapter.start_ms, chapter.end_ms) = (now_ms, now_ms);
        }
    }

    /// Appends silence.
    pub(super) fn push_silence(&mut self, length: Duration) -> Result<(), ClientError> {
        let samples = (length.as_secs_f64() * f64::from(MODEL_RATE_HZ)) as usize;
        self.push(&vec![0; samples * 2])
    }

    fn now_ms(&self) -> u32 {
        u32::try_from(self.duration().as_millis()).unwrap_or(u32::MAX)
    }

    /// Encodes audio and writes what is ready.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        self.split.extend_from_slice(bytes);
        let samples = s16le_samples(&self.split);
        self.split.drain(..samples.len() * 2);
        self.samples += samples.len() as u64;
        self.encoder.push(&samples, &mut self.encoded);
        self.write_encoded()
    }

    /// Duration of the audio so far.
    pub(super) fn duration(&self) -> Duration {
        duration_of(self.samples)
    }

    /// Completes the file.
    pub(super) fn finish(mut self) -> Result<(), ClientError> {
        self.encoder.finish(&mut self.encoded);
        self.write_encoded()?;
        let end_ms = self.now_ms();
        if let Some((title, mut chapters)) = self.contents.take() {
            if let Some(last) = chapters.last_mut() {
                last.end_ms = end_ms;
            }
            self.out.replace(0, &id3::tag(&title, &chapters))?;
        }
        if self.format == AudioFormat::Wav {
            // The header was written before the length was known.
            let data_bytes = u32::try_from(self.samples * 2).unwrap_or(u32::MAX);
            self.out.replace(4, &data_bytes.saturating_add(36).to_le_bytes())?;
            self.out.replace(40, &data_bytes.to_le_bytes())?;
        }
        self.out.finish()
    }

    fn write_encoded(&mut self) -> Result<(), ClientError> {
        let written = self.out.write(&self.encoded);
        self.encoded.clear();
        written
    }
}

fn encoder(format: AudioFormat) -> Result<Encoder, ClientError> {
    Encoder::new(format, MODEL_RATE_HZ).map_err(|error| ClientError::Usage(error.to_string()))
}

fn duration_of(samples: u64) -> Duration {
    Duration::from_secs_f64(samples as f64 / f64::from(MODEL_RATE_HZ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn silence_is_not_audible() {
        let mut speech = SpeechAudio::default();
        let samples = [[0_i16; 24_000], [3_000; 24_000], [20; 24_000]].concat();
        speech.push(&samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<_>>()).unwrap();
        assert_eq!((speech.duration().as_secs(), speech.audible_duration().as_millis()), (3, 1000));
    }

    #[test]
    fn wav_file_has_its_length_and_split_samples() {
        let path = std::env::temp_dir().join(format!("voxbridge-speech-{}.wav", std::process::id()));
        let mut file = SpeechFile::create(&Destination::of(&path), AudioFormat::Wav).unwrap();
        for part in [&[1, 0, 2][..], &[0, 3, 0], &[0; 48_000]] {
            file.push(part).unwrap();
        }
        assert_eq!(file.duration().as_millis(), 1000);
        file.finish().unwrap();
        let samples = [&[1, 2, 3][..], &[0; 24_000]].concat();
        assert_eq!(std::fs::read(&path).unwrap(), wav::write_s16(&samples, MODEL_RATE_HZ));
        std::fs::remove_file(path).unwrap();
    }
}
