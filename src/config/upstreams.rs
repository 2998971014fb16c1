//! Upstream configuration: overlaying layers, and resolving all upstreams together.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};

use super::{access::is_loopback_host, problems::ConfigProblems};
use crate::{
    mapping::{Library, UpstreamMapping, check::suggest_known},
    net::ClientIdentity,
    secret::{Secret, redacted_url},
    server::{
        route::{RouteUpstreams, matches_glob},
        upstream_pool::{Pool, dial::Dialer},
    },
};

/// `[[upstream]]`: one upstream server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// Name in logs and routes; host and port by default.
    pub name: Option<String>,
    /// `ws://` or `wss://` URL; `http://` or `https://` for a dialect of HTTP requests. Its secrets are redacted when it is serialized.
    #[serde(serialize_with = "serialize_redacted_url")]
    pub url: String,
    /// Name of its dialect.
    #[serde(default = "default_dialect")]
    pub dialect: String,
    /// Model that requests over HTTP name. Without it they name none, and the server takes its own.
    pub model: Option<String>,
    /// CA certificates (PEM) to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// HTTP path for health checks of a failed upstream. Without it, a TCP connect is the check.
    pub status_path: Option<String>,
    /// File with the token for this upstream.
    pub token_file: Option<PathBuf>,
    /// Environment variable with the token for this upstream.
    pub token_env: Option<String>,
    /// Header that carries the bare token; `Authorization: Bearer` by default.
    pub token_header: Option<String>,
    /// Client certificate (PEM) for mutual TLS.
    pub client_cert: Option<PathBuf>,
    /// Private key (PEM) of `client_cert`.
    pub client_key: Option<PathBuf>,
}

impl UpstreamConfig {
    /// An upstream with nothing set but the default dialect.
    pub fn with_default_dialect() -> Self {
        Self { dialect: default_dialect(), ..Self::default() }
    }
}

fn serialize_redacted_url<S: Serializer>(url: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&redacted_url(url))
}

fn default_dialect() -> String {
    "minicpm-o".to_owned()
}

/// Overlays the lower list with the upper one. A non-empty upper list decides which upstreams there are. Keys it
/// leaves out, such as `ca` and `dialect`, come from the lower list. Credentials are kept only for the same
/// server.
pub(super) fn overlay(lower: Vec<UpstreamConfig>, upper: Vec<UpstreamConfig>) -> Vec<UpstreamConfig> {
    let Some(first) = lower.first().cloned() else { return upper };
    if upper.is_empty() {
        return lower;
    }
    let mut lower = lower.into_iter();
    let overlay_one = |upper: UpstreamConfig| {
        let mut lower = lower.next().unwrap_or_else(|| first.clone());
        if scheme_and_authority(&upper.url) != scheme_and_authority(&lower.url) {
            lower = UpstreamConfig {
                ca: lower.ca,
                dialect: lower.dialect,
                status_path: lower.status_path,
                ..Default::default()
            };
        }
        UpstreamConfig { name: upper.name, url: upper.url, ca: upper.ca.or(lower.ca), ..lower }
    };
    upper.into_iter().map(overlay_one).collect()
}

/// The URL up to its port.
fn scheme_and_authority(url: &str) -> &str {
    url.split_once("://").map_or(url, |(scheme, rest)| {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        &url[..scheme.len() + 3 + end]
    })
}

/// All upstreams of a configuration, resolved.
pub(super) struct ResolvedUpstreams {
    /// The mode that the URLs name, if any.
    pub(super) mode: Option<String>,
    /// Upstream names with their dialects.
    dialects: Vec<(String, Arc<UpstreamMapping>)>,
    /// Connection pool over all upstreams.
    pub(super) pool: Pool,
}

impl ResolvedUpstreams {
    /// Upstreams whose names match `pattern`. All must speak the same dialect.
    ///
    /// # Errors
    /// A message that names the key.
    pub(super) fn matching(&self, pattern: &str) -> Result<RouteUpstreams, String> {
        let mut matching = self.dialects.iter().filter(|(name, _)| matches_glob(pattern, name));
        let names = || self.dialects.iter().map(|(name, _)| name.as_str());
        let Some((first, dialect)) = matching.next() else {
            let known = suggest_known(pattern, names);
            return Err(format!("[[route]] upstream: no upstream matches `{pattern}`{known}"));
        };
        if let Some((other, another)) = matching.find(|(_, another)| another.name != dialect.name) {
            return Err(format!(
                "[[route]]: {first:?} speaks {:?} and {other:?} speaks {:?}, but a route serves one dialect only; \
                 name the upstreams of each [[route]], as in `upstream = {first:?}`",
                dialect.name, another.name
            ));
        }
        let matching = names().filter(|name| matches_glob(pattern, name)).map(str::to_owned).collect();
        Ok(RouteUpstreams { dialect: dialect.clone(), names: matching })
    }
}

/// Message about a configuration without upstreams.
pub const NO_UPSTREAM: &str = "no upstream is configured: set one with --upstream ws://HOST:8006/v1/realtime, in \
     VOXBRIDGE_UPSTREAM, or as [[upstream]] in the configuration";

/// Resolves and checks all upstreams, and adds their mistakes to `problems`; `None` if there are any, or no upstreams.
pub(super) fn resolve(
    upstreams: &[UpstreamConfig],
    library: &Library,
    problems: &mut ConfigProblems,
) -> Option<ResolvedUpstreams> {
    let mut dialects: Vec<(String, Arc<UpstreamMapping>)> = Vec::new();
    let mut dialers: Vec<(String, Dialer)> = Vec::new();
    let mut mode: Option<(&str, String)> = None;
    for (at, upstream) in upstreams.iter().enumerate() {
        let at = at.to_string();
        let dialect = problems.take(&["upstream", &at, "dialect"], library.upstream(&upstream.dialect));
        let Some(dialect) = dialect else { continue };
        let dialer = upstream.build_dialer(&dialect).map_err(|error| format!("upstream: {error}"));
        let key = dialer.as_ref().err().map_or("url", |error| key_in(error));
        let Some((name, dialer)) = problems.take(&["upstream", &at, key], dialer) else { continue };
        if dialers.iter().any(|(known, _)| *known == name) {
            let key = if upstream.name.is_some() { "name" } else { "url" };
            let message = format!("[[upstream]]: two upstreams are named {name:?}; give each its own `name`");
            problems.push(&["upstream", &at, key], message);
        }
        let named_mode = Dialer::mode_in_url(&upstream.url, &dialect);
        problems.take(&["upstream", &at, "url"], check_same_mode(&mut mode, &upstream.url, named_mode));
        dialects.push((name.clone(), dialect));
        dialers.push((name, dialer));
    }
    let is_complete = !upstreams.is_empty() && dialers.len() == upstreams.len();
    is_complete.then(|| ResolvedUpstreams {
        mode: mode.map(|(_, mode)| mode),
        dialects,
        pool: Pool::new(dialers),
    })
}

/// The key that a message about an upstream names; otherwise `url`.
fn key_in(message: &str) -> &'static str {
    let keys = ["status_path", "token_file", "token_env", "token_header", "client_cert", "client_key"];
    let is_named = |key: &&str| message.contains(*key);
    let words = [("name is empty", "name"), ("model has no effect", "model")];
    let by_words = || words.into_iter().find_map(|(words, key)| message.contains(words).then_some(key));
    keys.into_iter().find(is_named).or_else(by_words).unwrap_or("url")
}

/// Checks that all URLs that name a mode name the same one.
fn check_same_mode<'u>(
    known: &mut Option<(&'u str, String)>,
    url: &'u str,
    mode: Option<String>,
) -> Result<(), String> {
    let Some(mode) = mode else { return Ok(()) };
    match known {
        Some((first_url, first)) if *first != mode => Err(format!(
            "[[upstream]]: {} names mode {first:?} and {} mode {mode:?}; they must agree",
            redacted_url(first_url),
            redacted_url(url)
        )),
        Some(_) => Ok(()),
        None => {
            *known = Some((url, mode));
            Ok(())
        }
    }
}

impl UpstreamConfig {
    /// Builds the upstream's dialer; returns it with the upstream's name.
    ///
    /// # Errors
    /// A message without secrets.
    pub(crate) fn build_dialer(&self, dialect: &Arc<UpstreamMapping>) -> Result<(String, Dialer), String> {
        let bad = |problem: String| format!("{:?}: {problem}", redacted_url(&self.url));
        if self.status_path.as_ref().is_some_and(|path| !is_request_path(path)) {
            return Err(bad("status_path must be a path such as /status".to_owned()));
        }
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(bad("name is empty".to_owned()));
        }
        let dialer =
            Dialer::new(&self.url, self.ca.as_deref(), self.status_path.as_deref(), dialect.clone())?;
        let dialer = match self.read_identity().map_err(bad)? {
            Some(identity) => dialer.with_identity(self.ca.as_deref(), &identity)?,
            None => dialer,
        };
        let dialer = match self.read_token().map_err(bad)? {
            Some(token) => dialer.with_token(self.token_header.as_deref(), &token).map_err(bad)?,
            None => dialer,
        };
        let dialer = match &self.model {
            Some(model) => dialer.with_model(model).map_err(bad)?,
            None => dialer,
        };
        Ok((self.name.clone().unwrap_or_else(|| dialer.authority().to_owned()), dialer))
    }
}

impl UpstreamConfig {
    /// Every file named by this upstream.
    pub(super) fn file_paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.token_file, &mut self.client_cert, &mut self.client_key]
            .into_iter()
            .flatten()
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token_file.is_some() || self.token_env.is_some()
    }

    /// True if others on the network cannot read the traffic.
    pub(super) fn is_confidential(&self) -> bool {
        let host = self.url.parse::<hyper::Uri>().ok();
        let host = host.as_ref().and_then(hyper::Uri::host).unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.is_secure() || is_loopback_host(host)
    }

    fn is_secure(&self) -> bool {
        self.url.starts_with("wss:") || self.url.starts_with("https:")
    }

    fn read_identity(&self) -> Result<Option<ClientIdentity>, String> {
        match (&self.client_cert, &self.client_key) {
            (Some(_), Some(_)) if !self.is_secure() => {
                Err("client_cert needs a wss:// or https:// URL".to_owned())
            }
            (Some(cert), Some(key)) => ClientIdentity::read(cert, key).map(Some),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client_key is missing: set the private key of client_cert".to_owned()),
            (None, Some(_)) => Err("client_cert is missing: set the certificate of client_key".to_owned()),
        }
    }

    /// Reads the token. Errors never quote it.
    fn read_token(&self) -> Result<Option<Secret>, String> {
        let token = super::read_token(self.token_file.as_deref(), self.token_env.as_deref())?;
        if token.is_none() && self.token_header.is_some() {
            return Err("token_header is set, but token_file or token_env is missing".to_owned());
        }
        Ok(token)
    }
}

/// True if the path can stand in an HTTP request line.
fn is_request_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str) -> UpstreamConfig {
        UpstreamConfig { url: url.into(), ..UpstreamConfig::with_default_dialect() }
    }

    fn problem(upstreams: &[UpstreamConfig]) -> String {
        let mut problems = ConfigProblems::default();
        resolve(upstreams, &Library::embedded().unwrap(), &mut problems);
        problems.to_string()
    }

    #[test]
    fn upstreams_with_distinct_names_are_resolved() {
        let (a, b) = (upstream("ws://a:8006/v1/realtime"), upstream("ws://b:8006/v1/realtime?mode=chat"));
        let both = resolve(&[a.clone(), b], &Library::embedded().unwrap(), &mut ConfigProblems::default());
        assert_eq!(both.unwrap().mode.as_deref(), Some("chat"));
        let named = UpstreamConfig { name: Some("second".into()), ..a.clone() };
        assert_eq!(problem(&[a, named]), "");
    }

    #[test]
    fn conflicting_upstreams_are_rejected() {
        let a = upstream("ws://a:8006/v1/realtime?mode=chat");
        for (other, words) in [
            (
                UpstreamConfig { dialect: "minicpm".into(), ..upstream("ws://b") },
                ["`minicpm`", "`minicpm-o`"],
            ),
            (upstream("ws://b/x?mode=audio"), ["\"chat\"", "\"audio\""]),
            (upstream("ws://a:8006/elsewhere"), ["named \"a:8006\"", "`name`"]),
            (
                UpstreamConfig { name: Some("a:8006".into()), ..upstream("ws://b") },
                ["two upstreams", "a:8006"],
            ),
            (UpstreamConfig { name: Some(" ".into()), ..upstream("ws://b") }, ["ws://b", "name is empty"]),
            (
                UpstreamConfig { status_path: Some("status".into()), ..upstream("ws://b") },
                ["ws://b", "status_path"],
            ),
            (upstream("http://b"), ["the scheme must be ws or wss", "ws://HOST:8006/v1/realtime"]),
            (
                UpstreamConfig { dialect: "openai-audio".into(), ..upstream("ws://b") },
                ["the scheme must be http or https", "http://HOST:8006/v1"],
            ),
            (
                UpstreamConfig { model: Some("m".into()), ..upstream("ws://b") },
                ["model has no effect", "minicpm-o"],
            ),
        ] {
            let problem = problem(&[a.clone(), other]);
            assert!(words.iter().all(|words| problem.contains(words)), "{problem}");
        }
    }

    #[test]
    fn route_matching_two_dialects_is_rejected() {
        let mut library = Library::embedded().unwrap();
        let other = include_str!("../../mappings/upstream/minicpm-o.toml");
        library.add("other", &other.replace("name = \"minicpm-o\"", "name = \"other\"")).unwrap();
        let other = UpstreamConfig { dialect: "other".into(), ..upstream("ws://old-1") };
        let upstreams = [upstream("ws://new-1"), upstream("ws://new-2"), other];
        let both = resolve(&upstreams, &library, &mut ConfigProblems::default());
        let both = both.unwrap();
        let dialect = |pattern| both.matching(pattern).map(|found| found.dialect.name.clone());
        assert_eq!(dialect("new-*").as_deref(), Ok("minicpm-o"));
        assert_eq!(dialect("old-?").as_deref(), Ok("other"));
        for (pattern, words) in [("*", "speaks \"other\""), ("new-3", "did you mean `new-")] {
            let problem = dialect(pattern).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn token_is_dropped_when_the_server_changes() {
        let file = UpstreamConfig { token_env: Some("T".into()), ..upstream("wss://a:8006/v1/realtime") };
        let kept = |url: &str| overlay(vec![file.clone()], vec![upstream(url)])[0].token_env.is_some();
        assert!(kept("wss://a:8006/v1/realtime") && kept("wss://a:8006?mode=chat"));
        assert!(!kept("ws://a:8006/v1/realtime") && !kept("wss://a:8007") && !kept("wss://a:8006.evil"));
    }

    #[test]
    fn credential_errors_never_contain_the_secret() {
        let path = std::env::temp_dir().join(format!("voxbridge-token-{}", std::process::id()));
        std::fs::write(&path, "two words\n").unwrap();
        let with = |one: UpstreamConfig| problem(&[UpstreamConfig { url: "ws://a".into(), ..one }]);
        let of = UpstreamConfig::with_default_dialect;
        for (one, words) in [
            (
                UpstreamConfig { token_env: Some("VOXBRIDGE_NO_SUCH".into()), ..of() },
                "environment has no variable",
            ),
            (UpstreamConfig { token_file: Some("/nowhere".into()), ..of() }, "token_file: /nowhere"),
            (UpstreamConfig { token_file: Some(path.clone()), ..of() }, "allowed in a header"),
            (UpstreamConfig { token_header: Some("X-API-Key".into()), ..of() }, "token_file or token_env"),
            (UpstreamConfig { client_cert: Some("a".into()), ..of() }, "client_key is missing"),
        ] {
            let problem = with(one);
            assert!(problem.contains(words) && !problem.contains("two words"), "{problem}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn overlaid_upstream_list_replaces_the_whole_list() {
        let own = |url: &str| UpstreamConfig { ca: Some("own.pem".into()), ..upstream(url) };
        let file = vec![UpstreamConfig { name: Some("a".into()), ..own("ws://a") }, upstream("ws://b")];
        let urls = |upper: &[&str]| {
            let upper = upper.iter().map(|url| upstream(url)).collect();
            let both = overlay(file.clone(), upper).into_iter();
            both.map(|one| (one.name, one.url, one.ca.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(urls(&[]).len(), 2);
        assert_eq!(urls(&["ws://x"]), [(None, "ws://x".into(), true)]);
        let three = urls(&["ws://x", "ws://y", "ws://z"]);
        assert_eq!(three.iter().map(|one| one.2).collect::<Vec<_>>(), [true, false, true]);
    }
}
