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

use super::{RecordedSides, news::RecordingNews, store::Store};
use crate::{
    recording::{
        RATE_HZ,
        document::{
            DocumentStart, RecordedAudio, RecordedEvent, RecordingEnd, RecordingHead, TimedEvent, VERSION,
        },
    },
    session::RecordedItem,
    vocabulary::{ClientEvent, Speaker},
};

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
        let channels = channels.iter().map(|side| (*side).into()).collect();
        let audio = RecordedAudio { audio: audio.into(), rate_hz: RATE_HZ, channels };
        let start = DocumentStart { recording: VERSION, session: head, opened, audio };
        let mut body = serde_json::to_string(&start)?;
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
        self.pending.push_str(&serde_json::to_string(&TimedEvent { at_ms, event }).unwrap_or_default());
    }

    fn event_of<'a>(&mut self, at_ms: u64, news: &'a RecordingNews) -> Option<RecordedEvent<'a>> {
        Some(match news {
            RecordingNews::Item(item) => match &**item {
                RecordedItem::Event(event) => return self.client_event(at_ms, event),
                RecordedItem::UserAudio(_) | RecordedItem::Playback(_) => return None,
            },
            RecordingNews::ToolCalled { call, server, tool, arguments } => RecordedEvent::ServerToolCalled {
                call: call.0,
                server: server.into(),
                tool: tool.into(),
                arguments: arguments.into(),
            },
            RecordingNews::ToolAnswered { call, output } => {
                RecordedEvent::ServerToolAnswered { call: call.0, output: output.into() }
            }
            RecordingNews::Interrupted => RecordedEvent::Interrupted,
            RecordingNews::FirstAudio(after) => RecordedEvent::FirstAudio { after_ms: millis(*after) },
            RecordingNews::FirstTranscript(after) => {
                RecordedEvent::FirstTranscript { after_ms: millis(*after) }
            }
        })
    }

    fn client_event<'a>(&mut self, recorded_ms: u64, event: &'a ClientEvent) -> Option<RecordedEvent<'a>> {
        Some(match event {
            ClientEvent::SpeechStarted { at_ms, from_ms, segment_id } => {
                self.ahead_ms = recorded_ms.saturating_sub(*at_ms);
                RecordedEvent::SpeechStarted { utterance: *segment_id, from_ms: from_ms + self.ahead_ms }
            }
            ClientEvent::SpeechEnded { segment_id, .. } => {
                RecordedEvent::SpeechEnded { utterance: *segment_id }
            }
            ClientEvent::TranscriptFinal { speaker: Speaker::Assistant, text, segment_id, .. } => {
                RecordedEvent::ModelTranscript { answer: *segment_id, text: text.into() }
            }
            ClientEvent::TranscriptFinal { text, segment_id, speech_ms, language, .. } => {
                RecordedEvent::UserTranscript {
                    utterance: *segment_id,
                    from_ms: speech_ms.0 + self.ahead_ms,
                    to_ms: speech_ms.1 + self.ahead_ms,
                    text: text.into(),
                    language: language.as_deref().map(Into::into),
                }
            }
            ClientEvent::AnswerStarted { segment_id, .. } => {
                RecordedEvent::AnswerStarted { answer: *segment_id }
            }
            ClientEvent::AnswerEnded { segment_id, cancelled, audio_ms, usage, .. } => {
                RecordedEvent::AnswerEnded {
                    answer: *segment_id,
                    interrupted: *cancelled,
                    audio_ms: *audio_ms,
                    input_tokens: usage.input(),
                    output_tokens: usage.output(),
                }
            }
            ClientEvent::SpeakingStarted { text, .. } => RecordedEvent::SpeakingStarted { text: text.into() },
            ClientEvent::SpeakingEnded { cancelled, audio_ms, .. } => {
                RecordedEvent::SpeakingEnded { interrupted: *cancelled, heard_ms: *audio_ms }
            }
            ClientEvent::ToolCalled { segment_id, call, .. } => RecordedEvent::ToolCalled {
                answer: *segment_id,
                call: call.call_id.as_str().into(),
                tool: call.name.as_str().into(),
                arguments: call.arguments.as_str().into(),
            },
            ClientEvent::Error(error) => RecordedEvent::Error { error: error.kind.name().into() },
            _ => return None,
        })
    }

    /// Writes the new events and this end. After an error, the file is as it was before.
    ///
    /// # Errors
    /// The system's, or there is no room.
    pub(super) fn write(&mut self, end: &RecordingEnd, store: &Store) -> io::Result<()> {
        let events = std::mem::take(&mut self.pending);
        let text = self.with_end(&events, end)?;
        let total = self.body_bytes + text.len() as u64;
        store.reserve(total.saturating_sub(self.total_bytes))?;
        let written = self.file.write_all_at(text.as_bytes(), self.body_bytes);
        if written.is_err() && self.total_bytes > 0 {
            // A full disk has taken a part of it. What was written before has its place on the disk.
            let end = self.with_end("", end)?;
            self.file.set_len(self.total_bytes)?;
            self.file.write_all_at(end.as_bytes(), self.body_bytes)?;
        }
        written?;
        self.body_bytes += events.len() as u64;
        self.total_bytes = self.total_bytes.max(total);
        Ok(())
    }

    /// These events and this end. A shorter end would leave some of the old one behind.
    fn with_end(&self, events: &str, end: &RecordingEnd) -> io::Result<String> {
        let end = serde_json::to_string(end)?;
        let mut text = format!("{events}\n],\n{}\n", end.trim_start_matches('{'));
        let length = self.total_bytes.saturating_sub(self.body_bytes) as usize;
        text.extend(std::iter::repeat_n(' ', length.saturating_sub(text.len())));
        Ok(text)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
