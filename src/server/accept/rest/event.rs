//! Messages from a session of the client protocol `rest` (`mappings/client/rest.toml`).

use bytes::Bytes;
use serde::Deserialize;
use tokio_tungstenite::tungstenite::Message;

use crate::{error::ErrorKind, media::transcript::Segment};

/// One event of the session.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Event {
    /// Speech has begun.
    SpeechStart { segment_id: u64, start_ms: u64 },
    /// Speech has ended, and was transcribed or not.
    SpeechEnd { segment_id: u64, end_ms: u64 },
    /// The words of a segment so far.
    Partial { text: String },
    /// A segment of speech was transcribed. The events come in the order of speech.
    Transcript(Segment),
    /// Speech to play: int16 mono at 24 kHz, little endian.
    #[serde(skip)]
    Audio(Bytes),
    /// A text was spoken, or cut short.
    SpeakingEnd { cancelled: bool },
    /// The session waits for a worker of the model.
    Queued { position: Option<u64> },
    /// The queue for a worker does not move. The request still waits.
    #[serde(skip)]
    QueueStuck { message: String },
    /// Something failed for good, in this segment.
    Error {
        code: String,
        message: String,
        #[serde(default)]
        segment_id: Option<u64>,
    },
    /// The session has ended.
    Closed { reason: String },
    #[serde(other)]
    Other,
}

impl Event {
    /// Reads a message; the problem if the session ended with it.
    pub(crate) fn read(message: Message) -> Result<Self, String> {
        match message {
            Message::Text(text) => match serde_json::from_str(&text).map_err(|error| error.to_string())? {
                Self::Error { code, message, .. } if code == ErrorKind::QueueStuck.name() => {
                    Ok(Self::QueueStuck { message })
                }
                event => Ok(event),
            },
            Message::Binary(bytes) => Ok(Self::Audio(bytes)),
            Message::Close(frame) => {
                let reason = frame.map(|frame| frame.reason.to_string()).unwrap_or_default();
                Err(if reason.is_empty() { "it was closed".to_owned() } else { reason })
            }
            _ => Ok(Self::Other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_notice_and_queue_timeout_are_different_events() {
        let read = |kind: ErrorKind| {
            let text = format!("{{\"type\":\"error\",\"code\":\"{}\",\"message\":\"m\"}}", kind.name());
            Event::read(Message::text(text)).unwrap()
        };
        assert!(matches!(read(ErrorKind::QueueStuck), Event::QueueStuck { .. }));
        for kind in ErrorKind::SESSION_KINDS.into_iter().filter(|kind| *kind != ErrorKind::QueueStuck) {
            assert!(matches!(read(kind), Event::Error { .. }), "{kind:?}");
        }
    }
}
