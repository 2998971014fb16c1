//! The values of event slots: what a [`ClientEvent`] and its session put into a protocol's templates.

use super::{Codec, segments::Segment};
use crate::{
    audio::word_times::WordTime,
    date::rfc3339,
    vocabulary::{ClientEvent, Slot, SlotValue, seconds},
};

/// [`Slot::ExpiresUnixS`] of a session without a time limit, s after its opening.
const UNLIMITED_S: u64 = 24 * 3600;

/// Source of the values of an event's slots.
#[derive(Debug)]
pub(super) enum EventSource<'e> {
    /// An event of the session.
    Event(&'e ClientEvent),
    /// Calls of tools whose results are no longer awaited; their ids are in the codec's list of words.
    CancelledCalls,
    /// The answer to a command.
    Reply,
    /// A configured voice.
    Voice(&'e str),
    /// A word of a final transcript.
    Word(&'e WordTime),
    /// A segment of the user's transcript.
    Segment(&'e Segment),
    /// Some of the model's words.
    Words {
        /// The words.
        text: &'e str,
        /// The turn or answer.
        segment_id: u32,
    },
    /// An error in the protocol's spelling.
    Error {
        /// Code of the error.
        code: &'e str,
        /// Message of the error.
        message: &'e str,
        /// The session goes on.
        recoverable: bool,
        /// Utterance that the error belongs to.
        segment_id: Option<u32>,
        /// Text to speak that the error belongs to.
        request_id: Option<&'e str>,
    },
}

impl Codec {
    /// The value of a slot in an event that is sent `at_s` seconds after the session was opened.
    pub(super) fn slot_value<'v>(
        &'v self,
        source: &'v EventSource<'_>,
        slot: Slot,
        at_s: f64,
    ) -> SlotValue<'v> {
        let own = match source {
            EventSource::Event(ClientEvent::SessionClosed { reason, .. }) if slot == Slot::Reason => {
                self.mapping.close(*reason).map(|spelling| SlotValue::Str(&spelling.reason))
            }
            EventSource::Event(ClientEvent::SessionCreated { limit_ms, .. })
                if slot == Slot::ExpiresUnixS =>
            {
                let limit_s = limit_ms.map_or(UNLIMITED_S, |ms| ms / 1000);
                Some(SlotValue::Int((self.opened_unix_s + limit_s as f64) as i64))
            }
            EventSource::Event(_) if matches!(slot, Slot::Words | Slot::HotWords | Slot::CallIds) => {
                Some(SlotValue::Elements(&self.words_json))
            }
            EventSource::Event(_) if slot == Slot::LastSegments => {
                Some(SlotValue::Elements(&self.segments_json))
            }
            EventSource::CancelledCalls => {
                (slot == Slot::CallIds).then_some(SlotValue::Elements(&self.words_json))
            }
            EventSource::Event(_) if slot == Slot::JoinedText => Some(SlotValue::Str(&self.joined_text)),
            EventSource::Event(event) => event
                .value(slot)
                .or_else(|| self.spoken.value(slot))
                .or_else(|| (slot == Slot::RequestId).then_some(SlotValue::Str(&self.speaking_id))),
            EventSource::Reply => (slot == Slot::Voices).then_some(SlotValue::Elements(&self.voices_json)),
            EventSource::Voice(name) => (slot == Slot::Voice).then_some(SlotValue::Str(name)),
            EventSource::Word(word) => word_value(word, slot),
            EventSource::Segment(segment) => segment_value(segment, slot),
            EventSource::Words { text, segment_id } => match slot {
                Slot::Text => Some(SlotValue::Str(text)),
                Slot::SegmentId => Some(SlotValue::Int((*segment_id).into())),
                _ => None,
            },
            EventSource::Error { code, message, recoverable, segment_id, request_id } => match slot {
                Slot::Code => Some(SlotValue::Str(code)),
                Slot::Message => Some(SlotValue::Str(message)),
                Slot::Recoverable => Some(SlotValue::Bool(*recoverable)),
                Slot::Fatal => Some(SlotValue::Bool(!*recoverable)),
                Slot::SegmentId => segment_id.map(|id| SlotValue::Int(id.into())),
                Slot::RequestId => request_id.map(SlotValue::Str),
                _ => None,
            },
        };
        // `None` can only be an error without an utterance or text: files are checked against the slots of each event, and a
        // test asks for all of them.
        own.or_else(|| self.common_value(slot, at_s)).unwrap_or(SlotValue::Null)
    }

    /// The value of a slot that every event knows ([`Slot::COMMON`]).
    fn common_value(&self, slot: Slot, at_s: f64) -> Option<SlotValue<'_>> {
        Some(match slot {
            Slot::SessionId => SlotValue::Str(&self.session_id),
            Slot::Model => SlotValue::Str(&self.model),
            Slot::Time => SlotValue::Str(self.event_time.get_or_init(|| rfc3339(self.opened_unix_s + at_s))),
            Slot::UnixS => SlotValue::Float(self.opened_unix_s + at_s),
            Slot::OpenedUnixS => SlotValue::Float(self.opened_unix_s),
            Slot::OpenedAt => SlotValue::Str(self.opened_at.get_or_init(|| rfc3339(self.opened_unix_s))),
            _ => return None,
        })
    }
}

fn segment_value(segment: &Segment, slot: Slot) -> Option<SlotValue<'_>> {
    match slot {
        Slot::Text => Some(SlotValue::Str(&segment.text)),
        Slot::SegmentId => Some(SlotValue::Int(segment.segment_id.into())),
        Slot::FromS => Some(seconds(segment.from_ms)),
        Slot::ToS => Some(seconds(segment.to_ms)),
        Slot::Completed => Some(SlotValue::Bool(segment.completed)),
        _ => None,
    }
}

fn word_value(word: &WordTime, slot: Slot) -> Option<SlotValue<'_>> {
    match slot {
        Slot::Word => Some(SlotValue::Str(&word.word)),
        Slot::BareWord => Some(SlotValue::Str(&word.bare)),
        Slot::FromS => Some(seconds(word.start_ms)),
        Slot::ToS => Some(seconds(word.end_ms)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vocabulary::EventName;
    use crate::{
        spelling::Library,
        vocabulary::{
            ClientAudio, CloseReason, EndCause, RolloverReason, Speaker, SpeechId, TokenUsage, ToolCall,
        },
    };

    fn example(name: EventName) -> Option<ClientEvent> {
        let text = || "t".to_owned();
        Some(match name {
            EventName::SessionCreated => {
                ClientEvent::SessionCreated { language: Some(text()), limit_ms: Some(1) }
            }
            EventName::AudioReceived => ClientEvent::AudioReceived { sequence: 1, bytes: (1, 2), ms: (1, 2) },
            EventName::SpeechStarted => ClientEvent::SpeechStarted { at_ms: 1, from_ms: 1, segment_id: 1 },
            EventName::AudioCommitted => {
                let silence_ms = None;
                ClientEvent::AudioCommitted { segment_id: 1, audio_ms: 1, is_transcribed: true, silence_ms }
            }
            EventName::AudioCleared => ClientEvent::AudioCleared,
            EventName::ConversationPaused => ClientEvent::ConversationPaused,
            EventName::ConversationResumed => ClientEvent::ConversationResumed,
            EventName::TranscriptPart => ClientEvent::TranscriptPart { text: text(), segment_id: 1 },
            EventName::AudioAnswered => ClientEvent::AudioAnswered { samples: 1 },
            EventName::AnswerStarted | EventName::ToolsCancelled => {
                ClientEvent::AnswerStarted { segment_id: 1, by_client: true }
            }
            EventName::AnswerEnded | EventName::AnswerCancelled | EventName::AnswerAwaitsTools => {
                let usage = TokenUsage::default();
                ClientEvent::AnswerEnded {
                    segment_id: 1,
                    cancelled: true,
                    audio_ms: 1,
                    usage,
                    hit_limit: false,
                }
            }
            EventName::ToolCalled => {
                let text = || "x".to_owned();
                let call = ToolCall { call_id: text(), name: text(), arguments: text() };
                ClientEvent::ToolCalled { segment_id: 1, entry_id: 2, call }
            }
            EventName::SpeechEnded => ClientEvent::SpeechEnded { at_ms: 1, segment_id: 1 },
            EventName::TurnEndLikely => ClientEvent::TurnEndLikely {
                text: text(),
                segment_id: 1,
                confidence: 0.5,
                start_ms: 1,
                audio_ms: 1,
            },
            EventName::TurnResumed => {
                ClientEvent::TurnResumed { text: text(), segment_id: 1, start_ms: 1, audio_ms: 1 }
            }
            EventName::TurnEnded => ClientEvent::TurnEnded {
                text: text(),
                segment_id: 1,
                confidence: 0.5,
                cause: EndCause::Model,
                start_ms: 1,
                audio_ms: 1,
            },
            EventName::TranscriptPartial
            | EventName::AnswerSentence
            | EventName::AnswerDelta
            | EventName::AnswerTextDelta
            | EventName::UserPartial
            | EventName::UserDelta => ClientEvent::TranscriptPartial {
                speaker: Speaker::User,
                text: text(),
                segment_id: 1,
                audio_ms: 1,
                start_ms: 1,
            },
            EventName::TranscriptFinal | EventName::UserTranscript => ClientEvent::TranscriptFinal {
                speaker: Speaker::User,
                text: text(),
                segment_id: 1,
                duration_ms: 1,
                start_ms: 1,
                speech_ms: (1, 1),
                utterance_ended: true,
                finalized: true,
                language: Some(text()),
                words: Vec::new(),
            },
            EventName::UtteranceGap => ClientEvent::UtteranceGap { last_ms: 1 },
            EventName::SpeakingStarted => ClientEvent::SpeakingStarted {
                request_id: text(),
                at_ms: 1,
                text: text(),
                is_requested: true,
            },
            EventName::Audio => {
                ClientEvent::Audio(ClientAudio { bytes: vec![0; 2].into(), turn: SpeechId(1) })
            }
            EventName::AudioComplete => ClientEvent::AudioComplete { turn: SpeechId(1) },
            EventName::SpeakingEnded | EventName::SpeakingCancelled => {
                let cancelled = name == EventName::SpeakingCancelled;
                ClientEvent::SpeakingEnded { request_id: text(), at_ms: 1, cancelled, audio_ms: 1 }
            }
            EventName::Flushed => ClientEvent::Flushed { sequence: 1, request_id: Some(text()) },
            EventName::Cleared => ClientEvent::Cleared { sequence: 1, request_id: Some(text()) },
            EventName::Configured => ClientEvent::Configured {
                hot_words: Vec::new(),
                end_threshold: Some(0.5),
                end_likely_threshold: Some(0.5),
                end_wait_max_ms: Some(1),
            },
            EventName::Completed => ClientEvent::Completed,
            EventName::GoingAway => ClientEvent::GoingAway { left_ms: 1 },
            EventName::StillHere => ClientEvent::StillHere,
            EventName::Queued => ClientEvent::Queued { position: 1, waited_ms: 1, wait_max_ms: 1 },
            EventName::RateLimited => ClientEvent::RateLimited { delay_ms: 1 },
            EventName::FramesDropped => ClientEvent::FramesDropped { dropped_ms: 1 },
            EventName::RolledOver => ClientEvent::RolledOver {
                reason: RolloverReason::TimeLimit,
                gap_ms: 1,
                standby: true,
                kept_ms: 1,
                known_lines: 1,
                missing_lines: 1,
            },
            EventName::SessionClosed => ClientEvent::SessionClosed {
                reason: CloseReason::Idle,
                total_ms: 1,
                audio_ms: 1,
                segments: 1,
            },
            // Their values come from the codec, the protocol's own `[errors]`, and the words or segments of a transcript.
            EventName::Error
            | EventName::RequestFailed
            | EventName::ConfigureFailed
            | EventName::Warning
            | EventName::TranscriptSegment
            | EventName::TranscriptWord
            | EventName::VoiceEntry => return None,
        })
    }

    #[test]
    fn every_slot_of_every_event_has_a_value() {
        let codec = Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 1.0);
        for name in EventName::ALL {
            let Some(event) = example(name) else { continue };
            let source = EventSource::Event(&event);
            for slot in name.slots() {
                let value = codec.slot_value(&source, slot, 1.0);
                assert!(!matches!(value, SlotValue::Null), "{name:?} {slot:?}");
            }
        }
    }
}
