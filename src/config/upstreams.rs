//! The upstreams of a configuration: laid over one another, then checked together.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize, Serializer};

use super::access::is_this_machine;
use crate::{
    mapping::{
        Library, UpstreamMapping,
        check::{did_you_mean, listed},
    },
    net::Identity,
    secret::{Secret, shown_url},
    server::{
        route::{Upstreams, glob},
        upstream_pool::{Pool, dial::Dialer},
    },
};

/// One upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// What logs call it; host and port unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `ws://` or `wss://`; what may be secret in it is not written.
    #[serde(serialize_with = "without_secrets")]
    pub url: String,
    /// Its dialect.
    #[serde(default = "default_dialect")]
    pub dialect: String,
    /// Certificates (PEM) to trust besides those of this system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// HTTP path that tells whether it is there, asked while it is left out; without one it is only connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_path: Option<String>,
    /// File with the token that it wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_file: Option<PathBuf>,
    /// Variable of the environment with the token that it wants.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_env: Option<String>,
    /// Header in which it wants the token, as it is; `Authorization: Bearer` unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// Certificate (PEM) that it wants of its clients, and of us.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_key: Option<PathBuf>,
}

impl UpstreamConfig {
    /// Nothing but the usual dialect.
    #[must_use]
    pub fn of_dialect() -> Self {
        Self { dialect: default_dialect(), ..Self::default() }
    }
}

fn without_secrets<S: Serializer>(url: &str, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&shown_url(url))
}

fn default_dialect() -> String {
    "minicpm-o".to_owned()
}

/// Lays `over` over `under`: which upstreams there are is said by the last who names any. What is not said of one, its
/// certificates and its dialect, is kept; but what it was to be shown is not shown to another server.
pub(super) fn overlaid(under: Vec<UpstreamConfig>, over: Vec<UpstreamConfig>) -> Vec<UpstreamConfig> {
    let Some(first) = under.first().cloned() else { return over };
    if over.is_empty() {
        return under;
    }
    let mut under = under.into_iter();
    let lay = |over: UpstreamConfig| {
        let mut under = under.next().unwrap_or_else(|| first.clone());
        if place(&over.url) != place(&under.url) {
            under = UpstreamConfig {
                ca: under.ca,
                dialect: under.dialect,
                status_path: under.status_path,
                ..Default::default()
            };
        }
        UpstreamConfig { name: over.name, url: over.url, ca: over.ca.or(under.ca), ..under }
    };
    over.into_iter().map(lay).collect()
}

/// Scheme, host and port.
fn place(url: &str) -> &str {
    url.split_once("://").map_or(url, |(scheme, rest)| {
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        &url[..scheme.len() + 3 + end]
    })
}

/// All upstreams of a configuration.
pub(super) struct Found {
    /// The mode that URLs name.
    pub(super) mode: Option<String>,
    /// By name: the dialect of each.
    dialects: Vec<(String, Arc<UpstreamMapping>)>,
    /// The way to all of them.
    pub(super) pool: Pool,
}

impl Found {
    /// Those with names like this; they must speak one dialect.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(super) fn called(&self, pattern: &str) -> Result<Upstreams, String> {
        let mut named = self.dialects.iter().filter(|(name, _)| glob(pattern, name));
        let names = || self.dialects.iter().map(|(name, _)| name.as_str());
        let Some((first, dialect)) = named.next() else {
            let (hint, known) = (did_you_mean(pattern, names()), listed(names()));
            return Err(format!("[[route]] upstream: none is called `{pattern}`{hint}; there is {known}"));
        };
        if let Some((other, another)) = named.find(|(_, another)| another.name != dialect.name) {
            return Err(format!(
                "[[route]]: {first:?} speaks {:?} and {other:?} speaks {:?}, and a session can go to one dialect only; \
                 say in each [[route]] which upstreams serve it, as in `upstream = {first:?}`",
                dialect.name, another.name
            ));
        }
        Ok(Upstreams { dialect: dialect.clone(), pool: self.pool.only(|name| glob(pattern, name)) })
    }
}

/// Everything about the upstreams, found and checked.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn found(upstreams: &[UpstreamConfig], library: &Library) -> Result<Found, String> {
    if upstreams.is_empty() {
        return Err("no upstream: name one with --upstream ws://HOST:8006/v1/realtime, in VOXBRIDGE_UPSTREAM, or as [[upstream]] in the configuration".to_owned());
    }
    let mut dialects: Vec<(String, Arc<UpstreamMapping>)> = Vec::new();
    let mut ways: Vec<(String, Dialer)> = Vec::new();
    let mut mode: Option<(&str, String)> = None;
    for upstream in upstreams {
        let dialect = library.upstream(&upstream.dialect)?;
        let (name, dialer) = upstream.way(&dialect).map_err(|error| format!("upstream: {error}"))?;
        if ways.iter().any(|(known, _)| *known == name) {
            return Err(format!("[[upstream]]: two are called {name:?}; give each a `name` of its own"));
        }
        agree(&mut mode, &upstream.url, Dialer::mode_of(&upstream.url, &dialect))?;
        dialects.push((name.clone(), dialect));
        ways.push((name, dialer));
    }
    Ok(Found { mode: mode.map(|(_, mode)| mode), dialects, pool: Pool::new(ways) })
}

/// URLs that name a mode must agree.
fn agree<'u>(
    known: &mut Option<(&'u str, String)>,
    url: &'u str,
    mode: Option<String>,
) -> Result<(), String> {
    let Some(mode) = mode else { return Ok(()) };
    match known {
        Some((first_url, first)) if *first != mode => Err(format!(
            "[[upstream]]: {} names mode {first:?} and {} mode {mode:?}; they must agree",
            shown_url(first_url),
            shown_url(url)
        )),
        Some(_) => Ok(()),
        None => {
            *known = Some((url, mode));
            Ok(())
        }
    }
}

impl UpstreamConfig {
    /// Its name, and the way to it in this dialect.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn way(&self, dialect: &Arc<UpstreamMapping>) -> Result<(String, Dialer), String> {
        let bad = |problem: String| format!("{:?}: {problem}", shown_url(&self.url));
        if self.status_path.as_ref().is_some_and(|path| !is_path(path)) {
            return Err(bad("its status_path is no path such as /status".to_owned()));
        }
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(bad("its name is empty".to_owned()));
        }
        let dialer =
            Dialer::new(&self.url, self.ca.as_deref(), self.status_path.as_deref(), dialect.clone())?;
        let dialer = match self.identity().map_err(bad)? {
            Some(identity) => dialer.identified(self.ca.as_deref(), &identity)?,
            None => dialer,
        };
        let dialer = match self.token().map_err(bad)? {
            Some(token) => dialer.with_token(self.header.as_deref(), &token).map_err(bad)?,
            None => dialer,
        };
        Ok((self.name.clone().unwrap_or_else(|| dialer.authority().to_owned()), dialer))
    }
}

impl UpstreamConfig {
    /// Every file it names.
    pub(super) fn paths(&mut self) -> impl Iterator<Item = &mut PathBuf> {
        [&mut self.ca, &mut self.token_file, &mut self.client_cert, &mut self.client_key]
            .into_iter()
            .flatten()
    }

    pub(super) const fn has_token(&self) -> bool {
        self.token_file.is_some() || self.token_env.is_some()
    }

    /// Nobody reads on the way what is sent there.
    pub(super) fn is_private(&self) -> bool {
        let host = self.url.parse::<hyper::Uri>().ok();
        let host = host.as_ref().and_then(hyper::Uri::host).unwrap_or_default();
        let host = host.trim_start_matches('[').trim_end_matches(']');
        self.url.starts_with("wss:") || is_this_machine(host)
    }

    fn identity(&self) -> Result<Option<Identity>, String> {
        match (&self.client_cert, &self.client_key) {
            (Some(_), Some(_)) if !self.url.starts_with("wss:") => {
                Err("a client_cert is shown to wss:// servers only".to_owned())
            }
            (Some(cert), Some(key)) => Identity::read(cert, key).map(Some),
            (None, None) => Ok(None),
            (Some(_), None) => Err("client_key is missing, the private key of client_cert".to_owned()),
            (None, Some(_)) => Err("client_cert is missing, the certificate of client_key".to_owned()),
        }
    }

    /// Never in words: it is a secret.
    fn token(&self) -> Result<Option<Secret>, String> {
        let text = match (&self.token_file, &self.token_env) {
            (None, None) if self.header.is_some() => {
                return Err("`header` is where a token goes; token_file or token_env is missing".to_owned());
            }
            (None, None) => return Ok(None),
            (Some(_), Some(_)) => return Err("it has token_file and token_env; one is meant".to_owned()),
            (Some(path), None) => std::fs::read_to_string(path)
                .map_err(|error| format!("token_file {}: {error}", path.display()))?,
            (None, Some(name)) => {
                super::env(name).ok_or_else(|| format!("token_env: {name} is not in the environment"))?
            }
        };
        Ok(Some(Secret::new(text.trim())))
    }
}

/// It can stand in the first line of a request.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(url: &str) -> UpstreamConfig {
        UpstreamConfig { url: url.into(), ..UpstreamConfig::of_dialect() }
    }

    fn problem(upstreams: &[UpstreamConfig]) -> String {
        found(upstreams, &Library::embedded().unwrap()).err().unwrap_or_default()
    }

    #[test]
    fn several_are_served_by_names_of_their_own() {
        let (a, b) = (upstream("ws://a:8006/v1/realtime"), upstream("ws://b:8006/v1/realtime?mode=chat"));
        let both = found(&[a.clone(), b], &Library::embedded().unwrap());
        assert_eq!(both.unwrap_or_else(|problem| panic!("{problem}")).mode.as_deref(), Some("chat"));
        let named = UpstreamConfig { name: Some("second".into()), ..a.clone() };
        assert_eq!(problem(&[a, named]), "");
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        let a = upstream("ws://a:8006/v1/realtime?mode=chat");
        for (other, words) in [
            (
                UpstreamConfig { dialect: "minicpm".into(), ..upstream("ws://b") },
                ["`minicpm`", "`minicpm-o`"],
            ),
            (upstream("ws://b/x?mode=audio"), ["\"chat\"", "\"audio\""]),
            (upstream("ws://a:8006/elsewhere"), ["two are called \"a:8006\"", "`name`"]),
            (UpstreamConfig { name: Some("a:8006".into()), ..upstream("ws://b") }, ["two are", "a:8006"]),
            (UpstreamConfig { name: Some(" ".into()), ..upstream("ws://b") }, ["ws://b", "name is empty"]),
            (
                UpstreamConfig { status_path: Some("status".into()), ..upstream("ws://b") },
                ["ws://b", "status_path"],
            ),
        ] {
            let problem = problem(&[a.clone(), other]);
            assert!(words.iter().all(|words| problem.contains(words)), "{problem}");
        }
    }

    #[test]
    fn a_route_goes_to_one_dialect() {
        let mut library = Library::embedded().unwrap();
        let other = include_str!("../../mappings/upstream/minicpm-o.toml");
        library.add("other", &other.replace("name = \"minicpm-o\"", "name = \"other\"")).unwrap();
        let other = UpstreamConfig { dialect: "other".into(), ..upstream("ws://old-1") };
        let both = found(&[upstream("ws://new-1"), upstream("ws://new-2"), other], &library);
        let both = both.unwrap_or_else(|problem| panic!("{problem}"));
        let dialect = |pattern| both.called(pattern).map(|found| found.dialect.name.clone());
        assert_eq!(dialect("new-*").as_deref(), Ok("minicpm-o"));
        assert_eq!(dialect("old-?").as_deref(), Ok("other"));
        for (pattern, words) in [("*", "speaks \"other\""), ("new-3", "did you mean `new-")] {
            let problem = dialect(pattern).unwrap_err();
            assert!(problem.contains(words), "{problem}");
        }
    }

    #[test]
    fn what_one_server_is_shown_is_not_shown_to_another() {
        let file = UpstreamConfig { token_env: Some("T".into()), ..upstream("wss://a:8006/v1/realtime") };
        let kept = |url: &str| overlaid(vec![file.clone()], vec![upstream(url)])[0].token_env.is_some();
        assert!(kept("wss://a:8006/v1/realtime") && kept("wss://a:8006?mode=chat"));
        assert!(!kept("ws://a:8006/v1/realtime") && !kept("wss://a:8007") && !kept("wss://a:8006.evil"));
    }

    #[test]
    fn mistakes_with_what_is_shown_are_told_without_it() {
        let path = std::env::temp_dir().join(format!("voxbridge-token-{}", std::process::id()));
        std::fs::write(&path, "two words\n").unwrap();
        let with = |one: UpstreamConfig| problem(&[UpstreamConfig { url: "ws://a".into(), ..one }]);
        let of = UpstreamConfig::of_dialect;
        for (one, words) in [
            (
                UpstreamConfig { token_env: Some("VOXBRIDGE_NO_SUCH".into()), ..of() },
                "not in the environment",
            ),
            (UpstreamConfig { token_file: Some("/nowhere".into()), ..of() }, "token_file /nowhere"),
            (UpstreamConfig { token_file: Some(path.clone()), ..of() }, "into a header"),
            (UpstreamConfig { header: Some("X-API-Key".into()), ..of() }, "token_file or token_env"),
            (UpstreamConfig { client_cert: Some("a".into()), ..of() }, "client_key is missing"),
        ] {
            let problem = with(one);
            assert!(problem.contains(words) && !problem.contains("two words"), "{problem}");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn who_names_upstreams_names_all_of_them() {
        let own = |url: &str| UpstreamConfig { ca: Some("own.pem".into()), ..upstream(url) };
        let file = vec![UpstreamConfig { name: Some("a".into()), ..own("ws://a") }, upstream("ws://b")];
        let urls = |over: &[&str]| {
            let over = over.iter().map(|url| upstream(url)).collect();
            let both = overlaid(file.clone(), over).into_iter();
            both.map(|one| (one.name, one.url, one.ca.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(urls(&[]).len(), 2);
        assert_eq!(urls(&["ws://x"]), [(None, "ws://x".into(), true)]);
        let three = urls(&["ws://x", "ws://y", "ws://z"]);
        assert_eq!(three.iter().map(|one| one.2).collect::<Vec<_>>(), [true, false, true]);
    }
}
