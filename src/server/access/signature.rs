//! Signatures of requests: the header in which Twilio, and servers that work like it, prove that a request is theirs.
//!
//! The signature is the base64 of HMAC-SHA1 over the URL of the request, keyed with the account's token (Twilio's page
//! "Webhooks security"). The URL is the one that the account knows, which behind a proxy is not the one that voxbridge sees.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::hmac::{HMAC_SHA1_FOR_LEGACY_USE_ONLY, Key, verify};

use crate::secret::Secret;

/// Checks signatures of requests.
pub struct SignatureCheck {
    key: Key,
    /// Host and port that the account knows, such as `calls.example.com`.
    public_host: String,
}

impl std::fmt::Debug for SignatureCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SignatureCheck").field("public_host", &self.public_host).finish_non_exhaustive()
    }
}

impl SignatureCheck {
    /// A check with the account's token. `public_url` is what the account's URLs begin with, such as
    /// `wss://calls.example.com`.
    ///
    /// # Errors
    /// A message for a URL without a host, or with a path.
    pub fn new(token: &Secret, public_url: &str) -> Result<Self, String> {
        let host = public_url.split_once("://").map(|(_, host)| host.trim_end_matches('/'));
        let host = host.filter(|host| !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']));
        let public_host = host.ok_or_else(|| {
            format!("{public_url:?} is not the beginning of a URL such as \"wss://calls.example.com\"")
        })?;
        let key = Key::new(HMAC_SHA1_FOR_LEGACY_USE_ONLY, token.expose().as_bytes());
        Ok(Self { key, public_host: public_host.to_owned() })
    }

    /// True if the signature belongs to a request for this path and query. The comparison takes constant time.
    pub(super) fn is_valid(&self, signature: &str, path: &str, query: &str) -> bool {
        let Ok(signature) = STANDARD.decode(signature.trim()) else { return false };
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        // Accounts spell the scheme of the same URL in both ways, and a slash may be added to its end.
        let urls = ["wss", "https"].iter().flat_map(|scheme| {
            ["", "/"].map(|end| format!("{scheme}://{}{path}{end}{query}", self.public_host))
        });
        urls.into_iter().any(|url| verify(&self.key, url.as_bytes(), &signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(public_url: &str) -> SignatureCheck {
        SignatureCheck::new(&Secret::new("12345"), public_url).unwrap()
    }

    #[test]
    fn signatures_of_the_official_library_are_valid() {
        // From RequestValidator("12345").compute_signature(url, {}) of the Python package twilio 9.
        for (signature, query) in [
            ("myfaRchFcOV9R7UNMsbeBhTuSQI=", ""),
            ("10AR8IAu74VFoOGW/0RNzHv2INY=", ""),
            ("x/ER56YFhXMdwWfLqLMbVO5Y8YI=", ""),
            ("cnci9BVwULWxDkiClPecFfl0tlU=", "x=1"),
        ] {
            for url in ["wss://bridge.example.com", "https://bridge.example.com/"] {
                assert!(check(url).is_valid(signature, "/twilio", query), "{signature}");
            }
            assert!(!check("wss://other.example.com").is_valid(signature, "/twilio", query));
            assert!(!check("wss://bridge.example.com").is_valid(signature, "/other", query));
        }
    }

    #[test]
    fn invalid_signatures_and_urls_are_rejected() {
        for signature in ["", "?", "AAAA", "myfaRchFcOV9R7UNMsbeBhTuSQ==", "MyfaRchFcOV9R7UNMsbeBhTuSQI="] {
            assert!(!check("wss://bridge.example.com").is_valid(signature, "/twilio", ""), "{signature}");
        }
        for url in ["", "bridge.example.com", "wss://", "wss://a/b", "wss://user@a"] {
            assert!(SignatureCheck::new(&Secret::new("12345"), url).is_err(), "{url}");
        }
    }
}
