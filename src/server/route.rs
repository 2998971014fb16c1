//! Which profile serves a connection: globs on the client protocol and the model, first match wins.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::mapping::Profile;

/// One route of the configuration.
#[derive(Debug, Clone, Deserialize, Serialize, PartialEq, Eq)]
#[serde(deny_unknown_fields)]
pub struct RouteFile {
    /// Glob on the client protocol's name.
    #[serde(default = "any")]
    pub client: String,
    /// Glob on the model the client asks for.
    #[serde(default = "any")]
    pub model: String,
    /// The profile's name.
    pub profile: String,
}

fn any() -> String {
    "*".to_owned()
}

/// All routes, in order.
#[derive(Debug, Clone)]
pub struct Routes(Vec<Route>);

/// One route, its profile found.
#[derive(Debug, Clone)]
pub struct Route {
    /// Glob on the client protocol's name.
    pub client: String,
    /// Glob on the model the client asks for.
    pub model: String,
    /// The profile.
    pub profile: Arc<Profile>,
}

impl Routes {
    /// Routes in order.
    #[must_use]
    pub const fn new(routes: Vec<Route>) -> Self {
        Self(routes)
    }

    /// Everything to one profile.
    #[must_use]
    pub fn all_to(profile: Arc<Profile>) -> Self {
        Self(vec![Route { client: any(), model: any(), profile }])
    }

    /// Every profile a route leads to.
    pub fn profiles(&self) -> impl Iterator<Item = &Arc<Profile>> {
        self.0.iter().map(|route| &route.profile)
    }

    /// The profile for a connection; `None` when no route leads anywhere.
    #[must_use]
    pub fn find(&self, client: &str, model: &str) -> Option<&Arc<Profile>> {
        self.0
            .iter()
            .find(|route| glob(&route.client, client) && glob(&route.model, model))
            .map(|route| &route.profile)
    }
}

/// `*` stands for any run of characters, `?` for one.
fn glob(pattern: &str, text: &str) -> bool {
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
                Some((at, from)) => {
                    *from += 1;
                    (p, t) = (*at + 1, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|letter| *letter == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::Library;

    #[test]
    fn globs_match_as_in_a_shell() {
        for (pattern, text) in
            [("*", ""), ("*", "x"), ("faster-whisper-*", "faster-whisper-tiny"), ("a?c*e", "abcde")]
        {
            assert!(glob(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("", "x"), ("a*b", "abc"), ("?", ""), ("whisper", "Whisper")] {
            assert!(!glob(pattern, text), "{pattern} {text}");
        }
    }

    #[test]
    fn the_first_match_wins_and_none_is_none() {
        let profile = Library::embedded().unwrap().profile("speech").unwrap();
        let named = |name: &str| {
            let mut profile = (*profile).clone();
            profile.name = name.into();
            Arc::new(profile)
        };
        let route =
            |model: &str, name: &str| Route { client: any(), model: model.into(), profile: named(name) };
        let routes = Routes::new(vec![route("fast*", "first"), route("*er", "second")]);
        assert_eq!(routes.find("macaw", "faster").map(|profile| profile.name.as_str()), Some("first"));
        assert_eq!(routes.find("macaw", "slower").map(|profile| profile.name.as_str()), Some("second"));
        assert!(routes.find("macaw", "nope").is_none());
        assert!(Routes::all_to(profile).find("macaw", "").is_some());
    }
}
