//! Files as the world has them: joined, cut off, damaged, with other bytes around them, wrong counts and edits.

use voxbridge_test_support::cases::listed;

use super::*;

/// Files by their names.
pub(super) type Files = BTreeMap<String, Vec<u8>>;

/// Joined files that ffmpeg decodes whole.
const JOINS: [(&str, &str); 13] = [
    ("tags.mp3", "44k1_cbr.mp3 44k1_cbr.mp3"),
    ("bare.mp3", "44k1_bare.mp3 44k1_bare.mp3"),
    ("tag_bare.mp3", "44k1_vbr.mp3 44k1_bare.mp3"),
    ("rates.mp3", "48k2_bare.mp3 16k1_bare.mp3"),
    ("many.mp3", "16k1_vbr.mp3 48k2_vbr.mp3 24k2_cbr.mp3"),
    ("same.aac", "48k2_adts.aac 48k2_adts.aac"),
    ("rates.aac", "16k1_adts.aac 44k1_adts.aac 48k2_adts.aac"),
    ("same.webm", "48k2_opus.webm 48k2_opus.webm"),
    ("live.webm", "16k1_live.webm 48k2_live.webm"),
    ("vorbis.webm", "44k1_vorbis.webm 44k1_vorbis.webm"),
    ("opus.ogg", "16k1_opus.ogg 48k2_opus.ogg"),
    ("vorbis.ogg", "44k1_vorbis.ogg 48k2_vorbis.ogg"),
    ("flac.ogg", "44k1_flac.ogg 16k1_flac.ogg"),
];

/// Joined files: ffmpeg decodes only the first, or loses audio at the joint.
pub(super) const JOINS_BEYOND_FFMPEG: [(&str, &str); 7] = [
    ("same.flac", "16k1_plain.flac 16k1_plain.flac"),
    ("rates.flac", "16k1_plain.flac 48k2_plain.flac"),
    ("codecs.ogg", "16k1_opus.ogg 44k1_vorbis.ogg"),
    ("same.wav", "16k1_s16.wav 16k1_s16.wav"),
    ("rates.wav", "16k1_s16.wav 44k1_s24.wav"),
    ("fragments.mp4", "48k2_fragments.mp4 48k2_fragments.mp4"),
    ("same.m4a", "48k2_aac.m4a 48k2_aac.m4a"),
];

/// Recordings one after another in one file.
pub(super) fn joined(files: &Files) -> Vec<(String, Vec<u8>)> {
    let join = |parts: &str| parts.split(' ').flat_map(|part| files[part].clone()).collect();
    let joins = JOINS.iter().chain(&JOINS_BEYOND_FFMPEG);
    joins.map(|(name, parts)| (format!("joined_{name}"), join(parts))).collect()
}

/// Other bytes before, between and behind.
pub(super) fn surrounded(files: &Files) -> Vec<(String, Vec<u8>)> {
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let ape = [
        b"APETAGEX",
        &numbers(&[2000, 64, 1, 0xa000_0000, 0, 0])[..],
        &[7; 32],
        b"APETAGEX",
        &numbers(&[2000, 64, 1, 0x8000_0000, 0, 0]),
    ]
    .concat();
    let id3 = [b"ID3\x04\0\0\0\0\x01\0", &[0; 128][..]].concat();
    let id3v1 = [b"TAG", &[b' '; 125][..]].concat();
    let mut made = Vec::new();
    for name in ["44k1_bare.mp3", "48k2_bare_vbr.mp3", "44k1_adts.aac"] {
        let file = &files[name][..];
        let variants: [(&str, Vec<u8>); 9] = [
            ("ape", [&ape, file].concat()),
            ("bom", [b"\xef\xbb\xbf", file].concat()),
            ("lines", [b"\r\n\r\n", file].concat()),
            ("zeros", [&[0; 3000], file].concat()),
            ("middle", file[777..].to_vec()),
            ("id3", [&id3, file].concat()),
            ("id3v1", [file, &id3v1].concat()),
            ("ape_behind", [file, &ape].concat()),
            ("id3_between", [file, &id3, file].concat()),
        ];
        made.extend(variants.map(|(label, bytes)| (format!("{label}_{name}"), bytes)));
    }
    let wav = [b"\xef\xbb\xbf\n", &files["16k1_s16.wav"][..]].concat();
    made.push(("id3v1.flac".to_owned(), [&files["16k1_plain.flac"][..], &id3v1].concat()));
    made.push(("ape.flac".to_owned(), [&files["16k1_plain.flac"][..], &ape].concat()));
    made.push((
        "download.ogg".to_owned(),
        [b"HTTP/1.1 200 OK\r\n\r\n", &files["16k1_opus.ogg"][..]].concat(),
    ));
    let uuid = [&[0, 0, 0, 24][..], b"uuid", &[5; 16], &files["16k1_fast.m4a"]].concat();
    made.push(("bom_16k1_s16.wav".to_owned(), wav));
    made.push(("uuid.m4a".to_owned(), shift_chunks(uuid, 24)));
    made
}

/// Adds to the positions in the table of chunks.
fn shift_chunks(mut file: Vec<u8>, by: u32) -> Vec<u8> {
    let at = memchr_of(&file, b"stco");
    let count = number(&file, at + 8);
    for chunk in 0..count as usize {
        let place = at + 12 + 4 * chunk;
        let moved = number(&file, place) + by;
        file[place..place + 4].copy_from_slice(&moved.to_be_bytes());
    }
    file
}

fn memchr_of(file: &[u8], text: &[u8]) -> usize {
    file.windows(text.len()).position(|window| window == text).unwrap()
}

fn number(file: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(file[at..at + 4].try_into().unwrap())
}

/// Files without their end.
pub(super) fn cut_off(files: &Files) -> Vec<(String, Vec<u8>)> {
    let names = listed(
        "44k1_cbr.mp3 44k1_vbr.mp3 48k2_fast.m4a 48k2_fragments.mp4 48k2_opus.webm 16k1_live.webm \
        44k1_vorbis.ogg 16k1_opus.ogg 16k1_plain.flac 16k1_s16.wav 44k1_adts.aac 48k2_aac.mkv \
        16k1_s16.aiff 16k1_s16le.caf 44k1_flac.ogg",
    );
    let cut = |name: &&str| (format!("cut_{name}"), files[*name][..files[*name].len() * 6 / 10].to_vec());
    names.iter().map(cut).collect()
}

/// The number of frames in the tag of an mp3 file is wrong.
pub(super) fn counted_wrong(files: &Files) -> Vec<(String, Vec<u8>)> {
    let mut made = Vec::new();
    for name in ["44k1_cbr.mp3", "44k1_vbr.mp3", "24k2_vbr.mp3"] {
        let tag = |window: &[u8]| window == b"Xing" || window == b"Info";
        let at = files[name].windows(4).position(tag).unwrap() + 8;
        let count = number(&files[name], at);
        for (label, wrong) in [("zero", 0), ("third", count / 3), ("less", count - 1), ("more", count + 3)] {
            let mut file = files[name].clone();
            file[at..at + 4].copy_from_slice(&wrong.to_be_bytes());
            made.push((format!("count_{label}_{name}"), file));
        }
    }
    made
}

/// The positions in Ogg pages count something else than samples.
pub(super) fn positioned_wrong(files: &Files) -> Vec<(String, Vec<u8>)> {
    type Position = fn(u64, u64) -> u64;
    let kinds: [(&str, Position); 4] = [
        ("offset", |position, _| position + 100_000_000),
        ("bytes", |_, bytes| bytes),
        ("slow", |position, _| position / 3),
        ("zero", |_, _| 0),
    ];
    let mut made = Vec::new();
    for name in ["44k1_vorbis.ogg", "48k2_opus.ogg", "16k1_opus.ogg"] {
        for (label, position) in kinds {
            made.push((format!("position_{label}_{name}"), with_positions(&files[name], position)));
        }
    }
    made
}

/// Opus streams that were cut out of longer ones: the decoder drops more at the start.
pub(super) fn skipped_at_start(files: &Files) -> Vec<(String, Vec<u8>)> {
    let mut made = Vec::new();
    for name in ["48k2_opus.ogg", "16k1_opus.ogg"] {
        for pre_skip in [0_u16, 3840, u16::MAX] {
            let mut file = files[name].clone();
            // The identification follows the header of its page and the length of its packet.
            file[38..40].copy_from_slice(&pre_skip.to_le_bytes());
            made.push((format!("skip_{pre_skip}_{name}"), with_positions(&file, |position, _| position)));
        }
    }
    made
}

fn with_positions(file: &[u8], position: fn(u64, u64) -> u64) -> Vec<u8> {
    let (mut out, mut at, mut bytes) = (Vec::new(), 0, 0);
    for count in 0.. {
        let Some(header) = file.get(at..at + 27) else { break };
        let segments = usize::from(header[26]);
        let body: usize = file[at + 27..at + 27 + segments].iter().map(|len| usize::from(*len)).sum();
        let mut page = file[at..at + 27 + segments + body].to_vec();
        at += page.len();
        if count >= 2 {
            bytes += body as u64;
            let old = u64::from_le_bytes(page[6..14].try_into().unwrap());
            page[6..14].copy_from_slice(&position(old, bytes).to_le_bytes());
        }
        page[22..26].fill(0);
        let sum = checksum(&page);
        page[22..26].copy_from_slice(&sum.to_le_bytes());
        out.extend(page);
    }
    out
}

/// Checksum of an Ogg page (RFC 3533 §6).
fn checksum(page: &[u8]) -> u32 {
    page.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    })
}

/// An edit of a movie, in seconds: length, and begin in the media or nothing.
type Edit = (f64, Option<f64>);

/// Edits of movies.
pub(super) const EDITS: [(&str, &[Edit]); 5] = [
    ("begin", &[(1.5, Some(1.0))]),
    ("part", &[(1.0, Some(0.5)), (0.7, Some(1.9))]),
    ("swapped", &[(1.2, Some(1.4)), (1.0, Some(0.2))]),
    ("twice", &[(1.0, Some(0.5)), (1.0, Some(0.5))]),
    ("late", &[(2.0, None), (1.8, Some(0.4))]),
];

/// Movies whose index is at their end, with these edits.
pub(super) fn edited(files: &Files) -> Vec<(String, Vec<u8>)> {
    let mut made = Vec::new();
    for name in ["48k2_aac.m4a", "16k1_aac.mov", "44k1_s16le.mov", "44k1_alac.m4a"] {
        for (label, edits) in EDITS {
            made.push((format!("edit_{label}_{name}"), with_edits(&files[name], edits)));
        }
    }
    made
}

fn with_edits(file: &[u8], edits: &[(f64, Option<f64>)]) -> Vec<u8> {
    let movie_ticks = f64::from(number(file, memchr_of(file, b"mvhd") + 16));
    let media_ticks = f64::from(number(file, memchr_of(file, b"mdhd") + 16));
    let edit = |(length, start): &(f64, Option<f64>)| {
        let start = start.map_or(-1, |start| (start * media_ticks).round() as i32);
        [
            ((length * movie_ticks).round() as i32).to_be_bytes(),
            start.to_be_bytes(),
            0x1_0000_i32.to_be_bytes(),
        ]
        .concat()
    };
    let body =
        [&[0; 4][..], &(edits.len() as u32).to_be_bytes(), &edits.iter().flat_map(edit).collect::<Vec<_>>()]
            .concat();
    let list = new_box(b"edts", &new_box(b"elst", &body));
    let (movie, track, old) =
        (memchr_of(file, b"moov") - 4, memchr_of(file, b"trak") - 4, memchr_of(file, b"edts") - 4);
    let old_len = number(file, old) as usize;
    let mut out = file.to_vec();
    out.splice(old..old + old_len, list.iter().copied());
    for outer in [movie, track] {
        let len = number(file, outer) + list.len() as u32 - old_len as u32;
        out[outer..outer + 4].copy_from_slice(&len.to_be_bytes());
    }
    out
}

fn new_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes(), &kind[..], body].concat()
}
