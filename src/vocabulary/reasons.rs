//! Reasons for the ends of sessions, turns and upstream sessions, and speakers of transcripts.

use crate::named_enum::named_enum;

named_enum! {
    /// Reason for the end of a client's session. Mapping files name it in snake case under `[closes]`.
    pub enum CloseReason {
        /// The client asked with [`crate::spelling::client::Verb::Close`].
        ClientClose = "client_close",
        /// The client asked with [`crate::spelling::client::Verb::CancelSession`].
        ClientCancel = "client_cancel",
        /// No audio for too long.
        Idle = "idle",
        /// voxbridge stops.
        Shutdown = "shutdown",
        /// The upstream is lost for good.
        Upstream = "upstream",
        /// An operator ends this session; defaults to the spelling of `shutdown`.
        Operator = "operator",
        /// The session reached its time limit; defaults to the spelling of `idle`.
        TimeLimit = "time_limit",
    }
}

impl CloseReason {
    /// Reason whose spelling is the default for this one.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::Operator => Some(Self::Shutdown),
            Self::TimeLimit => Some(Self::Idle),
            _ => None,
        }
    }
}

named_enum! {
    /// Speaker of a transcript.
    pub enum Speaker {
        /// The user.
        User = "user",
        /// The model.
        Assistant = "assistant",
    }
}

impl Speaker {
    /// Origin of the words: the user's are recognised, the model's are its own.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::User => "transcription",
            Self::Assistant => "model",
        }
    }
}

named_enum! {
    /// Cause of the end of a user's turn.
    #[derive(Default)]
    pub enum EndCause {
        /// The end-of-turn model: the user has finished.
        Model = "model",
        /// Silence, or the longest turn.
        #[default]
        Timeout = "timeout",
        /// The client's [`crate::spelling::client::Verb::Finalize`].
        Manual = "manual",
    }
}

named_enum! {
    /// Why a conversation continues in another upstream session.
    pub enum RolloverReason {
        /// The upstream's time limit is near.
        TimeLimit = "time_limit",
        /// The model's context is nearly full.
        ContextFull = "context_full",
        /// The model kept talking after it was forced to listen.
        NotYielding = "not_yielding",
        /// The upstream session was lost.
        UpstreamLost = "upstream_lost",
        /// Its worker was needed to speak a text.
        WorkerLent = "worker_lent",
        /// An operator requested it.
        OperatorRequest = "operator_request",
    }
}
