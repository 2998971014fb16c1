//! What a configuration that was read again changes, in words for the log. Never values: an address may hold a secret.

use super::Config;
use crate::mapping::Library;

/// What a server that runs cannot change any more.
const FIXED: [&str; 3] = ["listen", "sessions_max", "log"];

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
}

fn keys(config: &Config) -> toml::Table {
    toml::Table::try_from(config).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
