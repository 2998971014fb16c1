//! Converts a client's voice sample, base64 of a WAV file or of raw PCM, for the upstream.

use std::{borrow::Cow, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::{
    audio::{
        SPEECH_RATE_HZ, pcm,
        wav::{self, WavError},
    },
    error::{Error, ErrorKind},
    spelling::relay::without_data_prefix,
    vocabulary::VoiceSample,
};

/// Longest useful clip. Voice cloning needs a few seconds; more only adds weight.
const MAX_DURATION: Duration = Duration::from_secs(30);
/// Bytes of raw int16 of this length.
const RAW_MAX_BYTES: usize = 2 * SPEECH_RATE_HZ as usize * MAX_DURATION.as_secs() as usize;
/// Bytes of a WAV file of this length at 48 kHz, stereo, float32, with room for other chunks. The header states the true
/// length; this bounds the decoding before the header can be read.
const WAV_MAX_BYTES: usize = 2 * 4 * 48_000 * MAX_DURATION.as_secs() as usize + 64 * 1024;
/// First letters of base64 of `RIFF`.
const RIFF_BASE64: &[u8] = b"UklGR";

/// Reads a sample: a WAV file of any rate, or raw int16 mono at 16 kHz. Like Python's decoder, it drops letters outside the
/// alphabet, and only wrong padding is an error. An empty result counts as absent (mappings/notes/macaw.md#errors).
///
/// # Errors
/// [`ErrorKind::BadReference`] with the mistake.
pub(crate) fn decode_voice_sample(text: &str) -> Result<Option<VoiceSample>, Error> {
    let bad = |detail: String| Error::new(ErrorKind::BadReference, detail);
    let clean: Vec<u8> = text.bytes().filter(|letter| IS_BASE64[usize::from(*letter)]).collect();
    check_length(&clean).map_err(|problem| bad(format!("'ref_audio': {problem}")))?;
    let bytes = STANDARD.decode(clean).map_err(|_| bad("base64 in 'ref_audio'".to_owned()))?;
    if bytes.is_empty() {
        return Ok(None);
    }
    if !bytes.starts_with(b"RIFF") {
        return Ok(Some(VoiceSample::new(pcm::s16le_samples(&bytes))));
    }
    voice_sample_from_wav(&bytes).map(Some).map_err(|problem| bad(format!("'ref_audio': {problem}")))
}

/// Rejects a sample that is too long by the length of its base64, before decoding.
fn check_length(base64: &[u8]) -> Result<(), String> {
    let padding = base64.iter().rev().take_while(|letter| **letter == b'=').count();
    let bytes = (base64.len() - padding) / 4 * 3 + (base64.len() - padding) % 4 * 3 / 4;
    if base64.starts_with(RIFF_BASE64) {
        let problem =
            || format!("a WAV file of {bytes} bytes is too large (expected at most {WAV_MAX_BYTES})");
        return if bytes > WAV_MAX_BYTES { Err(problem()) } else { Ok(()) };
    }
    if bytes > RAW_MAX_BYTES {
        let actual = Duration::from_secs_f64(bytes as f64 / f64::from(2 * SPEECH_RATE_HZ));
        return Err(WavError::TooLong { expected: MAX_DURATION, actual }.to_string());
    }
    Ok(())
}

/// A WAV file as a voice sample.
///
/// # Errors
/// The mistake in the file.
pub fn voice_sample_from_wav(bytes: &[u8]) -> Result<VoiceSample, String> {
    let (samples, rate_hz) = wav::read(bytes, MAX_DURATION).map_err(|error| error.to_string())?;
    if samples.is_empty() {
        return Err("the recording has no audio".to_owned());
    }
    let samples = wav::resample_all(&samples, rate_hz, SPEECH_RATE_HZ).map_err(|error| error.to_string())?;
    Ok(VoiceSample::new(samples.into_iter().map(pcm::to_i16).collect::<Vec<_>>()))
}

/// Converts a voice sample to base64 of raw float32 at 16 kHz. Anything but a WAV file counts as that already.
///
/// # Errors
/// The mistake in the file.
pub(crate) fn to_f32_base64(text: &str) -> Result<Cow<'_, str>, String> {
    let text = without_data_prefix(text);
    let Some(bytes) = wav_bytes(text)? else { return Ok(Cow::Borrowed(text)) };
    let mut base64 = String::new();
    pcm::encode_base64_f32(&voice_sample_from_wav(&bytes)?.samples, &mut base64);
    Ok(Cow::Owned(base64))
}

/// Converts a voice sample to base64 of a WAV file. Anything but a WAV file counts as raw float32 at 16 kHz. The result is
/// never a multiple of four bytes long, so that a server that expects raw samples rejects it instead of hearing noise.
///
/// # Errors
/// The mistake in the samples, or in the base64 of a file.
pub(crate) fn to_wav_base64(text: &str) -> Result<Cow<'_, str>, String> {
    let text = without_data_prefix(text);
    if let Some(bytes) = wav_bytes(text)? {
        return Ok(if bytes.len().is_multiple_of(4) {
            Cow::Owned(STANDARD.encode(wav::with_unaligned_length(bytes)))
        } else {
            Cow::Borrowed(text)
        });
    }
    let samples = to_voice_sample(text)?.samples;
    Ok(Cow::Owned(STANDARD.encode(wav::with_unaligned_length(wav::write_s16(&samples, SPEECH_RATE_HZ)))))
}

/// Reads a voice sample: a WAV file, or else raw float32 at 16 kHz.
///
/// # Errors
/// The mistake in the file or in the samples.
pub(crate) fn to_voice_sample(text: &str) -> Result<VoiceSample, String> {
    let text = without_data_prefix(text);
    if let Some(bytes) = wav_bytes(text)? {
        return voice_sample_from_wav(&bytes);
    }
    let mut samples = Vec::new();
    pcm::decode_base64_f32(text, &mut samples).map_err(|error| error.to_string())?;
    Ok(VoiceSample::new(samples.into_iter().map(pcm::to_i16).collect::<Vec<_>>()))
}

/// Decodes base64 of a WAV file; `None` for anything else. Letters outside the alphabet are dropped, as servers do.
fn wav_bytes(text: &str) -> Result<Option<Vec<u8>>, String> {
    if !text.as_bytes().starts_with(RIFF_BASE64) {
        return Ok(None);
    }
    let clean: Vec<u8> = text.bytes().filter(|letter| IS_BASE64[usize::from(*letter)]).collect();
    check_length(&clean)?;
    STANDARD.decode(clean).map(Some).map_err(|error| error.to_string())
}

/// Letters of base64 and its padding, by byte.
const IS_BASE64: [bool; 256] = {
    let mut is_base64 = [false; 256];
    let mut letter: u8 = 0;
    while letter < 128 {
        is_base64[letter as usize] = letter.is_ascii_alphanumeric() || matches!(letter, b'+' | b'/' | b'=');
        letter += 1;
    }
    is_base64
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_characters_are_dropped_and_bad_padding_is_rejected() {
        assert_eq!(decode_voice_sample("###"), Ok(None), "tests/golden/macaw/c10p_bad_ref_audio.json");
        let error = decode_voice_sample("abc").unwrap_err();
        assert_eq!((error.kind, error.detail.as_str()), (ErrorKind::BadReference, "base64 in 'ref_audio'"));
    }

    #[test]
    fn wav_and_raw_samples_give_the_same_voice() {
        let samples: Vec<i16> = (0..1600).map(|at| at * 7 - 5000).collect();
        let raw: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
        let wav = wav::write_s16(&samples, SPEECH_RATE_HZ);
        let expected = Some(VoiceSample::new(samples));
        assert_eq!(decode_voice_sample(&STANDARD.encode(raw)).unwrap(), expected);
        assert_eq!(decode_voice_sample(&STANDARD.encode(&wav)).unwrap(), expected);
        assert!(
            decode_voice_sample(&STANDARD.encode(&wav[..20]))
                .unwrap_err()
                .detail
                .starts_with("'ref_audio': ")
        );
    }

    #[test]
    fn recording_without_audio_is_no_voice() {
        let problem = voice_sample_from_wav(&wav::write_s16(&[], SPEECH_RATE_HZ)).map(drop);
        assert_eq!(problem, Err("the recording has no audio".to_owned()));
    }

    #[test]
    fn voice_samples_convert_between_wav_and_raw() {
        let samples: Vec<i16> = (0..1600).map(|at| at * 7 - 5000).collect();
        let raw_base64 = |samples: &[i16]| {
            let mut base64 = String::new();
            pcm::encode_base64_f32(samples, &mut base64);
            base64
        };
        let raw = raw_base64(&samples);
        for more in 0..2 {
            let samples: Vec<i16> = samples.iter().copied().chain((0..more).map(|_| 0)).collect();
            let file = STANDARD.encode(wav::write_s16(&samples, SPEECH_RATE_HZ));
            let expected = raw_base64(&samples);
            for text in [file.clone(), format!("data:audio/wav;base64,{file}"), format!("{file}\n")] {
                assert_eq!(to_f32_base64(&text).unwrap(), expected);
                let wav = STANDARD.decode(to_wav_base64(&text).unwrap().trim_end()).unwrap();
                assert!(!wav.len().is_multiple_of(4));
                assert_eq!(*voice_sample_from_wav(&wav).unwrap().samples, samples, "it sounds the same");
            }
        }
        for text in [raw.clone(), format!("data:audio/pcm;base64,{raw}")] {
            assert_eq!(to_f32_base64(&text).unwrap(), raw);
            let wav = STANDARD.decode(to_wav_base64(&text).unwrap().as_bytes()).unwrap();
            assert!(!wav.len().is_multiple_of(4));
            assert_eq!(*voice_sample_from_wav(&wav).unwrap().samples, samples);
        }
        assert!(to_wav_base64("UklGRgAAA").is_err() && to_f32_base64("UklGRgAAA").is_err());
    }

    #[test]
    fn long_voice_samples_are_rejected_in_either_format() {
        let seconds = |seconds: usize, more: usize| vec![7i16; seconds * SPEECH_RATE_HZ as usize + more];
        let raw = |samples: &[i16]| -> String {
            STANDARD.encode(samples.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<u8>>())
        };
        assert!(decode_voice_sample(&raw(&seconds(30, 0))).unwrap().is_some());
        for text in [
            raw(&seconds(30, 1)),
            raw(&seconds(60, 0)),
            STANDARD.encode(wav::write_s16(&seconds(31, 0), SPEECH_RATE_HZ)),
        ] {
            let error = decode_voice_sample(&text).unwrap_err();
            assert_eq!(error.kind, ErrorKind::BadReference);
            assert!(error.detail.contains("too long (expected at most 30.0s)"), "{}", error.detail);
        }
        let mut huge = STANDARD.encode(wav::write_s16(&[0], SPEECH_RATE_HZ));
        huge.extend(std::iter::repeat_n('A', WAV_MAX_BYTES / 3 * 4));
        assert!(decode_voice_sample(&huge).unwrap_err().detail.contains("too large"));
    }
}
