//! Routes: which profile and upstreams serve a connection. Patterns are globs, and the first match wins.
//!
//! [`super::identify`] finds the client protocol first, unless a route names it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::spelling::{
    ClientMapping, Library, Profile, compatibility::check_client_with_profile, upstream::Dialects,
};

/// One route of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RouteConfig {
    /// Glob on the path of the client's URL.
    #[serde(default = "any_glob", skip_serializing_if = "is_any_glob")]
    pub path: String,
    /// Connections at this path speak this client protocol, whatever their messages suggest.
    pub protocol: Option<String>,
    /// Glob on the client protocol's name.
    #[serde(default = "any_glob")]
    pub client: String,
    /// Glob on the model the client asks for.
    #[serde(default = "any_glob")]
    pub model: String,
    /// Glob on the names of the upstreams. A relay uses those that speak the dialect of the first.
    #[serde(default = "any_glob", skip_serializing_if = "is_any_glob")]
    pub upstream: String,
    /// The profile's name.
    pub profile: String,
}

impl RouteConfig {
    /// A route from everything to one profile.
    pub fn catch_all(profile: &str) -> Self {
        Self {
            path: any_glob(),
            protocol: None,
            client: any_glob(),
            model: any_glob(),
            upstream: any_glob(),
            profile: profile.to_owned(),
        }
    }
}

fn any_glob() -> String {
    "*".to_owned()
}

fn is_any_glob(glob: &String) -> bool {
    glob == "*"
}

/// Upstreams that serve a route.
#[derive(Clone)]
pub struct RouteUpstreams {
    /// Their dialects.
    pub dialects: Dialects,
    /// Their names in the pool.
    pub names: Arc<[String]>,
}

/// A configured route with its names resolved.
#[derive(Clone)]
pub struct Route {
    /// Glob on the path of the client's URL.
    pub path: String,
    /// Connections at this path speak this client protocol, whatever their messages suggest.
    pub protocol: Option<Arc<ClientMapping>>,
    /// Glob on the client protocol's name.
    pub client: String,
    /// Glob on the model the client asks for.
    pub model: String,
    /// The profile.
    pub profile: Arc<Profile>,
    /// The upstreams that serve it.
    pub upstreams: RouteUpstreams,
    /// Added by voxbridge, and not configured: an upstream need not be able to serve it.
    pub is_fallback: bool,
}

impl Route {
    /// True if the route serves clients of this protocol at some path and with some model.
    pub(crate) fn can_serve(&self, client: &ClientMapping) -> bool {
        let protocol_matches = self.protocol.as_ref().is_none_or(|protocol| protocol.name == client.name);
        protocol_matches
            && matches_glob(&self.client, &client.name)
            && check_client_with_profile(client, &self.profile).is_ok()
    }
}

/// All routes, in order.
#[derive(Clone)]
pub struct Routes(Vec<Route>);

impl Routes {
    /// Routes in order.
    pub const fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// Every route.
    pub fn iter(&self) -> impl Iterator<Item = &Route> {
        self.0.iter()
    }

    /// True if some route serves clients of this protocol at some path and with some model.
    pub fn can_serve(&self, client: &ClientMapping) -> bool {
        self.0.iter().any(|route| route.can_serve(client))
    }

    /// The protocol that connections at this path speak because a route says so.
    pub fn forced_protocol(&self, path: &str) -> Option<&Arc<ClientMapping>> {
        self.0
            .iter()
            .filter(|route| matches_glob(&route.path, path))
            .find_map(|route| route.protocol.as_ref())
    }

    /// Which sessions there may be, by protocol and profile.
    pub fn session_kinds(&self, library: &Library) -> Vec<(Arc<str>, Arc<str>)> {
        let kinds_of = |route: &Route| {
            let clients = library.clients().filter(|client| route.can_serve(client));
            clients.map(|client| (client.name.as_str().into(), route.profile.name.as_str().into())).collect()
        };
        self.0.iter().flat_map(|route| -> Vec<_> { kinds_of(route) }).collect()
    }

    /// The route of a connection at a path, by a client protocol, with a model; `None` when none leads anywhere. Routes
    /// whose profile cannot serve such a client do not count.
    pub fn find(&self, path: &str, client: &ClientMapping, model: &str) -> Option<&Route> {
        self.0.iter().filter(|route| route.can_serve(client)).find(|route| {
            [(&route.path, path), (&route.model, model)]
                .iter()
                .all(|(pattern, text)| matches_glob(pattern, text))
        })
    }
}

/// `*` stands for any run of characters, `?` for one.
pub(crate) fn matches_glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(letter) if *letter == '?' || *letter == text[t] => {
                p += 1;
                t += 1;
            }
            // The last star takes one more character.
            _ => match &mut star {
                Some((star_at, resume_at)) => {
                    *resume_at += 1;
                    (p, t) = (*star_at + 1, *resume_at);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

/// True if every text that matches `other` also matches `pattern`. False where that is hard to tell.
pub(crate) fn covers_glob(pattern: &str, other: &str) -> bool {
    matches_glob(pattern, other) && !(pattern.contains('?') && other.contains('*'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_like_shell_patterns() {
        for (pattern, text) in
            [("*", ""), ("*", "x"), ("faster-whisper-*", "faster-whisper-tiny"), ("a?c*e", "abcde")]
        {
            assert!(matches_glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "x"), ("a*b", "abc"), ("?", ""), ("whisper", "Whisper")] {
            assert!(!matches_glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn glob_covers_narrower_globs() {
        for (pattern, other) in [("*", "a*"), ("a*", "a?c*"), ("?", "?"), ("a", "a")] {
            assert!(covers_glob(pattern, other), "{pattern} {other}");
        }
        for (pattern, other) in [("?", "*"), ("a*", "*"), ("a", "a*"), ("a?", "a*")] {
            assert!(!covers_glob(pattern, other), "{pattern} {other}");
        }
    }

    #[test]
    fn first_matching_route_wins() {
        let library = Library::embedded().unwrap();
        let (macaw, profile) = (library.client("macaw").unwrap(), library.profile("speech").unwrap());
        let dialect = library.upstream("minicpm-o").unwrap();
        let route = |path: &str, model: &str, name: &str, protocol: Option<&Arc<ClientMapping>>| Route {
            path: path.into(),
            protocol: protocol.cloned(),
            client: any_glob(),
            model: model.into(),
            profile: Arc::new(Profile { name: name.into(), ..(*profile).clone() }),
            upstreams: RouteUpstreams { dialects: dialect.clone().into(), names: Arc::from([]) },
            is_fallback: false,
        };
        let routes = Routes::new(vec![
            route("/v1/*", "fast*", "first", None),
            route("*", "*er", "second", None),
            route("/own", "*", "third", Some(&macaw)),
        ]);
        let found = |path, model| routes.find(path, &macaw, model).map(|route| route.profile.name.as_str());
        assert_eq!(found("/v1/realtime", "faster"), Some("first"));
        assert_eq!(found("/v2/realtime", "faster"), Some("second"));
        assert_eq!(found("/v1/realtime", "nope"), None);
        assert_eq!(found("/own", "nope"), Some("third"));
        assert_eq!(routes.forced_protocol("/own").map(|client| client.name.as_str()), Some("macaw"));
        assert!(routes.forced_protocol("/v1/realtime").is_none());
        let kinds = routes.session_kinds(&library);
        let has = |client: &str, profile: &str| {
            kinds.iter().any(|(protocol, of)| (&**protocol, &**of) == (client, profile))
        };
        assert!(has("macaw", "first") && has("macaw", "third") && has("vosk", "first"));
        assert!(!has("vosk", "third"), "a route for one protocol");
    }
}
