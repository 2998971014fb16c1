//! What a session gives to its recording and to webhooks, if there are any: audio of both sides, and events.

use bytes::Bytes;

use crate::{
    audio::{echo::Playback, encoding::Encoding},
    vocabulary::ClientEvent,
};

/// What a session records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RecordOptions {
    /// The audio of both sides.
    pub audio: bool,
    /// The events that [`is_recorded`] names.
    pub events: bool,
}

/// A piece of a session's recording. Traces leave it out.
#[derive(Debug, Clone, PartialEq)]
pub enum RecordedItem {
    /// Audio from the client arrived now.
    UserAudio(UserAudio),
    /// Audio was sent to the client, or the client drops what it has not played.
    Playback(Playback),
    /// An event for the client, whether its protocol has a message for it or not.
    Event(ClientEvent),
}

/// Audio from the client, as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAudio {
    /// Encoding of the samples.
    pub encoding: Encoding,
    /// Sample groups per second.
    pub rate_hz: u32,
    /// Interleaved channels.
    pub channels: u16,
    /// One message of the client.
    pub bytes: Bytes,
}

impl RecordedItem {
    /// Memory that the item takes, bytes.
    pub fn memory_bytes(&self) -> usize {
        let content = match self {
            Self::UserAudio(audio) => audio.bytes.len(),
            Self::Playback(Playback::Sent { samples, .. }) => samples.len(),
            Self::Playback(Playback::Cut(_)) => 0,
            Self::Event(ClientEvent::TranscriptFinal { text, words, .. }) => {
                text.len() + size_of_val(words.as_slice())
            }
            Self::Event(ClientEvent::SpeakingStarted { text, .. }) => text.len(),
            Self::Event(ClientEvent::ToolCalled { call, .. }) => call.arguments.len(),
            Self::Event(_) => 0,
        };
        content + size_of::<Self>()
    }
}

/// True for the events that a recording has.
pub(crate) const fn is_recorded(event: &ClientEvent) -> bool {
    matches!(
        event,
        ClientEvent::SpeechStarted { .. }
            | ClientEvent::SpeechEnded { .. }
            | ClientEvent::TranscriptFinal { .. }
            | ClientEvent::AnswerStarted { .. }
            | ClientEvent::AnswerEnded { .. }
            | ClientEvent::SpeakingStarted { .. }
            | ClientEvent::SpeakingEnded { .. }
            | ClientEvent::ToolCalled { .. }
            | ClientEvent::Error(_)
    )
}
