//! Schema of a client mapping file.

use std::collections::BTreeMap;

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, IntoDeserializer as _},
};
use toml::Spanned;

use super::{
    ClientSigns, CommandSyntax, Framing, LockStep, SetupPage, ValueSource, jobs::JobsFile,
    realtime::RealtimeFile, tcp::TcpFile, values::EventFile, verbs::VerbsFile,
};
use crate::{
    audio::{encoding::Encoding, opus::PacketOptions},
    error::ErrorKind,
    spelling::{
        check::{
            self,
            values::{JsonPointer, UrlPath, deserialize_close_code, deserialize_paths},
        },
        error_spelling::ErrorSpelling,
        field::FieldFile,
        profile::PlayoutPace,
        tested_with::TestedClient,
    },
    vocabulary::{CloseReason, EventName},
};

/// The file as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientFile {
    #[serde(rename = "kind")]
    pub(super) _kind: IgnoredAny,
    /// Name in configuration and on the command line.
    pub name: String,
    /// Name for people.
    pub title: String,
    /// Family of protocols that the log of the start names together.
    #[serde(default = "check::values::default_family")]
    pub family: String,
    /// Notes for readers of `mappings explain`, a line each.
    #[serde(default)]
    pub notes: Vec<String>,
    /// URL paths of the protocol; empty for the protocol of REST requests.
    #[serde(deserialize_with = "deserialize_paths")]
    pub paths: Vec<String>,
    #[serde(default)]
    pub(super) subprotocols: Vec<Spanned<String>>,
    /// Header with the signature of the handshake request; `None` for clients that do not sign it.
    pub signature_header: Option<String>,
    /// Header with the error of a handshake whose query is wrong. `None` for protocols whose sessions open with that error.
    pub refusal_header: Option<String>,
    #[serde(default)]
    pub(super) key_headers: Vec<Spanned<String>>,
    /// Query parameters that contain a key. No other code sees them.
    #[serde(default)]
    pub key_parameters: Vec<String>,
    /// JSON pointer to the name of a command or event; empty for a protocol without names.
    #[serde(default)]
    pub command_key: JsonPointer,
    /// How a text message spells a command.
    #[serde(default)]
    pub command_syntax: CommandSyntax,
    /// Profile of a configuration without routes; `None` for the usual one.
    pub default_profile: Option<String>,
    /// Signs that distinguish its clients from others at the same path.
    #[serde(default)]
    pub signs: ClientSigns,
    pub(super) realtime: Option<RealtimeFile>,
    /// OpenAI's Live protocol, whose behaviour is Rust.
    #[serde(default, rename = "live")]
    pub is_live: bool,
    pub(super) device_tools: Option<Spanned<String>>,
    /// Its sessions are opened for REST requests, so that it needs no path.
    #[serde(default, rename = "rest")]
    pub is_rest: bool,
    pub(super) tcp: Option<TcpFile>,
    /// Which messages are answered by one transcript.
    #[serde(default)]
    pub lock_step: LockStep,
    /// A client that gets no message for this long gets [`EventName::StillHere`], ms; 0 disables.
    #[serde(default, deserialize_with = "check::deserialize_ms")]
    pub idle_event_ms: u64,
    /// The page that tells clients where to connect.
    pub setup_page: Option<SetupPage>,
    pub(super) jobs: Option<JobsFile>,
    /// Where clients send offers of calls by WebRTC in JSON, as Pipecat's SmallWebRTC does.
    pub offer_path: Option<UrlPath>,
    pub(super) message_id: Option<JsonPointer>,
    /// How messages are framed, unless the query says otherwise.
    #[serde(default)]
    pub framing: Framing,
    /// How clients spell the names of fields.
    #[serde(default)]
    pub field_names: FieldNames,
    /// Headers of the request and the query parameters that they stand for.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    #[serde(default)]
    pub(super) answer_headers: BTreeMap<Spanned<String>, String>,
    #[serde(default)]
    pub(super) query: BTreeMap<Spanned<String>, FieldFile>,
    /// Audio from the client.
    pub audio_in: AudioIn,
    /// Audio to the client.
    #[serde(default = "AudioOut::none")]
    pub audio_out: AudioOut,
    /// How utterances are transcribed.
    #[serde(default)]
    pub transcripts: TranscriptRules,
    #[serde(default)]
    pub(super) slot_words: BTreeMap<Spanned<String>, BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) values: BTreeMap<Spanned<String>, ValueSource>,
    pub(super) commands: BTreeMap<Spanned<String>, CommandFile>,
    pub(super) events: BTreeMap<EventName, Spanned<EventFile>>,
    pub(super) errors: BTreeMap<ErrorKey, ErrorSpelling>,
    pub(super) closes: BTreeMap<CloseReason, CloseSpelling>,
    /// Events of the protocol that voxbridge never sends, and why.
    #[serde(default)]
    pub never_sent: BTreeMap<String, String>,
    /// Stock clients that the tests run.
    #[serde(default)]
    pub tested_with: Vec<TestedClient>,
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
