//! Speech from the server in this process, as fast as the model generates it.

use serde_json::json;

use super::Speech;
use crate::cli::error::ClientError;
use crate::cli::local_bridge::LocalBridge;
use crate::server::{RestEvent, RestSession};

/// Speaks the parts of a text one after the other, in one session.
pub(in crate::cli) async fn speak(
    bridge: &LocalBridge,
    parts: &[String],
    voice: Option<&str>,
    mut on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let RestSession { mut commands, mut events } = bridge.open().await?;
    for (number, part) in parts.iter().enumerate() {
        on_speech(Speech::Part(number))?;
        let mut command = json!({"type": "speak", "text": part});
        if let Some(voice) = voice {
            command["voice"] = voice.into();
        }
        commands.send(&command).await;
        let mut has_audio = false;
        loop {
            match events
                .next_message()
                .await
                .and_then(RestEvent::read)
                .map_err(ClientError::ConnectionLost)?
            {
                RestEvent::Audio(audio) => {
                    has_audio |= !audio.is_empty();
                    on_speech(Speech::Audio(&audio))?;
                }
                RestEvent::SpeakingEnd { cancelled: false } if has_audio => break,
                RestEvent::SpeakingEnd { cancelled: false } => return Err(ClientError::NoAudio),
                RestEvent::SpeakingEnd { cancelled: true } => return Err(ClientError::cut_short()),
                RestEvent::Error { code, message, .. } => {
                    return Err(ClientError::from_model(&code, message));
                }
                RestEvent::Closed { reason } => return Err(ClientError::session_closed(&reason)),
                _ => {}
            }
        }
    }
    Ok(())
}
