//! `voxbridge serve`.

use super::{
    Failure,
    layers::layered,
    reload::{Reloads, Told},
    stop_signal,
};
use crate::{cli::args::ConfigArgs, config::DEFAULT_LISTEN, server::Server, telemetry};

pub(super) async fn run(args: ConfigArgs) -> Result<(), Failure> {
    let config = layered(args.clone())?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    let service = config.service().map_err(Failure::usage)?;
    if let Some(traces) = &service.traces {
        let bad = |error| Failure::failed(format!("cannot record in {}: {error}", traces.dir().display()));
        traces.prepare().map_err(bad)?;
    }
    let listen = config.listen.clone().unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let stop = stop_signal()?;
    let access_log = config.access_log.open().map_err(Failure::failed)?;
    let mut server = Server::bind(&listen, service)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {listen}: {error}")))?;
    if let Some(log) = &access_log {
        server.log_access(log.clone());
    }
    let told = Told { metrics: server.metrics(), access_log };
    let reloads = tokio::spawn(Reloads::new(args, config, server.current(), told)?.run());
    println!("listening on {}", server.local_addr().map_err(Failure::failed)?);
    server.run(stop).await;
    reloads.abort();
    Ok(())
}
