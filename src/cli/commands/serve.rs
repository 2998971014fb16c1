//! `voxbridge serve`.

use super::{Failure, stop_signal};
use crate::{
    cli::args::{LogArgs, LogFormat, ServeArgs},
    config::{Config, DEFAULT_LISTEN, LogConfig, UpstreamConfig},
    server::Server,
    telemetry,
};

pub(super) async fn run(args: ServeArgs) -> Result<(), Failure> {
    let config = layered(args)?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    let service = config.service().map_err(Failure::usage)?;
    let listen = config.listen.as_deref().unwrap_or(DEFAULT_LISTEN);
    let stop = stop_signal()?;
    let server = Server::bind(listen, service)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {listen}: {error}")))?;
    println!("listening on {}", server.local_addr().map_err(Failure::failed)?);
    server.run(stop).await;
    Ok(())
}

/// File, then environment and flags.
fn layered(args: ServeArgs) -> Result<Config, Failure> {
    let file = args.config.as_deref().map(Config::read).transpose().map_err(Failure::usage)?;
    let upstream = args.upstream.map(|url| UpstreamConfig {
        url,
        ca: args.upstream_ca.clone(),
        ..UpstreamConfig::of_dialect()
    });
    let mut config = file.unwrap_or_default().overlaid(Config {
        listen: args.listen.map(|listen| listen.to_string()),
        profile: args.profile,
        mappings: args.mappings,
        idle_timeout_ms: args.idle_timeout_ms,
        upstream: upstream.into_iter().collect(),
        log: log_config(args.log),
        ..Config::default()
    });
    // The certificates may be named without naming the upstream again.
    if let (Some(ca), Some(upstream)) = (args.upstream_ca, config.upstream.first_mut()) {
        upstream.ca = Some(ca);
    }
    Ok(config)
}

pub(super) fn log_config(args: LogArgs) -> LogConfig {
    let format = args.format.map(|format| match format {
        LogFormat::Text => "text".to_owned(),
        LogFormat::Json => "json".to_owned(),
    });
    LogConfig { level: args.level, format }
}
