//! Messages between a relay's client and its upstream.
//!
//! Every type borrows from the received message. Audio, voices and pictures stay base64 text and are not decoded. What the
//! upstream sends is a [`LaneEvent`](super::LaneEvent), as for served sessions.

use super::Node;
use crate::named_enum::named_enum;

/// Request of a relay's client to the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RelayRequest<'a> {
    /// Opens the session.
    Open(RelayOpening<'a>),
    /// Gives the model audio, pictures or text.
    Append(RelayInput<'a>),
    /// Closes the session, with a reason.
    Close(Option<&'a str>),
    /// Message of an unknown type, described for people.
    Unknown(&'a str),
}

/// Parameters of a new session. The upstream chooses what is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayOpening<'a> {
    /// System prompt.
    pub prompt: Option<&'a str>,
    /// Inference settings: the JSON object as the client wrote it.
    pub config: Option<&'a str>,
    /// Voice sample for the model, base64.
    pub voice: Option<&'a str>,
    /// Voice sample for speech only, base64.
    pub speech_voice: Option<&'a str>,
    /// Most slices per picture.
    pub slice_max: Option<i64>,
}

/// Input of one model step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayInput<'a> {
    /// base64 of float32 samples.
    pub audio: Option<&'a str>,
    /// Pictures, base64 JPEG.
    pub frames: Option<&'a [Node<'a>]>,
    /// Forces the model to stop talking.
    pub force_listen: Option<bool>,
    /// Most slices per picture.
    pub slice_max: Option<i64>,
    /// Sender's id for the append.
    pub input_id: Option<&'a str>,
    /// Sender's id for the answer.
    pub response_id: Option<&'a str>,
}

named_enum! {
    /// Why a relayed session ends. Mapping files name these in snake case under `[closes]`.
    pub enum RelayEndReason {
        /// The client closed it.
        ClientClose = "client_close",
        /// The upstream's time limit.
        Timeout = "timeout",
        /// The model's context is full.
        ContextFull = "context_full",
        /// The server shuts down.
        Shutdown = "shutdown",
        /// The client sent nothing for too long.
        Idle = "idle",
        /// Any other reason.
        Failed = "failed",
        /// An operator ended the session. Defaults to the spelling of `shutdown`.
        Operator = "operator",
    }
}

impl RelayEndReason {
    /// Reason whose spelling is used if the file has none.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::Operator => Some(Self::Shutdown),
            _ => None,
        }
    }
}

/// End of a relayed session, for its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelayEnd<'a> {
    /// Reason.
    pub reason: RelayEndReason,
    /// Client's own reason.
    pub client_reason: Option<&'a str>,
    /// Diagnostic.
    pub detail: Option<&'a str>,
}

/// Metadata of an event for a relay's client.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayEventMeta<'a> {
    /// Upstream's session id.
    pub session_id: Option<&'a str>,
    /// Answer to which the event belongs.
    pub response_id: Option<&'a str>,
    /// Append that the event answers.
    pub input_id: Option<&'a str>,
    /// Used positions of the model's context.
    pub context_tokens: Option<u32>,
    /// Time since the client connected, s.
    pub elapsed_s: f64,
    /// The client already received a position in the queue.
    pub is_queue_update: bool,
    /// Length of the client's own prompt, characters.
    pub prompt_chars: u64,
}

/// Messages that report an error. They are sent in this order, as far as the protocol has them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RelayErrorMessages {
    /// Error event.
    pub event: Option<String>,
    /// Event that ends the session.
    pub session_end: Option<String>,
    /// Close frame.
    pub close: Option<(u16, String)>,
}
