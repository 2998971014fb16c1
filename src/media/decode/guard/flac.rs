//! Native FLAC streams without their metadata (RFC 9639 §8).

use std::ops::Range;

use bytes::Bytes;
use symphonia::core::errors::Error;

use crate::media::decode::fields::le32;

/// A stream: its header, and where its audio lies.
pub(in crate::media::decode) struct FlacStream {
    /// The stream information, in a header of its own.
    pub(in crate::media::decode) head: Bytes,
    pub(in crate::media::decode) audio: Range<usize>,
    /// Position of the next stream.
    pub(in crate::media::decode) next: usize,
}

/// Finds the stream at a position. Keeps the stream information and the audio. Tags, pictures and tables are never read:
/// symphonia takes 26 times the size of short tags. The audio ends where another stream begins.
pub(in crate::media::decode) fn without_metadata(file: &[u8], start: usize) -> Result<FlacStream, Error> {
    let mut head = b"fLaC".to_vec();
    let mut at = start + head.len();
    loop {
        let header = file.get(at..at + 4).ok_or(CUT_OFF)?;
        let [kind, len @ ..] = [header[0], header[1], header[2], header[3]];
        let end = at + 4 + len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
        let block = file.get(at..end).ok_or(CUT_OFF)?;
        if kind & 0x7f == STREAM_INFO && head.len() == 4 && block.len() == STREAM_INFO_BYTES {
            head.push(LAST_BLOCK | STREAM_INFO);
            head.extend_from_slice(&block[1..]);
        }
        at = end;
        if kind & LAST_BLOCK != 0 {
            let next = next_stream(file, at);
            return Ok(FlacStream { head: head.into(), audio: at..end_of_audio(file, at, next), next });
        }
    }
}

/// Position of the next stream: its marker and the header of its first block.
fn next_stream(file: &[u8], from: usize) -> usize {
    let rest = &file[from..];
    let next = memchr::memmem::find_iter(rest, b"fLaC")
        .find(|at| matches!(rest.get(at + 4..at + 8), Some([0 | LAST_BLOCK, 0, 0, 34])));
    next.map_or(file.len(), |at| from + at)
}

/// End of the audio before tags of other formats, which symphonia takes for a part of the last frame: ID3v1 and APEv2.
fn end_of_audio(file: &[u8], from: usize, mut end: usize) -> usize {
    let tag = |end: usize, len: usize, marker: &[u8]| {
        let start = end.checked_sub(len).filter(|start| *start >= from)?;
        file.get(start..end).filter(|tag| tag.starts_with(marker))
    };
    if tag(end, 128, b"TAG").is_some() {
        end -= 128;
    }
    // The length counts the footer, and a flag tells a header.
    if let Some(footer) = tag(end, 32, b"APETAGEX") {
        let len = le32(footer, 12).map_or(32, |len| len as usize);
        let has_header = le32(footer, 20).is_some_and(|flags| flags >> 31 == 1);
        end -= len.saturating_add(if has_header { 32 } else { 0 }).min(end - from);
    }
    end
}

const CUT_OFF: Error = Error::DecodeError("the headers are cut off");
const LAST_BLOCK: u8 = 0x80;
const STREAM_INFO: u8 = 0;
/// With the header of its block.
const STREAM_INFO_BYTES: usize = 4 + 34;
