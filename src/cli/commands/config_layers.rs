//! Configuration of a command: file, overridden by environment variables and flags.

use super::CommandError;
use crate::{
    cli::args::{ConfigArgs, LogArgs, LogFormat},
    config::{AccessConfig, AdminConfig, Config, LogConfig, TraceConfig, UpstreamConfig},
    server::tls::TlsConfig,
};

/// Reads the configuration file and overrides it with the arguments.
pub(super) fn load_config(args: ConfigArgs) -> Result<Config, CommandError> {
    let file = args.config.as_deref().map(Config::read).transpose().map_err(CommandError::usage)?;
    Ok(overlay_arguments(file.unwrap_or_default(), args))
}

/// Overrides a configuration with the arguments.
pub(super) fn overlay_arguments(file: Config, args: ConfigArgs) -> Config {
    let upstreams = args.upstream.into_iter().map(|url| UpstreamConfig {
        url,
        ca: args.upstream_ca.clone(),
        ..UpstreamConfig::with_default_dialect()
    });
    let mut config = file.overlaid_with(Config {
        listen: args.listen,
        profile: args.profile,
        mappings: args.mappings,
        idle_timeout_ms: args.idle_timeout_ms,
        sessions_max: args.sessions_max,
        workers: args.workers,
        turn_model: args.turn_model,
        language: args.language,
        upstream: upstreams.collect(),
        access: AccessConfig { keys: args.keys, ..AccessConfig::default() },
        tls: TlsConfig { cert: args.tls_cert, key: args.tls_key, ..TlsConfig::default() },
        trace: TraceConfig {
            dir: args.trace,
            audio: args.trace_audio.then_some(true),
            ..TraceConfig::default()
        },
        admin: AdminConfig {
            listen: args.admin,
            token_file: args.admin_token_file,
            ..AdminConfig::default()
        },
        log: log_config(args.log),
        ..Config::default()
    });
    // --upstream-ca and --upstream-dialect also apply to upstreams from the file.
    for upstream in &mut config.upstream {
        upstream.ca = args.upstream_ca.clone().or(upstream.ca.take());
        if let Some(dialect) = &args.upstream_dialect {
            upstream.dialect.clone_from(dialect);
        }
    }
    config
}

pub(super) fn log_config(args: LogArgs) -> LogConfig {
    let format = args.format.map(|format| match format {
        LogFormat::Text => "text".to_owned(),
        LogFormat::Json => "json".to_owned(),
    });
    LogConfig { level: args.level, format }
}
