//! Between a session and its upstreams: what they say, and what they are told.

use std::sync::Arc;

use super::{VideoFrame, VoiceSample};

/// What an upstream says.
#[derive(Debug, Clone, PartialEq)]
pub enum LaneEvent<'a> {
    /// Waiting in its queue.
    Queued {
        /// Place in the queue, from 1.
        position: Option<u32>,
        /// Length of the queue.
        length: Option<u32>,
        /// How long it may take, s.
        wait_s: Option<f64>,
    },
    /// A worker is assigned; it wants to be initialised.
    Granted,
    /// Initialised.
    Ready {
        /// The upstream's name for the session.
        session_id: Option<&'a str>,
    },
    /// The model listens.
    Listen,
    /// A piece of text.
    Text(&'a str),
    /// A piece of audio, float32 mono at the dialect's rate.
    Audio(&'a [f32]),
    /// The answer is complete: all of it in chat, what came of one unit in a conversation.
    Done {
        /// All of its text.
        text: Option<&'a str>,
        /// All of its audio, where it was not streamed.
        audio: &'a [f32],
    },
    /// Something went wrong, in the upstream's own words; its session goes on.
    RecoverableError(&'a str),
    /// The upstream session is over.
    Closed(UpstreamEnd),
    /// Something this bridge does not know, or cannot read; the log gets it.
    Unknown(String),
}

/// What a message says about itself, beside what it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageMeta<'a> {
    /// The answer it belongs to.
    pub response_id: Option<&'a str>,
    /// The append it answers.
    pub input_id: Option<&'a str>,
    /// Positions of the model's context in use.
    pub context_tokens: Option<u32>,
    /// What runs the model, as the upstream calls it.
    pub backend: Option<&'a str>,
}

/// How an upstream session ended, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEnd {
    /// What it means.
    pub kind: EndKind,
    /// Reason or code, and the diagnostic where there is one.
    pub detail: String,
}

/// What an end means for the question that was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// An end like any other.
    Other,
    /// The model had nothing to say.
    EmptyAnswer,
    /// The queue takes nobody.
    QueueFull,
    /// Its time or the model's context was used up.
    LimitReached,
    /// The same, but the connection stays until it is told goodbye.
    LimitReachedStillOpen,
}

/// What an upstream is told.
#[derive(Debug, Clone, PartialEq)]
pub enum LaneCommand {
    /// Initialise, with a voice or the server's own.
    Init(Option<VoiceSample>),
    /// Initialise for talk.
    InitConversation(Box<ConversationInit>),
    /// One unit of talk.
    Append(UnitInput),
    /// What was said?
    Transcribe {
        /// The prompt.
        prompt: String,
        /// int16 mono 16 kHz.
        audio: Arc<Vec<i16>>,
    },
    /// Say this.
    Speak {
        /// System prompt, before the voice sample where there is one.
        before_voice: String,
        /// System prompt after the voice sample.
        after_voice: String,
        /// User message with the text.
        request: String,
        /// The voice.
        voice: Option<VoiceSample>,
    },
    /// Goodbye.
    Close,
    /// Words that somebody else has chosen.
    RawText(String),
}

/// What a conversation starts from.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationInit {
    /// System prompt.
    pub prompt: String,
    /// Inference settings, a JSON object. Sent every time: a session without them inherits the last one's (field notes
    /// §1.6).
    pub config: Arc<str>,
    /// The model's voice, or the server's own.
    pub voice: Option<VoiceSample>,
}

/// What the model hears, and sees, in one second.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitInput {
    /// int16 mono 16 kHz, exactly one unit.
    pub audio: Arc<Vec<i16>>,
    /// Echoed by upstreams that do.
    pub input_id: Box<str>,
    /// The model is to stop talking.
    pub force_listen: bool,
    /// What the camera saw.
    pub frame: Option<VideoFrame>,
}

/// Why a lane's transport is gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisconnectReason {
    /// It never came up: DNS, TCP, TLS or time.
    Unreachable(String),
    /// HTTP said no with this status.
    HttpRejected(u16),
    /// A close frame: code and reason.
    Closed(u16, String),
    /// It broke.
    Lost(String),
}

impl std::fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(words) => write!(f, "cannot be reached: {words}"),
            // Starlette answers unknown WebSocket routes like this; there is no authentication (field notes §7.6).
            Self::HttpRejected(403) => f.write_str(
                "refused the connection with HTTP 403: wrong path, mode or dialect, or not ready yet",
            ),
            Self::HttpRejected(status) => write!(f, "refused the connection with HTTP {status}"),
            Self::Closed(code, reason) if reason.is_empty() => {
                write!(f, "closed the connection with code {code}")
            }
            Self::Closed(code, reason) => write!(f, "closed the connection with code {code} ({reason})"),
            Self::Lost(words) => write!(f, "lost the connection: {words}"),
        }
    }
}
