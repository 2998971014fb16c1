//! Access configuration: client authentication and limits, and the security warnings for the operator.

use std::{
    collections::BTreeMap,
    fs,
    io::Read as _,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use super::{Config, problems::ConfigProblems};
use crate::{
    secret::{Secret, redacted_url},
    server::{
        access::{
            AccessPolicy, ClientLimits,
            address::{ProxyHeader, TrustedProxies},
            keys::{ApiKeys, KEYS_MAX},
            origin::AllowedOrigins,
            signature::SignatureCheck,
        },
        memory::MemoryBudget,
        tls::{ClientCerts, ReloadableAcceptor},
        tool_servers::{self, AllowedServers},
    },
    spelling::check::MAX_MS,
};

/// `[access]`: client authentication.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessConfig {
    /// File of API keys.
    pub keys: Option<PathBuf>,
    /// File of keys that devices get at the page where they ask for their server: a key by device id.
    pub device_keys: Option<PathBuf>,
    /// Rejects clients without a key. Defaults to true if `keys` is set.
    pub required: Option<bool>,
    /// Query parameter that may carry a key. None by default, because URLs end up in logs.
    pub query_parameter: Option<String>,
    /// Checks the requests of protocols that sign them, such as Twilio's.
    pub signature: Option<SignatureConfig>,
    /// Allowed `Origin`s of browsers; any by default.
    pub origins: Option<Vec<String>>,
    /// Patterns of the URLs of tool servers that clients of OpenAI's Realtime may name, such as `https://*.example.com/*`; none by
    /// default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_servers: Vec<String>,
    /// Networks of proxies that may name the client's address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trusted_proxies: Vec<String>,
    /// Header in which these proxies name the client; `x-forwarded-for` by default.
    pub proxy_header: Option<ProxyHeader>,
}

/// `[access.signature]`: the account whose requests are admitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SignatureConfig {
    /// File with the account's token.
    pub token_file: Option<PathBuf>,
    /// Environment variable with the account's token.
    pub token_env: Option<String>,
    /// Beginning of the URLs that the account calls, such as `wss://calls.example.com`.
    pub public_url: String,
}

impl SignatureConfig {
    fn build(&self) -> Result<SignatureCheck, String> {
        let token = super::read_token(self.token_file.as_deref(), self.token_env.as_deref())?
            .ok_or("needs the account's token: set `token_file` or `token_env`")?;
        SignatureCheck::new(&token, &self.public_url).map_err(|problem| format!("public_url: {problem}"))
    }
}

/// `[limits]`: limits for clients.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LimitsConfig {
    /// Concurrent sessions per client address.
    pub sessions_per_address: Option<usize>,
    /// Connections that are not upgraded yet.
    pub handshakes_max: Option<usize>,
    /// Time for TLS, the request and the upgrade together, in ms.
    pub handshake_timeout_ms: Option<u64>,
    /// Longest session in ms; 0 for no limit. Speech in progress gets at most 25 s more to finish.
    pub session_duration_max_ms: Option<u64>,
    /// Longest message in bytes; the protocol's own limit applies where it is lower.
    pub message_max_bytes: Option<usize>,
    /// Memory of all messages that are not sent or not read to their end, in bytes, beyond 128 KiB per connection. A
    /// connection that would exceed it is closed with code 1013.
    pub memory_max_bytes: Option<usize>,
}

impl AccessConfig {
    /// Reads and checks the section. `has_client_ca` means that clients are asked for certificates.
    ///
    /// # Errors
    /// A message without secrets.
    pub(super) fn build(&self, has_client_ca: bool) -> Result<AccessPolicy, String> {
        let bad = |name: &'static str| move |problem: String| format!("access.{name}: {problem}");
        if self.required == Some(true) && self.keys.is_none() {
            return Err("access.required: needs `keys`, the file of API keys".to_owned());
        }
        if self.query_parameter.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(
                "access.query_parameter: must not be empty; use a name such as \"api_key\"".to_owned()
            );
        }
        let keys = self.keys.as_deref().map(read_keys).transpose().map_err(bad("keys"))?;
        if let Some(key) =
            keys.iter().flat_map(ApiKeys::iter).find(|key| key.has_certificate() && !has_client_ca)
        {
            return Err(format!(
                "access.keys: [[key]] {:?} has a `certificate_name`, but clients are asked for no certificate: [tls] has no \
                 `client_ca`",
                key.name
            ));
        }
        let proxies = TrustedProxies::new(&self.trusted_proxies, self.proxy_header.unwrap_or_default());
        Ok(AccessPolicy {
            device_keys: self
                .device_keys
                .as_deref()
                .map(read_device_keys)
                .transpose()
                .map_err(bad("device_keys"))?
                .unwrap_or_default(),
            keys,
            required: self.required.unwrap_or(self.keys.is_some()),
            query_parameter: self.query_parameter.clone(),
            signature: self
                .signature
                .as_ref()
                .map(SignatureConfig::build)
                .transpose()
                .map_err(bad("signature"))?,
            tool_servers: self.allowed_servers().map_err(bad("tool_servers"))?.into(),
            origins: AllowedOrigins::new(self.origins.as_deref()).map_err(bad("origins"))?,
            proxies: proxies.map_err(bad("trusted_proxies"))?,
        })
    }
}

impl AccessConfig {
    /// The tool servers that clients may name.
    fn allowed_servers(&self) -> Result<AllowedServers, String> {
        if !self.tool_servers.is_empty() {
            tool_servers::check()?;
        }
        AllowedServers::new(&self.tool_servers)
    }
}

/// Largest accepted key file in bytes: ten times the size of a file with [`KEYS_MAX`] keys.
const KEYS_MAX_BYTES: u64 = 16 << 20;

fn read_keys(path: &Path) -> Result<ApiKeys, String> {
    let source = read_key_file(path)?;
    ApiKeys::parse(&path.display().to_string(), &source, super::env_var)
        .map_err(|problem| problem.to_string())
}

/// Reads a file of keys by device id. Ids are compared in lower case.
fn read_device_keys(path: &Path) -> Result<BTreeMap<String, Secret>, String> {
    let keys: BTreeMap<String, Secret> = toml::from_str(&read_key_file(path)?).map_err(|_| {
        // The parser's own words may quote a key.
        format!("{}: expected lines such as \"aa:bb:cc:dd:ee:ff\" = \"KEY\"", path.display())
    })?;
    let mut known = BTreeMap::new();
    for (id, key) in keys {
        if id.trim().is_empty() || known.insert(id.to_ascii_lowercase(), key).is_some() {
            return Err(format!("{}: the device {id:?} has no id, or stands there twice", path.display()));
        }
    }
    Ok(known)
}

/// Reads a key file of at most [`KEYS_MAX_BYTES`].
pub(super) fn read_key_file(path: &Path) -> Result<String, String> {
    let name = path.display().to_string();
    let bad = |error: std::io::Error| format!("{name}: {error}");
    let mut source = String::new();
    let file = fs::File::open(path).map_err(bad)?;
    let read = file.take(KEYS_MAX_BYTES + 1).read_to_string(&mut source).map_err(bad)?;
    if read as u64 > KEYS_MAX_BYTES {
        return Err(format!(
            "{name}: the file is longer than {KEYS_MAX_BYTES} bytes; a key file holds at most {KEYS_MAX} keys"
        ));
    }
    Ok(source)
}

impl LimitsConfig {
    /// Checks the section.
    ///
    /// # Errors
    /// A message that names the key.
    pub(super) fn build(&self) -> Result<ClientLimits, String> {
        let counts = [
            ("sessions_per_address", self.sessions_per_address),
            ("handshakes_max", self.handshakes_max),
            ("message_max_bytes", self.message_max_bytes),
            ("memory_max_bytes", self.memory_max_bytes),
        ];
        if let Some((name, _)) = counts.iter().find(|(_, count)| *count == Some(0)) {
            return Err(format!("limits.{name}: must be 1 or more; leave it out for no limit"));
        }
        if self.handshake_timeout_ms.is_some_and(|ms| !(100..=600_000).contains(&ms)) {
            return Err("limits.handshake_timeout_ms: must be 100 to 600000".to_owned());
        }
        if self.session_duration_max_ms.is_some_and(|ms| ms > MAX_MS) {
            return Err(format!(
                "limits.session_duration_max_ms: must be 0 for no limit, or at most {MAX_MS}"
            ));
        }
        Ok(ClientLimits {
            sessions_per_address: self.sessions_per_address,
            handshakes_max: self.handshakes_max.unwrap_or(ClientLimits::DEFAULT_HANDSHAKES_MAX),
            handshake_timeout: self
                .handshake_timeout_ms
                .map_or(ClientLimits::DEFAULT_HANDSHAKE_TIMEOUT, Duration::from_millis),
            session_duration_max_ms: self.session_duration_max_ms.unwrap_or_default(),
            message_max_bytes: self.message_max_bytes,
            memory_max_bytes: self.memory_max_bytes.unwrap_or(MemoryBudget::DEFAULT_MAX_BYTES),
        })
    }
}

impl Config {
    /// Loads the TLS acceptor for clients, if TLS is configured.
    pub(super) fn tls_acceptor(&self) -> Result<Option<ReloadableAcceptor>, String> {
        let bad = |problem: String| format!("tls: {problem}");
        self.tls.resolve().map_err(bad)?.map(|files| ReloadableAcceptor::load(files).map_err(bad)).transpose()
    }

    /// Finds certificates and keys that cannot be read. Each file is reported separately.
    pub(super) fn find_missing_tls_files(&self, problems: &mut ConfigProblems) {
        let files = [("cert", &self.tls.cert), ("key", &self.tls.key), ("client_ca", &self.tls.client_ca)];
        for (key, path) in files {
            if let Some((path, Err(error))) = path.as_ref().map(|path| (path, fs::File::open(path))) {
                problems.push(&["tls", key], format!("tls: {}: {error}", path.display()));
            }
        }
    }

    /// Warnings for the operator, above all about security, one line each.
    pub fn warnings(&self) -> Vec<String> {
        let loose_permissions = self.secret_files().filter(|path| has_loose_permissions(path)).map(|path| {
            format!(
                "{}: this file holds secrets, but it is readable by other users or writable by its group; restrict its \
                 permissions with chmod o-rwx,g-w",
                path.display()
            )
        });
        let unencrypted =
            self.upstream.iter().filter(|upstream| upstream.has_token() && !upstream.is_confidential());
        let unencrypted = unencrypted.map(|upstream| {
            format!(
                "upstream {}: the token crosses the network unencrypted; use wss://",
                redacted_url(&upstream.url)
            )
        });
        let open_access = self.open_access_warning().map(str::to_owned);
        loose_permissions.chain(open_access).chain(unencrypted).chain(self.otlp.warnings()).collect()
    }

    /// Every configured file that holds secrets.
    fn secret_files(&self) -> impl Iterator<Item = &PathBuf> {
        let upstream_files =
            self.upstream.iter().flat_map(|upstream| upstream.token_file.iter().chain(&upstream.client_key));
        let signature = self.access.signature.iter().flat_map(|signature| &signature.token_file);
        let client_files =
            self.access.keys.iter().chain(&self.access.device_keys).chain(signature).chain(&self.tls.key);
        let of_tools = self.mcp.values();
        let tool_files =
            of_tools.flat_map(|server| server.token_file.iter().chain(server.environment_files.values()));
        client_files
            .chain(&self.admin.token_file)
            .chain(&self.admin.tls.key)
            .chain(upstream_files)
            .chain(tool_files)
    }

    /// Warns about a listener beyond this machine that authenticates no client. Keys without TLS cause no
    /// warning, because a proxy in front often adds TLS, which voxbridge cannot see.
    fn open_access_warning(&self) -> Option<&'static str> {
        let is_loopback = |listen: &String| {
            let host = listen.rsplit_once(':').map_or(listen.as_str(), |(host, _)| host);
            is_loopback_host(host.trim_start_matches('[').trim_end_matches(']'))
        };
        let tls = &self.tls;
        let requires_certificate = tls.client_ca.is_some() && tls.client_certs != Some(ClientCerts::Optional);
        if self.listen_addresses().iter().all(is_loopback) || requires_certificate {
            return None;
        }
        match &self.access {
            AccessConfig { keys: Some(_), required: Some(false), .. } => {
                Some("access.required is false: clients from any address are served without a key")
            }
            AccessConfig { keys: Some(_), .. } => None,
            _ if tls.is_empty() => Some(
                "clients from any address are served without TLS and without keys; see [tls] and [access]",
            ),
            _ => Some(
                "clients from any address are served without keys; see [access], or `client_ca` in [tls]",
            ),
        }
    }
}

/// True if traffic to `host` stays on this machine.
pub(super) fn is_loopback_host(host: &str) -> bool {
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// Group read access is allowed: containers are given root's files this way.
fn has_loose_permissions(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.permissions().mode() & 0o027 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(toml: &str) -> Config {
        toml::from_str(toml).unwrap()
    }

    #[test]
    fn invalid_access_settings_are_rejected_with_a_hint() {
        for (toml, words) in [
            ("[access]\nrequired = true", "needs `keys`"),
            ("[access]\nkeys = \"/nowhere.toml\"", "access.keys: /nowhere.toml: "),
            ("[access]\nquery_parameter = \"\"", "such as \"api_key\""),
            (
                "[access]\norigins = [\"app.example.com\"]",
                "access.origins: invalid origin \"app.example.com\"",
            ),
            ("[access]\ntool_servers = [\"a.example.com\"]", "access.tool_servers: "),
            ("[access]\ntrusted_proxies = [\"10.0.0.0/33\"]", "\"10.0.0.0/8\""),
            ("[access.signature]\npublic_url = \"wss://a\"", "access.signature: needs the account's token"),
            (
                "[access.signature]\npublic_url = \"a\"\ntoken_env = \"PATH\"",
                "access.signature: public_url: \"a\" is not the beginning",
            ),
            ("[limits]\nsessions_per_address = 0", "limits.sessions_per_address: must be 1"),
            ("[limits]\nhandshake_timeout_ms = 5", "100 to 600000"),
            ("[limits]\nsession_duration_max_ms = 86400001", "at most 86400000"),
            ("[tls]\nkey = \"k.pem\"", "tls: `cert` is missing"),
            ("[tls]\ncert = \"c.pem\"", "tls: `key` is missing"),
            ("[tls]\ncert = \"/nowhere.pem\"\nkey = \"/k.pem\"", "tls: /nowhere.pem: "),
            ("[tls]\ncert = \"c\"\nkey = \"k\"\nclient_certs = \"optional\"", "needs a `client_ca`"),
        ] {
            let problem = config(toml).check().unwrap_err();
            assert!(problem.contains(words), "{toml}: {problem}");
        }
        assert_eq!(config("[access]\norigins = []\n[limits]\nsession_duration_max_ms = 0").check(), Ok(()));
    }

    #[test]
    fn secret_file_readable_by_others_is_warned_about() {
        let path = std::env::temp_dir().join(format!("voxbridge-loose-{}", std::process::id()));
        fs::write(&path, "").unwrap();
        let warned = |toml: &str, mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            !config(&toml.replace("PATH", path.to_str().unwrap())).warnings().is_empty()
        };
        let upstream = "[[upstream]]\nurl = \"wss://a\"\n";
        for toml in [
            "[access]\nkeys = \"PATH\"",
            "[access.signature]\npublic_url = \"wss://a\"\ntoken_file = \"PATH\"",
            "[tls]\nkey = \"PATH\"",
            "[admin]\ntoken_file = \"PATH\"",
            "[admin.tls]\nkey = \"PATH\"",
            &format!("{upstream}token_file = \"PATH\""),
            &format!("{upstream}client_key = \"PATH\""),
        ] {
            for (mode, is_warned) in
                [(0o600, false), (0o440, false), (0o444, true), (0o620, true), (0o602, true)]
            {
                assert_eq!(warned(toml, mode), is_warned, "{toml} {mode:o}");
            }
        }
        assert!(!warned("[tls]\ncert = \"PATH\"", 0o644), "certificates are public");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn certificate_key_without_client_ca_is_rejected() {
        let path = std::env::temp_dir().join(format!("voxbridge-certified-{}.toml", std::process::id()));
        fs::write(&path, "[[key]]\nname = \"robots\"\ncertificate_name = \"robots.example.com\"\n").unwrap();
        let access = AccessConfig { keys: Some(path.clone()), ..AccessConfig::default() };
        let problem = access.build(false).unwrap_err();
        assert!(problem.contains("\"robots\"") && problem.contains("no `client_ca`"), "{problem}");
        assert!(access.build(true).is_ok());
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn open_listener_without_authentication_is_warned_about() {
        let warned = |toml: &str| !config(toml).warnings().is_empty();
        assert!(warned("listen = \"0.0.0.0:8000\"") && warned("listen = \"[::]:8000\""));
        assert!(!warned("") && !warned("listen = \"[::1]:8000\"") && !warned("listen = \"127.0.0.2:1\""));
        let public = |rest: &str| config(&format!("listen = \"0.0.0.0:8000\"\n{rest}")).warnings().join("\n");
        let tls = "[tls]\ncert = \"c\"\nkey = \"k\"\n";
        let (keys, ca) = ("[access]\nkeys = \"/nowhere\"\n", "client_ca = \"a\"\n");
        assert!(public(tls).contains("without keys; see [access]"));
        assert!(public(&format!("{tls}{ca}client_certs = \"optional\"")).contains("without keys"));
        assert!(public(&format!("{keys}required = false")).contains("access.required is false"));
        for asked in [format!("{tls}{ca}"), format!("{keys}{tls}"), keys.to_owned()] {
            assert_eq!(public(&asked), "", "{asked}");
        }
        let upstream = |url: &str| format!("[[upstream]]\nurl = \"{url}\"\ntoken_env = \"T\"\n");
        assert!(warned(&upstream("ws://gpu:8006")));
        assert!(!warned(&upstream("wss://gpu:8006")) && !warned(&upstream("ws://localhost:8006")));
    }
}
