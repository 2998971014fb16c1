//! Authentication, authorisation and quotas, checked before the upgrade so that rejections are cheap.
//!
//! - [`origin`] checks the origin of a browser; [`address`] determines the client's address, also behind proxies
//! - [`credential`] extracts the credentials of a request; [`keys`] maps them to an API key and its permissions;
//!   [`client_secrets`] are short-lived substitutes for a key
//! - [`signature`] checks requests that are signed instead, such as Twilio's
//! - [`quota`] limits sessions; [`handshakes`] limits connections without a session
//!
//! This module touches no socket. Authorisation happens before the upgrade for every protocol that the connection may
//! use. The model is in the query string, so no decision remains for later.

pub mod address;
pub(super) mod client_secrets;
pub mod credential;
pub(super) mod handshakes;
pub mod keys;
pub mod origin;
pub(super) mod quota;
pub mod signature;

use std::{collections::BTreeMap, net::IpAddr, sync::Arc, time::Duration};

use hyper::{
    HeaderMap,
    header::{HeaderValue, ORIGIN, SEC_WEBSOCKET_PROTOCOL},
};

use super::{memory::MemoryBudget, tool_servers::AllowedServers};
use crate::secret::Secret;

use self::{
    address::TrustedProxies,
    client_secrets::ClientSecrets,
    credential::{KeyPlaces, SUBPROTOCOL, find_key, list_items},
    keys::{ApiKey, ApiKeys, KeyRejection},
    origin::AllowedOrigins,
    signature::SignatureCheck,
};

/// Access rules of the server.
#[derive(Debug, Default)]
pub struct AccessPolicy {
    /// API keys; without a key file, every client is admitted.
    pub keys: Option<ApiKeys>,
    /// Keys that devices get at the page where they ask for their server, by device id in lower case.
    pub device_keys: BTreeMap<String, Secret>,
    /// Rejects clients without a key.
    pub required: bool,
    /// Checks the requests of protocols that sign them; a valid signature replaces a key.
    pub signature: Option<SignatureCheck>,
    /// Query parameter that may contain a key.
    pub query_parameter: Option<String>,
    /// Allowed origins of browsers.
    pub origins: AllowedOrigins,
    /// Tool servers that clients may name.
    pub tool_servers: Arc<AllowedServers>,
    /// Proxies trusted to report the client's address.
    pub proxies: TrustedProxies,
}

/// Limits for all clients, in addition to the limits of each key.
#[derive(Debug, Clone, Copy)]
pub struct ClientLimits {
    /// Maximum number of concurrent sessions per address.
    pub sessions_per_address: Option<usize>,
    /// Maximum number of connections that are not yet upgraded.
    pub handshakes_max: usize,
    /// Maximum total time of TLS handshake, request and upgrade.
    pub handshake_timeout: Duration,
    /// Maximum duration of a session, ms; 0 means unlimited. The session ends as soon as the end interrupts no one.
    pub session_duration_max_ms: u64,
    /// Maximum size of a message regardless of its protocol, bytes.
    pub message_max_bytes: Option<usize>,
    /// Maximum memory of all messages in transit, bytes; see [`MemoryBudget`].
    pub memory_max_bytes: usize,
}

impl ClientLimits {
    /// Default limit of connections that are not yet upgraded: half of a typical process's file descriptors.
    pub const DEFAULT_HANDSHAKES_MAX: usize = 512;
    /// Default time until the upgrade.
    pub const DEFAULT_HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

    /// Returns the limits for sessions of a key.
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
            memory_max_bytes: MemoryBudget::DEFAULT_MAX_BYTES,
        }
    }
}

/// Credentials in a request.
#[derive(Clone, Copy)]
pub(super) struct Credentials<'r> {
    pub(super) headers: &'r HeaderMap,
    /// Keys in the query string.
    pub(super) query_keys: &'r [String],
    /// Where the protocols at the path expect a key.
    pub(super) places: &'r KeyPlaces<'r>,
    /// Names in the client certificate.
    pub(super) certificate_names: &'r [String],
}

/// What a signature covers of a request's URL, as the client wrote it.
#[derive(Clone, Copy)]
pub(super) struct SignedUrl<'r> {
    pub(super) path: &'r str,
    pub(super) query: &'r str,
}

impl AccessPolicy {
    /// The key of a device with this id.
    pub(super) fn device_key(&self, id: &str) -> Option<&str> {
        self.device_keys.get(&id.to_ascii_lowercase()).map(Secret::expose)
    }

    /// Determines the client's address.
    pub(super) fn client_address(&self, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
        let lines = headers.get_all(self.proxies.header.name()).into_iter();
        self.proxies.client_address(peer, lines.map(HeaderValue::as_bytes))
    }

    /// Checks the origin. A request without `Origin` does not come from a browser, so no user can be impersonated.
    pub(super) fn is_origin_allowed(&self, headers: &HeaderMap) -> bool {
        let mut lines = headers.get_all(ORIGIN).into_iter();
        match (lines.next(), lines.next()) {
            (None, _) => true,
            (Some(origin), None) => origin.to_str().is_ok_and(|origin| self.origins.is_allowed(origin)),
            (Some(_), Some(_)) => self.origins.is_unrestricted(),
        }
    }

    /// Returns the key of a request, or `None` if no key is required. `secrets` are those that count as a key.
    pub(super) fn authenticate(
        &self,
        shown: &Credentials<'_>,
        secrets: Option<&ClientSecrets>,
        unix_s: u64,
    ) -> Result<Option<Arc<ApiKey>>, KeyRejection> {
        let Some(keys) = &self.keys else { return Ok(None) };
        let key =
            find_key(shown.headers, shown.query_keys, shown.places).map_err(|_| KeyRejection::Several)?;
        let issued_to = secrets.zip(key.as_deref()).and_then(|(secrets, key)| secrets.key_of(key, unix_s));
        let authenticated = match issued_to {
            Some(Some(key)) => keys.find_current(&key, unix_s),
            Some(None) => Err(KeyRejection::Missing),
            None => keys.authenticate(key.as_deref(), shown.certificate_names, unix_s),
        };
        match authenticated {
            Err(KeyRejection::Missing) if !self.required => Ok(None),
            found => found.map(Some),
        }
    }

    /// Checks the signature of a request for this URL; `None` if signatures are not checked. Without a header or
    /// with a wrong signature, the request is not valid.
    pub(super) fn check_signature(
        &self,
        headers: &HeaderMap,
        header: &str,
        url: SignedUrl<'_>,
    ) -> Option<bool> {
        let check = self.signature.as_ref()?;
        let mut lines = headers.get_all(header).into_iter().filter_map(|line| line.to_str().ok());
        Some(match (lines.next(), lines.next()) {
            (Some(signature), None) => check.is_valid(signature, url.path, url.query),
            _ => false,
        })
    }

    /// Removes the key parameters from a query string: the configured one, and those of the protocols at the path. Returns the
    /// rest and the keys. Later code never sees a key.
    pub(super) fn extract_query_keys(&self, query: &str, places: &KeyPlaces<'_>) -> (String, Vec<String>) {
        let parameters = self.query_parameter.as_deref().into_iter().chain(places.parameters.iter().copied());
        parameters.fold((query.to_owned(), Vec::new()), |(query, mut keys), parameter| {
            let (rest, found) = credential::split_query_parameter(&query, parameter);
            keys.extend(found);
            (rest, keys)
        })
    }
}

/// True if the client offers the subprotocol `voxbridge`. The server selects it instead of the subprotocol with the
/// key, which would send the key back.
pub(super) fn has_own_subprotocol(headers: &HeaderMap) -> bool {
    list_items(headers, SEC_WEBSOCKET_PROTOCOL).any(|name| name == SUBPROTOCOL)
}
