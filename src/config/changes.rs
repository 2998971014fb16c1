//! What a configuration that was read again changes, in words for the log. Never values: an address may hold a secret.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{Config, access};
use crate::{mapping::Library, server::access::keys, trace::line::digest};

/// What a server that runs cannot change any more.
const FIXED: [&str; 5] = ["listen", "sessions_max", "admin", "log", "access_log"];

/// What changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What holds for new sessions from now on.
    pub held: Vec<String>,
    /// What holds only after a restart.
    pub not_held: Vec<String>,
}

impl Changes {
    /// From one configuration and its mappings to the next.
    #[must_use]
    pub fn between(old: (&Config, &Library), new: (&Config, &Library)) -> Self {
        let mut changes = Self::default();
        let (before, after) = (keys(old.0), keys(new.0));
        let names = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        for key in names.filter(|key| before.get(*key) != after.get(*key)) {
            let list = if FIXED.contains(&key.as_str()) { &mut changes.not_held } else { &mut changes.held };
            list.push(format!("`{key}`"));
        }
        for (kind, name, _, source) in new.1.files() {
            let words = match old.1.source(kind, name) {
                None => "is new",
                Some(known) if known != source => "changed",
                Some(_) => continue,
            };
            changes.held.push(format!("{} {name} {words}", kind.name()));
        }
        let gone = old.1.files().filter(|(kind, name, ..)| new.1.source(*kind, name).is_none());
        changes.held.extend(gone.map(|(kind, name, ..)| format!("{} {name} is gone", kind.name())));
        changes
    }

    /// And from what the files held that both name to what they hold now.
    #[must_use]
    pub fn and_of(mut self, old: &Contents, new: &Contents) -> Self {
        let is_other = |key: &_, held: &_| old.0.get(key).is_some_and(|before| before != held);
        let other = new.0.iter().filter(|(key, held)| is_other(key, held));
        self.held.extend(other.map(|((words, _), _)| format!("{words} changed")));
        for (name, entry) in &new.1 {
            match old.1.get(name) {
                None => self.held.push(format!("key {name} is new")),
                Some(before) if before != entry => self.held.push(format!("key {name} changed")),
                Some(_) => {}
            }
        }
        let gone = old.1.keys().filter(|name| !new.1.contains_key(*name));
        self.held.extend(gone.map(|name| format!("key {name} is gone")));
        self
    }
}

/// What the files held that a configuration names and that are read with it, but for mappings: by what the log calls
/// each and where it is, to tell it from what they hold later; and each key by its name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents(BTreeMap<(String, PathBuf), Option<String>>, BTreeMap<String, String>);

impl Contents {
    /// What they hold now.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        let voices = config.voices.iter().map(|(name, path)| (format!("the file of voice {name}"), path));
        let certificates = config.upstream.iter().enumerate().filter_map(|(at, upstream)| {
            Some((format!("the certificates of [[upstream]] {}", at + 1), upstream.ca.as_ref()?))
        });
        let shown = config.upstream.iter().enumerate().flat_map(|(at, upstream)| {
            let files = [
                ("the token", &upstream.token_file),
                ("the client certificate", &upstream.client_cert),
                ("the client key", &upstream.client_key),
            ];
            files.map(|(words, path)| Some((format!("{words} of [[upstream]] {}", at + 1), path.as_ref()?)))
        });
        let tls = [
            ("the certificate", &config.tls.cert),
            ("the certificate's key", &config.tls.key),
            ("the authorities of clients", &config.tls.client_ca),
        ];
        let tls = tls.into_iter().filter_map(|(words, path)| Some((words.to_owned(), path.as_ref()?)));
        let keys = config.access.keys.as_ref().and_then(|path| access::source(path).ok());
        let keys = keys.map(|source| keys::entries(&source)).unwrap_or_default();
        let held = |path: &Path| fs::read(path).ok().map(|bytes| digest(&bytes));
        let token = config.admin.token_file.as_ref().map(|path| ("the admin token".to_owned(), path));
        let files = voices.chain(certificates).chain(shown.flatten()).chain(tls).chain(token);
        let files = files.map(|(words, path)| ((words, path.clone()), held(path)));
        Self(files.collect(), keys.into_iter().collect())
    }
}

/// By name what it says, to be compared and never shown.
fn keys(config: &Config) -> toml::Table {
    let mut keys = toml::Table::try_from(config).unwrap_or_default();
    let urls: Vec<_> = config.upstream.iter().map(|upstream| &*upstream.url).collect();
    // What is written of them is not all there is to them.
    if let Some(upstreams) = keys.get_mut("upstream").and_then(toml::Value::as_array_mut) {
        upstreams.push(urls.into());
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_secret_in_a_url_is_a_change() {
        let library = Library::embedded().unwrap();
        let config = |token: &str| {
            toml::from_str::<Config>(&format!("[[upstream]]\nurl = \"ws://a?token={token}\"")).unwrap()
        };
        let held = |new| Changes::between((&config("one"), &library), (&config(new), &library)).held;
        assert_eq!((held("two"), held("one")), (vec!["`upstream`".to_owned()], vec![]));
    }

    #[test]
    fn what_changed_is_named_and_what_needs_a_restart_apart() {
        let library = Library::embedded().unwrap();
        let config = |toml: &str| toml::from_str::<Config>(toml).unwrap();
        let old = config("listen = \"a\"\nlanguage = \"en\"\n[[upstream]]\nurl = \"ws://a?token=secret\"");
        let new = config("listen = \"b\"\nprofile = \"x\"\n[[upstream]]\nurl = \"ws://b?token=secret\"");
        let mut other = library.clone();
        let source = library.source(crate::mapping::Kind::Profile, "speech").unwrap();
        other.add("s.toml", &source.replace("partials = true", "partials = false")).unwrap();
        let changes = Changes::between((&old, &library), (&new, &other));
        assert_eq!(changes.held, ["`language`", "`upstream`", "`profile`", "profile speech changed"]);
        assert_eq!(changes.not_held, ["`listen`"]);
        assert_eq!(Changes::between((&old, &library), (&old, &library)), Changes::default());
    }

    #[test]
    fn a_file_that_holds_something_else_is_a_change() {
        let file = |name: &str| {
            std::env::temp_dir().join(format!("voxbridge-changes-{}-{name}", std::process::id()))
        };
        let (voice, ca) = (file("a.wav"), file("ca.pem"));
        for path in [&voice, &ca] {
            fs::write(path, "before").unwrap();
        }
        let mut config = toml::from_str::<Config>("[[upstream]]\nurl = \"wss://a\"").unwrap();
        config.upstream[0].ca = Some(ca.clone());
        let alone = Contents::of(&config);
        config.voices.insert("ann".into(), voice.clone());
        let before = Contents::of(&config);
        let changes = |old: &Contents| Changes::default().and_of(old, &Contents::of(&config)).held;
        assert_eq!(changes(&before), [""; 0]);
        assert_eq!(changes(&alone), [""; 0], "that there is one more the configuration says");
        fs::write(&ca, "after").unwrap();
        assert_eq!(changes(&before), ["the certificates of [[upstream]] 1 changed"]);
        fs::remove_file(&voice).unwrap();
        let both = ["the certificates of [[upstream]] 1 changed", "the file of voice ann changed"];
        assert_eq!(changes(&before), both);
        fs::remove_file(&ca).unwrap();
    }
}
