//! Section `server`: the steps of `doctor` to each upstream, as figures.

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::{super::doctor::check_targets, bench::Ledger};
use crate::{
    config::Config,
    doctor::{
        report::CheckReport,
        runner::check_upstream,
        step::{StepLimits, StepVerdict},
    },
    server::ServiceConfig,
    verify::figure::{Expectation, Figure},
};

/// Time limit of each step, as `doctor` has it by default.
const STEP_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(30);
/// Upper bound of the steps of one check.
const STEPS_MAX: usize = 32;

/// Checks all upstreams and adds their figures. True if every step succeeded.
pub(super) async fn run(
    config: &Config,
    service: &ServiceConfig,
    stopped: watch::Receiver<bool>,
    ledger: &mut Ledger,
) -> bool {
    let targets = match check_targets(config, service) {
        Ok(targets) => targets,
        Err(problem) => {
            ledger.add([Figure::failed("server.configuration", "s", Expectation::Succeeds, &problem)]);
            return false;
        }
    };
    let checks = targets.iter().map(|target| {
        // The channel has room for all steps: none is read as it completes.
        let (live, _steps) = mpsc::channel(STEPS_MAX);
        check_upstream(
            target,
            &service.library,
            StepLimits::with_timeout(STEP_TIMEOUT),
            stopped.clone(),
            live,
        )
    });
    let reports = join_all(checks).await;
    for (number, report) in reports.iter().enumerate() {
        let prefix = if reports.len() == 1 { String::new() } else { format!("{}.", number + 1) };
        add_steps(report, &prefix, ledger);
    }
    reports.iter().all(CheckReport::is_ok)
}

fn add_steps(report: &CheckReport, prefix: &str, ledger: &mut Ledger) {
    let diagnoses = report.diagnoses();
    let expected = Expectation::Succeeds;
    for outcome in report.outcomes.iter().filter(|outcome| outcome.verdict != StepVerdict::Skipped) {
        let name = format!("server.{prefix}{}", outcome.step.name());
        let mut figure = match (&outcome.verdict, outcome.took) {
            (StepVerdict::Failed(_), _) | (_, None) => Figure::failed(&name, "s", expected, &outcome.note),
            (_, Some(took)) => {
                Figure::measured(&name, took.as_secs_f64(), "s", expected).with_note(&outcome.note)
            }
        };
        if outcome.took.is_none() && outcome.failure().is_none() {
            // A step without a meaningful duration.
            figure = Figure::measured(&name, 0.0, "s", expected).with_note(&outcome.note);
        }
        if let Some((_, diagnosis)) = diagnoses.iter().find(|(step, _)| *step == outcome.step) {
            figure = figure
                .with_note(&format!("{} {}", diagnosis.seen, diagnosis.cause))
                .with_advice(&diagnosis.advice);
        }
        if outcome.failure().is_some() {
            // There is no session to trace, so that the whole report stands in for it.
            let file = format!("server{}.json", prefix.trim_end_matches('.'));
            if let Ok(path) = ledger.write_trace(&file, &format!("{:#}\n", report.to_json())) {
                figure.set_trace(&path);
            }
        }
        ledger.add([figure]);
    }
}
