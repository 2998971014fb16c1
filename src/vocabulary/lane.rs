//! Messages between a session and its upstreams.

use std::{borrow::Cow, ops::Deref, sync::Arc, time::Duration};

use super::{ChatTurn, ReportedUsage, VideoFrame, VoiceSample, relay::RelayEndReason};
use crate::audio::pcm;

/// Message from an upstream.
#[derive(Debug, Clone, PartialEq)]
pub enum LaneEvent<'a> {
    /// The session waits in the upstream's queue.
    Queued {
        /// Position in the queue, from 1.
        position: Option<u32>,
        /// Length of the queue.
        length: Option<u32>,
        /// Estimated wait, s.
        wait_s: Option<f64>,
        /// Queue's id for the position.
        ticket: Option<&'a str>,
    },
    /// A worker has been assigned and waits for its initialisation.
    Granted,
    /// The upstream session is initialised.
    Ready {
        /// Upstream's session id.
        session_id: Option<&'a str>,
    },
    /// The model listens.
    Listen,
    /// The server has taken the user's turn, and owes an answer. Only the codec of its dialect gets it.
    AnswerDue,
    /// Part of the text.
    Text(&'a str),
    /// Part of the audio.
    Audio(Sound<'a>),
    /// Text, audio and end of one unit, as the upstream sent them in one message. Only a relay gets it; other lanes get its parts.
    Step {
        /// May be empty.
        text: &'a str,
        /// May be [`Sound::NONE`].
        audio: Sound<'a>,
        /// The model has finished its turn and listens.
        end_of_turn: bool,
    },
    /// The answer is complete: the whole answer in chat, the output of one unit in a conversation.
    Done {
        /// Its whole text.
        text: Option<&'a str>,
        /// Its whole audio, unless the audio was streamed.
        audio: Sound<'a>,
    },
    /// The model calls a tool. The words are the model's.
    Call {
        /// Upstream's id of the call.
        call_id: &'a str,
        /// Name of the tool.
        name: &'a str,
        /// Arguments: the text of a JSON object.
        arguments: &'a str,
    },
    /// An error in the upstream's own words. Its session continues.
    RecoverableError(&'a str),
    /// The upstream session has ended.
    Closed(UpstreamEnd),
    /// A message without a meaning for the session.
    Ignored,
    /// Unknown or unreadable message, described for the log.
    Unknown(String),
}

/// Audio of a message. Dereferences to its samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sound<'a> {
    /// float32 mono at the dialect's rate.
    Samples(&'a [f32]),
    /// base64 as the upstream sent it. Only a relay gets it; its samples are not known.
    Base64(&'a str),
}

impl<'a> Sound<'a> {
    /// No audio.
    pub const NONE: Self = Self::Samples(&[]);

    /// True for [`Sound::NONE`].
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self, Self::Samples([]))
    }

    /// The audio as base64: of float32, unless it came in another encoding. `None` for no audio.
    #[must_use]
    pub fn to_base64(self) -> Option<Cow<'a, str>> {
        match self {
            Self::Samples([]) => None,
            Self::Samples(samples) => {
                let mut base64 = String::with_capacity(pcm::base64_f32_len(samples.len()));
                pcm::encode_base64_samples(samples, &mut base64);
                Some(base64.into())
            }
            Self::Base64(base64) => Some(base64.into()),
        }
    }
}

impl Deref for Sound<'_> {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Samples(samples) => samples,
            Self::Base64(_) => &[],
        }
    }
}

/// Metadata of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageMeta<'a> {
    /// Answer to which the message belongs.
    pub response_id: Option<&'a str>,
    /// Item of the upstream's conversation to which the message belongs.
    pub item_id: Option<&'a str>,
    /// Append that the message answers.
    pub input_id: Option<&'a str>,
    /// Used positions of the model's context.
    pub context_tokens: Option<u32>,
    /// Upstream's name for the software that runs the model.
    pub backend: Option<&'a str>,
    /// Number of the message in its session.
    pub sequence: Option<u64>,
    /// Proves to the upstream that a new transport belongs to the session.
    pub resume_token: Option<&'a str>,
    /// Length of the units in which the model takes audio, ms.
    pub unit_ms: Option<u32>,
    /// Rate of the audio that the upstream takes, Hz.
    pub input_rate_hz: Option<u32>,
    /// Rate of the audio that it sends, Hz.
    pub output_rate_hz: Option<u32>,
    /// Upstream's name for the format of the audio that it takes.
    pub input_format: Option<&'a str>,
    /// Upstream's name for the format of the audio that it sends.
    pub output_format: Option<&'a str>,
    /// Upstream's name for the model that transcribes the user.
    pub transcriber: Option<&'a str>,
    /// Kind of the detector by which the upstream ends the user's turns.
    pub turn_detector: Option<&'a str>,
    /// Samples at the end of the audio so far that the upstream holds back: the model hears them with the next unit.
    pub held_samples: usize,
    /// Tokens of the request that the message answers.
    pub usage: Option<ReportedUsage>,
    /// The answer ends at the bound on its length, or before all of it was said.
    pub hit_limit: bool,
    /// The error refuses this part of the append that it answers.
    pub refused: Option<RefusedPart>,
    /// The upstream wants a request that it was too busy for again after this time.
    pub retry_after: Option<Duration>,
    /// Why the upstream ended the session regularly. `None` for an error that ends it.
    pub end_reason: Option<RelayEndReason>,
}

/// Part of an append that an upstream refused. It takes none of that part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedPart {
    /// All of it.
    Whole,
    /// The piece with the picture. The other pieces were accepted.
    Piece,
}

/// End of an upstream session, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamEnd {
    /// Kind of end.
    pub kind: EndKind,
    /// Reason or code, and the diagnostic if there is one.
    pub detail: String,
}

/// Meaning of an end for the request in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndKind {
    /// Any other end.
    Other,
    /// The server lost its back-end, or refused a message that it does not know: the two look the same.
    BackendLost,
    /// The server refused the request. Any server would refuse it again, so this is no fault of the server.
    Refused,
    /// The server refuses every request: its token, path or model in the configuration is wrong.
    Misconfigured,
    /// The model had no answer.
    EmptyAnswer,
    /// The queue is full.
    QueueFull,
    /// The server refused the session for a reason that another attempt does not change.
    RefusedForGood,
    /// The time limit was reached.
    TimeLimitReached,
    /// The model's context or another limit was used up.
    LimitReached,
    /// Like `LimitReached`, but the connection stays open until the bridge closes the session.
    LimitReachedStillOpen,
    /// The server opened a session that the lane cannot use. It stays open until the bridge closes it.
    UnfitStillOpen,
}

impl EndKind {
    /// Meaning of the HTTP status of a failed request. 408 and 425 ask for the request again; 401 and the like concern only the
    /// configuration.
    #[must_use]
    pub const fn of_status(status: u16) -> Self {
        match status {
            429 | 503 => Self::QueueFull,
            408 | 425 => Self::Other,
            300..400 | 401..=405 | 407 => Self::Misconfigured,
            400..500 => Self::Refused,
            _ => Self::Other,
        }
    }

    /// Meaning of the close code of a session that was in use: 1003, 1007 and 1009 are answers to a message (RFC 6455 §7.4.1).
    #[must_use]
    pub const fn of_close_code(code: u16) -> Self {
        match code {
            1003 | 1007 | 1009 => Self::Refused,
            _ => Self::Other,
        }
    }

    /// True if the request in progress would fail in the same way again.
    #[must_use]
    pub const fn is_refusal(self) -> bool {
        matches!(self, Self::Refused | Self::RefusedForGood | Self::Misconfigured)
    }
}

/// Message to an upstream.
#[derive(Debug, Clone, PartialEq)]
pub enum LaneRequest {
    /// Initialises a chat session, with a voice sample or the server's voice.
    Init(Option<VoiceSample>),
    /// Initialises a conversation.
    InitConversation(Box<ConversationInit>),
    /// Sends one unit of a conversation.
    Append(UnitInput),
    /// Requests a transcript.
    Transcribe {
        /// Prompt.
        prompt: TranscribePrompt,
        /// Audio, int16 mono 16 kHz.
        audio: Arc<Vec<i16>>,
    },
    /// Requests speech.
    Speak {
        /// System prompt before the voice sample.
        before_voice: String,
        /// System prompt after the voice sample.
        after_voice: String,
        /// User message that holds the text.
        request: String,
        /// The text alone.
        text: String,
        /// Voice sample.
        voice: Option<VoiceSample>,
        /// Name of the voice that the client asked for, for a server with voices of its own.
        voice_name: Option<String>,
    },
    /// Requests an answer.
    Chat(Box<ChatTurn>),
    /// The answer is no longer wanted. An upstream that can stop it does so.
    Cancel,
    /// Closes the session.
    Close,
    /// Message that is already encoded.
    RawText(String),
}

impl LaneRequest {
    /// The voice sample of the message.
    #[must_use]
    pub fn voice(&self) -> Option<&VoiceSample> {
        match self {
            Self::Init(voice) | Self::Speak { voice, .. } => voice.as_ref(),
            Self::InitConversation(opening) => opening.voice.as_ref(),
            Self::Chat(turn) => turn.voice.as_ref(),
            Self::Append(_) | Self::Transcribe { .. } | Self::RawText(_) | Self::Cancel | Self::Close => None,
        }
    }

    /// The name of the voice that speaks.
    #[must_use]
    pub fn voice_name(&self) -> Option<&str> {
        match self {
            Self::Speak { voice_name, .. } => voice_name.as_deref(),
            Self::InitConversation(opening) => opening.voice_name.as_deref(),
            Self::Chat(turn) => turn.voice_name.as_deref().filter(|_| turn.speaks),
            _ => None,
        }
    }

    /// The voice sample of the message, to change its encoding.
    pub fn voice_mut(&mut self) -> Option<&mut VoiceSample> {
        match self {
            Self::Init(voice) | Self::Speak { voice, .. } => voice.as_mut(),
            Self::InitConversation(opening) => opening.voice.as_mut(),
            Self::Chat(turn) => turn.voice.as_mut(),
            Self::Append(_) | Self::Transcribe { .. } | Self::RawText(_) | Self::Cancel | Self::Close => None,
        }
    }
}

/// Instructions for an upstream about speech to transcribe.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TranscribePrompt {
    /// Instruction to a model that answers questions, with the language and the hints in it.
    pub instruction: String,
    /// Language of the speech, ISO 639-1; empty if unknown.
    pub language: String,
    /// The client's own words and the words that are likely to occur, for a model that only transcribes.
    pub hints: String,
    /// The speech is translated into English instead of transcribed, as the instruction says.
    pub translates: bool,
}

impl From<String> for TranscribePrompt {
    fn from(instruction: String) -> Self {
        Self { instruction, ..Self::default() }
    }
}

impl From<&str> for TranscribePrompt {
    fn from(instruction: &str) -> Self {
        instruction.to_owned().into()
    }
}

/// Parameters of a new conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ConversationInit {
    /// System prompt.
    pub prompt: String,
    /// Inference settings, a JSON object. They are always sent: a session without settings inherits those of the
    /// previous session (mappings/notes/minicpm-o-duplex.md#settings).
    pub config: Arc<str>,
    /// Voice sample; `None` for the server's voice.
    pub voice: Option<VoiceSample>,
    /// Name of the voice that the client asked for, for a server with voices of its own.
    pub voice_name: Option<String>,
}

/// Input of one step: one second of audio, and a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct UnitInput {
    /// Audio, int16 mono 16 kHz, exactly one unit.
    pub audio: Arc<Vec<i16>>,
    /// Unit's id, which some upstreams echo.
    pub input_id: Box<str>,
    /// Forces the model to stop talking.
    pub force_listen: bool,
    /// Camera picture.
    pub frame: Option<VideoFrame>,
}

/// Why a lane's transport closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DisconnectReason {
    /// The connection failed: DNS, TCP, TLS or timeout. The words may contain an address, which only operators may learn.
    Unreachable(String),
    /// The handshake was rejected with this HTTP status.
    HttpRejected(u16),
    /// A close frame arrived: code and reason.
    Closed(u16, String),
    /// The connection broke.
    Lost(String),
}

impl std::fmt::Display for DisconnectReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreachable(words) if words.is_empty() => f.write_str("cannot be reached"),
            Self::Unreachable(words) => write!(f, "cannot be reached: {words}"),
            // Starlette answers unknown WebSocket routes with 403; there is no authentication
            // (mappings/notes/minicpm-o.md#connect).
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
