//! Codec of OpenAI's Realtime protocol: what its events contain, and in which order. Their names are in the mapping file.
//!
//! Sources: OpenAI's published schema, and what its clients break on
//! (mappings/notes/openai-realtime.md#what-clients-break-on). The session knows utterances and answers by number; here
//! they become items and responses with ids. [`session`] holds the client's settings ([`detection`] those of turn
//! detection, [`tools`] those of tools, [`shape`] their types and ranges), [`items`] the conversation, and [`response`]
//! the answer in progress. [`answers`] sends answers, [`commands`] reads the client's messages, with [`added_item`] and
//! [`requests`], by [`fields`]. [`numbered_input`] is for the protocol of this kind whose input is numbered.

mod added_item;
mod answers;
mod commands;
mod detection;
mod events;
mod fields;
mod format;
mod items;
mod numbered_input;
mod requests;
mod response;
mod session;
mod shape;
mod tools;
mod transcription;

use std::{collections::VecDeque, sync::Arc};

use serde_json::{Value, json};

pub(super) use self::commands::name_message;
use self::{
    events::EventWriter,
    items::{Item, ItemStore},
    response::{RequestedResponse, Response},
    session::{SessionConfig, WithoutEffect},
};
use super::{
    IgnoredField,
    json_text::{Fields, write_field},
};
use crate::{
    error::{Error, ErrorKind, Origin},
    spelling::{
        ClientMapping,
        client::{RealtimeEvent, RealtimeNames, ReportedAs},
    },
    vocabulary::{ClientEvent, CloseReason, EntryId, Message, Setting, Speaker, SpeechId},
};

/// Settings that only the beta shape has at their place.
const BETA_FIELDS: [&str; 8] = [
    "modalities",
    "voice",
    "input_audio_format",
    "output_audio_format",
    "input_audio_transcription",
    "input_audio_noise_reduction",
    "turn_detection",
    "max_response_output_tokens",
];

/// Checks the settings of a session that does not exist yet.
#[cfg(feature = "io")]
pub(crate) fn check_session(session: &serde_json::Map<String, Value>) -> Result<(), Error> {
    let text = Value::Object(session.clone()).to_string();
    let update: Fields<'_> = serde_json::from_str(&text)
        .map_err(|error| Error::new(ErrorKind::Invalid, error.to_string()).of_field("session"))?;
    check_no_beta_field(&update)?;
    SessionConfig::default().update(&update, &mut WithoutEffect::new(&Default::default()))
}

/// Rejects a field of the beta shape in a session of the present shape, which has `type`.
fn check_no_beta_field(update: &Fields<'_>) -> Result<(), Error> {
    let stray = BETA_FIELDS.into_iter().find(|key| update.get(key).is_some());
    match stray.filter(|_| update.get("type").is_some()) {
        Some(key) => {
            let path = format!("session.{key}");
            Err(Error::new(ErrorKind::UnknownField, &path).of_field(path))
        }
        None => Ok(()),
    }
}

/// State of one connection.
#[derive(Debug)]
pub(super) struct Realtime {
    events: EventWriter,
    session_id: String,
    opened_unix_s: f64,
    session: SessionConfig,
    items: ItemStore,
    /// Answers, oldest first. Only the first is sent to the client; the others wait for its end.
    responses: VecDeque<Response>,
    /// The session is a call: its audio is binary, in the format of the call.
    pub(super) is_call: bool,
    /// The session answers requests. In full duplex, the model speaks unasked.
    takes_turns: bool,
    /// Number of the client's requests that failed at once.
    failed_requests: u32,
    /// The client's requests, until their answers begin.
    requests: VecDeque<RequestedResponse>,
    /// The client asked to stop the answer in progress.
    cancel_requested: bool,
    /// The client's name for its last commit, whose audio may be too short.
    commit_event_id: Option<String>,
    /// Words so far of the utterance that is being transcribed.
    partial: (u32, String),
    /// Answers to the client's own messages, for the caller to take.
    pub(super) replies: Vec<Message>,
    /// Fields without effect, for the caller to take.
    pub(super) ignored: Vec<IgnoredField>,
}

impl Realtime {
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        let mut session = SessionConfig::default();
        let events = EventWriter::new(mapping);
        if events.numbered.is_some() {
            session.input.rate_hz = events.mapping.audio_in.rate_hz;
        }
        if let Some(names) = &events.mapping.realtime {
            session.semantic_detection.clone_from(&names.semantic_detection);
        }
        if events.mapping.realtime.as_ref().is_some_and(|names| names.has_own_rates) {
            session.set_own_rates(events.mapping.audio_in.rate_hz, events.mapping.audio_out.rate_hz);
        }
        session.refuses_tools = !events.mapping.realtime.as_ref().is_some_and(RealtimeNames::reports_calls);
        Self {
            events,
            session_id: String::new(),
            opened_unix_s,
            session,
            items: ItemStore::default(),
            responses: VecDeque::new(),
            is_call: false,
            takes_turns: true,
            failed_requests: 0,
            requests: VecDeque::new(),
            cancel_requested: false,
            commit_event_id: None,
            partial: (0, String::new()),
            replies: Vec::new(),
            ignored: Vec::new(),
        }
    }

    /// Sets the session's id and model, and the seed of generated ids.
    pub(super) fn set_session(&mut self, session_id: &str, model: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        model.clone_into(&mut self.session.model);
        self.events.seed = fastrand::Rng::with_seed(seed).u32(..);
    }

    /// The model speaks unasked; and may see pictures.
    pub(super) const fn set_full_duplex(&mut self, sees: bool) {
        self.takes_turns = false;
        if let Some(input) = &mut self.events.numbered {
            input.sees = sees;
        }
    }

    /// True if the model takes neither texts nor requests for answers. Clients of numbered input make none that would matter.
    pub(super) const fn hears_only(&self) -> bool {
        !self.takes_turns && self.events.numbered.is_none()
    }

    /// The profile calls no tools.
    pub(super) const fn refuse_tools(&mut self) {
        self.session.refuses_tools = true;
    }

    /// Uses the older shape of the protocol.
    pub(super) const fn use_beta(&mut self) {
        self.events.is_beta = true;
    }

    /// The session is a call.
    pub(super) const fn set_call(&mut self) {
        self.is_call = true;
    }

    /// The session only transcribes.
    pub(super) const fn set_transcription(&mut self) {
        self.session.is_transcription = true;
    }

    /// Applies the settings of a client secret. The model was chosen before.
    pub(super) fn apply_session(&mut self, json: &str) -> Result<(), Error> {
        let malformed = |error: serde_json::Error| Error::new(ErrorKind::MalformedJson, error.to_string());
        let update: Fields<'_> = serde_json::from_str(json).map_err(malformed)?;
        self.update_settings("connect", &update.without("model"))
    }

    /// Changes the settings, and notes those without effect.
    fn update_settings(&mut self, command: &str, update: &Fields<'_>) -> Result<(), Error> {
        let mapping = self.events.mapping.clone();
        let Some(names) = &mapping.realtime else { return Ok(()) };
        if names.has_beta() && !self.events.is_beta {
            check_no_beta_field(update)?;
        }
        let mut ignored = WithoutEffect::new(&names.without_effect);
        self.session.update(update, &mut ignored)?;
        for (field, because) in &ignored.found {
            self.ignore(command, field, because);
        }
        Ok(())
    }

    /// Memory of what the client gave and the connection keeps, bytes.
    pub(super) fn kept_bytes(&self) -> usize {
        self.items.bytes() + self.session.bytes()
    }

    /// Forgets the conversation, because the client has left.
    pub(super) fn forget(&mut self) {
        self.items.clear();
        self.requests = VecDeque::new();
    }

    /// Settings that differ from those of other protocols.
    pub(super) fn settings(&self) -> Vec<Setting> {
        let mut settings = self.session.settings();
        if self.is_call {
            // The call has agreed on its own format.
            settings.retain(|setting| !setting.is_audio_format());
        }
        settings
    }

    /// Encodes an event. Events that these clients do not know have no message. Only audio is discarded at an
    /// interruption, because every other event belongs to a pair.
    pub(super) fn encode(&mut self, event: &ClientEvent, mut send: impl FnMut(Message, Option<SpeechId>)) {
        use RealtimeEvent as E;
        if let ClientEvent::Audio(audio) = event {
            return self.send_audio(audio, &mut send);
        }
        let send: &mut dyn FnMut(Message) = &mut |message| send(message, None);
        match event {
            ClientEvent::SessionCreated { .. } => self.send_session(E::SessionCreated, send),
            ClientEvent::Configured { .. } => self.send_session(E::SessionUpdated, send),
            ClientEvent::SpeechStarted { at_ms, segment_id, .. } => {
                let item_id = self.events.item_id(EntryId(*segment_id));
                self.send(E::SpeechStarted, json!({ "audio_start_ms": at_ms, "item_id": item_id }), send);
            }
            ClientEvent::SpeechEnded { at_ms, segment_id } => {
                let item_id = self.events.item_id(EntryId(*segment_id));
                self.send(E::SpeechStopped, json!({ "audio_end_ms": at_ms, "item_id": item_id }), send);
            }
            ClientEvent::AudioCommitted { segment_id, is_transcribed, silence_ms, .. } => {
                if let Some((start_ms, end_ms)) = silence_ms {
                    let item_id = self.events.item_id(EntryId(*segment_id));
                    let fields =
                        json!({ "audio_start_ms": start_ms, "audio_end_ms": end_ms, "item_id": item_id });
                    self.send(E::TimeoutTriggered, fields, send);
                }
                self.add_utterance(*segment_id, *is_transcribed, send);
            }
            ClientEvent::AudioCleared => {
                // The model hears all audio, so that none is discarded.
                let discarded = json!({ "sglang": { "discarded_ms": 0.0 } });
                let fields = if self.events.numbered.is_some() { discarded } else { json!({}) };
                self.send(E::BufferCleared, fields, send);
            }
            ClientEvent::AudioAnswered { samples } => self.report_units(*samples, send),
            ClientEvent::TranscriptPartial { speaker: Speaker::User, text, segment_id, .. } => {
                self.send_user_words(*segment_id, text, send);
            }
            ClientEvent::TranscriptFinal {
                speaker: Speaker::User, text, segment_id, duration_ms, ..
            } => {
                self.complete_transcription(*segment_id, text, *duration_ms, send);
            }
            ClientEvent::AnswerStarted { segment_id, by_client } => {
                self.begin_response(*segment_id, *by_client, send);
            }
            ClientEvent::TranscriptPartial { speaker: Speaker::Assistant, text, segment_id, .. } => {
                self.add_words(*segment_id, text, send);
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::Assistant, text, segment_id, .. } => {
                self.complete_words(*segment_id, text, send);
            }
            ClientEvent::SpeakingStarted { .. } => self.send_playback(E::CallAudioStarted, send),
            ClientEvent::SpeakingEnded { cancelled: false, .. } => {
                self.send_playback(E::CallAudioStopped, send);
            }
            ClientEvent::SpeakingEnded { .. } => self.send_playback(E::CallAudioCleared, send),
            ClientEvent::ToolCalled { segment_id, entry_id, call } => {
                self.add_call(*segment_id, EntryId(*entry_id), call);
            }
            ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, hit_limit } => {
                self.note_usage(*segment_id, *usage, *hit_limit);
                self.end_response(*segment_id, *cancelled, *audio_ms, send);
                self.report_units(0, send);
            }
            ClientEvent::Error(error) => self.send_error(error, send),
            ClientEvent::SessionClosed { reason, .. } => self.send_close_reason(*reason, send),
            _ => {}
        }
    }

    fn send(&mut self, event: RealtimeEvent, fields: Value, send: &mut dyn FnMut(Message)) {
        self.events.message(event, fields).into_iter().for_each(send);
    }

    fn send_with(
        &mut self,
        event: RealtimeEvent,
        fields: Value,
        key: &str,
        json: &str,
        send: &mut dyn FnMut(Message),
    ) {
        self.events.message_with(event, fields, key, json).into_iter().for_each(send);
    }

    fn send_session(&mut self, event: RealtimeEvent, send: &mut dyn FnMut(Message)) {
        let mut session = self.session.to_text(&self.session_id, self.opened_unix_s, self.events.is_beta);
        if let Some(granted) = self.granted() {
            session.pop();
            write_field(&mut session, "sglang", &json!({ "granted": granted }).to_string());
            session.push('}');
        }
        self.send_with(event, json!({}), "session", &session, send);
    }

    /// Makes an item of an utterance, before the items of answers that began after it. It is done with its transcript, if one
    /// follows.
    fn add_utterance(&mut self, segment_id: u32, is_transcribed: bool, send: &mut dyn FnMut(Message)) {
        let number = EntryId(segment_id);
        let awaits_transcript = is_transcribed && self.session.transcribes();
        let item = Item::utterance(self.events.item_id(number), number, awaits_transcript);
        // In full duplex, the model may begin to answer before the utterance has ended.
        let at = if self.takes_turns { self.items.len() } else { self.items.position_for(number) };
        let previous = at.checked_sub(1).and_then(|before| self.items.at(before)).map(|item| item.id.clone());
        let fields = json!({ "item_id": item.id, "previous_item_id": previous });
        self.send(RealtimeEvent::BufferCommitted, fields, send);
        let fields = json!({ "previous_item_id": previous });
        self.send_with(RealtimeEvent::ItemAdded, fields, "item", &item.json(), send);
        self.items.insert(at, item);
        if !awaits_transcript {
            self.send_item_done(number, send);
        }
    }

    fn send_item_done(&mut self, number: EntryId, send: &mut dyn FnMut(Message)) {
        let Some((previous, item)) = self.items.find(number) else { return };
        let fields = json!({ "previous_item_id": previous });
        let message = self.events.message_with(RealtimeEvent::ItemDone, fields, "item", &item.json());
        message.into_iter().for_each(send);
    }

    /// Sends the new words of an utterance. Words that replace earlier ones wait for the complete transcript.
    fn send_user_words(&mut self, segment_id: u32, text: &str, send: &mut dyn FnMut(Message)) {
        if self.partial.0 != segment_id {
            self.partial = (segment_id, String::new());
        }
        let number = EntryId(segment_id);
        let new_words = text.strip_prefix(self.partial.1.as_str()).unwrap_or_default();
        if new_words.is_empty() || !self.items.awaits_transcript(number) {
            return;
        }
        let item_id = self.events.item_id(number);
        let fields = json!({ "item_id": item_id, "content_index": 0, "delta": new_words });
        self.partial.1.push_str(new_words);
        self.send(RealtimeEvent::TranscriptionDelta, fields, send);
    }

    fn complete_transcription(
        &mut self,
        segment_id: u32,
        text: &str,
        duration_ms: u64,
        send: &mut dyn FnMut(Message),
    ) {
        let number = EntryId(segment_id);
        if !self.items.awaits_transcript(number) {
            return;
        }
        self.send_user_words(segment_id, text, send);
        self.items.complete_transcript(number, Some(text));
        let fields = json!({
            "item_id": self.events.item_id(number), "content_index": 0, "transcript": text,
            "usage": { "type": "duration", "seconds": duration_ms as f64 / 1000.0 },
        });
        self.send(RealtimeEvent::TranscriptionCompleted, fields, send);
        self.send_item_done(number, send);
    }

    /// Sends an error: of an utterance as its failed transcription, of an answer as its failed response.
    fn send_error(&mut self, error: &Error, send: &mut dyn FnMut(Message)) {
        let (code, message) = self.spell_error(error);
        if let Some(segment_id) = error.segment_id {
            if let Some(response) = self.responses.iter_mut().find(|it| it.segment_id == segment_id) {
                response.failure = Some((error_type(error.kind), code, message));
                return;
            }
            let number = EntryId(segment_id);
            if self.items.awaits_transcript(number) {
                self.items.complete_transcript(number, None);
                let fields = json!({
                    "item_id": self.events.item_id(number), "content_index": 0,
                    "error": { "type": error_type(error.kind), "code": code, "message": message, "param": null },
                });
                self.send(RealtimeEvent::TranscriptionFailed, fields, send);
                return self.send_item_done(number, send);
            }
        }
        // Clients that only transcribe, such as LiveKit's, end at any error, so they get no error for a notice.
        if error.kind == ErrorKind::QueueStuck && self.session.is_transcription {
            return;
        }
        let event_id = match error.kind {
            ErrorKind::EmptyCommit => self.commit_event_id.take(),
            _ => error.request_id.clone(),
        };
        let mut fields = json!({ "error": {
            "type": error_type(error.kind), "code": code, "message": message, "param": error.param,
            "event_id": event_id,
        } });
        if self.events.numbered.is_some() {
            let spelling = self.events.mapping.error(error.kind);
            fields["sglang"] = json!({ "fatal": spelling.is_some_and(|spelling| !spelling.recoverable) });
        }
        self.send(RealtimeEvent::Error, fields, send);
    }

    /// Code and message of an error.
    fn spell_error(&self, error: &Error) -> (String, String) {
        let Some(spelling) = self.events.mapping.error(error.kind) else { return Default::default() };
        (spelling.code.clone(), spelling.message(&error.detail))
    }

    fn send_close_reason(&mut self, why: CloseReason, send: &mut dyn FnMut(Message)) {
        let Some(spelling) = self.events.mapping.close(why) else { return };
        match spelling.reported_as {
            ReportedAs::Error => {
                let error = json!({
                    "type": "invalid_request_error", "code": spelling.reason, "message": spelling.text,
                    "param": null, "event_id": null,
                });
                self.send(RealtimeEvent::Error, json!({ "error": error }), send);
            }
            ReportedAs::SessionClosed => {
                let reason = spelling.reason.clone();
                self.send(RealtimeEvent::SessionClosed, json!({ "reason": reason }), send);
            }
            ReportedAs::Nothing => {}
        }
    }

    /// Notes a field without effect.
    fn ignore(&mut self, command: &str, field: &str, because: &str) {
        let ignored = IgnoredField {
            command: command.to_owned(),
            field: field.to_owned(),
            because: because.to_owned(),
            is_needed: field == "tools",
        };
        if !self.ignored.contains(&ignored) {
            self.ignored.push(ignored);
        }
    }
}

/// OpenAI's type of an error.
pub(super) const fn error_type(kind: ErrorKind) -> &'static str {
    match kind.origin() {
        Origin::Client => "invalid_request_error",
        Origin::Bridge | Origin::Upstream => "server_error",
    }
}

/// The object with one more field.
fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}
