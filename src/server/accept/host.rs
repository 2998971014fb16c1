//! The host that a request names, and the page that it comes from.

use std::{net::IpAddr, sync::Once};

use hyper::header::{HOST, HeaderMap, ORIGIN};
use tracing::warn;

use super::http_error::{HttpError, HttpResult};
use crate::{server::ServiceConfig, telemetry::metrics::RejectReason};

/// Warns once about requests that may have come from a proxy that the configuration does not name.
static LOCAL_HOST_WARNING: Once = Once::new();

/// A host and perhaps its port (RFC 3986 §3.2.2, §3.2.3).
#[derive(Debug, PartialEq, Eq)]
struct Host<'h> {
    /// A name or an address, without brackets.
    name: &'h str,
    port: &'h str,
}

impl<'h> Host<'h> {
    /// Parses a host; `None` if it is malformed.
    fn parse(text: &'h str) -> Option<Self> {
        let (name, rest) = match text.strip_prefix('[') {
            Some(bracketed) => {
                let (name, rest) = bracketed.split_once(']')?;
                name.parse::<std::net::Ipv6Addr>().ok()?;
                (name, rest)
            }
            None => {
                let (name, rest) = text.split_at(text.find(':').unwrap_or(text.len()));
                let is_allowed =
                    |letter: u8| letter.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=".contains(&letter);
                if !name.bytes().all(is_allowed) {
                    return None;
                }
                (name, rest)
            }
        };
        let port = if rest.is_empty() { "" } else { rest.strip_prefix(':')? };
        let is_port = port.is_empty()
            || (port.bytes().all(|digit| digit.is_ascii_digit()) && port.parse::<u16>().is_ok());
        is_port.then_some(Self { name, port })
    }

    /// The host of a page's origin.
    fn of_origin(origin: &'h str) -> Option<Self> {
        Self::parse(origin.split_once("://")?.1).filter(|host| !host.name.is_empty())
    }

    fn ip(&self) -> Option<IpAddr> {
        self.name.parse().ok()
    }

    /// True if no other site can have this host: a site can point a name here (DNS rebinding), but not an address.
    fn is_address_or_localhost(&self) -> bool {
        self.ip().is_some() || self.is_this_machine()
    }

    /// True for a name that no public site can have: one without a dot, or below a name for private networks (RFC 6761, RFC 6762,
    /// RFC 8375).
    fn is_private_name(&self) -> bool {
        let name = self.name.trim_end_matches('.').to_ascii_lowercase();
        let zones = [".localhost", ".localdomain", ".local", ".internal", ".lan", ".home.arpa", ".test"];
        !name.contains('.') || zones.iter().any(|zone| name.ends_with(zone))
    }

    fn is_this_machine(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        name == "localhost" || name.ends_with(".localhost") || self.ip().is_some_and(|ip| ip.is_loopback())
    }
}

/// The host that a request names.
pub(in crate::server) fn host(headers: &HeaderMap) -> Option<&str> {
    headers.get(HOST)?.to_str().ok()
}

/// Rejects requests with several or malformed `Host` headers: a proxy in front may have read another host (RFC 9112 §3.2).
pub(in crate::server) fn check_host_header(headers: &HeaderMap) -> HttpResult<()> {
    let count = headers.get_all(HOST).iter().count();
    if count > 1 {
        return Err(HttpError::bad_request(&format!("The request has {count} host headers; send one")));
    }
    let is_well_formed = count == 0 || host(headers).is_some_and(|host| Host::parse(host).is_some());
    is_well_formed.then_some(()).ok_or_else(|| {
        HttpError::bad_request(
            "The Host header is malformed; it must be a host name or an address, and perhaps a port",
        )
    })
}

/// Without keys, the playground is for this machine. Rejects other host names, because another site could point its name here.
pub(in crate::server) fn check_playground_host(
    config: &ServiceConfig,
    headers: &HeaderMap,
) -> HttpResult<()> {
    let host = host(headers).and_then(Host::parse);
    if config.access.keys.is_some() || host.is_some_and(|host| host.is_address_or_localhost()) {
        return Ok(());
    }
    let message = "Without API keys, the playground is served at localhost only";
    Err(HttpError::forbidden(RejectReason::Origin, "host_not_allowed", message))
}

/// True if the page that sent the request, if any, may use REST. Without keys and without a list of origins, only pages of this
/// machine and of the server's own address may. Programs send no `Origin`.
pub(in crate::server) fn may_page_use_rest(config: &ServiceConfig, headers: &HeaderMap) -> bool {
    let access = &config.access;
    if !access.is_origin_allowed(headers) {
        return false;
    }
    has_rule(config)
        || headers.get_all(ORIGIN).iter().all(|origin| {
            let page = origin.to_str().ok().and_then(Host::of_origin);
            let own = host(headers).and_then(Host::parse);
            page.is_some_and(|page| {
                page.is_this_machine() || (page.is_address_or_localhost() && own.as_ref() == Some(&page))
            })
        })
}

/// True if the configuration restricts requests to some origins or keys.
fn has_rule(config: &ServiceConfig) -> bool {
    let access = &config.access;
    !access.origins.is_unrestricted() || (access.keys.is_some() && access.required)
}

/// Rejects requests from this machine that name a public site as their host, unless [`has_rule`] restricts requests. A site can
/// point its name to this machine (DNS rebinding), and a browser sends no `Origin` with a GET of such a page. A trusted proxy
/// passes on its own public name, so it is exempt.
pub(in crate::server) fn check_local_host(
    config: &ServiceConfig,
    headers: &HeaderMap,
    peer: IpAddr,
) -> HttpResult<()> {
    let peer = peer.to_canonical();
    if has_rule(config) || !peer.is_loopback() || config.access.proxies.is_trusted(peer) {
        return Ok(());
    }
    let Some(named) = host(headers).and_then(Host::parse) else { return Ok(()) };
    if named.is_address_or_localhost() || named.is_private_name() {
        return Ok(());
    }
    LOCAL_HOST_WARNING.call_once(|| {
        warn!(
            host = named.name,
            "rejected: REST from this machine with a public host; name a proxy on this machine in [access] trusted_proxies"
        );
    });
    let message = format!(
        "Requests from this machine must not name the host {}; use localhost. A proxy on this machine belongs into \
         [access] trusted_proxies",
        named.name
    );
    Err(HttpError::forbidden(RejectReason::Origin, "host_not_allowed", &message))
}

/// Rejects requests of pages that may not use REST.
pub(in crate::server) fn check_page(config: &ServiceConfig, headers: &HeaderMap) -> HttpResult<()> {
    if may_page_use_rest(config, headers) {
        return Ok(());
    }
    let message = "Pages of this Origin may not use REST; list it in [access] origins";
    Err(HttpError::forbidden(RejectReason::Origin, "origin_not_allowed", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_hosts_are_told_from_hosts() {
        for good in ["x", "localhost:8000", "127.0.0.1", "[::1]:80", "a_b.example", "x:", ""] {
            assert!(Host::parse(good).is_some(), "{good}");
        }
        for bad in
            ["a b", "host:1:2", "host:port", "x:70000", "[::1", "[x]", "[::1]80", "u@x", "x/y", "::1", "x:+1"]
        {
            assert_eq!(Host::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn public_names_are_distinguished_from_private_ones() {
        let is_private = |name| Host::parse(name).is_some_and(|host| host.is_private_name());
        for private in ["x", "", "localhost", "voice.local", "a.b.internal:80", "nas.home.arpa."] {
            assert!(is_private(private), "{private}");
        }
        for public in ["evil.example", "localhost.evil.example", "local.com", "xlocal.org:80"] {
            assert!(!is_private(public), "{public}");
        }
    }

    #[test]
    fn pages_of_this_machine_are_known_by_their_origin() {
        let is_local = |origin| Host::of_origin(origin).is_some_and(|host| host.is_this_machine());
        for good in [
            "http://localhost:5173",
            "https://app.localhost",
            "http://127.0.0.1",
            "http://[::1]:3000",
            "tauri://localhost",
        ] {
            assert!(is_local(good), "{good}");
        }
        for bad in [
            "null",
            "",
            "https://evil.example",
            "http://localhost.evil.example",
            "http://10.0.0.7",
            "file://",
        ] {
            assert!(!is_local(bad), "{bad}");
        }
    }
}
