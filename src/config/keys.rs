//! The table of keys: what is known about a key of the configuration besides its type. Options and variables of
//! commands, reloads, file names and defaults are made from it.
//!
//! A key without a row is set in the file only, applies at a reload, and has no default that holds for all sessions.

use std::{thread, time::Duration};

use toml::Value;

use self::OptionValues::{Address, Addresses, ConfigFile, Number, OneOf, Path, Switch, Text, Texts, Threads};
use super::{Config, DEFAULT_LISTEN, DEFAULT_SESSIONS_MAX, RecordConfig, table_path, turn_model};
use crate::server::{
    access::ClientLimits, memory::MemoryBudget, process::lifecycle::DrainPolicy, recordings, route::Routes,
    trace_files,
};

/// A key of the configuration.
#[derive(Debug)]
pub struct Key {
    /// Its path; `*` stands for each entry of a list, or each name of a section of names.
    pub path: &'static str,
    /// The option that sets it.
    pub option: Option<KeyOption>,
    /// Only a restart changes it.
    pub needs_restart: bool,
    /// True if a profile needs it, although it is not set.
    needed_by: Option<fn(&Routes) -> bool>,
    /// The value without the key, where one holds for all sessions.
    pub(super) default: Option<fn(&Config) -> Option<Value>>,
    /// It names a file or directory, which a configuration file gives relative to its own directory.
    pub(super) is_path: bool,
    /// Name of the file in the report of a reload, which reads it again; `{}` is the name or number of the entry.
    pub(super) contents: Option<&'static str>,
}

/// An option of the command line that sets a key.
#[derive(Debug)]
pub struct KeyOption {
    /// Its name without hyphens in front, and a placeholder for its value.
    usage: &'static str,
    /// The environment variable that sets the key without the option; empty for none.
    pub variable: &'static str,
    /// The values that it takes.
    pub values: OptionValues,
    /// Help text.
    pub help: &'static str,
}

/// The values that an option takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionValues {
    /// Any text.
    Text,
    /// Texts, separated by commas or by repeating the option.
    Texts,
    /// An address, completed by [`complete_address`](super::complete_address).
    Address,
    /// Addresses, as [`Self::Texts`].
    Addresses,
    /// A file or directory.
    Path,
    /// The configuration file, which is no value of a key.
    ConfigFile,
    /// A whole number.
    Number,
    /// A number of threads.
    Threads,
    /// One of these words, each with its help text.
    OneOf(&'static [(&'static str, &'static str)]),
    /// None: the option sets the key to true.
    Switch,
}

/// Path of the option that names the configuration file, which is no key of the file.
pub const FILE: &str = "";

const LOG_FORMATS: OptionValues =
    OneOf(&[("text", "Plain text lines"), ("json", "One JSON object per line")]);

/// The keys with an option, in the order of the help, then the others.
#[rustfmt::skip]
pub static KEYS: &[Key] = &[
    key("upstream.*.url").option("upstream URL", "VOXBRIDGE_UPSTREAM", Texts,
        "MiniCPM-o server, such as ws://HOST:8006/v1/realtime. serve needs one here or in the configuration. Repeat the option \
         or separate URLs with commas to balance the load over several servers"),
    key("listen").restart().default(|_| Some(DEFAULT_LISTEN.into())).option("listen [IP:]PORT", "VOXBRIDGE_LISTEN", Addresses,
        "Address to listen on: PORT for this machine only, or IP:PORT [default: 127.0.0.1:8000]. Repeat the option or separate \
         addresses with commas to listen on several"),
    key(FILE).option("config FILE", "VOXBRIDGE_CONFIG", ConfigFile, "Configuration file (TOML)"),
    key("profile").option("profile NAME", "VOXBRIDGE_PROFILE", Text,
        "Function offered to clients: speech, live, assistant, conversation, video, or your own profile [default: speech, for \
         OpenAI's clients assistant]"),
    key("mappings").path().option("mappings DIR", "VOXBRIDGE_MAPPINGS", Path,
        "Directory with mapping files that extend or override the built-in ones"),
    key("language").option("language xx", "VOXBRIDGE_LANGUAGE", Text,
        "Default language of sessions: en or zh [default: en]"),
    key("idle_timeout_ms").option("idle-timeout-ms MS", "VOXBRIDGE_IDLE_TIMEOUT_MS", Number,
        "Close a client that sends nothing and awaits nothing for this many milliseconds; 0 means never [default: set by the \
         client protocol]"),
    key("sessions_max").restart().default(|_| number(DEFAULT_SESSIONS_MAX))
        .option("sessions-max N", "VOXBRIDGE_SESSIONS_MAX", Number,
            "Maximum number of concurrent sessions [default: 1000]"),
    key("workers").restart().default(|_| number(thread::available_parallelism().ok()?.get()))
        .option("workers N", "VOXBRIDGE_WORKERS", Threads,
            "Number of worker threads for sessions [default: one per core]"),
    key("turn_model").restart().needed_by(turn_model::is_needed).path().option("turn-model FILE", "VOXBRIDGE_TURN_MODEL", Path,
        "Weights of the model that judges whether a user has finished, smart-turn-v3.2-cpu.onnx, as fetched by \
         examples/engines/setup"),
    key("upstream.*.ca").path().contents("the certificates of [[upstream]] {}")
        .option("upstream-ca FILE", "VOXBRIDGE_UPSTREAM_CA", Path,
            "CA certificates (PEM) to trust for a wss:// upstream, in addition to the system's"),
    key("upstream.*.dialect").option("upstream-dialect NAME", "VOXBRIDGE_UPSTREAM_DIALECT", Text,
        "Protocol dialect of the MiniCPM-o server: auto, minicpm-o, minicpm-o-legacy, sglang-omni, vllm-omni, llama-cpp-omni, \
         openai-realtime, sglang-omni-http, vllm-omni-http, openai-audio, or your own [default: auto]"),
    key("tls.cert").path().contents("the certificate").option("tls-cert FILE", "VOXBRIDGE_TLS_CERT", Path,
        "Certificate (PEM) for serving clients over TLS; requires --tls-key"),
    key("tls.key").path().contents("the certificate's key").option("tls-key FILE", "VOXBRIDGE_TLS_KEY", Path,
        "Private key (PEM) of the --tls-cert certificate"),
    key("access.keys").path().option("keys FILE", "VOXBRIDGE_KEYS", Path,
        "File (TOML) with API keys of clients; clients then need a key"),
    key("trace.dir").path().option("trace DIR", "VOXBRIDGE_TRACE", Path,
        "Directory for session traces, one file per session, without audio and secrets; see replay"),
    key("trace.audio").default(|config| config.trace.dir.as_ref().map(|_| false.into()))
        .option("trace-audio", "", Switch, "Include audio in the traces"),
    key("admin.listen").restart().option("admin [IP:]PORT", "VOXBRIDGE_ADMIN", Address,
        "Address of the admin listener (health, metrics, sessions, commands) [default: no admin listener]. On a non-loopback \
         address it requires a token or [admin.tls] in the configuration"),
    key("admin.token_file").path().contents("the admin token")
        .option("admin-token-file FILE", "VOXBRIDGE_ADMIN_TOKEN_FILE", Path,
            "File with the token that the admin listener requires"),
    key("log.level").restart().default(|_| Some("info".into())).option("log LEVEL", "VOXBRIDGE_LOG", Text,
        "Log level: error, warn, info, debug, trace, or a filter such as voxbridge=debug [default: info]"),
    key("log.format").restart().default(|_| Some("text".into()))
        .option("log-format FORMAT", "VOXBRIDGE_LOG_FORMAT", LOG_FORMATS, "Log format: text or json [default: text]"),
    key("otlp.url").restart().option("otlp URL", "VOXBRIDGE_OTLP", Text,
        "Collector of OpenTelemetry that gets traces, metrics and the log by OTLP over HTTP, such as http://HOST:4318 [default: \
         OTEL_EXPORTER_OTLP_ENDPOINT, or none]"),
    key("otlp.content").restart(),
    key("access_log.path").restart().path(),
    key("webrtc").restart(),
    key("tcp").restart(),
    key("turn_judge").restart(),
    key("turn_judge.token_file").path(),
    key("turn_judge.ca").path(),
    key("mcp").restart(),
    key("mcp.*.token_file").path(),
    key("mcp.*.ca").path(),
    key("mcp.*.directory").path(),
    key("mcp.*.environment_files.*").path(),
    key("webhooks").restart(),
    key("webhooks.ca").path(),
    key("webhooks.secret_file").path(),
    key("webhooks.spool").path(),
    key("voices.*").path().contents("the file of voice {}"),
    key("upstream.*.token_file").path().contents("the token of [[upstream]] {}"),
    key("upstream.*.client_cert").path().contents("the client certificate of [[upstream]] {}"),
    key("upstream.*.client_key").path().contents("the client key of [[upstream]] {}"),
    key("access.device_keys").path().contents("the keys of devices"),
    key("access.signature.token_file").path(),
    key("tls.client_ca").path().contents("the authorities of clients"),
    key("admin.tls.cert").path().contents("the admin certificate"),
    key("admin.tls.key").path().contents("the admin certificate's key"),
    key("admin.tls.client_ca").path().contents("the authorities of operators"),
    key("playground").default(|_| Some(false.into())),
    key("access.required").default(|config| Some(config.access.keys.is_some().into())),
    key("trace.file_max_bytes")
        .default(|config| config.trace.dir.as_ref().and_then(|_| number(trace_files::DEFAULT_MAX_BYTES))),
    key("record.dir").path(),
    key("record.format").default(|config| recorded(config, RecordConfig::DEFAULT_FORMAT.name().into())),
    key("record.what").default(|config| recorded(config, RecordConfig::DEFAULT_SIDES.name().into())),
    key("record.max_bytes").default(|config| recorded(config, number(recordings::DEFAULT_MAX_BYTES)?)),
    key("record.when_full").default(|config| recorded(config, RecordConfig::DEFAULT_WHEN_FULL.name().into())),
    key("limits.handshakes_max").default(|_| number(ClientLimits::DEFAULT_HANDSHAKES_MAX)),
    key("limits.handshake_timeout_ms").default(|_| millis(ClientLimits::DEFAULT_HANDSHAKE_TIMEOUT)),
    key("limits.session_duration_max_ms").default(|_| Some(0.into())),
    key("limits.memory_max_bytes").default(|_| number(MemoryBudget::DEFAULT_MAX_BYTES)),
    key("drain.grace_ms").default(|_| millis(DrainPolicy::default().grace)),
    key("drain.timeout_ms").default(|_| millis(DrainPolicy::default().timeout)),
];

const fn key(path: &'static str) -> Key {
    Key {
        path,
        option: None,
        needs_restart: false,
        needed_by: None,
        default: None,
        is_path: false,
        contents: None,
    }
}

impl Key {
    const fn option(
        self,
        usage: &'static str,
        variable: &'static str,
        values: OptionValues,
        help: &'static str,
    ) -> Self {
        Self { option: Some(KeyOption { usage, variable, values, help }), ..self }
    }

    const fn restart(self) -> Self {
        Self { needs_restart: true, ..self }
    }

    const fn needed_by(self, needed_by: fn(&Routes) -> bool) -> Self {
        Self { needed_by: Some(needed_by), ..self }
    }

    const fn default(self, default: fn(&Config) -> Option<Value>) -> Self {
        Self { default: Some(default), ..self }
    }

    const fn path(self) -> Self {
        Self { is_path: true, ..self }
    }

    const fn contents(self, name: &'static str) -> Self {
        Self { contents: Some(name), ..self }
    }
}

impl KeyOption {
    /// Its name without hyphens in front.
    pub fn name(&self) -> &'static str {
        self.usage.split(' ').next().unwrap_or_default()
    }

    /// Placeholder for its value; none for a switch.
    pub fn value_name(&self) -> Option<&'static str> {
        self.usage.split(' ').nth(1)
    }
}

/// The keys that take effect at the start only, and do: they are set, or a profile needs them.
pub(super) fn used_at_start(config: &Config, routes: &Routes) -> Vec<&'static str> {
    let table = config.to_table();
    let is_used = |key: &&Key| {
        let is_set = || table_path::get(&table, key.path.split('.')).is_some();
        key.needed_by.is_some_and(|is_needed| is_set() || is_needed(routes))
    };
    KEYS.iter().filter(is_used).map(|key| key.path).collect()
}

/// A whole number as a value; `None` beyond what TOML holds.
fn number(number: impl TryInto<i64>) -> Option<Value> {
    number.try_into().ok().map(Value::Integer)
}

/// A value that holds if sessions are recorded.
fn recorded(config: &Config, value: Value) -> Option<Value> {
    config.record.dir.as_ref().map(|_| value)
}

fn millis(duration: Duration) -> Option<Value> {
    number(duration.as_millis())
}

#[cfg(test)]
mod tests {
    use serde::Deserialize as _;

    use super::*;
    use crate::config::table_path;

    #[test]
    fn every_row_names_a_key_of_the_configuration() {
        for key in KEYS.iter().filter(|key| key.path != FILE) {
            let mut table = "[[upstream]]\nurl = \"ws://a\"\n".parse().unwrap();
            table_path::put(&mut table, key.path, Some(&vec![true].into()));
            let problem = Config::deserialize(table).map(drop).err().map(|error| error.to_string());
            assert!(!problem.unwrap_or_default().contains("unknown field"), "{}", key.path);
        }
    }

    #[test]
    fn variables_are_named_after_options_and_help_tells_defaults() {
        let config = Config::default();
        for (key, option) in KEYS.iter().filter_map(|key| Some((key, key.option.as_ref()?))) {
            let variable = format!("VOXBRIDGE_{}", option.name().replace('-', "_").to_uppercase());
            assert_eq!(option.variable, if option.values == Switch { "" } else { &variable });
            let default = key.default.filter(|_| key.path != "workers").and_then(|default| default(&config));
            let default = default.map(|value| format!("[default: {}]", value.to_string().trim_matches('"')));
            assert!(option.help.contains(&default.unwrap_or_default()), "{variable}: {}", option.help);
        }
    }
}
