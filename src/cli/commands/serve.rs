//! `voxbridge serve`.

use std::{sync::Arc, time::Duration};

use tokio::task::JoinHandle;
use tracing::warn;

use super::{CUT_OFF, Failure, SIGNALLED, config_layers::layered, reload, signals};
use crate::{
    cli::args::ConfigArgs,
    config::{AdminPlan, Config, DEFAULT_LISTEN, Reloader, Targets},
    server::{
        Server, Service,
        admin::{Admin, Control},
        process::{
            fd_limit,
            lifecycle::{Ended, State},
            systemd::Manager,
            workers::Workers,
        },
        tls,
        upstream_pool::probe::keep_looking,
    },
    telemetry,
};

/// How often the files of certificates are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// How often upstreams that nobody uses are asked whether they are there: as often as a readiness probe usually asks.
const LOOK_AT_IDLE: Duration = Duration::from_secs(10);

pub(super) async fn run(args: ConfigArgs) -> Result<(), Failure> {
    let config = layered(args.clone())?;
    telemetry::init(&config.log).map_err(Failure::usage)?;
    let service = config.service().map_err(Failure::usage)?;
    let plan = config.admin.plan().map_err(Failure::usage)?;
    if let Some(traces) = &service.traces {
        let bad = |error| Failure::failed(format!("cannot record in {}: {error}", traces.dir().display()));
        traces.prepare().map_err(bad)?;
    }
    for warning in config.warnings() {
        warn!("{warning}");
    }
    let workers = Workers::start(config.workers)
        .map_err(|error| Failure::failed(format!("no threads for sessions: {error}")))?;
    allow_descriptors(&service, &workers);
    let listen = config.listen.clone().unwrap_or_else(|| DEFAULT_LISTEN.to_owned());
    let access_log = config.access_log.open().map_err(Failure::failed)?;
    let mut server =
        Server::bind(&listen, service).await.map_err(|error| no_listener(&listen, "--listen", &error))?;
    server.run_on(workers);
    if let Some(log) = &access_log {
        server.log_access(log.clone());
    }
    let signals = tokio::spawn(signals::obeyed(server.life())?);
    let admin = match plan {
        Some(plan) => Some(bound(plan).await?),
        None => None,
    };
    let manager = Manager::from_env();
    let operators = admin.as_ref().map(Admin::gate);
    let doors = admin.as_ref().map(|admin| Ok((admin.gate(), admin.local_addr()?))).transpose();
    let doors = doors.map_err(|error: std::io::Error| Failure::failed(error))?;
    let (current, metrics) = (server.current(), server.metrics());
    let targets = Targets { current, admin: doors, metrics, manager: manager.clone(), access_log };
    let reloader = Arc::new(reloader(args, config, targets));
    let hangups = tokio::spawn(reload::at_hangup(reloader.clone())?);
    let renewals = tokio::spawn(tls::watch(server.current(), operators, server.metrics(), LOOK_EVERY));
    let place = server.local_addr().map_err(Failure::failed)?.to_string();
    let (life, pulse, registry) = (server.life(), server.pulse(), server.registry());
    let told = tokio::spawn(manager.follow(place.clone(), life.clone(), pulse, registry, server.current()));
    let control = control(&server, reloader);
    let serving = tokio::spawn(server.serve());
    // Whoever reads where it is finds it there.
    life.reached(State::Serving).await;
    println!("listening on {place}");
    // Whether it is ready depends on them; without an admin listener nobody asks.
    let looks = admin.is_some().then(|| tokio::spawn(keep_looking(control.current.clone(), LOOK_AT_IDLE)));
    let answering = admin.map(|admin| operated(admin, control)).transpose()?;
    let ended = serving.await.map_err(Failure::failed)?;
    hangups.abort();
    renewals.abort();
    looks.iter().for_each(JoinHandle::abort);
    // Both end with the server; the last of what they say is still said.
    let _ = told.await;
    if let Some(answering) = answering {
        let _ = answering.await;
    }
    verdict(ended, signals).await
}

/// As many file descriptors as may be needed, or a word about it.
fn allow_descriptors(service: &Service, workers: &Workers) {
    let needed = fd_limit::needed(service, workers.count());
    match fd_limit::raised(needed) {
        Ok(limit) => {
            if let Some(warning) = fd_limit::warning(service, needed, limit) {
                warn!("{warning}");
            }
        }
        Err(error) => warn!(%error, needed, "it is not known whether enough file descriptors may be open"),
    }
}

fn reloader(args: ConfigArgs, config: Config, targets: Targets) -> Reloader {
    let find = move || layered(args.clone()).map_err(|failure| failure.words);
    Reloader::new(Arc::new(find), config, targets)
}

async fn bound(plan: AdminPlan) -> Result<Admin, Failure> {
    let listen = plan.listen;
    let admin = Admin::bind(listen, plan.entrance().map_err(Failure::usage)?).await;
    admin.map_err(|error| no_listener(&listen.to_string(), "--admin", &error))
}

/// What operators may see and do.
fn control(server: &Server, configuration: Arc<Reloader>) -> Control {
    Control {
        life: server.life(),
        registry: server.registry(),
        room: server.room(),
        current: server.current(),
        metrics: server.metrics(),
        configuration,
    }
}

/// Serves operators, and says where.
fn operated(admin: Admin, control: Control) -> Result<JoinHandle<()>, Failure> {
    let scheme = if admin.gate().get().tls.is_some() { "https" } else { "http" };
    println!("admin at {scheme}://{}", admin.local_addr().map_err(Failure::failed)?);
    Ok(tokio::spawn(admin.run(control)))
}

fn no_listener(address: &str, flag: &str, error: &std::io::Error) -> Failure {
    let why = match error.kind() {
        std::io::ErrorKind::AddrInUse => {
            format!(
                "another program listens there, perhaps another voxbridge; name another address with {flag}"
            )
        }
        _ => error.to_string(),
    };
    Failure::failed(format!("cannot listen on {address}: {why}"))
}

/// What the exit code says of the end.
async fn verdict(ended: Ended, signals: JoinHandle<u8>) -> Result<(), Failure> {
    match ended {
        Ended::Drained => Ok(()),
        Ended::Cut(sessions, within) => {
            let time = within.as_millis();
            let words = format!(
                "{sessions} sessions had not finished after {time} ms (drain.within_ms) and were cut off"
            );
            Err(Failure::of(CUT_OFF, words))
        }
        Ended::AtOnce(sessions) => {
            // Nothing but a second signal stops at once.
            let signal = signals.await.unwrap_or_default();
            Err(Failure::of(SIGNALLED + signal, format!("stopped at once; {sessions} sessions were cut off")))
        }
    }
}
