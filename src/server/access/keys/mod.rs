//! The file of keys: who may in by which secret, how much, and where to.
//!
//! What stands in the file is checked as a whole, and no mistake quotes a secret. A key is found by comparing what was shown
//! with every one of them in constant time; what it may reach are globs, as in routes.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::Arc,
};

use serde::Deserialize;
use toml::value::Datetime;

use crate::{
    mapping::check::{LONGEST_MS, Problem},
    secret::{Print, Secret},
    server::route::glob,
};

/// Keys of a file: all of them are looked through for every request, and more belong to what issues tokens.
pub const KEYS_MAX: usize = 10_000;

/// `[[key]]` as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    name: String,
    key: Option<Secret>,
    key_sha256: Option<Secret>,
    key_env: Option<String>,
    certificate: Option<String>,
    expires: Option<Datetime>,
    sessions_max: Option<usize>,
    new_per_minute: Option<u32>,
    session_max_ms: Option<u64>,
    message_max_bytes: Option<usize>,
    #[serde(default = "any")]
    models: Vec<String>,
    #[serde(default = "any")]
    protocols: Vec<String>,
    #[serde(default = "any")]
    paths: Vec<String>,
    #[serde(default = "any")]
    profiles: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    #[serde(default, rename = "key")]
    keys: Vec<KeyFile>,
}

fn any() -> Vec<String> {
    vec!["*".to_owned()]
}

/// One key, and what it is good for.
#[derive(Debug)]
pub struct Key {
    /// What logs call it.
    pub name: Arc<str>,
    print: Option<Print>,
    certificate: Option<String>,
    expires_unix_s: Option<u64>,
    /// Sessions at a time.
    pub sessions_max: Option<usize>,
    /// Sessions begun a minute.
    pub new_per_minute: Option<u32>,
    /// Time of a session, ms.
    pub session_max_ms: Option<u64>,
    /// Length of a message, bytes.
    pub message_max_bytes: Option<usize>,
    models: Vec<String>,
    protocols: Vec<String>,
    paths: Vec<String>,
    profiles: Vec<String>,
}

/// What somebody wants to reach.
#[derive(Debug, Clone, Copy)]
pub struct Goal<'g> {
    /// Path of the URL.
    pub path: &'g str,
    /// Name of the client protocol.
    pub protocol: &'g str,
    /// The model asked for: empty where the protocol has none, which only a pattern that fits nothing too lets pass. `None`
    /// where one is missing, for the protocol itself to say.
    pub model: Option<&'g str>,
    /// The profile that serves it; none where no route leads anywhere, which is for others to say.
    pub profile: Option<&'g str>,
}

impl Key {
    /// Whether it is known by a certificate.
    #[must_use]
    pub const fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether it opens the way there.
    #[must_use]
    pub fn opens(&self, goal: &Goal<'_>) -> bool {
        let fits = |globs: &[String], text: Option<&str>| {
            text.is_none_or(|text| globs.iter().any(|pattern| glob(pattern, text)))
        };
        fits(&self.paths, Some(goal.path))
            && fits(&self.protocols, Some(goal.protocol))
            && fits(&self.models, goal.model)
            && fits(&self.profiles, goal.profile)
    }
}

/// Why nobody is known by what was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// Nothing was shown.
    Nothing,
    /// It is nobody's.
    Unknown,
    /// It was somebody's.
    Expired,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nothing => {
                "A key is needed: Authorization: Bearer <key>, X-API-Key: <key>, or from browsers the \
                 WebSocket subprotocols voxbridge and voxbridge.key.<key>"
            }
            Self::Unknown => "The key is not known here",
            Self::Expired => "The key has expired",
        })
    }
}

/// All keys.
#[derive(Debug, Default)]
pub struct Keys(Vec<Arc<Key>>);

impl Keys {
    /// From a file's text; `env` reads the environment.
    ///
    /// # Errors
    /// Every mistake with its place; never a secret.
    pub fn parse(file: &str, source: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, Problem> {
        let read: KeysFile = toml::from_str(source).map_err(|error| discreet(file, source, &error))?;
        if read.keys.len() > KEYS_MAX {
            let words = format!("it has {} keys; at most {KEYS_MAX} are looked through", read.keys.len());
            return Err(Problem::whole(file, words));
        }
        let (mut problems, mut keys, mut known) = (Vec::new(), Vec::new(), Known::default());
        for one in read.keys {
            let name = one.name.clone();
            match one.compile(&env).and_then(|key| known.with(key)) {
                Ok(key) => keys.push(key),
                Err(problem) => problems.push(Problem::whole(file, format!("[[key]] {name:?}: {problem}"))),
            }
        }
        Problem::of(problems)?;
        Ok(Self(keys))
    }

    /// Whose key was shown, at this time since 1970; or whose certificate, which has these names.
    ///
    /// # Errors
    /// Why it is nobody's.
    pub fn holder<'s>(
        &self,
        shown: impl Iterator<Item = &'s str>,
        names: &[String],
        unix_s: u64,
    ) -> Result<Arc<Key>, Refused> {
        let mut why = Refused::Nothing;
        for print in shown.map(Print::of) {
            // All of them every time: how long it takes does not tell which.
            let same = self.0.iter().filter(|key| key.print.is_some_and(|own| own == print));
            match same.fold(None, |_, key| Some(key)) {
                Some(key) => return key.now(unix_s),
                None => why = Refused::Unknown,
            }
        }
        let is_named = |key: &&Arc<Key>| key.certificate.as_ref().is_some_and(|own| names.contains(own));
        match self.0.iter().find(is_named) {
            Some(key) if why == Refused::Nothing => key.now(unix_s),
            _ => Err(why),
        }
    }

    /// Every key.
    pub fn iter(&self) -> impl Iterator<Item = &Key> {
        self.0.iter().map(|key| &**key)
    }
}

/// Names and secrets of a file, each of which may stand there once.
#[derive(Default)]
struct Known {
    names: HashSet<Arc<str>>,
    prints: HashMap<Print, Arc<str>>,
}

impl Known {
    /// One more.
    fn with(&mut self, key: Key) -> Result<Arc<Key>, String> {
        if self.names.contains(&key.name) {
            return Err("there are two of this name".to_owned());
        }
        if let Some(other) = key.print.and_then(|print| self.prints.get(&print)) {
            return Err(format!("it has the same secret as {other:?}"));
        }
        self.names.insert(key.name.clone());
        self.prints.extend(key.print.map(|print| (print, key.name.clone())));
        Ok(Arc::new(key))
    }
}

impl Key {
    fn now(self: &Arc<Self>, unix_s: u64) -> Result<Arc<Self>, Refused> {
        if self.expires_unix_s.is_some_and(|expires| expires <= unix_s) {
            return Err(Refused::Expired);
        }
        Ok(self.clone())
    }
}

impl KeyFile {
    fn compile(self, env: &impl Fn(&str) -> Option<String>) -> Result<Key, String> {
        if self.name.trim().is_empty() {
            return Err("its name is empty".to_owned());
        }
        let print = self.print(env)?;
        if print.is_none() && self.certificate.is_none() {
            return Err("it needs one of `key`, `key_sha256`, `key_env` and `certificate`".to_owned());
        }
        if [self.sessions_max, self.new_per_minute.map(|n| n as usize), self.message_max_bytes]
            .contains(&Some(0))
        {
            return Err("a limit of 0 lets nobody in; leave the key out instead".to_owned());
        }
        if self.session_max_ms.is_some_and(|ms| !(1..=LONGEST_MS).contains(&ms)) {
            return Err(format!("session_max_ms: must be 1 to {LONGEST_MS}"));
        }
        Ok(Key {
            name: self.name.into(),
            print,
            certificate: self.certificate,
            expires_unix_s: self.expires.map(|at| unix_s(&at)).transpose()?,
            sessions_max: self.sessions_max,
            new_per_minute: self.new_per_minute,
            session_max_ms: self.session_max_ms,
            message_max_bytes: self.message_max_bytes,
            models: self.models,
            protocols: self.protocols,
            paths: self.paths,
            profiles: self.profiles,
        })
    }

    fn print(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Option<Print>, String> {
        match (&self.key, &self.key_sha256, &self.key_env) {
            (Some(key), None, None) => secret(key.expose(), "key").map(Some),
            (None, Some(hex), None) => Print::from_hex(hex.expose()).map(Some).ok_or_else(|| {
                "key_sha256: must be 64 hexadecimal digits, as sha256sum prints them".to_owned()
            }),
            (None, None, Some(name)) => {
                let value = env(name).ok_or_else(|| format!("key_env: {name} is not in the environment"))?;
                secret(&value, "key_env").map(Some)
            }
            (None, None, None) => Ok(None),
            _ => Err("it has several of `key`, `key_sha256` and `key_env`; one is meant".to_owned()),
        }
    }
}

/// It can be sent in a header.
fn secret(text: &str, name: &str) -> Result<Print, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{name}: must be ASCII letters, digits and signs without spaces, for it goes into a header"
        ));
    }
    Ok(Print::of(text))
}

/// What the TOML reader says, without values: they may be secrets.
fn discreet(file: &str, source: &str, error: &toml::de::Error) -> Problem {
    let of_names = ["unknown field", "missing field", "duplicate key"];
    if of_names.iter().any(|words| error.message().starts_with(words)) {
        return Problem::from_toml(file, source, error);
    }
    let words = "this is not what may stand here (values are not shown: they may be secrets)";
    match error.span() {
        Some(span) => Problem::at(file, source, span.start, words),
        None => Problem::whole(file, words),
    }
}

/// Seconds since 1970 of a time with an offset, or of the beginning of a day in UTC.
fn unix_s(at: &Datetime) -> Result<u64, String> {
    let wrong = || "expires: must look like 2026-12-31T00:00:00Z or 2026-12-31".to_owned();
    let date = at.date.ok_or_else(wrong)?;
    let offset_s = match (&at.time, &at.offset) {
        (None, None) | (Some(_), Some(toml::value::Offset::Z)) => 0,
        (Some(_), Some(toml::value::Offset::Custom { minutes })) => i64::from(*minutes) * 60,
        _ => return Err(wrong()),
    };
    let of_day = at.time.map_or(0, |time| {
        i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second.unwrap_or_default())
    });
    let days = days(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    Ok(u64::try_from(days * 86_400 + of_day - offset_s).unwrap_or_default())
}

/// Days from 1 January 1970 in the Gregorian calendar; years are counted from March, so that the leap day is the last.
const fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + of_year - 719_468
}

/// The digest of each key's entry, by name: for telling which of them changed.
#[must_use]
pub fn entries(source: &str) -> Vec<(String, String)> {
    let table = source.parse::<toml::Table>().unwrap_or_default();
    let keys = table.get("key").and_then(toml::Value::as_array).into_iter().flatten();
    keys.filter_map(|key| {
        let name = key.get("name")?.as_str()?;
        let entry = toml::to_string(key).ok()?;
        Some((name.to_owned(), crate::trace::record::digest(entry.as_bytes())))
    })
    .collect()
}

#[cfg(test)]
mod tests;
