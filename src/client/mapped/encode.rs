//! Encodes for the client: [`ClientEvent`]s become frames, and errors get the protocol's code and message.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;

use super::{
    answer_words::{AnswerWords, WaitingWords},
    segments::Segments,
    slots::{EventSource, Slots},
    tools::AwaitedCalls,
};
use crate::{
    audio::word_times::{WordTime, words_within},
    error::{Error, ErrorKind, Origin},
    spelling::{
        ClientMapping,
        client::{CloseSpelling, EventMessage, EventSlot, Framing, ProtocolCommand, ReportedAs, ValueScope},
        error_spelling::{ErrorClose, ErrorSpelling},
    },
    vocabulary::{ClientEvent, CloseReason, EventName, Message, SlotValue, Speaker},
};

/// Takes the messages for an event.
type MessageSink<'s> = dyn FnMut(Message) + 's;

/// Writer of the messages to one client.
#[derive(Debug)]
pub(in crate::client) struct EventEncoder {
    mapping: Arc<ClientMapping>,
    pub(in crate::client) slots: Slots,
    /// How messages are framed in both directions.
    pub(super) framing: Framing,
    /// Rate of the audio, as its frames say it, Hz.
    pub(super) rate_out_hz: u32,
    /// The last segments, for protocols that repeat them.
    pub(super) segments: Option<Segments>,
    pub(super) answers: AnswerWords,
    /// Calls of tools whose results have not come.
    pub(super) calls: AwaitedCalls,
}

impl EventEncoder {
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        Self {
            slots: Slots::new(mapping.clone(), opened_unix_s),
            framing: mapping.framing,
            rate_out_hz: mapping.audio_out.rate_hz,
            segments: mapping.segments_max.map(Segments::new),
            answers: AnswerWords::default(),
            calls: AwaitedCalls::default(),
            mapping,
        }
    }

    /// Memory of the words that are kept, bytes.
    pub(in crate::client) fn kept_bytes(&self) -> usize {
        // Twice, because the words are rendered, too.
        self.segments.as_ref().map_or(0, |segments| 2 * segments.bytes())
    }

    /// Encodes an event that is sent `at_s` seconds after the session opened.
    pub(in crate::client) fn encode(&mut self, event: &ClientEvent, at_s: f64, send: &mut MessageSink<'_>) {
        match event {
            ClientEvent::Audio(audio) if self.mapping.event(EventName::Audio).is_empty() => {
                return send(self.framing.write_audio(&audio.bytes, self.rate_out_hz, at_s));
            }
            ClientEvent::Error(error) => return self.encode_error(error, at_s, send),
            ClientEvent::SessionClosed { reason: why, .. }
                if self.reported_as(*why) != ReportedAs::SessionClosed =>
            {
                return self.encode_close_as_error(*why, at_s, send);
            }
            _ => self.note(event, at_s, send),
        }
        self.send_new_words(event, at_s, send);
        if let Some((name, source)) = self.spell(event) {
            self.render_event(name, &source, at_s, send);
        }
        if self.answers.is_speaking
            && let Some(WaitingWords { segment_id, text }) = self.answers.unannounced.take()
        {
            self.send_sentences(segment_id, &text, false, at_s, send);
        }
        if let ClientEvent::Flushed { .. } | ClientEvent::Cleared { .. } = event {
            self.slots.spoken.note_report();
            self.slots.begin(ValueScope::Flush);
        }
    }

    /// Takes from an event what later messages need.
    fn note(&mut self, event: &ClientEvent, at_s: f64, send: &mut MessageSink<'_>) {
        match event {
            ClientEvent::TranscriptFinal { text, words, speech_ms, .. } => {
                self.render_words(text, words, speech_ms.0, speech_ms.1, at_s);
            }
            ClientEvent::TranscriptPartial { text, start_ms, audio_ms, .. }
            | ClientEvent::TurnEndLikely { text, start_ms, audio_ms, .. }
            | ClientEvent::TurnResumed { text, start_ms, audio_ms, .. }
            | ClientEvent::TurnEnded { text, start_ms, audio_ms, .. } => {
                self.render_words(text, &[], *start_ms, start_ms + audio_ms, at_s);
            }
            ClientEvent::Configured { hot_words, .. } => self.slots.words_json = json_elements(hot_words),
            ClientEvent::AnswerStarted { .. } => self.cancel_calls(at_s, send),
            ClientEvent::ToolCalled { segment_id, call, .. } if self.has(EventName::ToolCalled) => {
                self.calls.note(*segment_id, call);
            }
            ClientEvent::SpeakingStarted { request_id, .. } => {
                self.slots.speaking_id.clone_from(request_id);
                self.answers.is_speaking = true;
                self.slots.begin(ValueScope::Turn);
            }
            ClientEvent::SpeakingEnded { cancelled, .. } => {
                self.answers.is_speaking = false;
                self.framing.interruption().into_iter().filter(|_| *cancelled).for_each(send);
            }
            ClientEvent::SpeechStarted { .. } => self.slots.begin(ValueScope::Utterance),
            ClientEvent::AnswerEnded { .. } => self.slots.user_words.end_turn(),
            _ => {}
        }
        self.slots.spoken.note(event);
        self.note_segment(event, at_s);
    }

    /// The name under which the protocol has an event, and what fills its template; `None` if there is nothing to send.
    fn spell<'e>(&mut self, event: &'e ClientEvent) -> Option<(EventName, EventSource<'e>)> {
        let has = |name| !self.mapping.event(name).is_empty();
        let name = match event {
            ClientEvent::TranscriptPartial { speaker: Speaker::User, text, segment_id, .. }
                if has(EventName::UserDelta) =>
            {
                let (text, segment_id) = (self.slots.user_words.take_new(*segment_id, text)?, *segment_id);
                return Some((EventName::UserDelta, EventSource::Words { text, segment_id }));
            }
            ClientEvent::TranscriptPartial { speaker: Speaker::User, .. } if has(EventName::UserPartial) => {
                EventName::UserPartial
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::User, text, .. }
                if has(EventName::UserTranscript) =>
            {
                if text.is_empty() {
                    return None;
                }
                self.slots.user_words.add_transcript(text);
                EventName::UserTranscript
            }
            ClientEvent::SpeakingEnded { cancelled: true, .. } if has(EventName::SpeakingCancelled) => {
                EventName::SpeakingCancelled
            }
            ClientEvent::AnswerEnded { cancelled: true, .. } if has(EventName::AnswerCancelled) => {
                EventName::AnswerCancelled
            }
            ClientEvent::AnswerEnded { segment_id, .. }
                if has(EventName::AnswerAwaitsTools) && self.calls.are_of(*segment_id) =>
            {
                EventName::AnswerAwaitsTools
            }
            event => event.name(),
        };
        Some((name, EventSource::Event(event)))
    }

    /// Renders the messages of an event.
    pub(super) fn render_event(
        &mut self,
        name: EventName,
        source: &EventSource<'_>,
        at_s: f64,
        send: &mut MessageSink<'_>,
    ) {
        let mapping = self.mapping.clone();
        self.render_messages(mapping.event(name), source, at_s, send);
    }

    fn render_messages(
        &mut self,
        messages: &[EventMessage],
        source: &EventSource<'_>,
        at_s: f64,
        send: &mut MessageSink<'_>,
    ) {
        let audio_chars = match source {
            EventSource::Event(ClientEvent::Audio(audio)) => audio.bytes.len().div_ceil(3) * 4,
            _ => 0,
        };
        self.slots.begin_event();
        for message in messages {
            let value = |slot| self.slots.value(source, slot, at_s);
            if !message.conditions.hold(value, SlotValue::is_given) {
                continue;
            }
            message.renewed.iter().for_each(|at| self.slots.values.renew(&self.mapping.values, *at));
            let mut json = String::with_capacity(256 + audio_chars);
            message.render(&mut json, |slot| match (self.slots.value(source, slot, at_s), slot) {
                (SlotValue::Str(text), EventSlot::Event(slot)) => {
                    SlotValue::Str(self.mapping.slot_word(slot, text))
                }
                (value, _) => value,
            });
            send(self.framing.write_json(json));
        }
    }

    /// Renders the messages that answer a command at once.
    pub(super) fn reply_to(&mut self, command: &ProtocolCommand, send: &mut MessageSink<'_>) {
        if !command.reply.is_empty() {
            self.render_messages(&command.reply, &EventSource::Reply, 0.0, send);
        }
    }

    /// Sends what is new in the model's words, and the sentences in it.
    fn send_new_words(&mut self, event: &ClientEvent, at_s: f64, send: &mut MessageSink<'_>) {
        let has = |name| self.has(name);
        let is_written = !self.answers.speaks && has(EventName::AnswerTextDelta);
        let delta = if is_written { EventName::AnswerTextDelta } else { EventName::AnswerDelta };
        let sends_words = is_written || self.answers.sends_spoken;
        let (has_deltas, has_sentences) = (sends_words && has(delta), has(EventName::AnswerSentence));
        let has_announcement = has(EventName::SpeakingStarted);
        if !has_deltas && !has_sentences {
            return;
        }
        let (text, segment_id, is_final) = match event {
            ClientEvent::TranscriptPartial { speaker: Speaker::Assistant, text, segment_id, .. } => {
                (text, *segment_id, false)
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::Assistant, text, segment_id, .. } => {
                (text, *segment_id, true)
            }
            _ => return,
        };
        if let Some(text) = self.answers.deltas.take_rest(segment_id, text).filter(|_| has_deltas) {
            self.render_event(delta, &EventSource::Words { text, segment_id }, at_s, send);
        }
        if !has_sentences {
            return;
        }
        // The client shows each sentence while it plays, so the first audio is sent before its words.
        let is_announced = self.answers.is_speaking || is_final || !self.answers.speaks || !has_announcement;
        self.answers.unannounced = (!is_announced).then(|| WaitingWords { segment_id, text: text.clone() });
        if is_announced {
            self.send_sentences(segment_id, text, is_final, at_s, send);
        }
    }

    /// Sends the sentences that are new in the model's words so far.
    fn send_sentences(
        &mut self,
        segment_id: u32,
        text: &str,
        is_final: bool,
        at_s: f64,
        send: &mut MessageSink<'_>,
    ) {
        while let Some(text) = self.answers.sentences.next(segment_id, text, is_final) {
            let source = EventSource::Words { text, segment_id };
            self.render_event(EventName::AnswerSentence, &source, at_s, send);
        }
    }

    /// Forgets the calls of the answer before, because another begins. Tells the client if results are missing.
    fn cancel_calls(&mut self, at_s: f64, send: &mut MessageSink<'_>) {
        let missing = self.calls.take_missing();
        if !missing.is_empty() {
            self.slots.words_json = json_elements(&missing);
            self.render_event(EventName::ToolsCancelled, &EventSource::CancelledCalls, at_s, send);
        }
    }

    /// Adds a transcript to the segments, and renders these for the slot `segments`.
    fn note_segment(&mut self, event: &ClientEvent, at_s: f64) {
        let Some(segments) = self.segments.as_mut() else { return };
        if segments.note(event) {
            let mut json = std::mem::take(&mut self.slots.segments_json);
            let sources = segments.iter().map(EventSource::Segment);
            self.slots.render_elements(&mut json, EventName::TranscriptSegment, sources, at_s);
            self.slots.segments_json = json;
        }
    }

    /// Renders the words of a transcript, for the slot `words` of its message. A template without times takes them from the
    /// text, and so does one whose words may have the times of their utterance.
    fn render_words(&mut self, text: &str, timed: &[WordTime], from_ms: u64, to_ms: u64, at_s: f64) {
        if !self.has(EventName::TranscriptWord) {
            return self.slots.words_json.clear();
        }
        let has_times = self.mapping.lists_timed_words()
            && !(timed.is_empty() && self.mapping.transcripts.word_times_of_utterance);
        let words =
            if has_times { Cow::Borrowed(timed) } else { Cow::Owned(words_within(text, from_ms, to_ms)) };
        let mut json = std::mem::take(&mut self.slots.words_json);
        let sources = words.iter().map(EventSource::Word);
        self.slots.render_elements(&mut json, EventName::TranscriptWord, sources, at_s);
        self.slots.words_json = json;
    }

    /// True for an event that the protocol has.
    fn has(&self, name: EventName) -> bool {
        !self.mapping.event(name).is_empty()
    }

    fn encode_error(&mut self, error: &Error, at_s: f64, send: &mut MessageSink<'_>) {
        let mapping = self.mapping.clone();
        let Some(spelling) = mapping.error(error.kind) else { return };
        let detail = spelling.details.get(&error.detail).unwrap_or(&error.detail);
        let message = spelling.message(detail);
        let ErrorSpelling { code, recoverable, .. } = spelling;
        let source = EventSource::Error {
            code,
            message: &message,
            recoverable: *recoverable,
            segment_id: error.segment_id,
            request_id: error.request_id.as_deref(),
        };
        let is_request = error.request_id.is_some() && error.kind.origin() == Origin::Client;
        let special = [
            (EventName::RequestFailed, is_request),
            (EventName::ConfigureFailed, error.kind == ErrorKind::InvalidConfigure),
            (EventName::Warning, spelling.close.is_none()),
        ];
        let fits = |(name, applies): &(EventName, bool)| *applies && !mapping.event(*name).is_empty();
        let event = special.into_iter().find(fits).map_or(EventName::Error, |(name, _)| name);
        self.render_event(event, &source, at_s, send);
    }

    fn reported_as(&self, why: CloseReason) -> ReportedAs {
        self.mapping.close(why).map_or(ReportedAs::SessionClosed, |spelling| spelling.reported_as)
    }

    /// Reports the end of a session by an error event, or not at all.
    fn encode_close_as_error(&mut self, why: CloseReason, at_s: f64, send: &mut MessageSink<'_>) {
        let mapping = self.mapping.clone();
        let reported_as_error = |spelling: &&CloseSpelling| spelling.reported_as == ReportedAs::Error;
        let Some(spelling) = mapping.close(why).filter(reported_as_error) else { return };
        let (code, message) = (&spelling.reason, &spelling.text);
        let source =
            EventSource::Error { code, message, recoverable: false, segment_id: None, request_id: None };
        self.render_event(EventName::Error, &source, at_s, send);
    }
}

/// Texts as elements of a JSON array.
fn json_elements(texts: &[String]) -> String {
    let elements: Vec<_> = texts.iter().map(|text| Value::from(text.as_str()).to_string()).collect();
    elements.join(",")
}

/// Code and reason of the close frame after an error about this detail.
pub(in crate::client) fn error_close_frame(close: &ErrorClose, detail: &str) -> (u16, String) {
    (close.code, truncate_close_reason(close.text.filled_with(detail)))
}

/// RFC 6455 §5.5: a close frame's body is at most 125 bytes, two of them the code.
fn truncate_close_reason(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(123));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{client::Codec, spelling::Library};

    fn codec() -> Codec {
        Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 1_234_567_890.0)
    }

    fn encoded_text(event: ClientEvent) -> String {
        let mut messages = Vec::new();
        codec().encode(&event, 0.1234, |message, _| messages.push(message));
        match messages.as_slice() {
            [Message::Text(json)] => json.clone(),
            other => panic!("not one text frame: {other:?}"),
        }
    }

    #[test]
    fn events_carry_published_and_actual_fields() {
        let json = encoded_text(ClientEvent::SpeechStarted { at_ms: 920, from_ms: 670, segment_id: 0 });
        assert_eq!(json, r#"{"type":"vad.speech_start","timestamp_ms":920,"timestamp":1234567890.123}"#);
        let json = encoded_text(ClientEvent::TranscriptFinal {
            speaker: Speaker::User,
            text: "hello \"you\"".into(),
            segment_id: 3,
            duration_ms: 3420,
            start_ms: 0,
            speech_ms: (0, 3420),
            utterance_ended: true,
            finalized: false,
            language: Some("en".into()),
            words: Vec::new(),
        });
        assert!(
            json.starts_with(r#"{"type":"transcript.final","text":"hello \"you\"","segment_id":3,"#),
            "{json}"
        );
        assert!(
            json.contains(r#""start_ms":0,"end_ms":3420,"#) && json.contains(r#""duration":3.42,"#),
            "{json}"
        );
    }

    #[test]
    fn errors_use_the_protocols_code_message_and_close() {
        let mut error = Error::new(ErrorKind::UnknownModel, "nope");
        assert_eq!(
            codec().error_close_frame(&error),
            Some(Message::Close(1008, "Model not found: nope".into())),
            "tests/golden/macaw/c03b_unknown_model.json"
        );
        error.kind = ErrorKind::TranscribeFailed;
        error.segment_id = Some(2);
        assert_eq!(codec().error_close_frame(&error), None);
        let json = encoded_text(ClientEvent::Error(error));
        assert_eq!(
            json,
            r#"{"type":"error","code":"worker_crash","message":"nope","recoverable":true,"resume_segment_id":2}"#
        );
    }

    #[test]
    fn message_with_a_condition_is_sent_if_its_slot_is_given() {
        let source = include_str!("../../../mappings/client/deepgram-listen.toml")
            .replace(
                "[query]",
                "[query]\ntimes = { remember = \"times\", type = \"flag\", default = \"false\" }",
            )
            .replace("[values]", "[values]\ntimes = { kind = \"remembered\" }")
            .replace("[events]", "[events]\nflushed = FLUSHED");
        let flushed = "[{ message = '{\"with\": ${sequence}}', when = \"times\" }, \
            { message = '{\"without\": 0}', unless = \"times\" }, '{}']";
        let mut library = Library::default();
        library.add("f.toml", &source.replace("FLUSHED", flushed)).unwrap();
        for (query, first) in
            [("times=true", r#"{"with":3}"#), ("times=0", r#"{"without":0}"#), ("", r#"{"without":0}"#)]
        {
            let mut codec = Codec::new(library.client("deepgram-listen").unwrap(), 0.0);
            assert_eq!(codec.decode_query(query).problems, []);
            codec.set_session("id", "model", 1);
            let mut sent = Vec::new();
            codec.encode(&ClientEvent::Flushed { sequence: 3, request_id: None }, 0.0, |message, _| {
                sent.push(message);
            });
            assert_eq!(sent, [first, "{}"].map(|json| Message::Text(json.to_owned())), "{query}");
        }
        let wrong = source.replace("FLUSHED", "{ message = '{}', when = \"tims\" }");
        let problem = library.add("f.toml", &wrong).unwrap_err();
        assert!(problem.message.contains("did you mean `times`"), "{problem}");
    }

    #[test]
    fn long_close_reason_is_truncated() {
        assert_eq!(truncate_close_reason("é".repeat(100)).len(), 122);
    }

    #[test]
    fn every_error_kind_has_a_code() {
        for kind in ErrorKind::SESSION_KINDS {
            let json = encoded_text(ClientEvent::Error(Error::new(kind, "detail")));
            let code = serde_json::from_str::<Value>(&json).unwrap()["code"].clone();
            assert!(code.as_str().is_some_and(|code| !code.is_empty()), "{kind:?}");
        }
    }
}
