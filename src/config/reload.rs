//! Reading the configuration again while the server runs: checked as a whole, for the sessions to come.
//!
//! SIGHUP and the admin listener come here, one after the other. What is bad changes nothing and is said where it was asked
//! for, in the log, and to who counts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use tracing::{info, warn};

use super::{Changes, Config, Contents};
use crate::{
    server::{
        Current, Service,
        admin::{Configuration, Gate, Reloaded, Reloads, auth::Guard},
        notify::Manager,
        tls::Acceptor,
    },
    telemetry::{access_log::AccessLog, metrics::Metrics},
};

/// Finds the configuration where it was found at the start; an error is in words.
pub type Find = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// What can be read again, and what is to take it.
pub struct Reloader {
    find: Find,
    targets: Targets,
    /// What holds. Locked as long as it is read again: one at a time.
    holding: tokio::sync::Mutex<Holding>,
    history: Mutex<Reloads>,
}

/// Who takes what was read.
pub struct Targets {
    /// New sessions.
    pub current: Current,
    /// The admin listener's guard and its certificate, where there is one.
    pub admin: Option<(Gate, Option<Acceptor>)>,
    /// Where it is counted.
    pub metrics: Metrics,
    /// Who is told that it happens.
    pub manager: Manager,
    /// Opened anew each time: that is how its file is moved away.
    pub access_log: Option<AccessLog>,
}

struct Holding {
    config: Config,
    contents: Contents,
}

/// What was read again.
struct Read {
    holding: Holding,
    service: Service,
    guard: Option<Guard>,
}

impl Reloader {
    /// From this configuration on.
    #[must_use]
    pub fn new(find: Find, config: Config, targets: Targets) -> Self {
        let contents = Contents::of(&config);
        Self { find, targets, holding: Holding { config, contents }.into(), history: Mutex::default() }
    }

    async fn read_again(&self) -> Result<Reloaded, String> {
        let mut holding = self.holding.lock().await;
        self.targets.manager.reloading();
        if let Some(log) = &self.targets.access_log {
            log.reopen();
        }
        let (find, current) = (self.find.clone(), self.targets.current.get());
        let read = tokio::task::spawn_blocking(move || read(&find, &current)).await;
        let reloaded = match read.map_err(|error| error.to_string()).and_then(|read| read) {
            Ok(read) => Ok(self.take(read, &mut holding)),
            Err(problem) => {
                warn!("not reloaded, what held before still holds: {problem}");
                Err(problem)
            }
        };
        self.count(&reloaded);
        self.targets.manager.ready();
        reloaded
    }

    fn take(&self, read: Read, holding: &mut Holding) -> Reloaded {
        let Read { holding: next, service, guard } = read;
        let old = self.targets.current.get();
        let changes = Changes::between((&holding.config, &old.library), (&next.config, &service.library))
            .and_of(&holding.contents, &next.contents);
        self.targets.current.replace(service);
        if let Some((gate, tls)) = &self.targets.admin {
            guard.into_iter().for_each(|guard| gate.replace(guard));
            // Nothing is known of upstreams that are new, and whether it is ready depends on them.
            self.targets.current.get().pool.look();
            if let Some(Err(problem)) = tls.as_ref().map(Acceptor::refresh) {
                warn!("the admin listener keeps its certificate: {problem}");
            }
        }
        for warning in next.config.warnings().iter().filter(|it| !holding.config.warnings().contains(it)) {
            warn!("{warning}");
        }
        *holding = next;
        match changes.held.as_slice() {
            [] => info!("reloaded; nothing changed"),
            held => info!("reloaded, for new sessions: {}", held.join(", ")),
        }
        if !changes.not_held.is_empty() {
            warn!("cannot change while it runs, and holds after a restart: {}", changes.not_held.join(", "));
        }
        Reloaded { changed: changes.held, after_restart: changes.not_held }
    }

    fn count(&self, reloaded: &Result<Reloaded, String>) {
        self.targets.metrics.reloaded(reloaded.is_ok());
        let mut history = self.counted();
        match reloaded {
            Ok(_) => history.succeeded += 1,
            Err(_) => history.failed += 1,
        }
        history.last_failure = reloaded.as_ref().err().cloned();
    }

    fn counted(&self) -> MutexGuard<'_, Reloads> {
        // Numbers are whole between two of their changes, whatever panicked.
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Configuration for Reloader {
    fn reload(&self) -> BoxFuture<'_, Result<Reloaded, String>> {
        Box::pin(self.read_again())
    }

    fn shown(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async { self.holding.lock().await.config.shown(&self.targets.current.get().library) })
    }

    fn history(&self) -> Reloads {
        self.counted().clone()
    }
}

/// Everything, found and checked as a whole; what is known of upstreams that stay is kept.
fn read(find: &Find, old: &Service) -> Result<Read, String> {
    let config = find()?;
    // Before they are used: what changes in between is then told once more, and never missed.
    let contents = Contents::of(&config);
    let mut service = config.service()?.keeping(old);
    let guard = config.admin.plan()?.map(|plan| plan.guard);
    if let (Some(traces), Some(before)) =
        (service.traces.as_mut().and_then(Arc::get_mut), old.traces.as_deref())
    {
        traces.share_memory(before);
    }
    if let Some(traces) = &service.traces {
        traces.prepare().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    Ok(Read { holding: Holding { config, contents }, service, guard })
}
