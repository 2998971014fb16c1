//! Finds the first byte of audio behind what programs put before it.

use super::demux::frames::{find_frame, skip_tags};
use crate::audio::frame_headers::{adts_header, mpeg_header};

/// How far frames are searched.
const SEARCH_MAX_BYTES: usize = 64 * 1024;

/// Frames in a row.
pub(super) enum Frames {
    Mpeg,
    Adts,
}

/// Position behind tags, byte order marks, white space and zeros, or where a container begins.
pub(super) fn skip_padding(file: &[u8], is_container: impl Fn(&[u8]) -> bool) -> usize {
    let mut at = skip_tags(file, 0);
    let end = at.saturating_add(SEARCH_MAX_BYTES);
    while at < end && !is_container(&file[at..]) {
        let Some(byte) = file.get(at) else { break };
        match byte {
            0xef if file[at..].starts_with(b"\xef\xbb\xbf") => at += 3,
            0 | b' ' | b'\t' | b'\r' | b'\n' => at += 1,
            _ => break,
        }
        at = skip_tags(file, at);
    }
    at
}

/// Finds the first page of an Ogg stream, behind the header of a download, for example.
pub(super) fn find_ogg(file: &[u8]) -> Option<usize> {
    memchr::memmem::find(&file[..file.len().min(SEARCH_MAX_BYTES)], b"OggS\0\x02")
}

/// Finds the first frame of MPEG audio or ADTS that another follows, behind tags.
pub(super) fn find_frames(file: &[u8]) -> Option<Frames> {
    let start = skip_tags(file, 0);
    let end = start.saturating_add(SEARCH_MAX_BYTES);
    let mpeg = find_frame(file, start, end, mpeg_header);
    let adts = find_frame(file, start, end, adts_header);
    match (mpeg, adts) {
        (None, None) => single_frame(&file[start..]),
        (Some(mpeg), Some(adts)) if adts < mpeg => Some(Frames::Adts),
        (Some(_), _) => Some(Frames::Mpeg),
        (None, Some(_)) => Some(Frames::Adts),
    }
}

/// A file of one frame, perhaps cut off.
fn single_frame(file: &[u8]) -> Option<Frames> {
    match (mpeg_header(file), adts_header(file)) {
        (Some(_), _) => Some(Frames::Mpeg),
        (None, Some(_)) => Some(Frames::Adts),
        (None, None) => None,
    }
}
