//! `voxbridge serve`: starts the server with its admin listener and background tasks, and waits for its end.

use std::{net::SocketAddr, path::Path, sync::Arc, time::Duration};

use tokio::task::{JoinHandle, JoinSet};
use tracing::{debug, info, warn};

use super::{CommandError, SESSIONS_CUT_OFF, check, reload, signals};
use crate::{
    cli::{
        args::{ConfigArgs, ServeArgs},
        error::SIGNAL_BASE,
        output, unknown_variables,
    },
    config::{AdminSettings, Config, ConfigReloader, ReloadTargets, UpstreamConfig},
    secret::redacted_url,
    server::{
        Server, ServiceConfig,
        admin::{AdminContext, AdminListener, SharedAdminSecurity},
        certificate_watch::watch_certificates,
        process::{
            allocator, fd_limit,
            lifecycle::{LifecycleState, ShutdownOutcome},
            systemd::ServiceManager,
            workers::Workers,
        },
        tls::self_signed::SelfSignedCertificate,
        unix_now,
    },
    telemetry::otlp::Otlp,
};

/// Interval between checks for changed certificate files.
const CERTIFICATE_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Interval between probes of idle upstreams; a usual interval of readiness probes.
const IDLE_PROBE_INTERVAL: Duration = Duration::from_secs(10);

pub(super) async fn run(args: ServeArgs) -> Result<(), CommandError> {
    allocator::restart_with_fixed_threshold();
    // The check finds all mistakes, and their positions.
    let invalid = |error: CommandError| match check::describe_mistakes(args.config.clone()) {
        Some(mistakes) => CommandError::usage(mistakes),
        None => error,
    };
    let (mut config, self_signed) = load_serve_config(&args).map_err(invalid)?;
    let exporting = config.otlp.settings().map_err(CommandError::usage).map_err(invalid)?.map(Otlp::new);
    let log_export = exporting.as_ref().and_then(|(otlp, _)| otlp.log_export());
    config.log.start_log(log_export).map_err(CommandError::usage)?;
    config.detect_dialects().await;
    let service = config.build_service().map_err(|problem| invalid(CommandError::usage(problem)))?;
    service.pool.shuffle();
    let admin_settings = config.admin.resolve().map_err(CommandError::usage)?;
    create_directories(&service)?;
    log_warnings(&config, &service);
    let workers = Workers::start(config.workers)
        .map_err(|error| CommandError::failed(format!("cannot start worker threads: {error}")))?;
    raise_fd_limit(&service, &workers);
    let access_log = config.access_log.open().map_err(CommandError::failed)?;
    let mut server = new_server(&config, service)?;
    let bare = bind_listeners(&mut server, &config).await?;
    server.set_workers(workers);
    if let Some(log) = &access_log {
        server.set_access_log(log.clone());
    }
    if let Some((otlp, exporters)) = exporting {
        server.export_to(otlp, exporters);
    }
    let signals = tokio::spawn(signals::drain_on_signals(server.lifecycle())?);
    let admin = match admin_settings {
        Some(admin_settings) => Some(bind_admin(admin_settings).await?),
        None => None,
    };
    let manager = ServiceManager::from_env();
    let targets = ReloadTargets {
        current: server.active_config(),
        admin: admin.as_ref().map(admin_target).transpose()?,
        metrics: server.metrics(),
        manager: manager.clone(),
        access_log,
        lifecycle: server.lifecycle(),
    };
    let upstreams = config.upstream.clone();
    let reloader = Arc::new(build_reloader(args, config, targets));
    let start = Start { manager, reloader, admin, upstreams, bare, self_signed };
    exit_result(serve(server, start).await?, signals).await
}

/// The parts of a server at its start that are not the server itself.
struct Start {
    manager: ServiceManager,
    reloader: Arc<ConfigReloader>,
    admin: Option<AdminListener>,
    upstreams: Vec<UpstreamConfig>,
    /// Descriptions of the listeners for bare TCP.
    bare: Vec<String>,
    self_signed: Option<SelfSignedCertificate>,
}

/// Serves until the server is stopped, with the tasks beside it.
async fn serve(server: Server, start: Start) -> Result<ShutdownOutcome, CommandError> {
    let Start { manager, reloader, admin, upstreams, bare, self_signed } = start;
    // Ends with the server.
    let mut background = JoinSet::new();
    background.spawn(reload::reload_on_sighup(reloader.clone())?);
    background.spawn(reload::detect_dialects(reloader.clone()));
    background.spawn(watch_certificates(
        server.active_config(),
        admin.as_ref().map(AdminListener::security),
        server.metrics(),
        CERTIFICATE_CHECK_INTERVAL,
    ));
    let addresses = server.local_addrs().map_err(CommandError::failed)?;
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let lifecycle = server.lifecycle();
    let notifying = tokio::spawn(manager.report_lifecycle(
        addresses.join(" and "),
        lifecycle.clone(),
        server.liveness_probe(),
        server.registry(),
        server.active_config(),
    ));
    let control = admin_control(&server, reloader);
    let service = control.current.get();
    log_served_protocols(&service, &addresses);
    let serving = tokio::spawn(server.serve());
    // The server already serves when a script reads its lines.
    lifecycle.wait_for(LifecycleState::Serving).await;
    print_addresses(&addresses, bare, self_signed);
    let playground = addresses.iter().find_map(|address| service.playground_url(address));
    background.spawn(control.current.clone().probe_upstreams_every(IDLE_PROBE_INTERVAL, admin.is_some()));
    tokio::spawn(report_start(upstreams, service, addresses));
    let answering = admin.map(|admin| serve_admin(admin, control)).transpose()?;
    if let Some(url) = playground {
        let _ = output::print_line(format_args!("playground at {url}"));
    }
    let outcome = serving.await.map_err(CommandError::failed)?;
    background.abort_all();
    // Both tasks end with the server; waiting lets them send their last messages.
    let _ = notifying.await;
    if let Some(answering) = answering {
        let _ = answering.await;
    }
    Ok(outcome)
}

/// Creates the directories of traces and recordings, if there are any.
fn create_directories(service: &ServiceConfig) -> Result<(), CommandError> {
    let unwritable = |kind: &str, dir: &Path, error| {
        CommandError::failed(format!("cannot write {kind} to {}: {error}", dir.display()))
    };
    if let Some(traces) = &service.traces {
        traces.create_dir().map_err(|error| unwritable("traces", traces.dir(), error))?;
    }
    if let Some(recordings) = &service.recordings {
        recordings.create_dir().map_err(|error| unwritable("recordings", recordings.dir(), error))?;
    }
    Ok(())
}

/// The server, with the model that judges the ends of turns if one is configured.
fn new_server(config: &Config, service: ServiceConfig) -> Result<Server, CommandError> {
    let mut server = Server::new(service);
    if let Some(weights) = config.load_turn_model(&mut server).map_err(CommandError::usage)? {
        info!(weights = %weights.display(), "a model judges the ends of turns");
    }
    if let Some(judge) = &config.turn_judge {
        info!(url = %redacted_url(&judge.url), "a server judges the ends of turns");
    }
    Ok(server)
}

/// Prints where the server listens, and which certificate its clients must trust. A server whose output is not read goes on.
fn print_addresses(addresses: &[String], bare: Vec<String>, self_signed: Option<SelfSignedCertificate>) {
    let listening = addresses.iter().map(|address| format!("listening on {address}"));
    let trust = self_signed.map(|SelfSignedCertificate { cert, fingerprint, .. }| {
        format!("clients must trust {}, SHA-256 {fingerprint}", cert.display())
    });
    for line in listening.chain(bare).chain(trust) {
        let _ = output::print_line(line);
    }
}

/// Logs what is probably wrong with a configuration that works.
fn log_warnings(config: &Config, service: &ServiceConfig) {
    let (of_variables, now) = (unknown_variables::warnings(config), unix_now().as_secs());
    let of_service = [Config::route_warnings(service), Config::key_warnings(service, now)];
    for note in config.tool_server_notes(&service.routes) {
        info!("{note}");
    }
    for warning in config.warnings().into_iter().chain(of_service.concat()).chain(of_variables) {
        warn!("{warning}");
    }
}

/// Binds the addresses for WebSockets and HTTP, for calls and for bare TCP. Describes those for bare TCP.
async fn bind_listeners(server: &mut Server, config: &Config) -> Result<Vec<String>, CommandError> {
    for listen in config.listen_addresses() {
        server.bind_address(&listen).await.map_err(|error| bind_error(&listen, "--listen", &error))?;
    }
    if let Some(addresses) = config.webrtc.addresses().map_err(CommandError::usage)? {
        let listen = addresses.listen.to_string();
        let bound = server.bind_calls(addresses).await;
        let advertised = bound.map_err(|error| bind_error(&listen, "webrtc.listen", &error))?;
        info!(%advertised, "calls by WebRTC are served");
    }
    let mut bare = Vec::new();
    let services = config.tcp_services(&server.active_config().get().library).map_err(CommandError::usage)?;
    for (listen, service) in services {
        let protocol = service.protocol.clone();
        let bound = server.bind_tcp(listen, service).await;
        let address = bound.map_err(|error| bind_error(&listen.to_string(), "tcp.listen", &error))?;
        bare.push(format!("{protocol} at tcp://{address}"));
    }
    Ok(bare)
}

/// Logs what is served: a line for each family of protocols, and at debug a URL for each path.
fn log_served_protocols(service: &ServiceConfig, addresses: &[String]) {
    for (family, protocols) in service.served_families() {
        info!(family, protocols = protocols.join(", "), "serving clients");
    }
    for (protocol, url) in addresses.iter().flat_map(|address| service.client_urls(address)) {
        let profile = service.usual_profile(&protocol).unwrap_or_default();
        debug!(protocol, url, profile, "serving clients");
    }
}

/// Logs the upstreams, and last where clients connect and which page to open.
async fn report_start(upstreams: Vec<UpstreamConfig>, service: Arc<ServiceConfig>, addresses: Vec<String>) {
    report_upstreams(upstreams, service.clone()).await;
    let clients = addresses.iter().map(|address| service.websocket_url(address)).collect::<Vec<_>>();
    let playground = addresses.iter().find_map(|address| service.playground_url(address));
    let open = playground.map_or_else(String::new, |url| format!("; open {url} in a browser"));
    info!("clients connect to {}{open}", clients.join(" or "));
}

/// Logs each upstream with its dialect and whether it can be reached.
async fn report_upstreams(upstreams: Vec<UpstreamConfig>, service: Arc<ServiceConfig>) {
    let states = service.pool.clone().probe_all().await;
    for (entry, (upstream, state)) in upstreams.iter().zip(states) {
        let (url, dialect) = (redacted_url(&entry.url), &entry.dialect);
        match state {
            Ok(()) => {
                info!(upstream, url, dialect, "upstream can be reached");
                if entry.is_simulated(&service.library).await {
                    info!(
                        upstream,
                        "upstream is simulated by voxbridge: no model runs; it knows words only of recordings that it was given"
                    );
                }
            }
            Err(problem) => warn!(
                upstream,
                url,
                dialect,
                "upstream cannot be reached: {problem}; sessions try it again; `voxbridge doctor` finds the cause"
            ),
        }
    }
}

/// Raises the limit of file descriptors to the number needed; logs a warning if that fails.
fn raise_fd_limit(service: &ServiceConfig, workers: &Workers) {
    let needed = fd_limit::count_needed(service, workers.count());
    match fd_limit::raise(needed) {
        Ok(limit) => {
            if let Some(warning) = fd_limit::shortage_warning(service, needed, limit) {
                warn!("{warning}");
            }
        }
        Err(error) => warn!(%error, needed, "cannot determine the limit of file descriptors"),
    }
}

/// Reads the configuration, and finds or makes the self-signed certificate if one is asked for.
fn load_serve_config(args: &ServeArgs) -> Result<(Config, Option<SelfSignedCertificate>), CommandError> {
    let ConfigArgs { config, settings } = &args.config;
    let mut config = Config::load(config.as_deref(), settings).map_err(CommandError::usage)?;
    config.playground = args.playground.then_some(true).or(config.playground);
    let self_signed = args.tls_self_signed.then(|| config.use_self_signed_certificate());
    Ok((config, self_signed.transpose().map_err(CommandError::usage)?))
}

fn build_reloader(args: ServeArgs, config: Config, targets: ReloadTargets) -> ConfigReloader {
    let load = move || load_serve_config(&args).map(|(config, _)| config).map_err(|error| error.message);
    ConfigReloader::new(Arc::new(load), config, targets)
}

async fn bind_admin(admin_settings: AdminSettings) -> Result<AdminListener, CommandError> {
    let listen = admin_settings.listen;
    let admin = AdminListener::bind(listen, admin_settings.load().map_err(CommandError::usage)?).await;
    admin.map_err(|error| bind_error(&listen.to_string(), "--admin", &error))
}

/// Parts of the admin listener that a reload replaces, and its address.
fn admin_target(admin: &AdminListener) -> Result<(SharedAdminSecurity, SocketAddr), CommandError> {
    Ok((admin.security(), admin.local_addr().map_err(CommandError::failed)?))
}

/// Collects what the admin listener shows and controls.
fn admin_control(server: &Server, configuration: Arc<ConfigReloader>) -> AdminContext {
    AdminContext {
        life: server.lifecycle(),
        registry: server.registry(),
        room: server.session_slots(),
        current: server.active_config(),
        metrics: server.metrics(),
        tool_servers: server.tool_servers(),
        configuration,
    }
}

/// Starts the admin listener and prints its address.
fn serve_admin(admin: AdminListener, control: AdminContext) -> Result<JoinHandle<()>, CommandError> {
    let scheme = if admin.security().get().tls.is_some() { "https" } else { "http" };
    let address = admin.local_addr().map_err(CommandError::failed)?;
    let _ = output::print_line(format_args!("admin at {scheme}://{address}"));
    Ok(tokio::spawn(admin.run(control)))
}

fn bind_error(address: &str, flag: &str, error: &std::io::Error) -> CommandError {
    let reason = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!("another program already uses this address; choose another one with {flag}")
        }
        _ => error.to_string(),
    };
    CommandError::failed(format!("cannot listen on {address}: {reason}"))
}

/// Converts the way the server ended to an exit code.
async fn exit_result(outcome: ShutdownOutcome, signals: JoinHandle<u8>) -> Result<(), CommandError> {
    match outcome {
        ShutdownOutcome::Drained => Ok(()),
        ShutdownOutcome::TimedOut(sessions, within) => {
            let time = within.as_millis();
            let message = format!(
                "cut off {sessions} sessions that could not finish within {time} ms (drain.timeout_ms)"
            );
            Err(CommandError::with_code(SESSIONS_CUT_OFF, message))
        }
        ShutdownOutcome::Forced(sessions) => {
            // Only a second signal stops the server at once.
            let signal = signals.await.unwrap_or_default();
            Err(CommandError::with_code(
                SIGNAL_BASE + signal,
                format!("stopped at once and cut off {sessions} sessions"),
            ))
        }
    }
}
