//! What a client asks for.
//!
//! To change here: a variant for something new that a client can ask for. Not here: how a protocol spells it.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use serde::Deserialize;

use super::{
    AnswerRequest, CloseReason, Entry, EntryId, EntryPlace, SpeechId, ToolOffer, TurnDetection, VoiceEncoding,
};
use crate::audio::{encoding::Encoding, vad::Sensitivity};

/// Request or audio from the client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientRequest<'a> {
    /// Microphone audio in the session's input format. Frames may split a sample.
    Audio(&'a [u8]),
    /// The client has played a text or turn to its end.
    Played(SpeechId),
    /// The client takes no audio for now.
    PauseAudio,
    /// The client takes audio again.
    ResumeAudio,
    /// Changes settings for the rest of the session.
    Configure(Vec<Setting>),
    /// The same, without an answer.
    Adjust(Vec<Setting>),
    /// Speaks a text. Cancels the text being spoken.
    Speak(Box<SpeakRequest>),
    /// Stops speaking.
    CancelSpeech,
    /// Adds a fragment to the text with this id, which is spoken at its next flush.
    AppendText(String, Option<String>),
    /// Speaks the added text with this id, or all without an id, after the texts already queued. Its end is reported.
    Flush(Option<String>),
    /// The same, without a report.
    SpeakAppended(Option<String>),
    /// Stops speaking and discards the queued texts with this id, or all without an id.
    Clear(Option<String>),
    /// Ends the utterance now.
    Commit {
        /// A commit without speech does nothing; otherwise it is an error.
        may_be_empty: bool,
    },
    /// Makes the transcript so far final and reports it.
    Finalize,
    /// The same, and speaks the added texts. The end of everything so far is reported.
    Complete,
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
    /// Probability that the user has finished, from which on a turn ends, 0 to 1. At 1, only silence ends it. Lets a model
    /// judge the ends of turns, if one is loaded.
    EndThreshold(f64),
    /// Probability from which on the end of a turn is reported as likely.
    EndLikelyThreshold(f64),
    /// Silence that ends a turn although the user does not seem to have finished.
    EndWaitMax(Duration),
    /// Longest utterance.
    SegmentMax(Duration),
    /// Whether partial transcripts are sent.
    Partials(bool),
    /// Whether final transcripts have word times.
    WordTimes(bool),
    /// Whether final transcripts have estimated word times, whatever the profile says.
    EstimatedWordTimes(bool),
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
    /// Bit rate of compressed audio to the client, bit/s.
    OutputBitRate(u32),
    /// Whether the client receives speech start and speech end events.
    SpeechEvents(bool),
    /// Only final transcripts that the client asks for are sent, each with all words since the last.
    FinalsOnly(bool),
    /// Silence after an utterance that the client wants reported.
    UtteranceGap(Duration),
    /// Microphone mode during playback.
    Microphone(MicrophoneMode),
    /// Whether voxbridge removes from the client's audio what the client plays.
    EchoCancellation(bool),
    /// Whether the client receives rollover events.
    RolloverEvents(bool),
    /// Instructions for the model, in place of the profile's.
    Instructions(String),
    /// How the session reacts to the user's speech.
    TurnDetection(TurnDetection),
    /// Whether answers are spoken.
    SpokenAnswers(bool),
    /// Tools that the model may call.
    Tools(ToolOffer),
    /// Bound on each answer, in the model's tokens, below the profile's.
    AnswerMaxTokens(Option<u32>),
    /// Sampling temperature of answers, in place of the server's.
    Temperature(Option<f64>),
    /// Whether the user's words are transcribed beside the conversation.
    TranscribeUser(bool),
    /// Pauses a conversation in which no one has spoken for this long, until the user speaks.
    IdlePause(Duration),
}

impl Setting {
    /// True for the format of the audio, in either direction.
    pub(crate) const fn is_audio_format(&self) -> bool {
        matches!(
            self,
            Self::InputEncoding(_)
                | Self::InputRate(_)
                | Self::OutputEncoding(_)
                | Self::OutputRate(_)
                | Self::OutputBitRate(_)
        )
    }
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

/// Camera picture: a JPEG or PNG file.
#[derive(Clone, PartialEq, Eq)]
pub struct VideoFrame(pub Bytes);

impl std::fmt::Debug for VideoFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "VideoFrame({} bytes)", self.0.len())
    }
}

/// Handling of microphone audio while the client plays speech.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MicrophoneMode {
    /// Processes it, so that the user can barge in: for clients without echo.
    Open,
    /// Discards it, as the Macaw server does.
    Muted,
}
