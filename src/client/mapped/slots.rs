//! The values of event slots: what a [`ClientEvent`] and its session put into a protocol's templates.

use std::sync::{Arc, OnceLock};

use super::{segments::Segment, spoken::SpokenAmounts, user_words::UserWords, values::ConnectionValues};
use crate::{
    audio::word_times::WordTime,
    date::rfc3339,
    spelling::{
        ClientMapping,
        client::{EventMessage, EventSlot, ValueScope},
    },
    vocabulary::{ClientEvent, EventName, Slot, SlotValue, seconds},
};

/// Name of the voice that every configuration has.
const DEFAULT_VOICE: &str = "default";

/// [`Slot::ExpiresUnixS`] of a session without a time limit, s after its opening.
const UNLIMITED_S: u64 = 24 * 3600;

/// Source of the values of an event's slots.
#[derive(Debug)]
pub(super) enum EventSource<'e> {
    /// An event of the session.
    Event(&'e ClientEvent),
    /// Calls of tools whose results are no longer awaited; their ids are in [`Slots::words_json`].
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

/// Values for the templates of one connection.
#[derive(Debug)]
pub(in crate::client) struct Slots {
    pub(super) mapping: Arc<ClientMapping>,
    /// Contents of the protocol's `[values]`.
    pub(super) values: ConnectionValues,
    /// Wall clock at the start of the session, seconds since 1970; times in events are based on it.
    opened_unix_s: f64,
    /// The same time as RFC 3339, once an event needs it.
    opened_at: OnceLock<String>,
    /// The time of the event that is rendered as RFC 3339, once its message needs it.
    event_time: OnceLock<String>,
    /// Session id and requested model, which every event may use.
    session_id: String,
    model: String,
    /// The words of an event, as elements of a JSON array.
    pub(super) words_json: String,
    /// The last segments, for protocols that repeat them, as elements of a JSON array.
    pub(super) segments_json: String,
    /// The voices that the client may name, as elements of a JSON array.
    voices_json: String,
    /// The client's name for the text or turn being spoken.
    pub(super) speaking_id: String,
    /// How much was spoken.
    pub(super) spoken: SpokenAmounts,
    /// The user's words.
    pub(super) user_words: UserWords,
}

impl Slots {
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        Self {
            values: ConnectionValues::new(&mapping.values, 0),
            mapping,
            opened_unix_s,
            opened_at: OnceLock::new(),
            event_time: OnceLock::new(),
            session_id: String::new(),
            model: String::new(),
            words_json: String::new(),
            segments_json: String::new(),
            voices_json: String::new(),
            speaking_id: String::new(),
            spoken: SpokenAmounts::default(),
            user_words: UserWords::default(),
        }
    }

    /// Sets the session id and model, and the seed of generated ids.
    pub(in crate::client) fn begin_session(&mut self, session_id: &str, model: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        model.clone_into(&mut self.model);
        self.values.begin_session(&self.mapping.values, seed);
    }

    /// Renews the values that are valid for a turn, an utterance or a flush.
    pub(super) fn begin(&mut self, scope: ValueScope) {
        self.values.begin(scope, &self.mapping.values);
    }

    /// Begins another event: it has a time of its own.
    pub(super) fn begin_event(&mut self) {
        self.event_time = OnceLock::new();
    }

    /// Sets the configured voices, for protocols that list them.
    pub(in crate::client) fn set_voices<'v>(&mut self, names: impl Iterator<Item = &'v str>) {
        let others = names.filter(|name| *name != DEFAULT_VOICE);
        let voices = std::iter::once(DEFAULT_VOICE).chain(others).map(EventSource::Voice);
        let mut json = std::mem::take(&mut self.voices_json);
        self.render_elements(&mut json, EventName::VoiceEntry, voices, 0.0);
        self.voices_json = json;
    }

    /// Renders the elements of a JSON array by the template of this event; nothing if the protocol does not have it.
    pub(super) fn render_elements<'e>(
        &self,
        json: &mut String,
        element: EventName,
        sources: impl Iterator<Item = EventSource<'e>>,
        at_s: f64,
    ) {
        json.clear();
        let Some(EventMessage { template, .. }) = self.mapping.event(element).first() else { return };
        for source in sources {
            if !json.is_empty() {
                json.push(',');
            }
            template.render(json, |slot| self.value(&source, slot, at_s));
        }
    }

    /// The value of a slot in an event that is sent `at_s` seconds after the session was opened.
    pub(super) fn value<'v>(
        &'v self,
        source: &'v EventSource<'_>,
        slot: EventSlot,
        at_s: f64,
    ) -> SlotValue<'v> {
        match slot {
            EventSlot::Event(slot) => self.event_value(source, slot, at_s),
            EventSlot::Value(at) => self.values.get(at),
        }
    }

    fn event_value<'v>(&'v self, source: &'v EventSource<'_>, slot: Slot, at_s: f64) -> SlotValue<'v> {
        let own = match source {
            EventSource::Event(event) => self.own_value(event, slot),
            EventSource::CancelledCalls => {
                (slot == Slot::CallIds).then_some(SlotValue::Elements(&self.words_json))
            }
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

    /// The value of a slot in an event of the session.
    fn own_value<'v>(&'v self, event: &'v ClientEvent, slot: Slot) -> Option<SlotValue<'v>> {
        match (slot, event) {
            (Slot::Reason, ClientEvent::SessionClosed { reason, .. }) => {
                self.mapping.close(*reason).map(|spelling| SlotValue::Str(&spelling.reason))
            }
            (Slot::ExpiresUnixS, ClientEvent::SessionCreated { limit_ms, .. }) => {
                let limit_s = limit_ms.map_or(UNLIMITED_S, |ms| ms / 1000);
                Some(SlotValue::Int((self.opened_unix_s + limit_s as f64) as i64))
            }
            (Slot::Words | Slot::HotWords | Slot::CallIds, _) => Some(SlotValue::Elements(&self.words_json)),
            (Slot::LastSegments, _) => Some(SlotValue::Elements(&self.segments_json)),
            (Slot::JoinedText, _) => Some(SlotValue::Str(self.user_words.joined())),
            _ => event
                .value(slot)
                .or_else(|| self.spoken.value(slot))
                .or_else(|| (slot == Slot::RequestId).then_some(SlotValue::Str(&self.speaking_id))),
        }
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
        let slots = Slots::new(Library::embedded().unwrap().client("macaw").unwrap(), 1.0);
        for name in EventName::ALL {
            let Some(event) = example(name) else { continue };
            let source = EventSource::Event(&event);
            for slot in name.slots() {
                let value = slots.value(&source, EventSlot::Event(slot), 1.0);
                assert!(!matches!(value, SlotValue::Null), "{name:?} {slot:?}");
            }
        }
    }
}
