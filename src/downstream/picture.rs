//! Checks pictures from clients: base64 of a JPEG file.
//!
//! The C++ back-end ends the session over a picture that it cannot decode (field notes §1.7), without naming the cause. So
//! invalid base64 and other formats are rejected here. The contents of the JPEG are not checked.

use crate::{audio::pcm, event::VideoFrame};

/// First bytes of a JPEG file: SOI and the first byte of the next marker (ITU-T T.81, B.1.1).
const JPEG_MAGIC: [u8; 3] = [0xff, 0xd8, 0xff];

/// Decodes a picture and checks that it is a JPEG file.
///
/// # Errors
/// Description of the invalid picture.
pub(super) fn decode_jpeg(base64: &str) -> Result<VideoFrame, String> {
    let mut bytes = Vec::new();
    pcm::decode_base64(base64, &mut bytes).map_err(|error| format!("it is no base64: {error}"))?;
    if !bytes.starts_with(&JPEG_MAGIC) {
        return Err("it is no JPEG file".to_owned());
    }
    Ok(VideoFrame(bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base64_jpeg_is_accepted() {
        for text in ["/9j/4AAQ", "_9j_4AAQ"] {
            assert_eq!(decode_jpeg(text).unwrap().0[..], [0xff, 0xd8, 0xff, 0xe0, 0, 0x10]);
        }
        for (text, words) in
            [("/9j/4", "no base64"), ("iVBORw0KGgo=", "no JPEG"), ("", "no JPEG"), ("é", "no base64")]
        {
            assert!(decode_jpeg(text).unwrap_err().contains(words), "{text}");
        }
    }
}
