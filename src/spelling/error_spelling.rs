//! How a protocol spells an error, and the close frame behind it: of served clients and of relayed ones.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::{
    check::{Document, FileError, values::deserialize_close_code},
    template::Template,
};

/// Compiled spelling of an error. Both templates have the slot `detail`.
#[derive(Debug)]
pub struct ErrorSpelling {
    /// Error code. Empty only in a relay's protocol, for no error event.
    pub code: String,
    /// True if the session continues.
    pub recoverable: bool,
    /// Message; `None` stands for the detail alone.
    pub message: Option<Template>,
    /// The protocol's words for details of voxbridge.
    pub details: BTreeMap<String, String>,
    /// Close code and reason, for errors that end the connection.
    pub close: Option<(u16, Template)>,
    /// In a relay's protocol: the party that caused the error.
    pub class: String,
    /// In a relay's protocol: the reason of the event that ends the session, with the message as its diagnostic.
    pub ended: Option<String>,
}

impl ErrorSpelling {
    /// The message about this detail.
    pub(crate) fn message(&self, detail: &str) -> String {
        self.message.as_ref().map_or_else(|| detail.to_owned(), |text| text.filled_with(detail))
    }
}

/// A close frame as written: its code, and its reason with the slot `detail`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CloseFile {
    #[serde(deserialize_with = "deserialize_close_code")]
    code: u16,
    text: Spanned<String>,
}

impl CloseFile {
    pub(super) fn compile(self, document: &Document<'_>) -> Result<(u16, Template), FileError> {
        Ok((self.code, document.plain_template(&self.text, &["detail"])?))
    }
}
