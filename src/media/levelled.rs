//! A recording as the detector and the model should hear it: decoded, and quiet speech raised.

use std::mem::{replace, take};

use super::{MediaError, decode::Decoder};
use crate::audio::{SPEECH_RATE_HZ, recording_level::RecordingLevel};

/// Audio in one chunk at the end: half a second.
const CHUNK_SAMPLES: usize = SPEECH_RATE_HZ as usize / 2;

/// Decodes a file as [`Decoder`] does. Its chunks are 5 s behind, so that the gain of quiet speech is known.
pub struct LevelledDecoder {
    decoder: Decoder,
    level: RecordingLevel,
    /// Raised audio after the last of the decoder, and how it ended.
    rest: Vec<i16>,
    end: Option<MediaError>,
}

impl LevelledDecoder {
    /// The audio of this decoder from here on.
    pub fn new(decoder: Decoder) -> Self {
        Self { decoder, level: RecordingLevel::default(), rest: Vec::new(), end: None }
    }

    /// The next chunk, which may be empty; `None` at the end. As [`Decoder::next_chunk`], which is CPU work of some milliseconds.
    pub fn next_chunk(&mut self) -> Option<Result<Vec<i16>, MediaError>> {
        if self.rest.is_empty() && self.end.is_none() {
            match self.decoder.next_chunk() {
                Some(Ok(samples)) => {
                    let mut raised = Vec::with_capacity(samples.len());
                    self.level.push(&samples, &mut raised);
                    return Some(Ok(raised));
                }
                end => {
                    take(&mut self.level).finish(&mut self.rest);
                    self.end = end.and_then(Result::err);
                }
            }
        }
        if self.rest.is_empty() {
            return self.end.take().map(Err);
        }
        let later = self.rest.split_off(self.rest.len().min(CHUNK_SAMPLES));
        Some(Ok(replace(&mut self.rest, later)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{audio::wav, media::decode::DecodeLimits};

    fn chunks(file: Vec<u8>) -> (Vec<i16>, Option<MediaError>) {
        let mut decoder = LevelledDecoder::new(Decoder::open(file.into(), DecodeLimits::default()).unwrap());
        let (mut samples, mut problem) = (Vec::new(), None);
        while let Some(chunk) = decoder.next_chunk() {
            match chunk {
                Ok(chunk) if problem.is_none() && chunk.len() <= CHUNK_SAMPLES => samples.extend(chunk),
                Ok(chunk) => panic!("{} samples, after {problem:?}", chunk.len()),
                Err(error) => problem = Some(error),
            }
        }
        assert!(decoder.next_chunk().is_none());
        (samples, problem)
    }

    #[test]
    fn all_audio_comes_before_the_end_and_a_problem_comes_last() {
        for seconds in [0.3, 4.0, 12.34] {
            let loud: Vec<i16> =
                (0..(seconds * 16_000.0) as i32).map(|at| (at % 50 * 400 - 10_000) as i16).collect();
            let mut file = wav::write_s16(&loud, SPEECH_RATE_HZ);
            assert_eq!(chunks(file.clone()), (loud.clone(), None), "{seconds} s");
            if seconds > 1.0 {
                file.truncate(file.len() - 40_001);
                let (samples, problem) = chunks(file);
                assert!(loud.starts_with(&samples) && problem.is_some(), "{seconds} s: {problem:?}");
                assert!(samples.len() + 20_001 >= loud.len(), "{seconds} s: {}", samples.len());
            }
        }
    }
}
