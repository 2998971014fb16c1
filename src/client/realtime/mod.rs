//! Codec of OpenAI's Realtime protocol: what its events contain, and in which order. Their names are in the mapping file.
//!
//! Sources: OpenAI's published schema, and what its clients break on
//! (mappings/notes/openai-realtime.md#what-clients-break-on). The session knows utterances and answers by number; here
//! they become items and responses with ids. [`session`] holds the client's settings ([`detection`] those of turn
//! detection, [`tools`] those of tools, [`tool_servers`] tool servers, [`shape`] their types and ranges), [`items`] the conversation, and [`response`]
//! the answer in progress. [`utterances`] and [`answers`] send what the user and the model say, [`errors`] errors.
//! [`commands`] reads the client's messages, with [`added_item`] and [`requests`], by [`fields`]; [`held_requests`] wait for tools.

mod added_item;
mod answers;
mod commands;
mod detection;
mod errors;
mod events;
mod fields;
mod format;
mod held_requests;
mod items;
mod requests;
mod response;
mod session;
mod shape;
mod tool_servers;
mod tools;
mod transcription;
mod utterances;

use std::{collections::VecDeque, sync::Arc};

use serde_json::{Value, json};

pub(super) use self::{
    commands::{name_message, own_verb, read_message},
    errors::error_type,
    events::{EventLabels, ExtraField, NoLabels},
    format::AudioFormat,
};
use self::{
    events::EventWriter,
    held_requests::HeldRequest,
    items::ItemStore,
    response::{RequestedResponse, Response},
    session::{SessionConfig, WithoutEffect},
    tool_servers::ToolServers,
    utterances::PartialTranscript,
};
use super::{
    Abilities, IgnoredField, Notes,
    json_text::{Fields, write_field},
    mapped::{ClientCodec, CommandMessage, MappedCodec, RequestHandler, TurnSink},
};
use crate::{
    error::{Error, ErrorKind},
    spelling::{
        ClientMapping,
        client::{RealtimeEvent, RealtimeNames},
        field::FieldRole,
    },
    vocabulary::{ClientEvent, EntryId, Frame, ListedTool, Message, ServerCallResult, Setting, Speaker},
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

/// Codec of one connection.
#[derive(Debug)]
pub(super) struct Realtime<L> {
    events: EventWriter<L>,
    session_id: String,
    opened_unix_s: f64,
    session: SessionConfig,
    items: ItemStore,
    /// Answers, oldest first. Only the first is sent to the client; the others wait for its end.
    responses: VecDeque<Response>,
    /// The session is a call: its audio is binary, in the format of the call.
    is_call: bool,
    /// The session answers requests. In full duplex, the model speaks unasked.
    takes_turns: bool,
    /// Requests and texts are refused, because the model only hears.
    hears_only: bool,
    /// Number of the client's requests that failed at once.
    failed_requests: u32,
    /// The client's requests, until their answers begin.
    requests: VecDeque<RequestedResponse>,
    /// Requests that wait for the tools of their servers, oldest first.
    held_requests: Vec<HeldRequest>,
    /// The client asked to stop the answer in progress.
    cancel_requested: bool,
    /// The client's name for its last commit, whose audio may be too short.
    commit_event_id: Option<String>,
    partial: PartialTranscript,
    /// Tool servers that the client names, and their calls.
    tool_servers: ToolServers,
    notes: Notes,
}

impl<L: EventLabels> ClientCodec for Realtime<L> {
    fn decode(
        &mut self,
        mapped: &mut MappedCodec,
        frame: Frame<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        name_message(frame, mapped.decode(frame, self, handle))
    }

    fn decode_command(
        &mut self,
        mapped: &mut MappedCodec,
        message: &CommandMessage<'_>,
        handle: &mut RequestHandler<'_>,
    ) -> Result<(), Error> {
        match own_verb(message.command) {
            Some(verb) => self.decode_verb(verb, message.text, handle),
            None => mapped.pass_command(message, handle),
        }
    }

    /// Events that these clients do not know have no message. Only audio is discarded at an interruption, because every other
    /// event belongs to a pair.
    fn encode(
        &mut self,
        _mapped: &mut MappedCodec,
        event: &ClientEvent,
        _at_s: f64,
        send: &mut TurnSink<'_>,
    ) {
        match event {
            ClientEvent::Audio(audio) => self.send_audio(audio, send),
            _ => self.encode_event(event, &mut |message| send(message, None)),
        }
    }

    fn apply_parameter(
        &mut self,
        mapped: &mut MappedCodec,
        role: FieldRole,
        value: &str,
    ) -> Result<Vec<Setting>, Error> {
        match role {
            FieldRole::Shape if value == "beta" => self.use_beta(),
            FieldRole::Intent if value == "transcription" => self.session.is_transcription = true,
            FieldRole::Session => self.apply_session(value)?,
            FieldRole::Transport => (self.is_call, mapped.is_call) = (true, true),
            _ => {}
        }
        Ok(Vec::new())
    }

    fn settings(&self) -> Vec<Setting> {
        let mut settings = self.session.settings();
        if self.is_call {
            // The call has agreed on its own format.
            settings.retain(|setting| !setting.is_audio_format());
        }
        settings
    }

    fn set_abilities(&mut self, abilities: Abilities) {
        (self.takes_turns, self.hears_only) = (abilities.takes_turns, !abilities.takes_turns);
        self.session.refuses_tools |= !abilities.calls_tools;
    }

    fn begin_session(&mut self, session_id: &str, model: &str, seed: u64) {
        session_id.clone_into(&mut self.session_id);
        model.clone_into(&mut self.session.model);
        self.events.seed = fastrand::Rng::with_seed(seed).u32(..);
    }

    fn take_notes(&mut self, notes: &mut Notes) {
        notes.append(&mut self.notes);
    }

    fn take_tool_list(
        &mut self,
        number: EntryId,
        list: Result<Vec<ListedTool>, String>,
        handle: &mut RequestHandler<'_>,
    ) {
        self.end_list(number, list, handle);
    }

    fn take_tool_result(
        &mut self,
        call: EntryId,
        result: ServerCallResult,
        handle: &mut RequestHandler<'_>,
    ) -> Option<ServerCallResult> {
        self.end_call(call, result, handle)
    }

    fn kept_bytes(&self) -> usize {
        let held = self.held_requests.iter().map(|held| held.requested().bytes);
        self.items.bytes() + self.session.bytes() + self.tool_servers.bytes() + held.sum::<usize>()
    }

    fn forget(&mut self) {
        self.items.clear();
        self.requests = VecDeque::new();
        self.held_requests = Vec::new();
        self.tool_servers = ToolServers::default();
    }
}

impl<L: EventLabels> Realtime<L> {
    pub(super) fn new(mapping: Arc<ClientMapping>, opened_unix_s: f64) -> Self {
        let mut session = SessionConfig::default();
        let events = EventWriter::<L>::new(mapping);
        if let Some(names) = &events.mapping.realtime {
            session.semantic_detection.clone_from(&names.semantic_detection);
        }
        if events.mapping.realtime.as_ref().is_some_and(|names| names.has_own_rates) {
            session.set_own_rates(events.mapping.audio_in.rate_hz, events.mapping.audio_out.rate_hz);
        }
        session.refuses_tools = !events.mapping.realtime.as_ref().is_some_and(RealtimeNames::reports_calls);
        session.takes_tool_servers =
            events.mapping.realtime.as_ref().is_some_and(RealtimeNames::serves_tool_servers);
        Self {
            events,
            session_id: String::new(),
            opened_unix_s,
            session,
            items: ItemStore::default(),
            responses: VecDeque::new(),
            is_call: false,
            takes_turns: true,
            hears_only: false,
            failed_requests: 0,
            requests: VecDeque::new(),
            held_requests: Vec::new(),
            cancel_requested: false,
            commit_event_id: None,
            partial: PartialTranscript::default(),
            tool_servers: ToolServers::default(),
            notes: Notes::default(),
        }
    }

    /// Uses the older shape of the protocol.
    const fn use_beta(&mut self) {
        self.events.is_beta = true;
    }

    /// Applies the settings of a client secret. The model was chosen before.
    fn apply_session(&mut self, json: &str) -> Result<(), Error> {
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

    fn encode_event(&mut self, event: &ClientEvent, send: &mut dyn FnMut(Message)) {
        use RealtimeEvent as E;
        match event {
            ClientEvent::SessionCreated { .. } => {
                self.send_session(E::SessionCreated, None, send);
                self.follow_declared_servers();
                self.announce_lists(send);
            }
            ClientEvent::Configured { .. } => {
                self.send_session(E::SessionUpdated, None, send);
                self.announce_lists(send);
            }
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
            ClientEvent::AudioCleared => self.send(E::BufferCleared, json!({}), send),
            ClientEvent::TranscriptPartial { speaker: Speaker::User, text, segment_id, .. } => {
                self.send_user_words(*segment_id, text, send);
            }
            ClientEvent::TranscriptFinal {
                speaker: Speaker::User, text, segment_id, duration_ms, ..
            } => {
                self.complete_transcription(*segment_id, text, *duration_ms, send);
            }
            ClientEvent::Error(error) => self.send_error(error, send),
            ClientEvent::SessionClosed { reason, .. } => self.send_close_reason(*reason, send),
            _ => self.encode_answer(event, send),
        }
    }

    /// Encodes an event of an answer.
    fn encode_answer(&mut self, event: &ClientEvent, send: &mut dyn FnMut(Message)) {
        use RealtimeEvent as E;
        match event {
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
            }
            _ => {}
        }
    }

    /// Sends an event with these fields.
    pub(super) fn send(&mut self, event: RealtimeEvent, fields: Value, send: &mut dyn FnMut(Message)) {
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

    /// Sends the session's settings, and perhaps another field of the session.
    pub(super) fn send_session(
        &mut self,
        event: RealtimeEvent,
        more: Option<ExtraField>,
        send: &mut dyn FnMut(Message),
    ) {
        let mut session = self.session.to_text(&self.session_id, self.opened_unix_s, self.events.is_beta);
        if let Some(more) = more {
            session.pop();
            write_field(&mut session, more.key, &more.json);
            session.push('}');
        }
        self.send_with(event, json!({}), "session", &session, send);
    }

    /// Fields that are added to events.
    pub(super) const fn labels_mut(&mut self) -> &mut L {
        &mut self.events.labels
    }

    /// Settings of the session.
    pub(super) const fn session_mut(&mut self) -> &mut SessionConfig {
        &mut self.session
    }

    /// Passes on requests for answers and texts in full duplex, too.
    pub(super) const fn pass_all_requests(&mut self) {
        self.hears_only = false;
    }

    /// True if the session answers requests.
    pub(super) const fn takes_turns(&self) -> bool {
        self.takes_turns
    }

    /// Adds answers to the client's message.
    pub(super) fn add_replies(&mut self, replies: Vec<Message>) {
        self.notes.replies.extend(replies);
    }

    /// True while an answer is in progress or waits.
    pub(super) fn has_answer(&self) -> bool {
        !self.responses.is_empty()
    }

    /// Notes a field without effect.
    fn ignore(&mut self, command: &str, field: &str, because: &str) {
        let ignored = IgnoredField {
            command: command.to_owned(),
            field: field.to_owned(),
            because: because.to_owned(),
            is_needed: field == "tools",
        };
        if !self.notes.ignored.contains(&ignored) {
            self.notes.ignored.push(ignored);
        }
    }
}

/// The object with one more field.
fn with(mut object: Value, key: &str, value: Value) -> Value {
    object[key] = value;
    object
}
