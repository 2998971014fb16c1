//! Sample formats: int16 towards clients, base64 float32 little endian towards the model.
//!
//! An int16 sample survives the way to float32 and back bit for bit; a float outside ±1 is clipped, never wrapped,
//! and NaN becomes silence.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use dasp::sample::Sample as _;

/// Scale between int16 and float32 full scale; a power of two, so the division is exact.
const FULL_SCALE: f32 = 32_768.0;

/// Base64 text that is not audio.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcmError {
    /// Not base64 at all (wrong alphabet, padding or length).
    #[error("the audio is not valid base64: {0}")]
    Base64(String),
    /// Float32 samples are four bytes each (field notes §1.5: "buffer size must be a multiple of element size").
    #[error("{0} bytes of audio are not a whole number of float32 samples")]
    Ragged(usize),
}

/// An int16 sample as float32 in `-1.0 ..= 0.99997`.
#[must_use]
pub fn to_f32(sample: i16) -> f32 {
    sample.to_sample::<f32>()
}

/// The nearest int16 to a float32 sample; clips, and takes NaN for silence.
#[must_use]
pub fn to_i16(sample: f32) -> i16 {
    // dasp's own conversion truncates. Adding and taking away 1.5 · 2^23 rounds to the nearest, ties to even, as the
    // mantissa has no room for a fraction then: six times as fast as `round_ties_even` without SSE 4.1. `clamp` keeps NaN,
    // which `as` makes zero.
    const NO_ROOM_FOR_A_FRACTION: f32 = 12_582_912.0;
    let scaled = (sample * FULL_SCALE).clamp(-FULL_SCALE, FULL_SCALE - 1.0);
    ((scaled + NO_ROOM_FOR_A_FRACTION) - NO_ROOM_FOR_A_FRACTION) as i16
}

/// Appends the samples to `out` as base64 of raw little-endian float32, without an intermediate buffer of the whole.
pub fn push_base64_f32(samples: &[i16], out: &mut String) {
    // 768 samples are 3072 bytes: a whole number of base64's three-byte groups, so blocks join without padding.
    const BLOCK_SAMPLES: usize = 768;
    let mut bytes = [0u8; BLOCK_SAMPLES * 4];
    out.reserve(base64_f32_len(samples.len()));
    for block in samples.chunks(BLOCK_SAMPLES) {
        for (four, sample) in bytes.chunks_exact_mut(4).zip(block) {
            four.copy_from_slice(&to_f32(*sample).to_le_bytes());
        }
        STANDARD.encode_string(&bytes[..block.len() * 4], out);
    }
}

/// Length in characters of the base64 of `samples` float32 samples.
#[must_use]
pub const fn base64_f32_len(samples: usize) -> usize {
    (samples * 4).div_ceil(3) * 4
}

/// Decodes base64 of raw little-endian float32 and appends it to `out`; nothing is appended on an error.
///
/// # Errors
/// [`PcmError::Base64`] for text that is not base64, [`PcmError::Ragged`] for a byte count that is no multiple of 4.
pub fn pull_base64_f32(text: &str, out: &mut Vec<f32>) -> Result<(), PcmError> {
    let bytes = STANDARD.decode(text).map_err(|error| PcmError::Base64(error.to_string()))?;
    if bytes.len() % 4 != 0 {
        return Err(PcmError::Ragged(bytes.len()));
    }
    out.extend(bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])));
    Ok(())
}

/// Appends float32 samples to `out` as little-endian int16 bytes, rounded and clipped.
pub fn push_s16le(samples: &[f32], out: &mut Vec<u8>) {
    out.reserve(samples.len() * 2);
    for sample in samples {
        out.extend_from_slice(&to_i16(*sample).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_int16_survives_the_round_trip() {
        for sample in i16::MIN..=i16::MAX {
            assert_eq!(to_i16(to_f32(sample)), sample);
        }
    }

    #[test]
    fn halves_round_to_even() {
        for (halves, rounded) in
            [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (65_533, 32_766), (65_535, 32_767)]
        {
            assert_eq!(to_i16(halves as f32 / 65_536.0), rounded, "{halves}/2");
        }
    }

    #[test]
    fn loud_floats_clip_and_nan_is_silence() {
        assert_eq!(to_i16(1.0), i16::MAX);
        assert_eq!(to_i16(7.5), i16::MAX);
        assert_eq!(to_i16(-1.0), i16::MIN);
        assert_eq!(to_i16(f32::NEG_INFINITY), i16::MIN);
        assert_eq!(to_i16(f32::NAN), 0);
        assert_eq!(to_i16(0.6 / 32_768.0), 1, "rounds to nearest, does not truncate");
    }

    #[test]
    fn bad_text_is_refused_and_appends_nothing() {
        let mut out = vec![0.5];
        assert!(matches!(pull_base64_f32("####", &mut out), Err(PcmError::Base64(_))));
        assert_eq!(pull_base64_f32("AAAA", &mut out), Err(PcmError::Ragged(3)));
        assert_eq!(out, [0.5]);
    }

    proptest! {
        #[test]
        fn base64_round_trips_any_length(samples in prop::collection::vec(any::<i16>(), 0..3000)) {
            let mut text = String::new();
            push_base64_f32(&samples, &mut text);
            prop_assert_eq!(text.len(), base64_f32_len(samples.len()));
            let mut back = Vec::new();
            pull_base64_f32(&text, &mut back).unwrap();
            let back: Vec<i16> = back.into_iter().map(to_i16).collect();
            prop_assert_eq!(back, samples);
        }
    }
}
