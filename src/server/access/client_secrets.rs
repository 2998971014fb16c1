//! Client secrets: short-lived keys that a client's own server asks for, so that a page or an app never holds an API key.
//!
//! They are OpenAI's ephemeral keys (`POST /v1/realtime/client_secrets`), issued in [`crate::server::rest`]. A secret has
//! the permissions and quotas of the API key that asked for it, and opens sessions only. This process keeps its digest, in
//! memory.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use super::keys::ApiKey;
use crate::secret::{SecretDigest, random_hex};

/// Prefix of every secret.
pub(in crate::server) const PREFIX: &str = "ek_";
/// Random bytes of a secret: 192 bits.
const SECRET_BYTES: usize = 24;
/// Valid secrets of one key; one more replaces the oldest. Pages use theirs within seconds.
const SECRETS_PER_KEY_MAX: usize = 1000;

/// Most bytes of all sessions of one key's secrets; beyond it, the oldest secrets go.
const SESSIONS_PER_KEY_MAX_BYTES: usize = 4 * 1024 * 1024;

/// The secrets of all keys. Survives a reload; clones share it.
#[derive(Debug, Clone, Default)]
pub(in crate::server) struct ClientSecrets(Arc<Mutex<IssuedSecrets>>);

#[derive(Debug, Default)]
struct IssuedSecrets {
    by_digest: HashMap<SecretDigest, IssuedSecret>,
    issued: u64,
}

#[derive(Debug)]
struct IssuedSecret {
    /// The key that asked; `None` where none is required.
    key: Option<Arc<ApiKey>>,
    expires_unix_s: u64,
    /// First settings of the sessions that it opens, JSON; `None` for the defaults.
    session: Option<Arc<str>>,
    /// Counts up with every secret.
    number: u64,
}

impl ClientSecrets {
    /// Makes a secret for sessions of this key with these settings; `None` if the system has no random numbers. The times are
    /// Unix times in seconds.
    pub(in crate::server) fn issue(
        &self,
        key: Option<Arc<ApiKey>>,
        session: Option<Arc<str>>,
        unix_s: u64,
        expires_unix_s: u64,
    ) -> Option<String> {
        let secret = format!("{PREFIX}{}", random_hex::<SECRET_BYTES>()?);
        let issued = IssuedSecret { key, expires_unix_s, session, number: 0 };
        self.lock().insert(SecretDigest::of(&secret), issued, unix_s);
        Some(secret)
    }

    /// The key that a valid secret was made for; `None` if this is no valid secret.
    pub(super) fn key_of(&self, secret: &str, unix_s: u64) -> Option<Option<Arc<ApiKey>>> {
        self.find(secret, unix_s, |found| found.key.clone())
    }

    /// Settings of the sessions that a valid secret opens.
    pub(in crate::server) fn session_of(&self, secret: &str, unix_s: u64) -> Option<Arc<str>> {
        self.find(secret, unix_s, |found| found.session.clone()).flatten()
    }

    fn find<T>(&self, secret: &str, unix_s: u64, read: impl FnOnce(&IssuedSecret) -> T) -> Option<T> {
        if !secret.starts_with(PREFIX) {
            return None;
        }
        let issued = self.lock();
        let found = issued.by_digest.get(&SecretDigest::of(secret))?;
        (found.expires_unix_s > unix_s).then(|| read(found))
    }

    fn lock(&self) -> MutexGuard<'_, IssuedSecrets> {
        // A panic cannot leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IssuedSecrets {
    /// Adds a secret, and forgets the expired ones and those beyond the limits, the oldest first.
    fn insert(&mut self, digest: SecretDigest, secret: IssuedSecret, unix_s: u64) {
        self.by_digest.retain(|_, secret| secret.expires_unix_s > unix_s);
        let name = |secret: &IssuedSecret| secret.key.as_ref().map(|key| key.name.clone());
        let of_key = self.by_digest.iter().filter(|(_, other)| name(other) == name(&secret));
        let mut of_key: Vec<_> =
            of_key.map(|(digest, other)| (other.number, other.session_bytes(), *digest)).collect();
        of_key.sort_unstable_by_key(|(number, ..)| *number);
        let mut bytes = secret.session_bytes() + of_key.iter().map(|(_, bytes, _)| bytes).sum::<usize>();
        for (at, (_, oldest_bytes, oldest)) in of_key.iter().enumerate() {
            if of_key.len() - at < SECRETS_PER_KEY_MAX && bytes <= SESSIONS_PER_KEY_MAX_BYTES {
                break;
            }
            self.by_digest.remove(oldest);
            bytes -= oldest_bytes;
        }
        self.issued += 1;
        self.by_digest.insert(digest, IssuedSecret { number: self.issued, ..secret });
    }
}

impl IssuedSecret {
    fn session_bytes(&self) -> usize {
        self.session.as_ref().map_or(0, |session| session.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::access::keys::ApiKeys;

    const NOW: u64 = 1_800_000_000;

    fn key(name: &str) -> Option<Arc<ApiKey>> {
        let file = format!("[[key]]\nname = \"{name}\"\nkey = \"{name}-s3cret\"\n");
        let keys = ApiKeys::parse("keys.toml", &file, |_| None).unwrap();
        Some(keys.authenticate(Some(&format!("{name}-s3cret")), &[], NOW).unwrap())
    }

    fn name_of(secrets: &ClientSecrets, secret: &str, unix_s: u64) -> Option<String> {
        secrets.key_of(secret, unix_s).map(|key| key.map_or_else(String::new, |key| key.name.to_string()))
    }

    #[test]
    fn secret_is_random_stands_for_its_key_and_expires() {
        let secrets = ClientSecrets::default();
        let issue = |key| secrets.issue(key, None, NOW, NOW + 10).unwrap();
        let (ann, bob, anonymous) = (issue(key("ann")), issue(key("bob")), issue(None));
        assert!(ann != bob && ann.starts_with("ek_") && ann.len() == 3 + 2 * SECRET_BYTES, "{ann}");
        for (secret, name) in [(&ann, "ann"), (&bob, "bob"), (&anonymous, "")] {
            assert_eq!(name_of(&secrets, secret, NOW + 9).as_deref(), Some(name));
            assert_eq!(name_of(&secrets, secret, NOW + 10), None, "expired");
        }
        assert_eq!(name_of(&secrets, "ek_unknown", NOW), None);
        assert!(!format!("{secrets:?}").contains(&ann[3..]), "only digests are kept");
        secrets.issue(None, None, NOW + 10, NOW + 20).unwrap();
        assert_eq!(secrets.lock().by_digest.len(), 1, "expired secrets are forgotten");
    }

    #[test]
    fn oldest_secret_of_the_same_key_is_dropped_at_the_limit() {
        let secrets = ClientSecrets::default();
        let (ann, bob) = (key("ann"), key("bob"));
        let issue = |key: &Option<Arc<ApiKey>>| secrets.issue(key.clone(), None, NOW, NOW + 10).unwrap();
        let (of_bob, first, second) = (issue(&bob), issue(&ann), issue(&ann));
        for _ in 2..=SECRETS_PER_KEY_MAX {
            issue(&ann);
        }
        let valid = [&of_bob, &first, &second].map(|secret| name_of(&secrets, secret, NOW).is_some());
        assert_eq!(valid, [true, false, true]);
        assert_eq!(secrets.lock().by_digest.len(), SECRETS_PER_KEY_MAX + 1);
    }

    #[test]
    fn sessions_of_one_key_are_bounded_together() {
        let (secrets, ann, bob) = (ClientSecrets::default(), key("ann"), key("bob"));
        let issue = |key: &Option<Arc<ApiKey>>, bytes: usize| {
            secrets.issue(key.clone(), Some("x".repeat(bytes).into()), NOW, NOW + 10).unwrap()
        };
        let quarter = SESSIONS_PER_KEY_MAX_BYTES / 4;
        let of_bob = issue(&bob, quarter);
        let of_ann: Vec<_> = (0..5).map(|_| issue(&ann, quarter)).collect();
        let session = |secret: &String| secrets.session_of(secret, NOW).map_or(0, |session| session.len());
        assert_eq!(session(&of_bob), quarter);
        assert_eq!(of_ann.iter().map(session).collect::<Vec<_>>(), [0, quarter, quarter, quarter, quarter]);
        assert_eq!(secrets.session_of(&of_ann[4], NOW + 10), None, "expired");
    }
}
