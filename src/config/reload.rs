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

use super::{AdminSettings, Changes, Config, ReferencedFiles};
use crate::{
    server::{
        ActiveConfig, ServiceConfig,
        admin::{AdminSecurity, ReloadOutcome, ReloadStats, ReloadableConfig, SharedAdminSecurity},
        process::systemd::ServiceManager,
    },
    telemetry::{access_log::AccessLog, metrics::Metrics},
};

/// Finds the configuration where it was found at the start; an error is in words.
pub type FindConfig = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// What can be read again, and what is to take it.
pub struct ConfigReloader {
    find: FindConfig,
    targets: ReloadTargets,
    /// What holds. Locked as long as it is read again: one at a time.
    applied: tokio::sync::Mutex<AppliedConfig>,
    stats: Mutex<ReloadStats>,
}

/// Who takes what was read.
pub struct ReloadTargets {
    /// New sessions.
    pub current: ActiveConfig,
    /// The admin listener's entrance, and where it is, which does not change any more; where there is one.
    pub admin: Option<(SharedAdminSecurity, SocketAddr)>,
    /// Where it is counted.
    pub metrics: Metrics,
    /// Who is told that it happens.
    pub manager: ServiceManager,
    /// Opened anew each time: that is how its file is moved away.
    pub access_log: Option<AccessLog>,
}

struct AppliedConfig {
    config: Config,
    files: ReferencedFiles,
    warnings: Vec<String>,
}

impl AppliedConfig {
    /// Reads files, and so blocks.
    fn read(config: Config) -> Self {
        let (files, warnings) = (ReferencedFiles::read(&config), config.warnings());
        Self { config, files, warnings }
    }
}

/// What was read again.
struct LoadedConfig {
    applied: AppliedConfig,
    service: ServiceConfig,
    admin_security: Option<AdminSecurity>,
}

impl ConfigReloader {
    /// From this configuration on.
    #[must_use]
    pub fn new(find: FindConfig, config: Config, targets: ReloadTargets) -> Self {
        Self { find, targets, applied: AppliedConfig::read(config).into(), stats: Mutex::default() }
    }

    async fn reload_now(&self) -> Result<ReloadOutcome, String> {
        let mut applied = self.applied.lock().await;
        self.targets.manager.notify_reloading();
        if let Some(log) = &self.targets.access_log {
            log.reopen();
        }
        let (find, current) = (self.find.clone(), self.targets.current.get());
        let bound = self.targets.admin.as_ref().map(|(_, bound)| *bound);
        let read = tokio::task::spawn_blocking(move || load(&find, &current, bound)).await;
        let reloaded = match read.map_err(|error| error.to_string()).and_then(|read| read) {
            Ok(loaded) => Ok(self.apply(loaded, &mut applied)),
            Err(problem) => {
                warn!("not reloaded, what held before still holds: {problem}");
                Err(problem)
            }
        };
        self.record_outcome(&reloaded);
        self.targets.manager.notify_ready();
        reloaded
    }

    fn apply(&self, loaded: LoadedConfig, applied: &mut AppliedConfig) -> ReloadOutcome {
        let LoadedConfig { applied: next, service, admin_security } = loaded;
        let old = self.targets.current.get();
        let has_admin = self.targets.admin.is_some() && admin_security.is_some();
        let (before, after) = ((&applied.config, &old.library), (&next.config, &service.library));
        let changes = Changes::between(before, after, has_admin);
        let changes = changes.with_file_changes(&applied.files, &next.files, has_admin);
        self.targets.current.replace(service);
        if let (Some((security, _)), Some(admin_security)) = (&self.targets.admin, admin_security) {
            security.replace(admin_security);
        }
        if self.targets.admin.is_some() {
            // Nothing is known of upstreams that are new, and whether it is ready depends on them.
            self.targets.current.get().pool.probe_idle();
        }
        for warning in next.warnings.iter().filter(|warning| !applied.warnings.contains(warning)) {
            warn!("{warning}");
        }
        *applied = next;
        match changes.applied.as_slice() {
            [] => info!("reloaded; nothing changed"),
            held => info!("reloaded, for new sessions: {}", held.join(", ")),
        }
        if !changes.after_restart.is_empty() {
            warn!(
                "cannot change while it runs, and holds after a restart: {}",
                changes.after_restart.join(", ")
            );
        }
        ReloadOutcome { changed: changes.applied, after_restart: changes.after_restart }
    }

    fn record_outcome(&self, reloaded: &Result<ReloadOutcome, String>) {
        self.targets.metrics.record_reload(reloaded.is_ok());
        let mut stats = self.lock_stats();
        match reloaded {
            Ok(_) => stats.succeeded += 1,
            Err(_) => stats.failed += 1,
        }
        stats.last_failure = reloaded.as_ref().err().cloned();
    }

    fn lock_stats(&self) -> MutexGuard<'_, ReloadStats> {
        // Numbers are whole between two of their changes, whatever panicked.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReloadableConfig for ConfigReloader {
    fn reload(&self) -> BoxFuture<'_, Result<ReloadOutcome, String>> {
        Box::pin(self.reload_now())
    }

    fn to_redacted_json(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async {
            self.applied.lock().await.config.effective_json(&self.targets.current.get().library)
        })
    }

    fn reload_stats(&self) -> ReloadStats {
        self.lock_stats().clone()
    }
}

/// Everything, found and checked as a whole; what is known of upstreams that stay is kept. The admin listener stays where
/// it is `bound`, whatever address is configured now.
fn load(find: &FindConfig, old: &ServiceConfig, bound: Option<SocketAddr>) -> Result<LoadedConfig, String> {
    // What files hold is looked at before they are used: what changes in between is then told once more, and never missed.
    let applied = AppliedConfig::read(find()?);
    let mut service = applied.config.build_service()?;
    let admin_settings = applied.config.admin.resolve()?;
    if let (Some(plan), Some(bound)) = (&admin_settings, bound) {
        plan.check_exposure(bound).map_err(|problem| format!("{problem}; until a restart it stays there"))?;
    }
    let admin_security = admin_settings.map(AdminSettings::load).transpose()?;
    if let (Some(traces), Some(before)) =
        (service.traces.as_mut().and_then(Arc::get_mut), old.traces.as_deref())
    {
        traces.share_backlog(before);
    }
    if let Some(traces) = &service.traces {
        traces.create_dir().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    // Last: upstreams that stay learn of it.
    Ok(LoadedConfig { applied, service: service.with_upstream_state_of(old), admin_security })
}
