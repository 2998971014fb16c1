//! Configuration reload while the server runs. The new configuration is checked as a whole and applies to new
//! sessions.
//!
//! SIGHUP and the admin API trigger reloads, one at a time. An invalid configuration changes nothing. The error
//! goes to the caller, the log and the metrics.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::BoxFuture;
use tracing::{info, warn};

use super::{AdminSettings, Changes, Config, ReferencedFiles, Snapshot, keys};
use crate::{
    server::{
        ActiveConfig, ServiceConfig,
        admin::{AdminSecurity, ReloadOutcome, ReloadStats, ReloadableConfig, SharedAdminSecurity},
        process::{lifecycle::Lifecycle, systemd::ServiceManager},
    },
    telemetry::{self, access_log::AccessLog, metrics::Metrics},
};

/// Loads the configuration from the same sources as at startup. The error is a message for the operator.
pub type FindConfig = Arc<dyn Fn() -> Result<Config, String> + Send + Sync>;

/// Reloads the configuration and applies it to its targets.
pub struct ConfigReloader {
    find: FindConfig,
    targets: ReloadTargets,
    /// The configuration in effect, with the running values of keys that only a restart changes. Locked during a reload, so that reloads run one at a time.
    applied: tokio::sync::Mutex<AppliedConfig>,
    /// The keys that took effect at the start.
    used_at_start: Vec<&'static str>,
    stats: Mutex<ReloadStats>,
}

/// Components that a reload updates.
pub struct ReloadTargets {
    /// Configuration of new sessions.
    pub current: ActiveConfig,
    /// Admin listener, if there is one: its security settings and its address, which is fixed until a
    /// restart.
    pub admin: Option<(SharedAdminSecurity, SocketAddr)>,
    /// Counts reloads.
    pub metrics: Metrics,
    /// Service manager to notify (systemd).
    pub manager: ServiceManager,
    /// Access log, reopened at each reload. This lets logrotate move its file.
    pub access_log: Option<AccessLog>,
    /// The server's lifecycle: a drain that has begun keeps its times.
    pub lifecycle: Lifecycle,
}

struct AppliedConfig {
    config: Config,
    files: ReferencedFiles,
    warnings: Vec<String>,
}

impl AppliedConfig {
    /// Reads the referenced files, so this call blocks.
    fn read(config: Config) -> Self {
        let (files, warnings) = (ReferencedFiles::read(&config), config.warnings());
        Self { config, files, warnings }
    }
}

/// A checked configuration, ready to apply.
struct LoadedConfig {
    applied: AppliedConfig,
    service: ServiceConfig,
    admin_security: Option<AdminSecurity>,
}

impl ConfigReloader {
    /// Starts with the configuration in effect.
    pub fn new(find: FindConfig, config: Config, targets: ReloadTargets) -> Self {
        let used_at_start = keys::used_at_start(&config, &targets.current.get().routes);
        let applied = AppliedConfig::read(config).into();
        Self { find, targets, applied, used_at_start, stats: Mutex::default() }
    }

    /// Asks upstreams again whose dialects are not known yet; true once all are known.
    pub async fn detect_dialects(&self) -> bool {
        let mut applied = self.applied.lock().await;
        let mut config = applied.config.clone();
        config.detect_dialects().await;
        if config.upstream != applied.config.upstream {
            match self.load(config.clone()).await {
                Ok(loaded) => drop(self.apply(loaded, &mut applied)),
                Err(problem) => warn!("the dialects that were found cannot be used: {problem}"),
            }
        }
        !config.has_unknown_dialects()
    }

    /// Finds the configuration, and the dialects that are not known yet. Upstreams whose entries are the same are not asked again.
    async fn find_config(&self, known: &Config) -> Result<Config, String> {
        let find = self.find.clone();
        let found = tokio::task::spawn_blocking(move || find()).await;
        let mut config = found.map_err(|error| error.to_string()).and_then(|found| found)?;
        config.keep_dialects(known);
        config.detect_dialects().await;
        config.adopt_dialects(known);
        Ok(config)
    }

    /// Checks a configuration.
    async fn load(&self, config: Config) -> Result<LoadedConfig, String> {
        let current = self.targets.current.get();
        let bound = self.targets.admin.as_ref().map(|(_, bound)| *bound);
        let read = tokio::task::spawn_blocking(move || load(config, &current, bound)).await;
        read.map_err(|error| error.to_string()).and_then(|read| read)
    }

    async fn reload_now(&self) -> Result<ReloadOutcome, String> {
        let mut applied = self.applied.lock().await;
        self.targets.manager.notify_reloading();
        if let Some(log) = &self.targets.access_log {
            log.reopen();
        }
        let loaded = match self.find_config(&applied.config).await {
            Ok(config) => self.load(config).await,
            Err(problem) => Err(problem),
        };
        let reloaded = match loaded {
            Ok(loaded) => Ok(self.apply(loaded, &mut applied)),
            Err(problem) => {
                warn!("configuration not reloaded, the previous one stays in effect: {problem}");
                Err(problem)
            }
        };
        self.record_outcome(&reloaded);
        self.targets.manager.notify_ready();
        reloaded
    }

    fn apply(&self, loaded: LoadedConfig, applied: &mut AppliedConfig) -> ReloadOutcome {
        let LoadedConfig { applied: mut next, mut service, admin_security } = loaded;
        let old = self.targets.current.get();
        let has_admin = self.targets.admin.is_some() && admin_security.is_some();
        let before = Snapshot { config: &applied.config, library: &old.library };
        let after = Snapshot { config: &next.config, library: &service.library };
        let changes = Changes::between(before, after, has_admin)
            .with_file_changes(&applied.files, &next.files, has_admin)
            .with_needed_keys(&self.used_at_start, &keys::used_at_start(&next.config, &service.routes));
        if self.targets.lifecycle.is_shutting_down() {
            service.drain_policy = old.drain_policy;
        }
        self.targets.current.replace(service);
        if let (Some((security, _)), Some(admin_security)) = (&self.targets.admin, admin_security) {
            security.replace(admin_security);
        }
        // Probe new upstreams at once, because readiness depends on their state.
        self.targets.current.probe_upstreams(self.targets.admin.is_some());
        for warning in next.warnings.iter().filter(|warning| !applied.warnings.contains(warning)) {
            warn!("{warning}");
        }
        next.config = next.config.with_fixed_keys_of(&applied.config, has_admin);
        *applied = next;
        let after_restart = changes.after_restart.join(", ");
        match changes.applied.as_slice() {
            [] if after_restart.is_empty() => info!("configuration reloaded; nothing changed"),
            [] => warn!("configuration reloaded; its changes take effect after a restart: {after_restart}"),
            applied => {
                info!("configuration reloaded; changed for new sessions: {}", applied.join(", "));
                if !after_restart.is_empty() {
                    warn!("these changes take effect after a restart: {after_restart}");
                }
            }
        }
        ReloadOutcome { changed: changes.applied, after_restart: changes.after_restart }
    }

    fn record_outcome(&self, reloaded: &Result<ReloadOutcome, String>) {
        self.targets.metrics.record_reload(reloaded.is_ok());
        self.targets.metrics.add_session_kinds(self.targets.current.get().session_kinds());
        let mut stats = self.lock_stats();
        match reloaded {
            Ok(_) => stats.succeeded += 1,
            Err(_) => stats.failed += 1,
        }
        stats.last_failure = reloaded.as_ref().err().cloned();
    }

    fn lock_stats(&self) -> MutexGuard<'_, ReloadStats> {
        // The counters stay consistent even if a thread panicked while holding the lock.
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReloadableConfig for ConfigReloader {
    fn reload(&self) -> BoxFuture<'_, Result<ReloadOutcome, String>> {
        Box::pin(self.reload_now())
    }

    fn to_redacted_json(&self) -> BoxFuture<'_, serde_json::Value> {
        Box::pin(async {
            let mut config = self.applied.lock().await.config.clone();
            // The admin API changes the level of a running server.
            config.log.level = telemetry::log::level().or(config.log.level);
            config.effective_json(&self.targets.current.get().library)
        })
    }

    fn reload_stats(&self) -> ReloadStats {
        self.lock_stats().clone()
    }
}

/// Checks the whole configuration. Upstreams that remain keep their known state. The admin listener
/// stays at its `bound` address, whatever address is configured now.
fn load(config: Config, old: &ServiceConfig, bound: Option<SocketAddr>) -> Result<LoadedConfig, String> {
    // Digest the files before using them. A change in between is then reported again at the next reload, but
    // never missed.
    let applied = AppliedConfig::read(config);
    let mut service = applied.config.build_service()?;
    let admin_settings = applied.config.admin.resolve()?;
    if let (Some(plan), Some(bound)) = (&admin_settings, bound) {
        plan.check_exposure(bound)
            .map_err(|problem| format!("{problem}; the address changes only after a restart"))?;
    }
    let admin_security = admin_settings.map(AdminSettings::load).transpose()?;
    if let (Some(traces), Some(before)) =
        (service.traces.as_mut().and_then(Arc::get_mut), old.traces.as_deref())
    {
        traces.share_backlog(before);
    }
    if let (Some(recordings), Some(before)) =
        (service.recordings.as_mut().and_then(Arc::get_mut), old.recordings.as_deref())
    {
        recordings.share_state(before);
    }
    if let Some(recordings) = &service.recordings {
        recordings
            .create_dir()
            .map_err(|error| format!("record: {}: {error}", recordings.dir().display()))?;
    }
    if let Some(traces) = &service.traces {
        traces.create_dir().map_err(|error| format!("trace: {}: {error}", traces.dir().display()))?;
    }
    // Last step, because it changes the state of upstreams that remain.
    Ok(LoadedConfig { applied, service: service.with_upstream_state_of(old), admin_security })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::net::TcpListener;

    use super::*;
    use crate::{
        server::{
            Server,
            route::{Route, Routes},
        },
        vocabulary::TurnEndRule::{self, Fixed, Semantic},
    };

    /// A configuration with upstreams at these ports.
    fn loaded_with_upstreams(ports: &[u16]) -> LoadedConfig {
        let upstream =
            |port| format!("[[upstream]]\nurl = \"ws://127.0.0.1:{port}\"\ndialect = \"minicpm-o\"\n");
        let config: Config = toml::from_str(&ports.iter().map(upstream).collect::<String>()).unwrap();
        let service = config.build_service().unwrap();
        LoadedConfig { applied: AppliedConfig::read(config), service, admin_security: None }
    }

    /// A configuration whose profiles judge the ends of turns by this rule.
    fn loaded(turn_end: TurnEndRule) -> LoadedConfig {
        let LoadedConfig { applied, service, admin_security } = loaded_with_upstreams(&[1]);
        let with_rule = |route: &Route| {
            let mut route = route.clone();
            Arc::make_mut(&mut route.profile).listen.turn_end = turn_end;
            route
        };
        let routes = Routes::new(service.routes.iter().map(with_rule).collect());
        LoadedConfig { applied, service: ServiceConfig { routes, ..service }, admin_security }
    }

    /// Starts with the configuration, without an admin listener.
    fn reloader(LoadedConfig { applied, service, .. }: LoadedConfig) -> ConfigReloader {
        let find = Arc::new(|| Err("unused".to_owned()));
        ConfigReloader::new(find, applied.config, targets(&Server::new(service)))
    }

    fn targets(server: &Server) -> ReloadTargets {
        ReloadTargets {
            current: server.active_config(),
            admin: None,
            metrics: server.metrics(),
            manager: ServiceManager::default(),
            access_log: None,
            lifecycle: server.lifecycle(),
        }
    }

    #[tokio::test]
    async fn drain_that_has_begun_keeps_its_times() {
        let with_timeout = |timeout: Duration| {
            let LoadedConfig { applied, mut service, admin_security } = loaded(Fixed);
            service.drain_policy.timeout = timeout;
            LoadedConfig { applied, service, admin_security }
        };
        let reloader = reloader(with_timeout(Duration::from_secs(1)));
        let mut applied = reloader.applied.lock().await;
        for (seconds, drains, expected) in [(2, false, 2), (3, true, 2)] {
            if drains {
                reloader.targets.lifecycle.start_drain();
            }
            reloader.apply(with_timeout(Duration::from_secs(seconds)), &mut applied);
            let timeout = reloader.targets.current.get().drain_policy.timeout;
            assert_eq!(timeout, Duration::from_secs(expected));
        }
    }

    #[tokio::test]
    async fn traces_keep_the_count_of_lost_lines() {
        let dir = std::env::temp_dir().join(format!("voxbridge-reload-{}", std::process::id()));
        let toml = format!("[[upstream]]\nurl = \"ws://127.0.0.1:1\"\n[trace]\ndir = {dir:?}\n");
        let config = || toml::from_str::<Config>(&toml).unwrap();
        let before = config().build_service().unwrap();
        before.traces.as_ref().unwrap().lose_lines(3);
        let LoadedConfig { service, .. } = load(config(), &before, None).unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        let traces = service.traces.unwrap();
        before.traces.as_ref().unwrap().lose_lines(4);
        assert_eq!(traces.lost_lines(), 7, "sessions of both may still lose lines");
    }

    #[tokio::test]
    async fn model_that_was_not_loaded_at_the_start_takes_a_restart() {
        let pending = ["`turn_model`".to_owned()];
        for (at_start, is_pending) in [(Fixed, true), (Semantic, false)] {
            let reloader = reloader(loaded(at_start));
            let mut applied = reloader.applied.lock().await;
            for _ in 0..2 {
                let outcome = reloader.apply(loaded(Semantic), &mut applied);
                let expected = if is_pending { &pending[..] } else { &[] };
                assert_eq!(outcome.after_restart, expected, "{at_start:?}");
            }
            assert!(reloader.apply(loaded(Fixed), &mut applied).after_restart.is_empty());
        }
    }

    /// A server whose page has the sign of llama.cpp-omni; counts its connections.
    async fn server_with_page() -> (u16, Arc<std::sync::atomic::AtomicUsize>) {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let count = Arc::<std::sync::atomic::AtomicUsize>::default();
        let counted = count.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                let _ = stream.read(&mut [0; 4096]).await;
                let page = r#"{"engine":"comni","status":"ok"}"#;
                let head =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nx-engine: comni\r\n\r\n", page.len());
                let _ = stream.write_all(format!("{head}{page}").as_bytes()).await;
            }
        });
        (port, count)
    }

    #[tokio::test]
    async fn reload_asks_only_upstreams_whose_entries_changed_for_their_dialects() {
        use std::sync::atomic::Ordering::Relaxed;
        let (port, count) = server_with_page().await;
        let entry = format!("[[upstream]]\nurl = \"ws://127.0.0.1:{port}\"\n");
        let parse = |text: &str| toml::from_str::<Config>(text).unwrap();
        let mut known = parse(&entry);
        known.upstream[0].dialect = "minicpm-o-legacy".to_owned();
        known.upstream[0].is_dialect_found = true;
        let reloaded = |text: String, known: &Config| {
            let (find, known) = (Arc::new(move || Ok(parse(&text))), known.clone());
            let LoadedConfig { applied, service, .. } = loaded(Fixed);
            let reloader = ConfigReloader::new(find, applied.config, targets(&Server::new(service)));
            async move { reloader.find_config(&known).await.unwrap().upstream[0].clone() }
        };
        let same = reloaded(entry.clone(), &known).await;
        assert_eq!((same.dialect.as_str(), count.load(Relaxed)), ("minicpm-o-legacy", 0));
        assert!(same.is_dialect_found, "the next reload keeps it too");
        let changed = [
            (format!("{entry}status_path = \"/x\"\n"), known.clone()),
            (entry.clone(), {
                let mut named = known.clone();
                named.upstream[0].is_dialect_found = false;
                named
            }),
        ];
        for (text, known) in changed {
            let before = count.load(Relaxed);
            reloaded(text.clone(), &known).await;
            assert!(count.load(Relaxed) > before, "{text}");
        }
    }

    #[tokio::test]
    async fn reload_that_adds_a_second_upstream_probes_both() {
        let (first, second) = (
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
            TcpListener::bind("127.0.0.1:0").await.unwrap(),
        );
        let ports = [&first, &second].map(|listener| listener.local_addr().unwrap().port());
        let reloader = reloader(loaded_with_upstreams(&ports[..1]));
        let mut applied = reloader.applied.lock().await;
        reloader.apply(loaded_with_upstreams(&ports), &mut applied);
        let (probe_of_first, probe_of_second) = tokio::join!(first.accept(), second.accept());
        assert!(probe_of_first.is_ok() && probe_of_second.is_ok());
    }
}
