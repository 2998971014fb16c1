//! What a configuration that was read again changes, in words for the log. Never values: an address may hold a secret.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{Config, access};
use crate::{mapping::Library, server::access::keys, trace::record::digest};

/// What a server that runs cannot change any more.
const FIXED: [&str; 6] = ["listen", "sessions_max", "workers", "admin.listen", "log", "access_log"];
/// What begins so is taken by the admin listener, where there is one.
const ADMIN: &str = "admin.";

/// What changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What holds for new sessions from now on.
    pub held: Vec<String>,
    /// What holds only after a restart.
    pub not_held: Vec<String>,
}

impl Changes {
    /// From one configuration and its mappings to the next; `operated` if there is an admin listener that takes its part.
    #[must_use]
    pub fn between(old: (&Config, &Library), new: (&Config, &Library), operated: bool) -> Self {
        let mut changes = Self::default();
        let (before, after) = (keys(old.0), keys(new.0));
        let names = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        for key in names.filter(|key| before.get(*key) != after.get(*key)) {
            let fixed = FIXED.contains(&key.as_str()) || (key.starts_with(ADMIN) && !operated);
            let list = if fixed { &mut changes.not_held } else { &mut changes.held };
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

    /// And from what the files held that both name to what they hold now; `operated` as in [`Self::between`].
    #[must_use]
    pub fn and_of(mut self, old: &Contents, new: &Contents, operated: bool) -> Self {
        self.held.extend(other(&old.files, &new.files));
        let list = if operated { &mut self.held } else { &mut self.not_held };
        list.extend(other(&old.admin, &new.admin));
        for (name, entry) in &new.keys {
            match old.keys.get(name) {
                None => self.held.push(format!("key {name} is new")),
                Some(before) if before != entry => self.held.push(format!("key {name} changed")),
                Some(_) => {}
            }
        }
        let gone = old.keys.keys().filter(|name| !new.keys.contains_key(*name));
        self.held.extend(gone.map(|name| format!("key {name} is gone")));
        self
    }
}

/// By what the log calls each file and where it is, to tell it from what it holds later.
type Held = BTreeMap<(String, PathBuf), Option<String>>;

/// Which files of both hold something else.
fn other(old: &Held, new: &Held) -> impl Iterator<Item = String> {
    let is_other = |key: &_, held: &_| old.get(key).is_some_and(|before| before != held);
    new.iter()
        .filter(move |(key, held)| is_other(key, held))
        .map(|((words, _), _)| format!("{words} changed"))
}

/// What the files held that a configuration names and that are read with it, but for mappings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Contents {
    files: Held,
    /// Those of the admin listener.
    admin: Held,
    /// Each key by its name.
    keys: BTreeMap<String, String>,
}

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
        let admin = [
            ("the admin token", &config.admin.token_file),
            ("the admin certificate", &config.admin.tls.cert),
            ("the admin certificate's key", &config.admin.tls.key),
            ("the authorities of operators", &config.admin.tls.client_ca),
        ];
        let keys = config.access.keys.as_ref().and_then(|path| access::source(path).ok());
        let keys = keys.map(|source| keys::entries(&source)).unwrap_or_default();
        let files = voices.chain(certificates).chain(shown.flatten()).chain(named(&tls));
        Self { files: held(files), admin: held(named(&admin)), keys: keys.into_iter().collect() }
    }
}

/// Those that are named.
fn named<'f>(files: &'f [(&str, &'f Option<PathBuf>)]) -> impl Iterator<Item = (String, &'f PathBuf)> {
    files.iter().filter_map(|(words, path)| Some(((*words).to_owned(), path.as_ref()?)))
}

fn held<'f>(files: impl Iterator<Item = (String, &'f PathBuf)>) -> Held {
    let digest = |path: &Path| fs::read(path).ok().map(|bytes| digest(&bytes));
    files.map(|(words, path)| ((words, path.clone()), digest(path))).collect()
}

/// By name what it says, to be compared and never shown.
fn keys(config: &Config) -> toml::Table {
    let mut keys = toml::Table::try_from(config).unwrap_or_default();
    let urls: Vec<_> = config.upstream.iter().map(|upstream| &*upstream.url).collect();
    // What is written of them is not all there is to them.
    if let Some(upstreams) = keys.get_mut("upstream").and_then(toml::Value::as_array_mut) {
        upstreams.push(urls.into());
    }
    // Some of it holds at once, and some does not.
    if let Some(toml::Value::Table(admin)) = keys.remove("admin") {
        keys.extend(admin.into_iter().map(|(key, value)| (format!("{ADMIN}{key}"), value)));
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
        let held = |new| Changes::between((&config("one"), &library), (&config(new), &library), true).held;
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
        let changes = Changes::between((&old, &library), (&new, &other), true);
        assert_eq!(changes.held, ["`language`", "`upstream`", "`profile`", "profile speech changed"]);
        assert_eq!(changes.not_held, ["`listen`"]);
        assert_eq!(Changes::between((&old, &library), (&old, &library), true), Changes::default());
    }

    #[test]
    fn of_the_admin_listener_all_but_its_address_is_taken_where_there_is_one() {
        let library = Library::embedded().unwrap();
        let config = |toml: &str| toml::from_str::<Config>(&format!("[admin]\n{toml}")).unwrap();
        let old = config("listen = \"127.0.0.1:1\"\ntoken_env = \"A\"");
        let new = config("listen = \"127.0.0.1:2\"\nhosts = [\"a\"]\n[admin.tls]\ncert = \"c\"");
        let changes = |operated| Changes::between((&old, &library), (&new, &library), operated);
        let taken = changes(true);
        assert_eq!(taken.not_held, ["`admin.listen`"]);
        assert_eq!(taken.held, ["`admin.token_env`", "`admin.hosts`", "`admin.tls`"]);
        let all = ["`admin.listen`", "`admin.token_env`", "`admin.hosts`", "`admin.tls`"];
        assert_eq!(changes(false), Changes { held: vec![], not_held: all.map(str::to_owned).to_vec() });
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
        let changes = |old: &Contents| Changes::default().and_of(old, &Contents::of(&config), true).held;
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
