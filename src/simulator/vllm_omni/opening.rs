//! The first message of a connection, and the errors with which the server refuses one.

use serde_json::{Map, Value};

use super::events;
use crate::{VllmVersion, dialect_session::ResumeRequest};

/// The first message of a connection.
#[derive(Debug)]
pub(crate) enum FirstMessage {
    /// Opens a session with this configuration.
    Update(Map<String, Value>),
    /// Resumes a session.
    Resume(ResumeRequest),
    /// Any other message.
    Other,
}

/// Error with which the server ends a connection.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
    /// Says whether the same session may be opened later.
    is_retryable: Option<bool>,
}

impl FirstMessage {
    /// Reads a frame; `None` is a binary one. The server reads only text frames, and fails on others.
    pub(crate) fn read(frame: Option<&str>) -> Result<Self, Refusal> {
        let text = frame.ok_or_else(Refusal::binary_frame)?;
        let message = match serde_json::from_str(text) {
            Ok(Value::Object(message)) => message,
            Ok(_) => return Err(Refusal::new("bad_event", "Realtime event must be a JSON object")),
            Err(_) => return Err(Refusal::new("invalid_json", "Invalid JSON in session.update")),
        };
        match message.get("type").and_then(Value::as_str) {
            Some("session.resume") => read_resume(&message).map(Self::Resume),
            Some("session.update") => {
                let session = message.get("session").and_then(Value::as_object).cloned();
                Ok(Self::Update(session.unwrap_or(message)))
            }
            _ => Ok(Self::Other),
        }
    }
}

/// Reads `session.resume`.
fn read_resume(message: &Map<String, Value>) -> Result<ResumeRequest, Refusal> {
    let text = |key: &str| message.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let last = message.get("last_received_server_event_seq").map_or(Some(0), Value::as_u64);
    match (text("session_id"), text("resume_token"), last) {
        (Some(id), Some(token), Some(last_sequence)) => {
            Ok(ResumeRequest { session_id: id.to_owned(), token: token.to_owned(), last_sequence })
        }
        _ => Err(Refusal::new(
            "invalid_session_resume",
            "session.resume requires session_id, resume_token, and a non-negative event sequence",
        )),
    }
}

impl Refusal {
    pub(crate) fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), is_retryable: None }
    }

    /// All sessions are taken.
    pub(crate) fn no_capacity(limit: usize) -> Self {
        Self::new("resource_exhausted", format!("duplex_session_capacity_exhausted: limit={limit}"))
    }

    /// The exception of the server when it reads a binary frame as text.
    pub(super) fn binary_frame() -> Self {
        Self::new("realtime_input_failed", "'text'")
    }

    /// The refusal of a session that the engine does not open: since 0.31 it says whether that may change.
    pub(crate) fn of_session(self, version: VllmVersion) -> Self {
        // The server checks these before it asks its engine.
        let is_engines = self.code != "invalid_session_config";
        let is_retryable =
            (is_engines && version >= VllmVersion::V0_32).then_some(self.code == "resource_exhausted");
        Self { is_retryable, ..self }
    }

    /// Its event, which has no number and is not repeated.
    pub(crate) fn to_event(&self, rng: &mut fastrand::Rng) -> String {
        let mut error = events::error_members(self.code, &self.message, None);
        if let Some(is_retryable) = self.is_retryable {
            error["retryable"] = is_retryable.into();
        }
        events::event("error", &events::event_id(rng), [("error", error)], None)
    }
}
