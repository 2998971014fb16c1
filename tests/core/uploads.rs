//! Uploads that are made to cost memory or work: what they announce is checked before anything is allocated for it.

use voxbridge::media::MediaError;
use voxbridge_test_support::wait::thread_cpu_time;

use super::*;

const RECORDER_WEBM: &[u8] = include_bytes!("../media/recorder.webm");
const HYBRID_OGG: &[u8] = include_bytes!("../media/hybrid.ogg");
const VORBIS_OGG: &[u8] = include_bytes!("../media/vorbis.ogg");
const SPEECH_FLAC: &[u8] = include_bytes!("../media/speech.flac");
const SPEECH_MP3: &[u8] = include_bytes!("../media/vbr_stereo.mp3");
const SPEECH_M4A: &[u8] = include_bytes!("../media/moov_at_end.m4a");

/// Size of the metadata in these files.
const METADATA_BYTES: usize = 3_000_000;

/// How many changes are tried. Each costs some milliseconds.
const CHANGES_OF_EACH_FILE: usize = 24;

/// Most memory for anything but the file. The decoder of the golden Vorbis file takes 1.9 MB.
const MEMORY_MAX: u64 = 2_500_000;

/// Decodes a file. Returns the audio, the error and the most memory beside the file.
fn decode(file: Vec<u8>) -> (Vec<i16>, Option<MediaError>, u64) {
    let (file, mut samples, mut error) = (Bytes::from(file), Vec::with_capacity(1 << 20), None);
    let allocations = measure(|| match Decoder::open(file, DecodeLimits::default()) {
        Ok(mut decoder) => {
            for chunk in std::iter::from_fn(|| decoder.next_chunk()) {
                match chunk {
                    Ok(audio) => samples.extend(audio),
                    Err(damage) => error = Some(damage),
                }
            }
        }
        Err(damage) => error = Some(damage),
    });
    (samples, error, allocations.bytes_max)
}

#[track_caller]
fn assert_refused(file: Vec<u8>, problem: &str) {
    let (samples, error, memory) = decode(file);
    let error = error.expect("the file is refused").to_string();
    assert!(samples.is_empty() && error.contains(problem), "{error}");
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

// --- Vorbis

/// Writes bits as Vorbis packs them, the lowest first.
#[derive(Default)]
struct Bits(Vec<bool>);

impl Bits {
    fn push(&mut self, value: u64, count: u32) {
        self.0.extend((0..count).map(|bit| value.checked_shr(bit).unwrap_or(0) & 1 == 1));
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        self.0.chunks(8).map(byte).collect()
    }
}

/// Setup header with codebooks of 131 072 code words of 17 bits. Those with a lookup table have 32 values for each.
fn huge_vorbis_setup(codebooks: usize, has_lookup: bool) -> Vec<u8> {
    let mut bits = Bits::default();
    bits.push(codebooks as u64 - 1, 8);
    for _ in 0..codebooks {
        for (value, count) in [(0x56_4342, 24), (32, 16), (131_072, 24), (1, 1), (16, 5), (131_072, 18)] {
            bits.push(value, count);
        }
        bits.push(has_lookup.into(), 4);
        if has_lookup {
            // Minimum, step, length of a value, sequence, and the one value.
            bits.push(0, 32 + 32 + 4 + 1 + 1);
        }
    }
    [b"\x05vorbis", &bits.bytes()[..]].concat()
}

fn vorbis_identification() -> Vec<u8> {
    let mut packet = b"\x01vorbis\0\0\0\0\x01\x44\xac\0\0".to_vec();
    packet.extend([0; 12]);
    packet.extend([0xb8, 1]);
    packet
}

const VORBIS_COMMENT: &[u8] = b"\x03vorbis\0\0\0\0\0\0\0\0\x01";

// --- containers

fn element(id: &[u8], body: &[u8]) -> Vec<u8> {
    [id, &(body.len() as u64 | 1 << 56).to_be_bytes(), body].concat()
}

/// One audio track at 8 kHz, and one block.
fn webm(codec: &[u8], private: &[u8], block: &[u8]) -> Vec<u8> {
    let audio =
        [element(&[0xb5], &8000_f64.to_be_bytes()), element(&[0x9f], &[1]), element(&[0x62, 0x64], &[16])];
    let entry = [
        element(&[0xd7], &[1]),
        element(&[0x73, 0xc5], &[1]),
        element(&[0x83], &[2]),
        element(&[0x86], codec),
        element(&[0x63, 0xa2], private),
        element(&[0xe1], &audio.concat()),
    ];
    let info = [element(&[0x4d, 0x80], b"-"), element(&[0x57, 0x41], b"-")].concat();
    let block = element(&[0xa3], &[&[0x81, 0, 0, 0], block].concat());
    let segment = [
        element(&[0x15, 0x49, 0xa9, 0x66], &info),
        element(&[0x16, 0x54, 0xae, 0x6b], &element(&[0xae], &entry.concat())),
        element(&[0x1f, 0x43, 0xb6, 0x75], &[element(&[0xe7], &[0]), block].concat()),
    ];
    let header = element(&[0x1a, 0x45, 0xdf, 0xa3], &element(&[0x42, 0x82], b"webm"));
    [header, element(&[0x18, 0x53, 0x80, 0x67], &segment.concat())].concat()
}

fn vorbis_webm(setup: &[u8]) -> Vec<u8> {
    let identification = vorbis_identification();
    let lengths = [2, identification.len() as u8, VORBIS_COMMENT.len() as u8];
    webm(b"A_VORBIS", &[&lengths[..], &identification, VORBIS_COMMENT, setup].concat(), &[])
}

/// PCM whose sample entry announces a number of frames in each packet (QuickTime File Format, "Sound sample description,
/// version 2").
fn lpcm_mp4(frames: u32) -> Vec<u8> {
    let numbers =
        |numbers: &[u32]| numbers.iter().flat_map(|number| number.to_be_bytes()).collect::<Vec<u8>>();
    let version_2 =
        [&numbers(&[72])[..], &8000_f64.to_be_bytes(), &numbers(&[2, 0x7f00_0000, 16, 4, 4, frames])];
    let entry = [&[0, 0, 0, 0, 0, 0, 0, 1, 0, 2][..], &[0; 6], &[0, 3, 0, 16], &[0; 8], &version_2.concat()];
    let description = [numbers(&[0, 1]), mp4_box(b"lpcm", &entry.concat())].concat();
    let table = [
        mp4_box(b"stsd", &description),
        mp4_box(b"stts", &numbers(&[0, 1, 1, 1])),
        mp4_box(b"stsc", &numbers(&[0, 1, 1, 1, 1])),
        mp4_box(b"stsz", &numbers(&[0, 4, 1])),
        mp4_box(b"stco", &numbers(&[0, 1, 0])),
    ];
    let media = [
        mp4_box(b"mdhd", &numbers(&[0, 0, 0, 8000, 1, 0])),
        mp4_box(b"hdlr", &[&[0; 8][..], b"soun", &[0; 13]].concat()),
        mp4_box(b"minf", &mp4_box(b"stbl", &table.concat())),
    ];
    let track = [
        mp4_box(b"tkhd", &numbers(&[&[0, 0, 0, 1][..], &[0; 17]].concat())),
        mp4_box(b"mdia", &media.concat()),
    ];
    let movie = [
        mp4_box(b"mvhd", &numbers(&[&[0, 0, 0, 8000, 1][..], &[0; 20]].concat())),
        mp4_box(b"trak", &track.concat()),
    ];
    [mp4_box(b"ftyp", b"M4A \0\0\0\0"), mp4_box(b"moov", &movie.concat()), mp4_box(b"mdat", &[0; 4])].concat()
}

/// Writes packets to pages of a stream, each beginning a page.
fn ogg_pages(stream: &[u8], first_sequence: u32, packets: &[&[u8]]) -> Vec<u8> {
    let (mut pages, mut sequence) = (Vec::new(), first_sequence);
    for packet in packets {
        for (at, part) in packet.chunks(255 * 255).enumerate() {
            let flags = if at > 0 { 1 } else { 2 * u8::from(sequence == 0) };
            let mut lacing = vec![255; part.len() / 255];
            if part.len() < 255 * 255 {
                lacing.push((part.len() % 255) as u8);
            }
            pages.extend(ogg_page(stream, flags, sequence, &lacing, part));
            sequence += 1;
        }
    }
    pages
}

fn ogg_page(stream: &[u8], flags: u8, sequence: u32, lacing: &[u8], body: &[u8]) -> Vec<u8> {
    let mut page = [b"OggS\0", &[flags][..], &[0; 8], stream, &sequence.to_le_bytes(), &[0; 4]].concat();
    page.push(lacing.len() as u8);
    page.extend_from_slice(lacing);
    page.extend_from_slice(body);
    let sum = page.iter().fold(0_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 24, |sum, _| {
            sum << 1 ^ if sum >> 31 == 1 { 0x04c1_1db7 } else { 0 }
        })
    });
    page[22..26].copy_from_slice(&sum.to_le_bytes());
    page
}

/// Pages of a file: positions and lacing.
fn pages_of(file: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let (mut pages, mut at) = (Vec::new(), 0);
    while at < file.len() {
        let lacing = file[at + 27..at + 27 + usize::from(file[at + 26])].to_vec();
        let len = 27 + lacing.len() + lacing.iter().map(|len| usize::from(*len)).sum::<usize>();
        pages.push((at, lacing));
        at += len;
    }
    pages
}

fn mp4_box(kind: &[u8; 4], body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes(), &kind[..], body].concat()
}

/// Tags as short as possible: Vorbis comments without a vendor.
fn vorbis_tags() -> Vec<u8> {
    let tag = b"\x02\0\0\0a=";
    let count = METADATA_BYTES / tag.len();
    [&[0; 4][..], &(count as u32).to_le_bytes(), &tag.repeat(count)].concat()
}

// --- golden files with metadata

fn flac_with_tags() -> Vec<u8> {
    let block = |kind: u32, body: &[u8]| [&(kind << 24 | body.len() as u32).to_be_bytes()[..], body].concat();
    let picture =
        [&[0, 0, 0, 3][..], &[0; 24], &(METADATA_BYTES as u32).to_be_bytes(), &vec![7; METADATA_BYTES]];
    let mut file = SPEECH_FLAC[..4 + 4 + 34].to_vec();
    // The stream information is no longer the last block. The last is empty padding.
    file[4] = 0;
    file.extend([block(4, &vorbis_tags()), block(6, &picture.concat()), block(0x81, b"")].concat());
    let mut audio_at = 4;
    loop {
        let header = u32::from_be_bytes(SPEECH_FLAC[audio_at..audio_at + 4].try_into().unwrap());
        audio_at += 4 + (header & 0xff_ffff) as usize;
        if header >> 31 == 1 {
            break;
        }
    }
    [&file, &SPEECH_FLAC[audio_at..]].concat()
}

fn webm_with_tags() -> Vec<u8> {
    let tag = element(&[0x67, 0xc8], &[element(&[0x45, 0xa3], b"A"), element(&[0x44, 0x87], b"b")].concat());
    let tags = element(&[0x73, 0x73], &tag.repeat(METADATA_BYTES / tag.len()));
    let attached = element(&[0x61, 0xa7], &element(&[0x46, 0x5c], &vec![7; METADATA_BYTES]));
    let metadata =
        [element(&[0x12, 0x54, 0xc3, 0x67], &tags), element(&[0x19, 0x41, 0xa4, 0x69], &attached)].concat();
    let cluster_at = RECORDER_WEBM.windows(4).position(|id| id == [0x1f, 0x43, 0xb6, 0x75]).unwrap();
    [&RECORDER_WEBM[..cluster_at], &metadata, &RECORDER_WEBM[cluster_at..]].concat()
}

fn opus_with_tags() -> Vec<u8> {
    let pages = pages_of(HYBRID_OGG);
    let tags = [&b"OpusTags"[..], &vorbis_tags()].concat();
    let tags = ogg_pages(&HYBRID_OGG[14..18], 1, &[&tags]);
    [&HYBRID_OGG[..pages[1].0], &tags, &HYBRID_OGG[pages[2].0..]].concat()
}

fn vorbis_with_tags() -> Vec<u8> {
    let pages = pages_of(VORBIS_OGG);
    // The second page has the comment and the setup.
    let (at, lacing) = &pages[1];
    let segments = lacing.iter().position(|len| *len < 255).unwrap() + 1;
    let comment_len: usize = lacing[..segments].iter().map(|len| usize::from(*len)).sum();
    let setup = &VORBIS_OGG[at + 27 + lacing.len() + comment_len..pages[2].0];
    let comment = [&b"\x03vorbis"[..], &vorbis_tags(), &[1]].concat();
    let headers = ogg_pages(&VORBIS_OGG[14..18], 1, &[&comment, setup]);
    [&VORBIS_OGG[..*at], &headers, &VORBIS_OGG[pages[2].0..]].concat()
}

fn m4a_with_tags() -> Vec<u8> {
    let item = mp4_box(b"\xa9nam", &mp4_box(b"data", &[0, 0, 0, 1, 0, 0, 0, 0, b'x']));
    let list = mp4_box(b"ilst", &item.repeat(METADATA_BYTES / item.len()));
    let metadata = mp4_box(b"meta", &[&[0; 4][..], &list].concat());
    let movie_at = SPEECH_M4A.windows(4).position(|kind| kind == b"moov").unwrap() - 4;
    let movie = [&SPEECH_M4A[movie_at + 8..], &mp4_box(b"udta", &metadata)].concat();
    [&SPEECH_M4A[..movie_at], &mp4_box(b"moov", &movie), &metadata].concat()
}

fn wav_with_tags() -> Vec<u8> {
    let plain = wav::write_s16(&[500; 16_000], 16_000);
    let info = [b"INFO".to_vec(), b"INAM\x02\0\0\0x\0".repeat(METADATA_BYTES / 10)].concat();
    let list = [b"LIST", &(info.len() as u32).to_le_bytes()[..], &info].concat();
    [&plain[..36], &list, &plain[36..]].concat()
}

fn mp3_with_tags() -> Vec<u8> {
    let size = [21, 14, 7, 0].map(|shift| (METADATA_BYTES >> shift & 0x7f) as u8);
    let tags = b"TXXX\0\0\0\x03\0\0\0a\0".repeat(METADATA_BYTES / 13 + 1);
    [b"ID3\x04\0\0", &size[..], &tags[..METADATA_BYTES], SPEECH_MP3].concat()
}

// --- tests

#[test]
fn vorbis_setup_with_huge_codebooks_is_refused_before_anything_is_allocated() {
    for (codebooks, has_lookup) in [(256, true), (16, true), (256, false)] {
        let setup = huge_vorbis_setup(codebooks, has_lookup);
        assert!(setup.len() < 5400, "{} bytes", setup.len());
        assert_refused(vorbis_webm(&setup), "the Vorbis setup");
        let headers = ogg_pages(b"song", 0, &[&vorbis_identification(), VORBIS_COMMENT, &setup]);
        let audio = ogg_pages(b"song", 9, &[&[0; 20]]);
        assert_refused([headers, audio].concat(), "the Vorbis setup");
    }
}

#[test]
fn tags_and_pictures_take_no_memory_in_any_container() {
    let plain_wav = wav::write_s16(&[500; 16_000], 16_000);
    for (name, plain, tagged) in [
        ("flac", SPEECH_FLAC, flac_with_tags()),
        ("webm", RECORDER_WEBM, webm_with_tags()),
        ("opus", HYBRID_OGG, opus_with_tags()),
        ("vorbis", VORBIS_OGG, vorbis_with_tags()),
        ("m4a", SPEECH_M4A, m4a_with_tags()),
        ("wav", &plain_wav, wav_with_tags()),
        ("mp3", SPEECH_MP3, mp3_with_tags()),
    ] {
        let (expected, _, _) = decode(plain.to_vec());
        let (samples, error, memory) = decode(tagged);
        assert!(samples == expected && error.is_none(), "{name}: {} samples, {error:?}", samples.len());
        assert!(memory < MEMORY_MAX, "{name}: {memory} bytes");
    }
}

#[test]
fn vorbis_headers_among_the_audio_are_left_out() {
    let last_page = pages_of(VORBIS_OGG).pop().unwrap().0;
    let stream = &VORBIS_OGG[14..18];
    // Each setup would be appended to the headers.
    let headers = ogg_pages(stream, 3, &[&b"\x05vorbis"[..], VORBIS_COMMENT].repeat(2000));
    let file = [&VORBIS_OGG[..last_page], &headers, &VORBIS_OGG[last_page..]].concat();
    let (mut plain, mut odd) = (None, None);
    let expected_work = measure(|| plain = Some(decode(VORBIS_OGG.to_vec()))).bytes_total;
    let work = measure(|| odd = Some(decode(file))).bytes_total;
    let ((expected, _, _), (samples, error, _)) = (plain.unwrap(), odd.unwrap());
    assert_eq!((samples, error), (expected, None));
    assert!(work < expected_work + 4_000_000, "{work} bytes in all instead of {expected_work}");
}

#[test]
fn ogg_pages_that_are_damaged_and_overlap_are_refused_after_a_bounded_number() {
    let mut page = ogg_page(b"song", 0, 1, &[255; 255], &[0; 255 * 255]);
    page.truncate(27);
    page[22] ^= 1;
    let (samples, error, _) = decode([HYBRID_OGG, &page.repeat(5000)].concat());
    let error = error.unwrap().to_string();
    assert!(samples.len() == 19_200 && error.contains("damaged pages"), "{error}");
}

#[test]
fn ogg_streams_in_a_row_are_bounded() {
    let one = &HYBRID_OGG[..pages_of(HYBRID_OGG)[2].0];
    assert_refused(one.repeat(300), "streams in a row");
}

#[test]
fn packets_that_announce_billions_of_samples_take_no_memory() {
    let (samples, error, memory) = decode(lpcm_mp4(u32::MAX));
    assert_eq!((samples.len(), error), (2, None));
    assert!(memory < MEMORY_MAX, "{memory} bytes");
}

#[test]
fn packet_of_megabytes_is_not_decoded() {
    let (samples, error, memory) = decode(webm(b"A_PCM/INT/LIT", &[], &vec![1; METADATA_BYTES]));
    let error = error.unwrap().to_string();
    assert!(samples.is_empty() && error.contains("a packet is longer than 1 MiB"), "{error}");
    // The block and the packet.
    assert!(memory < 2 * METADATA_BYTES as u64 + MEMORY_MAX, "{memory} bytes");
}

/// Files of the golden recordings with some bytes changed: single ones, or a stretch, or a stretch repeated or left out.
fn changed(file: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut bytes = file.to_vec();
    for _ in 0..random.usize(1..6) {
        let (at, len) = (random.usize(..bytes.len()), random.usize(1..2000));
        let stretch = at..(at + len).min(bytes.len());
        match random.u8(..4) {
            0 => bytes[at] = random.u8(..),
            1 => bytes[stretch].fill_with(|| random.u8(..)),
            2 => {
                let copy = bytes[stretch].to_vec();
                bytes.splice(at..at, copy);
            }
            _ => drop(bytes.drain(stretch)),
        }
        if bytes.is_empty() {
            return file.to_vec();
        }
    }
    bytes
}

#[test]
fn changed_files_cost_little_memory_and_time_for_the_audio_they_have() {
    let mut random = fastrand::Rng::with_seed(7);
    let (mut worst, mut audio_s) = (0.0_f64, 0.0);
    for entry in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/media")).unwrap() {
        let path = entry.unwrap().path();
        let Some(name) = path.file_name().filter(|_| path.extension().is_some()) else { continue };
        let file = fs::read(&path).unwrap();
        for _ in 0..CHANGES_OF_EACH_FILE {
            let file = changed(&file, &mut random);
            let memory_max = 10 * file.len() as u64 + 16_000_000;
            let start = thread_cpu_time();
            let (samples, _, memory) = decode(file);
            let seconds = samples.len() as f64 / 16_000.0;
            let cpu_s = (thread_cpu_time() - start).as_secs_f64();
            assert!(memory < memory_max, "{name:?}: {memory} bytes");
            assert!(cpu_s < 0.1 + 0.2 * seconds, "{name:?}: {cpu_s:.3} s of CPU for {seconds:.1} s of audio");
            worst = worst.max(cpu_s - 0.2 * seconds);
            audio_s += seconds;
        }
    }
    assert!(audio_s > 100.0, "most of the audio is still heard: {audio_s} s");
    println!("at most {:.0} ms beyond 0.2 s for each second; {audio_s:.0} s of audio", worst * 1e3);
}
