//! Vocabulary of client mapping files: verbs of commands, names of events, reasons of a close.

use serde::{Deserialize, Serialize};

/// Meaning of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Carries audio in a field, as base64.
    Audio,
    /// Confirms that the client has played a text or turn.
    Played,
    /// Changes settings.
    Configure,
    /// Speaks a text.
    Speak,
    /// Stops speaking.
    CancelSpeech,
    /// Collects text to speak.
    AppendText,
    /// Speaks the collected text after the current one.
    Flush,
    /// Stops speaking and discards waiting text.
    Clear,
    /// Ends the utterance now.
    Commit,
    /// Makes the transcript so far final, and sends it.
    Finalize,
    /// Ends the session once everything received is answered.
    Finish,
    /// Restarts the idle timeout.
    KeepAlive,
    /// Sends a picture to the model.
    Frame,
    /// Discards the audio of the current utterance.
    ClearAudio,
    /// Changes a session of OpenAI's kind. This verb and the next six need `[realtime]`.
    SessionUpdate,
    /// Adds an item to the conversation.
    ItemCreate,
    /// Asks for an item.
    ItemRetrieve,
    /// Cuts an item to what was played.
    ItemTruncate,
    /// Removes an item.
    ItemDelete,
    /// Asks for an answer.
    ResponseCreate,
    /// Stops the answer.
    ResponseCancel,
    /// Begins a session of OpenAI's Live protocol. This verb and the next three need `live = true`.
    LiveStart,
    /// Drops the client's audio until it is unmuted.
    LiveMute,
    /// Ends the muting.
    LiveUnmute,
    /// Adds text that the model should know.
    LiveAppend,
    /// Ends the session.
    Close,
    /// Ends the session; separate because some protocols report another reason for it.
    CancelSession,
}

impl Verb {
    /// True for a verb whose message the codec of `[realtime]` reads.
    #[must_use]
    pub const fn is_realtime(self) -> bool {
        matches!(
            self,
            Self::SessionUpdate
                | Self::ItemCreate
                | Self::ItemRetrieve
                | Self::ItemTruncate
                | Self::ItemDelete
                | Self::ResponseCreate
                | Self::ResponseCancel
        )
    }

    /// True for a verb whose message the codec of OpenAI's Live protocol reads.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(self, Self::LiveStart | Self::LiveMute | Self::LiveUnmute | Self::LiveAppend)
    }
}

/// Events for a client. Mapping files name them in snake case under `[events]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// The session is open.
    SessionCreated,
    /// The user began to speak.
    SpeechStarted,
    /// The user stopped speaking.
    SpeechEnded,
    /// Transcript so far.
    TranscriptPartial,
    /// Final transcript.
    TranscriptFinal,
    /// One word of a final transcript: not a message, but an element of [`super::Slot::Words`].
    TranscriptWord,
    /// The audio of an utterance is complete.
    AudioCommitted,
    /// The audio of the current utterance was discarded.
    AudioCleared,
    /// The model begins an answer.
    AnswerStarted,
    /// An answer is complete.
    AnswerEnded,
    /// The user was silent for as long as the client requested.
    UtteranceGap,
    /// Audio follows.
    SpeakingStarted,
    /// Audio of a text or turn, as base64. Without this event, audio leaves as binary frames.
    Audio,
    /// The last audio of a text or turn was sent. The client answers with [`Verb::Played`].
    AudioComplete,
    /// No more audio follows.
    SpeakingEnded,
    /// No more audio follows because of a cancel or barge-in; without a template, [`EventName::SpeakingEnded`] is sent.
    SpeakingCancelled,
    /// All collected text is spoken.
    Flushed,
    /// Speaking has stopped.
    Cleared,
    /// Settings were changed.
    Configured,
    /// The conversation waits for a model.
    Queued,
    /// Audio comes faster than real time.
    RateLimited,
    /// Audio was dropped.
    FramesDropped,
    /// The conversation continues in another upstream session.
    RolledOver,
    /// Something went wrong.
    Error,
    /// The session is over.
    SessionClosed,
}

impl EventName {
    /// Every event.
    pub const ALL: [Self; 25] = [
        Self::SessionCreated,
        Self::SpeechStarted,
        Self::TranscriptPartial,
        Self::TranscriptFinal,
        Self::TranscriptWord,
        Self::SpeechEnded,
        Self::AudioCommitted,
        Self::AudioCleared,
        Self::AnswerStarted,
        Self::AnswerEnded,
        Self::UtteranceGap,
        Self::SpeakingStarted,
        Self::Audio,
        Self::AudioComplete,
        Self::SpeakingEnded,
        Self::SpeakingCancelled,
        Self::Flushed,
        Self::Cleared,
        Self::Configured,
        Self::Queued,
        Self::RateLimited,
        Self::FramesDropped,
        Self::RolledOver,
        Self::Error,
        Self::SessionClosed,
    ];
}

/// Reason for the end of a client's session. Mapping files name it in snake case under `[closes]`.
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
    /// An operator ends this session; defaults to the spelling of `shutdown`.
    Operator,
    /// The session reached its time limit; defaults to the spelling of `idle`.
    TimeLimit,
}

impl CloseReason {
    /// Every reason; reasons with a default spelling come last.
    pub const ALL: [Self; 7] = [
        Self::ClientClose,
        Self::ClientCancel,
        Self::Idle,
        Self::Shutdown,
        Self::Upstream,
        Self::Operator,
        Self::TimeLimit,
    ];

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
