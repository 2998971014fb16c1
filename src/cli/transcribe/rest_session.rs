//! Transcription by the server in this process: the recording is sent as fast as the bridge takes it.
//!
//! The server speaks the client protocol `rest` (`mappings/client/rest.toml`), as its REST endpoints do. An utterance that fails
//! leaves a gap. When there is no upstream (any more), the transcript ends before the utterances that found none.

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
use crate::media::transcript::segments::divided;
use crate::media::transcript::{Gap, Segment};
use crate::server::{RestCommands, RestEvent, RestSession};

/// Utterances that find no upstream in a row, after which an upstream that has answered counts as lost.
const LOST_AFTER: usize = 3;

/// Transcribes a span of a recording in one session, after the spans that were transcribed before.
pub(in crate::cli) async fn transcribe(
    bridge: &LocalBridge,
    settings: &Value,
    (recording, span): (&mut Recording, Span),
    transcribed: &mut Transcribed,
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
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
        (transcribed.duration, transcribed.problem) = (recording.position(), first.err());
        return Ok(());
    };
    let RestSession { mut commands, mut events } = bridge.open().await?;
    commands.send(settings).await;
    let mut utterances = Utterances::new(transcribed, span.from_ms);
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
            if utterances.handle(message, &mut on_progress)? {
                break;
            }
        }
    }
    (transcribed.duration, transcribed.problem) = (recording.position(), fed.flatten());
    Ok(())
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

/// The utterances of a session so far.
struct Utterances<'t> {
    /// Results of the recording, in this session and in those before.
    transcribed: &'t mut Transcribed,
    /// Where in the recording the session began.
    offset_ms: u64,
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

impl FailedUtterance {
    const fn found_no_upstream(&self) -> bool {
        matches!(self.error, ClientError::NoUpstreamSession(_))
    }

    fn into_error(self) -> ClientError {
        ClientError::UtteranceFailed { at: Duration::from_millis(self.start_ms), error: Box::new(self.error) }
    }
}

impl<'t> Utterances<'t> {
    fn new(transcribed: &'t mut Transcribed, offset_ms: u64) -> Self {
        Self { transcribed, offset_ms, starts_ms: HashMap::new(), failed: Vec::new() }
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
            RestEvent::QueueStuck { message } => on_progress(Progress::Note(&message))?,
            RestEvent::Error { code, message, segment_id } => {
                let error = ClientError::from_model(&code, message);
                match segment_id.and_then(|id| Some((id, *self.starts_ms.get(&id)?))) {
                    Some((segment_id, start_ms)) => {
                        self.failed.push(FailedUtterance { segment_id, start_ms, end_ms: start_ms, error });
                        self.check_lost(on_progress)?;
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
            self.transcribed.wordless_from.get_or_insert(Duration::from_millis(segment.start_ms));
            return Ok(());
        }
        for segment in divided(segment) {
            on_progress(Progress::Transcribed(&segment))?;
            self.transcribed.segments.push(segment);
        }
        Ok(())
    }

    /// Reports the utterances that failed as gaps.
    fn report_gaps(
        &mut self,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        for failed in self.failed.drain(..) {
            let FailedUtterance { start_ms, end_ms, .. } = failed;
            let message = failed.error.to_string();
            on_progress(Progress::Failed(&Gap { start_ms, end_ms, message }))?;
            self.transcribed.failure.get_or_insert_with(|| failed.into_error());
        }
        Ok(())
    }

    /// Fails if the upstream is lost: at once if it has not been there yet, otherwise after several utterances in a row that
    /// found none. Those that failed before for other reasons are gaps.
    fn check_lost(
        &mut self,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        let other = self.failed.iter().rposition(|failed| !failed.found_no_upstream());
        let row_from = other.map_or(0, |at| at + 1);
        let was_there = row_from > 0 || self.transcribed.has_answers() || self.transcribed.failure.is_some();
        let enough = if was_there { LOST_AFTER } else { 1 };
        if self.failed.len() - row_from < enough {
            return Ok(());
        }
        let first = self.failed.drain(row_from..).next();
        self.report_gaps(on_progress)?;
        first.map_or(Ok(()), |first| Err(first.into_error()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles the events of utterances that were transcribed or failed with these codes, a second each.
    fn handle(transcribed: &mut Transcribed, codes: &[&str]) -> (Vec<u64>, Result<bool, ClientError>) {
        let mut gaps = Vec::new();
        let mut on_progress = |progress: Progress<'_>| {
            if let Progress::Failed(gap) = progress {
                gaps.push(gap.start_ms);
            }
            Ok(())
        };
        let mut utterances = Utterances::new(transcribed, 500);
        let mut result = Ok(false);
        for (id, code) in (0..).zip(codes) {
            let (start_ms, end_ms) = (id * 1000, id * 1000 + 900);
            let answer = match *code {
                "ok" => json!({
                    "type": "transcript", "segment_id": id, "text": "yes", "start_ms": start_ms, "end_ms": end_ms,
                }),
                code => json!({
                    "type": "error", "code": code, "message": code, "recoverable": true, "segment_id": id,
                }),
            };
            for event in [
                json!({"type": "speech_start", "segment_id": id, "start_ms": start_ms}),
                answer,
                json!({"type": "speech_end", "segment_id": id, "end_ms": end_ms}),
            ] {
                if result.is_ok() {
                    result = utterances.handle(Message::text(event.to_string()), &mut on_progress);
                }
            }
        }
        if result.is_ok() {
            let closed = json!({"type": "closed", "reason": "finished"});
            result = utterances.handle(Message::text(closed.to_string()), &mut on_progress);
        }
        (gaps, result)
    }

    #[test]
    fn utterances_that_the_model_fails_are_gaps_even_before_the_first_success() {
        let mut transcribed = Transcribed::default();
        let codes = ["upstream_error", "upstream_error", "upstream_error", "upstream_error", "ok"];
        let (gaps, result) = handle(&mut transcribed, &codes);
        assert!(result.unwrap());
        assert_eq!(gaps, [500, 1500, 2500, 3500]);
        assert_eq!(transcribed.segments[0].start_ms, 4500);
        assert!(matches!(transcribed.failure, Some(ClientError::UtteranceFailed { .. })));
    }

    #[test]
    fn upstream_is_lost_at_once_before_its_first_answer_and_later_after_three_utterances_in_a_row() {
        let lost_at = |codes: &[&str], transcribed: &mut Transcribed| {
            let (gaps, result) = handle(transcribed, codes);
            (gaps, result.map_err(|error| (error.exit_code(), error.to_string())))
        };
        let error = |at: &str| Err((69, format!("at {at}: unavailable")));
        let never = lost_at(&["unavailable"], &mut Transcribed::default());
        assert_eq!(never, (vec![], error("0:00")));
        let mut transcribed = Transcribed::default();
        let later = ["ok", "upstream_error", "unavailable", "unavailable", "unavailable"];
        assert_eq!(lost_at(&later, &mut transcribed), (vec![1500], error("0:02")));
        // The next span of the same recording: the upstream has been there.
        assert_eq!(
            lost_at(&["unavailable", "unavailable", "ok"], &mut transcribed),
            (vec![500, 1500], Ok(true))
        );
    }
}
