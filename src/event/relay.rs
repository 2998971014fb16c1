//! Between the client of a relay and its upstream: what passes, one message at a time.
//!
//! Everything borrows from the message it came in. Audio, voices and pictures stay base64 text: nobody here looks into
//! them. What passes between a session of the bridge's own and its upstreams is in [`super::lane`].

use super::{LaneEvent, UpstreamEnd};
pub use crate::mapping::relay::{RelayEndReason, RelayFieldRole};
use crate::{error::Error, mapping::extract::Node};

/// What a client says to the model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RelayClientEvent<'a> {
    /// Open the session.
    Open(RelayOpening<'a>),
    /// Hear, see or read this.
    Append(RelayInput<'a>),
    /// Goodbye, and why.
    Close(Option<&'a str>),
    /// A type that the protocol does not have, as people see it.
    Unknown(&'a str),
}

/// What a session starts from; what is `None` the upstream decides.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayOpening<'a> {
    /// System prompt.
    pub prompt: Option<&'a str>,
    /// Inference settings, a JSON object as it was written.
    pub config: Option<&'a str>,
    /// The voice the model takes after, base64.
    pub voice: Option<&'a str>,
    /// The voice of its speech, base64.
    pub speech_voice: Option<&'a str>,
    /// Most slices of a picture.
    pub slice_max: Option<i64>,
}

/// What the model hears and sees in one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RelayInput<'a> {
    /// base64 of float32 samples.
    pub audio: Option<&'a str>,
    /// Pictures, base64.
    pub frames: Option<&'a [Node<'a>]>,
    /// The model is to stop talking.
    pub force_listen: Option<bool>,
    /// Most slices of a picture.
    pub slice_max: Option<i64>,
    /// The sender's name for it.
    pub input_id: Option<&'a str>,
    /// The sender's name for the answer.
    pub response_id: Option<&'a str>,
}

/// A place in an upstream's queue.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct QueuePosition<'a> {
    /// From 1.
    pub position: Option<u32>,
    /// Length of the queue.
    pub length: Option<u32>,
    /// How long it may take, s.
    pub wait_s: Option<f64>,
    /// The queue's name for the place.
    pub ticket: Option<&'a str>,
}

/// What an upstream says to the client of a relay.
#[derive(Debug, Clone, PartialEq)]
pub enum RelayUpstreamEvent<'a> {
    /// Waiting in its queue.
    Queued(QueuePosition<'a>),
    /// A worker is assigned.
    Granted,
    /// The session is open; the upstream's name for it.
    Opened(Option<&'a str>),
    /// The model listens.
    Listening,
    /// A piece of text.
    Text(&'a str),
    /// A piece of audio, base64.
    Speech(&'a str),
    /// All of one step.
    Output(StepOutput<'a>),
    /// An answer is complete: its text, and its audio where it was not streamed.
    Answered(Option<&'a str>, Option<&'a str>),
    /// The session is over.
    Ended(RelayEndReason, UpstreamEnd),
    /// Something failed, and whether the session goes on.
    Failed(UpstreamEnd, bool),
    /// Something this bridge does not know, or cannot read, in words.
    Unknown(String),
}

/// All that came of one step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct StepOutput<'a> {
    /// Maybe none.
    pub text: &'a str,
    /// base64.
    pub audio: Option<&'a str>,
    /// The model has finished and listens.
    pub end_of_turn: bool,
}

impl RelayUpstreamEvent<'_> {
    /// What it means for the lane it came on.
    #[must_use]
    pub fn to_lane_event(&self) -> LaneEvent<'_> {
        match self {
            Self::Queued(QueuePosition { position, length, wait_s, .. }) => {
                LaneEvent::Queued { position: *position, length: *length, wait_s: *wait_s }
            }
            Self::Granted => LaneEvent::Granted,
            Self::Opened(session_id) => LaneEvent::Ready { session_id: *session_id },
            Self::Listening => LaneEvent::Listen,
            Self::Text(text) => LaneEvent::Text(text),
            Self::Speech(_) | Self::Output(_) => LaneEvent::Audio(&[]),
            Self::Answered(text, _) => LaneEvent::Done { text: *text, audio: &[] },
            Self::Failed(end, true) => LaneEvent::RecoverableError(&end.detail),
            Self::Ended(_, end) | Self::Failed(end, false) => LaneEvent::Closed(end.clone()),
            Self::Unknown(words) => LaneEvent::Unknown(words.clone()),
        }
    }
}

/// What the client of a relay is told, where it is not told the upstream's own words.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientNotice<'a> {
    /// It waits, or has moved up.
    Queued {
        /// Where.
        queue: QueuePosition<'a>,
        /// It was told of a place before.
        is_update: bool,
    },
    /// A worker is there.
    Granted,
    /// The session is open.
    Opened {
        /// The client's own prompt has so many characters.
        prompt_chars: u64,
    },
    /// The model listens.
    Listening,
    /// A piece of text.
    Text(&'a str),
    /// A piece of audio.
    Speech(&'a str),
    /// All of one step.
    Output(StepOutput<'a>),
    /// An answer is complete.
    Answered(Option<&'a str>, Option<&'a str>),
    /// The session is over.
    Ended {
        /// Why.
        reason: RelayEndReason,
        /// The client's own reason.
        client_reason: Option<&'a str>,
        /// More about it.
        detail: Option<&'a str>,
    },
}

/// What an event says about itself, beside what it is.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct NoticeMeta<'a> {
    /// The session, by the upstream's name.
    pub session_id: Option<&'a str>,
    /// The answer it belongs to.
    pub response_id: Option<&'a str>,
    /// The append it answers.
    pub input_id: Option<&'a str>,
    /// Positions of the model's context in use.
    pub context_tokens: Option<u32>,
    /// Since the client connected, s.
    pub elapsed_s: f64,
}

/// How an error is told: each part in this order, as far as the protocol has it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ErrorNotice {
    /// The error event.
    pub event: Option<String>,
    /// The event that ends the session.
    pub session_end: Option<String>,
    /// The close frame.
    pub close: Option<(u16, String)>,
}

/// How both ends spell. The session says what passes, and gets it back as text.
pub trait RelayTranslator {
    /// Both spell alike: what passes, passes as it came.
    fn is_passthrough(&self) -> bool;
    /// The client is told text, audio and the end of a turn in one.
    fn merges_replies(&self) -> bool;
    /// The client may append before the session is open.
    fn accepts_early_appends(&self) -> bool;
    /// An event for the client; `None` for what its protocol does not tell.
    fn encode_notice(&self, told: &ClientNotice<'_>, about: &NoticeMeta<'_>) -> Option<String>;
    /// An error for the client.
    fn encode_error(&self, error: &Error, about: &NoticeMeta<'_>) -> ErrorNotice;
    /// The close frame behind the last event.
    fn close_frame(&self, reason: RelayEndReason) -> (u16, String);
    /// What opens an upstream session, in each of the ways in which it may take it.
    ///
    /// # Errors
    /// What of it the upstream cannot be told.
    fn encode_opening(&self, opening: &RelayOpening<'_>) -> Result<Vec<String>, Error>;
    /// Whether the upstream can be told of this at all.
    fn supports(&self, part: RelayFieldRole) -> bool;
    /// One step's input.
    fn encode_append(&self, input: &RelayInput<'_>) -> String;
    /// How long what the model hears lasts, ms.
    fn audio_duration_ms(&self, input: &RelayInput<'_>) -> u64;
    /// Goodbye.
    fn encode_close(&self, reason: Option<&str>) -> String;
}
