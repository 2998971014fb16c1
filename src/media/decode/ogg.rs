//! Ogg files as symphonia may read them: one audio stream at a time, without comments.
//!
//! symphonia parses a comment or setup header of Vorbis wherever one stands, keeps what it contains, and calculates the
//! checksum of a page again for each false start inside it. Here all pages are checked once. The comment header is replaced by
//! an empty one, and pages of other streams and with misplaced headers are left out. Sources: RFC 3533, RFC 7845 §5, Vorbis I
//! specification §4.2.

use std::ops::Range;

use bytes::Bytes;
use symphonia::core::checksum::Crc32;
use symphonia::core::errors::Error;
use symphonia::core::io::Monitor as _;

use super::vorbis;

/// The pages of the audio streams; nothing if the file has none.
pub(super) fn keep_audio(file: &Bytes) -> Result<Vec<Bytes>, Error> {
    let mut pages = Pages { file, at: 0, damaged: 0 };
    let mut filter = Filter::default();
    while let Some(page) = pages.next()? {
        filter.take(file, &page)?;
    }
    if filter.pages == 0 {
        return Err(Error::DecodeError("no page is complete"));
    }
    Ok(filter.finish(file))
}

/// Most pages with a wrong checksum: each costs a calculation over 64 KB.
const DAMAGED_PAGES_MAX: usize = 1000;
/// Most streams one after another, as a radio recording has for each song. Each starts a decoder.
const STREAMS_MAX: usize = 256;
/// Longest setup header. libvorbis writes up to 11 KB.
const HEADER_MAX_BYTES: usize = 256 * 1024;

/// Flags of a page.
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;

struct Page<'a> {
    place: Range<usize>,
    flags: u8,
    serial: u32,
    /// Lengths of the segments. Shorter ones than 255 end a packet.
    lacing: &'a [u8],
    body: &'a [u8],
}

impl Page<'_> {
    /// The packets and parts of packets on the page, and whether each ends here.
    fn packets(&self) -> impl Iterator<Item = (&[u8], bool)> {
        let (mut lacing, mut body) = (self.lacing, self.body);
        std::iter::from_fn(move || {
            let last = lacing.iter().position(|len| *len < 255);
            let segments = lacing.split_off(..last.map_or(lacing.len(), |last| last + 1))?;
            let len = segments.iter().map(|len| usize::from(*len)).sum();
            let packet = body.split_off(..len)?;
            (!segments.is_empty()).then_some((packet, last.is_some()))
        })
    }
}

/// Finds pages whose checksum is right.
struct Pages<'a> {
    file: &'a [u8],
    at: usize,
    damaged: usize,
}

impl<'a> Pages<'a> {
    fn next(&mut self) -> Result<Option<Page<'a>>, Error> {
        while let Some(skipped) =
            self.file.get(self.at..).and_then(|rest| memchr::memmem::find(rest, b"OggS"))
        {
            let start = self.at + skipped;
            if let Some(page) = self.read(start)? {
                self.at = page.place.end;
                return Ok(Some(page));
            }
            self.at = start + 4;
        }
        Ok(None)
    }

    fn read(&mut self, start: usize) -> Result<Option<Page<'a>>, Error> {
        let Some(page) = parse_page(self.file, start) else { return Ok(None) };
        if checksum(&self.file[page.place.clone()]) == u32_at(self.file, start + CHECKSUM_AT) {
            return Ok(Some(page));
        }
        self.damaged += 1;
        if self.damaged > DAMAGED_PAGES_MAX {
            Err(Error::LimitError("more damaged pages than 1000"))
        } else {
            Ok(None)
        }
    }
}

/// Position of the checksum on a page.
const CHECKSUM_AT: usize = 22;
/// Length of the header without the lengths of the segments.
const HEADER_BYTES: usize = 27;

fn parse_page(file: &[u8], start: usize) -> Option<Page<'_>> {
    let header: &[u8; HEADER_BYTES] = file.get(start..)?.first_chunk()?;
    let lacing_at = start + HEADER_BYTES;
    let body_at = lacing_at + usize::from(header[26]);
    let lacing = file.get(lacing_at..body_at)?;
    let end = body_at + lacing.iter().map(|len| usize::from(*len)).sum::<usize>();
    let body = file.get(body_at..end)?;
    let is_known = header[4] == 0 && header[5] & 0xf8 == 0;
    is_known.then_some(Page {
        place: start..end,
        flags: header[5],
        serial: u32_at(file, start + 14)?,
        lacing,
        body,
    })
}

/// Checksum of a page, whose own checksum counts as zero.
fn checksum(page: &[u8]) -> Option<u32> {
    let (before, rest) = page.split_at_checked(CHECKSUM_AT)?;
    let mut sum = Crc32::new(0);
    sum.process_buf_bytes(before);
    sum.process_buf_bytes(&[0; 4]);
    sum.process_buf_bytes(rest.get(4..)?);
    Some(sum.crc())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Codec {
    Vorbis,
    Opus,
    Flac,
}

impl Codec {
    fn of(identification: &[u8]) -> Option<Self> {
        match identification {
            [1, b'v', b'o', b'r', b'b', b'i', b's', ..] => Some(Self::Vorbis),
            [b'O', b'p', b'u', b's', b'H', b'e', b'a', b'd', ..] => Some(Self::Opus),
            [0x7f, b'F', b'L', b'A', b'C', ..] => Some(Self::Flac),
            _ => None,
        }
    }

    /// True for a packet of audio. Any packet of Opus is one, behind the headers.
    fn is_audio(self, packet: &[u8]) -> bool {
        let first = packet.first().copied();
        match self {
            Self::Vorbis => first.is_none_or(|kind| kind & 1 == 0),
            Self::Opus => true,
            // ffmpeg ends a stream with an empty packet.
            Self::Flac => first.is_none_or(|kind| kind == 0xff),
        }
    }
}

/// The stream that is kept.
struct Stream {
    serial: u32,
    codec: Codec,
    /// The header packet that is being read.
    header: Vec<u8>,
    has_audio_begun: bool,
}

#[derive(Default)]
struct Filter {
    parts: Vec<Bytes>,
    /// Pages that are kept as they are.
    kept: Range<usize>,
    stream: Option<Stream>,
    is_last_page_first: bool,
    pages: usize,
    streams: usize,
}

impl Filter {
    fn take(&mut self, file: &Bytes, page: &Page<'_>) -> Result<(), Error> {
        self.pages += 1;
        let is_first = page.flags & FIRST != 0;
        if is_first && !self.is_last_page_first {
            self.stream = None;
        }
        self.is_last_page_first = is_first;
        if is_first {
            return self.start_stream(file, page);
        }
        let Some(stream) = self.stream.as_mut().filter(|stream| stream.serial == page.serial) else {
            return Ok(());
        };
        if stream.has_audio_begun || stream.codec == Codec::Flac {
            let mut starts = page.packets().skip(usize::from(page.flags & CONTINUED != 0)).peekable();
            let begins_packet = starts.peek().is_some();
            if (stream.has_audio_begun || begins_packet)
                && starts.all(|(packet, _)| stream.codec.is_audio(packet))
            {
                stream.has_audio_begun = true;
                self.keep(file, page.place.clone());
            }
            return Ok(());
        }
        if let Some(headers) = stream.read_headers(page)? {
            self.finish_kept(file);
            self.parts.push(headers.into());
        }
        Ok(())
    }

    /// Chooses the first stream whose codec is known.
    fn start_stream(&mut self, file: &Bytes, page: &Page<'_>) -> Result<(), Error> {
        let identification = page.packets().next().filter(|(_, is_complete)| *is_complete);
        let Some(codec) = identification.and_then(|(packet, _)| Codec::of(packet)) else { return Ok(()) };
        if self.stream.is_none() {
            self.stream =
                Some(Stream { serial: page.serial, codec, header: Vec::new(), has_audio_begun: false });
            self.keep(file, page.place.clone());
            self.streams += 1;
        }
        match self.streams > STREAMS_MAX {
            true => Err(Error::LimitError("more streams in a row than 256")),
            false => Ok(()),
        }
    }

    fn keep(&mut self, file: &Bytes, place: Range<usize>) {
        if self.kept.end == place.start {
            self.kept.end = place.end;
        } else {
            self.finish_kept(file);
            self.kept = place;
        }
    }

    fn finish_kept(&mut self, file: &Bytes) {
        if !self.kept.is_empty() {
            self.parts.push(file.slice(std::mem::take(&mut self.kept)));
        }
    }

    fn finish(mut self, file: &Bytes) -> Vec<Bytes> {
        self.finish_kept(file);
        self.parts
    }
}

impl Stream {
    /// Reads the headers behind the identification. Returns pages that replace them when the last is complete.
    fn read_headers(&mut self, page: &Page<'_>) -> Result<Option<Vec<u8>>, Error> {
        if page.flags & CONTINUED == 0 {
            self.header.clear();
        }
        for (packet, is_complete) in page.packets() {
            let room = HEADER_MAX_BYTES.saturating_sub(self.header.len());
            // Of a comment, the first bytes suffice.
            self.header.extend_from_slice(&packet[..packet.len().min(room)]);
            if !is_complete {
                break;
            }
            let header = std::mem::take(&mut self.header);
            let headers: &[&[u8]] = match self.codec {
                Codec::Opus if header.starts_with(b"OpusTags") => &[EMPTY_OPUS_COMMENT],
                Codec::Vorbis if header.starts_with(b"\x05vorbis") => &[EMPTY_VORBIS_COMMENT, &header],
                _ => continue,
            };
            if header.len() == HEADER_MAX_BYTES && self.codec == Codec::Vorbis {
                return Err(Error::LimitError("the Vorbis setup is longer than any encoder's"));
            }
            if self.codec == Codec::Vorbis {
                vorbis::check_setup(&header).map_err(Error::DecodeError)?;
            }
            self.has_audio_begun = true;
            return Ok(Some(pages_of(self.serial, headers)));
        }
        Ok(None)
    }
}

/// No vendor and no comments.
const EMPTY_OPUS_COMMENT: &[u8] = b"OpusTags\0\0\0\0\0\0\0\0";
const EMPTY_VORBIS_COMMENT: &[u8] = b"\x03vorbis\0\0\0\0\0\0\0\0\x01";

/// Writes header packets to pages, beginning with the second of the stream.
fn pages_of(serial: u32, packets: &[&[u8]]) -> Vec<u8> {
    let mut segments = packets.iter().flat_map(|packet| {
        // A packet whose last segment is full ends with an empty one.
        (0..=packet.len() / 255).map(|at| &packet[255 * at..packet.len().min(255 * (at + 1))])
    });
    let (mut pages, mut is_continued) = (Vec::new(), false);
    for sequence in 1.. {
        let of_page: Vec<&[u8]> = segments.by_ref().take(255).collect();
        let Some(last) = of_page.last() else { break };
        append_page(&mut pages, serial, sequence, if is_continued { CONTINUED } else { 0 }, &of_page);
        is_continued = last.len() == 255;
    }
    pages
}

fn append_page(pages: &mut Vec<u8>, serial: u32, sequence: u32, flags: u8, segments: &[&[u8]]) {
    let start = pages.len();
    pages.extend_from_slice(b"OggS\0");
    pages.push(flags);
    pages.extend_from_slice(&[0; 8]);
    pages.extend_from_slice(&serial.to_le_bytes());
    pages.extend_from_slice(&sequence.to_le_bytes());
    pages.extend_from_slice(&[0; 4]);
    pages.push(segments.len() as u8);
    pages.extend(segments.iter().map(|segment| segment.len() as u8));
    segments.iter().for_each(|segment| pages.extend_from_slice(segment));
    let sum = checksum(&pages[start..]).unwrap_or_default();
    pages[start + CHECKSUM_AT..start + CHECKSUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    file.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}
