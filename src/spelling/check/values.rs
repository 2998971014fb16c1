//! Values that mean the same wherever they stand: readers for `deserialize_with`, so that an error has the value's position, and defaults.

use std::ops::Deref;

use serde::{Deserialize, Deserializer, de::Error as _};

use crate::spelling::url_path::canonical_path;

/// Path of a URL. It begins with `/` and has no query. A slash at its end does not count.
#[derive(Debug, Clone)]
pub struct UrlPath(pub(in crate::spelling) String);

impl<'de> Deserialize<'de> for UrlPath {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let path = String::deserialize(from)?;
        if !path.starts_with('/') {
            return Err(D::Error::custom(format!("a URL path begins with `/`: write \"/{path}\"")));
        }
        if !path.bytes().all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte)) {
            let message = "a URL path has no query, no spaces and only ASCII characters";
            return Err(D::Error::custom(message));
        }
        Ok(Self(canonical_path(&path).into_owned()))
    }
}

/// Pointer into a JSON object (RFC 6901). It begins with `/`.
#[derive(Debug, Clone, Default)]
pub struct JsonPointer(pub(in crate::spelling) String);

impl<'de> Deserialize<'de> for JsonPointer {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let pointer = String::deserialize(from)?;
        if !pointer.starts_with('/') {
            return Err(D::Error::custom(format!("a JSON pointer begins with `/`: write \"/{pointer}\"")));
        }
        Ok(Self(pointer))
    }
}

impl Deref for UrlPath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Deref for JsonPointer {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Reads paths of URLs.
pub(in crate::spelling) fn deserialize_paths<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Vec<String>, D::Error> {
    let paths: Vec<UrlPath> = Deserialize::deserialize(from)?;
    Ok(paths.into_iter().map(|path| path.0).collect())
}

/// Family of protocols whose file names none.
pub(in crate::spelling) fn default_family() -> String {
    "other protocols".to_owned()
}

/// Reads a close code that a server may send.
pub(in crate::spelling) fn deserialize_close_code<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<u16, D::Error> {
    let code = u16::deserialize(from)?;
    // RFC 6455 §7.4: 1004 to 1006 and 1015 are reserved, 1010 is the client's, others below 3000 are undefined. The registry
    // adds 1012 to 1014.
    if matches!(code, 1000..=1003 | 1007..=1009 | 1011..=1014 | 3000..=4999) {
        return Ok(code);
    }
    Err(D::Error::custom(format!(
        "a server cannot send close code {code}; use 1000 (normal), 1008 (policy), 1011 (internal error), or 4000 to 4999 \
         for the protocol's own"
    )))
}
