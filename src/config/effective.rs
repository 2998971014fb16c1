//! The effective configuration for operators: file, environment, flags and defaults merged, without secrets.

use serde_json::{Value, json};

use super::{Config, KEYS, table_path};
use crate::spelling::Library;

impl Config {
    /// The configuration with the defaults of keys that are not set, where one value holds for all sessions.
    #[must_use]
    pub fn with_defaults(&self) -> Self {
        self.with_changed_table(|table| {
            for key in KEYS {
                if let Some(default) =
                    key.default.filter(|_| table_path::get(table, key.path.split('.')).is_none())
                {
                    table_path::put(table, key.path, default(self).as_ref());
                }
            }
        })
    }

    /// The effective configuration and the loaded mappings as JSON.
    pub fn effective_json(&self, library: &Library) -> Value {
        // Through TOML, which omits settings that are not set.
        let config = self.with_defaults().to_table();
        let files = library
            .files()
            .map(|(kind, name, file, _)| json!({"kind": kind.name(), "name": name, "file": file}));
        json!({"config": config, "mappings": files.collect::<Vec<_>>()})
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DEFAULT_LISTEN;

    #[test]
    fn effective_config_shows_defaults_and_hides_secrets() {
        let toml = "language = \"en\"\n[[upstream]]\nurl = \"ws://gpu/x?mode=chat&token=hunter2&flag\"";
        let shown = toml::from_str::<Config>(toml).unwrap().effective_json(&Library::embedded().unwrap());
        assert_eq!(shown["config"]["upstream"][0]["url"], "ws://gpu/x?mode=chat&token=***&flag");
        assert_eq!(shown["config"]["listen"], DEFAULT_LISTEN);
        assert_eq!(
            (&shown["config"]["drain"]["timeout_ms"], &shown["config"]["language"]),
            (&json!(25_000), &json!("en"))
        );
        assert_eq!(
            (&shown["config"]["limits"]["handshakes_max"], &shown["config"]["log"]["level"]),
            (&json!(512), &json!("info"))
        );
        assert!(shown["mappings"].as_array().unwrap().iter().any(|file| file["name"] == "macaw"));
        assert!(!shown.to_string().contains("hunter2"));
    }
}
