//! Transcription by the server in this process: the recording is sent as fast as the bridge takes it.
//!
//! The session has the client protocol `rest` (`mappings/client/rest.toml`), as those of the REST endpoints. An utterance that fails
//! leaves a gap. When there is no upstream (any more), the transcript ends before the utterances that found none.

use std::collections::HashMap;
use std::pin::pin;
use std::time::Duration;

use super::Transcribed;
use crate::cli::error::ClientError;
use crate::cli::local_bridge::LocalBridge;
use crate::cli::recording::Recording;
use crate::cli::view::Progress;
use crate::error::ErrorKind;
use crate::media::transcript::partial::Span;
use crate::media::transcript::segments::divided;
use crate::media::transcript::{Gap, Segment};
use crate::server::{RestRequests, RestSession, segment_of};
use crate::vocabulary::{ClientEvent, ClientRequest, CloseReason, Setting};

/// Utterances that find no upstream in a row, after which an upstream that has answered counts as lost.
const LOST_AFTER: usize = 3;

/// A recording, and the span of it that is transcribed.
pub(in crate::cli) struct RecordingPart<'r> {
    pub(in crate::cli) recording: &'r mut Recording,
    pub(in crate::cli) span: Span,
}

/// Transcribes a part of a recording in one session, after the parts that were transcribed before. With `shows_messages`, progress
/// includes the messages that spell the session's events.
pub(in crate::cli) async fn transcribe(
    bridge: &LocalBridge,
    shows_messages: bool,
    settings: Vec<Setting>,
    part: RecordingPart<'_>,
    transcribed: &mut Transcribed,
    mut on_progress: impl FnMut(Progress<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let RecordingPart { recording, span } = part;
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
    let RestSession { requests, mut events } = bridge.open(shows_messages).await?;
    requests.send(ClientRequest::Configure(settings)).await;
    let mut utterances = Utterances::new(transcribed, span.from_ms);
    let mut fed = None;
    {
        let mut feeding = pin!(feed(recording, chunk, span.to_ms, requests));
        loop {
            let (event, message) = tokio::select! {
                problem = &mut feeding, if fed.is_none() => {
                    fed = Some(problem);
                    continue;
                }
                shown = events.next_shown() => shown.map_err(ClientError::ConnectionLost)?,
            };
            if let Some(message) = message {
                on_progress(Progress::Event(&message))?;
            }
            if utterances.handle(event, &mut on_progress)? {
                break;
            }
        }
    }
    (transcribed.duration, transcribed.problem) = (recording.position(), fed.flatten());
    Ok(())
}

/// Sends a recording, from this chunk up to `to_ms`, and returns its damage.
async fn feed(
    recording: &mut Recording,
    chunk: Vec<i16>,
    to_ms: Option<u64>,
    requests: RestRequests,
) -> Option<ClientError> {
    let mut next = Ok(Some(chunk));
    let problem = loop {
        match next {
            Ok(Some(chunk)) => {
                if !requests.send_audio(&chunk).await {
                    return None;
                }
            }
            Ok(None) => break None,
            Err(problem) => break Some(problem),
        }
        next = recording.next_chunk_before(to_ms).await;
    };
    requests.send(ClientRequest::Finish).await;
    problem
}

/// The utterances of a session so far.
struct Utterances<'t> {
    /// Results of the recording, in this session and in those before.
    transcribed: &'t mut Transcribed,
    /// Where in the recording the session began.
    offset_ms: u64,
    /// When each utterance that was not transcribed yet began, by its number.
    starts_ms: HashMap<u32, u64>,
    /// Utterances that failed since the last one that did not.
    failed: Vec<FailedUtterance>,
}

struct FailedUtterance {
    segment_id: u32,
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

    /// Handles an event; true after the last one.
    fn handle(
        &mut self,
        event: ClientEvent,
        on_progress: &mut impl FnMut(Progress<'_>) -> Result<(), ClientError>,
    ) -> Result<bool, ClientError> {
        match event {
            ClientEvent::SpeechStarted { segment_id, from_ms, .. } => {
                self.starts_ms.insert(segment_id, from_ms + self.offset_ms);
            }
            ClientEvent::SpeechEnded { segment_id, at_ms } => {
                self.starts_ms.remove(&segment_id);
                let is_it = |failed: &&mut FailedUtterance| failed.segment_id == segment_id;
                if let Some(failed) = self.failed.last_mut().filter(is_it) {
                    failed.end_ms = at_ms + self.offset_ms;
                }
            }
            ClientEvent::TranscriptPartial { text, .. } => on_progress(Progress::Doing(&text))?,
            ClientEvent::Queued { position, .. } => {
                on_progress(Progress::Doing(&format!("waiting for a free worker, position {position}")))?;
            }
            ClientEvent::Error(notice) if notice.kind == ErrorKind::QueueStuck => {
                on_progress(Progress::Note(&notice.detail))?;
            }
            ClientEvent::Error(error) => {
                let start = error.segment_id.and_then(|id| Some((id, *self.starts_ms.get(&id)?)));
                let error = ClientError::from_model(error);
                let Some((segment_id, start_ms)) = start else { return Err(error) };
                self.failed.push(FailedUtterance { segment_id, start_ms, end_ms: start_ms, error });
                self.check_lost(on_progress)?;
            }
            ClientEvent::SessionClosed { reason: CloseReason::ClientClose, .. } => {
                self.report_gaps(on_progress)?;
                return Ok(true);
            }
            ClientEvent::SessionClosed { reason, .. } => return Err(ClientError::bridge_closed(reason)),
            event => {
                if let Some(segment) = segment_of(event) {
                    self.add(segment, on_progress)?;
                }
            }
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
    use crate::{error::Error, vocabulary::Speaker};

    const FAILED: Option<ErrorKind> = Some(ErrorKind::TranscribeFailed);
    const UNAVAILABLE: Option<ErrorKind> = Some(ErrorKind::Unavailable);

    /// Handles the events of utterances that were transcribed, or failed with these errors, a second each.
    fn handle(
        transcribed: &mut Transcribed,
        errors: &[Option<ErrorKind>],
    ) -> (Vec<u64>, Result<bool, ClientError>) {
        let mut gaps = Vec::new();
        let mut on_progress = |progress: Progress<'_>| {
            if let Progress::Failed(gap) = progress {
                gaps.push(gap.start_ms);
            }
            Ok(())
        };
        let mut utterances = Utterances::new(transcribed, 500);
        let mut result = Ok(false);
        for (segment_id, error) in (0..).zip(errors) {
            let (from_ms, to_ms) = (u64::from(segment_id) * 1000, u64::from(segment_id) * 1000 + 900);
            let answer = match error {
                None => ClientEvent::TranscriptFinal {
                    speaker: Speaker::User,
                    text: "yes".to_owned(),
                    segment_id,
                    duration_ms: 900,
                    start_ms: from_ms,
                    speech_ms: (from_ms, to_ms),
                    utterance_ended: true,
                    finalized: false,
                    language: None,
                    words: Vec::new(),
                },
                Some(kind) => {
                    let error = Error::new(*kind, kind.name());
                    ClientEvent::Error(Error { segment_id: Some(segment_id), ..error })
                }
            };
            for event in [
                ClientEvent::SpeechStarted { at_ms: from_ms, from_ms, segment_id },
                answer,
                ClientEvent::SpeechEnded { at_ms: to_ms, segment_id },
            ] {
                if result.is_ok() {
                    result = utterances.handle(event, &mut on_progress);
                }
            }
        }
        if result.is_ok() {
            let reason = CloseReason::ClientClose;
            let closed = ClientEvent::SessionClosed { reason, total_ms: 0, audio_ms: 0, segments: 0 };
            result = utterances.handle(closed, &mut on_progress);
        }
        (gaps, result)
    }

    #[test]
    fn utterances_that_the_model_fails_are_gaps_even_before_the_first_success() {
        let mut transcribed = Transcribed::default();
        let (gaps, result) = handle(&mut transcribed, &[FAILED, FAILED, FAILED, FAILED, None]);
        assert!(result.unwrap());
        assert_eq!(gaps, [500, 1500, 2500, 3500]);
        assert_eq!(transcribed.segments[0].start_ms, 4500);
        assert!(matches!(transcribed.failure, Some(ClientError::UtteranceFailed { .. })));
    }

    #[test]
    fn upstream_is_lost_at_once_before_its_first_answer_and_later_after_three_utterances_in_a_row() {
        let lost_at = |errors: &[Option<ErrorKind>], transcribed: &mut Transcribed| {
            let (gaps, result) = handle(transcribed, errors);
            (gaps, result.map_err(|error| (error.exit_code(), error.to_string())))
        };
        let error = |at: &str| Err((69, format!("at {at}: unavailable")));
        let never = lost_at(&[UNAVAILABLE], &mut Transcribed::default());
        assert_eq!(never, (vec![], error("0:00")));
        let mut transcribed = Transcribed::default();
        let later = [None, FAILED, UNAVAILABLE, UNAVAILABLE, UNAVAILABLE];
        assert_eq!(lost_at(&later, &mut transcribed), (vec![1500], error("0:02")));
        // The next span of the same recording: the upstream has been there.
        assert_eq!(lost_at(&[UNAVAILABLE, UNAVAILABLE, None], &mut transcribed), (vec![500, 1500], Ok(true)));
    }
}
