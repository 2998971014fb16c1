//! Reading the configuration again while the server runs: checked as a whole, for the sessions to come.
//!
//! SIGHUP and the admin listener come here, one after the other. What is bad changes nothing and is said where it was asked
//! for, in the log, and to who counts.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use tracing::{info, warn};

use super::{AdminPlan, Changes, Config, Contents};
use crate::{
    server::{
        Current, Service,
        admin::{Configuration, Entrance, Gate, Reloaded, Reloads},
        process::systemd::Manager,
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
    /// The admin listener's entrance, and where it is, which does not change any more; where there is one.
    pub admin: Option<(Gate, SocketAddr)>,
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
    warnings: Vec<String>,
}

impl Holding {
    /// Reads files, and so blocks.
    fn of(config: Config) -> Self {
        let (contents, warnings) = (Contents::of(&config), config.warnings());
        Self { config, contents, warnings }
    }
}

/// What was read again.
struct Read {
    holding: Holding,
    service: Service,
    entrance: Option<Entrance>,
}

impl Reloader {
    /// From this configuration on.
    #[must_use]
    pub fn new(find: Find, config: Config, targets: Targets) -> Self {
        Self { find, targets, holding: Holding::of(config).into(), history: Mutex::default() }
    }

    async fn read_again(&self) -> Result<Reloaded, String> {
        let mut holding = self.holding.lock().await;
        self.targets.manager.reloading();
        if let Some(log) = &self.targets.access_log {
            log.reopen();
        }
        let (find, current) = (self.find.clone(), self.targets.current.get());
        let bound = self.targets.admin.as_ref().map(|(_, bound)| *bound);
        let read = tokio::task::spawn_blocking(move || read(&find, &current, bound)).await;
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
        let Read { holding: next, service, entrance } = read;
        let old = self.targets.current.get();
        let operated = self.targets.admin.is_some() && entrance.is_some();
        let (before, after) = ((&holding.config, &old.library), (&next.config, &service.library));
        let changes = Changes::between(before, after, operated);
        let changes = changes.and_of(&holding.contents, &next.contents, operated);
        self.targets.current.replace(service);
        if let (Some((gate, _)), Some(entrance)) = (&self.targets.admin, entrance) {
            gate.replace(entrance);
        }
        if self.targets.admin.is_some() {
            // Nothing is known of upstreams that are new, and whether it is ready depends on them.
            self.targets.current.get().pool.look();
        }
        for warning in next.warnings.iter().filter(|warning| !holding.warnings.contains(warning)) {
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

/// Everything, found and checked as a whole; what is known of upstreams that stay is kept. The admin listener stays where
/// it is `bound`, whatever address is configured now.
fn read(find: &Find, old: &Service, bound: Option<SocketAddr>) -> Result<Read, String> {
    // What files hold is looked at before they are used: what changes in between is then told once more, and never missed.
    let holding = Holding::of(find()?);
    let mut service = holding.config.service()?;
    let plan = holding.config.admin.plan()?;
    if let (Some(plan), Some(bound)) = (&plan, bound) {
        plan.check_at(bound).map_err(|problem| format!("{problem}; until a restart it stays there"))?;
    }
    let entrance = plan.map(AdminPlan::entrance).transpose()?;
    if let (Some(traces), Some(before)) =
        (service.traces.as_mut().and_then(Arc::get_mut), old.traces.as_deref())
    {
        traces.share_memory(before);
    }
    if let Some(traces) = &service.traces {
        traces.prepare().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    // Last: upstreams that stay learn of it.
    Ok(Read { holding, service: service.keeping(old), entrance })
}
