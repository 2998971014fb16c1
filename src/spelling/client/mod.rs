//! A client protocol's file: paths, limits, commands, events, errors, closes. The schema is `mappings/reference.md`.

mod audio_check;
mod compile;
mod completeness;
mod conditions;
mod example;
mod fields;
mod file;
mod jobs;
mod paths;
mod realtime;
mod recognition;
mod setup_page;
mod signs;
pub mod tcp;
mod values;
mod verbs;
mod vocabulary;

use std::{collections::BTreeMap, mem::take, ops::Deref, sync::Arc};

pub(super) use self::paths::PathConflict;
#[cfg(feature = "io")]
pub(crate) use self::paths::decode_percent;
use self::{
    compile::{
        check_lists, compile_answer_headers, compile_device_tools, compile_key_headers, compile_patterns,
        compile_slot_words, compile_subprotocols,
    },
    fields::compile_fields,
    file::ErrorKey,
    recognition::{FirstMessage, longest_exact_message},
    tcp::TcpProtocol,
    values::{compile_event, compile_values},
};
pub use self::{
    file::{
        AudioIn, AudioOut, ClientFile, CloseSpelling, EchoMode, ExactMessage, FieldNames, ReportedAs,
        TranscriptRules,
    },
    jobs::{JobAnswer, JobApi, JobFile, JobSettings, JobSlot, JobTranscript, TranscriptForm, UploadApi},
    paths::PathPattern,
    realtime::{RealtimeEvent, RealtimeNames},
    setup_page::SetupPage,
    signs::{ClientSigns, HeaderSign},
    values::{EventMessage, EventSlot, IdForm, ValueRule, ValueScope, ValueSource},
    verbs::CommandVerb,
    vocabulary::{CommandSyntax, Framing, LockStep, SetupSlot, Verb},
};
use super::{
    check::{self, Document, FileError},
    error_spelling::ErrorSpelling,
    extract::Extractor,
    field::{FieldRole, ProtocolField},
    name_table::NameTable,
    relay::{RelayProtocol, RelayProtocolFile},
    tested_with::check_drivers,
};
use crate::{
    error::ErrorKind,
    vocabulary::{CloseReason, EventName, Slot},
};

/// Error for a protocol without paths that is neither for REST requests nor on bare TCP.
const NO_PATHS: &str = "`paths` must not be empty, such as [\"/v1/realtime\"]";

/// Greatest `parallel_max`: one client should not take the workers of all others.
const PARALLEL_MAX: usize = 16;

/// Most segments in a message that repeats the last ones.
pub(crate) const SEGMENTS_MAX: usize = 100;

/// The command, and the name of the messages to the client, that have the Model Context Protocol in them.
pub(crate) const MCP_COMMAND: &str = "mcp";

/// A compiled client protocol: its file, and what was made of the file.
#[derive(Debug, Default)]
pub struct ClientMapping {
    file: ClientFile,
    /// Those of the paths that have parameters.
    pub path_patterns: Vec<PathPattern>,
    /// WebSocket subprotocols; the bridge agrees to the first of them that a client offers.
    pub subprotocols: Vec<String>,
    /// Headers that contain only a key, in lower case, beside those of every protocol.
    pub key_headers: Vec<String>,
    /// Transcriptions of recordings as jobs.
    pub jobs: Option<JobApi>,
    /// Slot of the id that a client's message has for its answer.
    pub message_id: Option<usize>,
    /// Headers of the answer to the handshake, in lower case, each with the index of its value in [`ClientMapping::values`].
    pub answer_headers: Vec<(String, usize)>,
    /// Query parameters.
    pub query: Vec<ProtocolField>,
    /// The protocol's words for voxbridge's own in slots of events.
    slot_words: BTreeMap<Slot, BTreeMap<String, String>>,
    /// Values that the codec remembers, generates or counts.
    pub values: Vec<ValueRule>,
    /// Audio comes in a field of a command.
    pub has_audio_in_json: bool,
    /// Audio comes in binary frames, perhaps beside a command with audio.
    pub takes_binary_audio: bool,
    /// The client confirms when it has played a text or turn.
    pub confirms_playback: bool,
    /// Most segments in a message that repeats the last ones; `None` without such messages.
    pub segments_max: Option<usize>,
    /// Final transcripts can have word times.
    pub has_word_times: bool,
    /// Commands, recognised by the value at the command key, by a present field or as one exact message.
    pub commands: Vec<ProtocolCommand>,
    /// Length of the longest message that is a command as a whole, bytes; 0 without one.
    exact_max_bytes: usize,
    /// Rules for a protocol of the model's own kind. With them, only names, paths and the largest message count otherwise.
    pub relay: Option<RelayProtocol>,
    /// Condition on the first message that tells its clients from others at the same path.
    first_message: Option<FirstMessage>,
    /// Names of a protocol of OpenAI's kind, whose behaviour is Rust.
    pub realtime: Option<RealtimeNames>,
    /// The value that says that a client has tools of its own, whose behaviour is Rust: the index of a flag in
    /// [`ClientMapping::values`].
    pub device_tools: Option<usize>,
    /// How its messages stand on a bare TCP connection, if it is served there.
    pub tcp: Option<Arc<TcpProtocol>>,
    /// Finds the command key (slot 0) and every field.
    pub(crate) extractor: Extractor,
    events: NameTable<Vec<EventMessage>>,
}

/// A binary message up to this length costs too little to be worth a bound, bytes.
const BINARY_MIN_BYTES: usize = 64 * 1024;

/// A compiled command.
#[derive(Debug)]
pub struct ProtocolCommand {
    /// Value at the command key; only a label for a command recognised by [`ProtocolCommand::present`].
    pub name: String,
    /// Meaning of the command. Several verbs apply in their order.
    pub verbs: Vec<CommandVerb>,
    /// Slot whose presence identifies the command.
    pub present: Option<usize>,
    /// The command is this whole message.
    pub exactly: Option<ExactMessage>,
    /// The list of whose elements each is a command; its fields stand in the first.
    pub each: Option<EachElement>,
    /// Slot of the audio.
    pub audio: Option<usize>,
    /// Its messages of audio may say their own rate.
    pub has_own_rate: bool,
    /// Fields of the command.
    pub fields: Vec<ProtocolField>,
    /// Messages that answer it at once.
    pub reply: Vec<EventMessage>,
}

/// A list in a message, each of whose elements is a command.
#[derive(Debug)]
pub struct EachElement {
    /// JSON pointer to the list.
    pub list: String,
    /// Slot of its second element.
    pub second: usize,
}

impl Deref for ClientMapping {
    type Target = ClientFile;

    fn deref(&self) -> &ClientFile {
        &self.file
    }
}

impl ClientMapping {
    pub(super) fn compile(document: &Document<'_>) -> Result<Self, FileError> {
        // A relay's protocol names the dialect whose spelling it shares.
        if document.table.get_ref().contains_key("dialect") {
            return Self::compile_relay(document);
        }
        let mut read: ClientFile = document.read()?;
        let mut extractor = Extractor::with_snake_case(read.field_names == FieldNames::CamelOrSnake);
        extractor.add(&read.command_key);
        let values = compile_values(take(&mut read.values), document)?;
        let device_tools = compile_device_tools(read.device_tools.take(), &values, &read.commands, document)?;
        let commands = take(&mut read.commands).into_iter().map(|(name, command)| {
            command.compile(name, &read.command_key, &mut extractor, &values, document)
        });
        let commands = commands.collect::<Result<Vec<_>, FileError>>()?;
        let first_message = FirstMessage::compile(&mut read.signs, &mut extractor, document)?;
        let mut problems = Vec::new();
        let events = take(&mut read.events);
        let events = events.iter().map(|(name, file)| (*name, compile_event(*name, file, &values, document)));
        let events: BTreeMap<EventName, Vec<EventMessage>> = check::collect_compiled(events, &mut problems);
        let tcp = read.tcp.take().map(|tcp| tcp.compile(&read.name, document)).transpose()?.map(Arc::new);
        let mapping = Self {
            path_patterns: compile_patterns(&read.paths, document)?,
            subprotocols: compile_subprotocols(take(&mut read.subprotocols), document)?,
            key_headers: compile_key_headers(take(&mut read.key_headers), document)?,
            jobs: read.jobs.take().map(|jobs| jobs.compile(document)).transpose()?,
            message_id: read.message_id.take().map(|pointer| extractor.add(&pointer)),
            answer_headers: compile_answer_headers(take(&mut read.answer_headers), &values, document)?,
            query: compile_fields(take(&mut read.query), &mut Extractor::default(), &values, true, document)?,
            takes_binary_audio: read.audio_in.binary || !has_verb(&commands, Verb::Audio),
            slot_words: compile_slot_words(take(&mut read.slot_words), document)?,
            values,
            has_audio_in_json: has_verb(&commands, Verb::Audio),
            confirms_playback: has_verb(&commands, Verb::Played),
            segments_max: uses_slot(events.values().flatten(), Slot::LastSegments)
                .then_some(read.transcripts.segments_max),
            has_word_times: uses_slot(
                events.get(&EventName::TranscriptFinal).into_iter().flatten(),
                Slot::Words,
            ),
            exact_max_bytes: longest_exact_message(&commands),
            commands,
            relay: None,
            first_message,
            realtime: read.realtime.take().map(|names| names.compile(document)).transpose()?,
            device_tools,
            tcp,
            extractor,
            events: events.into_iter().map(|(name, messages)| (name as usize, messages)).collect(),
            file: read,
        };
        problems.extend(check_drivers(&mapping.tested_with, document).err());
        problems.extend(check_lists(&mapping.commands, document));
        problems.extend(completeness::problems(&mapping, document));
        FileError::combine(problems.into_iter().flat_map(FileError::flatten))?;
        Ok(mapping)
    }

    fn compile_relay(document: &Document<'_>) -> Result<Self, FileError> {
        let mut read: RelayProtocolFile = document.read()?;
        if read.paths.is_empty() {
            return Err(document.problem_at_key(&["paths"], NO_PATHS));
        }
        check_drivers(&read.tested_with, document)?;
        let file = ClientFile {
            name: take(&mut read.name),
            title: take(&mut read.title),
            family: take(&mut read.family),
            notes: take(&mut read.notes),
            paths: take(&mut read.paths),
            command_key: read.command_key.clone(),
            audio_in: AudioIn { message_max_bytes: read.message_max_bytes, ..AudioIn::default() },
            never_sent: take(&mut read.never_sent),
            tested_with: take(&mut read.tested_with),
            ..ClientFile::default()
        };
        Ok(Self { file, relay: Some(read.compile(document)?), ..Self::default() })
    }

    /// The protocol's word for a text in a slot of an event.
    pub(crate) fn slot_word<'t>(&'t self, slot: Slot, text: &'t str) -> &'t str {
        self.slot_words.get(&slot).and_then(|words| words.get(text)).map_or(text, String::as_str)
    }

    /// True if each session is relayed, message by message, to one upstream session. Such a client needs a profile with
    /// `[relay]`; other clients need one without.
    #[must_use]
    pub const fn is_relayed(&self) -> bool {
        self.relay.is_some()
    }

    /// Longest binary message that may be audio or a command, bytes. Any longer one is answered with an error, whatever it contains.
    #[must_use]
    pub fn binary_max_bytes(&self) -> usize {
        if matches!(self.framing, Framing::Protobuf | Framing::Announced | Framing::Json) {
            return self.audio_in.message_max_bytes;
        }
        let takes_binary_audio = !self.is_relayed() && self.takes_binary_audio;
        let audio_max = if takes_binary_audio { self.audio_in.frame_max_bytes } else { 0 };
        audio_max.max(BINARY_MIN_BYTES)
    }

    /// The fields of all commands and of the query.
    fn all_fields(&self) -> impl Iterator<Item = &ProtocolField> {
        self.commands.iter().flat_map(|command| &command.fields).chain(&self.query)
    }

    /// True if a command has this verb.
    #[must_use]
    pub fn has_verb(&self, verb: Verb) -> bool {
        has_verb(&self.commands, verb)
    }

    /// True if the elements of the slot `words` are words with times, which only some transcripts have.
    #[must_use]
    pub fn lists_timed_words(&self) -> bool {
        let element = self.event(EventName::TranscriptWord).first();
        uses_slot(element, Slot::FromS) || uses_slot(element, Slot::ToS)
    }

    /// Query parameter in which clients must name a model; `None` if they need not.
    #[must_use]
    pub fn required_model_parameter(&self) -> Option<&str> {
        let has_default = self.model_parameters().any(|field| field.file.default.is_some());
        self.model_parameters().next().filter(|_| !has_default).map(|field| field.name.as_str())
    }

    /// Query parameters in which clients may name a model.
    pub fn model_parameters(&self) -> impl Iterator<Item = &ProtocolField> {
        self.query.iter().filter(|field| names_model(field))
    }

    /// True if the protocol has this query parameter.
    #[must_use]
    pub fn has_parameter(&self, name: &str) -> bool {
        let of_relay = self.relay.as_ref().is_some_and(|relay| relay.mode.key == name);
        of_relay || self.query.iter().any(|field| field.name == name)
    }

    /// Messages of an event; empty if the protocol has no such event.
    #[must_use]
    pub fn event(&self, name: EventName) -> &[EventMessage] {
        self.events.get(name as usize).map_or(&[], Vec::as_slice)
    }

    /// Spelling of an error.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Option<&ErrorSpelling> {
        let own = |kind| self.errors.get(&ErrorKey::Kind(kind));
        own(kind).or_else(|| own(kind.fallback()?)).or_else(|| self.errors.get(&ErrorKey::Other))
    }

    /// True if a text to speak must not be blank.
    #[must_use]
    pub fn rejects_blank_texts(&self) -> bool {
        self.errors.contains_key(&ErrorKey::Kind(ErrorKind::BlankText))
    }

    /// True if wrong settings have an error of their own.
    #[must_use]
    pub fn spells_configure_errors(&self) -> bool {
        self.errors.contains_key(&ErrorKey::Kind(ErrorKind::InvalidConfigure))
            || !self.event(EventName::ConfigureFailed).is_empty()
    }

    /// Spelling of the end of a session.
    #[must_use]
    pub fn close(&self, name: CloseReason) -> Option<&CloseSpelling> {
        self.closes.get(&name).or_else(|| self.closes.get(&name.fallback()?))
    }
}

fn names_model(field: &ProtocolField) -> bool {
    matches!(field.file.to, Some(FieldRole::Model | FieldRole::ModelAndVoice))
}

/// True for a pointer to a member of the message itself.
fn is_top_level(pointer: &str) -> bool {
    pointer.starts_with('/') && pointer.matches('/').count() == 1
}

/// True if one of these messages has this slot.
fn uses_slot<'m>(messages: impl IntoIterator<Item = &'m EventMessage>, slot: Slot) -> bool {
    messages.into_iter().any(|message| message.template.uses_slot(EventSlot::Event(slot)))
}

fn has_verb(commands: &[ProtocolCommand], verb: Verb) -> bool {
    commands.iter().flat_map(|command| &command.verbs).any(|rule| rule.verb == verb)
}

#[cfg(test)]
mod tests;
