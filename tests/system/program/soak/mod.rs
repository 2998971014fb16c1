//! Soak test: long conversations over real sockets under constant disruptions. Client events stay
//! well-formed, every sentence after a disruption is answered, and memory stays flat.
//!
//! `VOXBRIDGE_SOAK_SECONDS=900 cargo test --release --test system soak -- --nocapture` runs for a quarter of an
//! hour. `VOXBRIDGE_SOAK_SEED` chooses other disruptions.

mod bridge;
mod disruption;
mod observer;
mod soak_client;

use std::collections::VecDeque;

use bridge::Bridge;
use disruption::{DISRUPTIONS, DisruptedUpstream, Disruption, DisruptionRun, random_recording};
use observer::Observations;
use soak_client::{EVENT_TIMEOUT, SoakClient};
use tokio::{task::JoinSet, time::MissedTickBehavior};

use super::*;

/// Number of parallel sessions, each with its own bridge, gateway and disruptions.
const SESSIONS: usize = 12;
/// Default run time. No disruption begins later.
const DEFAULT_SECONDS: u64 = 25;
/// Permitted memory growth from the first third of the run to the last, KiB: buffers reach their size and
/// stay there.
const MAX_GROWTH_KIB: u64 = 6 * 1024;
fn env_number(name: &str) -> Option<u64> {
    let value = std::env::var_os(name)?;
    Some(
        value
            .to_str()
            .and_then(|value| value.parse().ok())
            .unwrap_or_else(|| panic!("{name} is not a number")),
    )
}

/// Result of one session.
struct Report {
    disruptions: Vec<Disruption>,
    observations: Observations,
    /// Longest wait for the end of an answer after a disruption.
    slowest_answer: Duration,
    resident_kib: Vec<u64>,
}

/// The disruptions of one session in its own order. Together the sessions cover all of them first.
fn disruption_order(seed: u64, number: usize) -> impl Iterator<Item = Disruption> {
    let mut shared = fastrand::Rng::with_seed(seed);
    let mut disruptions = DISRUPTIONS;
    shared.shuffle(&mut disruptions);
    let first: Vec<Disruption> = disruptions.into_iter().skip(number).step_by(SESSIONS).collect();
    let mut own = fastrand::Rng::with_seed(seed.wrapping_add(1 + number as u64));
    first.into_iter().chain(std::iter::repeat_with(move || DISRUPTIONS[own.usize(..DISRUPTIONS.len())]))
}

/// Runs a session until the time is over.
async fn run_session(seed: u64, number: usize, until: Instant) -> Report {
    let name = format!("soak-{seed}-{number}");
    let backend = if number.is_multiple_of(2) { Backend::Pytorch } else { Backend::Cpp };
    let mut upstream = DisruptedUpstream::start(backend).await;
    let bridge = Bridge::start(&name, upstream.wire.address()).await;
    let mut client =
        SoakClient::connect(&format!("{name} ({})", bridge.log.display()), &bridge.address).await;
    let mut rng = fastrand::Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number as u64));
    let mut report = Report {
        disruptions: Vec::new(),
        observations: Observations::default(),
        slowest_answer: Duration::ZERO,
        resident_kib: Vec::new(),
    };
    let mut resident_kib = Vec::new();
    let session = async {
        for disruption in disruption_order(seed, number).take_while(|_| Instant::now() < until) {
            DisruptionRun { upstream: &mut upstream, client: &mut client, rng: &mut rng }
                .apply(disruption)
                .await;
            client.wait_for_silence().await;
            let took = expect_answer(&mut client, disruption, &mut rng).await;
            report.slowest_answer = report.slowest_answer.max(took);
            report.disruptions.push(disruption);
        }
    };
    tokio::select! {
        () = session => {}
        () = sample_memory(&bridge, &mut resident_kib) => {}
    }
    report.resident_kib = resident_kib;
    report.observations = client.close().await;
    bridge.stop().await;
    report
}

/// Checks that the next sentence is answered completely and mostly understood; returns the time it took.
async fn expect_answer(client: &mut SoakClient, disruption: Disruption, rng: &mut fastrand::Rng) -> Duration {
    let before = client.checked_observations();
    let samples = random_recording(rng);
    let spoken_s = samples.len() as f64 / 16_000.0;
    client.speak(samples).await;
    let start = Instant::now();
    let is_answered = |observations: &Observations| {
        observations.turns_complete > before.turns_complete
            && observations.last_answered_speech_s >= spoken_s / 2.0
    };
    let answered = client.wait_until(EVENT_TIMEOUT, is_answered).await;
    assert!(
        answered,
        "after {disruption:?} {spoken_s} s of speech are not answered: {:?}",
        client.checked_observations()
    );
    start.elapsed()
}

async fn sample_memory(bridge: &Bridge, samples_kib: &mut Vec<u64>) {
    let mut ticks = interval(Duration::from_millis(500));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        samples_kib.push(bridge.resident_kib());
    }
}

impl Report {
    fn print(&self, number: usize) {
        let Observations { turns_started, turns_cancelled, turns_complete, errors, rollovers, .. } =
            &self.observations;
        let (first, last) = self.peak_memory_kib();
        println!(
            "session {number}: {} disruptions; {turns_started} turns, {turns_complete} whole, {turns_cancelled} cancelled; {errors} errors; \
             rollovers {rollovers:?}; slowest answer {:.1} s; resident at most {first} KiB first, {last} last",
            self.disruptions.len(),
            self.slowest_answer.as_secs_f64(),
        );
    }

    /// Peak memory in the first and the last third, KiB.
    fn peak_memory_kib(&self) -> (u64, u64) {
        let third = (self.resident_kib.len() / 3).max(1);
        let most = |samples: &[u64]| samples.iter().copied().max().unwrap_or_default();
        (most(&self.resident_kib[..third]), most(&self.resident_kib[self.resident_kib.len() - third..]))
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn soak_every_disruption_next_sentence_is_answered() {
    let _machine = calm_machine().await;
    let seed = env_number("VOXBRIDGE_SOAK_SEED").unwrap_or(1);
    let until =
        Instant::now() + Duration::from_secs(env_number("VOXBRIDGE_SOAK_SECONDS").unwrap_or(DEFAULT_SECONDS));
    let mut sessions = JoinSet::new();
    for number in 0..SESSIONS {
        sessions.spawn(async move { (number, run_session(seed, number, until).await) });
    }
    while let Some(done) = sessions.join_next().await {
        let (number, report) = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        report.print(number);
        let (first, last) = report.peak_memory_kib();
        assert!(last <= first + MAX_GROWTH_KIB, "session {number} grows from {first} to {last} KiB");
    }
}
