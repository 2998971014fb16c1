//! Authentication at the admin listener.
//!
//! Beyond the local machine, a token or a client certificate is required, except for `/healthz` and `/readyz`:
//! container probes have no secrets. Probes need a TLS handshake without a certificate. With a token, `client_ca`
//! therefore makes certificates optional. Without a token it makes them required, unless `client_certs = "optional"`;
//! that opens only the two probe endpoints.
//!
//! On the local machine the token may be absent, but any web page can send requests through a browser. Requests with a
//! foreign `Origin` are rejected. So are requests for a host name that is not this machine's, because a page can rebind
//! its own name to this machine (DNS rebinding).

use std::net::{IpAddr, SocketAddr};

use hyper::{
    StatusCode,
    header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN},
};

use crate::secret::Secret;

/// Header in which a browser reports the relation of the requesting site.
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Properties of an admin connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AdminPeer {
    /// True if the client presented a certificate signed by the listener's authorities.
    pub has_certificate: bool,
}

/// Authentication required by the admin listener.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AdminAuth {
    /// Required token.
    pub token: Option<Secret>,
    /// Accepts a client certificate instead of the token.
    pub accepts_certificates: bool,
    /// Additional host names of this machine.
    pub hosts: Vec<String>,
}

/// Reason and HTTP status of a rejection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AuthFailure {
    pub(super) status: StatusCode,
    pub(super) code: &'static str,
    pub(super) message: String,
}

impl AdminAuth {
    /// True if no authentication is required.
    pub const fn is_open(&self) -> bool {
        self.token.is_none() && !self.accepts_certificates
    }

    /// Authorizes a request for a protected endpoint.
    pub(super) fn authorize(&self, headers: &HeaderMap, peer: AdminPeer) -> Result<(), AuthFailure> {
        reject_repeated_headers(headers)?;
        self.reject_foreign_browser(headers)?;
        if self.is_open() || (self.accepts_certificates && peer.has_certificate) {
            return Ok(());
        }
        let sent = header_text(headers, &AUTHORIZATION).and_then(bearer_token);
        match (&self.token, sent) {
            (Some(token), Some(sent)) if token.matches(sent) => Ok(()),
            (Some(_), _) => Err(AuthFailure {
                status: StatusCode::UNAUTHORIZED,
                code: "unauthorized",
                message: "the admin token is required: `Authorization: Bearer TOKEN`".to_owned(),
            }),
            (None, _) => Err(AuthFailure {
                status: StatusCode::FORBIDDEN,
                code: "certificate_needed",
                message: "a client certificate signed by the admin listener's `client_ca` is required"
                    .to_owned(),
            }),
        }
    }

    fn reject_foreign_browser(&self, headers: &HeaderMap) -> Result<(), AuthFailure> {
        let forbidden =
            |code, message: String| Err(AuthFailure { status: StatusCode::FORBIDDEN, code, message });
        let host = header_text(headers, &HOST).unwrap_or_default();
        let is_own_origin =
            |origin: &str| origin.split_once("://").is_some_and(|(_, authority)| authority == host);
        let is_foreign = header_text(headers, &ORIGIN).is_some_and(|origin| !is_own_origin(origin))
            || header_text(headers, &SEC_FETCH_SITE)
                .is_some_and(|site| !["same-origin", "none"].contains(&site));
        if is_foreign {
            return forbidden(
                "foreign_origin",
                "requests from web pages of another origin are rejected".to_owned(),
            );
        }
        // A request with the token cannot come from a foreign page.
        if self.is_open() && !host.is_empty() && !self.is_known_host(host) {
            let message = format!(
                "{host:?} is not a known host name of this machine; use localhost or 127.0.0.1, or add the name \
                 to `hosts` in [admin]"
            );
            return forbidden("unknown_host", message);
        }
        Ok(())
    }

    fn is_known_host(&self, host: &str) -> bool {
        let name = strip_port(host);
        let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
        address.is_ok_and(|address| address.is_loopback())
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

/// Rejects a request in which a header occurs repeatedly that decides on access: a proxy in front may have looked at
/// another one.
fn reject_repeated_headers(headers: &HeaderMap) -> Result<(), AuthFailure> {
    let is_repeated = |name: &&HeaderName| headers.get_all(*name).iter().nth(1).is_some();
    match [HOST, AUTHORIZATION, ORIGIN].iter().find(is_repeated) {
        Some(name) => Err(AuthFailure {
            status: StatusCode::BAD_REQUEST,
            code: "repeated_header",
            message: format!("the request has several {name} headers; send one"),
        }),
        None => Ok(()),
    }
}

fn header_text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    // A value that is not text matches no name or token.
    headers.get(name).map(|value| value.to_str().unwrap_or("\u{fffd}"))
}

/// Extracts a bearer token; the scheme is case-insensitive (RFC 9110 §11.1).
fn bearer_token(value: &str) -> Option<&str> {
    let (scheme, token) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn strip_port(host: &str) -> &str {
    match host.parse::<SocketAddr>() {
        Ok(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
        // Colons inside the brackets belong to the address.
        Err(_) if host.ends_with(']') => host,
        Err(_) => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        headers
    }

    fn rejection_code(auth: &AdminAuth, pairs: &[(&'static str, &'static str)]) -> &'static str {
        auth.authorize(&headers(pairs), AdminPeer::default()).err().map_or("", |failure| failure.code)
    }

    #[test]
    fn loopback_and_configured_hosts_are_known_others_are_rejected() {
        let auth = AdminAuth { hosts: vec!["box.lan".to_owned()], ..AdminAuth::default() };
        for known in
            ["localhost:9000", "LOCALHOST", "127.0.0.1:9000", "127.8.9.1", "[::1]:9000", "[::1]", "box.lan:1"]
        {
            assert_eq!(rejection_code(&auth, &[("host", known)]), "", "{known}");
        }
        for unknown in
            ["evil.example", "localhost.evil.example:9000", "10.0.0.1:9000", "[::2]:1", "127.0.0.1.nip.io"]
        {
            assert_eq!(rejection_code(&auth, &[("host", unknown)]), "unknown_host", "{unknown}");
        }
        assert_eq!(rejection_code(&auth, &[]), "", "HTTP/1.0 has no host, and browsers do not use it");
    }

    #[test]
    fn repeated_header_that_decides_on_access_is_rejected() {
        let auth = AdminAuth { token: Some(Secret::new("hunter2")), ..AdminAuth::default() };
        let token = ("authorization", "Bearer hunter2");
        let host = ("host", "localhost:9000");
        assert_eq!(rejection_code(&auth, &[host, token]), "");
        for pairs in
            [&[host, token, ("host", "evil.example")][..], &[host, token, ("authorization", "Bearer x")]]
        {
            assert_eq!(rejection_code(&auth, pairs), "repeated_header", "{pairs:?}");
        }
    }

    #[test]
    fn request_from_foreign_origin_is_rejected() {
        let auth = AdminAuth::default();
        let with = |name, value| rejection_code(&auth, &[("host", "localhost:9000"), (name, value)]);
        assert_eq!(with("origin", "http://localhost:9000"), "");
        for foreign in ["http://evil.example", "null", "http://localhost:9001", "localhost:9000"] {
            assert_eq!(with("origin", foreign), "foreign_origin", "{foreign}");
        }
        assert_eq!(
            (with("sec-fetch-site", "none"), with("sec-fetch-site", "cross-site")),
            ("", "foreign_origin")
        );
    }

    #[test]
    fn token_is_required_whatever_the_host_name() {
        let auth = AdminAuth { token: Some(Secret::new("hunter2")), ..AdminAuth::default() };
        let with = |value| rejection_code(&auth, &[("host", "far.example"), ("authorization", value)]);
        assert_eq!((with("Bearer hunter2"), with("bearer  hunter2 ")), ("", ""));
        for wrong in ["Bearer hunter", "Basic hunter2", "hunter2", "Bearer"] {
            assert_eq!(with(wrong), "unauthorized", "{wrong}");
        }
        assert_eq!(rejection_code(&auth, &[]), "unauthorized");
    }

    #[test]
    fn client_certificate_replaces_token_when_accepted() {
        let peer = AdminPeer { has_certificate: true };
        let auth = AdminAuth { accepts_certificates: true, ..AdminAuth::default() };
        assert_eq!(auth.authorize(&HeaderMap::new(), peer), Ok(()));
        assert_eq!(rejection_code(&auth, &[]), "certificate_needed");
        let auth = AdminAuth { token: Some(Secret::new("x")), ..AdminAuth::default() };
        assert!(
            auth.authorize(&HeaderMap::new(), peer).is_err(),
            "the listener does not accept certificates"
        );
    }
}
