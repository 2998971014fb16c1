//! Secrets: keys, tokens and passwords that must not appear in output.
//!
//! A [`Secret`] cannot be printed and serializes as `"***"`. Only [`Secret::expose`] returns its text.
//! Comparisons use [`SecretDigest`], the SHA-256 of both sides, in constant time, so response times reveal
//! neither the length nor the first wrong character. Secrets are not protected in memory.

use std::fmt;

use ring::{
    digest::{SHA256, SHA256_OUTPUT_LEN, digest},
    rand::{SecureRandom as _, SystemRandom},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use subtle::ConstantTimeEq as _;

/// Replacement text for a secret.
pub const MASK: &str = "***";

/// Query values that may be shown: the modes. All other values may be secrets.
const SHOWN_QUERY_VALUES: [&str; 3] = ["chat", "audio", "video"];

/// Redacts a URL for display: masks credentials before the host and the values of its query.
pub fn redacted_url(url: &str) -> String {
    let (address, query) = url.split_once('?').map_or((url, None), |(address, query)| (address, Some(query)));
    let (scheme, rest) = address.split_once("://").unwrap_or(("", address));
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = host.rsplit_once('@').map_or(host.to_owned(), |(_, host)| format!("{MASK}@{host}"));
    let separator = if scheme.is_empty() { "" } else { "://" };
    let pair = |pair: &str| match pair.split_once('=') {
        Some((name, value)) if !value.is_empty() && !SHOWN_QUERY_VALUES.contains(&value) => {
            format!("{name}={MASK}")
        }
        _ => pair.to_owned(),
    };
    let query = query.map(|query| format!("?{}", query.split('&').map(pair).collect::<Vec<_>>().join("&")));
    format!("{scheme}{separator}{host}{path}{}", query.unwrap_or_default())
}

/// This many random bytes in hexadecimal digits; `None` if the system has no random numbers.
pub(crate) fn random_hex<const BYTES: usize>() -> Option<String> {
    let mut random = [0; BYTES];
    SystemRandom::new().fill(&mut random).ok()?;
    Some(hex(&random))
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A secret text.
#[derive(Clone)]
pub struct Secret {
    text: Box<str>,
    digest: SecretDigest,
}

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<Box<str>>) -> Self {
        let text = text.into();
        Self { digest: SecretDigest::of(&text), text }
    }

    /// The secret text, for sending it.
    pub fn expose(&self) -> &str {
        &self.text
    }

    /// The digest used for comparisons.
    pub const fn digest(&self) -> &SecretDigest {
        &self.digest
    }

    /// True if the peer sent this secret. The comparison takes constant time.
    pub fn matches(&self, sent: &str) -> bool {
        self.digest == SecretDigest::of(sent)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
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

/// SHA-256 of a secret, sufficient to recognize it.
#[derive(Clone, Copy)]
pub struct SecretDigest([u8; SHA256_OUTPUT_LEN]);

impl SecretDigest {
    /// Digest of a secret, or of a text sent by a peer.
    pub fn of(text: &str) -> Self {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(digest(&SHA256, text.as_bytes()).as_ref());
        Self(bytes)
    }

    /// Parses 64 hexadecimal digits as printed by `sha256sum`; `None` for any other text.
    pub fn from_hex(hex: &str) -> Option<Self> {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
        if pairs.len() != bytes.len() || !rest.is_empty() {
            return None;
        }
        let nibble = |digit: u8| char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok());
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self(bytes))
    }
}

/// Compares in constant time.
impl PartialEq for SecretDigest {
    fn eq(&self, other: &Self) -> bool {
        self.0.ct_eq(&other.0).into()
    }
}

impl Eq for SecretDigest {}

impl std::hash::Hash for SecretDigest {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// Masked, because a weak secret could be guessed from its digest.
impl fmt::Debug for SecretDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_is_shown_without_credentials_and_query_values() {
        for (url, shown) in [
            ("ws://gpu/x?mode=chat&token=hunter2&flag", "ws://gpu/x?mode=chat&token=***&flag"),
            ("wss://me:hunter2@gpu:1", "wss://***@gpu:1"),
            ("ws://gpu/a@b?mode=", "ws://gpu/a@b?mode="),
            ("hunter.example", "hunter.example"),
            ("", ""),
        ] {
            assert_eq!(redacted_url(url), shown);
        }
    }

    #[derive(Debug, Serialize, Deserialize)]
    struct ConfigWithToken {
        token: Secret,
    }

    #[test]
    fn secret_is_masked_in_every_format() {
        let config: ConfigWithToken = toml::from_str("token = \"hunter2\"").unwrap();
        assert_eq!(config.token.expose(), "hunter2");
        let shown = [
            format!("{config:?} {:#?} {:?}", config, config.token.digest()),
            toml::to_string(&config).unwrap(),
            serde_json::to_string(&config).unwrap(),
        ];
        for shown in shown {
            assert!(shown.contains(MASK) && !shown.contains("hunter"), "{shown}");
        }
    }

    #[test]
    fn secret_matches_only_the_same_text() {
        let secret = Secret::new("hunter2");
        assert!(secret.matches("hunter2") && secret == Secret::new("hunter2"));
        for other in ["", "hunter", "hunter22", "Hunter2", "hunter2 ", "\0hunter2", "xxxxxxx"] {
            assert!(!secret.matches(other) && secret != Secret::new(other), "{other:?}");
        }
        assert!(Secret::new("").matches(""));
    }

    #[test]
    fn digest_is_parsed_from_sha256sum_output() {
        let hex = "f52fbd32b2b3b86ff88ef6c490628285f482af15ddcb29541f94bcf526a3f6c7";
        assert_eq!(SecretDigest::from_hex(hex), Some(SecretDigest::of("hunter2")));
        assert_eq!(SecretDigest::from_hex(&hex.to_uppercase()), Some(SecretDigest::of("hunter2")));
        let bad = [&hex[1..], &hex[2..], "", &hex.replace('f', "g"), &format!("{hex}00"), &"é".repeat(32)];
        for bad in bad {
            assert_eq!(SecretDigest::from_hex(bad), None, "{bad}");
        }
    }
}
