//! Events of a Macaw server, parsed leniently, because server versions add events and omit fields.
//!
//! Source: the protocol page and the versions of the real server (mappings/notes/macaw.md#events). A missing field is
//! `None` or empty. An unknown event keeps its type.

use serde_json::Value;

use super::output::printable;

/// Event of a Macaw server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MacawEvent {
    /// `session.created`.
    SessionCreated {
        /// Session id.
        session_id: String,
    },
    /// `vad.speech_start`.
    SpeechStarted {
        /// Time in the session in ms, if the server sends it.
        at_ms: Option<u64>,
    },
    /// `vad.speech_end`.
    SpeechEnded {
        /// Time in the session in ms, if the server sends it.
        at_ms: Option<u64>,
    },
    /// `transcript.partial`.
    Partial {
        /// Text of the utterance so far.
        text: String,
    },
    /// `transcript.final`.
    Final {
        /// Text of the utterance.
        text: String,
        /// Number of the utterance; servers that follow the protocol page send none.
        segment_id: Option<u64>,
        /// True for the words of the model in a conversation.
        assistant: bool,
        /// True if the server says whose words they are. Servers that only transcribe do not, except voxbridge.
        is_labelled: bool,
    },
    /// `tts.speaking_start`.
    SpeakingStarted {
        /// Request id, if the server sends it.
        request_id: Option<String>,
    },
    /// `tts.speaking_end`.
    SpeakingEnded {
        /// Request id, if the server sends it.
        request_id: Option<String>,
        /// True if playback was cut short.
        cancelled: bool,
    },
    /// `session.frames_dropped`.
    FramesDropped {
        /// Duration of the lost audio in ms.
        dropped_ms: u64,
    },
    /// `session.hold`: the session waits for a worker.
    OnHold {
        /// Position in the queue, from 1, if the server knows it.
        position: Option<u64>,
    },
    /// `error`.
    Error {
        /// Error code; empty if the server sends none.
        code: String,
        /// Error message.
        message: String,
        /// True if the session continues.
        recoverable: bool,
    },
    /// `session.closed`.
    SessionClosed {
        /// Reason given by the server.
        reason: String,
    },
    /// Unknown event, by its type; empty for a message that is not an event.
    Unknown(String),
}

impl MacawEvent {
    /// A notice about the event for the user, who can do nothing but wait; `None` for other events.
    pub(super) fn notice(&self) -> Option<String> {
        Some(match self {
            Self::OnHold { position: Some(position) } => {
                format!("waiting for a free worker, position {position}")
            }
            Self::OnHold { position: None } => "waiting for a free worker".to_owned(),
            Self::Error { code, message, recoverable: true } => {
                printable(&format!("the server reports {code}: {message}"))
            }
            Self::FramesDropped { dropped_ms } => format!("the server dropped {dropped_ms} ms of audio"),
            _ => return None,
        })
    }

    /// True for an event that shows that the server takes the question.
    pub(super) const fn shows_progress(&self) -> bool {
        matches!(
            self,
            Self::SpeechStarted { .. }
                | Self::Partial { .. }
                | Self::Final { .. }
                | Self::SpeakingStarted { .. }
                | Self::OnHold { .. }
        )
    }

    /// True for a transcript that is not empty.
    pub(super) fn has_words(&self) -> bool {
        matches!(self, Self::Final { text, .. } if !text.trim().is_empty())
    }

    /// True for a transcript of the user, which a server for speech to text sends in place of an answer.
    pub(super) const fn is_user_transcript(&self) -> bool {
        matches!(self, Self::Final { assistant: false, .. })
    }

    /// True for the first words or the first audio of an answer.
    pub(super) const fn begins_answer(&self) -> bool {
        matches!(self, Self::Final { assistant: true, .. } | Self::SpeakingStarted { .. })
    }

    /// Parses a text message. Never fails: a malformed message is [`Self::Unknown`].
    pub fn parse(message: &str) -> Self {
        let value: Value = serde_json::from_str(message).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let text_or_empty = |key: &str| text(key).unwrap_or_default();
        let number = |key: &str| value[key].as_u64();
        match value["type"].as_str().unwrap_or_default() {
            "session.created" => Self::SessionCreated { session_id: text_or_empty("session_id") },
            "vad.speech_start" => Self::SpeechStarted { at_ms: number("timestamp_ms") },
            "vad.speech_end" => Self::SpeechEnded { at_ms: number("timestamp_ms") },
            "transcript.partial" => Self::Partial { text: text_or_empty("text") },
            "transcript.final" => Self::Final {
                text: text_or_empty("text"),
                segment_id: number("segment_id"),
                assistant: value["speaker"] == "assistant",
                is_labelled: value["speaker"].is_string(),
            },
            "tts.speaking_start" => Self::SpeakingStarted { request_id: text("request_id") },
            "tts.speaking_end" => Self::SpeakingEnded {
                request_id: text("request_id"),
                cancelled: value["cancelled"].as_bool().unwrap_or(false),
            },
            "session.frames_dropped" => Self::FramesDropped { dropped_ms: number("dropped_ms").unwrap_or(0) },
            "session.hold" => Self::OnHold { position: number("queue_position") },
            "error" => Self::Error {
                code: text_or_empty("code"),
                message: text_or_empty("message"),
                // Without the field, assume that the session continues; its end would be noticed anyway.
                recoverable: value["recoverable"].as_bool().unwrap_or(true),
            },
            "session.closed" => Self::SessionClosed { reason: text_or_empty("reason") },
            other => Self::Unknown(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::MacawEvent;

    #[test]
    fn transcript_finals_of_both_server_generations_are_parsed() {
        let new = r#"{"type":"transcript.final","text":"hi","segment_id":3,"language":null,"words":null}"#;
        assert_eq!(
            MacawEvent::parse(new),
            MacawEvent::Final {
                text: "hi".into(),
                segment_id: Some(3),
                assistant: false,
                is_labelled: false
            }
        );
        let documented = r#"{"type":"transcript.final","text":"hi","language":"en","duration":3.42}"#;
        assert_eq!(
            MacawEvent::parse(documented),
            MacawEvent::Final { text: "hi".into(), segment_id: None, assistant: false, is_labelled: false }
        );
        let without_fields = r#"{"type":"tts.speaking_end"}"#;
        assert_eq!(
            MacawEvent::parse(without_fields),
            MacawEvent::SpeakingEnded { request_id: None, cancelled: false }
        );
    }

    #[test]
    fn hold_is_a_notice_with_the_position() {
        for (message, notice) in [
            (
                r#"{"type":"session.hold","timestamp_ms":12,"queue_position":3}"#,
                "waiting for a free worker, position 3",
            ),
            (r#"{"type":"session.hold","queue_position":null}"#, "waiting for a free worker"),
        ] {
            let event = MacawEvent::parse(message);
            assert_eq!(event.notice().as_deref(), Some(notice));
            assert!(event.shows_progress());
        }
        assert_eq!(MacawEvent::SpeechStarted { at_ms: None }.notice(), None);
    }

    #[test]
    fn unknown_events_are_kept_and_malformed_messages_accepted() {
        assert_eq!(
            MacawEvent::parse(r#"{"type":"session.rollover"}"#),
            MacawEvent::Unknown("session.rollover".into())
        );
        for malformed in ["", "[]", "3", "{", r#"{"type":7}"#, "null"] {
            assert_eq!(MacawEvent::parse(malformed), MacawEvent::Unknown(String::new()), "{malformed}");
        }
        let mistyped = r#"{"type":"error","code":404,"message":null}"#;
        assert_eq!(
            MacawEvent::parse(mistyped),
            MacawEvent::Error { code: String::new(), message: String::new(), recoverable: true }
        );
    }
}
