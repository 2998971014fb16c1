//! Who may in, and how much: looked at before a connection is upgraded, so that who may not costs next to nothing.
//!
//! - [`origin`] is where a browser comes from; [`address`] who is connected, behind proxies too
//! - [`credential`] finds what a request shows, [`keys`] whose it is and what that one may
//! - [`quota`] counts; [`handshakes`] bounds those who have not come so far
//!
//! Nothing here touches a socket. What a key may reach is decided before the upgrade for every protocol that the
//! connection may turn out to speak; the model stands in the query string, so nothing is left to decide later.

pub mod address;
pub mod credential;
pub(super) mod handshakes;
pub mod keys;
pub mod origin;
pub(super) mod quota;

use std::{net::IpAddr, sync::Arc, time::Duration};

use hyper::{
    HeaderMap,
    header::{HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL},
};

use self::{
    address::TrustedProxies,
    credential::{Credentials, SUBPROTOCOL},
    keys::{ApiKey, ApiKeys, KeyRejection},
    origin::AllowedOrigins,
};

/// Who may in.
#[derive(Debug, Default)]
pub struct AccessPolicy {
    /// The keys; without a file everybody may in.
    pub keys: Option<ApiKeys>,
    /// Who shows no key may not in.
    pub required: bool,
    /// A key may stand in this query parameter.
    pub query_parameter: Option<String>,
    /// Whence browsers may come.
    pub origins: AllowedOrigins,
    /// Who says whom a connection is from.
    pub proxies: TrustedProxies,
}

/// How much, beside what each key may.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Sessions of one address at a time.
    pub sessions_per_address: Option<usize>,
    /// Connections that are not upgraded yet.
    pub handshakes_max: usize,
    /// TLS, the request and the upgrade together take no longer.
    pub handshake_timeout: Duration,
    /// A session ends after so long, as soon as nobody is cut off by it; 0 for as long as it likes, ms.
    pub session_duration_max_ms: u64,
    /// A message is no longer than this, whatever its protocol allows, bytes.
    pub message_max_bytes: Option<usize>,
}

impl ClientLimits {
    /// Connections that are not upgraded yet, unless told otherwise: half of the descriptors a process mostly has.
    pub const DEFAULT_HANDSHAKES_MAX: usize = 512;
    /// Time until the upgrade, unless told otherwise.
    pub const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

    /// What holds for the sessions of a key.
    pub(super) fn for_key(mut self, key: Option<&ApiKey>) -> Self {
        let Some(key) = key else { return self };
        let durations = [self.session_duration_max_ms, key.session_duration_max_ms.unwrap_or_default()];
        self.session_duration_max_ms = durations.into_iter().filter(|ms| *ms > 0).min().unwrap_or_default();
        self.message_max_bytes = self.message_max_bytes.into_iter().chain(key.message_max_bytes).min();
        self
    }
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            sessions_per_address: None,
            handshakes_max: Self::DEFAULT_HANDSHAKES_MAX,
            handshake_timeout: Self::DEFAULT_HANDSHAKE_TIMEOUT,
            session_duration_max_ms: 0,
            message_max_bytes: None,
        }
    }
}

impl AccessPolicy {
    /// Whose connection this is.
    pub(super) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let lines = headers.get_all(self.proxies.header.name()).into_iter();
        self.proxies.client_address(peer, lines.map(HeaderValue::as_bytes))
    }

    /// Whether it may come from there. Without an `Origin` it comes from no browser, and nobody is being impersonated.
    pub(super) fn is_origin_allowed(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(ORIGIN).into_iter();
        match (lines.next(), lines.next()) {
            (None, _) => true,
            (Some(origin), None) => origin.to_str().is_ok_and(|origin| self.origins.is_allowed(origin)),
            (Some(_), Some(_)) => self.origins.is_unrestricted(),
        }
    }

    /// Whose key a request shows, or none where none is needed; `certificate_names` are those of its certificate.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        query_key: Option<&str>,
        subprotocols: &[&str],
        certificate_names: &[String],
        unix_s: u64,
    ) -> Result<Option<Arc<ApiKey>>, KeyRejection> {
        let Some(keys) = &self.keys else { return Ok(None) };
        let credentials = Credentials::from_request(headers, query_key, subprotocols);
        match keys.authenticate(credentials.iter(), certificate_names, unix_s) {
            Err(KeyRejection::Missing) if !self.required => Ok(None),
            found => found.map(Some),
        }
    }

    /// The query string without the parameter a key may stand in, and that key. Nothing behind this sees it.
    pub(super) fn extract_query_key(&self, query: &str) -> (String, Option<String>) {
        match &self.query_parameter {
            Some(parameter) => credential::split_query_parameter(query, parameter),
            None => (query.to_owned(), None),
        }
    }
}

/// Whether a client offers the subprotocol that stands beside a key in another one. It is agreed to in place of that one,
/// which would send the key back.
pub(super) fn has_own_subprotocol(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(SEC_WEBSOCKET_PROTOCOL).into_iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|name| name.trim() == SUBPROTOCOL)
}
