//! Boxes of ISO base media files (ISO 14496-12 §4.2).

use std::ops::Range;

use crate::media::decode::fields::{be32, be64};

/// A box: its header and its contents, as far as the file has them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Mp4Box {
    pub(super) kind: [u8; 4],
    pub(super) start: usize,
    pub(super) body_at: usize,
    pub(super) end: usize,
    /// The file ends before the box.
    pub(super) is_cut_off: bool,
}

impl Mp4Box {
    pub(super) const fn body(self) -> Range<usize> {
        self.body_at..self.end
    }

    pub(super) fn bytes(self, file: &[u8]) -> &[u8] {
        file.get(self.body()).unwrap_or_default()
    }

    /// Version and contents of a full box, behind its flags.
    pub(super) fn versioned(self, file: &[u8]) -> Option<(u8, &[u8])> {
        let (version, rest) = self.bytes(file).split_first()?;
        Some((*version, rest.get(3..)?))
    }
}

/// The boxes in a range of the file. One that does not fit is the last, and is shortened.
pub(super) fn boxes(file: &[u8], range: Range<usize>) -> impl Iterator<Item = Mp4Box> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let next = read_box(file, at, range.end)?;
        at = next.end;
        Some(next)
    })
}

/// Reads the box at a position.
pub(super) fn read_box(file: &[u8], start: usize, limit: usize) -> Option<Mp4Box> {
    let kind = *file.get(start + 4..limit)?.first_chunk()?;
    let (body_at, len) = match be32(file, start)? {
        // Zero stands for "to the end of the file".
        0 => (start + 8, limit - start),
        // The size follows the type in 64 bits.
        1 => (start + 16, usize::try_from(be64(file, start + 8)?).ok()?),
        len => (start + 8, len as usize),
    };
    let claimed = start.checked_add(len)?;
    let end = claimed.min(limit);
    (body_at <= end).then_some(Mp4Box { kind, start, body_at, end, is_cut_off: claimed > limit })
}

/// The first box on a path.
pub(super) fn find(file: &[u8], range: Range<usize>, path: &[&[u8; 4]]) -> Option<Mp4Box> {
    let (first, rest) = path.split_first()?;
    let found = boxes(file, range).find(|child| child.kind == **first)?;
    if rest.is_empty() { Some(found) } else { find(file, found.body(), rest) }
}
