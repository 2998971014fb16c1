//! Sample conversions: int16 towards clients, base64 of little-endian float32 towards the model.
//!
//! int16 to float32 and back is lossless. Floats outside ±1 are clipped, never wrapped, and NaN becomes silence.

use base64::{
    DecodeError, DecodeSliceError, Engine as _,
    engine::{DecodePaddingMode, GeneralPurposeConfig},
};
use dasp::sample::Sample as _;
use fearless_simd::{Level, Simd, dispatch};

/// SIMD base64 decoder.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static BASE64: std::sync::LazyLock<base64::engine::simd::Simd> =
    std::sync::LazyLock::new(|| base64::engine::simd::Simd::standard(base64::engine::general_purpose::PAD));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
use base64::engine::general_purpose::STANDARD as BASE64;

/// Base64 with or without padding, as real clients send both.
const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
    .with_decode_padding_mode(DecodePaddingMode::Indifferent)
    .with_decode_allow_trailing_bits(true);
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
static LENIENT_BASE64: std::sync::LazyLock<base64::engine::simd::Simd> =
    std::sync::LazyLock::new(|| base64::engine::simd::Simd::standard(LENIENT));
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const LENIENT_BASE64: base64::engine::GeneralPurpose =
    base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);

/// Samples encoded at a time, on the stack: a whole number of base64's three-byte groups, so that blocks join
/// without padding.
const BLOCK_SAMPLES: usize = 768;

/// Scale between int16 and float32; a power of two, so the division is exact.
const FULL_SCALE: f32 = 32_768.0;

/// Audio text that cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PcmError {
    /// Invalid base64 (alphabet, padding or length).
    #[error("the audio is not valid base64: {0}")]
    Base64(String),
    /// Byte count that is no multiple of a sample's size (mappings/notes/minicpm-o.md#rejections: "buffer size must be
    /// a multiple of element size").
    #[error("{bytes} bytes of audio are not a whole number of {format} samples")]
    PartialSample {
        /// Bytes of the audio.
        bytes: usize,
        /// Format of a sample.
        format: &'static str,
    },
}

/// Converts an int16 sample to float32 in `-1.0 ..= 0.99997`.
pub fn to_f32(sample: i16) -> f32 {
    sample.to_sample::<f32>()
}

/// Converts a float32 sample to the nearest int16; clips, and turns NaN into silence.
#[inline(always)]
pub fn to_i16(sample: f32) -> i16 {
    // dasp's own conversion truncates. Adding 1.5 · 2^23 rounds to nearest, ties to even, because the mantissa
    // has no room left for a fraction. The integer then stands in the lowest bits. Unlike `round_ties_even`
    // and `as`, this vectorizes without SSE 4.1.
    const ROUNDING_OFFSET: f32 = 12_582_912.0;
    let finite = if sample.is_nan() { 0.0 } else { sample };
    let scaled = (finite * FULL_SCALE).clamp(-FULL_SCALE, FULL_SCALE - 1.0);
    (scaled + ROUNDING_OFFSET).to_bits() as i16
}

/// Appends bytes to `out` as base64, with padding.
pub fn encode_base64(bytes: &[u8], out: &mut String) {
    base64_simd::STANDARD.encode_append(bytes, out);
}

/// Decodes a client's base64, in either alphabet of RFC 4648 and with or without padding, and appends the bytes to `out`.
///
/// # Errors
/// The first mistake in the text. `out` may have some of the bytes before it.
pub fn decode_base64(text: &str, out: &mut Vec<u8>) -> Result<(), DecodeError> {
    let start = out.len();
    match LENIENT_BASE64.decode_vec(text, out) {
        // Only a text in the URL-safe alphabet is read twice.
        Err(_) if memchr::memchr2(b'-', b'_', text.as_bytes()).is_some() => {
            out.truncate(start);
            LENIENT_BASE64.decode_vec(text.replace('-', "+").replace('_', "/"), out)
        }
        decoded => decoded,
    }
}

/// Appends the samples to `out` as base64 of little-endian float32, without an intermediate buffer for the whole
/// audio.
pub fn encode_base64_f32(samples: &[i16], out: &mut String) {
    let mut bytes = [[0; 4]; BLOCK_SAMPLES];
    out.reserve(base64_f32_len(samples.len()));
    for block in samples.chunks(BLOCK_SAMPLES) {
        let bytes = &mut bytes[..block.len()];
        dispatch!(Level::new(), simd => convert_to_f32le(simd, block, bytes));
        encode_base64(bytes.as_flattened(), out);
    }
}

/// Converts int16 samples to little-endian float32.
#[inline(always)]
fn convert_to_f32le<S: Simd>(_: S, samples: &[i16], bytes: &mut [[u8; 4]]) {
    for (bytes, sample) in bytes.iter_mut().zip(samples) {
        *bytes = to_f32(*sample).to_le_bytes();
    }
}

/// Appends float32 samples to `out` as base64, little-endian.
pub fn encode_base64_samples(samples: &[f32], out: &mut String) {
    match cfg!(target_endian = "little") {
        true => encode_base64(bytemuck::cast_slice(samples), out),
        false => encode_base64(&f32le_bytes(samples), out),
    }
}

/// Appends the samples to `out` as base64 of little-endian int16.
pub fn encode_base64_s16(samples: &[i16], out: &mut String) {
    match cfg!(target_endian = "little") {
        true => encode_base64(bytemuck::cast_slice(samples), out),
        false => encode_base64(&s16le_bytes(samples), out),
    }
}

/// int16 samples as little-endian bytes.
pub fn s16le_bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// float32 samples as little-endian bytes.
pub fn f32le_bytes(samples: &[f32]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// Little-endian bytes as int16 samples. A part of a sample at the end is left out.
pub fn s16le_samples(bytes: &[u8]) -> Vec<i16> {
    bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}

/// Little-endian bytes as float32 samples. A part of a sample at the end is left out.
pub fn f32le_samples(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

/// Number of base64 characters for `samples` float32 samples.
pub const fn base64_f32_len(samples: usize) -> usize {
    (samples * 4).div_ceil(3) * 4
}

/// Decodes base64 of little-endian float32 and replaces what is in `out`, without filling memory first that was filled
/// before. Nothing is left in it after an error.
///
/// # Errors
/// [`PcmError::Base64`] for invalid base64, [`PcmError::PartialSample`] for a byte count that is no multiple of
/// 4.
pub fn decode_base64_f32(text: &str, out: &mut Vec<f32>) -> Result<(), PcmError> {
    // Room for the last group of three bytes, even if it is padding.
    out.resize((text.len().div_ceil(4) * 3).div_ceil(4), 0.0);
    let decoded = decode_into(text, out);
    out.truncate(decoded.as_ref().copied().unwrap_or(0));
    decoded.map(drop)
}

/// Decodes base64 of little-endian int16 and replaces what is in `out`. Nothing is left in it after an error.
///
/// # Errors
/// [`PcmError::Base64`] for invalid base64, [`PcmError::PartialSample`] for an odd number of bytes.
pub fn decode_base64_s16(text: &str, out: &mut Vec<f32>) -> Result<(), PcmError> {
    let mut split = None;
    decode_base64_s16_after(&mut split, text, out)?;
    if split.is_some() {
        let bytes = 2 * out.len() + 1;
        out.clear();
        return Err(PcmError::PartialSample { bytes, format: "int16" });
    }
    Ok(())
}

/// Like [`decode_base64_s16`], for audio whose messages may end in the middle of a sample: `split` is the first byte of that
/// sample.
///
/// # Errors
/// [`PcmError::Base64`] for invalid base64.
pub fn decode_base64_s16_after(
    split: &mut Option<u8>,
    text: &str,
    out: &mut Vec<f32>,
) -> Result<(), PcmError> {
    out.clear();
    let mut bytes: Vec<u8> = split.take().into_iter().collect();
    LENIENT_BASE64.decode_vec(text, &mut bytes).map_err(|error| PcmError::Base64(error.to_string()))?;
    let (samples, rest) = bytes.as_chunks::<2>();
    out.extend(samples.iter().map(|sample| to_f32(i16::from_le_bytes(*sample))));
    *split = rest.first().copied();
    Ok(())
}

/// Decodes base64 of little-endian float32; returns the number of samples.
fn decode_into(text: &str, samples: &mut [f32]) -> Result<usize, PcmError> {
    let decoded = BASE64.decode_slice(text, bytemuck::cast_slice_mut(samples));
    let bytes = decoded.map_err(|error| match error {
        DecodeSliceError::DecodeError(error) => PcmError::Base64(error.to_string()),
        DecodeSliceError::OutputSliceTooSmall => PcmError::Base64(error.to_string()),
    })?;
    if cfg!(target_endian = "big") {
        samples.iter_mut().for_each(|sample| *sample = f32::from_bits(sample.to_bits().swap_bytes()));
    }
    if bytes % 4 == 0 { Ok(bytes / 4) } else { Err(PcmError::PartialSample { bytes, format: "float32" }) }
}

/// Appends float32 samples to `out` as little-endian int16, rounded and clipped.
pub fn encode_s16le(samples: &[f32], out: &mut Vec<u8>) {
    let bytes = dispatch!(Level::new(), simd => convert_to_s16le(simd, samples)).into_flattened();
    if out.is_empty() { *out = bytes } else { out.extend(bytes) }
}

/// Converts float32 samples to little-endian int16.
#[inline(always)]
fn convert_to_s16le<S: Simd>(_: S, samples: &[f32]) -> Vec<[u8; 2]> {
    samples.iter().map(|sample| to_i16(*sample).to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_int16_round_trips_through_f32() {
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
    fn loud_samples_clip_and_nan_becomes_silence() {
        assert_eq!(to_i16(1.0), i16::MAX);
        assert_eq!(to_i16(7.5), i16::MAX);
        assert_eq!(to_i16(-1.0), i16::MIN);
        assert_eq!(to_i16(f32::NEG_INFINITY), i16::MIN);
        assert_eq!(to_i16(f32::NAN), 0);
        assert_eq!(to_i16(0.6 / 32_768.0), 1, "rounds to nearest, does not truncate");
    }

    #[test]
    fn any_number_of_samples_is_encoded_like_each_alone() {
        for count in 0..70 {
            let samples: Vec<f32> =
                (0..count).map(|at| [0.3, f32::NAN, -1.5][at % 3] / (at + 1) as f32).collect();
            let mut bytes = vec![7];
            encode_s16le(&samples, &mut bytes);
            let alone = samples.iter().flat_map(|sample| to_i16(*sample).to_le_bytes());
            assert!(bytes.iter().copied().eq([7].into_iter().chain(alone)), "{count} samples");
        }
    }

    #[test]
    fn invalid_base64_is_rejected_and_leaves_nothing() {
        for (invalid, error) in
            [("####", None), ("AAAA", Some(PcmError::PartialSample { bytes: 3, format: "float32" }))]
        {
            let mut out = vec![0.5; 9];
            let decoded = decode_base64_f32(invalid, &mut out).unwrap_err();
            assert!(matches!(decoded, PcmError::Base64(_)) || Some(decoded) == error, "{invalid}");
            assert!(out.is_empty(), "{invalid}: {out:?}");
        }
    }

    #[test]
    fn both_alphabets_are_decoded() {
        for text in ["-__-AAE=", "-__-AAE", "+//+AAE=", "+//+AAE", "+__-AAE="] {
            let mut bytes = vec![7];
            decode_base64(text, &mut bytes).unwrap();
            assert_eq!(bytes, [7, 0xfb, 0xff, 0xfe, 0, 1], "{text}");
        }
        for text in ["-__-A", "-__- ", "_=AA"] {
            assert!(decode_base64(text, &mut Vec::new()).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn lenient_base64_equals_the_engine_without_simd(
            text in prop_oneof!["[A-Za-z0-9+/]{0,300}={0,2}", "[A-Za-z0-9+/ =]{0,80}"],
        ) {
            let plain = base64::engine::GeneralPurpose::new(&base64::alphabet::STANDARD, LENIENT);
            let mut decoded = Vec::new();
            let result = decode_base64(&text, &mut decoded);
            prop_assert_eq!(result.is_ok(), plain.decode(&text).is_ok());
            if let Ok(expected) = plain.decode(&text) {
                prop_assert_eq!(decoded, expected);
            }
        }

        #[test]
        fn base64_round_trips_any_length(samples in prop::collection::vec(any::<i16>(), 0..3000)) {
            let mut text = String::new();
            encode_base64_f32(&samples, &mut text);
            prop_assert_eq!(text.len(), base64_f32_len(samples.len()));
            let mut back = Vec::new();
            decode_base64_f32(&text, &mut back).unwrap();
            let back: Vec<i16> = back.into_iter().map(to_i16).collect();
            prop_assert_eq!(back, samples);
        }
    }
}
