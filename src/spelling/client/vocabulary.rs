//! Vocabulary of client mapping files: verbs of commands, reasons of a close, and names in events.

use serde::Deserialize;

use crate::named_enum::named_enum;

/// Meaning of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Carries audio in a field, as base64.
    Audio,
    /// Confirms that the client has played a text or turn.
    Played,
    /// Holds back the audio to the client, because the client's buffer is full.
    PauseAudio,
    /// Ends [`Verb::PauseAudio`].
    ResumeAudio,
    /// Changes settings.
    Configure,
    /// Changes settings without an answer.
    Adjust,
    /// Adds the user's text to the conversation, and has the model answer.
    Ask,
    /// Adds the user's text to the conversation.
    Tell,
    /// Asks for an answer to all that was said so far.
    Answer,
    /// Returns results of tools, which the model answers once it has all of them.
    ToolResult,
    /// Speaks a text.
    Speak,
    /// Stops speaking.
    CancelSpeech,
    /// Collects text to speak.
    AppendText,
    /// Speaks the collected text after the current one, and reports its end.
    Flush,
    /// Speaks the collected text after the current one.
    SpeakAppended,
    /// Stops speaking and discards waiting text.
    Clear,
    /// Ends the utterance now.
    Commit,
    /// Makes the transcript so far final, and sends it.
    Finalize,
    /// Makes the transcript so far final and speaks the collected text; [`super::EventName::Completed`] follows.
    Complete,
    /// Ends the session once everything received is answered.
    Finish,
    /// Restarts the idle timeout.
    KeepAlive,
    /// Sends a picture to the model.
    Frame,
    /// Discards the audio of the current utterance.
    ClearAudio,
    /// Changes a session of OpenAI's kind. This verb and the next seven need `[realtime]`.
    SessionUpdate,
    /// Adds an item to the conversation.
    ItemCreate,
    /// Asks for an item.
    ItemRetrieve,
    /// Cuts an item to what was played.
    ItemTruncate,
    /// Removes an item.
    ItemDelete,
    /// Asks for an answer.
    ResponseCreate,
    /// Stops the answer.
    ResponseCancel,
    /// Ends the numbered input; the session goes on until it is closed.
    EndInput,
    /// Begins a session of OpenAI's Live protocol. This verb and the next five need `live = true`.
    LiveStart,
    /// Replaces the client's audio with silence until it is unmuted.
    LiveMute,
    /// Ends the muting.
    LiveUnmute,
    /// Adds text that the model should know.
    LiveAppend,
    /// Changes the session.
    LiveUpdate,
    /// Asks something of the model to which work is delegated.
    LiveDelegate,
    /// Ends the session.
    Close,
    /// Ends the session; separate because some protocols report another reason for it.
    CancelSession,
}

named_enum! {
    /// How the messages of a connection are framed.
    #[derive(Default)]
    pub enum Framing {
        /// A binary message is audio, and a text message JSON.
        #[default]
        None = "none",
        /// A binary message has a header of 16 bytes with a time.
        Stamped = "stamped",
        /// A binary message has a header of 4 bytes.
        Sized = "sized",
        /// A header before the audio of each utterance says its rate and length.
        Announced = "announced",
        /// Every message is JSON: text or binary from the client, binary to it.
        Json = "json",
        /// Every message is one of Pipecat's frames.
        Protobuf = "protobuf",
        /// As `none`, for a call by WebRTC; an empty binary message discards what was not played.
        WebRtc = "webrtc",
    }
}

named_enum! {
    /// How a text message spells a command.
    #[derive(Default)]
    pub enum CommandSyntax {
        /// A JSON object.
        #[default]
        Json = "json",
        /// A line of words, `NAME key:value key:value`; a message that begins with `{` is a JSON object.
        Words = "words",
    }
}

named_enum! {
    /// Which messages of a client are answered by one transcript. Between them, no transcript is sent.
    #[derive(Default)]
    pub enum LockStep {
        /// None: transcripts are sent as they come.
        #[default]
        Off = "off",
        /// Each binary frame, and the commands that make transcripts final.
        EveryFrame = "every_frame",
        /// The commands that make transcripts final.
        Finals = "finals",
    }
}

named_enum! {
    /// A value that the answer of a setup page can use.
    pub enum SetupSlot {
        /// URL of the WebSocket.
        Url = "url",
        /// The device's or the sender's key; empty without one.
        Key = "key",
        /// The version that the device says it has.
        Version = "version",
        /// A random id.
        Id = "id",
        /// Wall clock, milliseconds since 1970.
        UnixMs = "unix_ms",
        /// Wall clock, RFC 3339 in UTC.
        Time = "time",
        /// The mistake in the request; in a refusal only.
        Message = "message",
    }
}

impl Verb {
    /// True for a verb whose message the codec of `[realtime]` reads.
    #[must_use]
    pub const fn is_realtime(self) -> bool {
        matches!(
            self,
            Self::SessionUpdate
                | Self::ItemCreate
                | Self::ItemRetrieve
                | Self::ItemTruncate
                | Self::ItemDelete
                | Self::ResponseCreate
                | Self::ResponseCancel
                | Self::EndInput
        )
    }

    /// True for a verb whose message the codec of OpenAI's Live protocol reads.
    #[must_use]
    pub const fn is_live(self) -> bool {
        matches!(
            self,
            Self::LiveStart
                | Self::LiveMute
                | Self::LiveUnmute
                | Self::LiveAppend
                | Self::LiveUpdate
                | Self::LiveDelegate
        )
    }
}
