//! Lists what a configuration reload changes, for the log. Names keys but never values, because a URL may hold a
//! secret.

use std::{collections::BTreeMap, fs, path::PathBuf};

use super::{Config, KEYS, access, table_path};
use crate::{server::access::keys, spelling::Library, trace::redact::fnv1a_digest};

/// Prefix of keys that the admin listener applies, if there is one.
const ADMIN_PREFIX: &str = "admin.";

/// True if only a restart changes this key, or a key of this section. `has_admin` means that an admin listener runs and
/// applies its own keys.
fn needs_restart(key: &str, has_admin: bool) -> bool {
    let is_part =
        |path: &str| path.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
    let is_fixed = KEYS.iter().any(|row| row.needs_restart && is_part(row.path));
    is_fixed || (key.starts_with(ADMIN_PREFIX) && !has_admin)
}

impl Config {
    /// This configuration with the running values of all keys that only a restart can change; `has_admin` as in
    /// [`needs_restart`].
    #[must_use]
    pub(super) fn with_fixed_keys_of(&self, running: &Self, has_admin: bool) -> Self {
        let before = running.to_table();
        let fixed = KEYS.iter().filter(|key| key.needs_restart).map(|key| key.path);
        let changed = self.with_changed_table(|table| {
            for path in fixed.chain((!has_admin).then_some("admin")) {
                table_path::put(table, path, table_path::get(&before, path.split('.')));
            }
        });
        Self {
            mcp: running.mcp.clone(),
            webhooks: running.webhooks.clone(),
            turn_judge: running.turn_judge.clone(),
            ..changed
        }
    }
}

/// A configuration with the mappings that it loads.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// Its mappings.
    pub library: &'a Library,
}

/// Result of comparing two configurations.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Changes that apply to new sessions.
    pub applied: Vec<String>,
    /// Changes that need a restart.
    pub after_restart: Vec<String>,
}

impl Changes {
    /// Compares two configurations with their mappings. `has_admin` means that an admin listener runs and
    /// applies its own keys.
    pub fn between(old: Snapshot<'_>, new: Snapshot<'_>, has_admin: bool) -> Self {
        let mut changes = Self::default();
        let (before, after) = (comparable_keys(old.config), comparable_keys(new.config));
        let names = before.keys().chain(after.keys().filter(|key| !before.contains_key(*key)));
        for key in names.filter(|key| before.get(*key) != after.get(*key)) {
            let list =
                if needs_restart(key, has_admin) { &mut changes.after_restart } else { &mut changes.applied };
            list.push(format!("`{key}`"));
        }
        for (kind, name, _, source) in new.library.files() {
            let words = match old.library.source(kind, name) {
                None => "is new",
                Some(known) if known != source => "changed",
                Some(_) => continue,
            };
            changes.applied.push(format!("{} {name} {words}", kind.name()));
        }
        let gone = old.library.files().filter(|(kind, name, ..)| new.library.source(*kind, name).is_none());
        changes.applied.extend(gone.map(|(kind, name, ..)| format!("{} {name} is gone", kind.name())));
        changes
    }

    /// Adds the keys that profiles need now, and that the start of the process did not use: only a restart uses them.
    pub(super) fn with_needed_keys(mut self, at_start: &[&str], now: &[&str]) -> Self {
        for key in now.iter().filter(|key| !at_start.contains(key)).map(|key| format!("`{key}`")) {
            if !self.after_restart.contains(&key) {
                self.after_restart.push(key);
            }
        }
        self
    }

    /// Adds changes in the contents of the files that both configurations name; `has_admin` as in
    /// [`Self::between`].
    pub fn with_file_changes(
        mut self,
        old: &ReferencedFiles,
        new: &ReferencedFiles,
        has_admin: bool,
    ) -> Self {
        self.applied.extend(changed_files(&old.files, &new.files));
        let list = if has_admin { &mut self.applied } else { &mut self.after_restart };
        list.extend(changed_files(&old.admin, &new.admin));
        for (name, entry) in &new.keys {
            match old.keys.get(name) {
                None => self.applied.push(format!("key {name} is new")),
                Some(before) if before != entry => self.applied.push(format!("key {name} changed")),
                Some(_) => {}
            }
        }
        let gone = old.keys.keys().filter(|name| !new.keys.contains_key(*name));
        self.applied.extend(gone.map(|name| format!("key {name} is gone")));
        self
    }
}

/// Digests of files, by their description in the log and their path; `None` if a file is unreadable.
type FileDigests = BTreeMap<(String, PathBuf), Option<String>>;

/// Descriptions of the files in both sets whose contents differ.
fn changed_files(old: &FileDigests, new: &FileDigests) -> impl Iterator<Item = String> {
    let is_changed = |key: &_, held: &_| old.get(key).is_some_and(|before| before != held);
    new.iter()
        .filter(move |(key, held)| is_changed(key, held))
        .map(|((words, _), _)| format!("{words} changed"))
}

/// Digests of the files that a configuration names, except mappings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReferencedFiles {
    files: FileDigests,
    /// Files of the admin listener.
    admin: FileDigests,
    /// Digests of the API keys, by name.
    keys: BTreeMap<String, String>,
}

impl ReferencedFiles {
    /// Reads the current contents of the files.
    pub fn read(config: &Config) -> Self {
        let mut table = config.to_table();
        let mut digests = |is_admin: bool| {
            let rows = KEYS.iter().filter(|key| key.path.starts_with(ADMIN_PREFIX) == is_admin);
            let mut files = FileDigests::new();
            for (path, name) in rows.filter_map(|key| Some((key.path, key.contents?))) {
                table_path::for_each(&mut table, path, &mut |entry, value| {
                    let path = PathBuf::from(value.as_str().unwrap_or_default());
                    let digest = fs::read(&path).ok().map(|bytes| fnv1a_digest(&bytes));
                    files.insert((name.replace("{}", entry), path), digest);
                });
            }
            files
        };
        let keys = config.access.keys.as_ref().and_then(|path| access::read_key_file(path).ok());
        let keys = keys.map(|source| keys::entry_digests(&source)).unwrap_or_default();
        Self { files: digests(false), admin: digests(true), keys: keys.into_iter().collect() }
    }
}

/// Values by key, for comparison only; they may hold secrets.
fn comparable_keys(config: &Config) -> toml::Table {
    let mut keys = config.to_table();
    let urls: Vec<_> = config.upstream.iter().map(|upstream| &*upstream.url).collect();
    // The serialized URLs are redacted, so compare the full ones as well.
    if let Some(upstreams) = keys.get_mut("upstream").and_then(toml::Value::as_array_mut) {
        upstreams.push(urls.into());
    }
    // Flatten the admin section, because only some of its keys apply without a restart.
    if let Some(toml::Value::Table(admin)) = keys.remove("admin") {
        keys.extend(admin.into_iter().map(|(key, value)| (format!("{ADMIN_PREFIX}{key}"), value)));
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn snapshot<'a>(config: &'a Config, library: &'a Library) -> Snapshot<'a> {
        Snapshot { config, library }
    }

    #[test]
    fn changed_secret_in_url_is_a_change() {
        let library = Library::embedded().unwrap();
        let config = |token: &str| {
            toml::from_str::<Config>(&format!("[[upstream]]\nurl = \"ws://a?token={token}\"")).unwrap()
        };
        let old = config("one");
        let applied = |token: &str| {
            let new = config(token);
            Changes::between(snapshot(&old, &library), snapshot(&new, &library), true).applied
        };
        assert_eq!((applied("two"), applied("one")), (vec!["`upstream`".to_owned()], vec![]));
    }

    #[test]
    fn changes_are_split_into_applied_and_after_restart() {
        let library = Library::embedded().unwrap();
        let config = |toml: &str| toml::from_str::<Config>(toml).unwrap();
        let old = config("listen = \"a:1\"\nlanguage = \"en\"\n[[upstream]]\nurl = \"ws://a?token=secret\"");
        let new = config("listen = \"b:1\"\nprofile = \"x\"\n[[upstream]]\nurl = \"ws://b?token=secret\"");
        let mut other = library.clone();
        let source = library.source(crate::spelling::MappingKind::Profile, "speech").unwrap();
        other.add("s.toml", &source.replace("partials = true", "partials = false")).unwrap();
        let changes = Changes::between(snapshot(&old, &library), snapshot(&new, &other), true);
        assert_eq!(changes.applied, ["`language`", "`upstream`", "`profile`", "profile speech changed"]);
        assert_eq!(changes.after_restart, ["`listen`"]);
        let same = snapshot(&old, &library);
        assert_eq!(Changes::between(same, same, true), Changes::default());
    }

    #[test]
    fn fixed_keys_keep_their_running_values() {
        let library = Library::embedded().unwrap();
        let config = |toml: &str| toml::from_str::<Config>(toml).unwrap();
        let old = config("workers = 1\n[admin]\nlisten = \"127.0.0.1:1\"");
        let rest = "listen = \"b:1\"\nsessions_max = 3\nworkers = 2\n[log]\nlevel = \"debug\"\n[access_log]\npath = \"-\"\n[webrtc]\nlisten = \"a:1\"\n[[tcp]]\nprotocol = \"wyoming\"\nlisten = 1\n";
        let new = config(&format!("{rest}[admin]\nlisten = \"127.0.0.1:2\"\nhosts = [\"a\"]"));
        let in_force = new.with_fixed_keys_of(&old, true);
        let [old_one, running, next] = [&old, &in_force, &new].map(|config| snapshot(config, &library));
        let changes = Changes::between(old_one, running, true);
        assert_eq!((changes.applied, changes.after_restart), (vec!["`admin.hosts`".to_owned()], vec![]));
        let pending = Changes::between(running, next, true).after_restart;
        let fixed = "access_log admin.listen listen log sessions_max tcp webrtc workers";
        let mut pending: Vec<&str> = pending.iter().map(|key| key.trim_matches('`')).collect();
        pending.sort_unstable();
        assert_eq!(pending, fixed.split(' ').collect::<Vec<_>>());
        assert_eq!(new.with_fixed_keys_of(&old, false).admin, old.admin);
    }

    #[test]
    fn admin_changes_apply_except_the_address() {
        let library = Library::embedded().unwrap();
        let config = |toml: &str| toml::from_str::<Config>(&format!("[admin]\n{toml}")).unwrap();
        let old = config("listen = \"127.0.0.1:1\"\ntoken_env = \"A\"");
        let new = config("listen = \"127.0.0.1:2\"\nhosts = [\"a\"]\n[admin.tls]\ncert = \"c\"");
        let changes =
            |has_admin| Changes::between(snapshot(&old, &library), snapshot(&new, &library), has_admin);
        let with_admin = changes(true);
        assert_eq!(with_admin.after_restart, ["`admin.listen`"]);
        assert_eq!(with_admin.applied, ["`admin.token_env`", "`admin.hosts`", "`admin.tls`"]);
        let all = ["`admin.listen`", "`admin.token_env`", "`admin.hosts`", "`admin.tls`"];
        assert_eq!(
            changes(false),
            Changes { applied: vec![], after_restart: all.map(str::to_owned).to_vec() }
        );
    }

    #[test]
    fn changed_file_content_is_a_change() {
        let file = |name: &str| {
            std::env::temp_dir().join(format!("voxbridge-changes-{}-{name}", std::process::id()))
        };
        let (voice, ca) = (file("a.wav"), file("ca.pem"));
        for path in [&voice, &ca] {
            fs::write(path, "before").unwrap();
        }
        let mut config = toml::from_str::<Config>("[[upstream]]\nurl = \"wss://a\"").unwrap();
        config.upstream[0].ca = Some(ca.clone());
        let alone = ReferencedFiles::read(&config);
        config.voices.insert("ann".into(), voice.clone());
        let before = ReferencedFiles::read(&config);
        let changes = |old: &ReferencedFiles| {
            Changes::default().with_file_changes(old, &ReferencedFiles::read(&config), true).applied
        };
        assert_eq!(changes(&before), [""; 0]);
        assert_eq!(changes(&alone), [""; 0], "a new file is a change of the configuration, not of a file");
        fs::write(&ca, "after").unwrap();
        assert_eq!(changes(&before), ["the certificates of [[upstream]] 1 changed"]);
        fs::remove_file(&voice).unwrap();
        let both = ["the certificates of [[upstream]] 1 changed", "the file of voice ann changed"];
        assert_eq!(changes(&before), both);
        fs::remove_file(&ca).unwrap();
    }
}
