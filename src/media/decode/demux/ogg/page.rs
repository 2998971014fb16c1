//! Pages of Ogg (RFC 3533 §6), found by their checksums.

use std::ops::Range;

use bytes::Bytes;
use symphonia::core::checksum::Crc32;
use symphonia::core::errors::Error;
use symphonia::core::io::Monitor as _;

use crate::media::decode::fields::{le32, le64};

/// Most pages with a wrong checksum: each costs a calculation over 64 KB.
const DAMAGED_PAGES_MAX: usize = 1000;

/// Flags of a page.
const CONTINUED: u8 = 1;
const FIRST: u8 = 2;
const LAST: u8 = 4;

/// A page whose checksum is right.
pub(super) struct Page {
    flags: u8,
    pub(super) serial: u32,
    pub(super) sequence: u32,
    /// End of the last packet that ends on the page, in the codec's samples; `None` if none does.
    pub(super) position: Option<u64>,
    /// Lengths of the segments. Shorter ones than 255 end a packet.
    lacing: Bytes,
    body: Bytes,
}

impl Page {
    pub(super) const fn is_first(&self) -> bool {
        self.flags & FIRST != 0
    }

    pub(super) const fn is_last(&self) -> bool {
        self.flags & LAST != 0
    }

    pub(super) const fn is_continued(&self) -> bool {
        self.flags & CONTINUED != 0
    }

    /// The packets and parts of packets on the page, and whether each ends here.
    pub(super) fn packets(&self) -> impl Iterator<Item = (Bytes, bool)> {
        let (lacing, mut body) = (self.lacing.clone(), self.body.clone());
        let mut at = 0;
        std::iter::from_fn(move || {
            let rest = lacing.get(at..).filter(|rest| !rest.is_empty())?;
            let last = rest.iter().position(|len| *len < 255);
            let segments = &rest[..last.map_or(rest.len(), |last| last + 1)];
            at += segments.len();
            let len = segments.iter().map(|len| usize::from(*len)).sum();
            Some((body.split_to(len), last.is_some()))
        })
    }
}

/// Finds pages.
#[derive(Default)]
pub(super) struct Pages {
    pub(super) file: Bytes,
    at: usize,
    damaged: usize,
    /// Bytes were skipped that are no page.
    pub(super) has_gap: bool,
}

impl Pages {
    pub(super) const fn new(file: Bytes) -> Self {
        Self { file, at: 0, damaged: 0, has_gap: false }
    }

    /// The next page. Skips at most some pages that are damaged.
    pub(super) fn next(&mut self) -> Result<Option<Page>, Error> {
        while let Some(skipped) =
            self.file.get(self.at..).and_then(|rest| memchr::memmem::find(rest, b"OggS"))
        {
            let start = self.at + skipped;
            self.has_gap |= skipped > 0;
            if let Some((page, place)) = self.read(start)? {
                self.at = place.end;
                return Ok(Some(page));
            }
            self.has_gap = true;
            self.at = start + 4;
        }
        Ok(None)
    }

    fn read(&mut self, start: usize) -> Result<Option<(Page, Range<usize>)>, Error> {
        let Some((page, place)) = parse_page(&self.file, start) else { return Ok(None) };
        if checksum(&self.file[place.clone()]) == le32(&self.file, start + CHECKSUM_AT) {
            return Ok(Some((page, place)));
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

fn parse_page(file: &Bytes, start: usize) -> Option<(Page, Range<usize>)> {
    let header: &[u8; HEADER_BYTES] = file.get(start..)?.first_chunk()?;
    let lacing_at = start + HEADER_BYTES;
    let body_at = lacing_at + usize::from(header[26]);
    let lacing = file.get(lacing_at..body_at)?;
    let end = body_at + lacing.iter().map(|len| usize::from(*len)).sum::<usize>();
    let body = file.get(body_at..end)?;
    let is_known = header[4] == 0 && header[5] & 0xf8 == 0;
    let page = Page {
        flags: header[5],
        serial: le32(file, start + 14)?,
        sequence: le32(file, start + 18)?,
        position: le64(file, start + 6).filter(|position| *position != u64::MAX),
        lacing: file.slice_ref(lacing),
        body: file.slice_ref(body),
    };
    is_known.then_some((page, start..end))
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
