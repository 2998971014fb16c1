//! API keys: secret or certificate, limits and permissions, read from the key file.
//!
//! The whole file is validated; no error message quotes a secret. A credential is compared with every key in constant
//! time. Permissions are globs, as in routes.

use std::{
    collections::{HashMap, HashSet},
    ops::Deref,
    sync::Arc,
};

use serde::Deserialize;
use time::{Date, Month};
use toml::value::Datetime;

use crate::{
    secret::{Secret, SecretDigest},
    server::route::matches_glob,
    spelling::check::{FileError, MAX_MS},
};

/// Maximum number of keys, since every request is compared with all of them. More clients need an issuer of tokens.
pub const KEYS_MAX: usize = 10_000;

/// `[[key]]` table of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KeyEntry {
    name: String,
    key: Option<Secret>,
    key_sha256: Option<Secret>,
    key_env: Option<String>,
    certificate_name: Option<String>,
    expires: Option<Datetime>,
    /// Maximum number of concurrent sessions.
    pub sessions_max: Option<usize>,
    /// Maximum number of sessions opened per minute.
    pub sessions_per_minute: Option<u32>,
    /// Maximum duration of a session, ms.
    pub session_duration_max_ms: Option<u64>,
    /// Maximum size of a message, bytes.
    pub message_max_bytes: Option<usize>,
    /// Its sessions are recorded, if the configuration says where.
    #[serde(default)]
    pub record: bool,
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

/// The form of `expires`, for messages.
const EXPIRES_FORM: &str = "expires: must look like 2026-12-31T00:00:00Z or 2026-12-31, without quotes";

fn any_glob() -> Vec<String> {
    vec!["*".to_owned()]
}

/// One key with its limits and permissions.
#[derive(Debug)]
pub struct ApiKey {
    /// Name of the key in logs.
    pub name: Arc<str>,
    digest: Option<SecretDigest>,
    expires_unix_s: Option<u64>,
    /// Its entry, without the secret.
    entry: KeyEntry,
}

impl Deref for ApiKey {
    type Target = KeyEntry;

    fn deref(&self) -> &KeyEntry {
        &self.entry
    }
}

/// Resource that a client requests.
#[derive(Debug, Clone, Copy)]
pub struct AccessTarget<'g> {
    /// Path of the URL.
    pub path: &'g str,
    /// Name of the client protocol.
    pub protocol: &'g str,
    /// Requested model. It is empty for a protocol without models, so only a glob that matches empty text permits it.
    /// `None` if a required model is missing; the protocol reports that.
    pub model: Option<&'g str>,
    /// Profile that serves the request; `None` if no route matches, which is reported elsewhere.
    pub profile: Option<&'g str>,
}

impl ApiKey {
    /// True if the key can be authenticated by a certificate.
    pub const fn has_certificate(&self) -> bool {
        self.entry.certificate_name.is_some()
    }

    /// True if the key permits this target.
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

/// Reason of a failed authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyRejection {
    /// The request has no key.
    #[error(
        "A key is needed: Authorization: Bearer <key>, X-API-Key: <key>, or from browsers the WebSocket subprotocols \
         voxbridge and voxbridge.key.<key>"
    )]
    Missing,
    /// The request has several different keys.
    #[error(
        "The request contains several different keys (Authorization, X-API-Key, Sec-WebSocket-Protocol or the query); send one"
    )]
    Several,
    /// The key is not in the file.
    #[error("The key is not known here")]
    Unknown,
    /// The matching key has expired.
    #[error("The key has expired")]
    Expired,
}

/// All keys of a file.
#[derive(Debug, Default)]
pub struct ApiKeys(Vec<Arc<ApiKey>>);

impl ApiKeys {
    /// Parses a key file; `env` reads an environment variable.
    ///
    /// # Errors
    /// Every mistake with its position; never a secret.
    pub fn parse(file: &str, source: &str, env: impl Fn(&str) -> Option<String>) -> Result<Self, FileError> {
        let read: KeysFile =
            toml::from_str(source).map_err(|error| problem_without_values(file, source, &error))?;
        if read.keys.len() > KEYS_MAX {
            let message = format!("too many keys: {}; the maximum is {KEYS_MAX}", read.keys.len());
            return Err(FileError::for_file(file, message));
        }
        let (mut problems, mut keys, mut seen) = (Vec::new(), Vec::new(), SeenKeys::default());
        for entry in read.keys {
            let name = entry.name.clone();
            match entry.compile(&env).and_then(|key| seen.insert(key)) {
                Ok(key) => keys.push(key),
                Err(problem) => {
                    problems.push(FileError::for_file(file, format!("[[key]] {name:?}: {problem}")));
                }
            }
        }
        FileError::combine(problems)?;
        Ok(Self(keys))
    }

    /// Finds the entry of the client's key, or without one of its certificate names; `unix_s` is the Unix time in
    /// seconds.
    ///
    /// # Errors
    /// The reason of the rejection.
    pub fn authenticate(
        &self,
        key: Option<&str>,
        certificate_names: &[String],
        unix_s: u64,
    ) -> Result<Arc<ApiKey>, KeyRejection> {
        let found = if let Some(digest) = key.map(SecretDigest::of) {
            // Compares with all keys, so that the duration does not reveal which one matches.
            let matching = self.0.iter().filter(|key| key.digest.is_some_and(|own| own == digest));
            matching.fold(None, |_, key| Some(key)).ok_or(KeyRejection::Unknown)
        } else {
            let is_named = |key: &&Arc<ApiKey>| {
                key.certificate_name.as_ref().is_some_and(|own| certificate_names.contains(own))
            };
            self.0.iter().find(is_named).ok_or(KeyRejection::Missing)
        };
        found?.check_expiry(unix_s)
    }

    /// Finds the entry that this key has now, after reloads.
    ///
    /// # Errors
    /// The key was removed, its secret or certificate was changed, or it has expired.
    pub(in crate::server) fn find_current(
        &self,
        key: &ApiKey,
        unix_s: u64,
    ) -> Result<Arc<ApiKey>, KeyRejection> {
        let identity = |key: &ApiKey| (key.name.clone(), key.digest, key.certificate_name.clone());
        let found = self.0.iter().find(|entry| identity(entry) == identity(key));
        found.ok_or(KeyRejection::Unknown)?.check_expiry(unix_s)
    }

    /// Names of the keys that have expired at this Unix time, in seconds.
    pub fn expired(&self, unix_s: u64) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |key| key.check_expiry(unix_s).is_err()).map(|key| &*key.name)
    }

    /// Iterates over all keys.
    pub fn iter(&self) -> impl Iterator<Item = &ApiKey> {
        self.0.iter().map(|key| &**key)
    }
}

/// Names, secrets and certificate names seen so far; each must be unique.
#[derive(Default)]
struct SeenKeys {
    names: HashSet<Arc<str>>,
    digests: HashMap<SecretDigest, Arc<str>>,
    certificates: HashMap<String, Arc<str>>,
}

impl SeenKeys {
    /// Adds a key.
    fn insert(&mut self, key: ApiKey) -> Result<Arc<ApiKey>, String> {
        if self.names.contains(&key.name) {
            return Err("the name is used by another key".to_owned());
        }
        if let Some(other) = key.digest.and_then(|digest| self.digests.get(&digest)) {
            return Err(format!("same secret as key {other:?}"));
        }
        if let Some(other) = key.certificate_name.as_ref().and_then(|name| self.certificates.get(name)) {
            return Err(format!("same certificate_name as key {other:?}"));
        }
        self.names.insert(key.name.clone());
        self.certificates.extend(key.certificate_name.clone().map(|name| (name, key.name.clone())));
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
    fn compile(mut self, env: &impl Fn(&str) -> Option<String>) -> Result<ApiKey, String> {
        if self.name.trim().is_empty() {
            return Err("the name is empty".to_owned());
        }
        if self.certificate_name.as_ref().is_some_and(|name| name.trim().is_empty()) {
            return Err("certificate_name is empty".to_owned());
        }
        let digest = self.secret_digest(env)?;
        if digest.is_none() && self.certificate_name.is_none() {
            return Err("one of `key`, `key_sha256`, `key_env` or `certificate_name` is required".to_owned());
        }
        if [self.sessions_max, self.sessions_per_minute.map(|n| n as usize), self.message_max_bytes]
            .contains(&Some(0))
        {
            return Err("a limit of 0 permits no session; delete the key instead".to_owned());
        }
        if self.session_duration_max_ms.is_some_and(|ms| !(1..=MAX_MS).contains(&ms)) {
            return Err(format!("session_duration_max_ms: must be 1 to {MAX_MS}"));
        }
        (self.key, self.key_sha256) = (None, None);
        Ok(ApiKey {
            name: self.name.as_str().into(),
            digest,
            expires_unix_s: self.expires.map(|at| datetime_to_unix_s(&at)).transpose()?,
            entry: self,
        })
    }

    fn secret_digest(&self, env: &impl Fn(&str) -> Option<String>) -> Result<Option<SecretDigest>, String> {
        match (&self.key, &self.key_sha256, &self.key_env) {
            (Some(key), None, None) => digest_of_header_safe(key.expose(), "key").map(Some),
            (None, Some(hex), None) => SecretDigest::from_hex(hex.expose()).map(Some).ok_or_else(|| {
                "key_sha256: must be 64 hexadecimal digits, as sha256sum prints them".to_owned()
            }),
            (None, None, Some(name)) => {
                let value =
                    env(name).ok_or_else(|| format!("key_env: environment variable {name} is not set"))?;
                digest_of_header_safe(&value, "key_env").map(Some)
            }
            (None, None, None) => Ok(None),
            _ => Err("only one of `key`, `key_sha256` and `key_env` is allowed".to_owned()),
        }
    }
}

/// Hashes a secret after checking that it can be sent in a header.
fn digest_of_header_safe(text: &str, name: &str) -> Result<SecretDigest, String> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(format!(
            "{name}: must consist of ASCII letters, digits and punctuation without spaces, because it is sent in a header"
        ));
    }
    Ok(SecretDigest::of(text))
}

/// Reports a TOML error without values, which may be secrets.
fn problem_without_values(file: &str, source: &str, error: &toml::de::Error) -> FileError {
    let key_name_errors = ["unknown field", "missing field", "duplicate key"];
    if key_name_errors.iter().any(|words| error.message().starts_with(words)) {
        return FileError::from_toml(file, source, error);
    }
    let key = error.span().map_or("", |span| key_at(source, span.start));
    let message = match key {
        "expires" => EXPIRES_FORM,
        _ => "invalid value (not shown, because it may be a secret)",
    };
    match error.span() {
        Some(span) => FileError::at_offset(file, source, span.start, message),
        None => FileError::for_file(file, message),
    }
}

/// The key of the line that has this byte of a TOML text.
fn key_at(source: &str, at: usize) -> &str {
    let before = source.get(..at).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.split('=').next().unwrap_or_default().trim()
}

/// Unix time in seconds of a time with an offset, or of the start of a day in UTC.
fn datetime_to_unix_s(at: &Datetime) -> Result<u64, String> {
    let format_error = || EXPIRES_FORM.to_owned();
    let date = at.date.ok_or_else(format_error)?;
    let offset_s = match (&at.time, &at.offset) {
        (None, None) | (Some(_), Some(toml::value::Offset::Z)) => 0,
        (Some(_), Some(toml::value::Offset::Custom { minutes })) => i64::from(*minutes) * 60,
        _ => return Err(format_error()),
    };
    let second_of_day = at.time.map_or(0, |time| {
        i64::from(time.hour) * 3600 + i64::from(time.minute) * 60 + i64::from(time.second.unwrap_or_default())
    });
    let month = Month::try_from(date.month).map_err(|_| format_error())?;
    let day = Date::from_calendar_date(date.year.into(), month, date.day).map_err(|_| format_error())?;
    let midnight = day.midnight().assume_utc().unix_timestamp();
    Ok(u64::try_from(midnight + second_of_day - offset_s).unwrap_or_default())
}

/// Digest of each key's entry by name, to find out which keys changed.
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
