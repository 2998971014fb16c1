//! Encodings of audio in client messages: int16, float32, G.711 μ-law and A-law (ITU-T G.711, tables 1 and 2), Opus, and files as
//! streams.
//!
//! The first four encode every sample on its own. Opus packets belong to [`super::opus`], and files to [`super::encode`].

use fearless_simd::{Level, Simd, dispatch};
use serde::Deserialize;

use super::pcm;

/// Encoding of audio.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Signed 16-bit little endian.
    #[default]
    S16le,
    /// 32-bit float little endian, full scale at 1.
    F32le,
    /// G.711 μ-law, eight bits.
    Mulaw,
    /// G.711 A-law, eight bits.
    Alaw,
    /// Opus, one packet in a message. Its samples are int16 before they are encoded.
    Opus,
    /// MP3 frames. To clients only, as the following.
    Mp3,
    /// Opus in Ogg.
    OggOpus,
    /// A WAV file of int16, whose header comes once.
    Wav,
}

impl Encoding {
    /// Every encoding with its name in mapping files.
    pub const ALL: [(&'static str, Self); 8] = [
        ("s16le", Self::S16le),
        ("f32le", Self::F32le),
        ("mulaw", Self::Mulaw),
        ("alaw", Self::Alaw),
        ("opus", Self::Opus),
        ("mp3", Self::Mp3),
        ("ogg_opus", Self::OggOpus),
        ("wav", Self::Wav),
    ];

    /// Largest size of a sample in any encoding.
    pub const MAX_BYTES_PER_SAMPLE: usize = 4;

    /// Finds the encoding with this name in mapping files.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, encoding)| *encoding)
    }

    /// Human-readable name.
    pub const fn description(self) -> &'static str {
        match self {
            Self::S16le => "int16 PCM",
            Self::F32le => "float32 PCM",
            Self::Mulaw => "G.711 μ-law",
            Self::Alaw => "G.711 A-law",
            Self::Opus => "Opus packets",
            Self::Mp3 => "MP3",
            Self::OggOpus => "Opus in Ogg",
            Self::Wav => "a WAV file",
        }
    }

    /// True for a file format, which only clients receive. Its samples are int16 before they are encoded.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Mp3 | Self::OggOpus | Self::Wav)
    }

    /// Size of a sample.
    pub const fn bytes_per_sample(self) -> usize {
        match self {
            Self::S16le | Self::Opus | Self::Mp3 | Self::OggOpus | Self::Wav => 2,
            Self::F32le => 4,
            Self::Mulaw | Self::Alaw => 1,
        }
    }

    /// Decodes the first sample; silence if there are too few bytes for one.
    pub fn decode_first(self, bytes: &[u8]) -> i16 {
        match (self, bytes) {
            (Self::S16le | Self::Opus | Self::Mp3 | Self::OggOpus | Self::Wav, [a, b, ..]) => {
                i16::from_le_bytes([*a, *b])
            }
            (Self::F32le, [a, b, c, d, ..]) => pcm::to_i16(f32::from_le_bytes([*a, *b, *c, *d])),
            (Self::Mulaw, [code, ..]) => from_mulaw(*code),
            (Self::Alaw, [code, ..]) => from_alaw(*code),
            _ => 0,
        }
    }

    /// Decodes the first sample of each group of `group_bytes` bytes to float32, until `out` is full.
    pub(super) fn decode_first_channel(self, groups: &[u8], group_bytes: usize, out: &mut [f32]) {
        match (self, group_bytes) {
            // Fast path for mono int16, which nearly every client sends.
            (Self::S16le, 2) => {
                dispatch!(Level::new(), simd => decode_s16le(simd, groups.as_chunks().0, out));
            }
            _ => {
                for (out, group) in out.iter_mut().zip(groups.chunks_exact(group_bytes)) {
                    *out = pcm::to_f32(self.decode_first(group));
                }
            }
        }
    }

    /// Decodes the first sample of each group of `group_bytes` bytes, and appends them to `out`.
    pub(super) fn append_first_channel(self, groups: &[u8], group_bytes: usize, out: &mut Vec<i16>) {
        match (self, group_bytes) {
            (Self::S16le, 2) => {
                dispatch!(Level::new(), simd => append_s16le(simd, groups.as_chunks().0, out));
            }
            (Self::F32le, 4) => {
                dispatch!(Level::new(), simd => append_f32le(simd, groups.as_chunks().0, out));
            }
            _ => out.extend(groups.chunks_exact(group_bytes).map(|group| self.decode_first(group))),
        }
    }

    /// Decodes whole samples to int16. A part of a sample at the end is left out.
    pub fn decode_all(self, bytes: &[u8]) -> Vec<i16> {
        bytes.chunks_exact(self.bytes_per_sample()).map(|sample| self.decode_first(sample)).collect()
    }

    /// Encodes float32 samples, rounded and clipped, and appends them to `out`.
    pub fn encode(self, samples: &[f32], out: &mut Vec<u8>) {
        match self {
            Self::S16le | Self::Opus | Self::Mp3 | Self::OggOpus | Self::Wav => {
                pcm::encode_s16le(samples, out);
            }
            Self::F32le => out.extend(samples.iter().flat_map(|sample| sample.to_le_bytes())),
            Self::Mulaw => out.extend(samples.iter().map(|sample| to_mulaw(pcm::to_i16(*sample)))),
            Self::Alaw => out.extend(samples.iter().map(|sample| to_alaw(pcm::to_i16(*sample)))),
        }
    }
}

/// Decodes int16, in a loop that the compiler turns into the vector instructions of the given level.
#[inline(always)]
fn decode_s16le<S: Simd>(_: S, bytes: &[[u8; 2]], out: &mut [f32]) {
    for (out, two) in out.iter_mut().zip(bytes) {
        *out = pcm::to_f32(i16::from_le_bytes(*two));
    }
}

/// The same, to int16.
#[inline(always)]
fn append_s16le<S: Simd>(_: S, bytes: &[[u8; 2]], out: &mut Vec<i16>) {
    out.extend(bytes.iter().map(|two| i16::from_le_bytes(*two)));
}

/// Decodes float32 to int16, rounded and clipped.
#[inline(always)]
fn append_f32le<S: Simd>(_: S, bytes: &[[u8; 4]], out: &mut Vec<i16>) {
    out.extend(bytes.iter().map(|four| pcm::to_i16(f32::from_le_bytes(*four))));
}

/// Bias that μ-law adds to a 16-bit magnitude, so that every segment begins at a power of two.
const MULAW_BIAS: i32 = 0x84;
const MULAW_MAX_MAGNITUDE: i32 = 32_635;

/// Decodes μ-law to 16 bits: sign, three segment bits and four mantissa bits, all inverted.
fn from_mulaw(code: u8) -> i16 {
    let bits = !code;
    let mantissa = i32::from(bits & 0x0f) << 3;
    let magnitude = ((mantissa + MULAW_BIAS) << ((bits >> 4) & 7)) - MULAW_BIAS;
    apply_sign(magnitude, bits & 0x80 != 0)
}

fn to_mulaw(sample: i16) -> u8 {
    let magnitude = i32::from(sample).abs().min(MULAW_MAX_MAGNITUDE) + MULAW_BIAS;
    let segment = magnitude.ilog2() - 7;
    let mantissa = (magnitude >> (segment + 3)) & 0x0f;
    !(sign_bit(sample < 0) | (segment as u8) << 4 | mantissa as u8)
}

/// Decodes A-law to 16 bits: like μ-law, with a first segment twice as long and only every other bit inverted.
fn from_alaw(code: u8) -> i16 {
    let bits = code ^ 0x55;
    let mantissa = i32::from(bits & 0x0f) << 4;
    let magnitude = match (bits >> 4) & 7 {
        0 => mantissa + 8,
        segment => (mantissa + 0x108) << (segment - 1),
    };
    apply_sign(magnitude, bits & 0x80 == 0)
}

fn to_alaw(sample: i16) -> u8 {
    // Zero counts as positive; -1 is the first negative value.
    let magnitude = if sample < 0 { !i32::from(sample) } else { i32::from(sample) };
    let segment = if magnitude < 256 { 0 } else { magnitude.ilog2() - 7 };
    let mantissa = (magnitude >> (segment.max(1) + 3)) & 0x0f;
    (sign_bit(sample >= 0) | (segment as u8) << 4 | mantissa as u8) ^ 0x55
}

const fn sign_bit(set: bool) -> u8 {
    if set { 0x80 } else { 0 }
}

/// Applies the sign to a magnitude below 2^15.
const fn apply_sign(magnitude: i32, negative: bool) -> i16 {
    (if negative { -magnitude } else { magnitude }) as i16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Law = (Encoding, fn(i16) -> u8);

    const LAWS: [Law; 2] = [(Encoding::Mulaw, to_mulaw), (Encoding::Alaw, to_alaw)];

    #[test]
    fn g711_codes_decode_as_the_standard_tables() {
        // Decoder outputs of G.711 tables 2a and 1a at the ends and in the middle, scaled to 16 bits.
        for (code, sample) in
            [(0x00, -32_124), (0x80, 32_124), (0x7f, 0), (0xff, 0), (0xf0, 120), (0x9f, 8316)]
        {
            assert_eq!(from_mulaw(code), sample, "{code:#x}");
        }
        for (code, sample) in
            [(0x2a, -32_256), (0xaa, 32_256), (0x55, -8), (0xd5, 8), (0x85, 4224), (0xc5, 264)]
        {
            assert_eq!(from_alaw(code), sample, "{code:#x}");
        }
    }

    #[test]
    fn g711_codes_survive_decode_and_encode() {
        for (law, encode) in LAWS {
            for code in 0..=255u8 {
                let sample = law.decode_first(&[code]);
                let again = law.decode_first(&[encode(sample)]);
                assert_eq!(again, sample, "{law:?} {code:#x}");
            }
        }
    }

    #[test]
    fn g711_encoding_is_monotonic_and_within_half_a_step() {
        for (law, encode) in LAWS {
            let mut last = i16::MIN;
            for sample in i16::MIN..=i16::MAX {
                let decoded = law.decode_first(&[encode(sample)]);
                let error = i32::from(decoded).abs_diff(i32::from(sample));
                assert!(decoded >= last, "{law:?} {sample}");
                // Half a step: 1/32 of the segment, or 8 in the first one.
                assert!(error <= 8 + u32::from(sample.unsigned_abs()) / 30, "{law:?} {sample}: {decoded}");
                last = decoded;
            }
        }
    }

    #[test]
    fn short_input_is_silence_and_floats_clip() {
        assert_eq!(Encoding::S16le.decode_first(&[1]), 0);
        assert_eq!(Encoding::F32le.decode_first(&2.0f32.to_le_bytes()), i16::MAX);
        assert_eq!(Encoding::F32le.decode_first(&f32::NAN.to_le_bytes()), 0);
    }

    proptest! {
        #[test]
        fn groups_decode_as_their_first_samples(bytes: Vec<u8>, channels in 1usize..3, encoding in 0usize..4) {
            let encoding = [Encoding::S16le, Encoding::F32le, Encoding::Mulaw, Encoding::Alaw][encoding];
            let group_bytes = channels * encoding.bytes_per_sample();
            let mut out = vec![7];
            encoding.append_first_channel(&bytes, group_bytes, &mut out);
            let expected = bytes.chunks_exact(group_bytes).map(|group| encoding.decode_first(group));
            prop_assert_eq!(out, std::iter::once(7).chain(expected).collect::<Vec<_>>());
        }

        #[test]
        fn encoded_samples_decode_within_precision(sample in -1.0f32..1.0) {
            for (_, encoding) in Encoding::ALL {
                let mut bytes = Vec::new();
                encoding.encode(&[sample], &mut bytes);
                prop_assert_eq!(bytes.len(), encoding.bytes_per_sample());
                let decoded = f32::from(encoding.decode_first(&bytes)) / 32_768.0;
                prop_assert!((decoded - sample).abs() <= 0.001 + sample.abs() / 30.0, "{:?}", encoding);
            }
        }
    }
}
