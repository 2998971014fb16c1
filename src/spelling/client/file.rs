//! Schema of a client mapping file.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::IntoDeserializer as _};
use toml::Spanned;

use super::{
    CommandSyntax, Framing, LockStep, SetupPage, SetupSlot, ValueSource, jobs::JobsFile,
    realtime::RealtimeFile, signs::SignsFile, tcp::TcpFile, values::EventFile, verbs::VerbsFile,
};
use crate::{
    audio::{encoding::Encoding, opus::PacketOptions},
    error::ErrorKind,
    spelling::{
        MappingKind,
        check::{
            self, Document, FileError,
            values::{JsonPointer, UrlPath, deserialize_close_code},
        },
        error_spelling::{CloseFile, ErrorSpelling},
        field::FieldFile,
        profile::PlayoutPace,
        template::Template,
        tested_with::TestedClient,
    },
    vocabulary::{CloseReason, EventName},
};

/// Contents of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientFile {
    pub(super) kind: MappingKind,
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default = "check::values::default_family")]
    pub(super) family: String,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) paths: Vec<UrlPath>,
    #[serde(default)]
    pub(super) subprotocols: Vec<Spanned<String>>,
    pub(super) signature_header: Option<String>,
    pub(super) refusal_header: Option<String>,
    #[serde(default)]
    pub(super) key_headers: Vec<Spanned<String>>,
    #[serde(default)]
    pub(super) key_parameters: Vec<String>,
    pub(super) command_key: Option<JsonPointer>,
    #[serde(default)]
    pub(super) command_syntax: CommandSyntax,
    pub(super) default_profile: Option<String>,
    #[serde(default)]
    pub(super) signs: SignsFile,
    pub(super) realtime: Option<RealtimeFile>,
    #[serde(default)]
    pub(super) live: bool,
    pub(super) device_tools: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) rest: bool,
    pub(super) tcp: Option<TcpFile>,
    #[serde(default)]
    pub(super) lock_step: LockStep,
    #[serde(default, deserialize_with = "check::deserialize_ms")]
    pub(super) idle_event_ms: u64,
    pub(super) setup_page: Option<SetupPageFile>,
    pub(super) jobs: Option<JobsFile>,
    pub(super) offer_path: Option<UrlPath>,
    pub(super) message_id: Option<JsonPointer>,
    #[serde(default)]
    pub(super) framing: Framing,
    #[serde(default)]
    pub(super) field_names: FieldNames,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) answer_headers: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    pub(super) query: BTreeMap<Spanned<String>, FieldFile>,
    pub(super) audio_in: AudioIn,
    pub(super) audio_out: Option<AudioOut>,
    #[serde(default)]
    pub(super) transcripts: TranscriptRules,
    #[serde(default)]
    pub(super) slot_words: BTreeMap<Spanned<String>, BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) values: BTreeMap<Spanned<String>, ValueSource>,
    pub(super) commands: BTreeMap<Spanned<String>, CommandFile>,
    pub(super) events: BTreeMap<EventName, Spanned<EventFile>>,
    pub(super) errors: BTreeMap<ErrorKey, ErrorFile>,
    pub(super) closes: BTreeMap<CloseReason, CloseSpelling>,
    #[serde(default)]
    pub(super) never_sent: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) tested_with: Vec<TestedClient>,
}

/// How clients spell the names of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FieldNames {
    /// As the file does.
    #[default]
    Exact,
    /// In camel case as the file does, or in snake case.
    CamelOrSnake,
}

/// Audio from the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioIn {
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Default sample rate, Hz.
    pub rate_hz: u32,
    /// Default sample rates of other encodings, Hz.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Default number of channels; the first channel is used.
    pub channels: u16,
    /// Most audio in one message, bytes before base64. More is dropped with an error. 0 for a protocol without audio input.
    pub frame_max_bytes: usize,
    /// Binary messages are audio beside a command with audio, too. Without such a command they always are.
    #[serde(default)]
    pub binary: bool,
    /// Largest WebSocket message, bytes. A larger one ends the connection with close code 1009.
    pub message_max_bytes: usize,
    /// Handling of echo: audio that the client plays and its microphone records.
    #[serde(default)]
    pub echo: EchoMode,
    /// Above this many seconds of audio per second the client gets `rate_limited`; 0 disables.
    #[serde(deserialize_with = "check::deserialize_rate")]
    pub rate_limit: f64,
    /// Audio further ahead of the clock is dropped and reported, ms; 0 disables.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub max_ahead_ms: u64,
    /// The bridge stops reading while more audio than this waits for transcription, ms, and drops nothing; 0 disables.
    #[serde(default, deserialize_with = "check::deserialize_ms")]
    pub backpressure_ms: u64,
    /// A session whose client neither sends audio or commands nor waits for a reply for this long is closed, ms; 0 disables.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub idle_ms: u64,
}

/// Handling of echo: audio that a client plays and its microphone records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EchoMode {
    /// It stays in the microphone's audio: the client cancels it, if there is any.
    #[default]
    Off,
    /// voxbridge removes it.
    Cancel,
}

/// Audio to the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioOut {
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Default sample rate, Hz.
    pub rate_hz: u32,
    /// Default sample rates of other encodings, Hz.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Most audio in one message, bytes before base64.
    pub frame_max_bytes: usize,
    /// Length of every message's audio, ms; the last of a text or turn is filled up with silence. `None` for any length.
    pub frame_ms: Option<u32>,
    /// Bits per second of Opus.
    pub bit_rate: Option<u32>,
    /// Effort of encoding Opus, 0 to 10.
    pub complexity: Option<u8>,
    /// Pace, in place of the profile's.
    pub pace: Option<PlayoutPace>,
    /// Audio sent ahead, in place of the profile's, ms.
    pub lead_ms: Option<u32>,
    /// Complete sentences of collected text are spoken without a flush.
    #[serde(default)]
    pub speak_sentences: bool,
    /// Time from the estimated end of a text or turn to its reported end, ms.
    #[serde(default, deserialize_with = "check::deserialize_ms")]
    pub tail_ms: u32,
}

impl AudioOut {
    /// The table of a protocol without audio to the client. Its format is valid and unused.
    pub(super) fn none() -> Self {
        Self { rate_hz: 24_000, ..Self::default() }
    }

    /// How Opus is encoded.
    pub(crate) fn packet_options(&self) -> PacketOptions {
        let default = PacketOptions::default();
        let frame_ms = self.frame_ms.filter(|ms| PacketOptions::FRAMES_MS.contains(ms));
        PacketOptions {
            bit_rate: self.bit_rate.unwrap_or(default.bit_rate),
            complexity: self.complexity.unwrap_or(default.complexity),
            frame_ms: frame_ms.unwrap_or(default.frame_ms),
            max_bytes: self.frame_max_bytes,
        }
    }
}

/// `[transcripts]`: how the utterances of these clients are transcribed.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TranscriptRules {
    /// Most utterances that are transcribed at a time, each in its own upstream session.
    pub parallel_max: usize,
    /// A late transcript delays all later ones, and the end of its speech. Otherwise these wait for the profile's
    /// `speech_end_wait_ms` at most.
    pub in_order: bool,
    /// An utterance of this length ends at the next pause of `cut_pause_ms`, in ms; without it, only at the usual
    /// silence or at its limit.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub cut_after_ms: u32,
    /// Most segments in a message that repeats the last ones, unless the client says otherwise.
    pub segments_max: usize,
    /// The pause that ends such an utterance, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub cut_pause_ms: u32,
    /// An utterance of this length without such a pause is cut where it has been quietest since `cut_after_ms`, in ms.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub cut_max_ms: u32,
    /// A word without an estimated time has the times of its utterance, as far as it was heard.
    pub word_times_of_utterance: bool,
}

impl Default for TranscriptRules {
    fn default() -> Self {
        Self {
            parallel_max: 1,
            in_order: false,
            cut_after_ms: u32::MAX,
            segments_max: 10,
            cut_pause_ms: 0,
            cut_max_ms: u32::MAX,
            word_times_of_utterance: false,
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandFile {
    pub(super) verb: Spanned<VerbsFile>,
    pub(super) present: Option<Spanned<String>>,
    pub(super) exactly: Option<Spanned<ExactMessage>>,
    pub(super) each: Option<JsonPointer>,
    pub(super) reply: Option<Spanned<EventFile>>,
    #[serde(default)]
    pub(super) fields: BTreeMap<Spanned<String>, FieldFile>,
}

/// The page that tells clients where to connect.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SetupPageFile {
    pub(super) path: UrlPath,
    pub(super) answer: Spanned<String>,
    pub(super) call_answer: Option<Spanned<String>>,
    pub(super) refusal: Option<Spanned<String>>,
    pub(super) signature: Option<String>,
    #[serde(default)]
    pub(super) parameters: BTreeMap<String, JsonPointer>,
}

/// A whole message that is a command.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExactMessage {
    /// This text message.
    Text(String),
    /// A binary message with the bytes of this text.
    Binary(String),
}

impl ExactMessage {
    /// Length of the message, bytes.
    pub(super) const fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Binary(text) => text.len(),
        }
    }
}

/// Spelling of an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorFile {
    pub(super) code: Spanned<String>,
    pub(super) recoverable: bool,
    pub(super) message: Option<Spanned<String>>,
    /// The protocol's words for details of voxbridge.
    #[serde(default)]
    pub(super) details: BTreeMap<String, String>,
    pub(super) close: Option<CloseFile>,
}

/// Spelling of the end of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseSpelling {
    /// `reason` of the last event.
    pub reason: String,
    /// WebSocket close code (RFC 6455 §7.4).
    #[serde(deserialize_with = "deserialize_close_code")]
    pub code: u16,
    /// WebSocket close reason.
    #[serde(default)]
    pub text: String,
    /// The last event.
    #[serde(default)]
    pub reported_as: ReportedAs,
}

/// The last event before the close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedAs {
    /// [`EventName::SessionClosed`].
    #[default]
    SessionClosed,
    /// [`EventName::Error`], with the reason as code and the text of the close frame as message.
    Error,
    /// No event.
    Nothing,
}

/// A key of `[errors]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ErrorKey {
    /// A kind.
    Kind(ErrorKind),
    /// `other`: every kind without an entry.
    Other,
}

impl<'de> Deserialize<'de> for ErrorKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let name = String::deserialize(from)?;
        if name == "other" {
            return Ok(Self::Other);
        }
        ErrorKind::deserialize(name.into_deserializer()).map(Self::Kind)
    }
}

impl SetupPageFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<SetupPage, FileError> {
        let slots = |in_refusal: bool| {
            let known = move |slot: &SetupSlot| match slot {
                SetupSlot::Message => in_refusal,
                SetupSlot::Url | SetupSlot::Key | SetupSlot::Version => !in_refusal,
                SetupSlot::Id | SetupSlot::UnixMs | SetupSlot::Time => true,
            };
            let known = SetupSlot::ALL.into_iter().filter(known);
            known.map(|slot| (slot.name(), slot)).collect::<Vec<_>>()
        };
        let compile = |answer: &Spanned<String>, in_refusal: bool| {
            let compiled = Template::compile_slots(answer.get_ref(), &slots(in_refusal));
            compiled.map_err(|error| document.problem(answer.span().start, error.to_string()))
        };
        Ok(SetupPage {
            path: self.path.0,
            signature: self.signature,
            answer: compile(&self.answer, false)?,
            call_answer: self.call_answer.as_ref().map(|template| compile(template, false)).transpose()?,
            refusal: self.refusal.as_ref().map(|template| compile(template, true)).transpose()?,
            parameters: self.parameters.into_iter().map(|(name, pointer)| (name, pointer.0)).collect(),
        })
    }
}

impl ErrorFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<ErrorSpelling, FileError> {
        let plain = |text: &Spanned<String>| document.plain_template(text, &["detail"]);
        if self.code.get_ref().is_empty() {
            let message = "an error needs a code; without one the client would not get it".to_owned();
            return Err(document.problem(self.code.span().start, message));
        }
        Ok(ErrorSpelling {
            message: self.message.as_ref().map(plain).transpose()?,
            close: self.close.map(|close| close.compile(document)).transpose()?,
            details: self.details,
            code: self.code.into_inner(),
            recoverable: self.recoverable,
            class: String::new(),
            ended: None,
        })
    }
}
