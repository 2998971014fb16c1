//! SIGHUP to `voxbridge serve`: configuration and mappings are read again, for the sessions to come.

use std::sync::Arc;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{info, warn};

use super::{Failure, layers::layered};
use crate::{
    cli::args::ConfigArgs,
    config::{Changes, Config, Contents},
    server::{Current, Service},
    telemetry::{access_log::AccessLog, metrics::Metrics},
};

/// Reloads at every SIGHUP, for ever.
pub(super) struct Reloads {
    hangup: Signal,
    args: ConfigArgs,
    config: Config,
    contents: Contents,
    current: Current,
    told: Told,
}

/// Who is told of it.
pub(super) struct Told {
    pub(super) metrics: Metrics,
    /// Opened anew each time: that is how its file is moved away.
    pub(super) access_log: Option<AccessLog>,
}

impl Reloads {
    /// From now on.
    ///
    /// # Errors
    /// The system cannot tell.
    pub(super) fn new(
        args: ConfigArgs,
        config: Config,
        current: Current,
        told: Told,
    ) -> Result<Self, Failure> {
        let hangup = signal(SignalKind::hangup()).map_err(Failure::failed)?;
        let contents = Contents::of(&config);
        Ok(Self { hangup, args, config, contents, current, told })
    }

    pub(super) async fn run(mut self) {
        while self.hangup.recv().await.is_some() {
            if let Some(log) = &self.told.access_log {
                log.reopen();
            }
            let (args, current) = (self.args.clone(), self.current.get());
            let read = tokio::task::spawn_blocking(move || read(args, &current)).await;
            let read = read.map_err(|error| error.to_string()).and_then(|read| read);
            self.told.metrics.reloaded(read.is_ok());
            match read {
                Ok(read) => self.take(read),
                Err(problem) => warn!("not reloaded, what held before still holds: {problem}"),
            }
        }
    }

    fn take(&mut self, Read { config, contents, service }: Read) {
        let old = self.current.get();
        let changes = Changes::between((&self.config, &old.library), (&config, &service.library))
            .and_of(&self.contents, &contents);
        self.current.replace(service);
        self.config = config;
        self.contents = contents;
        match changes.held.as_slice() {
            [] => info!("reloaded; nothing changed"),
            held => info!("reloaded, for new sessions: {}", held.join(", ")),
        }
        if !changes.not_held.is_empty() {
            warn!("cannot change while it runs, and holds after a restart: {}", changes.not_held.join(", "));
        }
    }
}

/// What was read again.
struct Read {
    config: Config,
    contents: Contents,
    service: Service,
}

/// Everything, found and checked as a whole; what is known of upstreams that stay is kept.
fn read(args: ConfigArgs, old: &Service) -> Result<Read, String> {
    let config = layered(args).map_err(|failure| failure.words)?;
    // Before they are used: what changes in between is then told once more, and never missed.
    let contents = Contents::of(&config);
    let mut service = config.service()?.keeping(old);
    if let (Some(traces), Some(before)) =
        (service.traces.as_mut().and_then(Arc::get_mut), old.traces.as_deref())
    {
        traces.share_memory(before);
    }
    if let Some(traces) = &service.traces {
        traces.prepare().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    Ok(Read { config, contents, service })
}
