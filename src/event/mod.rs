//! The neutral vocabulary between N client protocols and M upstream dialects.
//!
//! An `…Event` came in, a `…Command` goes out. Nothing here knows a wire, and nothing here holds state. Here is what passes
//! between clients and sessions; [`lane`] is what passes between sessions and upstreams.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

mod lane;
pub mod relay;

pub use self::lane::{
    ConversationInit, DisconnectReason, EndKind, LaneCommand, LaneEvent, MessageMeta, UnitInput, UpstreamEnd,
};
pub use crate::mapping::{client::CloseReason, profile::MicrophoneMode, upstream::Mode};
use crate::{
    audio::{encoding::Encoding, vad::Sensitivity},
    error::Error,
};

/// One upstream connection of a session; a number is never used twice in a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// A frame that came in.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// A WebSocket text message.
    Text(&'a str),
    /// A WebSocket binary message.
    Binary(&'a [u8]),
}

/// A frame that goes out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A WebSocket text message.
    Text(String),
    /// A WebSocket binary message.
    Binary(Bytes),
    /// A WebSocket close frame: code and reason. Nothing follows it.
    Close(u16, String),
}

/// What the client wants.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent<'a> {
    /// Microphone audio in the session's input format, cut anywhere.
    Audio(&'a [u8]),
    /// Other settings from now on.
    Configure(Vec<Setting>),
    /// Speak a text; whatever is being spoken stops.
    Speak(Box<SpeakRequest>),
    /// Stop speaking.
    CancelSpeech,
    /// ReadWindowRules a text, to be spoken when it is flushed.
    AppendText(String),
    /// Speak what was gathered, after what is being spoken.
    Flush,
    /// Stop speaking and forget what waits to be spoken.
    Clear,
    /// End the utterance now.
    Commit,
    /// Make final what came so far, and tell it.
    Finalize,
    /// End the session when all that came is answered.
    Finish,
    /// The client is still there.
    KeepAlive,
    /// What the camera sees.
    VideoFrame(VideoFrame),
    /// End the session.
    Close(CloseReason),
}

/// One setting of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Language of the user's speech, ISO 639-1.
    Language(String),
    /// Words that may occur.
    HotWords(Vec<String>),
    /// How easily speech is detected.
    VadSensitivity(Sensitivity),
    /// Silence that ends an utterance.
    EndSilence(Duration),
    /// Longest utterance.
    SegmentMax(Duration),
    /// Whether partial transcripts are sent.
    Partials(bool),
    /// Speech model; a configured voice by that name is used.
    SpeakModel(String),
    /// The same; a name nobody configured changes nothing.
    SpeakModelIfKnown(String),
    /// Voice by name.
    Voice(String),
    /// Encoding of the client's audio.
    InputEncoding(Encoding),
    /// Sample rate of the client's audio, Hz.
    InputRate(u32),
    /// Channels of the client's audio.
    InputChannels(u16),
    /// Encoding of the audio the client gets.
    OutputEncoding(Encoding),
    /// Sample rate of the audio the client gets, Hz.
    OutputRate(u32),
    /// Whether the client is told of the beginning and the end of speech.
    SpeechEvents(bool),
    /// Silence after an utterance that the client is told of.
    UtteranceGap(Duration),
    /// What becomes of the microphone while the client hears speech.
    Microphone(MicrophoneMode),
    /// Whether the client wants to know when a conversation changes to another upstream session.
    RolloverEvents(bool),
}

/// A text to speak.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpeakRequest {
    /// The text, as the client wrote it.
    pub text: String,
    /// The client's name for it.
    pub request_id: Option<String>,
    /// Voice by name.
    pub voice: Option<String>,
    /// Language of the text, ISO 639-1.
    pub language: Option<String>,
    /// The client's own voice sample.
    pub reference: Option<VoiceSample>,
    /// How to speak, in words.
    pub instruction: Option<String>,
}

/// A voice sample ready for the wire: a JSON string of base64, raw float32, 16 kHz mono (field notes §3).
#[derive(Clone, PartialEq, Eq)]
pub struct VoiceSample(pub Arc<str>);

impl std::fmt::Debug for VoiceSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VoiceSample({} bytes)", self.0.len())
    }
}

/// A picture ready for the wire: a JSON string of base64, JPEG (protocol page "Video Full-Duplex").
#[derive(Clone, PartialEq, Eq)]
pub struct VideoFrame(pub Arc<str>);

impl std::fmt::Debug for VideoFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VideoFrame({} bytes)", self.0.len())
    }
}

/// Whose words a transcript holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Speaker {
    /// As transcripts name it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// Where the words come from: the user's are recognised, the model's are its own.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::User => "transcription",
            Self::Assistant => "model",
        }
    }
}

/// Why a conversation goes on in another upstream session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloverReason {
    /// The upstream's time limit is near.
    TimeLimit,
    /// The model's context is nearly full.
    ContextFull,
    /// The model went on talking although it was told to listen.
    NotYielding,
    /// The upstream session was lost.
    UpstreamLost,
    /// Its worker had to speak a text.
    WorkerLent,
    /// An operator asked for it.
    OperatorRequest,
}

impl RolloverReason {
    /// As the event names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TimeLimit => "time_limit",
            Self::ContextFull => "context_full",
            Self::NotYielding => "not_yielding",
            Self::UpstreamLost => "upstream_lost",
            Self::WorkerLent => "worker_lent",
            Self::OperatorRequest => "operator_request",
        }
    }
}

/// Tag of a text or turn that is spoken to the client; unique within a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TurnTag(pub u32);

/// Audio for the client: mono samples at the client's rate.
#[derive(Debug, Clone, PartialEq)]
pub struct ClientAudio {
    /// float32, full scale at 1.
    pub samples: Vec<f32>,
    /// How the codec writes the samples.
    pub encoding: Encoding,
    /// The text or turn that the audio belongs to.
    pub turn: TurnTag,
}

/// What the client is told. Times are relative as the Macaw server gives them (field notes macaw.md §1.3).
#[derive(Debug, Clone, PartialEq)]
pub enum ClientCommand {
    /// The session is open.
    SessionCreated {
        /// Its id.
        session_id: String,
        /// The model asked for.
        model: String,
        /// The language asked for when connecting.
        language: Option<String>,
    },
    /// The user began to speak.
    SpeechStarted {
        /// Audio heard so far, ms, where the decision fell.
        at_ms: u64,
    },
    /// The user stopped.
    SpeechEnded {
        /// Audio heard so far, ms, where the decision fell.
        at_ms: u64,
    },
    /// What was understood so far.
    TranscriptPartial {
        /// Whose words.
        speaker: Speaker,
        /// All of it, not only what is new.
        text: String,
        /// The utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        audio_ms: u64,
        /// Where that begins in the audio heard, ms.
        start_ms: u64,
    },
    /// What was understood.
    TranscriptFinal {
        /// Whose words.
        speaker: Speaker,
        /// The words.
        text: String,
        /// The utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        duration_ms: u64,
        /// Where that begins in the audio heard, ms.
        start_ms: u64,
        /// The user ended the utterance, by silence or by its length.
        utterance_ended: bool,
        /// The client had it made final.
        finalized: bool,
        /// Language the model was asked in; none where it was not asked.
        language: Option<String>,
    },
    /// Nothing was said since then for as long as the client asked.
    UtteranceGap {
        /// Where the last utterance ended in the audio heard, ms.
        last_ms: u64,
    },
    /// Audio follows.
    SpeakingStarted {
        /// The request.
        request_id: String,
        /// Since the request, ms.
        at_ms: u64,
        /// The text being spoken.
        text: String,
    },
    /// Audio of a text or turn.
    Audio(ClientAudio),
    /// No more audio follows.
    SpeakingEnded {
        /// The request.
        request_id: String,
        /// Since the request, ms.
        at_ms: u64,
        /// The client asked for the end.
        cancelled: bool,
        /// Audio sent, ms.
        audio_ms: u64,
    },
    /// All texts up to a flush are spoken.
    Flushed {
        /// Flushes before it.
        sequence: u32,
    },
    /// Nothing is spoken any more.
    Cleared {
        /// Clears before it.
        sequence: u32,
    },
    /// Settings were changed.
    Configured,
    /// Audio comes faster than real time.
    RateLimited {
        /// How long the client should wait, ms.
        delay_ms: u64,
    },
    /// Audio was dropped.
    FramesDropped {
        /// How much, ms.
        dropped_ms: u64,
    },
    /// The conversation went on in another upstream session.
    RolledOver {
        /// Why.
        reason: RolloverReason,
        /// How long no audio reached a model, ms.
        gap_ms: u64,
        /// The next session had been made ready beforehand.
        standby: bool,
        /// Audio that was kept meanwhile and follows now, ms.
        kept_ms: u64,
    },
    /// Something went wrong.
    Error(Error),
    /// The session is over; the last event.
    SessionClosed {
        /// Why.
        reason: CloseReason,
        /// Since the session was opened, ms.
        total_ms: u64,
        /// Audio heard, ms.
        audio_ms: u64,
        /// Utterances so far.
        segments: u32,
        /// Its id.
        session_id: String,
    },
}

impl ClientCommand {
    /// The text or turn that is discarded with this command when the user interrupts; `None` for commands that stay.
    #[must_use]
    pub const fn turn(&self) -> Option<TurnTag> {
        match self {
            Self::Audio(audio) => Some(audio.turn),
            _ => None,
        }
    }
}
