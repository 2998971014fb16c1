//! One audio stream of an Ogg file: its headers, and the packets of its pages.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use opus_pure::packet::samples_48k;
use symphonia::core::codecs::audio::well_known::{CODEC_ID_FLAC, CODEC_ID_OPUS, CODEC_ID_VORBIS};
use symphonia::core::errors::Error;

use super::Page;
use super::position::Positions;
use crate::media::decode::codec::vorbis_blocks::BlockSizes;
use crate::media::decode::fields::{be16, be32, le32, le64};
use crate::media::decode::packet::{Event, Nanos, Packet, Stream, nanos};

/// Longest packet.
const PACKET_MAX_BYTES: usize = 1 << 20;
/// Longest header. libvorbis writes up to 11 KB.
const HEADER_MAX_BYTES: usize = 256 * 1024;

/// The form of a codec's packets.
enum Format {
    Opus,
    Vorbis(Option<BlockSizes>),
    Flac,
}

/// The stream that is decoded.
pub(super) struct OggStream {
    pub(super) serial: u32,
    format: Format,
    identification: Bytes,
    has_audio_begun: bool,
    /// The packet that is continued on the next page.
    packet: BytesMut,
    is_in_packet: bool,
    sequence: Option<u32>,
    positions: Positions,
}

/// The packets of a page.
pub(super) enum Progress {
    /// The headers are complete.
    Stream(Box<Stream>),
    Other,
}

/// Name of a codec that is not supported, by the first packet.
pub(super) fn unsupported_name(identification: &[u8]) -> Option<&'static str> {
    let names: [(&[u8], &str); 4] = [
        (b"Speex   ", "Speex"),
        (b"CELT    ", "CELT"),
        (b"PCM     ", "PCM in Ogg"),
        (b"\x01audio\0\0\0", "OGM audio"),
    ];
    names.iter().find(|(marker, _)| identification.starts_with(marker)).map(|(_, name)| *name)
}

impl OggStream {
    /// A stream whose codec is known.
    pub(super) fn new(serial: u32, identification: Bytes) -> Option<Self> {
        let (format, rate_hz) = match &identification[..] {
            [1, b'v', b'o', b'r', b'b', b'i', b's', ..] => (Format::Vorbis(None), le32(&identification, 12)?),
            [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', ..] => (Format::Opus, 48_000),
            // A packet header of 13 bytes, and the stream information with its own header.
            [0x7f, b'F', b'L', b'A', b'C', ..] => (Format::Flac, be32(&identification, 27)? >> 12),
            _ => return None,
        };
        let pre_skip = pre_skip(&format, &identification);
        Some(Self {
            serial,
            format,
            identification,
            has_audio_begun: false,
            packet: BytesMut::new(),
            is_in_packet: false,
            sequence: None,
            positions: Positions::new(rate_hz, pre_skip),
        })
    }

    pub(super) const fn is_in_packet(&self) -> bool {
        self.is_in_packet
    }

    /// Takes the packets of a page.
    pub(super) fn take(
        &mut self,
        page: &Page,
        has_gap: bool,
        events: &mut VecDeque<Event>,
    ) -> Result<Progress, Error> {
        let is_missing = self.sequence.is_some_and(|last| page.sequence != last.wrapping_add(1));
        self.sequence = Some(page.sequence);
        if self.has_audio_begun && has_gap && is_missing {
            events.push_back(Event::Damage("pages are damaged or missing"));
        }
        let mut progress = Progress::Other;
        let mut packets = Vec::new();
        for packet in self.complete_packets(page)? {
            if !self.has_audio_begun
                && let Some(stream) = self.read_header(&packet)?
            {
                progress = Progress::Stream(Box::new(stream));
            }
            if self.has_audio_begun && self.is_audio(&packet) {
                packets.push(Packet { samples: self.samples(&packet), data: packet, ..Packet::default() });
            }
        }
        self.positions.place(page, &mut packets);
        events.extend(packets.into_iter().map(Event::Packet));
        Ok(progress)
    }

    /// The packets that end on a page.
    fn complete_packets(&mut self, page: &Page) -> Result<Vec<Bytes>, Error> {
        // The beginning of a packet is lost, or its end.
        let skips = usize::from(page.is_continued() && !self.is_in_packet);
        if !page.is_continued() {
            self.packet.clear();
            self.is_in_packet = false;
        }
        let mut complete = Vec::new();
        for (part, is_end) in page.packets().skip(skips) {
            if self.packet.is_empty() && is_end {
                complete.push(part);
            } else {
                // Of a comment with pictures, the first bytes suffice.
                let max = if self.has_audio_begun { PACKET_MAX_BYTES + 1 } else { HEADER_MAX_BYTES };
                let room = max.saturating_sub(self.packet.len());
                self.packet.extend_from_slice(&part[..part.len().min(room)]);
                if is_end {
                    complete.push(self.packet.split().freeze());
                }
            }
            self.is_in_packet = !is_end;
        }
        if self.packet.len() > PACKET_MAX_BYTES {
            return Err(Error::LimitError("a packet is longer than 1 MiB"));
        }
        Ok(complete)
    }

    /// Reads a header behind the identification. Returns the format when the last is complete.
    fn read_header(&mut self, packet: &Bytes) -> Result<Option<Stream>, Error> {
        let byte = |at: usize| u16::from(self.identification.get(at).copied().unwrap_or(0));
        let stream = match &mut self.format {
            Format::Opus if packet.starts_with(b"OpusTags") => {
                Stream::of(CODEC_ID_OPUS, 48_000, byte(9), &self.identification)
            }
            Format::Vorbis(blocks) if packet.starts_with(b"\x05vorbis") => {
                *blocks = BlockSizes::parse(&self.identification, packet);
                let rate_hz = le32(&self.identification, 12).unwrap_or(0);
                let headers = [&self.identification[..], packet].concat();
                Stream::of(CODEC_ID_VORBIS, rate_hz, byte(11), &headers)
            }
            Format::Flac => {
                let info =
                    self.identification.get(17..51).ok_or(Error::DecodeError("the headers are cut off"))?;
                // Headers have other types than frames.
                if packet.first() != Some(&0xff) {
                    return Ok(None);
                }
                let fields = be32(info, 10).unwrap_or(0);
                Stream::of(CODEC_ID_FLAC, fields >> 12, (fields >> 9 & 7) as u16 + 1, info)
            }
            _ => return Ok(None),
        };
        self.has_audio_begun = true;
        Ok(Some(stream))
    }

    /// True for a packet of audio. Any packet of Opus is one, behind the headers.
    fn is_audio(&self, packet: &[u8]) -> bool {
        match self.format {
            Format::Vorbis(_) => packet.first().is_some_and(|kind| kind & 1 == 0),
            Format::Opus => !packet.starts_with(b"OpusTags"),
            // ffmpeg ends a stream with an empty packet.
            Format::Flac => packet.first() == Some(&0xff),
        }
    }

    fn samples(&mut self, packet: &[u8]) -> u64 {
        match &mut self.format {
            Format::Opus => samples_48k(packet).unwrap_or(0) as u64,
            Format::Vorbis(blocks) => blocks.as_mut().map_or(0, |blocks| blocks.samples(packet)),
            Format::Flac => flac_frame_samples(packet).unwrap_or(0),
        }
    }

    /// Length by the position of the last page.
    pub(super) fn duration(&self, file: &[u8]) -> Option<Nanos> {
        let tail = &file[file.len().saturating_sub(128 * 1024)..];
        let last = memchr::memmem::rfind(tail, b"OggS")?;
        let position = i64::try_from(le64(tail, last + 6)?).ok()?;
        let rate_hz = match self.format {
            Format::Opus => 48_000,
            Format::Vorbis(_) => le32(&self.identification, 12)?,
            Format::Flac => be32(&self.identification, 27)? >> 12,
        };
        let duration = nanos(position - pre_skip(&self.format, &self.identification), rate_hz);
        (le32(tail, last + 14)? == self.serial && duration > 0).then_some(duration)
    }
}

/// Samples that the identification of an Opus stream has the decoder drop (RFC 7845 §5.1).
fn pre_skip(format: &Format, identification: &[u8]) -> i64 {
    let bytes = identification.get(10..12).filter(|_| matches!(format, Format::Opus));
    bytes.map_or(0, |bytes| i64::from(bytes[0]) | i64::from(bytes[1]) << 8)
}

/// Samples of a frame, by its header (RFC 9639 §9.1).
fn flac_frame_samples(frame: &[u8]) -> Option<u64> {
    let code = be16(frame, 2)? >> 12;
    // A number of one to seven bytes precedes the length.
    let number_len = (frame.get(4)?.leading_ones() as usize).max(1);
    Some(match code {
        1 => 192,
        2..=5 => 576 << (code - 2),
        6 => u64::from(*frame.get(4 + number_len)?) + 1,
        7 => u64::from(be16(frame, 4 + number_len)?) + 1,
        8.. => 256 << (code - 8),
        0 => return None,
    })
}
