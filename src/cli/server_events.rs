//! What a Macaw server says, read leniently: servers of other versions add events and leave fields out.
//!
//! The fields are those of the protocol page and of the real server's versions (Macaw field notes §1.3); a missing
//! one is `None` or empty, and an event nobody knows is kept by its name.

use serde_json::Value;

/// One event of a Macaw server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClientSeen {
    /// `session.created`.
    SessionCreated {
        /// The session's id.
        session_id: String,
    },
    /// `vad.speech_start`.
    SpeechStarted,
    /// `vad.speech_end`.
    SpeechEnded,
    /// `transcript.partial`.
    Partial {
        /// All words so far.
        text: String,
    },
    /// `transcript.final`.
    Final {
        /// The words.
        text: String,
        /// The utterance; the protocol page's servers do not number them.
        segment_id: Option<u64>,
        /// They are the model's own, said in a conversation.
        assistant: bool,
    },
    /// `tts.speaking_start`.
    SpeakingStarted {
        /// The request, where the server says so.
        request_id: Option<String>,
    },
    /// `tts.speaking_end`.
    SpeakingEnded {
        /// The request, where the server says so.
        request_id: Option<String>,
        /// It was cut short.
        cancelled: bool,
    },
    /// `session.rate_limit`.
    RateLimited {
        /// What the server asks to wait, ms.
        delay_ms: u64,
    },
    /// `session.frames_dropped`.
    FramesDropped {
        /// How much is lost, ms.
        dropped_ms: u64,
    },
    /// `error`.
    Error {
        /// The server's code; empty on servers that have none.
        code: String,
        /// The server's words.
        message: String,
        /// The session goes on.
        recoverable: bool,
    },
    /// `session.closed`.
    SessionClosed {
        /// Why.
        reason: String,
    },
    /// Another event, by its type; empty for a message that is no event at all.
    Unknown(String),
}

impl ClientSeen {
    /// Reads a text message. Never fails: what cannot be read is [`Self::Unknown`].
    #[must_use]
    pub fn read(message: &str) -> Self {
        let value: Value = serde_json::from_str(message).unwrap_or_default();
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let words = |key: &str| text(key).unwrap_or_default();
        let number = |key: &str| value[key].as_u64();
        match value["type"].as_str().unwrap_or_default() {
            "session.created" => Self::SessionCreated { session_id: words("session_id") },
            "vad.speech_start" => Self::SpeechStarted,
            "vad.speech_end" => Self::SpeechEnded,
            "transcript.partial" => Self::Partial { text: words("text") },
            "transcript.final" => Self::Final {
                text: words("text"),
                segment_id: number("segment_id"),
                assistant: value["speaker"] == "assistant",
            },
            "tts.speaking_start" => Self::SpeakingStarted { request_id: text("request_id") },
            "tts.speaking_end" => Self::SpeakingEnded {
                request_id: text("request_id"),
                cancelled: value["cancelled"].as_bool().unwrap_or(false),
            },
            "session.rate_limit" => Self::RateLimited { delay_ms: number("delay_ms").unwrap_or(0) },
            "session.frames_dropped" => Self::FramesDropped { dropped_ms: number("dropped_ms").unwrap_or(0) },
            "error" => Self::Error {
                code: words("code"),
                message: words("message"),
                // A server that does not say is given the benefit of the doubt: the session's end will be seen.
                recoverable: value["recoverable"].as_bool().unwrap_or(true),
            },
            "session.closed" => Self::SessionClosed { reason: words("reason") },
            other => Self::Unknown(other.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ClientSeen as Seen;

    #[test]
    fn both_generations_of_servers_are_read() {
        let new = r#"{"type":"transcript.final","text":"hi","segment_id":3,"language":null,"words":null}"#;
        assert_eq!(Seen::read(new), Seen::Final { text: "hi".into(), segment_id: Some(3), assistant: false });
        let page = r#"{"type":"transcript.final","text":"hi","language":"en","duration":3.42}"#;
        assert_eq!(Seen::read(page), Seen::Final { text: "hi".into(), segment_id: None, assistant: false });
        let bare = r#"{"type":"tts.speaking_end"}"#;
        assert_eq!(Seen::read(bare), Seen::SpeakingEnded { request_id: None, cancelled: false });
    }

    #[test]
    fn what_is_not_known_is_kept_and_nothing_fails() {
        assert_eq!(Seen::read(r#"{"type":"session.hold"}"#), Seen::Unknown("session.hold".into()));
        for nonsense in ["", "[]", "3", "{", r#"{"type":7}"#, "null"] {
            assert_eq!(Seen::read(nonsense), Seen::Unknown(String::new()), "{nonsense}");
        }
        let odd = r#"{"type":"error","code":404,"message":null}"#;
        assert_eq!(
            Seen::read(odd),
            Seen::Error { code: String::new(), message: String::new(), recoverable: true }
        );
    }
}
