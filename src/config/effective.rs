//! The effective configuration for operators: file, environment, flags and defaults merged, without secrets.

use std::{thread, time::Duration};

use serde_json::{Value, json};

use super::{Config, DEFAULT_SESSIONS_MAX, DrainConfig, LimitsConfig};
use crate::{
    server::{access::ClientLimits, memory::MemoryBudget, process::lifecycle::DrainPolicy, trace_files},
    spelling::Library,
};

impl Config {
    /// The configuration with the defaults of keys that are not set, where one value holds for all sessions.
    #[must_use]
    pub fn with_defaults(&self) -> Self {
        let mut config = Self { listen: self.listen_addresses(), ..self.clone() };
        let DrainPolicy { grace, timeout } = self.drain.resolve();
        config.drain = DrainConfig { grace_ms: Some(millis(grace)), timeout_ms: Some(millis(timeout)) };
        config.limits = self.limits.with_defaults();
        config.sessions_max.get_or_insert(DEFAULT_SESSIONS_MAX);
        config.workers = config.workers.or(thread::available_parallelism().ok());
        config.playground.get_or_insert(false);
        config.access.required.get_or_insert(self.access.keys.is_some());
        if config.trace.dir.is_some() {
            config.trace.audio.get_or_insert(false);
            config.trace.file_max_bytes.get_or_insert(trace_files::DEFAULT_MAX_BYTES);
        }
        config.log.level.get_or_insert_with(|| "info".to_owned());
        config.log.format.get_or_insert_with(|| "text".to_owned());
        config
    }

    /// The effective configuration and the loaded mappings as JSON.
    pub fn effective_json(&self, library: &Library) -> Value {
        // Through TOML, which omits settings that are not set.
        let config = toml::Table::try_from(self.with_defaults()).unwrap_or_default();
        let files = library
            .files()
            .map(|(kind, name, file, _)| json!({"kind": kind.name(), "name": name, "file": file}));
        json!({"config": config, "mappings": files.collect::<Vec<_>>()})
    }
}

impl LimitsConfig {
    fn with_defaults(&self) -> Self {
        Self {
            handshakes_max: self.handshakes_max.or(Some(ClientLimits::DEFAULT_HANDSHAKES_MAX)),
            handshake_timeout_ms: self
                .handshake_timeout_ms
                .or(Some(millis(ClientLimits::DEFAULT_HANDSHAKE_TIMEOUT))),
            session_duration_max_ms: self.session_duration_max_ms.or(Some(0)),
            memory_max_bytes: self.memory_max_bytes.or(Some(MemoryBudget::DEFAULT_MAX_BYTES)),
            ..self.clone()
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
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
