//! Who may in, and how much, as the configuration says it: read, checked, and what an operator should be warned of.

use std::{
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::Config;
use crate::{
    mapping::check::LONGEST_MS,
    secret::shown_url,
    server::{
        access::{
            Access, Limits,
            address::{Proxies, ProxyHeader},
            keys::{KEYS_MAX, Keys},
            origin::Origins,
        },
        tls::Acceptor,
    },
};

/// `[access]`: who may in.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessConfig {
    /// File of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<PathBuf>,
    /// Whether who shows no key is refused; yes as soon as there is a file of keys.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Query parameter a key may stand in; none unless named, for URLs end up in logs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub query_parameter: Option<String>,
    /// Origins browsers may come from; any unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<String>>,
    /// Networks of proxies that say for whom they speak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<String>,
    /// The header in which they say it; `x-forwarded-for` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_header: Option<ProxyHeader>,
}

/// `[limits]`: how much.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Sessions of one address at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sessions_per_address: Option<usize>,
    /// Connections that are not upgraded yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections_max: Option<usize>,
    /// Time for TLS, the request and the upgrade together, ms.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handshake_timeout_ms: Option<u64>,
    /// Time of a session, ms; 0 for as long as it likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_max_ms: Option<u64>,
    /// Length of a message, bytes; the protocol's own where that is less.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_max_bytes: Option<usize>,
}

impl AccessConfig {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All of it, found, read and checked.
    ///
    /// # Errors
    /// What is wrong, in words without secrets.
    pub(super) fn access(&self) -> Result<Access, String> {
        let bad = |name: &'static str| move |problem: String| format!("access.{name}: {problem}");
        if self.required == Some(true) && self.keys.is_none() {
            return Err(
                "access.required: nobody could show a key, for `keys` names no file of them".to_owned()
            );
        }
        if self.query_parameter.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err("access.query_parameter: it is empty; a name such as \"api_key\" is meant".to_owned());
        }
        let proxies = Proxies::new(&self.trusted_proxies, self.proxy_header.unwrap_or_default());
        Ok(Access {
            keys: self.keys.as_deref().map(read).transpose().map_err(bad("keys"))?,
            required: self.required.unwrap_or(self.keys.is_some()),
            query_parameter: self.query_parameter.clone(),
            origins: Origins::new(self.origins.as_deref()).map_err(bad("origins"))?,
            proxies: proxies.map_err(bad("trusted_proxies"))?,
        })
    }
}

/// A file of keys is no longer than this, bytes: ten times what the most keys need.
const KEYS_MAX_BYTES: u64 = 16 << 20;

fn read(path: &Path) -> Result<Keys, String> {
    let source = source(path)?;
    Keys::parse(&path.display().to_string(), &source, super::env).map_err(|problem| problem.to_string())
}

/// The text of a file of keys, if it is no longer than it may be.
pub(super) fn source(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let bad = |error: std::io::Error| format!("{name}: {error}");
    let mut source = String::new();
    let file = fs::File::open(path).map_err(bad)?;
    let read = file.take(KEYS_MAX_BYTES + 1).read_to_string(&mut source).map_err(bad)?;
    if read as u64 > KEYS_MAX_BYTES {
        return Err(format!(
            "{name}: it is longer than {KEYS_MAX_BYTES} bytes; it holds at most {KEYS_MAX} keys"
        ));
    }
    Ok(source)
}

impl LimitsConfig {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// All of it, checked.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn limits(&self) -> Result<Limits, String> {
        let counts = [
            ("sessions_per_address", self.sessions_per_address),
            ("connections_max", self.connections_max),
            ("message_max_bytes", self.message_max_bytes),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            return Err(format!("limits.{name}: must be 1 or more; leave it out for no such limit"));
        }
        if self.handshake_timeout_ms.is_some_and(|ms| !(100..=600_000).contains(&ms)) {
            return Err("limits.handshake_timeout_ms: must be 100 to 600000".to_owned());
        }
        if self.session_max_ms.is_some_and(|ms| ms > LONGEST_MS) {
            return Err(format!("limits.session_max_ms: must be 0 for no limit, or at most {LONGEST_MS}"));
        }
        Ok(Limits {
            sessions_per_address: self.sessions_per_address,
            connections_max: self.connections_max.unwrap_or(Limits::CONNECTIONS),
            handshake: self.handshake_timeout_ms.map_or(Limits::HANDSHAKE, Duration::from_millis),
            session_max_ms: self.session_max_ms.unwrap_or_default(),
            message_max_bytes: self.message_max_bytes,
        })
    }
}

impl Config {
    /// How clients are encrypted.
    pub(super) fn acceptor(&self) -> Result<Option<Acceptor>, String> {
        let bad = |problem: String| format!("tls: {problem}");
        self.tls.files().map_err(bad)?.map(|files| Acceptor::load(files).map_err(bad)).transpose()
    }

    /// What an operator should know before it is served, a line each.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        let tokens = self.upstream.iter().filter_map(|upstream| upstream.token_file.as_ref());
        let keys = self.upstream.iter().filter_map(|upstream| upstream.client_key.as_ref());
        let secret = self.access.keys.iter().chain(&self.tls.key).chain(tokens).chain(keys);
        let loose = secret.filter(|path| is_readable_by_others(path)).map(|path| {
            format!("{}: others than its owner can read it, and it holds secrets (chmod 600)", path.display())
        });
        let open = self.is_open().then(|| {
            "clients from everywhere are served without TLS and without keys; see [tls] and [access]"
                .to_owned()
        });
        let plain = self.upstream.iter().filter(|upstream| upstream.has_token() && !upstream.is_private());
        let plain = plain.map(|upstream| {
            format!(
                "upstream {}: its token goes over the network unencrypted; use wss://",
                shown_url(&upstream.url)
            )
        });
        loose.chain(open).chain(plain).collect()
    }

    /// It listens beyond this machine, to anybody, unencrypted.
    fn is_open(&self) -> bool {
        let listen = self.listen.as_deref().unwrap_or(super::DEFAULT_LISTEN);
        let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        !is_this_machine(host) && self.tls.is_empty() && self.access.keys.is_none()
    }
}

/// Whether what is sent there stays on this machine.
pub(super) fn is_this_machine(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_readable_by_others(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(toml: &str) -> Config {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn mistakes_say_what_would_have_been_right() {
        for (toml, words) in [
            ("[access]\nrequired = true", "`keys` names no file"),
            ("[access]\nkeys = \"/nowhere.toml\"", "access.keys: /nowhere.toml: "),
            ("[access]\nquery_parameter = \"\"", "such as \"api_key\""),
            ("[access]\norigins = [\"app.example.com\"]", "access.origins: \"app.example.com\" is no origin"),
            ("[access]\ntrusted_proxies = [\"10.0.0.0/33\"]", "\"10.0.0.0/8\""),
            ("[limits]\nsessions_per_address = 0", "limits.sessions_per_address: must be 1"),
            ("[limits]\nhandshake_timeout_ms = 5", "100 to 600000"),
            ("[limits]\nsession_max_ms = 86400001", "at most 86400000"),
            ("[tls]\nkey = \"k.pem\"", "tls: `cert` is missing"),
            ("[tls]\ncert = \"c.pem\"", "tls: `key` is missing"),
            ("[tls]\ncert = \"/nowhere.pem\"\nkey = \"/k.pem\"", "tls: /nowhere.pem: "),
            ("[tls]\ncert = \"c\"\nkey = \"k\"\nclient_certs = \"optional\"", "needs a `client_ca`"),
        ] {
            let problem = config(toml).check().unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
        assert_eq!(config("[access]\norigins = []\n[limits]\nsession_max_ms = 0").check(), Ok(()));
    }

    #[test]
    fn who_serves_everybody_is_warned() {
        let warned = |toml: &str| !config(toml).warnings().is_empty();
        assert!(warned("listen = \"0.0.0.0:8000\"") && warned("listen = \"[::]:8000\""));
        assert!(!warned("") && !warned("listen = \"[::1]:8000\"") && !warned("listen = \"127.0.0.2:1\""));
        assert!(!warned("listen = \"0.0.0.0:8000\"\n[tls]\ncert = \"c\"\nkey = \"k\""));
        let upstream = |url: &str| format!("[[upstream]]\nurl = \"{url}\"\ntoken_env = \"T\"\n");
        assert!(warned(&upstream("ws://gpu:8006")));
        assert!(!warned(&upstream("wss://gpu:8006")) && !warned(&upstream("ws://localhost:8006")));
    }
}
