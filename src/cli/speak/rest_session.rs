//! Speech from the server in this process, as fast as the model generates it.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use crate::cli::dial::{self, ServerTarget};
use crate::cli::error::ClientError;
use crate::server::RestEvent;

/// Speaks the parts of a text one after the other, in one session.
pub(super) async fn speak(
    target: &ServerTarget,
    parts: &[String],
    voice: Option<&str>,
    mut on_audio: impl FnMut(&[u8]) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let mut socket = dial::dial(target).await?;
    let lost = |reason: String| ClientError::ConnectionLost(reason);
    for part in parts {
        let mut command = json!({"type": "speak", "text": part});
        if let Some(voice) = voice {
            command["voice"] = voice.into();
        }
        socket.send(Message::text(command.to_string())).await.map_err(|error| lost(error.to_string()))?;
        let mut has_audio = false;
        loop {
            let message = socket.next().await.ok_or_else(|| lost("no end was reported".to_owned()))?;
            match RestEvent::read(message.map_err(|error| lost(error.to_string()))?).map_err(lost)? {
                RestEvent::Audio(audio) => {
                    has_audio |= !audio.is_empty();
                    on_audio(&audio)?;
                }
                RestEvent::SpeakingEnd { cancelled: false } if has_audio => break,
                RestEvent::SpeakingEnd { cancelled: false } => return Err(ClientError::NoAudio),
                RestEvent::SpeakingEnd { cancelled: true } => {
                    return Err(lost("the speech was cut short".to_owned()));
                }
                // The session goes on by itself.
                RestEvent::Error { code, .. } if code == "queue_stuck" => {}
                RestEvent::Error { code, message, .. } => {
                    return Err(ClientError::from_model(&code, message));
                }
                RestEvent::Closed { reason } => return Err(ClientError::session_closed(&reason)),
                _ => {}
            }
        }
    }
    let _ = socket.close(None).await;
    Ok(())
}
