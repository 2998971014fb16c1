//! `voxbridge serve`.

use super::{Failure, layers::layered, stop_signal};
use crate::{cli::args::ConfigArgs, config::DEFAULT_LISTEN, server::Server, telemetry};

pub(super) async fn run(args: ConfigArgs) -> Result<(), Failure> {
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
