//! SIGHUP to `voxbridge serve`: configuration and mappings are read again, for the sessions to come.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::{Failure, layers::layered};
use crate::{
    cli::args::ConfigArgs,
    config::{Changes, Config},
    server::{Current, Service},
};

/// Reloads at every SIGHUP, for ever.
pub(super) struct Reloads {
    hangup: Signal,
    args: ConfigArgs,
    config: Config,
    current: Current,
}

impl Reloads {
    /// From now on.
    ///
    /// # Errors
    /// The system cannot tell.
    pub(super) fn new(args: ConfigArgs, config: Config, current: Current) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup()).map_err(Failure::failed)?;
        Ok(Self { hangup, args, config, current })
    }

    pub(super) async fn run(mut self) {
        while self.hangup.recv().await.is_some() {
            let (args, current) = (self.args.clone(), self.current.get());
            let read = tokio::task::spawn_blocking(move || read(args, &current)).await;
            match read.map_err(|error| error.to_string()).and_then(|read| read) {
                Ok((config, service)) => self.take(config, service),
                Err(problem) => warn!("not reloaded, what held before still holds: {problem}"),
            }
        }
    }

    fn take(&mut self, config: Config, service: Service) {
        let old = self.current.get();
        let changes = Changes::between((&self.config, &old.library), (&config, &service.library));
        self.current.replace(service);
        self.config = config;
        match changes.held.as_slice() {
            [] => info!("reloaded; nothing changed"),
            held => info!("reloaded, for new sessions: {}", held.join(", ")),
        }
        if !changes.not_held.is_empty() {
            warn!("cannot change while it runs, and holds after a restart: {}", changes.not_held.join(", "));
        }
    }
}

/// Everything, found and checked as a whole; what is known of upstreams that stay is kept.
fn read(args: ConfigArgs, old: &Service) -> Result<(Config, Service), String> {
    let config = layered(args).map_err(|failure| failure.words)?;
    let service = config.service()?.keeping(old);
    if let Some(traces) = &service.traces {
        traces.prepare().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    Ok((config, service))
}
