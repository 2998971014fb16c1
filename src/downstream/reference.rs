//! A client's own voice sample: base64 of a WAV file or of raw PCM becomes what the model takes.

use std::time::Duration;

use base64::{Engine as _, alphabet, engine::general_purpose::STANDARD};

use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    error::{Error, ErrorKind},
    event::VoiceSample,
};

/// A clip longer than this adds nothing but weight: ten seconds are what voice cloning is trained on.
const LONGEST: Duration = Duration::from_secs(60);

/// Reads a sample: a WAV file of any rate, or else raw int16 mono at 16 kHz. Letters outside the alphabet are dropped
/// as Python's decoder does; only wrong padding is an error, and what is empty then counts as absent (field notes
/// macaw.md §1.5).
///
/// # Errors
/// [`ErrorKind::BadReference`] with what is wrong.
pub(super) fn read(text: &str) -> Result<Option<VoiceSample>, Error> {
    let bad = |detail: String| Error::new(ErrorKind::BadReference, detail);
    let clean: String = text.chars().filter(|letter| *letter == '=' || is_base64(*letter)).collect();
    let bytes = STANDARD.decode(clean).map_err(|_| bad("base64 in 'ref_audio'".to_owned()))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !bytes.starts_with(b"RIFF") {
        let samples = bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
        return Ok(Some(sample(&samples.collect::<Vec<_>>())));
    }
    from_wav(&bytes).map(Some).map_err(|problem| bad(format!("'ref_audio': {problem}")))
}

/// A WAV file as a voice sample.
///
/// # Errors
/// What is wrong with the file.
pub fn from_wav(bytes: &[u8]) -> Result<VoiceSample, String> {
    let (samples, rate_hz) = wav::read(bytes, LONGEST).map_err(|error| error.to_string())?;
    let samples = wav::resample_all(&samples, rate_hz, SPEECH_RATE_HZ).map_err(|error| error.to_string())?;
    Ok(sample(&samples.into_iter().map(pcm::to_i16).collect::<Vec<_>>()))
}

fn sample(samples: &[i16]) -> VoiceSample {
    let mut json = String::with_capacity(pcm::base64_f32_len(samples.len()) + 2);
    json.push('"');
    pcm::push_base64_f32(samples, &mut json);
    json.push('"');
    VoiceSample(json.into())
}

fn is_base64(letter: char) -> bool {
    alphabet::STANDARD.as_str().contains(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn junk_is_dropped_and_bad_padding_refused_as_on_the_real_server() {
        assert_eq!(read("###"), Ok(None), "golden c10p");
        let error = read("abc").unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::BadReference, "base64 in 'ref_audio'"));
    }

    #[test]
    fn a_wav_file_and_raw_samples_come_out_alike() {
        let samples: Vec<i16> = (0..1600).map(|at| at * 7 - 5000).collect();
        let raw: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let wav = wav::write_s16(&samples, SPEECH_RATE_HZ);
        let expected = Some(sample(&samples));
        assert_eq!(read(&STANDARD.encode(raw)).unwrap(), expected);
        assert_eq!(read(&STANDARD.encode(&wav)).unwrap(), expected);
        assert!(read(&STANDARD.encode(&wav[..20])).unwrap_err().detail.starts_with("'ref_audio': "));
    }
}
