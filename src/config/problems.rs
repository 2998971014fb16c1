//! Mistakes of a configuration, each with the key that it is about, so that a check can report all of them with their
//! positions.

use std::fmt;

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigProblem {
    /// Path of the key; the entries of a list have their index. Empty for the configuration as a whole.
    pub path: Vec<String>,
    /// Description, which names the key.
    pub message: String,
}

/// The mistakes found so far.
#[derive(Debug, Default)]
pub(super) struct ConfigProblems(Vec<ConfigProblem>);

impl ConfigProblems {
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn into_vec(self) -> Vec<ConfigProblem> {
        self.0
    }

    /// Adds a mistake, unless it is known at this key or around it: one key may be checked several times.
    pub(super) fn push(&mut self, path: &[&str], message: impl Into<String>) {
        let path: Vec<String> = path.iter().map(|key| (*key).to_owned()).collect();
        let problem = ConfigProblem { path, message: message.into() };
        let is_around = |known: &ConfigProblem| {
            known.path.starts_with(&problem.path) || problem.path.starts_with(&known.path)
        };
        if !self.0.iter().any(|known| known.message == problem.message && is_around(known)) {
            self.0.push(problem);
        }
    }

    /// Returns the value, or adds the mistake.
    pub(super) fn take<T>(&mut self, path: &[&str], result: Result<T, String>) -> Option<T> {
        result.map_err(|message| self.push(path, message)).ok()
    }

    /// Like [`Self::take`], for a message that begins with the key, as in `limits.handshakes_max: …`.
    pub(super) fn take_named<T>(&mut self, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|message| {
                let key = message.split(": ").next().unwrap_or_default().to_owned();
                let is_key = key.bytes().all(|byte| byte.is_ascii_lowercase() || b"._".contains(&byte));
                let path: Vec<&str> = if is_key { key.split('.').collect() } else { Vec::new() };
                self.push(&path, message);
            })
            .ok()
    }
}

impl fmt::Display for ConfigProblems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let messages: Vec<&str> = self.0.iter().map(|problem| problem.message.as_str()).collect();
        f.write_str(&messages.join("\n"))
    }
}
