//! What can go wrong, in one type: who, what, and whether trying again may help.
//!
//! Nothing here knows how a wire spells an error: a client protocol's mapping turns [`ErrorKind`] into its own code,
//! words and close frame, in one place ([`crate::downstream`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Whose doing it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client sent what it should not have.
    Client,
    /// voxbridge itself.
    Bridge,
    /// The model's side.
    Upstream,
}

/// What went wrong. Mapping files name these in snake case under `[errors]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A text frame that is not JSON.
    MalformedJson,
    /// JSON, but no object.
    NotAnObject,
    /// An object without the key that names the command.
    MissingCommand,
    /// A command this protocol does not have.
    UnknownCommand,
    /// A command with a field of the wrong type, range or length.
    Invalid,
    /// A binary frame above the protocol's limit; it is dropped.
    FrameTooLarge,
    /// A voice reference that cannot be read.
    BadReference,
    /// A settings change that cannot be carried out, such as a sample rate out of range.
    BadSetting,
    /// The connection names no model.
    NoModel,
    /// The connection names a model no route leads to.
    UnknownModel,
    /// A speech model or voice that the configuration does not know.
    UnknownVoice,
    /// The upstream cannot be reached, or refuses or loses every attempt.
    Unavailable,
    /// The upstream's queue takes nobody.
    QueueFull,
    /// The upstream's queue does not move.
    QueueStuck,
    /// An utterance could not be transcribed.
    TranscribeFailed,
    /// A text could not be spoken.
    SpeakFailed,
    /// A conversation lost its upstream session; another is being looked for.
    ConversationInterrupted,
    /// No other was found in time.
    ConversationLost,
    /// A message that has to wait for the session to be open; only relayed protocols know it, and those below.
    NotReady,
    /// A message without a field that it must have.
    MissingField,
    /// A binary frame, in a protocol of text frames.
    BinaryFrame,
    /// More was sent before an upstream was there than can be kept.
    TooMuch,
    /// A field or a value that the upstream's dialect cannot say.
    NoCounterpart,
    /// A mode that the upstream's dialect does not have.
    NoSuchMode,
    /// The model's side reports a failure after which the session goes on.
    ModelFailed,
}

impl ErrorKind {
    /// Every kind a session of the bridge's own may tell.
    pub const SESSION_KINDS: [Self; 18] = [
        Self::MalformedJson,
        Self::NotAnObject,
        Self::MissingCommand,
        Self::UnknownCommand,
        Self::Invalid,
        Self::FrameTooLarge,
        Self::BadReference,
        Self::BadSetting,
        Self::NoModel,
        Self::UnknownModel,
        Self::UnknownVoice,
        Self::Unavailable,
        Self::QueueFull,
        Self::QueueStuck,
        Self::TranscribeFailed,
        Self::SpeakFailed,
        Self::ConversationInterrupted,
        Self::ConversationLost,
    ];

    /// Every kind the client of a relay must be told.
    pub const RELAY_KINDS: [Self; 14] = [
        Self::MalformedJson,
        Self::NotAnObject,
        Self::UnknownCommand,
        Self::Invalid,
        Self::NotReady,
        Self::MissingField,
        Self::BinaryFrame,
        Self::TooMuch,
        Self::NoSuchMode,
        Self::ModelFailed,
        Self::Unavailable,
        Self::QueueFull,
        Self::QueueStuck,
        Self::ConversationLost,
    ];

    /// As mapping files and metrics name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MalformedJson => "malformed_json",
            Self::NotAnObject => "not_an_object",
            Self::MissingCommand => "missing_command",
            Self::UnknownCommand => "unknown_command",
            Self::Invalid => "invalid",
            Self::FrameTooLarge => "frame_too_large",
            Self::BadReference => "bad_reference",
            Self::BadSetting => "bad_setting",
            Self::NoModel => "no_model",
            Self::UnknownModel => "unknown_model",
            Self::UnknownVoice => "unknown_voice",
            Self::Unavailable => "unavailable",
            Self::QueueFull => "queue_full",
            Self::QueueStuck => "queue_stuck",
            Self::TranscribeFailed => "transcribe_failed",
            Self::SpeakFailed => "speak_failed",
            Self::ConversationInterrupted => "conversation_interrupted",
            Self::ConversationLost => "conversation_lost",
            Self::NotReady => "not_ready",
            Self::MissingField => "missing_field",
            Self::BinaryFrame => "binary_frame",
            Self::TooMuch => "too_much",
            Self::NoCounterpart => "no_counterpart",
            Self::NoSuchMode => "no_such_mode",
            Self::ModelFailed => "model_failed",
        }
    }

    /// Who it comes from.
    #[must_use]
    pub const fn origin(self) -> Origin {
        match self {
            Self::Unavailable
            | Self::QueueFull
            | Self::QueueStuck
            | Self::TranscribeFailed
            | Self::SpeakFailed
            | Self::ConversationInterrupted
            | Self::ConversationLost
            | Self::ModelFailed => Origin::Upstream,
            Self::UnknownVoice | Self::NoSuchMode | Self::NoCounterpart => Origin::Bridge,
            _ => Origin::Client,
        }
    }
}

/// One error on its way to a client and to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// What.
    pub kind: ErrorKind,
    /// In words: what exactly, and where.
    pub detail: String,
    /// The utterance it concerns, where it concerns one.
    pub segment_id: Option<u32>,
}

impl Error {
    /// An error that concerns no utterance.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), segment_id: None }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?}: {}", self.kind.origin(), self.kind, self.detail)
    }
}

impl std::error::Error for Error {}
