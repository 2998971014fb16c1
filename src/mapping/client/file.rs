//! A client protocol's file, as written.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{CloseReason, ErrorSpelling, EventName, Verb, compile::ErrorKey};
use crate::{
    audio::encoding::Encoding,
    mapping::{
        MappingKind,
        check::{self, FileError},
        field::FieldFile,
        template::Template,
    },
};

/// The file, as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClientFile {
    pub(super) kind: MappingKind,
    pub(super) name: String,
    pub(super) title: String,
    #[serde(default)]
    pub(super) notes: Vec<String>,
    pub(super) paths: Vec<String>,
    #[serde(default)]
    pub(super) subprotocols: Vec<Spanned<String>>,
    pub(super) command_key: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) lock_step: bool,
    #[serde(default)]
    pub(super) query: BTreeMap<Spanned<String>, FieldFile>,
    pub(super) audio_in: AudioIn,
    pub(super) audio_out: AudioOut,
    pub(super) commands: BTreeMap<Spanned<String>, CommandFile>,
    pub(super) events: BTreeMap<EventName, Spanned<String>>,
    pub(super) errors: BTreeMap<ErrorKey, ErrorFile>,
    pub(super) closes: BTreeMap<CloseReason, CloseSpelling>,
    #[serde(default)]
    pub(super) never_sent: BTreeMap<String, String>,
}

/// Audio from the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioIn {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// The same for other encodings.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Channels unless the client says otherwise; the first is taken.
    pub channels: u16,
    /// A larger binary frame is dropped with an error, bytes; 0 for a protocol without audio from the client.
    pub frame_max_bytes: usize,
    /// A larger WebSocket message ends the connection with close code 1009, bytes.
    pub message_max_bytes: usize,
    /// Faster than this many seconds of audio a second draws a `rate_limited` event; 0 for never.
    #[serde(deserialize_with = "check::deserialize_rate")]
    pub rate_limit: f64,
    /// Audio further ahead of the clock than this is dropped and reported, ms; 0 for never.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub max_ahead_ms: u64,
    /// The client is not read while more audio than this waits for words, ms; 0 for never. Then nothing is dropped.
    #[serde(default, deserialize_with = "check::deserialize_ms")]
    pub backpressure_ms: u64,
    /// A session without a binary frame for this long is closed, ms; 0 for never.
    #[serde(deserialize_with = "check::deserialize_ms")]
    pub idle_ms: u64,
}

/// Audio to the client.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AudioOut {
    /// Encoding of binary frames.
    pub encoding: Encoding,
    /// Rate unless the client says otherwise, Hz.
    pub rate_hz: u32,
    /// The same for other encodings.
    #[serde(default)]
    pub rates_hz: BTreeMap<Encoding, u32>,
    /// Largest binary frame, bytes.
    pub frame_max_bytes: usize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CommandFile {
    pub(super) verb: Verb,
    pub(super) present: Option<Spanned<String>>,
    #[serde(default)]
    pub(super) fields: BTreeMap<Spanned<String>, FieldFile>,
}

/// How a protocol spells an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ErrorFile {
    pub(super) code: String,
    pub(super) recoverable: bool,
    pub(super) message: Option<Spanned<String>>,
    pub(super) close: Option<CloseFile>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseFile {
    pub(super) code: u16,
    pub(super) text: Spanned<String>,
}

/// How a protocol spells the end of a session.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CloseSpelling {
    /// The `reason` of its last event.
    pub reason: String,
    /// WebSocket close code (RFC 6455 §7.4).
    pub code: u16,
    /// WebSocket close reason.
    #[serde(default)]
    pub text: String,
    /// The event that tells it.
    #[serde(default)]
    pub reported_as: ReportedAs,
}

/// How the end of a session is told before the close frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportedAs {
    /// By [`EventName::SessionClosed`].
    #[default]
    SessionClosed,
    /// By [`EventName::Error`]: its code is the reason, its message the text of the close frame.
    Error,
    /// Not at all.
    Nothing,
}

impl ErrorFile {
    pub(super) fn compile(self, file: &str, source: &str) -> Result<ErrorSpelling, FileError> {
        let plain = |text: &Spanned<String>| {
            Template::compile_plain(text.get_ref(), &["detail"])
                .map_err(|error| FileError::at_offset(file, source, text.span().start, error.to_string()))
        };
        Ok(ErrorSpelling {
            message: self.message.as_ref().map(plain).transpose()?,
            close: self.close.as_ref().map(|close| Ok((close.code, plain(&close.text)?))).transpose()?,
            code: self.code,
            recoverable: self.recoverable,
        })
    }
}
