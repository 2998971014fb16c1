//! Error type of the crate: its origin, its kind and its details.
//!
//! The type knows no wire format. A client protocol's mapping turns each [`ErrorKind`] into the protocol's code,
//! message and close frame, in one place ([`crate::client`]).

use crate::named_enum::named_enum;

named_enum! {
    /// Party that caused an error.
    pub enum Origin {
        /// The client sent something invalid.
        Client = "client",
        /// voxbridge itself.
        Bridge = "bridge",
        /// The upstream.
        Upstream = "upstream",
    }
}

named_enum! {
    /// Kind of error. Mapping files name these in snake case under `[errors]`.
    pub enum ErrorKind {
        /// A text frame that is not JSON.
        MalformedJson = "malformed_json",
        /// JSON that is not an object.
        NotAnObject = "not_an_object",
        /// An object without the key that names the command.
        MissingCommand = "missing_command",
        /// A command that the protocol does not have.
        UnknownCommand = "unknown_command",
        /// A command with a field of the wrong type, range or length.
        Invalid = "invalid",
        /// The same, of a command that changes settings, in a protocol with the event `configure_failed`. Spelled like `invalid`
        /// by default.
        InvalidConfigure = "invalid_configure",
        /// A binary frame above the protocol's limit. The frame is dropped.
        FrameTooLarge = "frame_too_large",
        /// A voice reference that cannot be read.
        BadReference = "bad_reference",
        /// A settings change that cannot be applied, such as a sample rate out of range.
        BadSetting = "bad_setting",
        /// The connection names no model.
        NoModel = "no_model",
        /// The connection names a model without a route.
        UnknownModel = "unknown_model",
        /// An unconfigured speech model or voice.
        UnknownVoice = "unknown_voice",
        /// The upstream is unreachable, or every attempt was rejected or lost.
        Unavailable = "unavailable",
        /// The upstream's queue is full.
        QueueFull = "queue_full",
        /// Notice: the upstream's queue does not move. The request still waits, and has an end or another error later.
        QueueStuck = "queue_stuck",
        /// The request waited in the upstream's queue for as long as it may, and is given up. Spelled like `unavailable` by
        /// default.
        QueueTimeout = "queue_timeout",
        /// The upstream refused what the client asked for. Spelled like `invalid` by default.
        Refused = "refused",
        /// An utterance could not be transcribed.
        TranscribeFailed = "transcribe_failed",
        /// A text could not be spoken.
        SpeakFailed = "speak_failed",
        /// The model's answer failed. Spelled like `speak_failed` by default.
        AnswerFailed = "answer_failed",
        /// A text to speak of white space alone. An error only in protocols that spell it; elsewhere such a text ends in the ordinary
        /// way, without audio.
        BlankText = "blank_text",
        /// A commit without audio. This kind and the next nine are spelled like `invalid` by default.
        EmptyCommit = "empty_commit",
        /// A new entry behind one that does not exist.
        UnknownEntry = "unknown_entry",
        /// An entry to read, and it does not exist.
        UnknownEntryRead = "unknown_entry_read",
        /// An entry to cut, and it does not exist.
        UnknownEntryCut = "unknown_entry_cut",
        /// An entry to remove, and it does not exist.
        UnknownEntryRemoved = "unknown_entry_removed",
        /// The result of a call, and there is no such call.
        UnknownToolCall = "unknown_tool_call",
        /// A new entry with the id of another.
        DuplicateEntry = "duplicate_entry",
        /// An answer to cancel, and there is none.
        NoAnswer = "no_answer",
        /// A request for an answer while another is in progress.
        AnswerInProgress = "answer_in_progress",
        /// A field that the protocol does not have, or not in this shape.
        UnknownField = "unknown_field",
        /// A conversation lost its upstream session. The bridge looks for another.
        ConversationInterrupted = "conversation_interrupted",
        /// No replacement was found in time.
        ConversationLost = "conversation_lost",
        /// A message that arrived before the session was open. This kind and those below occur in relayed protocols only.
        NotReady = "not_ready",
        /// A message without a required field.
        MissingField = "missing_field",
        /// A binary frame in a text-only protocol.
        BinaryFrame = "binary_frame",
        /// More input than the bridge can keep while no upstream is ready.
        TooMuch = "too_much",
        /// A field or value that the upstream's dialect cannot carry.
        NoCounterpart = "no_counterpart",
        /// A mode that the upstream's dialect does not have.
        NoSuchMode = "no_such_mode",
        /// The upstream reported a failure, and its session continues.
        ModelFailed = "model_failed",
    }
}

impl ErrorKind {
    /// Kinds that a served session may report.
    pub const SESSION_KINDS: [Self; Self::NotReady as usize] = match Self::ALL.first_chunk() {
        Some(kinds) => *kinds,
        None => unreachable!(),
    };

    /// Kinds that a relay's client protocol must spell.
    pub const RELAY_KINDS: [Self; 13] = [
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
        Self::ConversationLost,
    ];

    /// Kind whose spelling is the default for this one.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::AnswerFailed | Self::BlankText => Some(Self::SpeakFailed),
            Self::QueueTimeout => Some(Self::Unavailable),
            Self::InvalidConfigure
            | Self::Refused
            | Self::EmptyCommit
            | Self::UnknownEntry
            | Self::UnknownEntryRead
            | Self::UnknownEntryCut
            | Self::UnknownEntryRemoved
            | Self::UnknownToolCall
            | Self::DuplicateEntry
            | Self::NoAnswer
            | Self::AnswerInProgress
            | Self::UnknownField => Some(Self::Invalid),
            _ => None,
        }
    }

    /// Party that caused it.
    pub const fn origin(self) -> Origin {
        match self {
            Self::Unavailable
            | Self::QueueFull
            | Self::QueueStuck
            | Self::QueueTimeout
            | Self::TranscribeFailed
            | Self::SpeakFailed
            | Self::AnswerFailed
            | Self::ConversationInterrupted
            | Self::ConversationLost
            | Self::ModelFailed => Origin::Upstream,
            Self::UnknownVoice | Self::NoSuchMode | Self::NoCounterpart => Origin::Bridge,
            _ => Origin::Client,
        }
    }
}

/// Error that is reported to a client and to the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", kind.name())]
pub struct Error {
    /// Kind.
    pub kind: ErrorKind,
    /// Cause and place, in words.
    pub detail: String,
    /// Utterance that failed, if the error concerns one.
    pub segment_id: Option<u32>,
    /// Text to speak that failed, if the error concerns one: the client's name for it.
    pub request_id: Option<String>,
    /// Field of the client's message that is wrong, as a path such as `session.audio.input.format`.
    pub param: Option<String>,
}

impl Error {
    /// Error that concerns no utterance, no text and no field.
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), segment_id: None, request_id: None, param: None }
    }

    /// The same error, of this field of the client's message.
    #[must_use]
    pub fn of_field(self, path: impl Into<String>) -> Self {
        Self { param: Some(path.into()), ..self }
    }

    /// The same error, for this text to speak.
    #[must_use]
    pub fn for_request(self, request_id: impl Into<String>) -> Self {
        Self { request_id: Some(request_id.into()), ..self }
    }
}
