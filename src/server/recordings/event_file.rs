//! The JSON file beside a recording: its session, and what was said and done in it, by time.
//!
//! The file is a JSON object after every write: new events and the new end overwrite the old end. Spaces fill up a shorter one.

use std::{
    fs::File,
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::Path,
    time::Duration,
};

use serde::Serialize;

use super::{RecordedSides, news::RecordingNews, store::Store};
use crate::{
    recording::RATE_HZ,
    session::RecordedItem,
    vocabulary::{ClientEvent, Speaker},
};

/// Version of the format.
const VERSION: u32 = 1;

/// The session that is recorded.
#[derive(Debug, Clone, Serialize)]
pub struct RecordingHead {
    /// Its id.
    pub session: String,
    /// Client protocol.
    pub client: String,
    /// Profile.
    pub profile: String,
    /// Name of the client's API key.
    pub key: Option<String>,
    /// Its start, ms since 1970.
    pub opened_unix_ms: u64,
}

/// The beginning of the file.
#[derive(Serialize)]
struct Head<'a> {
    recording: u32,
    #[serde(flatten)]
    session: &'a RecordingHead,
    opened: String,
    audio: &'a str,
    rate_hz: u32,
    channels: &'static [&'static str],
}

/// The end of the file.
#[derive(Debug, Serialize, Default)]
pub(super) struct RecordingEnd {
    pub(super) duration_ms: u64,
    /// Audio and events that are missing because the disk was too slow.
    pub(super) lost_pieces: u64,
    /// Audio that is missing because it came too far ahead of its time.
    pub(super) left_out_ms: u64,
    /// The session has ended, and the recording with it.
    pub(super) complete: bool,
}

/// An event, `at_ms` after the beginning of the audio.
#[derive(Serialize)]
struct EventLine<'a> {
    at_ms: u64,
    #[serde(flatten)]
    event: Event<'a>,
}

#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    SpeechStarted { utterance: u32, from_ms: u64 },
    SpeechEnded { utterance: u32 },
    UserTranscript { utterance: u32, from_ms: u64, to_ms: u64, text: &'a str, language: Option<&'a str> },
    ModelTranscript { answer: u32, text: &'a str },
    AnswerStarted { answer: u32 },
    AnswerEnded { answer: u32, interrupted: bool, audio_ms: u64, input_tokens: u32, output_tokens: u32 },
    SpeakingStarted { text: &'a str },
    SpeakingEnded { interrupted: bool, heard_ms: u64 },
    ToolCalled { answer: u32, call: &'a str, tool: &'a str, arguments: &'a str },
    ServerToolCalled { call: u32, server: &'a str, tool: &'a str, arguments: &'a str },
    ServerToolAnswered { call: u32, output: &'a str },
    Interrupted,
    FirstAudio { after_ms: u64 },
    FirstTranscript { after_ms: u64 },
    Error { error: &'static str },
}

/// A JSON file that grows.
#[derive(Debug)]
pub(super) struct EventFile {
    file: File,
    /// Length without the end.
    body_bytes: u64,
    total_bytes: u64,
    has_events: bool,
    /// Events that were not written yet.
    pending: String,
    /// The recording is ahead of the received audio by this much, ms.
    ahead_ms: u64,
}

impl EventFile {
    /// Creates a file without events.
    pub(super) fn create(
        path: &Path,
        head: &RecordingHead,
        audio: &str,
        sides: RecordedSides,
    ) -> io::Result<Self> {
        let opened = crate::date::rfc3339(head.opened_unix_ms as f64 / 1000.0);
        let channels: &[&str] = match sides {
            RecordedSides::Both => &["user", "model"],
            RecordedSides::User => &["user"],
            RecordedSides::Model => &["model"],
        };
        let head = Head { recording: VERSION, session: head, opened, audio, rate_hz: RATE_HZ, channels };
        let mut body = serde_json::to_string(&head)?;
        body.pop();
        body.push_str(",\n\"events\":[");
        let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
        Ok(Self { file, body_bytes: 0, total_bytes: 0, has_events: false, pending: body, ahead_ms: 0 })
    }

    /// Notes an event; audio is none.
    pub(super) fn push(&mut self, at: Duration, news: &RecordingNews) {
        let at_ms = millis(at);
        let Some(event) = self.event_of(at_ms, news) else { return };
        self.pending.push_str(if self.has_events { ",\n" } else { "\n" });
        self.has_events = true;
        // Cannot fail: the event has only strings and numbers.
        self.pending.push_str(&serde_json::to_string(&EventLine { at_ms, event }).unwrap_or_default());
    }

    fn event_of<'a>(&mut self, at_ms: u64, news: &'a RecordingNews) -> Option<Event<'a>> {
        Some(match news {
            RecordingNews::Item(item) => match &**item {
                RecordedItem::Event(event) => return self.client_event(at_ms, event),
                RecordedItem::UserAudio(_) | RecordedItem::Playback(_) => return None,
            },
            RecordingNews::ToolCalled { call, server, tool, arguments } => {
                Event::ServerToolCalled { call: call.0, server, tool, arguments }
            }
            RecordingNews::ToolAnswered { call, output } => {
                Event::ServerToolAnswered { call: call.0, output }
            }
            RecordingNews::Interrupted => Event::Interrupted,
            RecordingNews::FirstAudio(after) => Event::FirstAudio { after_ms: millis(*after) },
            RecordingNews::FirstTranscript(after) => Event::FirstTranscript { after_ms: millis(*after) },
        })
    }

    fn client_event<'a>(&mut self, recorded_ms: u64, event: &'a ClientEvent) -> Option<Event<'a>> {
        Some(match event {
            ClientEvent::SpeechStarted { at_ms, from_ms, segment_id } => {
                self.ahead_ms = recorded_ms.saturating_sub(*at_ms);
                Event::SpeechStarted { utterance: *segment_id, from_ms: from_ms + self.ahead_ms }
            }
            ClientEvent::SpeechEnded { segment_id, .. } => Event::SpeechEnded { utterance: *segment_id },
            ClientEvent::TranscriptFinal { speaker: Speaker::Assistant, text, segment_id, .. } => {
                Event::ModelTranscript { answer: *segment_id, text }
            }
            ClientEvent::TranscriptFinal { text, segment_id, speech_ms, language, .. } => {
                Event::UserTranscript {
                    utterance: *segment_id,
                    from_ms: speech_ms.0 + self.ahead_ms,
                    to_ms: speech_ms.1 + self.ahead_ms,
                    text,
                    language: language.as_deref(),
                }
            }
            ClientEvent::AnswerStarted { segment_id, .. } => Event::AnswerStarted { answer: *segment_id },
            ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, .. } => Event::AnswerEnded {
                answer: *segment_id,
                interrupted: *cancelled,
                audio_ms: *audio_ms,
                input_tokens: usage.input(),
                output_tokens: usage.output(),
            },
            ClientEvent::SpeakingStarted { text, .. } => Event::SpeakingStarted { text },
            ClientEvent::SpeakingEnded { cancelled, audio_ms, .. } => {
                Event::SpeakingEnded { interrupted: *cancelled, heard_ms: *audio_ms }
            }
            ClientEvent::ToolCalled { segment_id, call, .. } => Event::ToolCalled {
                answer: *segment_id,
                call: &call.call_id,
                tool: &call.name,
                arguments: &call.arguments,
            },
            ClientEvent::Error(error) => Event::Error { error: error.kind.name() },
            _ => return None,
        })
    }

    /// Writes the new events and this end.
    ///
    /// # Errors
    /// The system's, or there is no room.
    pub(super) fn write(&mut self, end: &RecordingEnd, store: &Store) -> io::Result<()> {
        let mut text = std::mem::take(&mut self.pending);
        let added = text.len() as u64;
        text.push_str("\n],\n");
        text.push_str(serde_json::to_string(end)?.trim_start_matches('{'));
        text.push('\n');
        let total = self.body_bytes + text.len() as u64;
        // A shorter end would leave some of the old one behind.
        let padding = self.total_bytes.saturating_sub(total) as usize;
        text.extend(std::iter::repeat_n(' ', padding));
        store.reserve(total.saturating_sub(self.total_bytes))?;
        self.file.write_all_at(text.as_bytes(), self.body_bytes)?;
        self.body_bytes += added;
        self.total_bytes = self.total_bytes.max(total);
        Ok(())
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
