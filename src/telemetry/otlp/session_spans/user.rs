//! Spans of what the user says: from the first sound to the transcript, or to the end of the speech where nothing is transcribed.

use std::time::{Duration, Instant};

use super::{OPEN_MAX, Scope};
use crate::{
    telemetry::otlp::span::{Span, SpanKind},
    vocabulary::ClientEvent,
};

/// Event at the decision that the user has finished.
const END_OF_SPEECH: &str = "end_of_speech";

/// Utterances that are not over.
#[derive(Debug, Default)]
pub(super) struct UserSpans {
    open: Vec<Utterance>,
}

#[derive(Debug)]
struct Utterance {
    segment_id: u32,
    span: Span,
}

impl UserSpans {
    /// Id of the utterance whose transcript is next.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.open.first().map(|utterance| utterance.span.id)
    }

    pub(super) fn handle_event(&mut self, scope: &mut Scope, now: Instant, event: &ClientEvent) {
        match event {
            ClientEvent::SpeechStarted { at_ms, from_ms, segment_id } => {
                let spoken = Duration::from_millis(at_ms.saturating_sub(*from_ms));
                self.begin(scope, now.checked_sub(spoken).unwrap_or(now), *segment_id);
            }
            ClientEvent::SpeechEnded { segment_id, .. } => {
                if let Some(utterance) = self.find(*segment_id) {
                    note_end_of_speech(scope, now, &mut utterance.span);
                }
            }
            ClientEvent::AudioCommitted { segment_id, audio_ms, is_transcribed, .. } => {
                let length = Duration::from_millis(*audio_ms);
                let span = self.find_or_begin(scope, now.checked_sub(length).unwrap_or(now), *segment_id);
                span.set("voxbridge.utterance.seconds", length.as_secs_f64());
                note_end_of_speech(scope, now, span);
                if !is_transcribed {
                    self.end(scope, now, *segment_id);
                }
            }
            ClientEvent::TranscriptFinal {
                segment_id, text, utterance_ended, finalized, language, ..
            } => {
                let span = self.find_or_begin(scope, now, *segment_id);
                scope.note(span, now, "transcribed");
                span.set_if_known("voxbridge.language", language.clone());
                scope.set_content(span, "voxbridge.transcript", || text.clone());
                // The end of the turn follows an utterance that has ended by itself.
                if *finalized || !utterance_ended {
                    self.end(scope, now, *segment_id);
                }
            }
            ClientEvent::TurnEnded { segment_id, cause, .. } => {
                if let Some(utterance) = self.find(*segment_id) {
                    utterance.span.set("voxbridge.turn_end.cause", cause.name());
                    note_end_of_speech(scope, now, &mut utterance.span);
                }
                self.end(scope, now, *segment_id);
            }
            ClientEvent::Error(error) => {
                if let Some(utterance) = error.segment_id.and_then(|segment_id| self.find(segment_id)) {
                    utterance.span.fail(error.kind.name(), error.kind.name());
                }
            }
            ClientEvent::AudioCleared => self.end_all(scope, now),
            _ => {}
        }
    }

    fn find(&mut self, segment_id: u32) -> Option<&mut Utterance> {
        self.open.iter_mut().find(|utterance| utterance.segment_id == segment_id)
    }

    fn begin(&mut self, scope: &mut Scope, at: Instant, segment_id: u32) {
        if self.open.len() == OPEN_MAX {
            scope.end(at, self.open.remove(0).span);
        }
        let mut span = scope.begin(at, "utterance", SpanKind::Internal);
        span.set("voxbridge.segment", segment_id);
        self.open.push(Utterance { segment_id, span });
    }

    /// The span of an utterance. Some clients turn off the events of its begin.
    fn find_or_begin(&mut self, scope: &mut Scope, at: Instant, segment_id: u32) -> &mut Span {
        let index = match self.open.iter().position(|utterance| utterance.segment_id == segment_id) {
            Some(index) => index,
            None => {
                self.begin(scope, at, segment_id);
                self.open.len() - 1
            }
        };
        &mut self.open[index].span
    }

    fn end(&mut self, scope: &Scope, now: Instant, segment_id: u32) {
        if let Some(index) = self.open.iter().position(|utterance| utterance.segment_id == segment_id) {
            scope.end(now, self.open.remove(index).span);
        }
    }

    pub(super) fn end_all(&mut self, scope: &Scope, now: Instant) {
        self.open.drain(..).for_each(|utterance| scope.end(now, utterance.span));
    }
}

/// Notes the end of the speech, once.
fn note_end_of_speech(scope: &Scope, now: Instant, span: &mut Span) {
    if !span.has_event(END_OF_SPEECH) {
        scope.note(span, now, END_OF_SPEECH);
    }
}
