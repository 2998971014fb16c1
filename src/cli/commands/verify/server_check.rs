//! Section `server`: the steps of `doctor` to each upstream, as figures, and what they say about the other sections.

use std::{pin::pin, time::Duration};

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::{super::doctor::check_targets, bench::RunEnd, ledger::Ledger};
use crate::{
    config::Config,
    doctor::{
        report::CheckReport,
        runner::check_upstream,
        step::{DoctorStep, StepLimits, StepVerdict},
        symptom::Symptom,
    },
    server::ServiceConfig,
    verify::figure::{Expectation, Figure},
    vocabulary::Mode,
};

/// Time limit of each step. SGLang-Omni may take a minute to open a session (mappings/notes/sglang-omni.md#opening).
const STEP_TIMEOUT: Duration = Duration::from_secs(90);
/// Upper bound of the steps of one check.
const STEPS_MAX: usize = 32;

/// Conclusions of the check for the other sections.
pub(super) struct Checked {
    /// An upstream opened a session.
    pub(super) has_session: bool,
    /// Longest time in which an upstream initialised a session.
    pub(super) init: Duration,
    /// Modes that no upstream serves, each with the reason.
    unusable: Vec<(Mode, String)>,
}

impl Default for Checked {
    /// Nothing is known, so that everything is tried.
    fn default() -> Self {
        Self { has_session: true, init: Duration::ZERO, unusable: Vec::new() }
    }
}

impl Checked {
    /// Judges the reports of all upstreams: each with the mode that was checked and the other modes that it should have.
    fn of(checks: &[(Mode, &[Mode], &CheckReport)]) -> Self {
        let inits = checks.iter().filter_map(|(_, _, report)| init_time(report));
        let unusable = |mode: Mode| {
            let serving =
                checks.iter().filter(|(checked, others, _)| *checked == mode || others.contains(&mode));
            let mut problems = serving.map(|(checked, _, report)| problem_of_mode(report, *checked, mode));
            // One upstream that serves the mode is enough, and none that should have it says nothing.
            let first = problems.next()??;
            problems.all(|problem| problem.is_some()).then_some((mode, first))
        };
        Self {
            has_session: checks.iter().any(|(_, _, report)| has_session(report)),
            init: inits.max().unwrap_or_default(),
            unusable: [Mode::Chat, Mode::Audio].into_iter().filter_map(unusable).collect(),
        }
    }

    /// Sessions of this mode are worth a try, or why not.
    pub(super) fn accepts(&self, mode: Mode) -> Result<(), String> {
        let found = self.unusable.iter().find(|(unusable, _)| *unusable == mode);
        found.map_or(Ok(()), |(_, problem)| Err(problem.clone()))
    }
}

/// Checks all upstreams and adds their figures.
pub(super) async fn run(
    config: &Config,
    service: &ServiceConfig,
    mut end: RunEnd,
    ledger: &mut Ledger,
) -> Checked {
    let targets = match check_targets(config, service) {
        Ok(targets) => targets,
        Err(problem) => {
            ledger.add([Figure::failed("server.configuration", "s", Expectation::Succeeds, &problem)]);
            return Checked { has_session: false, ..Checked::default() };
        }
    };
    let (stopping, stopped) = watch::channel(false);
    let checks = targets.iter().map(|target| {
        // The channel has room for all steps: none is read as it completes.
        let (live, _steps) = mpsc::channel(STEPS_MAX);
        let limits = StepLimits::with_timeout(STEP_TIMEOUT);
        check_upstream(target, &service.library, limits, stopped.clone(), end.leaving.clone(), live)
    });
    let mut checks = pin!(join_all(checks));
    let reports = tokio::select! {
        reports = &mut checks => reports,
        _ = end.early.wait_for(Option::is_some) => {
            stopping.send_replace(true);
            checks.await
        }
    };
    for (number, report) in reports.iter().enumerate() {
        let prefix = if reports.len() == 1 { String::new() } else { format!("{}.", number + 1) };
        add_steps(report, &prefix, ledger);
    }
    let checked = targets.iter().zip(&reports);
    let checked: Vec<_> =
        checked.map(|(target, report)| (target.mode, &target.other_modes[..], report)).collect();
    Checked::of(&checked)
}

/// True if the upstream initialised a session, or answered without one.
fn has_session(report: &CheckReport) -> bool {
    report.outcomes.iter().any(|outcome| {
        matches!(outcome.step, DoctorStep::Init | DoctorStep::Answer)
            && matches!(outcome.verdict, StepVerdict::Ok | StepVerdict::Slow(_))
    })
}

fn init_time(report: &CheckReport) -> Option<Duration> {
    let init = report.outcomes.iter().find(|outcome| outcome.step == DoctorStep::Init)?;
    init.took.filter(|_| init.failure().is_none())
}

/// Why sessions of a mode cannot succeed at this upstream; `None` if they may.
fn problem_of_mode(report: &CheckReport, checked: Mode, mode: Mode) -> Option<String> {
    let failed = |step: DoctorStep| {
        let failed = report.outcomes.iter().find(|outcome| outcome.step == step)?;
        failed.failure().map(|symptom| (format!("server.{} failed: {}", step.name(), failed.note), symptom))
    };
    if !has_session(report) {
        return Some("the server opened no session".to_owned());
    }
    if checked == mode {
        return failed(DoctorStep::Answer).map(|(problem, _)| problem);
    }
    match failed(DoctorStep::Modes)? {
        (problem, Symptom::ModesUnavailable(refused)) => {
            refused.iter().any(|(name, _)| name == mode.name()).then_some(problem)
        }
        (problem, _) => Some(problem),
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{doctor::step::CheckOutcome, vocabulary::DisconnectReason};

    fn report(outcomes: Vec<CheckOutcome>) -> CheckReport {
        CheckReport { outcomes, ..CheckReport::default() }
    }

    fn ok(step: DoctorStep, seconds: u64) -> CheckOutcome {
        CheckOutcome::completed(step, Duration::from_secs(seconds), Duration::MAX, "fine")
    }

    fn failed(step: DoctorStep, symptom: Symptom) -> CheckOutcome {
        CheckOutcome::failed(step, Duration::from_secs(1), symptom)
    }

    #[test]
    fn failed_answer_or_mode_skips_only_what_needs_it() {
        let broken = || Symptom::Disconnected(DisconnectReason::Lost("gone".to_owned()));
        let slow = report(vec![ok(DoctorStep::Init, 12), failed(DoctorStep::Answer, broken())]);
        let checked = Checked::of(&[(Mode::Audio, &[Mode::Chat], &slow)]);
        assert!(checked.has_session && checked.accepts(Mode::Chat).is_ok());
        assert!(checked.accepts(Mode::Audio).unwrap_err().contains("server.answer failed"));
        assert_eq!(checked.init, Duration::from_secs(12));

        let no_chat = Symptom::ModesUnavailable(vec![("chat".to_owned(), "HTTP 403".to_owned())]);
        let outcomes =
            vec![ok(DoctorStep::Init, 1), ok(DoctorStep::Answer, 1), failed(DoctorStep::Modes, no_chat)];
        let no_chat = report(outcomes);
        let checked = Checked::of(&[(Mode::Audio, &[Mode::Chat], &no_chat)]);
        assert!(checked.accepts(Mode::Audio).is_ok() && checked.accepts(Mode::Chat).is_err());

        let http = report(vec![ok(DoctorStep::Answer, 1)]);
        let both = [(Mode::Audio, &[Mode::Chat][..], &slow), (Mode::Chat, &[], &http)];
        let checked = Checked::of(&both);
        assert!(checked.accepts(Mode::Chat).is_ok() && checked.accepts(Mode::Audio).is_err());
    }

    #[test]
    fn only_servers_without_any_session_end_the_run() {
        let refused = report(vec![failed(
            DoctorStep::Tcp,
            Symptom::Disconnected(DisconnectReason::Lost("gone".to_owned())),
        )]);
        let good = report(vec![ok(DoctorStep::Init, 1), ok(DoctorStep::Answer, 1)]);
        let target = |report| (Mode::Audio, &[Mode::Chat][..], report);
        assert!(!Checked::of(&[target(&refused)]).has_session);
        let checked = Checked::of(&[target(&refused), target(&good)]);
        assert!(checked.has_session && checked.accepts(Mode::Audio).is_ok());
    }
}
