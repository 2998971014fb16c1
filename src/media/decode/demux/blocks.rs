//! Blocks of one length in a row: PCM and ADPCM, as WAV, AIFF and CAF have them.

use bytes::Bytes;
use symphonia::core::audio::Channels;
use symphonia::core::codecs::audio::well_known::*;
use symphonia::core::codecs::audio::{AudioCodecId, AudioCodecParameters};
use symphonia::core::errors::Error;

use crate::media::decode::packet::{Demuxer, Event, Nanos, Packet, Stream, nanos};

/// How samples lie in blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::media::decode) struct Layout {
    /// Bytes and samples of a block, with all channels.
    pub(in crate::media::decode) bytes: usize,
    pub(in crate::media::decode) samples: u64,
}

/// A stream of blocks.
pub(in crate::media::decode) struct Format {
    pub(in crate::media::decode) codec: AudioCodecId,
    pub(in crate::media::decode) rate_hz: u32,
    pub(in crate::media::decode) channels: u16,
    pub(in crate::media::decode) layout: Layout,
}

/// Samples in a packet at most, as far as blocks are not longer.
const PACKET_SAMPLES: u64 = 4096;

impl Layout {
    /// Whole blocks in one packet.
    pub(in crate::media::decode) fn blocks_in_packet(self) -> usize {
        (PACKET_SAMPLES / self.samples.max(1)).max(1) as usize
    }
}

impl Format {
    pub(in crate::media::decode) fn params(&self) -> AudioCodecParameters {
        let mut params = AudioCodecParameters::new();
        params.for_codec(self.codec).with_sample_rate(self.rate_hz);
        params.with_channels(Channels::Discrete(self.channels));
        params.with_frames_per_block(self.layout.samples);
        // The buffer of PCM grows with the packets that come.
        if self.layout.samples > 1 {
            params.with_max_frames_per_packet(self.layout.samples * self.layout.blocks_in_packet() as u64);
        }
        params
    }

    /// Length of this many bytes.
    pub(in crate::media::decode) fn time_of(&self, bytes: u64) -> Nanos {
        let blocks = bytes / (self.layout.bytes.max(1) as u64);
        nanos(blocks.saturating_mul(self.layout.samples).min(i64::MAX as u64) as i64, self.rate_hz)
    }
}

/// Integers and floating point numbers of a length in bytes.
pub(in crate::media::decode) const fn pcm(
    bytes: usize,
    is_big_endian: bool,
    is_float: bool,
) -> Option<AudioCodecId> {
    Some(match (bytes, is_big_endian, is_float) {
        (1, _, false) => CODEC_ID_PCM_S8,
        (2, false, false) => CODEC_ID_PCM_S16LE,
        (2, true, false) => CODEC_ID_PCM_S16BE,
        (3, false, false) => CODEC_ID_PCM_S24LE,
        (3, true, false) => CODEC_ID_PCM_S24BE,
        (4, false, false) => CODEC_ID_PCM_S32LE,
        (4, true, false) => CODEC_ID_PCM_S32BE,
        (4, false, true) => CODEC_ID_PCM_F32LE,
        (4, true, true) => CODEC_ID_PCM_F32BE,
        (8, false, true) => CODEC_ID_PCM_F64LE,
        (8, true, true) => CODEC_ID_PCM_F64BE,
        _ => return None,
    })
}

/// Reads the blocks of one stretch of a file.
pub(in crate::media::decode) struct Blocks {
    stream: Option<Stream>,
    data: Bytes,
    layout: Layout,
    at: usize,
}

impl Blocks {
    pub(in crate::media::decode) fn new(stream: Stream, data: Bytes, layout: Layout) -> Self {
        Self { stream: Some(stream), data, layout, at: 0 }
    }

    /// A file whose codec is not supported, by its name.
    pub(in crate::media::decode) fn unsupported(name: String) -> Self {
        Self::new(Stream::unsupported(name), Bytes::new(), Layout { bytes: 1, samples: 1 })
    }
}

impl Demuxer for Blocks {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(stream) = self.stream.take() {
            return Ok(Some(Event::Stream(stream)));
        }
        let len = (self.layout.bytes * self.layout.blocks_in_packet()).min(self.data.len() - self.at);
        let len = len - len % self.layout.bytes;
        // A part of a block at the end of the file is no audio.
        if len == 0 {
            return Ok(None);
        }
        let data = self.data.slice(self.at..self.at + len);
        self.at += len;
        Ok(Some(Event::Packet(Packet {
            data,
            samples: (len / self.layout.bytes) as u64 * self.layout.samples,
            ..Packet::default()
        })))
    }
}
