//! The words in which client protocols' files speak of what a client wants, what it is told, and why it is left.

use serde::{Deserialize, Serialize};

/// What a command means in the bridge's own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Changes settings.
    Configure,
    /// Speaks a text.
    Speak,
    /// Stops speaking.
    CancelSpeech,
    /// Gathers text to speak.
    AppendText,
    /// Speaks what was gathered, after what is being spoken.
    Flush,
    /// Stops speaking and forgets what waits to be spoken.
    Clear,
    /// Ends the utterance now.
    Commit,
    /// Makes final what came so far, and tells it.
    Finalize,
    /// Ends the session when all that came is answered.
    Finish,
    /// Shows that the client is still there.
    KeepAlive,
    /// Shows the model a picture.
    Frame,
    /// Ends the session.
    Close,
    /// Ends the session; spelled apart because some protocols answer it with another reason.
    CancelSession,
}

/// What a client can be told. Mapping files name these in snake case under `[events]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The session is open.
    SessionCreated,
    /// The user began to speak.
    SpeechStarted,
    /// The user stopped.
    SpeechEnded,
    /// What was understood so far.
    TranscriptPartial,
    /// What was understood.
    TranscriptFinal,
    /// Nothing was said for as long as the client asked.
    UtteranceGap,
    /// Audio follows.
    SpeakingStarted,
    /// No more audio follows.
    SpeakingEnded,
    /// All that was gathered is spoken.
    Flushed,
    /// Nothing is spoken any more.
    Cleared,
    /// Settings were changed.
    Configured,
    /// Audio comes faster than real time.
    RateLimited,
    /// Audio was dropped.
    FramesDropped,
    /// The conversation went on in another upstream session.
    RolledOver,
    /// Something went wrong.
    Error,
    /// The session is over.
    SessionClosed,
}

impl EventName {
    /// Every event.
    pub const ALL: [Self; 16] = [
        Self::SessionCreated,
        Self::SpeechStarted,
        Self::TranscriptPartial,
        Self::TranscriptFinal,
        Self::SpeechEnded,
        Self::UtteranceGap,
        Self::SpeakingStarted,
        Self::SpeakingEnded,
        Self::Flushed,
        Self::Cleared,
        Self::Configured,
        Self::RateLimited,
        Self::FramesDropped,
        Self::RolledOver,
        Self::Error,
        Self::SessionClosed,
    ];
}

/// Why the bridge closes a client's session. Mapping files name these in snake case under `[closes]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// The client asked with [`Verb::Close`].
    ClientClose,
    /// The client asked with [`Verb::CancelSession`].
    ClientCancel,
    /// No audio for too long.
    Idle,
    /// voxbridge stops.
    Shutdown,
    /// The upstream is lost for good.
    Upstream,
    /// An operator ends this session; spelled like `shutdown` where a file does not say.
    Operator,
    /// The session has lasted as long as it may; spelled like `idle` where a file does not say.
    TimeLimit,
}

impl CloseReason {
    /// Every reason; those that have another to stand in for them come last.
    pub const ALL: [Self; 7] = [
        Self::ClientClose,
        Self::ClientCancel,
        Self::Idle,
        Self::Shutdown,
        Self::Upstream,
        Self::Operator,
        Self::TimeLimit,
    ];

    /// What stands in for it in a file that says nothing about it.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::Operator => Some(Self::Shutdown),
            Self::TimeLimit => Some(Self::Idle),
            _ => None,
        }
    }
}
