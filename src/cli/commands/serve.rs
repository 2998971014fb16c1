//! `voxbridge serve`.

use std::time::Duration;

use tracing::warn;

use super::{Failure, layers::layered, reload::Reloads, stop_signal};
use crate::{
    cli::args::ConfigArgs,
    config::DEFAULT_LISTEN,
    server::{Server, tls},
    telemetry,
};

/// How often the files of certificates are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);

pub(super) async fn run(args: ConfigArgs) -> Result<(), Failure> {
    let config = layered(args.clone())?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    let service = config.service().map_err(Failure::usage)?;
    if let Some(traces) = &service.traces {
        let bad = |error| Failure::failed(format!("cannot record in {}: {error}", traces.dir().display()));
        traces.prepare().map_err(bad)?;
    }
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let listen = config.listen.clone().unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let stop = stop_signal()?;
    let server = Server::bind(&listen, service)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {listen}: {error}")))?;
    let reloads = tokio::spawn(Reloads::new(args, config, server.current())?.run());
    let renewals = tokio::spawn(tls::watch(server.current(), LOOK_EVERY));
    println!("listening on {}", server.local_addr().map_err(Failure::failed)?);
    server.run(stop).await;
    reloads.abort();
    renewals.abort();
    Ok(())
}
