//! Speech from an HTTP server: `POST /v1/audio/speech` of OpenAI's API, which voxbridge, Macaw and others serve.

use serde_json::json;

use crate::cli::error::ClientError;
use crate::cli::http::{HttpTarget, Payload};

/// Speaks the parts of a text one after the other. The speech comes as raw samples, so that it becomes one file.
pub(super) async fn speak(
    target: &HttpTarget,
    parts: &[String],
    voice: Option<&str>,
    mut on_audio: impl FnMut(&[u8]) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    for part in parts {
        let mut request = json!({"model": target.model, "input": part, "response_format": "pcm"});
        if let Some(voice) = voice {
            request["voice"] = voice.into();
        }
        let mut answer = target.post("/audio/speech", Payload::json(&request)).await?;
        let mut has_audio = false;
        while let Some(audio) = answer.next().await? {
            has_audio |= !audio.is_empty();
            on_audio(&audio)?;
        }
        if !has_audio {
            return Err(ClientError::NoAudio);
        }
    }
    Ok(())
}
