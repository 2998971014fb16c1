//! The effective configuration for operators: file, environment, flags and defaults merged, without secrets.

use serde_json::{Value, json};

use super::{Config, DEFAULT_SESSIONS_MAX};
use crate::{mapping::Library, server::process::lifecycle::DrainPolicy};

impl Config {
    /// The effective configuration and the loaded mappings as JSON.
    pub fn effective_json(&self, library: &Library) -> Value {
        let config = Self { listen: self.listen_addresses(), ..self.clone() };
        // Through TOML, which omits settings that are not set.
        let config = toml::Table::try_from(config).unwrap_or_default();
        let mut config = serde_json::to_value(config).unwrap_or_default();
        let DrainPolicy { grace, timeout } = self.drain.resolve();
        let drain = json!({"grace_ms": grace.as_millis() as u64, "timeout_ms": timeout.as_millis() as u64});
        for (key, value) in
            [("sessions_max", json!(self.sessions_max.unwrap_or(DEFAULT_SESSIONS_MAX))), ("drain", drain)]
        {
            config[key] = value;
        }
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
        assert!(shown["mappings"].as_array().unwrap().iter().any(|file| file["name"] == "macaw"));
        assert!(!shown.to_string().contains("hunter2"));
    }
}
