//! Checks pictures as far as a decoder must read them before the first pixel: JPEG and PNG.
//!
//! The real back-ends decode each picture, and end the session over one that they cannot decode (`Image.open` and `convert`
//! in core/processors/base.py of OpenBMB/MiniCPM-o-Demo; mappings/notes/llama-cpp-omni.md#rejections).

/// Pillow's error for bytes that are not an image, without the object address.
const NOT_AN_IMAGE: &str = "cannot identify image file <_io.BytesIO object>";

/// Pillow's error for an image that ends too early, without the number of bytes.
const TRUNCATED: &str = "image file is truncated";

/// First bytes of a PNG file and the header of its first chunk (PNG specification, §5.2 and §11.2.2).
const PNG_START: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\x0dIHDR";

/// Checks that a picture can be decoded.
///
/// # Errors
/// Pillow's exception text.
pub(super) fn check_picture(bytes: &[u8]) -> Result<(), String> {
    let (scan, end_mark) = if let Some(header) = bytes.strip_prefix(PNG_START) {
        (header, &b"IEND"[..])
    } else {
        (find_jpeg_scan(bytes).ok_or(NOT_AN_IMAGE)?, &b"\xff\xd9"[..])
    };
    let is_complete = scan.windows(end_mark.len()).any(|window| window == end_mark);
    if is_complete { Ok(()) } else { Err(TRUNCATED.to_owned()) }
}

/// The data from the first scan of a JPEG file on; `None` if its headers are damaged (ITU-T T.81, B.1 and B.2).
fn find_jpeg_scan(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(b"\xff\xd8")?;
    let mut has_frame = false;
    loop {
        let [0xff, marker, high, low, ..] = *rest else { return None };
        // The length counts its own two bytes, but not the marker's.
        let length = usize::from(u16::from_be_bytes([high, low]));
        let segment = rest.get(4..2 + length.max(2))?;
        rest = &rest[2 + length.max(2)..];
        match marker {
            // A frame header: precision, height and width, which must not be 0.
            0xc0..=0xcf if !matches!(marker, 0xc4 | 0xc8 | 0xcc) => {
                has_frame = segment.len() > 5 && segment[1..3] != [0; 2] && segment[3..5] != [0; 2];
            }
            0xda => return has_frame.then_some(rest),
            0x00..=0xbf | 0xd0..=0xd9 | 0xff => return None,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A JPEG file of one grey pixel with empty tables, which this check does not read.
    const JPEG: &[u8] = b"\xff\xd8\xff\xfe\0\x04hi\xff\xc0\0\x0b\x08\0\x01\0\x01\x01\x01\x11\0\
                          \xff\xda\0\x08\x01\x01\0\0\x3f\0\x3f\xff\xd9";

    #[test]
    fn complete_pictures_are_accepted_and_truncated_ones_are_not() {
        let png = [PNG_START, &[0, 0, 0, 1, 0, 0, 0, 1, 8, 0, 0, 0, 0], b"....IEND...."].concat();
        for picture in [JPEG, &png] {
            assert_eq!(check_picture(picture), Ok(()));
            for length in 0..picture.len() - 4 {
                assert!(check_picture(&picture[..length]).is_err(), "{length} bytes");
            }
        }
        assert_eq!(check_picture(&JPEG[..JPEG.len() - 2]), Err(TRUNCATED.to_owned()));
    }

    #[test]
    fn damaged_headers_are_no_image() {
        let zero_width = [&JPEG[..16], &[0], &JPEG[17..]].concat();
        let no_frame = [&JPEG[..8], &JPEG[21..]].concat();
        for bytes in
            [&b""[..], b"\xff\xd8\xff", b"GIF89a", &zero_width, &no_frame, b"\xff\xd8\xff\xe0\0\x10JFIF"]
        {
            assert_eq!(check_picture(bytes), Err(NOT_AN_IMAGE.to_owned()), "{bytes:?}");
        }
    }
}
