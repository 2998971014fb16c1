//! How a protocol spells an error, and the close frame behind it.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de::Error as _};

use super::{check::values::deserialize_close_code, template::TextWithDetail};

/// Spelling of an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorSpelling {
    /// Error code.
    #[serde(deserialize_with = "deserialize_code")]
    pub code: String,
    /// True if the session continues.
    pub recoverable: bool,
    message: Option<TextWithDetail>,
    /// The protocol's words for details of voxbridge.
    #[serde(default)]
    pub details: BTreeMap<String, String>,
    /// Close frame of an error that ends the connection.
    pub close: Option<ErrorClose>,
}

/// Spelling of an error in a relay's protocol.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RelayErrorSpelling {
    /// Error code; empty for no error event.
    #[serde(default)]
    pub code: String,
    /// The party that caused the error.
    #[serde(default)]
    pub class: String,
    message: Option<TextWithDetail>,
    /// The reason of the event that ends the session, with the message as its diagnostic.
    pub ended: Option<String>,
    /// Close frame of an error that ends the connection.
    pub close: Option<ErrorClose>,
}

/// Close frame behind an error.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorClose {
    /// WebSocket close code (RFC 6455 §7.4).
    #[serde(deserialize_with = "deserialize_close_code")]
    pub code: u16,
    /// Reason of the frame.
    pub text: TextWithDetail,
}

impl ErrorSpelling {
    /// The message about this detail.
    pub(crate) fn message(&self, detail: &str) -> String {
        message(self.message.as_ref(), detail)
    }
}

impl RelayErrorSpelling {
    /// The message about this detail.
    pub(crate) fn message(&self, detail: &str) -> String {
        message(self.message.as_ref(), detail)
    }
}

/// Without a text, the detail is the message.
fn message(text: Option<&TextWithDetail>, detail: &str) -> String {
    text.map_or_else(|| detail.to_owned(), |text| text.filled_with(detail))
}

fn deserialize_code<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    let code = String::deserialize(from)?;
    if code.is_empty() {
        return Err(D::Error::custom("an error needs a code; without one the client would not get it"));
    }
    Ok(code)
}
