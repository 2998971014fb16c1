//! Transcription by the server in this process: the recording is sent as fast as the bridge takes it.
//!
//! The server speaks the client protocol `rest` (`mappings/client/rest.toml`), as its REST endpoints do.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::Transcribed;
use crate::cli::error::ClientError;
use crate::cli::local_bridge::LocalBridge;
use crate::cli::recording::Recording;
use crate::cli::view::Progress;
use crate::media::transcript::Segment;
use crate::server::{RestCommands, RestEvent, RestSession};

/// Transcribes a recording in one session.
pub(in crate::cli) async fn transcribe(
    bridge: &LocalBridge,
    settings: &Value,
    mut recording: Recording,
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<Transcribed, ClientError> {
    let RestSession { mut commands, mut events } = bridge.open().await?;
    commands.send(settings).await;
    let mut result = Utterances::default();
    let mut fed = None;
    {
        let mut feeding = pin!(feed(&mut recording, commands));
        loop {
            let message = tokio::select! {
                problem = &mut feeding, if fed.is_none() => {
                    fed = Some(problem);
                    continue;
                }
                message = events.next_message() => message.map_err(ClientError::ConnectionLost)?,
            };
            if result.handle(message, &mut on_progress)? {
                break;
            }
        }
    }
    let problem = fed.flatten().or(result.no_words_problem());
    Ok(Transcribed { segments: result.segments, duration: recording.position(), problem })
}

/// Sends a recording, and returns its damage.
async fn feed(recording: &mut Recording, mut commands: RestCommands) -> Option<ClientError> {
    let problem = loop {
        match recording.next_chunk().await {
            Ok(Some(chunk)) => {
                if !commands.send_audio(&chunk).await {
                    return None;
                }
            }
            Ok(None) => break None,
            Err(problem) => break Some(problem),
        }
    };
    commands.send(&json!({"type": "finish"})).await;
    problem
}

/// The utterances of a recording so far.
#[derive(Default)]
struct Utterances {
    segments: Vec<Segment>,
    /// When the first utterance begins whose transcript is empty.
    empty_from_ms: Option<u64>,
    /// When each utterance that was not transcribed yet began, by its number.
    starts_ms: HashMap<u64, u64>,
}

impl Utterances {
    /// The problem of a recording with utterances but without any words.
    fn no_words_problem(&self) -> Option<ClientError> {
        let first_ms = self.empty_from_ms.filter(|_| self.segments.is_empty())?;
        Some(ClientError::NoWords { first_utterance: Some(Duration::from_millis(first_ms)) })
    }

    /// Handles a message; true after the last one.
    fn handle(
        &mut self,
        message: Message,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<bool, ClientError> {
        if let Message::Text(text) = &message {
            on_progress(Progress::Event(text))?;
        }
        match RestEvent::read(message).map_err(ClientError::ConnectionLost)? {
            RestEvent::SpeechStart { segment_id, start_ms } => {
                self.starts_ms.insert(segment_id, start_ms);
            }
            RestEvent::Partial { text } => on_progress(Progress::Doing(&text))?,
            RestEvent::Transcript(segment) => {
                on_progress(Progress::At(Duration::from_millis(segment.end_ms)))?;
                if !segment.text.trim().is_empty() {
                    on_progress(Progress::Words(segment.text.trim()))?;
                    self.segments.push(segment);
                } else {
                    self.empty_from_ms.get_or_insert(segment.start_ms);
                }
            }
            RestEvent::Queued { position } => on_progress(Progress::Doing(&match position {
                Some(position) => format!("waiting for a free worker, position {position}"),
                None => "waiting for a free worker".to_owned(),
            }))?,
            // The session goes on by itself.
            RestEvent::Error { code, message, .. } if code == "queue_stuck" => {
                on_progress(Progress::Note(&message))?;
            }
            RestEvent::Error { code, message, segment_id } => {
                let started_ms = segment_id.and_then(|id| self.starts_ms.get(&id));
                let error = ClientError::from_model(&code, message);
                return Err(match started_ms {
                    Some(ms) => {
                        let (at, error) = (Duration::from_millis(*ms), Box::new(error));
                        ClientError::UtteranceFailed { at, error }
                    }
                    None => error,
                });
            }
            RestEvent::Closed { reason } if reason == "finished" => return Ok(true),
            RestEvent::Closed { reason } => return Err(ClientError::session_closed(&reason)),
            RestEvent::Audio(_) | RestEvent::SpeakingEnd { .. } | RestEvent::Other => {}
        }
        Ok(false)
    }
}
