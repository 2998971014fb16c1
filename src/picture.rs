//! Checks pictures from clients and tools: base64 of a JPEG or PNG file.
//!
//! The C++ back-end ends the session over a picture that it cannot decode
//! (mappings/notes/llama-cpp-omni.md#rejections), without naming the cause. So invalid base64 and other formats are
//! rejected here. The contents of the file are not checked.

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

#[cfg(test)]
mod tests {
    use super::*;

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
