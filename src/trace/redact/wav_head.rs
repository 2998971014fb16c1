//! The head of a WAV file, up to its samples. A replay needs it: the format and the length of the audio are in it.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Longest head, bytes.
const HEAD_MAX_BYTES: usize = 4096;
/// Base64 of `RIFF`, as far as it is the same whatever follows.
const BASE64_RIFF: &str = "UklGR";

/// The head of a WAV file; `None` for other bytes, and for a head that is too long or not whole.
pub(in crate::trace) fn wav_head(bytes: &[u8]) -> Option<&[u8]> {
    if !bytes.starts_with(b"RIFF") {
        return None;
    }
    let mut at = 12;
    while at <= HEAD_MAX_BYTES {
        let chunk = bytes.get(at..at + 8)?;
        if chunk.starts_with(b"data") {
            return Some(&bytes[..at + 8]);
        }
        let length = u32::from_le_bytes([chunk[4], chunk[5], chunk[6], chunk[7]]) as usize;
        at = (at + 8).saturating_add(length).saturating_add(length % 2);
    }
    None
}

/// The head of a WAV file in base64, as base64 without padding: zeros complete its last group.
pub(super) fn base64_wav_head(body: &str) -> Option<String> {
    if !is_base64_head(body) {
        return None;
    }
    let beginning = body.get(..body.len().min(HEAD_MAX_BYTES.div_ceil(3) * 4))?;
    let beginning = beginning.trim_end_matches('=');
    let bytes = STANDARD.decode(&beginning[..beginning.len() / 4 * 4]).ok()?;
    let mut head = wav_head(&bytes)?.to_vec();
    head.resize(head.len().next_multiple_of(3), 0);
    Some(STANDARD.encode(head)).filter(|head| head.len() <= beginning.len())
}

/// True if this is the beginning of a WAV file in base64.
pub(super) fn is_base64_head(text: &str) -> bool {
    text.starts_with(BASE64_RIFF)
}
