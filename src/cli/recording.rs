//! A recording as it is decoded, with its quiet speech raised, in any format that [`crate::media::decode`] reads.

use std::path::Path;
use std::time::Duration;

use bytes::Bytes;

use crate::audio::SPEECH_RATE_HZ;
use crate::media::MediaError;
use crate::media::decode::{DecodeLimits, Decoder};
use crate::media::levelled::LevelledDecoder;

use super::error::ClientError;
use super::files::input_name;
use super::read_input::{INPUT_MAX_BYTES, read_input};
use super::resume_file::checksum;

/// Samples of a 40 ms frame, as in the Macaw command line. A real server crashes on frames below 512 samples
/// (mappings/notes/macaw.md#audio-in).
pub(super) const FRAME_SAMPLES: usize = 640;

/// Longest recording: a day. Decoded audio is sent on at once.
const RECORDING_MAX: Duration = Duration::from_secs(24 * 3600);

/// A recording, decoded to int16 mono at 16 kHz as it is read.
pub(super) struct Recording {
    /// Name for messages.
    pub(super) name: String,
    /// Length according to the headers, which may leave it out.
    pub(super) expected_length: Option<Duration>,
    /// Which audio track it is, if there are several: its number, and how many there are.
    pub(super) track: Option<(usize, usize)>,
    /// The file, for its checksum.
    bytes: Bytes,
    decoder: Option<Box<LevelledDecoder>>,
    /// Decoded samples that were not returned as a frame yet.
    pending: Vec<i16>,
    returned_samples: u64,
}

impl Recording {
    /// Opens a file, or standard input for `-`.
    pub(super) async fn open(file: &Path) -> Result<Self, ClientError> {
        Self::decode(read_input(file, INPUT_MAX_BYTES).await?, &input_name(file))
    }

    /// Opens a file in memory.
    pub(super) fn decode(bytes: impl Into<Bytes>, name: &str) -> Result<Self, ClientError> {
        let limits = DecodeLimits { decoded_max: RECORDING_MAX, ..DecodeLimits::default() };
        let bytes = bytes.into();
        let decoder = Decoder::open(bytes.clone(), limits).map_err(|reason| invalid(name, reason))?;
        Ok(Self {
            name: name.to_owned(),
            expected_length: decoder.info().duration,
            track: decoder.info().track,
            bytes,
            decoder: Some(Box::new(LevelledDecoder::new(decoder))),
            pending: Vec::new(),
            returned_samples: 0,
        })
    }

    /// Length of the audio returned so far.
    pub(super) fn position(&self) -> Duration {
        Duration::from_millis(self.returned_samples * 1000 / u64::from(SPEECH_RATE_HZ))
    }

    /// SHA-256 of the file, in hexadecimal digits.
    pub(super) async fn checksum(&self) -> String {
        let bytes = self.bytes.clone();
        tokio::task::spawn_blocking(move || checksum(&bytes)).await.unwrap_or_default()
    }

    /// Skips the audio before this position.
    ///
    /// # Errors
    /// As [`Self::next_chunk`].
    pub(super) async fn skip_to(&mut self, position_ms: u64) -> Result<(), ClientError> {
        while self.next_chunk_before(Some(position_ms)).await?.is_some() {}
        Ok(())
    }

    /// As [`Self::next_chunk`], but `None` also at this position.
    pub(super) async fn next_chunk_before(
        &mut self,
        end_ms: Option<u64>,
    ) -> Result<Option<Vec<i16>>, ClientError> {
        let end_samples = end_ms.map_or(u64::MAX, |ms| ms.saturating_mul(u64::from(SPEECH_RATE_HZ) / 1000));
        let left = usize::try_from(end_samples.saturating_sub(self.returned_samples)).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        let Some(mut chunk) = self.next_chunk().await? else { return Ok(None) };
        if chunk.len() > left {
            self.pending = chunk.split_off(left);
            self.returned_samples -= self.pending.len() as u64;
        }
        Ok(Some(chunk))
    }

    /// The next half second or less; `None` at the end.
    ///
    /// # Errors
    /// The file is damaged. The audio before the damage was returned.
    pub(super) async fn next_chunk(&mut self) -> Result<Option<Vec<i16>>, ClientError> {
        let chunk = if self.pending.is_empty() {
            self.decode_chunk().await?
        } else {
            std::mem::take(&mut self.pending)
        };
        self.returned_samples += chunk.len() as u64;
        Ok((!chunk.is_empty()).then_some(chunk))
    }

    /// The next 40 ms, the last ones padded with silence; `None` at the end.
    ///
    /// # Errors
    /// As [`Self::next_chunk`].
    pub(super) async fn next_frame(&mut self) -> Result<Option<[i16; FRAME_SAMPLES]>, ClientError> {
        while self.pending.len() < FRAME_SAMPLES {
            let chunk = self.decode_chunk().await?;
            if chunk.is_empty() {
                break;
            }
            self.pending.extend(chunk);
        }
        let len = self.pending.len().min(FRAME_SAMPLES);
        let mut frame = [0; FRAME_SAMPLES];
        frame[..len].copy_from_slice(&self.pending[..len]);
        self.pending.drain(..len);
        self.returned_samples += len as u64;
        Ok((len > 0).then_some(frame))
    }

    /// The whole recording, for a question of some seconds.
    ///
    /// # Errors
    /// As [`Self::next_chunk`].
    pub(super) async fn read_all(mut self) -> Result<Vec<i16>, ClientError> {
        let mut samples = Vec::new();
        while let Some(chunk) = self.next_chunk().await? {
            samples.extend(chunk);
        }
        Ok(samples)
    }

    /// Decodes half a second outside of the asynchronous threads; empty at the end.
    async fn decode_chunk(&mut self) -> Result<Vec<i16>, ClientError> {
        let Some(mut decoder) = self.decoder.take() else { return Ok(Vec::new()) };
        let decoded = tokio::task::spawn_blocking(move || (next_audio(&mut decoder), decoder)).await;
        let Ok((chunk, decoder)) = decoded else { return Ok(Vec::new()) };
        match chunk {
            Some(Ok(chunk)) => {
                self.decoder = Some(decoder);
                Ok(chunk)
            }
            Some(Err(reason)) => Err(invalid(&self.name, reason)),
            None => Ok(Vec::new()),
        }
    }
}

/// The next chunk with audio.
fn next_audio(decoder: &mut LevelledDecoder) -> Option<Result<Vec<i16>, MediaError>> {
    std::iter::from_fn(|| decoder.next_chunk()).find(|chunk| !matches!(chunk, Ok(audio) if audio.is_empty()))
}

fn invalid(name: &str, reason: MediaError) -> ClientError {
    ClientError::InvalidAudio { source_name: name.to_owned(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::audio::wav;

    #[tokio::test]
    async fn frames_are_padded_and_chunks_are_not() {
        let file = wav::write_s16(&[7; 9000], 16_000);
        let mut recording = Recording::decode(file.clone(), "x.wav").unwrap();
        let mut frames = Vec::new();
        while let Some(frame) = recording.next_frame().await.unwrap() {
            frames.extend(frame);
        }
        assert_eq!(frames.len(), 9000_usize.div_ceil(FRAME_SAMPLES) * FRAME_SAMPLES);
        assert!(
            frames[..9000].iter().all(|sample| *sample == 7)
                && frames[9000..].iter().all(|sample| *sample == 0)
        );
        assert_eq!(recording.position(), Duration::from_micros(562_000));
        assert_eq!(Recording::decode(file, "x.wav").unwrap().read_all().await.unwrap(), [7; 9000]);
    }

    #[tokio::test]
    async fn spans_of_a_recording_are_exact_to_the_sample() {
        let samples: Vec<i16> = (0..20_000).map(|at| (at % 1000) as i16).collect();
        let mut recording = Recording::decode(wav::write_s16(&samples, 16_000), "x.wav").unwrap();
        recording.skip_to(123).await.unwrap();
        let mut span = Vec::new();
        while let Some(chunk) = recording.next_chunk_before(Some(901)).await.unwrap() {
            span.extend(chunk);
        }
        assert_eq!(span, samples[123 * 16..901 * 16]);
        recording.skip_to(901).await.unwrap();
        assert_eq!(recording.read_all().await.unwrap(), samples[901 * 16..]);
    }

    #[tokio::test]
    async fn damage_is_reported_with_name_and_position_after_the_audio() {
        let mut file = wav::write_s16(&[7; 32_000], 16_000);
        file.truncate(44 + 48_000);
        let mut recording = Recording::decode(file, "cut.wav").unwrap();
        let mut samples = 0;
        let error = loop {
            match recording.next_chunk().await {
                Ok(chunk) => samples += chunk.expect("the damage is not reported").len(),
                Err(error) => break error,
            }
        };
        assert_eq!((samples, error.exit_code()), (24_000, 65));
        assert!(
            error.to_string().starts_with("cut.wav: the wav file is damaged or cut off after 1.50 s"),
            "{error}"
        );
        let error = Recording::decode(&b"\x89PNG not a recording"[..], "x.png").err().unwrap();
        assert!(error.to_string().starts_with("x.png: the file is not audio in a known format"), "{error}");
    }
}
