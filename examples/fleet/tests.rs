//! Properties of a small fleet.

use clap::Parser as _;

use crate::{options::Options, report::Report, simulate};

fn run(arguments: &str) -> Report {
    let options = Options::parse_from(["fleet", "--small"].into_iter().chain(arguments.split_whitespace()));
    let options = options.resolved();
    options.validate().unwrap();
    simulate(&options).unwrap()
}

#[test]
fn healthy_fleet_serves_at_once_and_evenly() {
    let report = run("--phases healthy");
    let healthy = &report.phases[1];
    assert!(healthy.clients > 100 && healthy.errors == 0, "{healthy:?}");
    assert!(healthy.imbalance_of_means <= 1.2, "{healthy:?}");
    assert_eq!((report.lost_workers, report.stuck_clients), (0, 0));
}

#[test]
fn clients_of_a_lost_zone_are_served_elsewhere() {
    let report = run("--phases zone-lost,healthy");
    let lost = &report.phases[1];
    assert!(lost.waits_again.count > 50, "{lost:?}");
    assert_eq!((lost.errors, report.lost_workers, report.stuck_clients), (0, 0, 0), "{lost:?}");
}
