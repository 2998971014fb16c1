//! Names of file formats by their first bytes.

use super::frame_headers::{ParseHeader, adts_header, is_same_stream, mpeg_header, mpeg_layer};

/// Box types that begin an ISO base media file. Files of old QuickTime versions have no `ftyp`.
const FIRST_MP4_BOXES: [&[u8]; 9] =
    [b"ftyp", b"moov", b"mdat", b"wide", b"free", b"styp", b"skip", b"uuid", b"pnot"];

/// Name of the container that begins with these bytes. WAV is not among them.
pub fn container_name(file: &[u8]) -> Option<&'static str> {
    match file {
        [b'f', b'L', b'a', b'C', ..] => Some("flac"),
        [b'O', b'g', b'g', b'S', ..] => Some("ogg"),
        [0x1a, 0x45, 0xdf, 0xa3, ..] => Some("webm"),
        [b'F', b'O', b'R', b'M', _, _, _, _, b'A', b'I', b'F', b'F' | b'C', ..] => Some("aiff"),
        [b'c', b'a', b'f', b'f', ..] => Some("caf"),
        _ if file.get(4..8).is_some_and(|kind| FIRST_MP4_BOXES.contains(&kind)) => Some("mp4"),
        _ => None,
    }
}

/// Name of the file format of a live stream that begins with these bytes; `None` for raw audio, also behind the header of a WAV
/// file, which is too short to be heard. Frames of mp3 and AAC are told from samples by a second one behind the first.
pub fn stream_format(start: &[u8]) -> Option<&'static str> {
    container_name(start).or_else(|| match start {
        [b'I', b'D', b'3', 2..=4, ..] => Some("mp3"),
        [b'#', b'!', b'A', b'M', b'R', ..] => Some("AMR"),
        _ if mpeg_header(start).is_some_and(|header| mpeg_layer(header.key) == 3)
            && is_repeated(start, mpeg_header) =>
        {
            Some("mp3")
        }
        _ => is_repeated(start, adts_header).then_some("AAC"),
    })
}

/// True if a second frame of the same stream follows the first.
fn is_repeated(start: &[u8], parse: ParseHeader) -> bool {
    let Some(header) = parse(start) else { return false };
    start.get(header.len..).is_some_and(|rest| is_same_stream(rest, &header, parse))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn first_bytes_name_the_format() {
        let mp3 = [&[0xff, 0xfb, 0x90, 0xc0][..], &[0; 413]].concat().repeat(2);
        let adts = [&[0xff, 0xf1, 0x50, 0x80, 0x02, 0x1f, 0xfc][..], &[0; 9]].concat().repeat(2);
        for (start, name) in [
            (&b"\x1a\x45\xdf\xa3\x9f"[..], Some("webm")),
            (b"OggS\0\x02", Some("ogg")),
            (b"fLaC\0\0", Some("flac")),
            (b"\0\0\0\x1cftypM4A ", Some("mp4")),
            (b"FORM\0\0\0\0AIFC", Some("aiff")),
            (b"ID3\x04\0\0", Some("mp3")),
            (b"#!AMR\n", Some("AMR")),
            (&mp3, Some("mp3")),
            (&mp3[..417], None),
            (&adts, Some("AAC")),
            (&adts[..16], None),
            (b"RIFF\x24\0\0\0WAVEfmt ", None),
            (b"", None),
        ] {
            assert_eq!(stream_format(start), name, "{:02x?}", &start[..start.len().min(12)]);
        }
    }

    proptest! {
        #[test]
        fn samples_are_no_file(samples: Vec<i16>, quiet in prop::collection::vec(-64i16..64, 0..4000)) {
            for samples in [samples, quiet] {
                let bytes: Vec<u8> = samples.iter().flat_map(|sample| sample.to_le_bytes()).collect();
                prop_assert_eq!(stream_format(&bytes), None);
            }
        }
    }
}
