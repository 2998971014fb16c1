//! Which tool servers clients may name: patterns of URLs, and never an inner address.
//!
//! A client must not make voxbridge call hosts that it cannot reach itself. So an address of an inner network is refused after the name
//! is resolved (`inner_addresses`), unless a pattern names that very address.

use std::net::IpAddr;

use hyper::Uri;

use crate::{net::http_request::websocket_uri, server::route::matches_glob};

/// URLs of tool servers that clients may name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AllowedServers(Vec<UrlPattern>);

/// Pattern of URLs. Each part is matched on its own, so that a wildcard never reaches into another part.
#[derive(Debug, Clone, PartialEq, Eq)]
struct UrlPattern {
    is_secure: bool,
    host: String,
    /// `*` for any.
    port: String,
    path: String,
}

/// Server that a client may name.
pub(super) struct AllowedServer {
    pub(super) uri: Uri,
    /// The pattern names its address, which may be an inner one.
    pub(super) is_named: bool,
}

impl AllowedServers {
    /// The patterns `scheme://host[:port][/path]`. `*` in the host, the path or as the port stands for any characters.
    ///
    /// # Errors
    /// The malformed pattern, with an example of a good one.
    pub fn new(patterns: &[String]) -> Result<Self, String> {
        let read = |pattern: &String| {
            UrlPattern::read(pattern).ok_or_else(|| {
                format!("invalid pattern {pattern:?}; it looks like \"https://*.example.com/mcp*\"")
            })
        };
        patterns.iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// True if no server is allowed.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks a URL.
    ///
    /// # Errors
    /// Why it is refused, without its secrets.
    pub(super) fn check(&self, url: &str) -> Result<AllowedServer, String> {
        let uri = websocket_uri(url)?;
        let authority = uri.authority().ok_or("the URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("credentials in a URL are not accepted; use `authorization` or `headers`".to_owned());
        }
        let is_step = |part: &str| part.to_ascii_lowercase().replace("%2e", ".") == "..";
        if uri.path().split(['/', '\\']).any(is_step) {
            return Err("a path with `..` is not accepted".to_owned());
        }
        let host = bare_host(authority.host()).to_ascii_lowercase();
        let is_secure = uri.scheme_str() == Some("wss");
        let port = authority.port_u16().unwrap_or(default_port(is_secure));
        let matching = self.0.iter().filter(|pattern| {
            pattern.is_secure == is_secure
                && matches_glob(&pattern.host, &host)
                && (pattern.port == "*" || pattern.port == port.to_string())
                && matches_glob(&pattern.path, uri.path())
        });
        let mut patterns = matching.peekable();
        if patterns.peek().is_none() {
            return Err("the operator allows no tool server at this URL (access.tool_servers)".to_owned());
        }
        let is_named = patterns.any(|pattern| pattern.host == host && is_address(&host));
        Ok(AllowedServer { uri, is_named })
    }
}

impl UrlPattern {
    fn read(pattern: &str) -> Option<Self> {
        let (scheme, rest) = pattern.split_once("://")?;
        let is_secure = match scheme {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) = match authority.strip_prefix('[') {
            Some(bracketed) => {
                let (host, behind) = bracketed.split_once(']')?;
                (host, behind.strip_prefix(':'))
            }
            None => authority.split_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
        };
        let is_port = |port: &str| port == "*" || port.parse::<u16>().is_ok();
        if host.is_empty() || host.contains(['@', '?', '#', '[', ']']) || !port.is_none_or(is_port) {
            return None;
        }
        Some(Self {
            is_secure,
            host: host.to_ascii_lowercase(),
            port: port.map_or_else(|| default_port(is_secure).to_string(), str::to_owned),
            path: if path.is_empty() { "*".to_owned() } else { path.to_owned() },
        })
    }
}

const fn default_port(is_secure: bool) -> u16 {
    if is_secure { 443 } else { 80 }
}

/// A host without the brackets of an IPv6 address.
fn bare_host(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// True for an address in place of a name, and for this machine's own name.
fn is_address(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_part_by_part() {
        let patterns = [
            "https://*.example.com",
            "https://tools.example.org:8443/mcp*",
            "http://127.0.0.1:*",
            "https://[::1]/mcp",
            "https://*/open",
        ];
        let allowed = AllowedServers::new(&patterns.map(str::to_owned)).unwrap();
        for (url, is_named) in [
            ("https://a.example.com/mcp", false),
            ("https://A.Example.COM:443/any?key=1", false),
            ("https://tools.example.org:8443/mcp/v1", false),
            ("http://127.0.0.1:48400/mcp", true),
            ("https://[::1]/mcp", true),
            ("https://any.where/open", false),
            // Refused when its address is looked at.
            ("https://127.0.0.1/open", false),
        ] {
            assert_eq!(allowed.check(url).map(|server| server.is_named), Ok(is_named), "{url}");
        }
        for (url, words) in [
            ("http://a.example.com/mcp", "allows no tool server"),
            ("https://a.example.com:8443/mcp", "allows no tool server"),
            ("https://evil.org/x.example.com", "allows no tool server"),
            ("https://evil.org/?.example.com", "allows no tool server"),
            ("https://tools.example.org:8443/admin", "allows no tool server"),
            ("http://127.0.0.1.evil.org/mcp", "allows no tool server"),
            ("https://a.example.com@evil.org/", "credentials"),
            ("https://evil.org\\.example.com/", "invalid URL"),
            ("https://tools.example.org:8443/mcp/%2E./admin", "`..`"),
            ("ftp://a.example.com/", "the scheme must be http"),
            ("file:///etc/passwd", "the scheme must be http"),
        ] {
            let problem = allowed.check(url).map(|_| ()).unwrap_err();
            assert!(problem.contains(words), "{url}: {problem}");
        }
    }

    #[test]
    fn malformed_patterns_are_told() {
        for pattern in [
            "example.com",
            "ws://a",
            "https://",
            "https:///mcp",
            "https://a:x",
            "https://a@b",
            "https://a?b",
            "https://[::1",
        ] {
            assert!(AllowedServers::new(&[pattern.to_owned()]).is_err(), "{pattern}");
        }
    }
}
