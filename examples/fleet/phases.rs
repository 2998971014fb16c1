//! The phases of the fleet's day: failures, restarts and their ends.

use std::{sync::Arc, time::Duration};

use clap::ValueEnum;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    client,
    fleet::Fleet,
    options::{ClientKind, Options},
    report::Report,
    script::QUESTIONS,
    site::{Condition, Site},
};

/// Time between two samples of the load.
const SAMPLE: Duration = Duration::from_secs(1);
/// Time between two crashes of a gateway, for a hundred gateways.
const CRASH_EVERY: Duration = Duration::from_secs(10);
/// Time for a crashed gateway to come back.
const CRASH_LASTS: Duration = Duration::from_secs(30);
/// Longest time for the last clients to end.
const COOL_DOWN: Duration = Duration::from_secs(1800);
/// Time for which a question holds its worker, s, measured with this simulator: initialisation, answer, close.
const QUESTION_HOLDS_S: f64 = 2.5;

/// Event of a phase
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Phase {
    /// Nothing
    Healthy,
    /// Gateways crash, one after the other, and come back after 30 s
    Crashes,
    /// Every replica is replaced in turn
    RollingRestart,
    /// All replicas are replaced at once
    RestartAll,
    /// A zone answers slowly
    SlowZone,
    /// A zone is lost: connections are reset, new ones refused
    ZoneLost,
    /// A zone is cut off: nothing answers
    ZoneSilent,
}

impl Phase {
    /// All of them, with a healthy one after those that leave something behind.
    pub(crate) fn all() -> Vec<Self> {
        use Phase::{Crashes, Healthy, RestartAll, RollingRestart, SlowZone, ZoneLost, ZoneSilent};
        vec![
            Healthy,
            Crashes,
            RollingRestart,
            RestartAll,
            Healthy,
            SlowZone,
            Healthy,
            ZoneLost,
            Healthy,
            ZoneSilent,
            Healthy,
        ]
    }

    /// True if all its events happen at its start.
    const fn is_sudden(self) -> bool {
        matches!(self, Self::RestartAll | Self::ZoneLost | Self::ZoneSilent)
    }

    fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().replace('-', " "))
    }
}

/// Runs the fleet through all phases.
pub(crate) async fn run(options: Options) -> Result<Report, String> {
    let length = Duration::from_secs_f64(options.phase_s());
    let fleet = Fleet::start(options)?;
    fleet.tally().begin_phase("warm-up".to_owned(), false, fleet.sites.len());
    let arrivals = tokio::spawn(admit_clients(Arc::clone(&fleet)));
    let samples = tokio::spawn(sample(Arc::clone(&fleet)));
    // Conversations last up to 5/3 of their mean.
    sleep(length.max(Duration::from_secs_f64(fleet.options.conversation_s() * 5.0 / 3.0))).await;
    for phase in fleet.options.phases.clone() {
        fleet.tally().begin_phase(phase.name(), phase.is_sudden(), fleet.sites.len());
        run_phase(&fleet, phase, length).await;
    }
    arrivals.abort();
    samples.abort();
    let ends_at = Instant::now() + COOL_DOWN;
    while fleet.tally().running() > 0 && Instant::now() < ends_at {
        sleep(SAMPLE).await;
    }
    Ok(Report::new(&fleet))
}

async fn run_phase(fleet: &Arc<Fleet>, phase: Phase, length: Duration) {
    let ends_at = Instant::now() + length;
    let zone = || fleet.sites.iter().filter(|site| site.zone == 0);
    match phase {
        Phase::Healthy => {}
        Phase::Crashes => crash_gateways(fleet, ends_at).await,
        Phase::RollingRestart => {
            let replicas = fleet.options.replica_count();
            let pause = length.mul_f64(0.8) / u32::try_from(replicas).unwrap_or(u32::MAX);
            for at in 0..replicas {
                fleet.restart_replica(at);
                sleep(pause).await;
            }
        }
        Phase::RestartAll => (0..fleet.options.replica_count()).for_each(|at| fleet.restart_replica(at)),
        Phase::SlowZone => zone().for_each(|site| site.set_slow(true)),
        Phase::ZoneLost => zone().for_each(|site| site.fail(Condition::Refusing)),
        Phase::ZoneSilent => zone().for_each(|site| site.fail(Condition::Silent)),
    }
    sleep_until(ends_at).await;
    match phase {
        Phase::SlowZone => zone().for_each(|site| site.set_slow(false)),
        Phase::ZoneLost | Phase::ZoneSilent => zone().for_each(|site| site.restore()),
        _ => {}
    }
}

/// Crashes a random gateway from time to time.
async fn crash_gateways(fleet: &Arc<Fleet>, ends_at: Instant) {
    let pause = CRASH_EVERY.mul_f64(100.0 / fleet.sites.len().max(1) as f64);
    while Instant::now() + CRASH_LASTS < ends_at {
        let site: Arc<Site> = Arc::clone(&fleet.sites[fleet.random(|rng| rng.usize(..fleet.sites.len()))]);
        tokio::spawn(async move {
            site.fail(Condition::Refusing);
            sleep(CRASH_LASTS).await;
            site.restore();
        });
        sleep(pause).await;
    }
}

/// Lets clients come, at random instants.
async fn admit_clients(fleet: Arc<Fleet>) {
    let options = &fleet.options;
    let held_s = match options.clients {
        ClientKind::Conversations => options.conversation_s(),
        ClientKind::Questions => f64::from(QUESTIONS) * QUESTION_HOLDS_S,
    };
    let per_second = options.load * options.worker_count() as f64 / held_s;
    let mut next_at = Instant::now();
    loop {
        next_at += Duration::from_secs_f64(-(1.0 - fleet.random(fastrand::Rng::f64)).ln() / per_second);
        sleep_until(next_at).await;
        tokio::spawn(client::run(Arc::clone(&fleet)));
    }
}

/// Samples the load of all gateways.
async fn sample(fleet: Arc<Fleet>) {
    loop {
        sleep(SAMPLE).await;
        let loads: Vec<_> = fleet
            .sites
            .iter()
            .map(|site| {
                let (clients, workers) = (site.clients()? as f64, site.workers as f64);
                Some((clients / workers, workers - clients))
            })
            .collect();
        fleet.tally().sample(&loads);
    }
}
