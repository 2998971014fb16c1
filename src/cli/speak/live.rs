//! Speech over the WebSocket of a Macaw server or of voxbridge.

use std::time::Duration;

use serde_json::json;
use tokio::time::{Instant, interval, sleep_until};

use super::Speech;
use crate::cli::client::{Client, ClientTiming, ServerMessage, server_error};
use crate::cli::dial::ServerTarget;
use crate::cli::error::ClientError;
use crate::cli::output;
use crate::cli::server_events::MacawEvent;

/// Speaks the parts of a text one after the other, in one session.
pub(in crate::cli) async fn speak(
    target: &ServerTarget,
    timing: ClientTiming,
    parts: &[String],
    voice: Option<&str>,
    mut on_speech: impl FnMut(Speech<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let (mut client, _) = Client::connect(target, timing).await?;
    let mut result = Ok(());
    for (number, part) in parts.iter().enumerate() {
        // A second request would cancel a running one (mappings/notes/macaw.md#order), so requests are sequential.
        let request_id = format!("speak_{number}");
        result = on_speech(Speech::Part(number));
        if result.is_ok() {
            let on_audio = |audio: &[u8]| on_speech(Speech::Audio(audio));
            result = speak_part(&mut client, part, voice, &request_id, on_audio).await.map(|_| ());
        }
        if result.is_err() {
            break;
        }
    }
    client.close(|_| {}).await;
    result
}

/// Speaks one text, and returns the time to its first audio.
pub(in crate::cli) async fn speak_part(
    client: &mut Client,
    text: &str,
    voice: Option<&str>,
    request_id: &str,
    mut on_audio: impl FnMut(&[u8]) -> Result<(), ClientError>,
) -> Result<Duration, ClientError> {
    let mut command = json!({"type": "tts.speak", "text": text, "request_id": request_id});
    if let Some(voice) = voice {
        command["voice"] = json!(voice);
    }
    client.send_command(&command).await?;

    let timing = *client.timing();
    let mut speaking = Speaking::new(request_id);
    let mut last_message_at = speaking.requested_at;
    let mut keep_alive_ticks = interval(timing.keep_alive_interval);
    keep_alive_ticks.reset();
    loop {
        let message = tokio::select! {
            message = client.next() => message?,
            _ = keep_alive_ticks.tick() => {
                client.send_keep_alive().await?;
                continue;
            }
            () = sleep_until(last_message_at + timing.answer_timeout) => return Err(ClientError::Stalled(timing.answer_timeout)),
        };
        last_message_at = Instant::now();
        match message {
            Some(ServerMessage::Audio(bytes)) => {
                speaking.note_audio(&bytes);
                on_audio(&bytes)?;
            }
            Some(ServerMessage::Event(event)) => {
                if let Some(latency) = speaking.handle_event(event.event)? {
                    return Ok(latency);
                }
            }
            None => return Err(client.connection_lost()),
        }
    }
}

/// A text that the server speaks.
struct Speaking<'r> {
    request_id: &'r str,
    requested_at: Instant,
    has_started: bool,
    /// Time from the request to the first audio.
    first_audio: Option<Duration>,
    error: Option<ClientError>,
}

impl<'r> Speaking<'r> {
    fn new(request_id: &'r str) -> Self {
        let requested_at = Instant::now();
        Self { request_id, requested_at, has_started: false, first_audio: None, error: None }
    }

    fn note_audio(&mut self, audio: &[u8]) {
        if !audio.is_empty() {
            self.first_audio.get_or_insert_with(|| self.requested_at.elapsed());
        }
    }

    /// Handles an event. At the end of the text, returns the time to its first audio.
    fn handle_event(&mut self, event: MacawEvent) -> Result<Option<Duration>, ClientError> {
        match event {
            MacawEvent::SpeakingStarted { request_id } if self.is_of_request(request_id.as_deref()) => {
                self.has_started = true;
            }
            MacawEvent::SpeakingEnded { request_id, cancelled }
                if self.is_of_request(request_id.as_deref()) =>
            {
                return match (self.error.take(), self.first_audio) {
                    (Some(error), _) => Err(error),
                    (None, _) if cancelled => {
                        Err(ClientError::ConnectionLost("the server stopped speaking".to_owned()))
                    }
                    (None, Some(latency)) => Ok(Some(latency)),
                    (None, None) => Err(ClientError::NoAudio),
                };
            }
            MacawEvent::Error { code, message, recoverable } => {
                let error = server_error(&code, &message);
                // After `tts.speaking_start`, `tts.speaking_end` still follows, maybe after more audio
                // (mappings/notes/macaw.md#errors).
                if !(self.has_started && recoverable) {
                    return Err(error);
                }
                self.error = Some(error);
            }
            MacawEvent::SessionClosed { reason } => return Err(ClientError::session_closed(&reason)),
            event => event.notice().iter().for_each(output::print_message),
        }
        Ok(None)
    }

    /// True if the event belongs to this request. Servers that follow the protocol page send no request id.
    fn is_of_request(&self, event_request_id: Option<&str>) -> bool {
        event_request_id.is_none_or(|event_request_id| event_request_id == self.request_id)
    }
}
