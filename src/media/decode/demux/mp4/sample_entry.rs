//! Sample entries: the codecs of a track (ISO 14496-12 §12.2.3, QuickTime File Format "Sound sample descriptions").

use symphonia::core::codecs::audio::well_known::*;
use symphonia::core::codecs::audio::{AudioCodecId, CODEC_ID_NULL_AUDIO};

use super::boxes::{Mp4Box, boxes, find};
use crate::media::decode::demux::blocks::{Format, Layout, pcm};
use crate::media::decode::demux::entry::{
    aac_stream, alac_stream, codec_name, decoder_descriptor, opus_head,
};
use crate::media::decode::fields::{be16, be32, be64};
use crate::media::decode::packet::Stream;

/// A codec, and how its samples lie in chunks if their table does not say.
pub(super) struct SampleEntry {
    pub(super) stream: Stream,
    pub(super) layout: Option<Layout>,
    /// Samples that a decoder needs before it is right, packets.
    pub(super) pre_roll: u32,
}

/// Most entries of a track.
const ENTRIES_MAX: usize = 64;

/// The entries of a sample description.
pub(super) fn sample_entries(file: &[u8], description: Mp4Box) -> Vec<SampleEntry> {
    let entries = boxes(file, description.body_at + 8..description.end);
    entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| Sound::parse(file, entry))
        .map(|sound| sound.entry())
        .collect()
}

/// The fields that all codecs have.
struct Sound<'a> {
    file: &'a [u8],
    kind: [u8; 4],
    channels: u16,
    bits: u16,
    rate_hz: u32,
    /// Flags of PCM in version 2 and its bits.
    linear: Option<(u32, u32)>,
    /// Boxes inside.
    children: std::ops::Range<usize>,
}

impl<'a> Sound<'a> {
    fn parse(file: &'a [u8], entry: Mp4Box) -> Option<Self> {
        let body = entry.bytes(file);
        let version = be16(body, 8)?;
        let mut sound = Self {
            file,
            kind: entry.kind,
            channels: be16(body, 16)?,
            bits: be16(body, 18)?,
            rate_hz: be32(body, 24)? >> 16,
            linear: None,
            children: entry.body_at + 28..entry.end,
        };
        match version {
            1 => sound.children.start += 16,
            2 => {
                sound.rate_hz = f64::from_bits(be64(body, 32)?) as u32;
                sound.channels = be32(body, 40)?.try_into().ok()?;
                sound.linear = Some((be32(body, 52)?, be32(body, 48)?));
                sound.children.start += 36;
            }
            _ => {}
        }
        Some(sound)
    }

    fn entry(&self) -> SampleEntry {
        if let Some((codec, bytes, samples)) = self.blocks() {
            let layout = Layout { bytes: bytes * usize::from(self.channels), samples };
            let format = Format { codec, rate_hz: self.rate_hz, channels: self.channels, layout };
            let stream = Stream { params: format.params(), ..Stream::default() };
            return SampleEntry { stream, layout: (layout.bytes > 0).then_some(layout), pre_roll: 0 };
        }
        let stream = self.stream();
        // Layer III refers to earlier frames, Opus converges in 80 ms.
        let pre_roll = match stream.params.codec {
            CODEC_ID_MP3 => 10,
            CODEC_ID_OPUS => 4,
            CODEC_ID_ALAC | CODEC_ID_FLAC => 0,
            _ => 1,
        };
        SampleEntry { stream, layout: None, pre_roll }
    }

    fn child(&self, path: &[&[u8; 4]]) -> Option<Mp4Box> {
        find(self.file, self.children.clone(), path)
    }

    /// Codec, bytes and samples of a block with one channel.
    fn blocks(&self) -> Option<(AudioCodecId, usize, u64)> {
        let bytes = usize::from(self.bits).div_ceil(8);
        let is_little_endian =
            self.child(&[b"wave", b"enda"]).and_then(|enda| be16(self.file, enda.body_at)) == Some(1);
        let (codec, bytes) = match &self.kind {
            b"raw " | b"NONE" if bytes == 1 => (CODEC_ID_PCM_U8, 1),
            b"sowt" => (pcm(bytes, false, false)?, bytes),
            b"twos" | b"NONE" => (pcm(bytes, true, false)?, bytes),
            b"in24" => (pcm(3, !is_little_endian, false)?, 3),
            b"in32" => (pcm(4, !is_little_endian, false)?, 4),
            b"fl32" => (pcm(4, !is_little_endian, true)?, 4),
            b"fl64" => (pcm(8, !is_little_endian, true)?, 8),
            b"ulaw" => (CODEC_ID_PCM_MULAW, 1),
            b"alaw" => (CODEC_ID_PCM_ALAW, 1),
            b"ima4" => return Some((CODEC_ID_ADPCM_IMA_QT, 34, 64)),
            b"lpcm" => self.linear_pcm()?,
            b"ipcm" | b"fpcm" => self.iso_pcm()?,
            _ => return None,
        };
        Some((codec, bytes, 1))
    }

    fn linear_pcm(&self) -> Option<(AudioCodecId, usize)> {
        let (flags, bits) = self.linear?;
        let bytes = bits.div_ceil(8) as usize;
        let (is_float, is_big_endian, is_signed) = (flags & 1 == 1, flags & 2 == 2, flags & 4 == 4);
        let codec =
            if bytes == 1 && !is_signed { CODEC_ID_PCM_U8 } else { pcm(bytes, is_big_endian, is_float)? };
        Some((codec, bytes))
    }

    /// PCM of ISO 23003-5: a flag for little endian, and the bits.
    fn iso_pcm(&self) -> Option<(AudioCodecId, usize)> {
        let config = self.child(&[b"pcmC"])?.bytes(self.file);
        let (flags, bits) = (*config.get(4)?, *config.get(5)?);
        let bytes = usize::from(bits).div_ceil(8);
        Some((pcm(bytes, flags & 1 == 0, self.kind == *b"fpcm")?, bytes))
    }

    fn stream(&self) -> Stream {
        match &self.kind {
            b"mp4a" => self.mpeg4(),
            b".mp3" | b"ms\0\x55" => self.with(CODEC_ID_MP3, &[]),
            b"alac" => {
                let config = self.child(&[b"alac"]).or_else(|| self.child(&[b"wave", b"alac"]));
                alac_stream(
                    config.map_or(&[][..], |config| config.bytes(self.file).get(4..).unwrap_or_default()),
                    self.rate_hz,
                    self.channels,
                )
            }
            b"fLaC" => {
                let info = self.child(&[b"dfLa"]).and_then(|config| config.bytes(self.file).get(8..42));
                self.with(CODEC_ID_FLAC, info.unwrap_or_default())
            }
            b"Opus" => self.with(CODEC_ID_OPUS, &self.opus_header().unwrap_or_default()),
            kind => self.unsupported(codec_name(kind)),
        }
    }

    /// "Opus in ISOBMFF" §4.3.2: as in Ogg, but big endian.
    fn opus_header(&self) -> Option<Vec<u8>> {
        let config = self.child(&[b"dOps"])?.bytes(self.file);
        let mut head = opus_head(*config.get(1)?, be16(config, 2)?);
        head[12..16].copy_from_slice(&be32(config, 4)?.to_le_bytes());
        head[16..18].copy_from_slice(&be16(config, 8)?.to_le_bytes());
        head[18] = *config.get(10)?;
        head.extend_from_slice(config.get(11..).filter(|_| head[18] != 0).unwrap_or_default());
        Some(head)
    }

    fn mpeg4(&self) -> Stream {
        let descriptor = self.child(&[b"esds"]).or_else(|| self.child(&[b"wave", b"esds"]));
        let descriptor =
            descriptor.and_then(|esds| esds.versioned(self.file)).map(|(_, descriptor)| descriptor);
        match descriptor.and_then(decoder_descriptor) {
            Some((0x40 | 0x66..=0x68, config)) => aac_stream(config),
            Some((0x69 | 0x6b, _)) => self.with(CODEC_ID_MP3, &[]),
            Some((0xa5, _)) => self.unsupported("AC-3".to_owned()),
            Some((0xa6, _)) => self.unsupported("E-AC-3".to_owned()),
            Some((0xa9, _)) => self.unsupported("DTS".to_owned()),
            Some((0xe1, _)) => self.unsupported("QCELP".to_owned()),
            Some((number, _)) => self.unsupported(format!("number 0x{number:02x} of MPEG-4")),
            None => self.unsupported("MPEG-4 audio without a configuration".to_owned()),
        }
    }

    fn with(&self, codec: AudioCodecId, headers: &[u8]) -> Stream {
        Stream::of(codec, self.rate_hz, self.channels, headers)
    }

    fn unsupported(&self, name: String) -> Stream {
        Stream { unsupported: Some(name), ..self.with(CODEC_ID_NULL_AUDIO, &[]) }
    }
}
