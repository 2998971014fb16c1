//! Speech from the server in this process, as fast as the model generates it.

use super::Speech;
use crate::cli::error::ClientError;
use crate::cli::local_bridge::LocalBridge;
use crate::error::ErrorKind;
use crate::server::RestSession;
use crate::vocabulary::{ClientEvent, ClientRequest, SpeakRequest};

/// Speaks the parts of a text one after the other, in one session.
pub(in crate::cli) async fn speak(
    bridge: &LocalBridge,
    parts: &[String],
    voice: Option<&str>,
    mut on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let RestSession { requests, mut events } = bridge.open(false).await?;
    for (number, part) in parts.iter().enumerate() {
        on_speech(Speech::Part(number))?;
        let voice = voice.map(str::to_owned);
        let request = SpeakRequest { text: part.clone(), voice, ..SpeakRequest::default() };
        requests.send(ClientRequest::Speak(Box::new(request))).await;
        let mut has_audio = false;
        loop {
            match events.next_event().await.map_err(ClientError::ConnectionLost)? {
                ClientEvent::Audio(audio) => {
                    has_audio |= !audio.bytes.is_empty();
                    on_speech(Speech::Audio(&audio.bytes))?;
                }
                ClientEvent::SpeakingEnded { cancelled: false, .. } if has_audio => break,
                ClientEvent::SpeakingEnded { cancelled: false, .. } => return Err(ClientError::NoAudio),
                ClientEvent::SpeakingEnded { cancelled: true, .. } => return Err(ClientError::cut_short()),
                ClientEvent::Error(error) if error.kind != ErrorKind::QueueStuck => {
                    return Err(ClientError::from_model(error));
                }
                ClientEvent::SessionClosed { reason, .. } => return Err(ClientError::bridge_closed(reason)),
                _ => {}
            }
        }
    }
    Ok(())
}
