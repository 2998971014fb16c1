//! Elements of EBML and Matroska (RFC 8794, RFC 9559 §5.1).

use std::ops::Range;

use crate::media::decode::fields::be;

// Elements, by their numbers.
pub(super) const EBML: u32 = 0x1a45_dfa3;
pub(super) const SEGMENT: u32 = 0x1853_8067;
pub(super) const INFO: u32 = 0x1549_a966;
pub(super) const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
pub(super) const DURATION: u32 = 0x4489;
pub(super) const TRACKS: u32 = 0x1654_ae6b;
pub(super) const TRACK_ENTRY: u32 = 0xae;
pub(super) const TRACK_NUMBER: u32 = 0xd7;
pub(super) const FLAG_DEFAULT: u32 = 0x88;
pub(super) const CODEC_ID: u32 = 0x86;
pub(super) const CODEC_PRIVATE: u32 = 0x63a2;
pub(super) const CODEC_DELAY: u32 = 0x56aa;
pub(super) const AUDIO: u32 = 0xe1;
pub(super) const SAMPLING_FREQUENCY: u32 = 0xb5;
pub(super) const CHANNELS: u32 = 0x9f;
pub(super) const BIT_DEPTH: u32 = 0x6264;
pub(super) const CONTENT_ENCODINGS: u32 = 0x6d80;
pub(super) const CONTENT_ENCODING: u32 = 0x6240;
pub(super) const ENCODING_SCOPE: u32 = 0x5032;
pub(super) const COMPRESSION: u32 = 0x5034;
pub(super) const COMPRESSION_ALGORITHM: u32 = 0x4254;
pub(super) const COMPRESSION_SETTINGS: u32 = 0x4255;
pub(super) const CLUSTER: u32 = 0x1f43_b675;
pub(super) const TIMESTAMP: u32 = 0xe7;
pub(super) const SIMPLE_BLOCK: u32 = 0xa3;
pub(super) const BLOCK_GROUP: u32 = 0xa0;
pub(super) const BLOCK: u32 = 0xa1;
pub(super) const DISCARD_PADDING: u32 = 0x75a2;
const CUES: u32 = 0x1c53_bb6b;
const SEEK_HEAD: u32 = 0x114d_9b74;
const TAGS: u32 = 0x1254_c367;
const ATTACHMENTS: u32 = 0x1941_a469;
const CHAPTERS: u32 = 0x1043_a770;
const VOID: u32 = 0xec;
const CRC_32: u32 = 0xbf;

/// Elements that may stand beside clusters or blocks. Bytes with another number are damage.
pub(super) const fn is_known(id: u32) -> bool {
    matches!(
        id,
        EBML | SEGMENT
            | INFO
            | TRACKS
            | CLUSTER
            | TIMESTAMP
            | SIMPLE_BLOCK
            | BLOCK_GROUP
            | CUES
            | SEEK_HEAD
            | TAGS
            | ATTACHMENTS
            | CHAPTERS
            | VOID
            | CRC_32
            | 0xa7
            | 0xab
            | 0x5854
            | 0xaf
    )
}

/// An element.
#[derive(Debug, Clone, Copy)]
pub(super) struct Element {
    pub(super) id: u32,
    pub(super) body_at: usize,
    /// `None` if the length is unknown.
    pub(super) end: Option<usize>,
}

impl Element {
    /// Reads the header of the element at a position.
    pub(super) fn read(file: &[u8], at: usize) -> Option<Self> {
        let id_len = file.get(at)?.leading_zeros() as usize + 1;
        let id = be(file, at, id_len).filter(|_| id_len <= 4)? as u32;
        let (size, size_len) = read_size(file.get(at + id_len..)?)?;
        let body_at = at + id_len + size_len;
        let end = match size {
            Some(size) => Some(body_at.checked_add(usize::try_from(size).ok()?)?),
            None => None,
        };
        Some(Self { id, body_at, end })
    }

    /// The contents, as far as the file has them.
    pub(super) fn body(self, file: &[u8]) -> Range<usize> {
        self.body_at..self.end.unwrap_or(file.len()).min(file.len())
    }

    /// Elements inside, up to the first that does not fit.
    pub(super) fn children(self, file: &[u8]) -> impl Iterator<Item = Self> {
        let range = self.body(file);
        let mut at = range.start;
        std::iter::from_fn(move || {
            let child = Self::read(file, at)?;
            at = child.end.filter(|end| *end <= range.end)?;
            Some(child)
        })
    }

    pub(super) fn child(self, file: &[u8], id: u32) -> Option<Self> {
        self.children(file).find(|child| child.id == id)
    }

    pub(super) fn bytes(self, file: &[u8]) -> &[u8] {
        &file[self.body(file)]
    }

    pub(super) fn number(self, file: &[u8]) -> u64 {
        let bytes = self.bytes(file);
        be(bytes, 0, bytes.len().min(8)).unwrap_or(0)
    }

    pub(super) fn float(self, file: &[u8]) -> f64 {
        match self.bytes(file).len() {
            4 => f32::from_bits(self.number(file) as u32).into(),
            8 => f64::from_bits(self.number(file)),
            _ => 0.0,
        }
    }
}

/// Reads a size of one to eight bytes, `None` if it is unknown (RFC 8794 §6.2), and its own length.
pub(super) fn read_size(bytes: &[u8]) -> Option<(Option<u64>, usize)> {
    let len = bytes.first()?.leading_zeros() as usize + 1;
    let marked = be(bytes, 0, len).filter(|_| len <= 8)?;
    let mask = (1_u64 << (7 * len)) - 1;
    let size = marked & mask;
    Some(((size != mask).then_some(size), len))
}
