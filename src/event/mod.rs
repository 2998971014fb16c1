//! Neutral vocabulary between N client protocols and M upstream dialects.
//!
//! To change here: a variant for something new that a client can ask for or be told. Not here: names and fields of a
//! protocol, which its codec and mapping file have.
//!
//! An `…Event` came in, a `…Command` goes out. The types hold no state and know no wire format. This file has what
//! passes between clients and sessions; [`lane`] has what passes between sessions and upstreams.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

mod answer;
mod describe;
mod lane;
pub mod relay;

pub use self::answer::{
    AnswerRequest, ChatMessage, ChatTurn, Entry, EntryId, EntryPart, EntryPlace, Role, TurnDetection,
    heard_words,
};
pub use self::describe::describe_queue;
pub use self::lane::{
    ConversationInit, DisconnectReason, EndKind, LaneCommand, LaneEvent, MessageMeta, UnitInput, UpstreamEnd,
};
pub use crate::mapping::{
    client::CloseReason,
    profile::MicrophoneMode,
    upstream::{Mode, VoiceEncoding},
};
use crate::{
    audio::{encoding::Encoding, vad::Sensitivity, word_times::WordTime},
    error::Error,
};

/// One upstream connection of a session. A session never uses a number twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u32);

/// Received WebSocket message.
#[derive(Debug, Clone, Copy)]
pub enum Frame<'a> {
    /// Text message.
    Text(&'a str),
    /// Binary message.
    Binary(&'a [u8]),
}

/// WebSocket message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// Text message.
    Text(String),
    /// Binary message.
    Binary(Bytes),
    /// Close frame: code and reason. Nothing follows it.
    Close(u16, String),
}

/// Request or audio from the client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientEvent<'a> {
    /// Microphone audio in the session's input format. Frames may split a sample.
    Audio(&'a [u8]),
    /// The client has played a text or turn to its end.
    Played(TurnTag),
    /// Changes settings for the rest of the session.
    Configure(Vec<Setting>),
    /// Speaks a text. Cancels the text being spoken.
    Speak(Box<SpeakRequest>),
    /// Stops speaking.
    CancelSpeech,
    /// Adds a text that is spoken at the next flush.
    AppendText(String),
    /// Speaks the added texts after the texts already queued.
    Flush,
    /// Stops speaking and discards the queued texts.
    Clear,
    /// Ends the utterance now.
    Commit {
        /// A commit without speech does nothing; otherwise it is an error.
        may_be_empty: bool,
    },
    /// Makes the transcript so far final and reports it.
    Finalize,
    /// Ends the session after everything received so far is answered.
    Finish,
    /// Keeps the session alive.
    KeepAlive,
    /// Camera picture.
    VideoFrame(VideoFrame),
    /// Discards the audio of the current utterance.
    ClearAudio,
    /// Adds an entry to the conversation.
    AddEntry(Box<Entry>, EntryPlace),
    /// Removes an entry from the conversation.
    RemoveEntry(EntryId),
    /// Shortens an answer to what the user heard, ms of its audio.
    TruncateEntry(EntryId, u64),
    /// Asks for an answer.
    Answer(Box<AnswerRequest>),
    /// Ends the session.
    Close(CloseReason),
}

/// One setting of a session.
#[derive(Debug, Clone, PartialEq)]
pub enum Setting {
    /// Language of the user's speech, ISO 639-1.
    Language(String),
    /// Words that are likely to occur.
    HotWords(Vec<String>),
    /// The client's own words for the transcription prompt; empty for none.
    TranscriptionPrompt(String),
    /// Whether speech is translated into English instead of transcribed.
    Translation(bool),
    /// How easily speech is detected.
    VadSensitivity(Sensitivity),
    /// Silence that ends an utterance.
    EndSilence(Duration),
    /// Longest utterance.
    SegmentMax(Duration),
    /// Whether partial transcripts are sent.
    Partials(bool),
    /// Whether final transcripts have word times.
    WordTimes(bool),
    /// Speech model. Also selects the configured voice of that name.
    SpeakModel(String),
    /// Like `SpeakModel`, but an unconfigured name has no effect.
    SpeakModelIfKnown(String),
    /// Voice by name.
    Voice(String),
    /// Encoding of the client's audio.
    InputEncoding(Encoding),
    /// Sample rate of the client's audio, Hz.
    InputRate(u32),
    /// Channels of the client's audio.
    InputChannels(u16),
    /// Encoding of the audio to the client.
    OutputEncoding(Encoding),
    /// Sample rate of the audio to the client, Hz.
    OutputRate(u32),
    /// Whether the client receives speech start and speech end events.
    SpeechEvents(bool),
    /// Silence after an utterance that the client wants reported.
    UtteranceGap(Duration),
    /// Microphone mode during playback.
    Microphone(MicrophoneMode),
    /// Whether the client receives rollover events.
    RolloverEvents(bool),
    /// Instructions for the model, in place of the profile's.
    Instructions(String),
    /// How the session reacts to the user's speech.
    TurnDetection(TurnDetection),
    /// Whether answers are spoken.
    SpokenAnswers(bool),
    /// Whether the user's words are transcribed beside an answer.
    TranscribeUser(bool),
}

/// Text to speak.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SpeakRequest {
    /// The text, as the client wrote it.
    pub text: String,
    /// Client's id for the request.
    pub request_id: Option<String>,
    /// Voice by name.
    pub voice: Option<String>,
    /// Language of the text, ISO 639-1.
    pub language: Option<String>,
    /// Client's own voice sample.
    pub reference: Option<VoiceSample>,
    /// Style instruction in natural language.
    pub instruction: Option<String>,
}

/// Voice sample that a model shall speak like: int16, 16 kHz mono.
#[derive(Clone, PartialEq, Eq)]
pub struct VoiceSample {
    /// The samples.
    pub samples: Arc<[i16]>,
    /// How the dialect writes them.
    pub encoding: VoiceEncoding,
}

impl VoiceSample {
    /// A sample that is written as raw float32, the documented encoding.
    #[must_use]
    pub fn new(samples: impl Into<Arc<[i16]>>) -> Self {
        Self { samples: samples.into(), encoding: VoiceEncoding::F32le }
    }
}

impl std::fmt::Debug for VoiceSample {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VoiceSample({} samples)", self.samples.len())
    }
}

/// Camera picture: a JPEG file.
#[derive(Clone, PartialEq, Eq)]
pub struct VideoFrame(pub Bytes);

impl std::fmt::Debug for VideoFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VideoFrame({} bytes)", self.0.len())
    }
}

/// Speaker of a transcript.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speaker {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl Speaker {
    /// Spelling in transcript events.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }

    /// Origin of the words: the user's are recognised, the model's are its own.
    #[must_use]
    pub const fn source(self) -> &'static str {
        match self {
            Self::User => "transcription",
            Self::Assistant => "model",
        }
    }
}

/// Why a conversation continues in another upstream session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RolloverReason {
    /// The upstream's time limit is near.
    TimeLimit,
    /// The model's context is nearly full.
    ContextFull,
    /// The model kept talking after it was forced to listen.
    NotYielding,
    /// The upstream session was lost.
    UpstreamLost,
    /// Its worker was needed to speak a text.
    WorkerLent,
    /// An operator requested it.
    OperatorRequest,
}

impl RolloverReason {
    /// Spelling in the rollover event.
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
    /// Samples in the client's encoding.
    pub bytes: Bytes,
    /// The text or turn that the audio belongs to.
    pub turn: TurnTag,
}

/// Event for the client. Times are relative as on the Macaw server (field notes macaw.md §1.3).
#[derive(Debug, Clone, PartialEq)]
pub enum ClientCommand {
    /// The session is open.
    SessionCreated {
        /// Session id.
        session_id: String,
        /// Requested model.
        model: String,
        /// Language requested at connect.
        language: Option<String>,
    },
    /// The user started to speak.
    SpeechStarted {
        /// Position of the decision in the received audio, ms.
        at_ms: u64,
        /// Position of the first sound, ms.
        from_ms: u64,
        /// Utterance.
        segment_id: u32,
    },
    /// The user stopped speaking.
    SpeechEnded {
        /// Position of the decision in the received audio, ms.
        at_ms: u64,
        /// Utterance.
        segment_id: u32,
    },
    /// The audio of an utterance is complete.
    AudioCommitted {
        /// Utterance.
        segment_id: u32,
        /// Length of its audio, ms.
        audio_ms: u64,
        /// Its transcript follows.
        is_transcribed: bool,
    },
    /// The audio of the current utterance was discarded at the client's request.
    AudioCleared,
    /// The model begins an answer.
    AnswerStarted {
        /// Answer.
        segment_id: u32,
        /// The client asked for it; otherwise the model or the end of an utterance did.
        by_client: bool,
    },
    /// An answer is complete: nothing of it follows.
    AnswerEnded {
        /// Answer.
        segment_id: u32,
        /// It was interrupted, or the rest of it was lost.
        cancelled: bool,
        /// Length of the audio that was made, ms, heard or not.
        audio_ms: u64,
    },
    /// Transcript so far.
    TranscriptPartial {
        /// Speaker.
        speaker: Speaker,
        /// Whole text so far, not only the new part.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        audio_ms: u64,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
    },
    /// Final transcript.
    TranscriptFinal {
        /// Speaker.
        speaker: Speaker,
        /// Text.
        text: String,
        /// Utterance.
        segment_id: u32,
        /// Length of the utterance's audio, ms.
        duration_ms: u64,
        /// Start of the utterance in the received audio, ms.
        start_ms: u64,
        /// Start and end of the speech in the received audio, ms: without the pre-roll and the silence after it.
        speech_ms: (u64, u64),
        /// The utterance ended by silence or by its maximum length.
        utterance_ended: bool,
        /// The client requested the final transcript.
        finalized: bool,
        /// Language of the request to the model; `None` if there was no request.
        language: Option<String>,
        /// Estimated times of the words, in the received audio; empty without an estimate.
        words: Vec<WordTime>,
    },
    /// The user has been silent for the requested gap.
    UtteranceGap {
        /// End of the last utterance in the received audio, ms.
        last_ms: u64,
    },
    /// Audio follows.
    SpeakingStarted {
        /// Request id.
        request_id: String,
        /// Time since the request, ms.
        at_ms: u64,
        /// The text being spoken.
        text: String,
    },
    /// Audio of a text or turn.
    Audio(ClientAudio),
    /// All audio of a text or turn was sent. Only for clients that confirm when they have played it.
    AudioComplete {
        /// The text or turn.
        turn: TurnTag,
    },
    /// No more audio follows.
    SpeakingEnded {
        /// Request id.
        request_id: String,
        /// Time since the request, ms.
        at_ms: u64,
        /// The speech was cancelled, or the rest of it was lost.
        cancelled: bool,
        /// Audio sent, ms.
        audio_ms: u64,
    },
    /// All texts up to a flush have been spoken.
    Flushed {
        /// Number of earlier flushes.
        sequence: u32,
    },
    /// Speech was stopped and the queue is empty.
    Cleared {
        /// Number of earlier clears.
        sequence: u32,
    },
    /// Settings have changed.
    Configured,
    /// A conversation waits for a model, because all workers are taken. Repeated while it waits.
    Queued {
        /// Position in the upstream's queue, from 1.
        position: u32,
        /// Time in the queue so far, ms.
        waited_ms: u64,
        /// Longest time in the queue, ms.
        wait_max_ms: u64,
    },
    /// Audio arrives faster than real time.
    RateLimited {
        /// How long the client should pause, ms.
        delay_ms: u64,
    },
    /// Audio was dropped.
    FramesDropped {
        /// Length of the dropped audio, ms.
        dropped_ms: u64,
    },
    /// The conversation continued in another upstream session.
    RolledOver {
        /// Reason.
        reason: RolloverReason,
        /// Time without a model, ms.
        gap_ms: u64,
        /// The next session was a standby that was ready.
        standby: bool,
        /// Audio kept meanwhile, which is sent now, ms.
        kept_ms: u64,
        /// Lines of the conversation that the prompt of the next session has.
        known_lines: u64,
        /// Lines that it lacks: said after it was initialised, or too old for its length.
        missing_lines: u64,
    },
    /// An error.
    Error(Error),
    /// The session has ended. This is the last event.
    SessionClosed {
        /// Reason.
        reason: CloseReason,
        /// Time since the session opened, ms.
        total_ms: u64,
        /// Received audio, ms.
        audio_ms: u64,
        /// Number of utterances.
        segments: u32,
        /// Session id.
        session_id: String,
    },
}

impl ClientCommand {
    /// The text or turn that is discarded with this command when the user interrupts; `None` for commands that stay.
    #[must_use]
    pub const fn turn(&self) -> Option<TurnTag> {
        match self {
            Self::Audio(audio) => Some(audio.turn),
            Self::AudioComplete { turn } => Some(*turn),
            _ => None,
        }
    }
}
