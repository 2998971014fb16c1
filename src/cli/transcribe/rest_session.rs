//! Transcription by the server in this process: the recording is sent as fast as the bridge takes it.
//!
//! The server speaks the client protocol `rest` (`mappings/client/rest.toml`), as its REST endpoints do. An utterance that fails
//! leaves a gap. When several fail in a row, the upstream is lost: then the transcript ends before them.

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
use crate::media::transcript::partial::Span;
use crate::media::transcript::{Gap, Segment};
use crate::server::{RestCommands, RestEvent, RestSession};

/// Utterances that fail in a row, after which the upstream counts as lost.
const LOST_AFTER: usize = 3;

/// Transcribes a span of a recording in one session.
pub(in crate::cli) async fn transcribe(
    bridge: &LocalBridge,
    settings: &Value,
    (recording, span): (&mut Recording, Span),
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<Transcribed, ClientError> {
    let mut first = recording.skip_to(span.from_ms).await;
    let mut chunk = None;
    if first.is_ok() {
        match recording.next_chunk_before(span.to_ms).await {
            Ok(next) => chunk = next,
            Err(damage) => first = Err(damage),
        }
    }
    // Nothing of it is left.
    let Some(chunk) = chunk else {
        let (duration, problem) = (recording.position(), first.err());
        return Ok(Transcribed { duration, problem, ..Transcribed::default() });
    };
    let RestSession { mut commands, mut events } = bridge.open().await?;
    commands.send(settings).await;
    let mut result = Utterances { offset_ms: span.from_ms, ..Utterances::default() };
    let mut fed = None;
    {
        let mut feeding = pin!(feed(recording, (chunk, span), commands));
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

/// Sends a span of a recording, from this chunk on, and returns its damage.
async fn feed(
    recording: &mut Recording,
    (chunk, span): (Vec<i16>, Span),
    mut commands: RestCommands,
) -> Option<ClientError> {
    let mut next = Ok(Some(chunk));
    let problem = loop {
        match next {
            Ok(Some(chunk)) => {
                if !commands.send_audio(&chunk).await {
                    return None;
                }
            }
            Ok(None) => break None,
            Err(problem) => break Some(problem),
        }
        next = recording.next_chunk_before(span.to_ms).await;
    };
    commands.send(&json!({"type": "finish"})).await;
    problem
}

/// The utterances of a recording so far.
#[derive(Default)]
struct Utterances {
    /// Where in the recording the session began.
    offset_ms: u64,
    segments: Vec<Segment>,
    /// When the first utterance begins whose transcript is empty.
    empty_from_ms: Option<u64>,
    /// When each utterance that was not transcribed yet began, by its number.
    starts_ms: HashMap<u64, u64>,
    /// Utterances that failed since the last one that did not.
    failed: Vec<FailedUtterance>,
}

struct FailedUtterance {
    segment_id: u64,
    start_ms: u64,
    end_ms: u64,
    error: ClientError,
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
                self.starts_ms.insert(segment_id, start_ms + self.offset_ms);
            }
            RestEvent::SpeechEnd { segment_id, end_ms } => {
                self.starts_ms.remove(&segment_id);
                let is_it = |failed: &&mut FailedUtterance| failed.segment_id == segment_id;
                if let Some(failed) = self.failed.last_mut().filter(is_it) {
                    failed.end_ms = end_ms + self.offset_ms;
                }
            }
            RestEvent::Partial { text } => on_progress(Progress::Doing(&text))?,
            RestEvent::Transcript(segment) => self.add(segment, on_progress)?,
            RestEvent::Queued { position } => on_progress(Progress::Doing(&match position {
                Some(position) => format!("waiting for a free worker, position {position}"),
                None => "waiting for a free worker".to_owned(),
            }))?,
            // The session goes on by itself.
            RestEvent::Error { code, message, .. } if code == "queue_stuck" => {
                on_progress(Progress::Note(&message))?;
            }
            RestEvent::Error { code, message, segment_id } => {
                let error = ClientError::from_model(&code, message);
                match segment_id.and_then(|id| Some((id, *self.starts_ms.get(&id)?))) {
                    Some((segment_id, start_ms)) => {
                        self.failed.push(FailedUtterance { segment_id, start_ms, end_ms: start_ms, error });
                        self.check_lost()?;
                    }
                    None => return Err(error),
                }
            }
            RestEvent::Closed { reason } if reason == "finished" => {
                self.report_gaps(on_progress)?;
                return Ok(true);
            }
            RestEvent::Closed { reason } => return Err(ClientError::session_closed(&reason)),
            RestEvent::Audio(_) | RestEvent::SpeakingEnd { .. } | RestEvent::Other => {}
        }
        Ok(false)
    }

    /// Adds an utterance that was transcribed.
    fn add(
        &mut self,
        mut segment: Segment,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        segment.start_ms += self.offset_ms;
        segment.end_ms += self.offset_ms;
        for word in segment.words.iter_mut().flatten() {
            word.start += self.offset_ms as f64 / 1000.0;
            word.end += self.offset_ms as f64 / 1000.0;
        }
        self.report_gaps(on_progress)?;
        on_progress(Progress::At(Duration::from_millis(segment.end_ms)))?;
        if segment.text.trim().is_empty() {
            self.empty_from_ms.get_or_insert(segment.start_ms);
            return Ok(());
        }
        on_progress(Progress::Transcribed(&segment))?;
        self.segments.push(segment);
        Ok(())
    }

    /// Reports the utterances that failed as gaps.
    fn report_gaps(
        &mut self,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        for FailedUtterance { start_ms, end_ms, error, .. } in self.failed.drain(..) {
            on_progress(Progress::Failed(&Gap { start_ms, end_ms, message: error.to_string() }))?;
        }
        Ok(())
    }

    /// Fails with the first of the failures in a row if the upstream is lost: at once if it has never answered and is not
    /// available, otherwise after several.
    fn check_lost(&mut self) -> Result<(), ClientError> {
        let has_answered = !self.segments.is_empty() || self.empty_from_ms.is_some();
        let is_unavailable =
            self.failed.iter().all(|failed| matches!(failed.error, ClientError::NoUpstreamSession(_)));
        let is_lost = if is_unavailable {
            !has_answered || self.failed.len() >= LOST_AFTER
        } else {
            !has_answered && self.failed.len() >= LOST_AFTER
        };
        if !is_lost {
            return Ok(());
        }
        let FailedUtterance { start_ms, error, .. } = self.failed.swap_remove(0);
        Err(ClientError::UtteranceFailed { at: Duration::from_millis(start_ms), error: Box::new(error) })
    }
}
