//! Upstream configuration, and resolving all upstreams together.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};

use super::{access::is_loopback_host, problems::ConfigProblems};
use crate::{
    net::ClientIdentity,
    secret::{Secret, redacted_url},
    server::{
        route::{RouteUpstreams, matches_glob},
        upstream_pool::{Pool, dial::Dialer},
    },
    spelling::{
        Library, UpstreamMapping,
        upstream::{Dialects, ServedDialect},
    },
    suggestion::suggest_known,
    vocabulary::LanePurpose,
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
    /// Name of its dialect; `auto` to have voxbridge find it.
    #[serde(default = "default_dialect")]
    pub dialect: String,
    /// voxbridge found the dialect, as `auto` says.
    #[serde(skip)]
    pub is_dialect_found: bool,
    /// The purposes that it serves; all of its dialect, if not set.
    #[serde(default)]
    pub serves: Option<Vec<LanePurpose>>,
    /// Model that requests over HTTP name, or the URL of a dialect that has a parameter for it. Without it they name none, and the
    /// server takes its own.
    pub model: Option<String>,
    /// Voice that speaks, by the server's own name for it; the dialect's voice by default.
    pub voice: Option<String>,
    /// CA certificates (PEM) to trust besides those of the system.
    pub ca: Option<PathBuf>,
    /// HTTP path for health checks of the upstream. Without it, the page by which its dialect is found is the check.
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

/// Name for a dialect that is still to be found.
pub(super) const AUTO: &str = "auto";
/// Dialect of an upstream whose dialect is not found.
const ASSUMED_DIALECT: &str = "minicpm-o";

fn default_dialect() -> String {
    AUTO.to_owned()
}

/// All upstreams of a configuration, resolved.
pub(super) struct ResolvedUpstreams {
    /// The mode that the URLs name, if any.
    pub(super) mode: Option<String>,
    /// Upstream names with their dialects.
    dialects: Vec<(String, ServedDialect)>,
    /// Connection pool over all upstreams.
    pub(super) pool: Pool,
}

impl ResolvedUpstreams {
    /// Upstreams whose names match `pattern`.
    ///
    /// # Errors
    /// A message that names the key.
    pub(super) fn matching(&self, pattern: &str) -> Result<RouteUpstreams, String> {
        let matching: Vec<_> = self.dialects.iter().filter(|(name, _)| matches_glob(pattern, name)).collect();
        let names = matching.iter().map(|(name, _)| name.clone()).collect();
        let dialects = Dialects::new(matching.into_iter().map(|(_, dialect)| dialect.clone()).collect());
        let dialects = dialects.ok_or_else(|| {
            let known = suggest_known(pattern, || self.dialects.iter().map(|(name, _)| name.as_str()));
            format!("[[route]] upstream: no upstream matches `{pattern}`{known}")
        })?;
        Ok(RouteUpstreams { dialects, names })
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
    let mut dialects: Vec<(String, ServedDialect)> = Vec::new();
    let mut dialers: Vec<(String, Dialer)> = Vec::new();
    let mut mode = None;
    for (at, upstream) in upstreams.iter().enumerate() {
        let at = at.to_string();
        let known = problems.take(&["upstream", &at, "dialect"], upstream.mapping(library));
        // The rest of an upstream of an unknown dialect is checked as well.
        let Some(dialect) = known.clone().or_else(|| library.upstream(ASSUMED_DIALECT).ok()) else {
            continue;
        };
        let dialer = upstream.build_dialer(&dialect).map_err(|error| format!("upstream: {error}"));
        let key = dialer.as_ref().err().map_or("url", |error| key_in(error));
        if let Err(error) = &dialer {
            upstream.find_missing_files(error, &at, problems);
        }
        let Some((name, dialer)) = problems.take(&["upstream", &at, key], dialer) else { continue };
        if known.is_none() {
            continue;
        }
        if dialers.iter().any(|(known, _)| *known == name) {
            let key = if upstream.name.is_some() { "name" } else { "url" };
            let message = format!("[[upstream]]: two upstreams are named {name:?}; give each its own `name`");
            problems.push(&["upstream", &at, key], message);
        }
        let named_mode = Dialer::mode_in_url(&upstream.url, &dialect);
        problems.take(&["upstream", &at, "url"], check_same_mode(&mut mode, &upstream.url, named_mode));
        problems.take(&["upstream", &at, "serves"], upstream.check_serves(&dialect));
        let serves = upstream.serves.as_ref().map(|serves| serves.as_slice().into());
        dialects.push((name.clone(), ServedDialect { mapping: dialect, serves }));
        dialers.push((name, dialer));
    }
    let is_complete = !upstreams.is_empty() && dialers.len() == upstreams.len();
    is_complete.then(|| ResolvedUpstreams {
        mode: mode.map(|named: NamedMode<'_>| named.mode),
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

/// The first mode that a URL names.
struct NamedMode<'u> {
    mode: String,
    url: &'u str,
}

/// Checks that all URLs that name a mode name the same one.
fn check_same_mode<'u>(
    known: &mut Option<NamedMode<'u>>,
    url: &'u str,
    mode: Option<String>,
) -> Result<(), String> {
    let Some(mode) = mode else { return Ok(()) };
    match known {
        Some(first) if first.mode != mode => Err(format!(
            "[[upstream]]: {} names mode {:?} and {} mode {mode:?}; they must agree",
            redacted_url(first.url),
            first.mode,
            redacted_url(url)
        )),
        Some(_) => Ok(()),
        None => {
            *known = Some(NamedMode { mode, url });
            Ok(())
        }
    }
}

impl UpstreamConfig {
    /// The file of its dialect.
    ///
    /// # Errors
    /// There is no such dialect.
    pub(crate) fn mapping(&self, library: &Library) -> Result<Arc<UpstreamMapping>, String> {
        library.upstream(if self.has_unknown_dialect() { ASSUMED_DIALECT } else { &self.dialect })
    }

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
        let dialer = match &self.serves {
            Some(serves) => dialer.serving(serves.as_slice().into()),
            None => dialer,
        };
        // A dialect that is still to be found may name a model.
        let is_open = self.has_unknown_dialect() && !dialect.names_models();
        let dialer = match self.model.as_ref().filter(|_| !is_open) {
            Some(model) => dialer.with_model(model).map_err(bad)?,
            None => dialer,
        };
        let dialer = match &self.voice {
            Some(voice) => dialer.with_voice(voice).map_err(bad)?,
            None => dialer,
        };
        Ok((self.name.clone().unwrap_or_else(|| dialer.authority().to_owned()), dialer))
    }

    /// Finds files that cannot be read and that this error does not name.
    fn find_missing_files(&self, error: &str, at: &str, problems: &mut ConfigProblems) {
        let files = [
            ("ca", &self.ca),
            ("token_file", &self.token_file),
            ("client_cert", &self.client_cert),
            ("client_key", &self.client_key),
        ];
        for (key, path) in files {
            let Some(path) = path.as_ref().filter(|path| !error.contains(&*path.to_string_lossy())) else {
                continue;
            };
            if let Err(error) = std::fs::File::open(path) {
                problems.push(&["upstream", at, key], format!("upstream: {key} {}: {error}", path.display()));
            }
        }
    }

    /// Checks that the dialect can do what the upstream is to serve.
    fn check_serves(&self, dialect: &UpstreamMapping) -> Result<(), String> {
        let Some(serves) = &self.serves else { return Ok(()) };
        let cannot = |purpose: &&LanePurpose| !dialect.modes.keys().any(|mode| dialect.can(**purpose, *mode));
        match serves.iter().find(cannot) {
            Some(purpose) => {
                Err(format!("[[upstream]] serves: dialect {:?} cannot {}", dialect.name, purpose.name()))
            }
            None if serves.is_empty() => Err("[[upstream]] serves: the list is empty".to_owned()),
            None => Ok(()),
        }
    }
}

impl UpstreamConfig {
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
                UpstreamConfig { model: Some("m".into()), dialect: "minicpm-o".into(), ..upstream("ws://b") },
                ["model has no effect", "minicpm-o"],
            ),
        ] {
            let problem = problem(&[a.clone(), other]);
            assert!(words.iter().all(|words| problem.contains(words)), "{problem}");
        }
        let with_model = UpstreamConfig { model: Some("m".into()), ..upstream("ws://b") };
        assert_eq!(problem(&[with_model]), "", "a dialect that is still to be found may name a model");
    }

    #[test]
    fn route_takes_upstreams_of_several_dialects() {
        let mut library = Library::embedded().unwrap();
        let other = include_str!("../../mappings/upstream/minicpm-o.toml");
        library.add("other", &other.replace("name = \"minicpm-o\"", "name = \"other\"")).unwrap();
        let other = UpstreamConfig { dialect: "other".into(), ..upstream("ws://old-1") };
        let upstreams = [upstream("ws://new-1"), upstream("ws://new-2"), other];
        let all = resolve(&upstreams, &library, &mut ConfigProblems::default()).unwrap();
        let matching = |pattern| all.matching(pattern).map(|found| found.names.to_vec());
        assert_eq!(matching("new-*").unwrap(), ["new-1", "new-2"]);
        assert_eq!(matching("*").unwrap(), ["new-1", "new-2", "old-1"]);
        let dialects = all.matching("*").unwrap().dialects;
        assert_eq!(dialects.iter().map(|dialect| &*dialect.name).collect::<Vec<_>>(), ["minicpm-o", "other"]);
        let problem = matching("new-3").unwrap_err();
        assert!(problem.contains("did you mean `new-"), "{problem}");
    }

    #[test]
    fn upstream_serves_only_what_its_dialect_can() {
        let serving = |dialect: &str, serves: &[LanePurpose]| {
            let (dialect, serves) = (dialect.into(), Some(serves.to_vec()));
            problem(&[UpstreamConfig { dialect, serves, ..upstream("ws://a") }])
        };
        assert_eq!(serving("minicpm-o", &[LanePurpose::Transcribe, LanePurpose::Speak]), "");
        let cannot = serving("minicpm-o-legacy", &[LanePurpose::Converse, LanePurpose::Speak]);
        assert!(cannot.contains("serves: dialect \"minicpm-o-legacy\" cannot speak"), "{cannot}");
        assert!(serving("minicpm-o", &[]).contains("the list is empty"));
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
}
