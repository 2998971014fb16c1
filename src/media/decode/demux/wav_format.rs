//! The format chunk of WAV files, which Matroska has, too (Microsoft, "Multiple channel audio data and WAVE files").

use symphonia::core::codecs::audio::well_known::*;

use super::blocks::{Format, Layout, pcm};
use crate::media::decode::fields::{le16, le32};

/// The fields of a format chunk.
pub(super) enum WavFormat {
    Blocks(Format),
    /// MPEG audio frames.
    MpegAudio,
    /// Name of a codec that is not supported.
    Unsupported(String),
}

/// Format tags of the registry.
const EXTENSIBLE: u16 = 0xfffe;

impl WavFormat {
    /// Parses a format; `None` at damage. Programs write 16, 18 or 40 bytes, and more for ADPCM.
    pub(super) fn parse(format: &[u8]) -> Option<Self> {
        let (mut tag, channels) = (le16(format, 0)?, le16(format, 2)?);
        let (rate_hz, block_bytes, bits) =
            (le32(format, 4)?, usize::from(le16(format, 12)?), le16(format, 14)?);
        if tag == EXTENSIBLE {
            // The first field of a GUID.
            tag = le16(format, 24)?;
        }
        let count = usize::from(channels);
        // Samples of 20 bits take three bytes.
        let sample_bytes = match block_bytes / count.max(1) {
            bytes if bytes * 8 >= usize::from(bits) && bytes * count == block_bytes && bytes <= 8 => bytes,
            _ => usize::from(bits).div_ceil(8),
        };
        let plain = Layout { bytes: sample_bytes * count, samples: 1 };
        let byte_per_sample = Layout { bytes: count, samples: 1 };
        let (codec, layout) = match tag {
            1 if sample_bytes == 1 => (Some(CODEC_ID_PCM_U8), plain),
            1 => (pcm(sample_bytes, false, false), plain),
            3 => (pcm(sample_bytes, false, true), plain),
            6 => (Some(CODEC_ID_PCM_ALAW), byte_per_sample),
            7 => (Some(CODEC_ID_PCM_MULAW), byte_per_sample),
            2 => (Some(CODEC_ID_ADPCM_MS), ms_adpcm(block_bytes, count)?),
            0x11 => (Some(CODEC_ID_ADPCM_IMA_WAV), ima_adpcm(block_bytes, count)?),
            0x50 | 0x55 => return Some(Self::MpegAudio),
            _ => (None, plain),
        };
        let Some(codec) = codec else { return Some(Self::Unsupported(name(tag, bits))) };
        (layout.bytes > 0).then_some(Self::Blocks(Format { codec, rate_hz, channels, layout }))
    }
}

/// A block has a header of seven bytes for each channel, which has two samples.
fn ms_adpcm(bytes: usize, channels: usize) -> Option<Layout> {
    let samples = 2 * bytes.checked_sub(7 * channels)? / channels.max(1) + 2;
    Some(Layout { bytes, samples: samples as u64 })
}

/// A block has a header of four bytes for each channel, which has one sample. Then four bytes of each channel alternate.
fn ima_adpcm(bytes: usize, channels: usize) -> Option<Layout> {
    let groups = bytes.checked_sub(4 * channels)? / (4 * channels).max(1);
    Some(Layout { bytes, samples: 8 * groups as u64 + 1 })
}

fn name(tag: u16, bits: u16) -> String {
    let name = match tag {
        1 => return format!("PCM with {bits} bits"),
        3 => return format!("floating point PCM with {bits} bits"),
        0x10 | 0x17 | 0x20 | 0x62 => "a rare ADPCM",
        0x14 | 0x40 | 0x45 | 0x64 | 0x65 | 0x85 | 0x140 => "G.726",
        0x22 => "TrueSpeech",
        0x31 | 0x32 => "GSM 6.10",
        0x42 => "G.723.1",
        0x28f | 0x83 => "G.729",
        0xff | 0x1600 | 0x1601 | 0x1602 | 0x1610 => "AAC in wav",
        0x160..=0x163 => "Windows Media Audio",
        0x2000 => "AC-3",
        0x2001 => "DTS",
        0x674f..=0x6771 => "Vorbis in wav",
        0x704f => "Opus in wav",
        0xf1ac => "FLAC in wav",
        _ => return format!("number 0x{tag:04x} of WAV"),
    };
    name.to_owned()
}
