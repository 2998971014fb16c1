//! Names of the messages to and from an upstream, with their modes and slots.

use serde::Deserialize;

use crate::{named_enum::named_enum, vocabulary::Mode};

named_enum! {
    /// Message from the bridge to an upstream, spelled in snake case under `[send]`.
    pub enum SendName {
        /// Opens the session.
        Init = "init",
        /// Opens the session with a voice.
        InitWithVoice = "init_with_voice",
        /// Asks for the transcript of an utterance.
        Transcribe = "transcribe",
        /// Asks a model that answers for the transcript of an utterance, or for its translation, where `transcribe` asks another
        /// model.
        TranscribeByAnswer = "transcribe_by_answer",
        /// Asks for the translation of an utterance into English, where that is another request than `transcribe`.
        Translate = "translate",
        /// Asks to speak a text in the server's own voice.
        Speak = "speak",
        /// Asks to speak a text in a given voice.
        SpeakWithVoice = "speak_with_voice",
        /// Opens a conversation.
        Converse = "converse",
        /// Opens a conversation with a voice.
        ConverseWithVoice = "converse_with_voice",
        /// One unit of a conversation.
        Append = "append",
        /// One unit of a conversation, with a picture.
        AppendWithFrame = "append_with_frame",
        /// Ends the session politely.
        Close = "close",
        /// Asks for an answer in a conversation that takes turns. With the four names below, it is needed by profiles with
        /// `[answer]` only.
        Chat = "chat",
        /// Asks for an answer in a given voice.
        ChatWithVoice = "chat_with_voice",
        /// A message of such a conversation.
        ChatMessage = "chat_message",
        /// A part of a message: words.
        ChatText = "chat_text",
        /// A part of a message: speech.
        ChatAudio = "chat_audio",
        /// A part of a message: a picture.
        ChatPicture = "chat_picture",
        /// A part of a message of the model: words, where they are spelled otherwise than the user's.
        ChatAnswerText = "chat_answer_text",
        /// A call of a tool, earlier in the conversation.
        ChatCall = "chat_call",
        /// The result of a call.
        ChatResult = "chat_result",
        /// A tool that the model may call.
        ChatTool = "chat_tool",
        /// Ends audio that was appended: it is a message of the conversation.
        Commit = "commit",
        /// Asks for the response to a conversation that was sent.
        Respond = "respond",
        /// Stops a response.
        Cancel = "cancel",
        /// Cuts a response to the part that was heard.
        Truncate = "truncate",
        /// Names the voice of the session.
        Voice = "voice",
        /// Opens a session for a client of another dialect.
        RelayOpen = "relay_open",
        /// Input of one step of such a client.
        RelayAppend = "relay_append",
    }
}

impl SendName {
    /// Messages needed by the bridge's own sessions.
    pub const OWN: [Self; 10] = [
        Self::Init,
        Self::InitWithVoice,
        Self::Transcribe,
        Self::Speak,
        Self::SpeakWithVoice,
        Self::Converse,
        Self::ConverseWithVoice,
        Self::Append,
        Self::AppendWithFrame,
        Self::Close,
    ];

    /// Messages needed by conversations that take turns.
    pub const CHAT: [Self; 6] = [
        Self::Chat,
        Self::ChatWithVoice,
        Self::ChatMessage,
        Self::ChatText,
        Self::ChatAudio,
        Self::ChatPicture,
    ];

    /// Messages needed by tools that are not prompted.
    pub const CALLS: [Self; 3] = [Self::ChatCall, Self::ChatResult, Self::ChatTool];

    /// Modes that use the message. A dialect without these modes need not define it.
    #[must_use]
    pub const fn modes(self) -> &'static [Mode] {
        match self {
            Self::Init | Self::InitWithVoice | Self::Transcribe | Self::Speak | Self::SpeakWithVoice => {
                &[Mode::Chat]
            }
            Self::Converse | Self::ConverseWithVoice | Self::Append => &[Mode::Audio, Mode::Video],
            Self::AppendWithFrame => &[Mode::Video],
            Self::Close => &[Mode::Chat, Mode::Audio, Mode::Video],
            // Optional: needed only for conversations in turns, and to serve clients of another dialect.
            Self::Chat
            | Self::ChatWithVoice
            | Self::ChatMessage
            | Self::ChatText
            | Self::ChatAudio
            | Self::ChatPicture
            | Self::ChatAnswerText
            | Self::ChatCall
            | Self::ChatResult
            | Self::ChatTool
            | Self::Commit
            | Self::Respond
            | Self::Cancel
            | Self::Truncate
            | Self::Voice
            | Self::TranscribeByAnswer
            | Self::Translate
            | Self::RelayOpen
            | Self::RelayAppend => &[],
        }
    }

    /// Slots that its template may use.
    #[must_use]
    pub const fn slots(self) -> &'static [&'static str] {
        match self {
            Self::Init => &["mode"],
            Self::InitWithVoice => &["mode", "voice"],
            Self::Transcribe => &["prompt", "audio", "language", "hints"],
            Self::TranscribeByAnswer => &["prompt", "audio"],
            Self::Translate => &["prompt", "audio", "hints"],
            Self::Speak => &["system", "text", "words", "conversation"],
            Self::SpeakWithVoice => &["before_voice", "voice", "after_voice", "text", "words"],
            Self::Converse => &["mode", "prompt", "config"],
            Self::ConverseWithVoice => &["mode", "prompt", "config", "voice"],
            Self::Append => &["audio", "input_id", "force_listen", "seq", "t_start_ms"],
            Self::AppendWithFrame => &["audio", "input_id", "force_listen", "frame", "seq", "t_start_ms"],
            Self::Close => &["reason"],
            Self::Chat => &[
                "messages",
                "speaks",
                "max_tokens",
                "modalities",
                "temperature",
                "instructions",
                "tools",
                "tool_choice",
                "parallel_calls",
            ],
            Self::ChatWithVoice => {
                &["messages", "speaks", "max_tokens", "modalities", "temperature", "voice"]
            }
            Self::ChatMessage => &["role", "content"],
            Self::ChatText | Self::ChatAnswerText => &["text"],
            Self::ChatAudio => &["audio"],
            Self::ChatPicture => &["picture"],
            Self::ChatCall => &["call_id", "name", "arguments"],
            Self::ChatResult => &["call_id", "output"],
            Self::ChatTool => &["name", "description", "parameters"],
            Self::Commit | Self::Respond | Self::Cancel => &[],
            Self::Truncate => &["item_id", "heard_ms"],
            Self::Voice => &["name"],
            Self::RelayOpen => &["mode", "prompt", "config", "voice", "speech_voice", "slice_max"],
            Self::RelayAppend => &["audio", "frames", "force_listen", "slice_max", "input_id", "response_id"],
        }
    }
}

/// Message from an upstream, spelled in snake case after `event =`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReceiveName {
    /// Position in the queue: `position`, `length`, `wait_s`.
    Queued,
    /// A worker is assigned.
    Granted,
    /// The session is initialised: `session_id`.
    Ready,
    /// The model listens.
    Listen,
    /// The server has taken the user's turn, and owes an answer. For `openai_realtime`.
    AnswerDue,
    /// A piece of text: `text`.
    Text,
    /// A piece of audio: `audio`.
    Audio,
    /// The answer is complete: `text`, `audio`.
    Done,
    /// All output of a unit in which the model speaks: `text`, `audio`, and `end_of_turn` if it listens from
    /// now on.
    Output,
    /// The model calls a tool: `call_id`, `name`, `arguments`.
    Call,
    /// The session is over: `reason`, `detail`.
    Closed,
    /// An error: `code`, `detail`.
    Failed,
    /// Known, and without a meaning for the bridge.
    Ignored,
}
