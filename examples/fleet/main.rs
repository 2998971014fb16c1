//! Simulated fleet: many voxbridge replicas, many MiniCPM-o workers behind gateways, failures, in virtual time.
//!
//! `cargo run --release --example fleet` runs 1000 replicas and 10 000 workers; `-- --small` a twentieth of that, in a second.
//!
//! The code is voxbridge's own, without sockets: each client has a real [`voxbridge::bridge::Bridge`], so its
//! retries, queues and polite closes are the product's; each replica has a real [`voxbridge::server::upstream_pool::Pool`]; and
//! each gateway is the core of the simulator ([`voxbridge::simulator::Gateway`]) with its queue and its refusals. Only the
//! clients, the network and the cluster's balancer are models:
//!
//! - **Clients** converse for some minutes, or ask typed questions with pauses between them. They come at random instants,
//!   and one whose session fails or drains connects again after 1 to 3 s. A client's wait is counted from its first attempt.
//! - **The network** takes 1 ms to connect, 300 ms to a slow zone. Messages take no time. A zone that is lost resets its
//!   connections; a silent zone answers nothing, and connections to it end after 60 s, as voxbridge's own check ends them.
//! - **The balancer** of the cluster gives each client to a random replica that is ready.
//!
//! The report has a line for each phase. **Imbalance** is the load of the fullest gateway beside the mean of all in service,
//! where load is sessions and queued clients per worker. **Stranded** counts clients that wait in a queue while a worker
//! elsewhere is idle, on average.

mod client;
mod dialer;
mod fleet;
mod options;
mod phases;
mod report;
mod script;
mod session;
mod site;
mod tally;

use std::{fs, process::ExitCode};

use clap::Parser as _;

use crate::options::Options;

fn main() -> ExitCode {
    let options = Options::parse().resolved();
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fleet: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    options.validate()?;
    let report = simulate(options)?;
    print!("{}", report.to_markdown());
    match &options.json {
        Some(path) => fs::write(path, format!("{:#}\n", report.to_json()))
            .map_err(|error| format!("cannot write {}: {error}", path.display())),
        None => Ok(()),
    }
}

/// Runs a fleet in virtual time.
fn simulate(options: &Options) -> Result<report::Report, String> {
    // The pool draws its jitter from the thread's generator.
    fastrand::seed(options.seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.map_err(|error| format!("cannot start the runtime: {error}"))?;
    runtime.block_on(phases::run(options.clone()))
}

#[cfg(test)]
mod tests;
