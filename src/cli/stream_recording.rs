//! Sends a recording to a server in real time and collects the transcripts.
//!
//! A server drops audio that is too far ahead of real time (mappings/notes/macaw.md#audio-in). Silence follows the
//! recording until every utterance is transcribed, because only silence ends the last utterance.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::{Instant, interval};

use crate::audio::SPEECH_RATE_HZ;
use crate::media::transcript::Segment;

use super::client::{Client, ClientTiming, ReceivedEvent, ServerMessage, server_error};
use super::error::ClientError;
use super::recording::{FRAME_SAMPLES, Recording};
use super::server_events::MacawEvent;

/// Minimum silence after the recording: longer than the pause that ends an utterance on any server.
pub(super) const TRAILING_SILENCE_SAMPLES: usize = SPEECH_RATE_HZ as usize * 3 / 2;

/// Frame to send after the end of the recording.
pub(super) const SILENT_FRAME: [i16; FRAME_SAMPLES] = [0; FRAME_SAMPLES];

/// Progress of a transcription, for display.
#[derive(Debug)]
pub(super) enum StreamProgress<'a> {
    /// The recording was sent up to this position.
    Sent(Duration),
    /// The server sent an event.
    Event(&'a ReceivedEvent),
    /// An utterance has ended, and its transcript has come.
    Transcribed(Segment),
}

/// The transcript of an utterance.
#[derive(Debug)]
struct FinalTranscript {
    /// Index of the utterance.
    utterance: usize,
    text: String,
}

/// Result of a transcription.
#[derive(Debug, Default)]
pub(super) struct TranscriptionResult {
    /// Transcripts that are not empty.
    finals: Vec<FinalTranscript>,
    /// Number of recoverable errors reported by the server.
    error_count: usize,
    last_error: Option<ClientError>,
    /// Start and end of each utterance in ms, as far as the server reports times.
    utterances: Vec<(Option<u64>, Option<u64>)>,
    utterances_ended: usize,
    final_segment_ids: HashSet<u64>,
    unnumbered_finals: usize,
    /// Number of transcripts that were passed on.
    passed_on: usize,
    /// Why the rest of the recording is missing.
    damage: Option<ClientError>,
    /// Length of the audio that the server has dropped.
    dropped: Duration,
}

/// Sends a recording in real time and waits until every utterance is transcribed. Transcripts are passed on as they come, also if
/// the rest fails.
pub(super) async fn stream_and_transcribe(
    client: &mut Client,
    recording: &mut Recording,
    mut on_progress: impl FnMut(StreamProgress<'_>) -> Result<(), ClientError>,
) -> Result<TranscriptionResult, ClientError> {
    let mut result = TranscriptionResult::default();
    let streamed = stream(client, recording, &mut result, &mut on_progress).await;
    for segment in result.segments(recording.position()).split_off(result.passed_on) {
        on_progress(StreamProgress::Transcribed(segment))?;
    }
    streamed.and_then(|()| result.into_result())
}

async fn stream(
    client: &mut Client,
    recording: &mut Recording,
    result: &mut TranscriptionResult,
    on_progress: &mut impl FnMut(StreamProgress<'_>) -> Result<(), ClientError>,
) -> Result<(), ClientError> {
    let timing = *client.timing();
    let mut ticks = interval(timing.frame_interval);
    let mut trailing_samples = 0;
    let mut last_event_at = Instant::now();
    // Set after the recording and its trailing silence, when only answers of the server are missing.
    let mut idle_since = None;
    loop {
        tokio::select! {
            _ = ticks.tick() => {
                let now = Instant::now();
                if let Some(since) = idle_since && result.is_finished(now - last_event_at.max(since), &timing)? {
                    return Ok(());
                }
                let frame = recording.next_frame().await.unwrap_or_else(|damage| {
                    result.damage = Some(damage);
                    None
                });
                client.send_audio(&frame.unwrap_or(SILENT_FRAME)).await?;
                match frame {
                    Some(_) => on_progress(StreamProgress::Sent(recording.position()))?,
                    None => trailing_samples += FRAME_SAMPLES,
                }
                if trailing_samples >= TRAILING_SILENCE_SAMPLES {
                    idle_since.get_or_insert(now);
                }
            }
            message = client.next() => match message? {
                Some(ServerMessage::Event(event)) => {
                    last_event_at = Instant::now();
                    on_progress(StreamProgress::Event(&event))?;
                    result.handle_event(&event.event)?;
                    while let Some(segment) = result.next_ready(recording.position()) {
                        on_progress(StreamProgress::Transcribed(segment))?;
                    }
                }
                // Ignores audio, because the client requested no speech.
                Some(ServerMessage::Audio(_)) => {}
                None => return Err(client.connection_lost()),
            }
        }
    }
}

impl TranscriptionResult {
    fn handle_event(&mut self, event: &MacawEvent) -> Result<(), ClientError> {
        match event {
            MacawEvent::SpeechStarted { at_ms } => self.utterances.push((*at_ms, None)),
            MacawEvent::SpeechEnded { at_ms } => {
                if let Some((_, end_ms)) = self.utterances.get_mut(self.utterances_ended) {
                    *end_ms = *at_ms;
                }
                self.utterances_ended += 1;
            }
            MacawEvent::Final { text, segment_id, .. } => {
                let unnumbered = self.finals.len();
                let index = segment_id.map_or(unnumbered, |id| usize::try_from(id).unwrap_or(usize::MAX));
                match segment_id {
                    Some(id) => _ = self.final_segment_ids.insert(*id),
                    None => self.unnumbered_finals += 1,
                }
                if !text.trim().is_empty() {
                    self.finals.push(FinalTranscript { utterance: index, text: text.trim().to_owned() });
                }
            }
            MacawEvent::Error { code, message, recoverable } => {
                let error = server_error(code, message);
                if !recoverable {
                    return Err(error);
                }
                self.error_count += 1;
                self.last_error = Some(error);
            }
            MacawEvent::FramesDropped { dropped_ms } => self.dropped += Duration::from_millis(*dropped_ms),
            MacawEvent::SessionClosed { reason } => {
                return Err(ClientError::session_closed(reason));
            }
            _ => {}
        }
        Ok(())
    }

    /// Number of utterances that have a transcript or an error.
    fn answered(&self) -> usize {
        self.final_segment_ids.len() + self.unnumbered_finals + self.error_count
    }

    /// Number of utterances that have neither.
    fn missing(&self) -> usize {
        self.utterances_ended.saturating_sub(self.answered())
    }

    /// The texts in the order of the server.
    pub(super) fn texts(&self) -> Vec<String> {
        self.finals.iter().map(|transcript| transcript.text.clone()).collect()
    }

    /// The transcripts with their times. A server that reports none gives the whole recording to each of them.
    pub(super) fn segments(&self, duration: Duration) -> Vec<Segment> {
        self.finals.iter().map(|transcript| self.segment(transcript, duration)).collect()
    }

    fn segment(&self, transcript: &FinalTranscript, duration: Duration) -> Segment {
        let length_ms = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let known = self.utterances.get(transcript.utterance).or(self.utterances.last());
        let (start_ms, end_ms) = known.copied().unwrap_or_default();
        let start_ms = start_ms.unwrap_or(0).min(length_ms);
        let end_ms = end_ms.unwrap_or(length_ms).clamp(start_ms, length_ms);
        Segment { text: transcript.text.clone(), start_ms, end_ms, ..Segment::default() }
    }

    /// The next transcript whose utterance has ended, when this much was sent.
    fn next_ready(&mut self, sent: Duration) -> Option<Segment> {
        let next = self.finals.get(self.passed_on).filter(|next| next.utterance < self.utterances_ended)?;
        let segment = self.segment(next, sent);
        self.passed_on += 1;
        Some(segment)
    }

    /// True if no more events are expected after a silence of `quiet`.
    fn is_finished(&self, quiet: Duration, timing: &ClientTiming) -> Result<bool, ClientError> {
        if self.utterances.len() > self.utterances_ended {
            return if quiet < timing.stall_timeout {
                Ok(false)
            } else {
                Err(ClientError::Stalled(timing.stall_timeout))
            };
        }
        // A server may send `vad.speech_end` before a slow transcript.
        Ok(quiet
            >= if self.answered() < self.utterances_ended {
                timing.late_transcript_timeout
            } else {
                timing.quiet_timeout
            })
    }

    /// Fails if there are errors and no transcript. The caller reports errors beside transcripts.
    fn into_result(mut self) -> Result<Self, ClientError> {
        match self.last_error.take() {
            Some(error) if self.finals.is_empty() => Err(error),
            error => Ok(Self { last_error: error, ..self }),
        }
    }

    /// Why the transcript is incomplete, to report after the transcripts are shown.
    pub(super) fn into_problem(self) -> Option<ClientError> {
        let missing = self.missing();
        let (count, last) = (self.error_count, self.last_error);
        let first_utterance =
            self.utterances.first().map(|(start_ms, _)| start_ms.map(Duration::from_millis));
        let no_words = first_utterance
            .filter(|_| self.finals.is_empty())
            .map(|first_utterance| ClientError::NoWords { first_utterance });
        let incomplete = last.map(|last| ClientError::IncompleteTranscript { count, last: last.to_string() });
        let lost = (missing > 0 || !self.dropped.is_zero())
            .then_some(ClientError::MissingSpeech { utterances: missing, dropped: self.dropped });
        self.damage.or(incomplete).or(no_words).or(lost)
    }
}

/// End of the last audible window of 20 ms: less than 40 dB below the loudest window.
pub(super) fn end_of_audible_samples(samples: &[i16]) -> usize {
    const WINDOW: usize = SPEECH_RATE_HZ as usize / 50;
    let energy = |window: &[i16]| window.iter().map(|s| i64::from(*s).pow(2)).sum::<i64>() / WINDOW as i64;
    let loudest = samples.chunks(WINDOW).map(energy).max().unwrap_or(0);
    let last = samples.chunks(WINDOW).rposition(|window| energy(window) > loudest / 10_000);
    last.map_or(0, |index| ((index + 1) * WINDOW).min(samples.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_audible_samples_ignores_quiet_tail() {
        let mut samples = vec![0; 3200];
        samples[640..1280].fill(8000);
        samples[1280..].fill(3);
        assert_eq!(end_of_audible_samples(&samples), 1280);
        assert_eq!(end_of_audible_samples(&[]), 0);
        assert_eq!(end_of_audible_samples(&[0; 1000]), 0);
    }

    #[test]
    fn transcript_after_its_speech_end_is_awaited() {
        let timing = ClientTiming::default();
        let mut result = TranscriptionResult::default();
        assert!(result.is_finished(timing.quiet_timeout, &timing).unwrap(), "without any speech");
        result.handle_event(&MacawEvent::SpeechStarted { at_ms: None }).unwrap();
        assert!(!result.is_finished(timing.quiet_timeout, &timing).unwrap(), "an utterance is open");
        assert!(result.is_finished(timing.stall_timeout, &timing).is_err());
        result.handle_event(&MacawEvent::SpeechEnded { at_ms: None }).unwrap();
        assert!(!result.is_finished(timing.quiet_timeout, &timing).unwrap(), "a transcript is missing");
        assert!(result.is_finished(timing.late_transcript_timeout, &timing).unwrap());
        assert_eq!(result.missing(), 1, "it never came");
        result
            .handle_event(&MacawEvent::Final {
                text: String::new(),
                segment_id: Some(0),
                assistant: false,
                is_labelled: false,
            })
            .unwrap();
        assert!(result.is_finished(timing.quiet_timeout, &timing).unwrap());
    }

    #[test]
    fn speech_without_a_transcript_and_dropped_audio_are_no_success() {
        let with_words = || {
            let mut result = TranscriptionResult::default();
            result.handle_event(&MacawEvent::SpeechStarted { at_ms: None }).unwrap();
            result.handle_event(&MacawEvent::SpeechEnded { at_ms: None }).unwrap();
            let words = MacawEvent::Final {
                text: "Hello.".to_owned(),
                segment_id: Some(0),
                assistant: false,
                is_labelled: false,
            };
            result.handle_event(&words).unwrap();
            result
        };
        assert!(with_words().into_problem().is_none());
        let mut without = with_words();
        without.handle_event(&MacawEvent::SpeechStarted { at_ms: None }).unwrap();
        without.handle_event(&MacawEvent::SpeechEnded { at_ms: None }).unwrap();
        let mut dropped = with_words();
        dropped.handle_event(&MacawEvent::FramesDropped { dropped_ms: 40 }).unwrap();
        for result in [without, dropped] {
            assert_eq!(result.into_problem().unwrap().exit_code(), 75);
        }
    }
}
