//! Core Audio Format (Apple, "Core Audio Format Specification").

use bytes::Bytes;
use symphonia::core::codecs::audio::well_known::*;
use symphonia::core::errors::Error;

use super::blocks::{Blocks, Format, Layout, pcm};
use super::entry;
use crate::media::decode::fields::{be32, be64};
use crate::media::decode::packet::{Demuxer, Event, Nanos, Packet, Stream, nanos};

/// Opens a file.
pub(in crate::media::decode) fn open(file: &Bytes) -> Result<Box<dyn Demuxer>, Error> {
    let chunks = Chunks::find(file)
        .ok_or(Error::DecodeError("the chunk of audio or that of its format is missing"))?;
    let description =
        Description::parse(chunks.description).ok_or(Error::DecodeError("the format is damaged"))?;
    if let Some(format) = description.blocks() {
        let stream = Stream {
            params: format.params(),
            duration: Some(format.time_of(chunks.claimed)),
            is_duration_certain: true,
            ..Stream::default()
        };
        return Ok(Box::new(Blocks::new(stream, chunks.data, format.layout)));
    }
    let table = chunks.table.unwrap_or_default();
    Ok(Box::new(CafPackets {
        stream: Some(description.stream(chunks.cookie, table)),
        rate_hz: description.rate_hz,
        packet_bytes: description.packet_bytes as usize,
        packet_samples: description.packet_samples.into(),
        priming: be32(table, 16).unwrap_or(0).into(),
        remainder: be32(table, 20).unwrap_or(0).into(),
        numbers: table.get(24..).map(|numbers| chunks.file.slice_ref(numbers)).unwrap_or_default(),
        left: be64(table, 0).unwrap_or(0),
        data: chunks.data,
    }))
}

struct Chunks<'a> {
    file: &'a Bytes,
    description: &'a [u8],
    cookie: &'a [u8],
    /// Lengths of packets.
    table: Option<&'a [u8]>,
    data: Bytes,
    /// Length of the data according to the header.
    claimed: u64,
}

impl<'a> Chunks<'a> {
    fn find(file: &'a Bytes) -> Option<Self> {
        let (mut description, mut cookie, mut table, mut data) = (None, &[][..], None, None);
        let mut at: usize = 8;
        while let Some(len) = be64(file, at + 4) {
            let body_at = at + 12;
            // A length of -1 stands for the rest of the file.
            let end = body_at.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
            let body = file.get(body_at..end.min(file.len()))?;
            match file.get(at..at + 4)? {
                b"desc" => description = Some(body),
                b"kuki" => cookie = body,
                b"pakt" => table = Some(body),
                b"data" if data.is_none() => {
                    data = Some((file.slice_ref(body.get(4..)?), claimed(len, body.len())));
                }
                _ => {}
            }
            at = end;
        }
        let (data, claimed) = data?;
        Some(Self { file, description: description?, cookie, table, data, claimed })
    }
}

fn claimed(len: u64, there: usize) -> u64 {
    if len == u64::MAX { there as u64 - 4 } else { len.saturating_sub(4) }
}

struct Description {
    rate_hz: u32,
    kind: [u8; 4],
    flags: u32,
    packet_bytes: u32,
    packet_samples: u32,
    channels: u16,
    bits: u32,
}

impl Description {
    fn parse(description: &[u8]) -> Option<Self> {
        Some(Self {
            rate_hz: f64::from_bits(be64(description, 0)?) as u32,
            kind: *description.get(8..12)?.first_chunk()?,
            flags: be32(description, 12)?,
            packet_bytes: be32(description, 16)?,
            packet_samples: be32(description, 20)?,
            channels: be32(description, 24)?.try_into().ok()?,
            bits: be32(description, 28)?,
        })
    }

    /// The format of codecs whose packets all have one length.
    fn blocks(&self) -> Option<Format> {
        let (is_float, is_little_endian) = (self.flags & 1 == 1, self.flags & 2 == 2);
        let bytes = self.bits.div_ceil(8) as usize;
        let (codec, bytes, samples) = match &self.kind {
            b"lpcm" => (pcm(bytes, !is_little_endian, is_float)?, bytes, 1),
            b"ulaw" => (CODEC_ID_PCM_MULAW, 1, 1),
            b"alaw" => (CODEC_ID_PCM_ALAW, 1, 1),
            b"ima4" => (CODEC_ID_ADPCM_IMA_QT, 34, 64),
            _ => return None,
        };
        let layout = Layout { bytes: bytes * usize::from(self.channels), samples };
        (layout.bytes > 0).then_some(Format { codec, rate_hz: self.rate_hz, channels: self.channels, layout })
    }

    fn stream(&self, cookie: &[u8], table: &[u8]) -> Stream {
        let mut stream = match &self.kind {
            b"aac " => entry::aac_stream(entry::decoder_config(cookie).unwrap_or(cookie)),
            b"alac" => entry::alac_stream(cookie, self.rate_hz, self.channels),
            b".mp3" => Stream::of(CODEC_ID_MP3, self.rate_hz, self.channels, &[]),
            // Apple's encoder writes its own header; the table of packets states the delay.
            b"opus" => {
                let head = entry::opus_head(self.channels as u8, 0);
                Stream::of(CODEC_ID_OPUS, self.rate_hz, self.channels, &head)
            }
            kind => Stream::unsupported(entry::codec_name(kind)),
        };
        let samples = be64(table, 8).and_then(|samples| i64::try_from(samples).ok());
        stream.duration = samples.map(|samples| nanos(samples, self.rate_hz));
        stream
    }
}

/// Packets whose lengths stand in a table.
struct CafPackets {
    stream: Option<Stream>,
    rate_hz: u32,
    /// Bytes and samples of a packet; 0 if the table states them.
    packet_bytes: usize,
    packet_samples: u64,
    /// Samples before and behind the audio.
    priming: u64,
    remainder: u64,
    /// The rest of the table.
    numbers: Bytes,
    /// Packets that the table still has.
    left: u64,
    data: Bytes,
}

impl CafPackets {
    fn time(&self, samples: u64) -> Nanos {
        nanos(samples.min(1 << 40) as i64, self.rate_hz)
    }

    /// Reads a number of the table: seven bits in each byte.
    fn number(&mut self) -> Option<u64> {
        let len = self.numbers.iter().take(5).position(|byte| byte & 0x80 == 0)? + 1;
        let bytes = self.numbers.split_to(len);
        Some(bytes.iter().fold(0, |number, byte| number << 7 | u64::from(byte & 0x7f)))
    }

    fn packet(&mut self) -> Option<Packet> {
        let bytes = if self.packet_bytes == 0 { self.number()? as usize } else { self.packet_bytes };
        let samples = if self.packet_samples == 0 { self.number()? } else { self.packet_samples };
        let data = self.data.get(..bytes)?.len();
        let skipped = self.priming.min(samples);
        self.priming -= skipped;
        let trim_end = if self.left == 1 { self.remainder.min(samples) } else { 0 };
        self.left = self.left.saturating_sub(1);
        Some(Packet {
            data: self.data.split_to(data),
            samples,
            trim_start: self.time(skipped),
            trim_end: self.time(trim_end),
            ..Packet::default()
        })
    }
}

impl Demuxer for CafPackets {
    fn next(&mut self) -> Result<Option<Event>, Error> {
        if let Some(stream) = self.stream.take() {
            return Ok(Some(Event::Stream(stream)));
        }
        let is_counted = self.left > 0;
        if !is_counted && self.packet_bytes == 0 {
            return Ok(None);
        }
        let packet = self.packet();
        if is_counted && packet.is_none() {
            (self.left, self.packet_bytes) = (0, 0);
            return Ok(Some(Event::Damage("the end is missing")));
        }
        Ok(packet.map(Event::Packet))
    }
}
