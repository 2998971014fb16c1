//! Messages between a relay's client and its upstream.
//!
//! Every type borrows from the received message. Audio, voices and pictures stay base64 text and are not decoded. The
//! vocabulary of served sessions and their upstreams is [`super::lane`].

use super::{LaneEvent, Node, UpstreamEnd};
use crate::{foreign::shortened, named_enum::named_enum};

/// Message from the client to the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RelayClientEvent<'a> {
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

/// Position in an upstream's queue.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QueuePosition<'a> {
    /// Position, from 1.
    pub position: Option<u32>,
    /// Length of the queue.
    pub length: Option<u32>,
    /// Estimated wait, s.
    pub wait_s: Option<f64>,
    /// Queue's id for the position.
    pub ticket: Option<&'a str>,
}

/// Message of an upstream, as a relay passes it on.
#[derive(Debug, Clone, PartialEq)]
pub enum UpstreamMessage<'a> {
    /// The session waits in the upstream's queue.
    Queued(QueuePosition<'a>),
    /// A worker has been assigned.
    Granted,
    /// The session is open. Holds the upstream's session id.
    Opened(Option<&'a str>),
    /// Output of the model.
    Output(ModelOutput<'a>),
    /// The upstream session has ended.
    Ended(RelayEndReason, UpstreamEnd),
    /// Something failed. True if the session continues.
    Failed(UpstreamEnd, bool),
    /// Known, and without a meaning.
    Ignored,
    /// Unknown or unreadable message, described in words.
    Unknown(String),
}

/// Output of the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelOutput<'a> {
    /// The model listens.
    Listening,
    /// Part of the text.
    Text(&'a str),
    /// Part of the audio, base64.
    Speech(&'a str),
    /// Text and audio of one step.
    Step(StepOutput<'a>),
    /// The answer is complete: its text, and its audio unless it was streamed.
    Answered(Option<&'a str>, Option<&'a str>),
}

/// Output of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepOutput<'a> {
    /// May be empty.
    pub text: &'a str,
    /// base64.
    pub audio: Option<&'a str>,
    /// The model has finished its turn and listens.
    pub end_of_turn: bool,
}

impl<'a> ModelOutput<'a> {
    /// Its text, audio and end of a turn, as far as it has them.
    #[must_use]
    pub fn parts(self) -> StepOutput<'a> {
        match self {
            Self::Listening => StepOutput { end_of_turn: true, ..StepOutput::default() },
            Self::Text(text) => StepOutput { text, ..StepOutput::default() },
            Self::Speech(audio) => StepOutput { audio: Some(audio), ..StepOutput::default() },
            Self::Step(step) => step,
            Self::Answered(text, audio) => {
                StepOutput { text: text.unwrap_or_default(), audio, end_of_turn: false }
            }
        }
    }
}

impl UpstreamMessage<'_> {
    /// Meaning for the lane on which the message arrived. Audio is left out.
    #[must_use]
    pub fn to_lane_event(&self) -> LaneEvent<'_> {
        match self {
            Self::Queued(QueuePosition { position, length, wait_s, .. }) => {
                LaneEvent::Queued { position: *position, length: *length, wait_s: *wait_s }
            }
            Self::Granted => LaneEvent::Granted,
            Self::Opened(session_id) => LaneEvent::Ready { session_id: session_id.map(shortened) },
            Self::Output(ModelOutput::Listening) => LaneEvent::Listen,
            Self::Output(ModelOutput::Text(text)) => LaneEvent::Text(text),
            Self::Output(ModelOutput::Speech(_) | ModelOutput::Step(_)) => LaneEvent::Audio(&[]),
            Self::Output(ModelOutput::Answered(text, _)) => LaneEvent::Done { text: *text, audio: &[] },
            Self::Failed(end, true) => LaneEvent::RecoverableError(&end.detail),
            Self::Ended(_, end) | Self::Failed(end, false) => LaneEvent::Closed(end.clone()),
            Self::Ignored => LaneEvent::Ignored,
            Self::Unknown(words) => LaneEvent::Unknown(words.clone()),
        }
    }
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

/// Event for a relay's client, unless the upstream's own message is forwarded.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientNotice<'a> {
    /// The client waits in the queue, or moved up.
    Queued {
        /// Position.
        queue: QueuePosition<'a>,
        /// The client already received a position.
        is_update: bool,
    },
    /// A worker has been assigned.
    Granted,
    /// The session is open.
    Opened {
        /// Length of the client's own prompt, characters.
        prompt_chars: u64,
    },
    /// Output of the model.
    Output(ModelOutput<'a>),
    /// The session has ended.
    Ended {
        /// Reason.
        reason: RelayEndReason,
        /// Client's own reason.
        client_reason: Option<&'a str>,
        /// Diagnostic.
        detail: Option<&'a str>,
    },
}

/// Metadata of an event.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NoticeMeta<'a> {
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
}

/// Messages that report an error. They are sent in this order, as far as the protocol has them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ErrorNotice {
    /// Error event.
    pub event: Option<String>,
    /// Event that ends the session.
    pub session_end: Option<String>,
    /// Close frame.
    pub close: Option<(u16, String)>,
}
