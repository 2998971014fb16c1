//! Pictures of results, which tool servers give.

use bytes::Bytes;
use serde_json::Value;

use crate::picture::{decode_picture, is_whole};

/// Most pictures of a result.
const PICTURES_MAX: usize = 4;
/// Largest picture, bytes in base64.
const PICTURE_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The pictures of a result that the model can take. A damaged one is left out, because the model would fail over it.
pub(crate) fn pictures(result: &Value) -> Vec<Bytes> {
    let content = result["content"].as_array().map(Vec::as_slice).unwrap_or_default();
    content.iter().filter_map(picture).take(PICTURES_MAX).collect()
}

fn picture(part: &Value) -> Option<Bytes> {
    let is_picture = part["type"] == "image";
    let data = part["data"].as_str().filter(|data| is_picture && data.len() <= PICTURE_MAX_BYTES)?;
    decode_picture(data).ok().map(|picture| picture.0).filter(|file| is_whole(file))
}
