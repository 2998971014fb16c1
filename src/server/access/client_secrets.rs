//! Client secrets: short-lived keys that a client's own server asks for, so that a page or an app never holds an API key.
//!
//! They are OpenAI's ephemeral keys (`POST /v1/realtime/client_secrets`), issued in [`crate::server::accept`]. A secret has
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
    /// Counts up with every secret.
    number: u64,
}

impl ClientSecrets {
    /// Makes a secret for sessions of this key; `None` if the system has no random numbers. The times are Unix times in
    /// seconds.
    pub(in crate::server) fn issue(
        &self,
        key: Option<Arc<ApiKey>>,
        unix_s: u64,
        expires_unix_s: u64,
    ) -> Option<String> {
        let secret = format!("{PREFIX}{}", random_hex::<SECRET_BYTES>()?);
        self.lock().insert(SecretDigest::of(&secret), key, (unix_s, expires_unix_s));
        Some(secret)
    }

    /// The key that a valid secret was made for; `None` if this is no valid secret.
    pub(super) fn key_of(&self, secret: &str, unix_s: u64) -> Option<Option<Arc<ApiKey>>> {
        if !secret.starts_with(PREFIX) {
            return None;
        }
        let issued = self.lock();
        let found = issued.by_digest.get(&SecretDigest::of(secret))?;
        (found.expires_unix_s > unix_s).then(|| found.key.clone())
    }

    fn lock(&self) -> MutexGuard<'_, IssuedSecrets> {
        // A panic cannot leave the map inconsistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl IssuedSecrets {
    /// Adds a secret, and forgets the expired ones and those beyond the limit.
    fn insert(
        &mut self,
        digest: SecretDigest,
        key: Option<Arc<ApiKey>>,
        (unix_s, expires_unix_s): (u64, u64),
    ) {
        self.by_digest.retain(|_, secret| secret.expires_unix_s > unix_s);
        let name = |key: &Option<Arc<ApiKey>>| key.as_ref().map(|key| key.name.clone());
        let of_key = || self.by_digest.iter().filter(|(_, secret)| name(&secret.key) == name(&key));
        if of_key().count() >= SECRETS_PER_KEY_MAX
            && let Some(oldest) = of_key().min_by_key(|(_, secret)| secret.number).map(|(digest, _)| *digest)
        {
            self.by_digest.remove(&oldest);
        }
        self.issued += 1;
        self.by_digest.insert(digest, IssuedSecret { key, expires_unix_s, number: self.issued });
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
        let issue = |key| secrets.issue(key, NOW, NOW + 10).unwrap();
        let (ann, bob, anonymous) = (issue(key("ann")), issue(key("bob")), issue(None));
        assert!(ann != bob && ann.starts_with("ek_") && ann.len() == 3 + 2 * SECRET_BYTES, "{ann}");
        for (secret, name) in [(&ann, "ann"), (&bob, "bob"), (&anonymous, "")] {
            assert_eq!(name_of(&secrets, secret, NOW + 9).as_deref(), Some(name));
            assert_eq!(name_of(&secrets, secret, NOW + 10), None, "expired");
        }
        assert_eq!(name_of(&secrets, "ek_unknown", NOW), None);
        assert!(!format!("{secrets:?}").contains(&ann[3..]), "only digests are kept");
        secrets.issue(None, NOW + 10, NOW + 20).unwrap();
        assert_eq!(secrets.lock().by_digest.len(), 1, "expired secrets are forgotten");
    }

    #[test]
    fn oldest_secret_of_the_same_key_is_dropped_at_the_limit() {
        let secrets = ClientSecrets::default();
        let (ann, bob) = (key("ann"), key("bob"));
        let issue = |key: &Option<Arc<ApiKey>>| secrets.issue(key.clone(), NOW, NOW + 10).unwrap();
        let (of_bob, first, second) = (issue(&bob), issue(&ann), issue(&ann));
        for _ in 2..=SECRETS_PER_KEY_MAX {
            issue(&ann);
        }
        let valid = [&of_bob, &first, &second].map(|secret| name_of(&secrets, secret, NOW).is_some());
        assert_eq!(valid, [true, false, true]);
        assert_eq!(secrets.lock().by_digest.len(), SECRETS_PER_KEY_MAX + 1);
    }
}
