//! Client protocol of a relay, compiled: messages and events in the model's own protocol. The schema is
//! `mappings/reference.md`.
//!
//! One client session is one upstream session, message by message. If both ends share a spelling
//! ([`RelayProtocol::dialect`]), messages pass unchanged and the mapping only classifies them. Client protocols of
//! served sessions are in [`super::client`].

mod field;
mod file;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

pub(crate) use self::field::without_data_prefix;
pub use self::field::{RelayField, RelayFieldRole, RelayFieldType};
pub(super) use self::file::RelayProtocolFile;
use super::{
    check::values::deserialize_close_code,
    error_spelling::RelayErrorSpelling,
    extract::Extractor,
    template::Template,
    upstream::{SendName, UpstreamMapping},
};
use crate::{
    error::ErrorKind,
    named_enum::named_enum,
    vocabulary::{Mode, Node, relay::RelayEndReason},
};

named_enum! {
    /// Meaning of a client message. Mapping files name these in snake case after `verb =`.
    pub enum RelayVerb {
        /// Opens the session.
        Open = "open",
        /// Gives the model audio, pictures or text.
        Append = "append",
        /// Ends the session.
        Close = "close",
    }
}

named_enum! {
    /// Event for a relay's client. Mapping files name these in snake case under `[events]`.
    pub enum RelayEvent {
        /// The session waits in the upstream's queue.
        Queued = "queued",
        /// The queue position changed.
        QueueUpdate = "queue_update",
        /// A worker has been assigned.
        Granted = "granted",
        /// The session is open.
        Opened = "opened",
        /// The model listens. This ends an open answer.
        Listening = "listening",
        /// Part of the text.
        Text = "text",
        /// Part of the audio.
        Speech = "speech",
        /// Text, audio and the end of a turn in one event. A protocol with this event has neither `text` nor `speech`
        /// events.
        Output = "output",
        /// The answer is complete.
        Answered = "answered",
        /// The session has ended.
        Ended = "ended",
        /// The session has ended, with a diagnostic.
        EndedWithDetail = "ended_with_detail",
        /// An error.
        Error = "error",
    }
}

impl RelayEvent {
    /// Event in place of this one in protocols without it.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::QueueUpdate => Some(Self::Queued),
            Self::EndedWithDetail => Some(Self::Ended),
            _ => None,
        }
    }

    /// Slots of its template.
    #[must_use]
    pub const fn slots(self) -> &'static [&'static str] {
        match self {
            Self::Queued | Self::QueueUpdate => &["position", "length", "wait_s", "ticket", "unix_s"],
            Self::Granted => &["unix_s"],
            Self::Opened => &["session_id", "mode", "prompt_chars", "context_tokens", "unix_s"],
            Self::Listening => &["session_id", "response_id", "input_id", "context_tokens", "unix_s"],
            Self::Text => &["session_id", "response_id", "input_id", "context_tokens", "unix_s", "text"],
            Self::Speech => &["session_id", "response_id", "input_id", "context_tokens", "unix_s", "audio"],
            Self::Output => &[
                "session_id",
                "response_id",
                "input_id",
                "context_tokens",
                "unix_s",
                "text",
                "audio",
                "end_of_turn",
            ],
            Self::Answered => {
                &["session_id", "response_id", "input_id", "context_tokens", "unix_s", "text", "audio"]
            }
            Self::Ended => &["session_id", "reason", "unix_s"],
            Self::EndedWithDetail => &["session_id", "reason", "unix_s", "detail"],
            Self::Error => &["code", "message", "class"],
        }
    }
}

/// Spelling of an end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayEndSpelling {
    /// The `reason` of the last event.
    pub reason: String,
    /// The client's own reason replaces `reason`, if the client gave one.
    #[serde(default)]
    pub use_client_reason: bool,
    /// WebSocket close code (RFC 6455 §7.4).
    #[serde(deserialize_with = "deserialize_close_code")]
    pub code: u16,
    /// WebSocket close reason.
    #[serde(default)]
    pub text: String,
}

/// Query parameter that names the mode.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayModeQuery {
    /// Name of the parameter.
    pub key: String,
    /// Mode of a connection without the parameter.
    pub default: Mode,
    /// HTTP status for a mode that is not in `values`. Without a status, an unknown mode means the default.
    pub reject_status: Option<u16>,
    /// Modes by their exact spelling.
    pub values: BTreeMap<String, Mode>,
    /// Spelling of the mode in events.
    #[serde(default)]
    pub reported_as: BTreeMap<Mode, String>,
}

/// Client protocol of a relay.
#[derive(Debug)]
pub struct RelayProtocol {
    /// Upstream dialect with the same spelling.
    pub dialect: String,
    /// Query parameter that names the mode.
    pub mode: RelayModeQuery,
    /// Messages by the value at the command key.
    pub commands: Vec<RelayCommand>,
    /// The client may append before the session is open.
    pub append_before_open: bool,
    /// Length of the server's own part of the prompt, characters.
    pub prompt_extra_chars: u64,
    /// System prompt of the client's own server, if the client gives none. It is sent to upstreams of other dialects.
    pub default_prompt: Option<String>,
    /// Extracts the command key (slot 0) and every field.
    pub(crate) extractor: Extractor,
    events: BTreeMap<RelayEvent, Template>,
    errors: BTreeMap<ErrorKind, RelayErrorSpelling>,
    closes: BTreeMap<RelayEndReason, RelayEndSpelling>,
}

/// Compiled message type.
#[derive(Debug)]
pub struct RelayCommand {
    /// Value at the command key.
    pub name: String,
    /// Meaning.
    pub verb: RelayVerb,
    /// Its fields.
    pub fields: Vec<RelayField>,
}

impl RelayProtocol {
    /// Mode that a query string names (percent-encoded, without `?`). The last of several values counts.
    ///
    /// # Errors
    /// The HTTP status of the rejection.
    pub fn mode(&self, query: &str) -> Result<Mode, u16> {
        let Some(value) = self.mode_value(query) else { return Ok(self.mode.default) };
        match (self.mode.values.get(value.as_ref()), self.mode.reject_status) {
            (Some(mode), _) => Ok(*mode),
            (None, Some(status)) => Err(status),
            (None, None) => Ok(self.mode.default),
        }
    }

    /// True if the query string names no mode or one that the protocol has.
    #[must_use]
    pub fn has_valid_mode(&self, query: &str) -> bool {
        self.mode_value(query).is_none_or(|value| self.mode.values.contains_key(value.as_ref()))
    }

    fn mode_value<'q>(&self, query: &'q str) -> Option<Cow<'q, str>> {
        let given = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| *key == self.mode.key);
        given.last().map(|(_, value)| value)
    }

    /// True if a text frame is a message of this protocol, valid or not.
    #[must_use]
    pub fn has_command(&self, text: &str) -> bool {
        let Ok(found) = self.extractor.extract(text) else { return false };
        let name = found.get(0).and_then(Node::as_str);
        self.commands.iter().any(|command| Some(command.name.as_str()) == name)
    }

    /// Template of an event; `None` if the protocol has no such event.
    #[must_use]
    pub fn event(&self, name: RelayEvent) -> Option<&Template> {
        self.events.get(&name)
    }

    /// Spelling of an error; `None` if the protocol does not report it.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Option<&RelayErrorSpelling> {
        self.errors.get(&kind).or_else(|| self.errors.get(&kind.fallback()?))
    }

    /// Spelling of an end.
    #[must_use]
    pub fn end(&self, name: RelayEndReason) -> Option<&RelayEndSpelling> {
        self.closes.get(&name).or_else(|| self.closes.get(&name.fallback()?))
    }

    /// True if its messages reach upstreams of this dialect: unchanged, translated, or as the commands of a conversation.
    #[must_use]
    pub fn reaches(&self, dialect: &UpstreamMapping) -> bool {
        let has = |name: SendName| dialect.message(name).is_some();
        self.dialect == dialect.name
            || dialect.has_relay_messages()
            || (has(SendName::Converse) && has(SendName::Append))
    }

    /// True if text, audio and the end of a turn share one event.
    #[must_use]
    pub fn has_combined_output(&self) -> bool {
        self.events.contains_key(&RelayEvent::Output)
    }
}

#[cfg(test)]
mod tests {
    use crate::spelling::Library;
    use crate::vocabulary::Mode;

    #[test]
    fn query_mode_must_match_exactly() {
        let library = Library::embedded().unwrap();
        let client = library.client("minicpm-o").unwrap();
        let relay = client.relay.as_ref().unwrap();
        for (query, mode) in [
            ("", Ok(Mode::Video)),
            ("mode=chat", Ok(Mode::Chat)),
            ("x=1&mode=video&mode=audio", Ok(Mode::Audio)),
            ("mode=", Err(403)),
            ("mode=Audio", Err(403)),
        ] {
            assert_eq!(relay.mode(query), mode, "{query}");
        }
        assert!(client.is_relayed() && !library.client("macaw").unwrap().is_relayed());
    }
}
