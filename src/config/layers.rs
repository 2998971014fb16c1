//! Layers of a configuration: the file, and above it the keys that options and variables set. They are merged as one
//! table, which is read once.

use std::{iter, path::Path};

use serde::Deserialize as _;
use toml::{Table, Value};

use super::{Config, ConfigFile, table_path};
use crate::spelling::FileError;

/// Keys of an upstream in the file that stay where an option names another server. Credentials do not.
const KEPT_FOR_OTHER_SERVER: [&str; 4] = ["ca", "dialect", "serves", "status_path"];

/// A key that an option or an environment variable sets.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// Path of the key, as in the table of keys.
    pub path: &'static str,
    /// Its value.
    pub value: Value,
    /// The option with its hyphens, or the variable.
    pub source: String,
}

// No option takes a floating-point number.
impl Eq for Setting {}

/// The layers of a configuration.
#[derive(Debug, Default)]
pub struct Layers {
    /// Contents of the file, whose paths are resolved.
    pub file: Table,
    /// The keys above the file.
    pub settings: Vec<Setting>,
}

impl Layers {
    /// Reads the file.
    ///
    /// # Errors
    /// The first mistake of the file.
    pub fn read(file: Option<&Path>, settings: &[Setting]) -> Result<Self, FileError> {
        let file = file.map(|path| ConfigFile::read(path)?.parse()).transpose()?;
        Ok(Self { file: file.unwrap_or_default(), settings: settings.to_vec() })
    }

    /// Merges the layers.
    ///
    /// # Errors
    /// A value has the wrong type, which the file and the options have checked before.
    pub fn merge(&self) -> Result<Config, FileError> {
        let mut merged = self.file.clone();
        for Setting { path, value, .. } in &self.settings {
            match *path {
                "upstream.*.url" => set_upstreams(&mut merged, value),
                path => table_path::put(&mut merged, path, Some(value)),
            }
            // A token is set in one way only.
            if *path == "admin.token_file" {
                table_path::put(&mut merged, "admin.token_env", None);
            }
        }
        Config::deserialize(merged).map_err(|error| FileError::for_file("options", error.message()))
    }

    /// The option or variable that sets this key.
    #[must_use]
    pub fn option_of(&self, path: &[String]) -> Option<&str> {
        let is_set_by = |setting: &&Setting| {
            let pattern: Vec<&str> = setting.path.split('.').collect();
            let fits = |(pattern, key): (&&str, &String)| *pattern == "*" || pattern == key;
            pattern.len() == path.len() && pattern.iter().zip(path).all(fits)
        };
        self.settings.iter().find(is_set_by).map(|setting| setting.source.as_str())
    }

    /// Where the value of a key comes from: an option, a variable, `file`, or `default`.
    #[must_use]
    pub fn source_of(&self, path: &[String]) -> &str {
        let is_in_file = table_path::get(&self.file, path).is_some();
        self.option_of(path).unwrap_or(if is_in_file { "file" } else { "default" })
    }
}

/// Replaces the list of upstreams by these URLs. Keys beside the URL come from the entry of the same number, or else the
/// first.
fn set_upstreams(table: &mut Table, urls: &Value) {
    let lower: Vec<Table> =
        table.get("upstream").cloned().and_then(|list| list.try_into().ok()).unwrap_or_default();
    let further = iter::repeat(lower.first().cloned().unwrap_or_default());
    let entries = urls.as_array().into_iter().flatten().zip(lower.into_iter().chain(further));
    let entries = entries.map(|(url, mut entry)| {
        entry.remove("name");
        if server_of(url) != entry.get("url").and_then(server_of) {
            entry.retain(|key, _| KEPT_FOR_OTHER_SERVER.contains(&key));
        }
        entry.insert("url".to_owned(), url.clone());
        Value::Table(entry)
    });
    table.insert("upstream".to_owned(), Value::Array(entries.collect()));
}

/// A URL up to its port.
fn server_of(url: &Value) -> Option<&str> {
    let url = url.as_str()?;
    let Some((scheme, rest)) = url.split_once("://") else { return Some(url) };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    url.get(..scheme.len() + 3 + end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UpstreamConfig;

    /// The configuration of a file and options.
    fn merge(file: &str, settings: &[(&'static str, Value)]) -> Config {
        let setting = |(path, value): &(&'static str, Value)| Setting {
            path,
            value: value.clone(),
            source: "--option".to_owned(),
        };
        let settings = settings.iter().map(setting).collect();
        Layers { file: file.parse().unwrap(), settings }.merge().unwrap()
    }

    /// The upstreams of a file with options for these URLs.
    fn upstreams(file: &str, urls: &[&str]) -> Vec<UpstreamConfig> {
        merge(file, &[("upstream.*.url", urls.to_vec().into())]).upstream
    }

    #[test]
    fn options_override_the_file() {
        let file = "listen = \"a:1\"\nprofile = \"speech\"\n[[upstream]]\nurl = \"ws://gpu\"\nca = \"a\"\n";
        let both = merge(
            file,
            &[
                ("upstream.*.url", vec!["ws://x"].into()),
                ("listen", vec!["b:2"].into()),
                ("upstream.*.ca", "b".into()),
                ("trace.audio", true.into()),
            ],
        );
        assert_eq!((both.listen, both.profile.as_deref()), (vec!["b:2".to_owned()], Some("speech")));
        let expected = UpstreamConfig {
            url: "ws://x".into(),
            ca: Some("b".into()),
            ..UpstreamConfig::with_default_dialect()
        };
        assert_eq!((both.upstream, both.trace.audio), (vec![expected], Some(true)));
    }

    #[test]
    fn token_file_of_an_option_replaces_the_variable_of_the_file() {
        let admin = merge("[admin]\ntoken_env = \"T\"\n", &[("admin.token_file", "t".into())]).admin;
        assert_eq!((admin.token_env, admin.token_file), (None, Some("t".into())));
    }

    #[test]
    fn token_is_dropped_when_the_server_changes() {
        let file = "[[upstream]]\nurl = \"wss://a:8006/v1/realtime\"\ntoken_env = \"T\"\n";
        let kept = |url: &str| upstreams(file, &[url])[0].token_env.is_some();
        assert!(kept("wss://a:8006/v1/realtime") && kept("wss://a:8006?mode=chat"));
        assert!(!kept("ws://a:8006/v1/realtime") && !kept("wss://a:8007") && !kept("wss://a:8006.evil"));
    }

    #[test]
    fn urls_of_options_replace_the_whole_list() {
        let file = "[[upstream]]\nname = \"a\"\nurl = \"ws://a\"\nca = \"own.pem\"\n[[upstream]]\nurl = \"ws://b\"\n";
        assert_eq!(merge(file, &[]).upstream.len(), 2);
        let urls = |urls: &[&str]| {
            let merged = upstreams(file, urls).into_iter();
            merged.map(|one| (one.name, one.url, one.ca.is_some())).collect::<Vec<_>>()
        };
        assert_eq!(urls(&["ws://x"]), [(None, "ws://x".into(), true)]);
        let three = urls(&["ws://x", "ws://y", "ws://z"]);
        assert_eq!(three.iter().map(|one| one.2).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(upstreams("", &["ws://x"])[0].dialect, "auto");
    }

    #[test]
    fn sources_are_named_by_option_file_and_default() {
        let setting = |path, value: Value, source: &str| Setting { path, value, source: source.to_owned() };
        let layers = Layers {
            file: "profile = \"a\"\n[[upstream]]\nurl = \"ws://a\"\nname = \"n\"\n".parse().unwrap(),
            settings: vec![
                setting("upstream.*.url", vec!["ws://b"].into(), "--upstream"),
                setting("profile", "b".into(), "VOXBRIDGE_PROFILE"),
            ],
        };
        for (path, source) in [
            ("upstream.0.url", "--upstream"),
            ("profile", "VOXBRIDGE_PROFILE"),
            ("upstream.0.name", "file"),
            ("upstream.1.name", "default"),
            ("language", "default"),
        ] {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            assert_eq!(layers.source_of(&path), source, "{path:?}");
        }
    }
}
