//! Allow-list of browser origins.
//!
//! A page of any site can make its visitor's browser open a WebSocket to any server; the same-origin policy does not
//! prevent it (cross-site WebSocket hijacking). With DNS rebinding it also reaches servers on the visitor's machine.
//! The `Origin` header, which pages cannot set, identifies the page (RFC 6455 §10.2). Programs may send any origin or
//! none: the list protects browser users and is not a credential.

use crate::server::route::matches_glob;

/// Allowed origins; all are allowed without a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedOrigins(Option<Vec<String>>);

impl AllowedOrigins {
    /// Creates a list of `scheme://host` or `scheme://host:port`. `*` matches any run of characters, `:*` any port or
    /// none. Wildcards in a port stand for digits only.
    ///
    /// # Errors
    /// The malformed entry, with an example of a valid one.
    pub fn new(list: Option<&[String]>) -> Result<Self, String> {
        let is_malformed = |origin: &&String| {
            let (scheme, host) = origin.split_once("://").unwrap_or_default();
            let is_incomplete = scheme.is_empty() || host.is_empty() || host.contains('/');
            is_incomplete && !["*", "null"].contains(&origin.as_str())
        };
        if let Some(wrong) = list.and_then(|list| list.iter().find(is_malformed)) {
            return Err(format!(
                "invalid origin {wrong:?}; it looks like \"https://app.example.com\" or \"http://localhost:*\", without a path"
            ));
        }
        Ok(Self(list.map(|list| list.iter().map(|origin| origin.to_ascii_lowercase()).collect())))
    }

    /// Checks an origin against the list.
    pub fn is_allowed(&self, origin: &str) -> bool {
        let Some(list) = &self.0 else { return true };
        let origin = origin.trim().to_ascii_lowercase();
        let (site, port) = split_port(&origin, |port| port.bytes().all(|byte| byte.is_ascii_digit()));
        list.iter().any(|known| match split_port(known, |glob| glob.contains(['*', '?'])) {
            (known_site, Some("*")) => matches_glob(known_site, site),
            (known_site, Some(glob)) => {
                matches_glob(known_site, site) && port.is_some_and(|port| matches_glob(glob, port))
            }
            (_, None) => matches_glob(known, &origin),
        })
    }

    /// True if every origin is allowed.
    pub const fn is_unrestricted(&self) -> bool {
        self.0.is_none()
    }
}

/// Splits a port off an origin or a pattern, if the text after the last colon is one.
fn split_port(origin: &str, is_port: impl Fn(&str) -> bool) -> (&str, Option<&str>) {
    match origin.rsplit_once(':') {
        Some((site, port)) if !port.is_empty() && !port.starts_with("//") && is_port(port) => {
            (site, Some(port))
        }
        _ => (origin, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_listed_origins_are_allowed() {
        let list = [
            "https://App.example.com",
            "http://localhost:*",
            "https://*.example.org",
            "http://[::1]:*",
            "http://127.0.0.1:30??",
        ];
        let list = list.map(str::to_owned);
        let origins = AllowedOrigins::new(Some(&list)).unwrap();
        for good in [
            "https://app.example.com",
            "HTTPS://APP.EXAMPLE.COM",
            "http://localhost",
            "http://localhost:5173",
            "https://a.b.example.org",
            "http://[::1]",
            "http://[::1]:80",
            "http://127.0.0.1:3000",
        ] {
            assert!(origins.is_allowed(good), "{good}");
        }
        for bad in [
            "http://app.example.com",
            "https://app.example.com:8443",
            "https://app.example.com.evil.net",
            "http://localhost.evil.net",
            "http://localhost:1.evil.com",
            "http://localhost:80:1.evil.com",
            "http://localhost:",
            "http://127.0.0.1:30ab",
            "http://127.0.0.1:30.0",
            "http://127.0.0.1",
            "https://example.org",
            "null",
            "",
        ] {
            assert!(!origins.is_allowed(bad), "{bad}");
        }
        assert!(
            !AllowedOrigins::new(Some(&[])).unwrap().is_allowed("https://app.example.com"),
            "an empty list allows no origin"
        );
        assert!(AllowedOrigins::new(None).unwrap().is_allowed("https://anywhere"));
        for wrong in ["app.example.com", "https://app.example.com/", "://x", "https://"] {
            let problem = AllowedOrigins::new(Some(&[wrong.to_owned()])).unwrap_err();
            assert!(problem.contains("looks like"), "{problem}");
        }
    }
}
