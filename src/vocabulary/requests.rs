//! Requests of a client.
//!
//! To change here: a variant for something new that a client can ask for. Not here: how a protocol spells it.

use std::sync::Arc;

use bytes::Bytes;

use super::{AnswerRequest, CloseReason, Entry, EntryId, EntryPlace, Setting, SpeechId, VoiceEncoding};

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
