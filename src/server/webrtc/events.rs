//! Contents of the data channel: events to the client, and the signalling of its protocol.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::json;

use crate::server::CallProtocol;

/// Longest event. Browsers take no longer message.
pub(super) const EVENT_MAX_BYTES: usize = 256 * 1024;

/// The beginning of every event.
#[derive(Deserialize, Default)]
struct Head<'e> {
    #[serde(borrow, rename = "type", default)]
    kind: Cow<'e, str>,
    #[serde(borrow, default)]
    event_id: Cow<'e, str>,
}

/// The event, or an error in its place if it is longer than the channel carries; `None` if the channel carries neither.
pub(super) fn carried(event: &str, max_bytes: usize, protocol: CallProtocol) -> Option<String> {
    if event.len() <= max_bytes {
        return Some(event.to_owned());
    }
    let Head { kind, event_id } = serde_json::from_str(event).unwrap_or_default();
    let bytes = event.len();
    let message = format!(
        "The event '{kind}' is left out: it has {bytes} bytes, and the data channel carries {max_bytes}."
    );
    let error = protocol.error(&event_id, "event_too_long", &message, false);
    Some(error).filter(|error| error.len() <= max_bytes)
}

impl CallProtocol {
    /// An error event.
    fn error(self, event_id: &str, code: &str, message: &str, is_fatal: bool) -> String {
        let error = match self {
            Self::OpenAi => {
                let error = json!({ "type": "server_error", "code": code, "message": message, "param": null, "event_id": null });
                json!({ "type": "error", "event_id": event_id, "error": error })
            }
            Self::Pipecat => {
                json!({ "label": "rtvi-ai", "type": "error", "data": { "error": message, "fatal": is_fatal } })
            }
        };
        error.to_string()
    }

    /// The only event of a call that gets no session.
    pub(super) fn refusal(self, message: &str) -> String {
        self.error("event_refused", "session_refused", message, true)
    }

    /// True for a sign of life, which a client of Pipecat sends each second (SmallWebRTCTransport of npm
    /// @pipecat-ai/small-webrtc-transport 1.10.8).
    pub(super) fn is_ping(self, text: &str) -> bool {
        self == Self::Pipecat && text.starts_with("ping")
    }

    /// The last message to the client.
    pub(super) fn farewell(self) -> Option<String> {
        let left = || json!({ "type": "signalling", "message": { "type": "peerLeft" } }).to_string();
        (self == Self::Pipecat).then(left)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::{CallProtocol::OpenAi, *};

    #[test]
    fn error_takes_the_place_of_an_event_that_is_too_long() {
        let event =
            json!({ "item": "x".repeat(900), "event_id": "event_1", "type": "conversation.item.added" });
        let event = event.to_string();
        assert_eq!(carried(&event, event.len(), OpenAi).unwrap(), event);
        let error: Value = serde_json::from_str(&carried(&event, event.len() - 1, OpenAi).unwrap()).unwrap();
        assert_eq!((&error["type"], &error["event_id"]), (&json!("error"), &json!("event_1")));
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("'conversation.item.added'"), "{message}");
        assert_eq!(carried(&event, 100, OpenAi), None, "no room for the error either");
    }
}
