//! Error type of the crate: its origin, its kind and its details.
//!
//! The type knows no wire format. A client protocol's mapping turns each [`ErrorKind`] into the protocol's code,
//! message and close frame, in one place ([`crate::downstream`]).

use std::fmt;

use serde::{Deserialize, Serialize};

/// Party that caused an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The client sent something invalid.
    Client,
    /// voxbridge itself.
    Bridge,
    /// The upstream.
    Upstream,
}

/// Kind of error. Mapping files name these in snake case under `[errors]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// A text frame that is not JSON.
    MalformedJson,
    /// JSON that is not an object.
    NotAnObject,
    /// An object without the key that names the command.
    MissingCommand,
    /// A command that the protocol does not have.
    UnknownCommand,
    /// A command with a field of the wrong type, range or length.
    Invalid,
    /// A binary frame above the protocol's limit. The frame is dropped.
    FrameTooLarge,
    /// A voice reference that cannot be read.
    BadReference,
    /// A settings change that cannot be applied, such as a sample rate out of range.
    BadSetting,
    /// The connection names no model.
    NoModel,
    /// The connection names a model without a route.
    UnknownModel,
    /// An unconfigured speech model or voice.
    UnknownVoice,
    /// The upstream is unreachable, or every attempt was rejected or lost.
    Unavailable,
    /// The upstream's queue is full.
    QueueFull,
    /// The upstream's queue does not move.
    QueueStuck,
    /// An utterance could not be transcribed.
    TranscribeFailed,
    /// A text could not be spoken.
    SpeakFailed,
    /// A conversation lost its upstream session. The bridge looks for another.
    ConversationInterrupted,
    /// No replacement was found in time.
    ConversationLost,
    /// A message that arrived before the session was open. This kind and those below occur in relayed protocols only.
    NotReady,
    /// A message without a required field.
    MissingField,
    /// A binary frame in a text-only protocol.
    BinaryFrame,
    /// More input than the bridge can keep while no upstream is ready.
    TooMuch,
    /// A field or value that the upstream's dialect cannot carry.
    NoCounterpart,
    /// A mode that the upstream's dialect does not have.
    NoSuchMode,
    /// The upstream reported a failure, and its session continues.
    ModelFailed,
}

impl ErrorKind {
    /// Kinds that a served session may report.
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

    /// Kinds that a relay's client protocol must spell.
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

    /// Spelling in mapping files and metrics.
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

    /// Party that caused it.
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

/// Error that is reported to a client and to the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    /// Kind.
    pub kind: ErrorKind,
    /// Cause and place, in words.
    pub detail: String,
    /// Utterance that failed, if the error concerns one.
    pub segment_id: Option<u32>,
}

impl Error {
    /// Error that concerns no utterance.
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
