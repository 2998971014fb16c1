//! `[signs]` of a client file: what tells its clients from those of other protocols at the same path.

use serde::{Deserialize, Deserializer, de::Error as _};
use toml::Spanned;

use super::conditions::ConditionFile;

/// `[signs]`: signs in a request, and in the first message.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ClientSigns {
    /// Headers that only these clients send.
    pub headers: Vec<HeaderSign>,
    /// Headers of clients that want the beta shape of the protocol.
    pub beta_headers: Vec<HeaderSign>,
    /// Globs on the names of models that only these clients ask for.
    pub models: Vec<String>,
    /// These clients always send `Authorization: Bearer`, even where no key is asked for.
    pub unasked_key: bool,
    pub(super) first_message: Option<Spanned<ConditionFile>>,
}

/// A header and a glob on its value, written `name: value`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderSign {
    /// Name, in lower case.
    pub name: String,
    /// Glob on the value, or on an item of a list.
    pub value: String,
}

impl<'de> Deserialize<'de> for HeaderSign {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let (name, value) = text.split_once(':').ok_or_else(|| {
            D::Error::custom(format!("{text:?} is no header; write \"name: value\", with * in the value"))
        })?;
        let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
        let is_token =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        match is_token {
            true => Ok(Self { name, value }),
            false => Err(D::Error::custom(format!("{name:?} is no name of a header"))),
        }
    }
}
