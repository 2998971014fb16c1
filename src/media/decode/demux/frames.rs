//! Frames in a row, each with a header that states its length: MPEG audio and ADTS.
//!
//! Anything may stand before, between and behind them: tags, zeros, parts of a frame. A frame begins where two headers in a row
//! agree.

use bytes::Bytes;

use crate::audio::frame_headers::{Header, ParseHeader, is_same_stream};
use crate::media::decode::{
    fields::{be32, le32},
    packet::Event,
};

/// The next item in a file of frames.
pub(super) enum Next {
    Frame(Header, Bytes),
    /// Something between frames.
    Event(Event),
    End,
}

/// Finds frames.
pub(super) struct Frames {
    pub(super) file: Bytes,
    /// Position of the next frame.
    pub(super) at: usize,
    parse: ParseHeader,
    /// The key of the last frame.
    key: Option<u32>,
}

impl Frames {
    pub(super) const fn new(file: Bytes, parse: ParseHeader) -> Self {
        Self { file, at: 0, parse, key: None }
    }

    pub(super) fn header_at(&self, at: usize) -> Option<Header> {
        (self.parse)(self.file.get(at..)?)
    }

    /// Key of the stream, as far as it is known.
    pub(super) const fn key(&self) -> Option<u32> {
        self.key
    }

    pub(super) fn next(&mut self) -> Next {
        self.at = skip_tags(&self.file, self.at);
        if let Some(header) = self.header_at(self.at).filter(|header| self.is_credible(self.at, header)) {
            let Some(frame) = self.file.get(self.at..self.at + header.len) else {
                self.at = self.file.len();
                return Next::Event(Event::Damage("the last frame is cut off"));
            };
            let frame = self.file.slice_ref(frame);
            self.at += header.len;
            self.key = Some(header.key);
            return Next::Frame(header, frame);
        }
        if self.at >= self.file.len() {
            return Next::End;
        }
        self.skip_junk()
    }

    /// Skips bytes up to the next frame or tag.
    fn skip_junk(&mut self) -> Next {
        let start = self.at;
        let found = next_start(&self.file, self.at + 1, self.parse);
        self.at = found.unwrap_or(self.file.len());
        let is_padding = self.file[start..self.at].iter().all(|byte| *byte == 0);
        // Zeros, and bytes before the first frame and behind the last, are no loss.
        Next::Event(match is_padding || self.key.is_none() || found.is_none() {
            true => Event::Other,
            false => Event::Damage("there are bytes that are no frame"),
        })
    }

    /// A header like the one before, or one that another follows.
    fn is_credible(&self, at: usize, header: &Header) -> bool {
        self.key == Some(header.key)
            || is_followed(&self.file, at, header, self.parse)
            || self.file.len() == at + header.len
    }
}

/// True if a header of the same stream follows the frame, or a tag.
fn is_followed(file: &[u8], at: usize, header: &Header, parse: ParseHeader) -> bool {
    let Some(rest) = file.get(at + header.len..) else { return false };
    is_same_stream(rest, header, parse) || TAGS.iter().any(|tag| rest.starts_with(tag))
}

/// Position of the first frame between these positions that another follows.
pub(in crate::media::decode) fn find_frame(
    file: &[u8],
    from: usize,
    to: usize,
    parse: ParseHeader,
) -> Option<usize> {
    let end = to.min(file.len());
    memchr::memchr_iter(0xff, file.get(from..end)?).map(|at| from + at).find(|at| {
        let header = file.get(*at..).and_then(parse);
        header.is_some_and(|header| is_followed(file, *at, &header, parse))
    })
}

const TAGS: [&[u8]; 4] = [b"ID3", b"APETAGEX", b"TAG", b"LYRICSBEGIN"];

/// Position of the next frame that another follows, or of the next tag.
fn next_start(file: &[u8], from: usize, parse: ParseHeader) -> Option<usize> {
    let candidates = memchr::memchr3_iter(0xff, b'I', b'A', file.get(from..)?).map(|at| from + at);
    candidates.into_iter().find(|at| {
        let rest = &file[*at..];
        let is_frame = || parse(rest).is_some_and(|header| is_followed(file, *at, &header, parse));
        is_frame() || rest.starts_with(b"ID3") || rest.starts_with(b"APETAGEX")
    })
}

/// Position behind the tags at a position: ID3v2 (id3.org, "ID3v2.4.0 main structure" §3.1), ID3v1, APEv2.
pub(in crate::media::decode) fn skip_tags(file: &[u8], mut at: usize) -> usize {
    while let Some(end) =
        file.get(at..).and_then(|rest| tag_len(rest, at + 128 >= file.len())).map(|len| at + len)
    {
        at = end.min(file.len());
    }
    at
}

fn tag_len(rest: &[u8], is_at_end: bool) -> Option<usize> {
    match rest {
        [b'I', b'D', b'3', _, _, flags, ..] => {
            let body =
                be32(rest, 6)?.to_be_bytes().iter().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
            Some(10 + body + if flags & 0x10 == 0 { 0 } else { 10 })
        }
        // The length counts the footer and not the header.
        [b'A', b'P', b'E', b'T', b'A', b'G', b'E', b'X', ..] => {
            let has_header = le32(rest, 20)? & 1 << 29 != 0;
            Some(if has_header { 32 + le32(rest, 12)? as usize } else { 32 })
        }
        // Three letters are few: this tag is the last or is followed by the next stream.
        [b'T', b'A', b'G', ..] => {
            (is_at_end || rest.get(128) == Some(&0xff) || rest[128.min(rest.len())..].starts_with(b"ID3"))
                .then_some(128)
        }
        _ => None,
    }
}
