//! What nobody may read: keys, tokens, passwords.
//!
//! A [`Secret`] cannot be printed, and is written as `"***"` wherever a configuration is shown; who needs its letters says
//! so by [`Secret::expose`]. What a peer sends is compared by [`Print`], the SHA-256 of both, in constant time: neither the
//! length nor the first wrong letter can be told from how long an answer takes. This is no vault: the letters are in memory
//! as they are in the file or the environment they came from.

use std::fmt;

use ring::digest::{SHA256, SHA256_OUTPUT_LEN, digest};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;

/// What stands in the place of a secret.
pub const MASK: &str = "***";

/// What a URL may say of a mode; everything else in its query may be a secret.
const MODES: [&str; 3] = ["chat", "audio", "video"];

/// A URL as it may be shown: without what stands before its host, and without the values in its query.
#[must_use]
pub fn shown_url(url: &str) -> String {
    let (place, query) = url.split_once('?').map_or((url, None), |(place, query)| (place, Some(query)));
    let (scheme, rest) = place.split_once("://").unwrap_or(("", place));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host.to_owned(), |(_, host)| format!("{MASK}@{host}"));
    let between = if scheme.is_empty() { "" } else { "://" };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && !MODES.contains(&value) => format!("{name}={MASK}"),
        _ => pair.to_owned(),
    };
    let query = query.map(|query| format!("?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&")));
    format!("{scheme}{between}{host}{path}{}", query.unwrap_or_default())
}

/// A secret text.
#[derive(Clone)]
pub struct Secret {
    text: Box<str>,
    print: Print,
}

impl Secret {
    /// A secret of these letters.
    #[must_use]
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        Self { print: Print::of(&text), text }
    }

    /// Its letters, for the one place that has to send them.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// What it is compared by.
    #[must_use]
    pub const fn print(&self) -> &Print {
        &self.print
    }

    /// Whether a peer has sent it. The time this takes says nothing about the secret.
    #[must_use]
    pub fn is(&self, sent: &str) -> bool {
        self.print == Print::of(sent)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.print == other.print
    }
}

impl Eq for Secret {}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(MASK)
    }
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self::new)
    }
}

/// The SHA-256 of a secret: enough to know it again.
#[derive(Clone, Copy)]
pub struct Print([u8; SHA256_OUTPUT_LEN]);

impl Print {
    /// Of what a peer sent, or of a secret.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut print = [0; SHA256_OUTPUT_LEN];
        print.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(print)
    }

    /// From 64 hexadecimal digits, as `sha256sum` prints them; `None` for anything else.
    #[must_use]
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut print = [0; SHA256_OUTPUT_LEN];
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if pairs.len() != print.len() || !rest.is_empty() {
            return None;
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        for (byte, [high, low]) in print.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(print))
    }
}

/// In constant time.
impl PartialEq for Print {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for Print {}

impl std::hash::Hash for Print {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// A weak secret could be found by its print.
impl fmt::Debug for Print {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_shown_without_what_may_be_secret() {
        for (url, shown) in [
            ("ws://gpu/x?mode=chat&token=hunter2&flag", "ws://gpu/x?mode=chat&token=***&flag"),
            ("wss://me:hunter2@gpu:1", "wss://***@gpu:1"),
            ("ws://gpu/a@b?mode=", "ws://gpu/a@b?mode="),
            ("hunter.example", "hunter.example"),
            ("", ""),
        ] {
            assert_eq!(shown_url(url), shown);
        }
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct Holder {
        token: Secret,
    }

    #[test]
    fn it_is_masked_wherever_it_is_shown() {
        let holder: Holder = toml::from_str("token = \"hunter2\"").unwrap();
        assert_eq!(holder.token.expose(), "hunter2");
        let shown = [
            format!("{holder:?} {:#?} {:?}", holder, holder.token.print()),
            toml::to_string(&holder).unwrap(),
            serde_json::to_string(&holder).unwrap(),
        ];
        for shown in shown {
            assert!(shown.contains(MASK) && !shown.contains("hunter"), "{shown}");
        }
    }

    #[test]
    fn only_the_same_text_is_the_same() {
        let secret = Secret::new("hunter2");
        assert!(secret.is("hunter2") && secret == Secret::new("hunter2"));
        for other in ["", "hunter", "hunter22", "Hunter2", "hunter2 ", "\0hunter2", "xxxxxxx"] {
            assert!(!secret.is(other) && secret != Secret::new(other), "{other:?}");
        }
        assert!(Secret::new("").is(""));
    }

    #[test]
    fn a_print_is_what_sha256sum_prints() {
        let hex = "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7";
        assert_eq!(Print::from_hex(hex), Some(Print::of("hunter2")));
        assert_eq!(Print::from_hex(&hex.to_uppercase()), Some(Print::of("hunter2")));
        let bad = [&hex[1..], &hex[2..], "", &hex.replace('f', "g"), &format!("{hex}00"), &"é".repeat(32)];
        for bad in bad {
            assert_eq!(Print::from_hex(bad), None, "{bad}");
        }
    }
}
