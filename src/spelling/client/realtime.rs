//! `[realtime]` of a client file: the event names of a protocol of OpenAI's kind. Its behaviour is
//! [`crate::client`]'s `realtime`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use crate::{
    named_enum::named_enum,
    spelling::check::{Document, FileError},
};

named_enum! {
    /// An event of the server. Mapping files name it in snake case under `[realtime.events]`.
    pub enum RealtimeEvent {
        /// The session is open.
        SessionCreated = "session_created",
        /// The session is over. Optional: OpenAI's has no such event.
        SessionClosed = "session_closed",
        /// Settings were changed.
        SessionUpdated = "session_updated",
        /// The user began to speak.
        SpeechStarted = "speech_started",
        /// The user stopped speaking.
        SpeechStopped = "speech_stopped",
        /// The audio of an utterance became an item.
        BufferCommitted = "buffer_committed",
        /// The user was silent for the time that the client set. Optional.
        TimeoutTriggered = "timeout_triggered",
        /// The uncommitted audio was discarded.
        BufferCleared = "buffer_cleared",
        /// There is a new item.
        ItemAdded = "item_added",
        /// An item is complete.
        ItemDone = "item_done",
        /// Answer to a request for an item.
        ItemRetrieved = "item_retrieved",
        /// An item was cut to what was played.
        ItemTruncated = "item_truncated",
        /// An item was removed.
        ItemDeleted = "item_deleted",
        /// Further words of the user.
        TranscriptionDelta = "transcription_delta",
        /// All words of an utterance.
        TranscriptionCompleted = "transcription_completed",
        /// An utterance could not be transcribed.
        TranscriptionFailed = "transcription_failed",
        /// An answer begins.
        ResponseCreated = "response_created",
        /// An answer is over.
        ResponseDone = "response_done",
        /// An answer has an item.
        OutputItemAdded = "output_item_added",
        /// The item of an answer is complete.
        OutputItemDone = "output_item_done",
        /// The item of an answer has a part.
        ContentPartAdded = "content_part_added",
        /// The part is complete.
        ContentPartDone = "content_part_done",
        /// Further audio.
        AudioDelta = "audio_delta",
        /// The audio is complete.
        AudioDone = "audio_done",
        /// Further words of a spoken answer.
        AudioTranscriptDelta = "audio_transcript_delta",
        /// All words of a spoken answer.
        AudioTranscriptDone = "audio_transcript_done",
        /// Further words of a written answer.
        TextDelta = "text_delta",
        /// All words of a written answer.
        TextDone = "text_done",
        /// Arguments of a call. Optional, as the next: without them, clients cannot offer tools.
        CallArgumentsDelta = "call_arguments_delta",
        /// All arguments of a call.
        CallArgumentsDone = "call_arguments_done",
        /// The tools of a server that the client names are being listed. Optional, as the next seven: without them, clients cannot
        /// name servers.
        ToolListStarted = "tool_list_started",
        /// The tools of such a server are listed.
        ToolListCompleted = "tool_list_completed",
        /// The tools of such a server could not be listed.
        ToolListFailed = "tool_list_failed",
        /// Arguments of a call on such a server.
        ServerCallArgumentsDelta = "server_call_arguments_delta",
        /// All arguments of a call on such a server.
        ServerCallArgumentsDone = "server_call_arguments_done",
        /// A call on such a server has begun.
        ServerCallStarted = "server_call_started",
        /// A call on such a server has a result.
        ServerCallCompleted = "server_call_completed",
        /// A call on such a server has failed.
        ServerCallFailed = "server_call_failed",
        /// Limits of the account: none are stated.
        RateLimits = "rate_limits",
        /// An error.
        Error = "error",
        /// Numbered audio was taken. This event and the next four are optional, and make a protocol one of numbered input.
        InputAccepted = "input_accepted",
        /// A picture was taken.
        PictureAccepted = "picture_accepted",
        /// The client's input has ended.
        InputEnded = "input_ended",
        /// The model has answered all input.
        InputDrained = "input_drained",
        /// The model has answered a second of the input.
        UnitDone = "unit_done",
        /// In a call, the audio of an answer begins to play. Optional, as the next two: OpenAI has them by WebRTC only.
        CallAudioStarted = "call_audio_started",
        /// In a call, the audio of an answer has been played.
        CallAudioStopped = "call_audio_stopped",
        /// In a call, the rest of an answer's audio was discarded.
        CallAudioCleared = "call_audio_cleared",
    }
}

impl RealtimeEvent {
    /// True for an event that files may leave out.
    const fn is_optional(self) -> bool {
        matches!(
            self,
            Self::SessionClosed
                | Self::TimeoutTriggered
                | Self::CallArgumentsDelta
                | Self::CallArgumentsDone
                | Self::ToolListStarted
                | Self::ToolListCompleted
                | Self::ToolListFailed
                | Self::ServerCallArgumentsDelta
                | Self::ServerCallArgumentsDone
                | Self::ServerCallStarted
                | Self::ServerCallCompleted
                | Self::ServerCallFailed
                | Self::InputAccepted
                | Self::PictureAccepted
                | Self::InputEnded
                | Self::InputDrained
                | Self::UnitDone
                | Self::CallAudioStarted
                | Self::CallAudioStopped
                | Self::CallAudioCleared
        )
    }

    /// True for output of the model.
    pub(crate) const fn is_output(self) -> bool {
        matches!(
            self,
            Self::ResponseCreated
                | Self::ResponseDone
                | Self::AudioDone
                | Self::AudioTranscriptDelta
                | Self::AudioTranscriptDone
                | Self::TextDelta
                | Self::TextDone
                | Self::CallArgumentsDelta
                | Self::CallArgumentsDone
                | Self::ServerCallArgumentsDelta
                | Self::ServerCallArgumentsDone
                | Self::UnitDone
        )
    }

    /// True for the answer to a message of the client.
    pub(crate) const fn is_answer(self) -> bool {
        matches!(
            self,
            Self::SessionUpdated
                | Self::SessionClosed
                | Self::BufferCleared
                | Self::InputAccepted
                | Self::PictureAccepted
                | Self::InputEnded
        )
    }
}

/// `[realtime]` as written in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RealtimeFile {
    events: BTreeMap<RealtimeEvent, String>,
    #[serde(default)]
    beta: BTreeMap<RealtimeEvent, String>,
    #[serde(default)]
    without_effect: BTreeMap<String, String>,
    capabilities: Option<String>,
    #[serde(default)]
    own_rates: bool,
    #[serde(default)]
    semantic_detection: Vec<String>,
}

/// Names of the server's events, in the current shape of the protocol and in its beta shape, and the settings without effect.
#[derive(Debug)]
pub struct RealtimeNames {
    current: Vec<String>,
    beta: Vec<String>,
    /// Settings of the client that have no effect, with the reason.
    pub without_effect: BTreeMap<String, String>,
    /// Capabilities that the session grants, and that `PATH/capabilities` answers.
    pub capabilities: Option<Value>,
    /// Linear audio has the rates of the file where the client gives none.
    pub has_own_rates: bool,
    /// Types of `turn_detection` that mean the same as `semantic_vad`.
    pub semantic_detection: Vec<String>,
}

impl RealtimeNames {
    /// True if the client numbers its input, and learns which seconds of it were answered.
    #[must_use]
    pub fn numbers_input(&self) -> bool {
        !self.event(RealtimeEvent::UnitDone, false).is_empty()
    }

    /// True if the protocol had another shape once, which some clients still use.
    #[must_use]
    pub fn has_beta(&self) -> bool {
        self.beta != self.current
    }

    /// True if the protocol tells the client of a call what is played.
    #[must_use]
    pub fn serves_calls(&self) -> bool {
        !self.event(RealtimeEvent::CallAudioStarted, false).is_empty()
    }

    /// True if the client learns of calls, and so may offer tools.
    #[must_use]
    pub fn reports_calls(&self) -> bool {
        !self.event(RealtimeEvent::CallArgumentsDone, false).is_empty()
    }

    /// True if the client may name tool servers, because it learns of their tools and calls.
    #[must_use]
    pub fn serves_tool_servers(&self) -> bool {
        !self.event(RealtimeEvent::ToolListStarted, false).is_empty()
    }

    /// Name of an event; empty for an event that is not sent.
    #[must_use]
    pub fn event(&self, event: RealtimeEvent, is_beta: bool) -> &str {
        let names = if is_beta { &self.beta } else { &self.current };
        names.get(event as usize).map_or("", String::as_str)
    }
}

impl RealtimeFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<RealtimeNames, FileError> {
        let is_missing = |event: &&RealtimeEvent| !event.is_optional() && !self.events.contains_key(event);
        let missing = RealtimeEvent::ALL.iter().find(is_missing);
        if let Some(missing) = missing {
            let message = format!("[realtime.events] has no `{}`", missing.name());
            return Err(document.problem_at_key(&["realtime", "events"], message));
        }
        let names = |beta: Option<&BTreeMap<RealtimeEvent, String>>| {
            let name = |event| beta.and_then(|beta| beta.get(event)).or_else(|| self.events.get(event));
            RealtimeEvent::ALL.iter().map(|event| name(event).cloned().unwrap_or_default()).collect()
        };
        let plain =
            |name: &String| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
        if let Some(name) = self.events.values().chain(self.beta.values()).find(|name| !plain(name)) {
            let message = format!("event name {name:?}: letters, digits, `.` and `_` only");
            return Err(document.problem_at_key(&["realtime"], message));
        }
        let (current, beta) = (names(None), names(Some(&self.beta)));
        let capabilities = self.capabilities.as_deref().map(serde_json::from_str).transpose();
        let capabilities = capabilities.map_err(|error| {
            document.problem_at_key(&["realtime", "capabilities"], format!("no JSON: {error}"))
        })?;
        Ok(RealtimeNames {
            current,
            beta,
            without_effect: self.without_effect,
            capabilities,
            has_own_rates: self.own_rates,
            semantic_detection: self.semantic_detection,
        })
    }
}
