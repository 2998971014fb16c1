//! WebM and Matroska files with a header that symphonia may read: the tracks, without tags, attachments and indexes.
//!
//! The clusters follow unchanged; symphonia reads only blocks from them. Sources: RFC 8794 (EBML) and RFC 9559 (Matroska);
//! sections are cited where they apply.

use bytes::Bytes;
use symphonia::core::errors::Error;

/// Writes a new header before the clusters. The length of the segment is unknown in it, so that a file that was cut off is
/// read to its end.
pub(super) fn with_plain_header(file: &Bytes) -> Result<Vec<Bytes>, Error> {
    let found = Found::find(file).ok_or(DAMAGED)?;
    let (tracks, clusters_at) = (found.tracks.ok_or(NO_TRACKS)?, found.clusters_at.unwrap_or(file.len()));
    let mut head = Vec::new();
    append(&mut head, EBML, &file[found.ebml.body()]);
    append_id(&mut head, SEGMENT);
    // Ones in all bits behind the length marker stand for "unknown" (RFC 8794 §6.2).
    head.push(0xff);
    append(&mut head, INFO, &plain_info(file, found.info));
    append(&mut head, TRACKS, &plain_tracks(file, tracks)?);
    if head.len() > HEAD_MAX_BYTES {
        return Err(Error::LimitError("the headers are larger than those of any recording"));
    }
    Ok(vec![head.into(), file.slice(clusters_at..)])
}

/// Longest header. The setup of a codec takes some kilobytes.
const HEAD_MAX_BYTES: usize = 1 << 20;
/// Most tracks.
const TRACKS_MAX: usize = 64;

const DAMAGED: Error = Error::DecodeError("the headers are damaged or cut off");
const NO_TRACKS: Error = Error::DecodeError("the headers name no tracks");

// Elements, by their numbers (RFC 9559 §5.1).
const EBML: u32 = 0x1a45_dfa3;
const SEGMENT: u32 = 0x1853_8067;
const INFO: u32 = 0x1549_a966;
const TIMESTAMP_SCALE: u32 = 0x2a_d7b1;
const MUXING_APP: u32 = 0x4d80;
const WRITING_APP: u32 = 0x5741;
const TRACKS: u32 = 0x1654_ae6b;
const TRACK_ENTRY: u32 = 0xae;
const TRACK_NUMBER: u32 = 0xd7;
const TRACK_UID: u32 = 0x73c5;
const CODEC_ID: u32 = 0x86;
const CODEC_PRIVATE: u32 = 0x63a2;
const CODEC_DELAY: u32 = 0x56aa;
const SEEK_PRE_ROLL: u32 = 0x56bb;
const DEFAULT_DURATION: u32 = 0x23_e383;
const TRACK_TIMESTAMP_SCALE: u32 = 0x23_314f;
const AUDIO: u32 = 0xe1;
const CLUSTER: u32 = 0x1f43_b675;

/// The properties of an audio track that decoding needs.
const AUDIO_TRACK: [u32; 9] = [
    TRACK_NUMBER,
    TRACK_UID,
    CODEC_ID,
    CODEC_PRIVATE,
    CODEC_DELAY,
    SEEK_PRE_ROLL,
    DEFAULT_DURATION,
    TRACK_TIMESTAMP_SCALE,
    AUDIO,
];

/// An element whose length is known.
#[derive(Debug, Clone, Copy)]
struct Element {
    id: u32,
    body_at: usize,
    end: usize,
}

impl Element {
    const fn body(self) -> std::ops::Range<usize> {
        self.body_at..self.end
    }

    /// Reads the element at a position; `None` if it does not end before `end`.
    fn read(file: &[u8], at: usize, end: usize) -> Option<Self> {
        let (id, size_at) = read_id(file, at)?;
        let (size, body_at) = read_size(file, size_at)?;
        let end_of_body = body_at.checked_add(usize::try_from(size?).ok()?)?;
        (end_of_body <= end).then_some(Self { id, body_at, end: end_of_body })
    }

    fn children(self, file: &[u8]) -> impl Iterator<Item = Self> {
        let mut at = self.body_at;
        std::iter::from_fn(move || {
            let child = Self::read(file, at, self.end)?;
            at = child.end;
            Some(child)
        })
    }
}

/// The parts of a file.
struct Found {
    ebml: Element,
    info: Option<Element>,
    tracks: Option<Element>,
    /// Position of the first cluster.
    clusters_at: Option<usize>,
}

impl Found {
    fn find(file: &[u8]) -> Option<Self> {
        let ebml = Element::read(file, 0, file.len()).filter(|element| element.id == EBML)?;
        let (_, size_at) = read_id(file, ebml.end).filter(|(id, _)| *id == SEGMENT)?;
        let (_, mut at) = read_size(file, size_at)?;
        let mut found = Self { ebml, info: None, tracks: None, clusters_at: None };
        // Headers behind the clusters are found if the lengths of these are known.
        while let Some((id, _)) = read_id(file, at) {
            if id == CLUSTER {
                found.clusters_at.get_or_insert(at);
            }
            let is_complete = found.tracks.is_some() && found.clusters_at.is_some();
            let Some(element) = Element::read(file, at, file.len()).filter(|_| !is_complete) else { break };
            match id {
                INFO => found.info = found.info.or(Some(element)),
                TRACKS => found.tracks = found.tracks.or(Some(element)),
                _ => {}
            }
            at = element.end;
        }
        Some(found)
    }
}

/// The unit of timestamps, and the names that symphonia expects.
fn plain_info(file: &[u8], info: Option<Element>) -> Vec<u8> {
    let mut plain = Vec::new();
    let mut children = info.into_iter().flat_map(|info| info.children(file));
    if let Some(scale) = children.find(|child| child.id == TIMESTAMP_SCALE) {
        append(&mut plain, TIMESTAMP_SCALE, &file[scale.body()]);
    }
    append(&mut plain, MUXING_APP, b"-");
    append(&mut plain, WRITING_APP, b"-");
    plain
}

fn plain_tracks(file: &[u8], tracks: Element) -> Result<Vec<u8>, Error> {
    let mut plain = Vec::new();
    for (at, entry) in tracks.children(file).filter(|child| child.id == TRACK_ENTRY).enumerate() {
        if at >= TRACKS_MAX {
            return Err(Error::LimitError("more tracks than any recording has"));
        }
        append(&mut plain, TRACK_ENTRY, &plain_track(file, entry));
    }
    Ok(plain)
}

/// Of a track without audio, only the number is kept, because symphonia rejects blocks of unknown tracks.
fn plain_track(file: &[u8], entry: Element) -> Vec<u8> {
    let children = || entry.children(file);
    let has_audio = children().any(|child| child.id == AUDIO);
    let kept: &[u32] = if has_audio { &AUDIO_TRACK } else { &[TRACK_NUMBER, TRACK_UID] };
    let mut plain = Vec::new();
    for id in kept {
        if let Some(child) = children().find(|child| child.id == *id) {
            append(&mut plain, *id, &file[child.body()]);
        }
    }
    if !has_audio {
        append(&mut plain, CODEC_ID, b"-");
    }
    plain
}

fn append(out: &mut Vec<u8>, id: u32, body: &[u8]) {
    append_id(out, id);
    let size = body.len() as u64 | 1 << 56;
    out.extend_from_slice(&size.to_be_bytes());
    out.extend_from_slice(body);
}

fn append_id(out: &mut Vec<u8>, id: u32) {
    out.extend(id.to_be_bytes().into_iter().skip_while(|byte| *byte == 0));
}

/// Reads the number of an element, with its length marker, and the position behind it.
fn read_id(file: &[u8], at: usize) -> Option<(u32, usize)> {
    let len = file.get(at)?.leading_zeros() as usize + 1;
    let bytes = file.get(at..at + len).filter(|_| len <= 4)?;
    Some((bytes.iter().fold(0, |id, byte| id << 8 | u32::from(*byte)), at + len))
}

/// Reads a size of one to eight bytes, `None` if it is unknown, and the position behind it.
fn read_size(file: &[u8], at: usize) -> Option<(Option<u64>, usize)> {
    let len = file.get(at)?.leading_zeros() as usize + 1;
    let bytes = file.get(at..at + len).filter(|_| len <= 8)?;
    let marked = bytes.iter().fold(0, |size, byte| size << 8 | u64::from(*byte));
    let mask = (1_u64 << (7 * len)) - 1;
    let size = marked & mask;
    Some(((size != mask).then_some(size), at + len))
}
