//! The configuration: one TOML file, overlaid by the environment and then by flags. It is checked as a whole
//! before the server starts.
//!
//! To change here: a key is a field of [`Config`] or of a section, with its check. It has a row in [`KEYS`] if an option
//! sets it, only a restart changes it, it names a file, or it has a default. Not here: what a key does, and the spelling of
//! protocols, which is [`crate::spelling`]'s.

mod access;
mod admin;
mod changes;
mod detection;
mod drain;
mod effective;
mod file_check;
mod http_server;
mod keys;
mod layers;
mod listen;
mod mcp;
mod otlp;
mod outputs;
mod playground;
mod problems;
mod ranges;
mod record;
mod reload;
mod routes;
mod self_signed;
mod table_path;
mod tcp;
mod turn_judge;
mod turn_model;
mod upstreams;
mod webhooks;
mod webrtc;

use std::{
    collections::BTreeMap,
    fs,
    net::SocketAddr,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use self::problems::ConfigProblems;
pub use self::{
    access::{AccessConfig, LimitsConfig, SignatureConfig},
    admin::{AdminConfig, AdminSettings},
    changes::{Changes, ReferencedFiles, Snapshot},
    drain::DrainConfig,
    file_check::{CheckedConfig, ConfigFile, path_text},
    keys::{FILE, KEYS, Key, KeyOption, OptionValues},
    layers::{Layers, Setting},
    listen::complete_address,
    mcp::McpConfig,
    otlp::OtlpConfig,
    problems::ConfigProblem,
    record::RecordConfig,
    reload::{ConfigReloader, FindConfig, ReloadTargets},
    tcp::TcpConfig,
    turn_judge::TurnJudgeConfig,
    upstreams::{NO_UPSTREAM, UpstreamConfig},
    webhooks::WebhooksConfig,
    webrtc::WebRtcConfig,
};
use crate::{
    client::reference,
    secret::Secret,
    server::{
        ServiceConfig, TcpService,
        route::RouteConfig,
        tls::TlsConfig,
        trace_files::{self, TraceDirectory},
    },
    session::{DEFAULT_VOICE, VoiceCatalog},
    spelling::{FileError, Library, Profile},
    suggestion::suggest_known,
    telemetry::{self, access_log::AccessLog, line_writer::LogTarget, otlp::log_export::LogExport},
    trace::AudioRetention,
};

/// Default listening address: this machine only.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:8000";
/// Default limit of concurrent sessions. An active session may hold some hundred kilobytes.
const DEFAULT_SESSIONS_MAX: usize = 1000;

/// The configuration, as its file spells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Addresses and ports to listen on, completed by [`complete_address`]; empty for [`DEFAULT_LISTEN`].
    #[serde(
        default,
        deserialize_with = "listen::deserialize_addresses",
        serialize_with = "listen::serialize_addresses",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub listen: Vec<String>,
    /// Profile for connections that match no route.
    pub profile: Option<String>,
    /// Directory of mapping files that extend or override the built-in ones.
    pub mappings: Option<PathBuf>,
    /// Closes a session whose client is idle for this time in ms; 0 for never. `idle_ms` in mappings/reference.md defines idle.
    pub idle_timeout_ms: Option<u64>,
    /// Concurrent sessions.
    pub sessions_max: Option<usize>,
    /// Worker threads for sessions.
    pub workers: Option<NonZeroUsize>,
    /// Weights of the model that judges the ends of turns.
    pub turn_model: Option<PathBuf>,
    /// Default language of sessions.
    pub language: Option<String>,
    /// Speech model names accepted from clients; empty for any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tts_models: Vec<String>,
    /// Upstream servers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub upstream: Vec<UpstreamConfig>,
    /// Routes from connections to profiles; the first match wins.
    #[serde(default, rename = "route", skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<RouteConfig>,
    /// Voice samples (WAV files) by name. `default` is used when a client names no voice.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub voices: BTreeMap<String, PathBuf>,
    /// Client authentication.
    #[serde(default, skip_serializing_if = "is_default")]
    pub access: AccessConfig,
    /// Limits for clients.
    #[serde(default, skip_serializing_if = "is_default")]
    pub limits: LimitsConfig,
    /// TLS for clients; off unless a certificate is set.
    #[serde(default, skip_serializing_if = "TlsConfig::is_empty")]
    pub tls: TlsConfig,
    /// Calls by WebRTC.
    #[serde(default, skip_serializing_if = "is_default")]
    pub webrtc: WebRtcConfig,
    /// Listeners for protocols on bare TCP.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tcp: Vec<TcpConfig>,
    /// Servers of tools that voxbridge calls for the model, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub mcp: BTreeMap<String, McpConfig>,
    /// Server that judges the ends of turns.
    pub turn_judge: Option<TurnJudgeConfig>,
    /// Session traces.
    #[serde(default, skip_serializing_if = "is_default")]
    pub trace: TraceConfig,
    /// Recordings of sessions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub record: RecordConfig,
    /// Servers that are told about sessions.
    #[serde(default, skip_serializing_if = "is_default")]
    pub webhooks: WebhooksConfig,
    /// Serves the playground, a page to try this server in a browser.
    pub playground: Option<bool>,
    /// Admin listener.
    #[serde(default, skip_serializing_if = "is_default")]
    pub admin: AdminConfig,
    /// Shutdown behaviour.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drain: DrainConfig,
    /// Log settings.
    #[serde(default)]
    pub log: LogConfig,
    /// Access log, one line per session.
    #[serde(default, skip_serializing_if = "is_default")]
    pub access_log: AccessLogConfig,
    /// Traces, metrics and the log for a collector of OpenTelemetry.
    #[serde(default, skip_serializing_if = "is_default")]
    pub otlp: OtlpConfig,
    /// Mapping files of a command, beside those of `mappings`: names and contents.
    #[serde(skip)]
    pub more_mappings: Vec<(String, String)>,
}

/// `[trace]`: session traces; off unless `dir` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TraceConfig {
    /// Directory for the traces, one file per session.
    pub dir: Option<PathBuf>,
    /// Records the audio of clients and upstreams.
    pub audio: Option<bool>,
    /// Largest trace file in bytes.
    pub file_max_bytes: Option<u64>,
}

/// `[log]`: log settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogConfig {
    /// Log level or filter.
    pub level: Option<String>,
    /// `text` or `json`.
    pub format: Option<String>,
}

impl LogConfig {
    /// Starts the log of the process, which a collector gets, too, if there is one.
    ///
    /// # Errors
    /// A message about the level or the format.
    pub fn start_log(&self, export: Option<LogExport>) -> Result<(), String> {
        telemetry::init(self.level.as_deref(), self.format.as_deref(), export)
    }
}

/// `[access_log]`: off unless `path` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AccessLogConfig {
    /// A file, `-` for standard output, or `stderr`.
    pub path: Option<PathBuf>,
}

impl AccessLogConfig {
    /// Opens the access log, if one is configured.
    ///
    /// # Errors
    /// A message with the path and the I/O error.
    pub fn open(&self) -> Result<Option<AccessLog>, String> {
        let Some(path) = &self.path else { return Ok(None) };
        let opened = AccessLog::open(LogTarget::from_path(path));
        opened.map(Some).map_err(|error| format!("access_log.path: {}: {error}", path.display()))
    }
}

impl Config {
    /// Reads a configuration file. Relative paths in it are resolved against its directory.
    ///
    /// # Errors
    /// The first error in the file, with its position and the nearest valid key.
    pub fn read(path: &Path) -> Result<Self, FileError> {
        Self::load(Some(path), &[])
    }

    /// Reads a configuration file, if there is one, and overrides it with what options and variables set.
    ///
    /// # Errors
    /// The first error in the file, as in [`read`](Self::read).
    pub fn load(file: Option<&Path>, settings: &[Setting]) -> Result<Self, FileError> {
        Layers::read(file, settings)?.merge()
    }

    /// The addresses for clients: those of the configuration, or the default.
    #[must_use]
    pub fn listen_addresses(&self) -> Vec<String> {
        if self.listen.is_empty() { vec![DEFAULT_LISTEN.to_owned()] } else { self.listen.clone() }
    }

    /// The configuration as a table. URLs of upstreams are without their secrets.
    fn to_table(&self) -> toml::Table {
        toml::Table::try_from(self).unwrap_or_default()
    }

    /// This configuration with a changed table. Upstreams, tool servers, webhooks and the judge of turns cannot be changed, because the
    /// table lacks their full URLs.
    fn with_changed_table(&self, change: impl FnOnce(&mut toml::Table)) -> Self {
        let mut table = self.to_table();
        change(&mut table);
        let changed = Self::deserialize(table).unwrap_or_else(|_| self.clone());
        Self {
            upstream: self.upstream.clone(),
            mcp: self.mcp.clone(),
            webhooks: self.webhooks.clone(),
            turn_judge: self.turn_judge.clone(),
            more_mappings: self.more_mappings.clone(),
            ..changed
        }
    }

    /// Loads the built-in mapping files and those of the configured directory.
    ///
    /// # Errors
    /// The errors of the first invalid file.
    pub fn load_library(&self) -> Result<Library, FileError> {
        let mut library = Library::embedded()?;
        if let Some(directory) = &self.mappings {
            library.add_all(toml_files(directory)?)?;
        }
        library.add_all(self.more_mappings.clone())?;
        Ok(library)
    }

    /// Builds everything the server needs: reads all files and checks the whole configuration.
    ///
    /// # Errors
    /// A message for each mistake, which names the key.
    pub fn build_service(&self) -> Result<ServiceConfig, String> {
        let mut problems = ConfigProblems::default();
        let service = self.build(&mut problems);
        if self.upstream.is_empty() {
            problems.push(&[], NO_UPSTREAM);
        }
        service.filter(|_| problems.is_empty()).ok_or_else(|| problems.to_string())
    }

    /// Checks the configuration like [`find_problems`](Self::find_problems).
    ///
    /// # Errors
    /// A message for each mistake, which names the key.
    pub fn check(&self) -> Result<(), String> {
        let messages: Vec<String> = self.find_problems().into_iter().map(|problem| problem.message).collect();
        if messages.is_empty() { Ok(()) } else { Err(messages.join("\n")) }
    }

    /// Finds all mistakes of the configuration, also in outputs that cannot be written. Unlike
    /// [`build_service`](Self::build_service), accepts one without upstreams.
    pub fn find_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = ConfigProblems::default();
        let admin = self.admin.resolve().and_then(|admin| admin.map(AdminSettings::load).transpose());
        problems.take_named(admin);
        self.check_outputs(&mut problems);
        problems.take(&["otlp", "url"], self.otlp.settings());
        problems.take(&["log", "level"], telemetry::log::check(self.log.level.as_deref(), None));
        problems.take(&["log", "format"], telemetry::log::check(None, self.log.format.as_deref()));
        for listen in self.listen_addresses() {
            let resolved = listen::resolve_address(&listen);
            problems.take(&["listen"], resolved.map_err(|problem| format!("listen: {problem}")));
        }
        self.build(&mut problems);
        problems.into_vec()
    }

    /// Builds the service, and adds all mistakes to `problems`; `None` without upstreams.
    fn build(&self, problems: &mut ConfigProblems) -> Option<ServiceConfig> {
        let library = self.load_library().map_err(|problem| problem.to_string());
        let library = problems.take(&["mappings"], library)?;
        self.check_ranges(problems);
        let access = problems.take_named(self.access.build(self.tls.client_ca.is_some()));
        let limits = problems.take_named(self.limits.build());
        self.find_missing_tls_files(problems);
        let tls = problems.take_named(self.tls_acceptor());
        let playground = problems.take_named(self.allows_playground());
        problems.take_named(self.webrtc.addresses());
        tcp::build_all(&self.tcp, &library, problems);
        let tool_servers = self.build_tool_servers(problems);
        let webhooks = self.build_webhooks(problems);
        let voices = self.load_voices(problems);
        let upstreams = upstreams::resolve(&self.upstream, &library, problems);
        let mode = upstreams.as_ref().and_then(|upstreams| upstreams.mode.as_deref());
        let planned = self.plan_routes(&library, mode, problems);
        let upstreams = upstreams?;
        for (at, route) in self.routes.iter().enumerate() {
            let matching = upstreams.matching(&route.upstream).map(drop);
            problems.take(&["route", &at.to_string(), "upstream"], matching);
        }
        let has_voice = self.voices.contains_key(DEFAULT_VOICE);
        let routes = routes::bind_all(planned, &upstreams, has_voice, problems);
        self.check_turn_model(&routes, problems);
        self.check_named_tool_servers(&routes, problems);
        Some(ServiceConfig {
            routes,
            pool: upstreams.pool,
            voices: Arc::new(voices),
            idle_ms: self.idle_timeout_ms,
            sessions_max: self.sessions_max.unwrap_or(DEFAULT_SESSIONS_MAX),
            drain_policy: self.drain.resolve(),
            access: access?,
            limits: limits?,
            tls: tls?,
            tool_servers,
            webhooks,
            tap: None,
            traces: self.traces(),
            recordings: self.record.build(),
            playground: playground?,
            simulated: false,
            tells_upstream_addresses: false,
            records_all_sessions: false,
            library,
        })
    }

    /// The listeners for protocols on bare TCP.
    ///
    /// # Errors
    /// A message for each mistake, which names the key.
    pub fn tcp_services(&self, library: &Library) -> Result<Vec<(SocketAddr, TcpService)>, String> {
        let mut problems = ConfigProblems::default();
        let services = tcp::build_all(&self.tcp, library, &mut problems);
        if problems.is_empty() { Ok(services) } else { Err(problems.to_string()) }
    }

    fn traces(&self) -> Option<Arc<TraceDirectory>> {
        let dir = self.trace.dir.clone()?;
        let max_bytes = self.trace.file_max_bytes.unwrap_or(trace_files::DEFAULT_MAX_BYTES);
        let audio = if self.trace.audio == Some(true) { AudioRetention::All } else { AudioRetention::None };
        Some(Arc::new(TraceDirectory::new(dir, audio, max_bytes)))
    }

    /// Notes on surprising combinations, one line each; empty if the configuration is invalid.
    pub fn notes(&self) -> Vec<String> {
        let has_voice = self.voices.contains_key(DEFAULT_VOICE);
        let notes = |service: ServiceConfig| {
            let of_tools = self.tool_server_notes(&service.routes);
            let has_recorded_key =
                service.access.keys.iter().flat_map(|keys| keys.iter()).any(|key| key.record);
            let of_recordings = self.recording_notes(&service.routes, has_recorded_key);
            [routes::route_notes(&service.routes, has_voice), of_tools, of_recordings].concat()
        };
        let routes = self.build_service().map(notes);
        routes.unwrap_or_default().into_iter().chain(self.admin.notes()).collect()
    }

    /// Warnings about routes that no connection reaches.
    pub fn route_warnings(service: &ServiceConfig) -> Vec<String> {
        routes::shadowed_route_warnings(&service.routes, &service.library)
    }

    /// Warnings about keys that have expired at this Unix time, in seconds.
    pub fn key_warnings(service: &ServiceConfig, unix_s: u64) -> Vec<String> {
        let expired = service.access.keys.iter().flat_map(|keys| keys.expired(unix_s));
        expired
            .map(|name| format!("access.keys: key {name:?} has expired; clients that use it are rejected"))
            .collect()
    }

    /// Applies the configured `language` to a profile.
    fn with_language(&self, profile: Arc<Profile>) -> Result<Arc<Profile>, String> {
        let Some(language) = &self.language else { return Ok(profile) };
        if profile.is_relay() {
            return Ok(profile);
        }
        let mut localized = (*profile).clone();
        if !localized.hear.languages().any(|known| known == language) {
            let known = suggest_known(language, || profile.hear.languages());
            return Err(format!(
                "language: profile {:?} has no prompt for `{language}`{known}",
                profile.name
            ));
        }
        localized.hear.language.clone_from(language);
        Ok(Arc::new(localized))
    }

    /// The voices that can be read.
    fn load_voices(&self, problems: &mut ConfigProblems) -> VoiceCatalog {
        let mut read = |(name, path): (&String, &PathBuf)| {
            let sample = fs::read(path).map_err(|error| error.to_string());
            let sample = sample.and_then(|bytes| reference::voice_sample_from_wav(&bytes));
            let sample = sample.map_err(|problem| format!("voices.{name}: {}: {problem}", path.display()));
            Some((name.clone(), problems.take(&["voices", name], sample)?))
        };
        let voices = self.voices.iter().filter_map(&mut read).collect();
        VoiceCatalog::new(voices, self.tts_models.clone())
    }
}

/// True for a section that sets nothing, which is not serialized.
fn is_default<T: Default + PartialEq>(section: &T) -> bool {
    *section == T::default()
}

/// Reads an environment variable: secrets that no file should hold, and what the system says about itself.
#[expect(clippy::disallowed_methods, reason = "this is where the environment is read")]
pub(crate) fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Reads a token from a file or an environment variable; `None` if neither is set.
///
/// # Errors
/// A message that names the key but never quotes the token.
fn read_token(file: Option<&Path>, env: Option<&str>) -> Result<Option<Secret>, String> {
    let (key, token) = match (file, env) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => return Err("token_file and token_env are both set; set only one".to_owned()),
        (Some(path), None) => {
            let bad = |error| format!("token_file: {}: {error}", path.display());
            ("token_file", fs::read_to_string(path).map_err(bad)?)
        }
        (None, Some(name)) => {
            let missing = || format!("token_env: the environment has no variable {name}");
            ("token_env", env_var(name).ok_or_else(missing)?)
        }
    };
    match token.trim() {
        "" => Err(format!("{key}: the token is empty")),
        token => Ok(Some(Secret::new(token))),
    }
}

/// The default profile for a mode in the upstream URL.
fn profile_for_mode(mode: &str) -> Result<&'static str, String> {
    match mode {
        "chat" => Ok("speech"),
        "audio" => Ok("conversation"),
        "video" => Ok("video"),
        other => Err(format!("upstream: unknown mode {other:?} in the URL; use chat, audio or video")),
    }
}

/// Reads the `.toml` files of a directory and its subdirectories, sorted by path.
fn toml_files(directory: &Path) -> Result<Vec<(String, String)>, FileError> {
    let name = directory.display().to_string();
    let entries = fs::read_dir(directory).map_err(|error| FileError::for_file(&name, error.to_string()))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let mut files = Vec::new();
    for path in paths {
        let name = path.display().to_string();
        if path.is_dir() {
            files.extend(toml_files(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            let source = FileError::read_text(&name, &path)?;
            files.push((name, source));
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests;
