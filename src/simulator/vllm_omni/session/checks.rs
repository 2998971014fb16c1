//! Checks of the server: in a configuration and in an append.

use serde_json::{Map, Value};

use super::Refusal;
use crate::{VllmVersion, picture::check_picture, python};

/// Checks what the server checks before it opens a session.
pub(super) fn check_config(config: &Map<String, Value>, version: VllmVersion) -> Result<(), Refusal> {
    let modalities = config.get("modalities").and_then(Value::as_array);
    let has_audio = modalities.is_none_or(|list| list.iter().any(|one| one == "audio"));
    let has_own_voice = version >= VllmVersion::V0_32;
    if has_audio && !has_own_voice && !config.get("ref_audio").is_some_and(Value::is_string) {
        return Err(Refusal::new("ref_audio_required", "MiniCPM-o duplex audio output requires ref_audio"));
    }
    Ok(())
}

pub(super) fn check_frames(frames: &[Value]) -> Result<(), &'static str> {
    if frames.len() > 2 {
        return Err("video_frames carries more than 2 frames for one append; send ~1 frame per 1 s chunk");
    }
    let is_picture = |frame: &Value| {
        let bytes = frame.as_str().and_then(|frame| python::decode_base64(frame).ok());
        bytes.is_some_and(|bytes| check_picture(&bytes).is_ok())
    };
    if frames.iter().all(is_picture) {
        Ok(())
    } else {
        Err("video_frames entries must be JPEG or PNG images")
    }
}
