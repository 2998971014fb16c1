//! The upstreams of a configuration: laid over one another, then checked together.

use std::{path::PathBuf, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::{
    mapping::{Library, UpstreamMapping},
    server::{dial::Dialer, pool::Pool},
};

/// One upstream.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamConfig {
    /// What logs call it; host and port unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `ws://` or `wss://`.
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
}

impl UpstreamConfig {
    /// Nothing but the usual dialect.
    #[must_use]
    pub fn of_dialect() -> Self {
        Self { dialect: default_dialect(), ..Self::default() }
    }
}

fn default_dialect() -> String {
    "minicpm-o".to_owned()
}

/// Lays `over` over `under`: which upstreams there are is said by the last who names any. What is not said of one, its
/// certificates and its dialect, is kept.
pub(super) fn overlaid(under: Vec<UpstreamConfig>, over: Vec<UpstreamConfig>) -> Vec<UpstreamConfig> {
    let Some(first) = under.first().cloned() else { return over };
    if over.is_empty() {
        return under;
    }
    let mut under = under.into_iter();
    let lay = |over: UpstreamConfig| {
        let under = under.next().unwrap_or_else(|| first.clone());
        UpstreamConfig { name: over.name, url: over.url, ca: over.ca.or(under.ca), ..under }
    };
    over.into_iter().map(lay).collect()
}

/// What all upstreams of a configuration have in common, and the way to them.
pub(super) struct Found {
    pub(super) dialect: Arc<UpstreamMapping>,
    /// The mode that URLs name.
    pub(super) mode: Option<String>,
    pub(super) pool: Pool,
}

/// Everything about the upstreams, found and checked.
///
/// # Errors
/// What is wrong, in words.
pub(super) fn found(upstreams: &[UpstreamConfig], library: &Library) -> Result<Found, String> {
    let Some(first) = upstreams.first() else {
        return Err("no upstream: name one with --upstream ws://HOST:8006/v1/realtime, in VOXBRIDGE_UPSTREAM, or as [[upstream]] in the configuration".to_owned());
    };
    if let Some(other) = upstreams.iter().find(|other| other.dialect != first.dialect) {
        return Err(format!(
            "[[upstream]]: {} speaks {:?} and {} speaks {:?}; all must speak the same dialect",
            first.url, first.dialect, other.url, other.dialect
        ));
    }
    let dialect = library.upstream(&first.dialect)?;
    Ok(Found { mode: mode(upstreams, &dialect)?, pool: Pool::new(ways(upstreams, &dialect)?), dialect })
}

/// The way to each, by a name of its own.
fn ways(
    upstreams: &[UpstreamConfig],
    dialect: &Arc<UpstreamMapping>,
) -> Result<Vec<(String, Dialer)>, String> {
    let mut ways: Vec<(String, Dialer)> = Vec::new();
    for upstream in upstreams {
        let (name, dialer) = upstream.way(dialect).map_err(|error| format!("upstream: {error}"))?;
        if ways.iter().any(|(known, _)| *known == name) {
            return Err(format!("[[upstream]]: two are called {name:?}; give each a `name` of its own"));
        }
        ways.push((name, dialer));
    }
    Ok(ways)
}

impl UpstreamConfig {
    fn way(&self, dialect: &Arc<UpstreamMapping>) -> Result<(String, Dialer), String> {
        if self.status_path.as_ref().is_some_and(|path| !is_path(path)) {
            return Err(format!("{:?}: its status_path is no path such as /status", self.url));
        }
        if self.name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err(format!("{:?}: its name is empty", self.url));
        }
        let dialer =
            Dialer::new(&self.url, self.ca.as_deref(), self.status_path.as_deref(), dialect.clone())?;
        Ok((self.name.clone().unwrap_or_else(|| dialer.authority().to_owned()), dialer))
    }
}

/// It can stand in the first line of a request.
fn is_path(path: &str) -> bool {
    path.starts_with('/') && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The mode that URLs name; those that name one must agree.
fn mode(upstreams: &[UpstreamConfig], dialect: &UpstreamMapping) -> Result<Option<String>, String> {
    let mut named = upstreams
        .iter()
        .filter_map(|upstream| Some((&upstream.url, Dialer::mode_of(&upstream.url, dialect)?)));
    let Some((first_url, first)) = named.next() else { return Ok(None) };
    match named.find(|(_, mode)| *mode != first) {
        Some((url, mode)) => Err(format!(
            "[[upstream]]: {first_url} names mode {first:?} and {url} mode {mode:?}; they must agree"
        )),
        None => Ok(Some(first)),
    }
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
            (UpstreamConfig { dialect: "other".into(), ..upstream("ws://b") }, ["ws://a:8006", "ws://b"]),
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
