//! Checks pictures from clients and tools: base64 of a JPEG or PNG file.
//!
//! The C++ back-end ends the session over a picture that it cannot decode
//! (mappings/notes/llama-cpp-omni.md#rejections), without naming the cause. So invalid base64 and other formats are
//! rejected here. The contents of a client's file are not checked; those of a tool's are, as far as damage in transport shows.

use crate::{audio::pcm, vocabulary::VideoFrame};

/// First bytes of the picture formats that MiniCPM-o's back-ends read: JPEG (ITU-T T.81, B.1.1) and PNG.
const MAGIC: [&[u8]; 2] = [&[0xff, 0xd8, 0xff], &[0x89, b'P', b'N', b'G']];

/// True for a file in a format that the model can be shown.
pub(crate) fn is_picture(file: &[u8]) -> bool {
    MAGIC.iter().any(|magic| file.starts_with(magic))
}

/// Decodes a picture and checks that it is a JPEG or PNG file.
///
/// # Errors
/// Description of the invalid picture.
pub(crate) fn decode_picture(base64: &str) -> Result<VideoFrame, String> {
    let mut bytes = Vec::new();
    pcm::decode_base64(base64, &mut bytes).map_err(|error| format!("it is no base64: {error}"))?;
    if !is_picture(&bytes) {
        return Err("it is no JPEG or PNG file".to_owned());
    }
    Ok(VideoFrame(bytes.into()))
}

/// True for a JPEG or PNG file that is complete. The picture itself is not decoded.
#[cfg(feature = "mcp")]
pub(crate) fn is_whole(file: &[u8]) -> bool {
    match file.strip_prefix(b"\x89PNG\r\n\x1a\n") {
        Some(chunks) => is_whole_png(chunks),
        None => is_whole_jpeg(file),
    }
}

/// Checks the chunks of a PNG file: a length, a type, data and the checksum of the last two, up to `IEND` (PNG, 5.3).
#[cfg(feature = "mcp")]
fn is_whole_png(mut chunks: &[u8]) -> bool {
    let mut has_data = false;
    while let Some((length, rest)) = chunks.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        let parts = rest.split_at_checked(length.saturating_add(4));
        let Some((contents, Some((checksum, rest)))) =
            parts.map(|(contents, rest)| (contents, rest.split_first_chunk::<4>()))
        else {
            return false;
        };
        if png_checksum(contents) != u32::from_be_bytes(*checksum) {
            return false;
        }
        has_data |= contents.starts_with(b"IDAT");
        if contents.starts_with(b"IEND") {
            return has_data;
        }
        chunks = rest;
    }
    false
}

/// CRC-32 of ISO 3309, as in PNG.
#[cfg(feature = "mcp")]
fn png_checksum(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut at = 0;
        while at < 256 {
            let mut value = at as u32;
            let mut bit = 0;
            while bit < 8 {
                value = if value & 1 == 1 { 0xedb8_8320 ^ (value >> 1) } else { value >> 1 };
                bit += 1;
            }
            table[at] = value;
            at += 1;
        }
        table
    };
    let step = |sum: u32, byte: &u8| TABLE[usize::from(sum as u8 ^ byte)] ^ (sum >> 8);
    !bytes.iter().fold(u32::MAX, step)
}

/// Checks the segments of a JPEG file up to its first scan, which an end must follow (T.81, B.1.1).
#[cfg(feature = "mcp")]
fn is_whole_jpeg(file: &[u8]) -> bool {
    const START: [u8; 2] = [0xff, 0xd8];
    const END: [u8; 2] = [0xff, 0xd9];
    let Some(mut rest) = file.strip_prefix(&START) else { return false };
    let mut has_frame = false;
    while let [0xff, marker, behind @ ..] = rest {
        match marker {
            // A fill byte.
            0xff => {
                rest = &rest[1..];
                continue;
            }
            0xda => return has_frame && behind.windows(2).rev().any(|pair| pair == END),
            0xc4 | 0xc8 | 0xcc => {}
            0xc0..=0xcf => has_frame = true,
            _ => {}
        }
        let length = behind.first_chunk::<2>().map_or(0, |length| usize::from(u16::from_be_bytes(*length)));
        rest = behind.get(length.max(2)..).unwrap_or_default();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "mcp")]
    #[test]
    fn damage_of_a_file_is_found() {
        const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
        let png = decode_picture(PNG).unwrap().0.to_vec();
        let jpeg = b"\xff\xd8\xff\xe0\0\x04ab\xff\xc0\0\x03c\xff\xff\xda\0\x02scan\xff\xd9".to_vec();
        for file in [png, jpeg] {
            assert!(is_whole(&file), "{file:x?}");
            for length in 0..file.len() {
                assert!(!is_whole(&file[..length]), "{length} bytes of {file:x?}");
            }
        }
        let mut flipped = decode_picture(PNG).unwrap().0.to_vec();
        flipped[45] ^= 1;
        assert!(!is_whole(&flipped));
    }

    #[test]
    fn only_base64_of_pictures_is_accepted() {
        for text in ["/9j/4AAQ", "_9j_4AAQ"] {
            assert_eq!(decode_picture(text).unwrap().0[..], [0xff, 0xd8, 0xff, 0xe0, 0, 0x10]);
        }
        assert!(decode_picture("iVBORw0KGgo=").unwrap().0.starts_with(b"\x89PNG"));
        for (text, words) in
            [("/9j/4", "no base64"), ("R0lGODlh", "no JPEG or PNG"), ("", "no JPEG"), ("é", "no base64")]
        {
            assert!(decode_picture(text).unwrap_err().contains(words), "{text}");
        }
    }
}
