//! Edit lists: which parts of a track play, and when (ISO 14496-12 §8.6.6).

use symphonia::core::errors::Error;

use super::boxes::{Mp4Box, find};
use super::table::{TOO_MUCH, versioned_number};
use crate::media::decode::fields::be32;
use crate::media::decode::packet::{Nanos, nanos};

/// Most edits. Each may decode a few packets that are not heard.
const EDITS_MAX: usize = 10_000;

/// A part of the track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Edit {
    /// Begin and end on the track's clock, in its ticks; the end may be open.
    pub(super) start: i64,
    pub(super) end: i64,
    /// When it plays.
    pub(super) at: Nanos,
}

/// An end that is open.
pub(super) const OPEN: i64 = i64::MAX;

/// The parts that play, in order. Without a list, all of it does.
pub(super) fn edits(
    file: &[u8],
    track: Mp4Box,
    movie_ticks_per_s: u32,
    track_ticks_per_s: u32,
) -> Result<Vec<Edit>, Error> {
    let Some((version, list)) =
        find(file, track.body(), &[b"edts", b"elst"]).and_then(|list| list.versioned(file))
    else {
        return Ok(vec![Edit { start: 0, end: OPEN, at: 0 }]);
    };
    let number_len = if version == 1 { 8 } else { 4 };
    let count = be32(list, 0).unwrap_or(0) as usize;
    let (mut edits, mut at): (Vec<Edit>, Nanos) = (Vec::new(), 0);
    for edit in list.get(4..).unwrap_or_default().chunks_exact(2 * number_len + 4).take(count) {
        let ticks = versioned_number(edit, 0, version).unwrap_or(0);
        let length = nanos(i64::try_from(ticks).unwrap_or(OPEN), movie_ticks_per_s);
        let start = versioned_number(edit, number_len, version).unwrap_or(0);
        let start = if version == 1 { start.cast_signed() } else { i64::from((start as u32).cast_signed()) };
        // A negative time stands for an edit without media.
        if start >= 0 {
            push(&mut edits, Edit { start, end: end_of(start, length, track_ticks_per_s), at })?;
        }
        at = at.saturating_add(length);
    }
    if edits.is_empty() {
        edits.push(Edit { start: 0, end: OPEN, at });
    }
    Ok(edits)
}

/// The end of an edit. One without length lasts to the end.
fn end_of(start: i64, length: Nanos, ticks_per_s: u32) -> i64 {
    if length == 0 {
        return OPEN;
    }
    let ticks = i128::from(length) * i128::from(ticks_per_s) / 1_000_000_000;
    start.saturating_add(i64::try_from(ticks).unwrap_or(OPEN))
}

/// Adds an edit, or continues the last, if it begins where that ended.
fn push(edits: &mut Vec<Edit>, edit: Edit) -> Result<(), Error> {
    if let Some(last) = edits.last_mut().filter(|last| (last.end - edit.start).abs() <= 2) {
        last.end = edit.end;
        return Ok(());
    }
    edits.push(edit);
    if edits.len() > EDITS_MAX { Err(TOO_MUCH) } else { Ok(()) }
}
