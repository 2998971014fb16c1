//! Encodes for the client: [`ClientEvent`]s become frames, and errors get the protocol's code and message.

use std::{borrow::Cow, sync::OnceLock};

use serde_json::Value;

use super::{Codec, CodecKind, slot_values::EventSource};
use crate::{
    audio::word_times::{WordTime, words_within},
    error::{Error, ErrorKind, Origin},
    spelling::{
        client::{CloseSpelling, EventMessage, EventSlot, ProtocolCommand, ReportedAs, ValueScope},
        error_spelling::ErrorSpelling,
    },
    vocabulary::{ClientEvent, CloseReason, EventName, Message, SlotValue, Speaker, SpeechId},
};

impl Codec {
    /// Encodes an event that is sent `at_s` seconds after the session opened, and passes its messages on. A protocol has
    /// one message for an event, several, or none. A message with a turn is discarded when the user interrupts that turn.
    pub fn encode(
        &mut self,
        event: &ClientEvent,
        at_s: f64,
        mut send: impl FnMut(Message, Option<SpeechId>),
    ) {
        if let CodecKind::Realtime(realtime) = &mut self.kind {
            return realtime.encode(event, send);
        }
        let mut send = |message| send(message, event.turn());
        self.encode_event(event, at_s, &mut send);
    }

    fn encode_event(&mut self, event: &ClientEvent, at_s: f64, mut send: &mut impl FnMut(Message)) {
        if let CodecKind::Live(live) = &mut self.kind
            && (live.is_call || !matches!(event, ClientEvent::Audio(_)))
        {
            return live.encode(&self.mapping, event, at_s, &mut send);
        }
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
        self.send_new_words(event, at_s, &mut send);
        if let Some((name, source)) = self.spell(event) {
            self.render_event(name, &source, at_s, &mut send);
        }
        if self.is_speaking
            && let Some((segment_id, text)) = self.unannounced_words.take()
        {
            self.send_sentences(segment_id, &text, false, at_s, &mut send);
        }
        if let ClientEvent::Flushed { .. } | ClientEvent::Cleared { .. } = event {
            self.spoken.note_report();
            self.begin(ValueScope::Flush);
        }
    }

    /// Takes from an event what later messages need.
    fn note(&mut self, event: &ClientEvent, at_s: f64, mut send: &mut impl FnMut(Message)) {
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
            ClientEvent::Configured { hot_words, .. } => {
                let words: Vec<_> =
                    hot_words.iter().map(|word| Value::from(word.as_str()).to_string()).collect();
                self.words_json = words.join(",");
            }
            ClientEvent::AnswerStarted { .. } => self.cancel_calls(at_s, &mut send),
            ClientEvent::ToolCalled { segment_id, call, .. } => self.note_call(*segment_id, call),
            ClientEvent::SpeakingStarted { request_id, .. } => {
                self.speaking_id.clone_from(request_id);
                self.is_speaking = true;
                self.begin(ValueScope::Turn);
            }
            ClientEvent::SpeakingEnded { cancelled, .. } => {
                self.is_speaking = false;
                self.framing.interruption().into_iter().filter(|_| *cancelled).for_each(&mut send);
            }
            ClientEvent::SpeechStarted { .. } => self.begin(ValueScope::Utterance),
            ClientEvent::AnswerEnded { .. } => self.has_user_text = false,
            _ => {}
        }
        self.spoken.note(event);
        self.note_segment(event, at_s);
    }

    /// The name under which the protocol has an event, and what fills its template; `None` if there is nothing to send.
    fn spell<'e>(&mut self, event: &'e ClientEvent) -> Option<(EventName, EventSource<'e>)> {
        let has = |name| !self.mapping.event(name).is_empty();
        let name = match event {
            ClientEvent::TranscriptPartial { speaker: Speaker::User, text, segment_id, .. }
                if has(EventName::UserDelta) =>
            {
                let (text, segment_id) = (self.user_words.take_new(*segment_id, text)?, *segment_id);
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
                self.joined_text.clear();
                self.joined_text.push_str(if self.has_user_text { " " } else { "" });
                self.joined_text.push_str(text);
                self.has_user_text = true;
                EventName::UserTranscript
            }
            ClientEvent::SpeakingEnded { cancelled: true, .. } if has(EventName::SpeakingCancelled) => {
                EventName::SpeakingCancelled
            }
            ClientEvent::AnswerEnded { cancelled: true, .. } if has(EventName::AnswerCancelled) => {
                EventName::AnswerCancelled
            }
            ClientEvent::AnswerEnded { segment_id, .. }
                if has(EventName::AnswerAwaitsTools) && self.awaits_results_of(*segment_id) =>
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
        send: impl FnMut(Message),
    ) {
        let mapping = self.mapping.clone();
        self.render_messages(mapping.event(name), source, at_s, send);
    }

    fn render_messages(
        &mut self,
        messages: &[EventMessage],
        source: &EventSource<'_>,
        at_s: f64,
        mut send: impl FnMut(Message),
    ) {
        let audio_chars = match source {
            EventSource::Event(ClientEvent::Audio(audio)) => audio.bytes.len().div_ceil(3) * 4,
            _ => 0,
        };
        self.event_time = OnceLock::new();
        for message in messages {
            let value = |slot| match slot {
                EventSlot::Event(slot) => self.slot_value(source, slot, at_s),
                EventSlot::Value(at) => self.values.get(at),
            };
            if message.when.as_ref().is_some_and(|when| !when.holds(value))
                || message.unless.as_ref().is_some_and(|unless| unless.holds(value))
            {
                continue;
            }
            message.renewed.iter().for_each(|at| self.values.renew(&self.mapping.values, *at));
            let mut json = String::with_capacity(256 + audio_chars);
            message.render(&mut json, |slot| match slot {
                EventSlot::Event(slot) => match self.slot_value(source, slot, at_s) {
                    SlotValue::Str(text) => SlotValue::Str(self.mapping.slot_word(slot, text)),
                    value => value,
                },
                EventSlot::Value(at) => self.values.get(at),
            });
            send(self.framing.write_json(json));
        }
    }

    /// Renders the messages that answer a command at once.
    pub(super) fn reply_to(&mut self, command: &ProtocolCommand) {
        if command.reply.is_empty() {
            return;
        }
        let mut replies = std::mem::take(&mut self.replies);
        self.render_messages(&command.reply, &EventSource::Reply, 0.0, |message| replies.push(message));
        self.replies = replies;
    }

    /// Sends what is new in the model's words, and the sentences in it.
    fn send_new_words(&mut self, event: &ClientEvent, at_s: f64, send: &mut impl FnMut(Message)) {
        let has = |name| !self.mapping.event(name).is_empty();
        let is_written = !self.speaks && has(EventName::AnswerTextDelta);
        let delta = if is_written { EventName::AnswerTextDelta } else { EventName::AnswerDelta };
        let sends_words = is_written || self.sends_answer_words;
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
        if let Some(text) = self.deltas.take_rest(segment_id, text).filter(|_| has_deltas) {
            self.render_event(delta, &EventSource::Words { text, segment_id }, at_s, &mut *send);
        }
        if !has_sentences {
            return;
        }
        // The client shows each sentence while it plays, so the first audio is sent before its words.
        let is_announced = self.is_speaking || is_final || !self.speaks || !has_announcement;
        self.unannounced_words = (!is_announced).then(|| (segment_id, text.clone()));
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
        send: &mut impl FnMut(Message),
    ) {
        while let Some(text) = self.sentences.next(segment_id, text, is_final) {
            let source = EventSource::Words { text, segment_id };
            self.render_event(EventName::AnswerSentence, &source, at_s, &mut *send);
        }
    }

    /// Renews the values that are valid for a turn, an utterance or a flush.
    fn begin(&mut self, scope: ValueScope) {
        let mapping = self.mapping.clone();
        self.values.begin(scope, &mapping.values);
    }

    /// Adds a transcript to the segments, and renders these for the slot `segments`.
    fn note_segment(&mut self, event: &ClientEvent, at_s: f64) {
        if !self.segments.as_mut().is_some_and(|segments| segments.note(event)) {
            return;
        }
        let mut json = std::mem::take(&mut self.segments_json);
        json.clear();
        if let (Some(message), Some(segments)) =
            (self.mapping.event(EventName::TranscriptSegment).first(), &self.segments)
        {
            for segment in segments.iter() {
                if !json.is_empty() {
                    json.push(',');
                }
                let source = EventSource::Segment(segment);
                message.template.render(&mut json, |slot| match slot {
                    EventSlot::Event(slot) => self.slot_value(&source, slot, at_s),
                    EventSlot::Value(at) => self.values.get(at),
                });
            }
        }
        self.segments_json = json;
    }

    /// Renders the words of a transcript, for the slot `words` of its message. A template without times takes them from the
    /// text, and so does one whose words may have the times of their utterance.
    fn render_words(&mut self, text: &str, timed: &[WordTime], from_ms: u64, to_ms: u64, at_s: f64) {
        let mut json = std::mem::take(&mut self.words_json);
        json.clear();
        if let Some(message) = self.mapping.event(EventName::TranscriptWord).first() {
            let has_times = self.mapping.lists_timed_words()
                && !(timed.is_empty() && self.mapping.transcripts.word_times_of_utterance);
            let words =
                if has_times { Cow::Borrowed(timed) } else { Cow::Owned(words_within(text, from_ms, to_ms)) };
            for word in words.iter() {
                if !json.is_empty() {
                    json.push(',');
                }
                let source = EventSource::Word(word);
                message.template.render(&mut json, |slot| match slot {
                    EventSlot::Event(slot) => self.slot_value(&source, slot, at_s),
                    EventSlot::Value(at) => self.values.get(at),
                });
            }
        }
        self.words_json = json;
    }

    /// The close frame that ends the session for this reason.
    #[must_use]
    pub fn close_frame(&self, why: CloseReason) -> Message {
        match self.mapping.close(why) {
            Some(spelling) => Message::Close(spelling.code, spelling.text.clone()),
            None => Message::Close(1000, String::new()),
        }
    }

    /// The close frame after an error that ends the connection; `None` for one that does not.
    #[must_use]
    pub fn error_close_frame(&self, error: &Error) -> Option<Message> {
        let (code, reason) = error_close_frame(self.mapping.error(error.kind)?, &error.detail)?;
        Some(Message::Close(code, reason))
    }

    fn encode_error(&mut self, error: &Error, at_s: f64, send: impl FnMut(Message)) {
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
    fn encode_close_as_error(&mut self, why: CloseReason, at_s: f64, send: impl FnMut(Message)) {
        let mapping = self.mapping.clone();
        let reported_as_error = |spelling: &&CloseSpelling| spelling.reported_as == ReportedAs::Error;
        let Some(spelling) = mapping.close(why).filter(reported_as_error) else { return };
        let (code, message) = (&spelling.reason, &spelling.text);
        let source =
            EventSource::Error { code, message, recoverable: false, segment_id: None, request_id: None };
        self.render_event(EventName::Error, &source, at_s, send);
    }
}

/// Code and reason of the close frame after an error about this detail.
pub(super) fn error_close_frame(spelling: &ErrorSpelling, detail: &str) -> Option<(u16, String)> {
    let (code, text) = spelling.close.as_ref()?;
    Some((*code, truncate_close_reason(text.filled_with(detail))))
}

/// RFC 6455 §5.5: a close frame's body is at most 125 bytes, two of them the code.
fn truncate_close_reason(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(123));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spelling::Library;

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
        let source = include_str!("../../mappings/client/deepgram-listen.toml")
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
