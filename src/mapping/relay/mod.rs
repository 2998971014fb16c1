//! A client protocol of the model's own kind, compiled: what the client of a *relay* sends and is told. The schema is
//! `mappings/README.md`.
//!
//! One client session is one upstream session, message by message. Where both ends spell alike ([`RelayProtocol::dialect`])
//! messages pass untouched, and what stands here only says what they are. It is not [`super::client`]'s vocabulary: that
//! one is of sessions the bridge itself leads.

pub(super) mod explain;
mod field;
mod file;
mod profile;

use std::{borrow::Cow, collections::BTreeMap};

use serde::Deserialize;

pub(crate) use self::field::without_data_prefix;
pub use self::{
    field::{RelayField, RelayFieldRole, RelayFieldType},
    profile::RelayRules,
};
pub(super) use self::{file::RelayProtocolFile, profile::RelayProfileFile};
use super::{
    extract::{Extractor, Node},
    template::Template,
    upstream::Mode,
};
use crate::error::ErrorKind;

/// What a message of the client means. Mapping files name these in snake case after `verb =`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayVerb {
    /// Opens the session.
    Open,
    /// Gives the model something to hear, see or read.
    Append,
    /// Ends the session.
    Close,
}

impl RelayVerb {
    /// Every verb.
    pub const ALL: [Self; 3] = [Self::Open, Self::Append, Self::Close];
}

/// What a relay's client is told. Mapping files name these in snake case under `[events]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayEvent {
    /// It waits in the upstream's queue.
    Queued,
    /// It has moved up in it.
    QueueUpdate,
    /// A worker is there.
    Granted,
    /// The session is open.
    Opened,
    /// The model listens; where an answer is open, it is over.
    Listening,
    /// A piece of text.
    Text,
    /// A piece of audio.
    Speech,
    /// Text, audio and the end of a turn in one; a protocol that has it is told neither of the two before.
    Output,
    /// An answer is complete.
    Answered,
    /// The session is over.
    Ended,
    /// The same with a diagnostic.
    EndedWithDetail,
    /// Something went wrong.
    Error,
}

impl RelayEvent {
    /// Every event.
    pub const ALL: [Self; 12] = [
        Self::Queued,
        Self::QueueUpdate,
        Self::Granted,
        Self::Opened,
        Self::Listening,
        Self::Text,
        Self::Speech,
        Self::Output,
        Self::Answered,
        Self::Ended,
        Self::EndedWithDetail,
        Self::Error,
    ];

    /// The values its template may use.
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

/// Why a relayed session ends. Mapping files name these in snake case under `[closes]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelayEndReason {
    /// The client asked.
    ClientClose,
    /// The upstream's time limit.
    Timeout,
    /// The model's context is full.
    ContextFull,
    /// The server stops.
    Shutdown,
    /// The client sent nothing for too long.
    Idle,
    /// Anything else.
    Failed,
    /// An operator ends this session; spelled like `shutdown` where a file does not say.
    Operator,
}

impl RelayEndReason {
    /// Every end that a file must spell.
    pub const ALL: [Self; 6] =
        [Self::ClientClose, Self::Timeout, Self::ContextFull, Self::Shutdown, Self::Idle, Self::Failed];

    /// What stands in for it in a file that says nothing about it.
    #[must_use]
    pub const fn fallback(self) -> Option<Self> {
        match self {
            Self::Operator => Some(Self::Shutdown),
            _ => None,
        }
    }
}

/// How a protocol spells an end.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayEndSpelling {
    /// The `reason` of the last event.
    pub reason: String,
    /// The client's own reason takes its place, where the client gave one.
    #[serde(default)]
    pub use_client_reason: bool,
    /// WebSocket close code (RFC 6455 §7.4).
    pub code: u16,
    /// WebSocket close reason.
    #[serde(default)]
    pub text: String,
}

/// How a protocol spells an error: an event, an end, a close frame, in this order, as far as they stand in the file. The
/// templates know the slot `detail`.
#[derive(Debug)]
pub struct RelayErrorSpelling {
    /// The error event's code; without one there is no error event.
    pub code: Option<String>,
    /// Whose doing it is, as the protocol names it.
    pub class: String,
    /// The message; the detail alone when absent.
    pub message: Option<Template>,
    /// The session ends, with this reason and the message as the diagnostic.
    pub ended: Option<String>,
    /// Close code and reason.
    pub close: Option<(u16, Template)>,
}

impl RelayErrorSpelling {
    /// Whether it ends the session.
    #[must_use]
    pub const fn is_fatal(&self) -> bool {
        self.ended.is_some() || self.close.is_some()
    }
}

/// How the query names the mode.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayModeQuery {
    /// The query parameter.
    pub key: String,
    /// The mode of a connection that names none.
    pub default: Mode,
    /// HTTP status for a mode that is not in `values`; without one any other value is as good as none.
    pub reject_status: Option<u16>,
    /// The modes there are, by their exact values.
    pub values: BTreeMap<String, Mode>,
    /// How the protocol tells the client what kind of session it is.
    #[serde(default)]
    pub reported_as: BTreeMap<Mode, String>,
}

/// A client protocol of the model's own kind.
#[derive(Debug)]
pub struct RelayProtocol {
    /// The upstream dialect whose messages its messages are.
    pub dialect: String,
    /// How the query names the mode.
    pub mode: RelayModeQuery,
    /// Messages by the value at the command key.
    pub commands: Vec<RelayCommand>,
    /// An append may come before the session is open.
    pub append_before_open: bool,
    /// What the server's own words add to the prompt's length, characters.
    pub prompt_extra_chars: u64,
    /// The system prompt of a client that gives none, on its own server; told to upstreams of other dialects.
    pub default_prompt: Option<String>,
    /// Finds the command key (slot 0) and every field.
    pub(crate) extractor: Extractor,
    events: BTreeMap<RelayEvent, Template>,
    errors: BTreeMap<ErrorKind, RelayErrorSpelling>,
    closes: BTreeMap<RelayEndReason, RelayEndSpelling>,
}

/// One message, compiled.
#[derive(Debug)]
pub struct RelayCommand {
    /// The value at the command key.
    pub name: String,
    /// What it means.
    pub verb: RelayVerb,
    /// Its fields.
    pub fields: Vec<RelayField>,
}

impl RelayProtocol {
    /// The mode a query string (percent-encoded, without `?`) asks for; of several values the last one counts.
    ///
    /// # Errors
    /// The HTTP status that refuses it.
    pub fn mode(&self, query: &str) -> Result<Mode, u16> {
        let Some(value) = self.mode_value(query) else { return Ok(self.mode.default) };
        match (self.mode.values.get(value.as_ref()), self.mode.reject_status) {
            (Some(mode), _) => Ok(*mode),
            (None, Some(status)) => Err(status),
            (None, None) => Ok(self.mode.default),
        }
    }

    /// Whether the mode that a query string names, if it names one, is one that this protocol has a word for.
    #[must_use]
    pub fn has_valid_mode(&self, query: &str) -> bool {
        self.mode_value(query).is_none_or(|value| self.mode.values.contains_key(value.as_ref()))
    }

    fn mode_value<'q>(&self, query: &'q str) -> Option<Cow<'q, str>> {
        let given = form_urlencoded::parse(query.as_bytes()).filter(|(key, _)| *key == self.mode.key);
        given.last().map(|(_, value)| value)
    }

    /// Whether a text frame is a message of this protocol, whatever else is wrong with it.
    #[must_use]
    pub fn has_command(&self, text: &str) -> bool {
        let Ok(found) = self.extractor.extract(text) else { return false };
        let name = found.get(0).and_then(Node::as_str);
        self.commands.iter().any(|command| Some(command.name.as_str()) == name)
    }

    /// The template of an event; `None` for what this protocol does not tell its clients.
    #[must_use]
    pub fn event(&self, name: RelayEvent) -> Option<&Template> {
        self.events.get(&name)
    }

    /// How an error is spelled; `None` for one it does not tell.
    #[must_use]
    pub fn error(&self, kind: ErrorKind) -> Option<&RelayErrorSpelling> {
        self.errors.get(&kind)
    }

    /// How an end is spelled.
    #[must_use]
    pub fn end(&self, name: RelayEndReason) -> Option<&RelayEndSpelling> {
        self.closes.get(&name).or_else(|| self.closes.get(&name.fallback()?))
    }

    /// Whether text, audio and the end of a turn are told in one.
    #[must_use]
    pub fn has_combined_output(&self) -> bool {
        self.events.contains_key(&RelayEvent::Output)
    }
}

#[cfg(test)]
mod tests {
    use crate::mapping::{Library, upstream::Mode};

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
