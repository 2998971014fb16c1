//! The JSON beside the audio of a recording: its session, and what was said and done in it, by time. The same types write and read it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Version of the format.
pub const VERSION: u32 = 1;

/// The session that is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The audio of a recording.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedAudio<'a> {
    /// File name.
    pub audio: Cow<'a, str>,
    /// Sample rate, Hz.
    pub rate_hz: u32,
    /// Sides of the session by channel: `user`, `model` or both.
    pub channels: Vec<Cow<'a, str>>,
}

/// The beginning of the file.
#[derive(Debug, Serialize)]
pub struct DocumentStart<'a> {
    /// [`VERSION`].
    pub recording: u32,
    /// The session.
    #[serde(flatten)]
    pub session: &'a RecordingHead,
    /// Its start, RFC 3339.
    pub opened: String,
    /// The audio.
    #[serde(flatten)]
    pub audio: RecordedAudio<'a>,
}

/// The end of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingEnd {
    /// Length of the audio.
    pub duration_ms: u64,
    /// Audio and events that are missing because the disk was too slow.
    pub lost_pieces: u64,
    /// Audio that is missing because it came too far ahead of its time.
    pub left_out_ms: u64,
    /// The session has ended, and the recording with it.
    pub complete: bool,
}

/// An event, `at_ms` after the beginning of the audio.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimedEvent<'a> {
    /// When it happened.
    pub at_ms: u64,
    /// Kind of the event.
    #[serde(flatten)]
    pub event: RecordedEvent<'a>,
}

/// Something that was said or done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the events of a session")]
pub enum RecordedEvent<'a> {
    SpeechStarted {
        utterance: u32,
        from_ms: u64,
    },
    SpeechEnded {
        utterance: u32,
    },
    UserTranscript {
        utterance: u32,
        from_ms: u64,
        to_ms: u64,
        text: Cow<'a, str>,
        language: Option<Cow<'a, str>>,
    },
    ModelTranscript {
        answer: u32,
        text: Cow<'a, str>,
    },
    AnswerStarted {
        answer: u32,
    },
    AnswerEnded {
        answer: u32,
        interrupted: bool,
        audio_ms: u64,
        input_tokens: u32,
        output_tokens: u32,
    },
    SpeakingStarted {
        text: Cow<'a, str>,
    },
    SpeakingEnded {
        interrupted: bool,
        heard_ms: u64,
    },
    ToolCalled {
        answer: u32,
        call: Cow<'a, str>,
        tool: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    ServerToolCalled {
        call: u32,
        server: Cow<'a, str>,
        tool: Cow<'a, str>,
        arguments: Cow<'a, str>,
    },
    ServerToolAnswered {
        call: u32,
        output: Cow<'a, str>,
    },
    Interrupted,
    /// The client got the first audio of a text or of an answer, this long after it was asked for.
    FirstAudio {
        after_ms: u64,
    },
    /// The client got the first words of an utterance, this long after its end.
    FirstTranscript {
        after_ms: u64,
    },
    Error {
        error: Cow<'a, str>,
    },
    /// An event of a later version.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A whole file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct RecordingDocument {
    recording: u32,
    /// The session.
    #[serde(flatten)]
    pub session: RecordingHead,
    /// Its start, RFC 3339.
    pub opened: String,
    /// The audio.
    #[serde(flatten)]
    pub audio: RecordedAudio<'static>,
    /// What was said and done, in order.
    pub events: Vec<TimedEvent<'static>>,
    /// The end.
    #[serde(flatten)]
    pub end: RecordingEnd,
}

impl RecordingDocument {
    /// Reads a file.
    ///
    /// # Errors
    /// A message: it is no JSON of a recording, or of a later version.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        /// The key by which such a file is known.
        #[derive(Deserialize)]
        struct Mark {
            recording: u32,
        }
        let Mark { recording } = serde_json::from_slice(text)
            .map_err(|error| format!("this is not the JSON of a recording: {error}"))?;
        if recording != VERSION {
            return Err(format!("a recording of version {recording}; this program reads version {VERSION}"));
        }
        serde_json::from_slice(text).map_err(|error| format!("the recording's JSON is damaged: {error}"))
    }

    /// The channel of the user's audio, and that of what was heard; `None` for a side that was not recorded.
    #[must_use]
    pub fn channel_of(&self, side: &str) -> Option<usize> {
        self.audio.channels.iter().position(|channel| channel == side)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"{"recording":1,"session":"s","client":"macaw","profile":"p","key":null,"opened_unix_ms":1,
        "opened":"2026-11-20T04:27:44.001Z","audio":"a.wav","rate_hz":24000,"channels":["user","model"],"events":[
        {"at_ms":5,"event":"user_transcript","utterance":1,"from_ms":1,"to_ms":4,"text":"Hi","language":null},
        {"at_ms":6,"event":"interrupted"},
        {"at_ms":7,"event":"of_next_year","text":"x"}
        ],"duration_ms":9,"lost_pieces":0,"left_out_ms":0,"complete":false}   "#;

    #[test]
    fn file_is_read_with_events_of_later_versions() {
        let read = RecordingDocument::parse(FILE.as_bytes()).unwrap();
        assert_eq!((read.session.profile.as_str(), read.end.complete, read.events.len()), ("p", false, 3));
        assert_eq!((read.channel_of("user"), read.channel_of("model")), (Some(0), Some(1)));
        assert!(matches!(&read.events[0].event, RecordedEvent::UserTranscript { text, .. } if text == "Hi"));
        assert_eq!(read.events[2].event, RecordedEvent::Unknown);
    }

    #[test]
    fn other_files_are_named_as_such() {
        let later = FILE.replace("\"recording\":1", "\"recording\":2");
        let damaged = FILE.replace("\"at_ms\":5", "\"at_ms\":\"5\"");
        for (text, words) in [
            ("{}", "not the JSON of a recording"),
            ("RIFF", "not the JSON of a recording"),
            (&later, "version 2"),
            (&damaged, "is damaged"),
        ] {
            let problem = RecordingDocument::parse(text.as_bytes()).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }
}
