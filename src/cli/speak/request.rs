//! Speech from an HTTP server: `POST /v1/audio/speech` of OpenAI's API, which voxbridge, Macaw and others serve.

use serde_json::json;

use super::Speech;
use crate::cli::error::ClientError;
use crate::cli::http::{HttpTarget, Payload};

/// Speaks the parts of a text one after the other. The speech comes as raw samples, so that it becomes one file.
pub(super) async fn speak(
    target: &HttpTarget,
    parts: &[String],
    voice: Option<&str>,
    mut on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    for (number, part) in parts.iter().enumerate() {
        on_speech(Speech::Part(number))?;
        let mut request = json!({"model": target.model, "input": part, "response_format": "pcm"});
        if let Some(voice) = voice {
            request["voice"] = voice.into();
        }
        let mut answer = target.post("/audio/speech", Payload::json(&request)).await?;
        let mut has_audio = false;
        while let Some(audio) = answer.next().await? {
            has_audio |= !audio.is_empty();
            on_speech(Speech::Audio(&audio))?;
        }
        if !has_audio {
            return Err(ClientError::NoAudio);
        }
    }
    Ok(())
}
