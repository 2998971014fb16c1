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
    mapping::check::{FileError, MAX_MS},
    secret::{Secret, SecretDigest},
    server::route::matches_glob,
};

/// Keys of a file: all of them are looked through for every request, and more belong to what issues tokens.
pub const KEYS_MAX: usize = 10_000;

/// `[[key]]` as it stands in the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyEntry {
    name: String,
    key: Option<Secret>,
    key_sha256: Option<Secret>,
    key_env: Option<String>,
    certificate_name: Option<String>,
    expires: Option<Datetime>,
    sessions_max: Option<usize>,
    sessions_per_minute: Option<u32>,
    session_duration_max_ms: Option<u64>,
    message_max_bytes: Option<usize>,
    #[serde(default = "any_glob")]
    models: Vec<String>,
    #[serde(default = "any_glob")]
    protocols: Vec<String>,
    #[serde(default = "any_glob")]
    paths: Vec<String>,
    #[serde(default = "any_glob")]
    profiles: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeysFile {
    #[serde(default, rename = "key")]
    keys: Vec<KeyEntry>,
}

fn any_glob() -> Vec<String> {
    vec!["*".to_owned()]
}

/// One key, and what it is good for.
#[derive(Debug)]
pub struct ApiKey {
    /// What logs call it.
    pub name: Arc<str>,
    digest: Option<SecretDigest>,
    certificate: Option<String>,
    expires_unix_s: Option<u64>,
    /// Sessions at a time.
    pub sessions_max: Option<usize>,
    /// Sessions begun a minute.
    pub sessions_per_minute: Option<u32>,
    /// Time of a session, ms.
    pub session_duration_max_ms: Option<u64>,
    /// Length of a message, bytes.
    pub message_max_bytes: Option<usize>,
    models: Vec<String>,
    protocols: Vec<String>,
    paths: Vec<String>,
    profiles: Vec<String>,
}

/// What somebody wants to reach.
#[derive(Debug, Clone, Copy)]
pub struct AccessTarget<'g> {
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

impl ApiKey {
    /// Whether it is known by a certificate.
    #[must_use]
    pub const fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }

    /// Whether it opens the way there.
    #[must_use]
    pub fn can_access(&self, target: &AccessTarget<'_>) -> bool {
        let matches_any = |globs: &[String], text: Option<&str>| {
            text.is_none_or(|text| globs.iter().any(|pattern| matches_glob(pattern, text)))
        };
        matches_any(&self.paths, Some(target.path))
            && matches_any(&self.protocols, Some(target.protocol))
            && matches_any(&self.models, target.model)
            && matches_any(&self.profiles, target.profile)
    }
}

/// Why nobody is known by what was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyRejection {
    /// Nothing was shown.
    Missing,
    /// It is nobody's.
    Unknown,
    /// It was somebody's.
    Expired,
}

impl fmt::Display for KeyRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => {
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
pub struct ApiKeys(Vec<Arc<ApiKey>>);

impl ApiKeys {
    /// From a file's text; `env` reads the environment.
    ///
    /// # Errors
    /// Every mistake with its place; never a secret.
    pub fn parse(file: &str, source: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, FileError> {
        let read: KeysFile =
            toml::from_str(source).map_err(|error| problem_without_values(file, source, &error))?;
        if read.keys.len() > KEYS_MAX {
            let message = format!("it has {} keys; at most {KEYS_MAX} are looked through", read.keys.len());
            return Err(FileError::for_file(file, message));
        }
        let (mut problems, mut keys, mut seen) = (Vec::new(), Vec::new(), SeenKeys::default());
        for entry in read.keys {
            let name = entry.name.clone();
            match entry.compile(&env).and_then(|key| seen.insert(key)) {
                Ok(key) => keys.push(key),
                Err(problem) => {
                    problems.push(FileError::for_file(file, format!("[[key]] {name:?}: {problem}")))
                }
            }
        }
        FileError::combine(problems)?;
        Ok(Self(keys))
    }

    /// Whose key was shown, at this time since 1970; or whose certificate, which has these names.
    ///
    /// # Errors
    /// Why it is nobody's.
    pub fn authenticate<'s>(
        &self,
        credentials: impl Iterator<Item = &'s str>,
        certificate_names: &[String],
        unix_s: u64,
    ) -> Result<Arc<ApiKey>, KeyRejection> {
        let mut rejection = KeyRejection::Missing;
        for digest in credentials.map(SecretDigest::of) {
            // All of them every time: how long it takes does not tell which.
            let matching = self.0.iter().filter(|key| key.digest.is_some_and(|own| own == digest));
            match matching.fold(None, |_, key| Some(key)) {
                Some(key) => return key.check_expiry(unix_s),
                None => rejection = KeyRejection::Unknown,
            }
        }
        let is_named =
            |key: &&Arc<ApiKey>| key.certificate.as_ref().is_some_and(|own| certificate_names.contains(own));
        match self.0.iter().find(is_named) {
            Some(key) if rejection == KeyRejection::Missing => key.check_expiry(unix_s),
            _ => Err(rejection),
        }
    }

    /// Every key.
    pub fn iter(&self) -> impl Iterator<Item = &ApiKey> {
        self.0.iter().map(|key| &**key)
    }
}

/// Names and secrets of a file, each of which may stand there once.
#[derive(Default)]
struct SeenKeys {
    names: HashSet<Arc<str>>,
    digests: HashMap<SecretDigest, Arc<str>>,
}

impl SeenKeys {
    /// One more.
    fn insert(&mut self, key: ApiKey) -> Result<Arc<ApiKey>, String> {
        if self.names.contains(&key.name) {
            return Err("there are two of this name".to_owned());
        }
        if let Some(other) = key.digest.and_then(|digest| self.digests.get(&digest)) {
            return Err(format!("it has the same secret as {other:?}"));
        }
        self.names.insert(key.name.clone());
        self.digests.extend(key.digest.map(|digest| (digest, key.name.clone())));
        Ok(Arc::new(key))
    }
}

impl ApiKey {
    fn check_expiry(self: &Arc<Self>, unix_s: u64) -> Result<Arc<Self>, KeyRejection> {
        if self.expires_unix_s.is_some_and(|expires| expires <= unix_s) {
            return Err(KeyRejection::Expired);
        }
        Ok(self.clone())
    }
}

impl KeyEntry {
    fn compile(self, env: &impl Fn(&str) -> Option<String>) -> Result<ApiKey, String> {
        if self.name.trim().is_empty() {
            return Err("its name is empty".to_owned());
        }
        let digest = self.secret_digest(env)?;
        if digest.is_none() && self.certificate_name.is_none() {
            return Err("it needs one of `key`, `key_sha256`, `key_env` and `certificate_name`".to_owned());
        }
        if [self.sessions_max, self.sessions_per_minute.map(|n| n as usize), self.message_max_bytes]
            .contains(&Some(0))
        {
            return Err("a limit of 0 lets nobody in; leave the key out instead".to_owned());
        }
        if self.session_duration_max_ms.is_some_and(|ms| !(1..=MAX_MS).contains(&ms)) {
            return Err(format!("session_duration_max_ms: must be 1 to {MAX_MS}"));
        }
        Ok(ApiKey {
            name: self.name.into(),
            digest,
            certificate: self.certificate_name,
            expires_unix_s: self.expires.map(|at| datetime_to_unix_s(&at)).transpose()?,
            sessions_max: self.sessions_max,
            sessions_per_minute: self.sessions_per_minute,
            session_duration_max_ms: self.session_duration_max_ms,
            message_max_bytes: self.message_max_bytes,
            models: self.models,
            protocols: self.protocols,
            paths: self.paths,
            profiles: self.profiles,
        })
    }

    fn secret_digest(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Option<SecretDigest>, String> {
        match (&self.key, &self.key_sha256, &self.key_env) {
            (Some(key), None, None) => digest_of_header_safe(key.expose(), "key").map(Some),
            (None, Some(hex), None) => SecretDigest::from_hex(hex.expose()).map(Some).ok_or_else(|| {
                "key_sha256: must be 64 hexadecimal digits, as sha256sum prints them".to_owned()
            }),
            (None, None, Some(name)) => {
                let value = env(name).ok_or_else(|| format!("key_env: {name} is not in the environment"))?;
                digest_of_header_safe(&value, "key_env").map(Some)
            }
            (None, None, None) => Ok(None),
            _ => Err("it has several of `key`, `key_sha256` and `key_env`; one is meant".to_owned()),
        }
    }
}

/// It can be sent in a header.
fn digest_of_header_safe(text: &str, name: &str) -> Result<SecretDigest, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{name}: must be ASCII letters, digits and signs without spaces, for it goes into a header"
        ));
    }
    Ok(SecretDigest::of(text))
}

/// What the TOML reader says, without values: they may be secrets.
fn problem_without_values(file: &str, source: &str, error: &toml::de::Error) -> FileError {
    let key_name_errors = ["unknown field", "missing field", "duplicate key"];
    if key_name_errors.iter().any(|words| error.message().starts_with(words)) {
        return FileError::from_toml(file, source, error);
    }
    let message = "this is not what may stand here (values are not shown: they may be secrets)";
    match error.span() {
        Some(span) => FileError::at_offset(file, source, span.start, message),
        None => FileError::for_file(file, message),
    }
}

/// Seconds since 1970 of a time with an offset, or of the beginning of a day in UTC.
fn datetime_to_unix_s(at: &Datetime) -> Result<u64, String> {
    let format_error = || "expires: must look like 2026-12-31T00:00:00Z or 2026-12-31".to_owned();
    let date = at.date.ok_or_else(format_error)?;
    let offset_s = match (&at.time, &at.offset) {
        (None, None) | (Some(_), Some(toml::value::Offset::Z)) => 0,
        (Some(_), Some(toml::value::Offset::Custom { minutes })) => i64::from(*minutes) * 60,
        _ => return Err(format_error()),
    };
    let second_of_day = at.time.map_or(0, |time| {
        i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second.unwrap_or_default())
    });
    let days = days_since_epoch(i64::from(date.year), i64::from(date.month), i64::from(date.day));
    Ok(u64::try_from(days * 86_400 + second_of_day - offset_s).unwrap_or_default())
}

/// Days from 1 January 1970 in the Gregorian calendar; years are counted from March, so that the leap day is the last.
const fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

/// The digest of each key's entry, by name: for telling which of them changed.
#[must_use]
pub fn entry_digests(source: &str) -> Vec<(String, String)> {
    let table = source.parse::<toml::Table>().unwrap_or_default();
    let keys = table.get("key").and_then(toml::Value::as_array).into_iter().flatten();
    keys.filter_map(|key| {
        let name = key.get("name")?.as_str()?;
        let entry = toml::to_string(key).ok()?;
        Some((name.to_owned(), crate::trace::redact::fnv1a_digest(entry.as_bytes())))
    })
    .collect()
}

#[cfg(test)]
mod tests;
