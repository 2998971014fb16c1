//! Runs the check of one upstream on real sockets, and experiments after a failure.

use std::{sync::Arc, time::Duration};

use futures_util::{FutureExt as _, future::FusedFuture as _};
use hyper::Uri;
use tokio::{
    sync::{mpsc, watch},
    time::{Instant, sleep, timeout},
};

use super::{
    check_target::CheckTarget,
    connect_check::{OutcomeLog, await_upgrade, connect, unexpected_extension},
    diagnosis::CheckedServer,
    experiments::{Clue, Experiment, FailedAttempt, plan_experiments},
    fingerprint, http_check,
    report::CheckReport,
    session_check::{CheckPlan, Depth, SessionCheck},
    session_driver::{now, run_session},
    step::{CheckOutcome, DoctorStep, StepLimits, StepVerdict},
    symptom::Symptom,
};
use crate::{
    config::UpstreamConfig,
    secret::redacted_url,
    server::{
        queue_keeper::QueueWaits,
        upstream_pool::{
            dial::Dialer,
            http_socket::HttpSocket,
            places::Capacity,
            probe::{Probe as _, WorkerReport},
        },
    },
    spelling::{Library, UpstreamMapping},
    upstream::Dialect,
    vocabulary::{LaneRequest, Mode, VoiceEncoding},
};

/// Pause before an experiment; longer than a worker needs to clean up a dropped session
/// (mappings/notes/minicpm-o.md#queue).
const EXPERIMENT_PAUSE: Duration = Duration::from_millis(500);

/// Time limit of the page that says how many workers a server has.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Checks one upstream and sends each outcome at once to `live_sender`.
pub(crate) async fn check_upstream(
    target: &CheckTarget,
    library: &Library,
    limits: StepLimits,
    mut stop: watch::Receiver<bool>,
    leaving: QueueWaits,
    live_sender: mpsc::Sender<CheckOutcome>,
) -> CheckReport {
    let mut log = OutcomeLog::new(&DoctorStep::UPSTREAM, Some(live_sender));
    let mut check = UpstreamCheck { target, library, limits, stop: &mut stop, leaving, capacity: None };
    let (server, clue) = check.run(&mut log).await;
    let name = target.config.name.clone().unwrap_or_else(|| server.authority.clone());
    CheckReport { name, server, outcomes: log.finish(), clue }
}

struct UpstreamCheck<'e> {
    target: &'e CheckTarget,
    library: &'e Library,
    limits: StepLimits,
    stop: &'e mut watch::Receiver<bool>,
    /// Counter of sessions that wait only to leave a queue.
    leaving: QueueWaits,
    /// The number of sessions that the server announces, in words.
    capacity: Option<String>,
}

/// Result of one attempt to run a session.
struct AttemptResult {
    reached: Option<Depth>,
    received: Vec<String>,
}

impl UpstreamCheck<'_> {
    async fn run(&mut self, log: &mut OutcomeLog) -> (CheckedServer, Option<Clue>) {
        let CheckTarget { config, dialect, mode, texts, .. } = self.target;
        let mut server = CheckedServer {
            dialect: dialect.name.clone(),
            dialect_title: dialect.title.clone(),
            start: dialect.start.clone().filter(|_| !config.has_unknown_dialect()),
            has_ca: config.ca.is_some(),
            ..CheckedServer::default()
        };
        let encoding = texts.voice.is_some().then(|| dialect.voice_encodings.first().copied()).flatten();
        let experiment = self.experiment(dialect.clone(), *mode, encoding, Depth::Answer);
        let dialer = match self.dialer(&config.url, dialect) {
            Ok(dialer) => dialer,
            // A file that the configuration names may have disappeared since the configuration was read.
            Err(detail) => {
                log.push(CheckOutcome::failed(
                    DoctorStep::Configuration,
                    Duration::ZERO,
                    Symptom::Misconfigured(detail),
                ));
                return (server, None);
            }
        };
        server.authority = dialer.authority().to_owned();
        server.url = redacted_url(&dialer.url(*mode));
        if !self.check_opening_size(dialect, &texts.init_command(*mode, encoding), log) {
            return (server, None);
        }
        let attempt = self.attempt_session(&dialer, &experiment, log).await;
        let clue = self.find_clue(&attempt, log).await;
        if attempt.reached == Some(Depth::Answer) && !*self.stop.borrow() {
            self.check_other_modes(&dialer, encoding, log).await;
        }
        (server, clue)
    }

    fn experiment(
        &self,
        dialect: Arc<UpstreamMapping>,
        mode: Mode,
        voice_encoding: Option<VoiceEncoding>,
        depth: Depth,
    ) -> Experiment {
        Experiment {
            dialect,
            mode,
            use_dialect_path: false,
            voice_encoding,
            depth,
            clue: Clue::SecondAttempt,
        }
    }

    fn dialer(&self, url: &str, dialect: &Arc<UpstreamMapping>) -> Result<Dialer, String> {
        let config = UpstreamConfig {
            url: url.to_owned(),
            dialect: dialect.name.clone(),
            ..self.target.config.clone()
        };
        config.build_dialer(dialect).map(|(_, dialer)| dialer)
    }

    /// Logs the configuration step; returns `false` if the init message exceeds the limit of the dialect.
    fn check_opening_size(
        &self,
        dialect: &Arc<UpstreamMapping>,
        init: &LaneRequest,
        log: &mut OutcomeLog,
    ) -> bool {
        let (bytes, limit) =
            (Dialect::new(dialect.clone()).encode(init, self.target.mode).len(), dialect.message_max_bytes);
        if bytes > limit {
            let symptom = Symptom::VoiceTooLarge { bytes, limit };
            log.push(CheckOutcome::failed(DoctorStep::Configuration, Duration::ZERO, symptom));
            return false;
        }
        let voice = if self.target.texts.voice.is_some() { ", voice default" } else { "" };
        let note = format!("dialect {}, mode {}{voice}", dialect.name, self.target.mode.name());
        log.push(CheckOutcome {
            step: DoctorStep::Configuration,
            took: None,
            verdict: StepVerdict::Ok,
            note,
        });
        true
    }

    /// Runs one session as far as possible.
    async fn attempt_session(
        &mut self,
        dialer: &Dialer,
        experiment: &Experiment,
        log: &mut OutcomeLog,
    ) -> AttemptResult {
        let no_session = AttemptResult { reached: None, received: Vec::new() };
        let Some(connected) = connect(dialer.endpoint(), &self.limits, self.stop, log).await else {
            return no_session;
        };
        if experiment.dialect.is_http() {
            return self.ask_by_http(dialer.http_socket(connected.transport), experiment, log).await;
        }
        // An interrupt does not stop the upgrade, because an open session must be closed cleanly.
        let upgrade = dialer.upgrade(connected.transport, experiment.mode).fuse();
        tokio::pin!(upgrade);
        let (endpoint, addresses) = (dialer.endpoint(), &connected.addresses);
        let upgraded = await_upgrade(&mut upgrade, endpoint, addresses, &self.limits, log).await;
        let Some(((mut socket, response), took)) = upgraded else {
            // A late upgrade may still occupy a worker, so close the session if it opens within the close timeout.
            if !upgrade.is_terminated()
                && let Ok(Ok((mut socket, _))) = timeout(self.limits.close_timeout, upgrade).await
            {
                let mut session = SessionCheck::new(now(), self.check_plan(experiment));
                session.stop(now(), "upgrade failed");
                let discarded = &mut OutcomeLog::new(&[], None);
                run_session(&mut session, &mut socket, &self.limits, self.stop, &self.leaving, discarded)
                    .await;
            }
            return no_session;
        };
        if self.capacity.is_none() {
            self.capacity = announced_capacity(dialer).await;
        }
        let mut session = SessionCheck::new(now(), self.check_plan(experiment));
        match unexpected_extension(&response) {
            Some(symptom) => {
                log.push(CheckOutcome::failed(DoctorStep::Upgrade, took, symptom));
                session.stop(now(), "upgrade failed");
            }
            None => log.push(CheckOutcome::completed(
                DoctorStep::Upgrade,
                took,
                self.limits.upgrade_usual,
                path_and_query(&redacted_url(&dialer.url(experiment.mode))),
            )),
        }
        run_session(&mut session, &mut socket, &self.limits, self.stop, &self.leaving, log).await;
        AttemptResult { reached: session.reached(), received: session.received().to_vec() }
    }

    /// Asks an upstream without sessions.
    async fn ask_by_http(
        &self,
        socket: HttpSocket,
        experiment: &Experiment,
        log: &mut OutcomeLog,
    ) -> AttemptResult {
        let outcome = http_check::ask(socket, &self.check_plan(experiment), self.limits.step_timeout).await;
        let reached = outcome.failure().is_none().then_some(Depth::Answer);
        let skipped = |step| CheckOutcome::skipped(step, "the upstream takes HTTP requests");
        for step in [DoctorStep::Upgrade, DoctorStep::Queue, DoctorStep::Init] {
            log.push(skipped(step));
        }
        log.push(outcome);
        log.push(skipped(DoctorStep::Close));
        AttemptResult { reached, received: Vec::new() }
    }

    fn check_plan(&self, experiment: &Experiment) -> CheckPlan {
        CheckPlan {
            dialect: experiment.dialect.clone(),
            mode: experiment.mode,
            init: self.target.texts.init_command(experiment.mode, experiment.voice_encoding),
            question: self.target.texts.question_command(&experiment.dialect, experiment.mode),
            depth: experiment.depth,
            capacity: self.capacity.clone(),
            limits: self.limits,
        }
    }

    /// Runs experiments after a failure; returns the first clue.
    async fn find_clue(&mut self, attempt: &AttemptResult, log: &OutcomeLog) -> Option<Clue> {
        let failed =
            log.outcomes().iter().find_map(|outcome| Some((outcome.step, outcome.failure()?.clone())));
        let (step, symptom) = failed?;
        if step == DoctorStep::Queue
            && let Some(clue) = fingerprint::recognize_server(self.library, &attempt.received)
        {
            return Some(clue);
        }
        let CheckTarget { config, dialect, mode, texts, .. } = self.target;
        let path = config.url.parse::<Uri>().map_or_else(|_| String::new(), |uri| uri.path().to_owned());
        let has_custom_path = path != "/" && path != dialect.path;
        let failed =
            FailedAttempt { dialect, mode: *mode, has_custom_path, has_voice: texts.voice.is_some() };
        for experiment in plan_experiments(self.library, &failed, step, &symptom) {
            if *self.stop.borrow() {
                return None;
            }
            sleep(EXPERIMENT_PAUSE).await;
            if let Some(clue) = self.try_experiment(experiment).await {
                return Some(clue);
            }
        }
        None
    }

    /// Runs an experiment; returns its clue if it succeeds.
    async fn try_experiment(&mut self, experiment: Experiment) -> Option<Clue> {
        let url = match experiment.use_dialect_path {
            true => with_path(&self.target.config.url, &experiment.dialect.path)?,
            false => self.target.config.url.clone(),
        };
        let dialer = self.dialer(&url, &experiment.dialect).ok()?;
        let mut discarded_log = OutcomeLog::new(&[], None);
        let attempt = self.attempt_session(&dialer, &experiment, &mut discarded_log).await;
        let is_still_queued =
            |outcome: &CheckOutcome| matches!(outcome.failure(), Some(Symptom::StillQueued { .. }));
        let is_queued = discarded_log.outcomes().iter().any(is_still_queued);
        if is_queued && experiment.depth > Depth::Queue {
            // All further experiments would wait in the queue, too.
            return Some(Clue::StillQueued);
        }
        // A queued session shows that URL and dialect are right.
        let succeeded = is_queued || attempt.reached.is_some_and(|reached| reached >= experiment.depth);
        succeeded.then(|| match experiment.clue {
            Clue::OtherUrl(_, dialect) => Clue::OtherUrl(redacted_url(&dialer.url(experiment.mode)), dialect),
            clue => clue,
        })
    }

    /// Asks the server in a mode. A failure after the upgrade counts only if it happens twice, because a worker may still be
    /// cleaning up.
    async fn try_mode(&mut self, dialer: &Dialer, experiment: &Experiment) -> ModeAnswer {
        for is_last in [false, true] {
            if *self.stop.borrow() {
                return ModeAnswer::Unknown;
            }
            let mut log = OutcomeLog::new(&[], None);
            let attempt = self.attempt_session(dialer, experiment, &mut log).await;
            match failure_of_mode(log.outcomes()) {
                None if attempt.reached >= Some(Depth::Init) => return ModeAnswer::Works,
                None => return ModeAnswer::Unknown,
                Some(failed) => {
                    let symptom = failed.failure().map(Symptom::summary).unwrap_or_default();
                    let is_final = matches!(failed.failure(), Some(Symptom::NoAnswer { .. }));
                    if is_last || is_final || failed.step == DoctorStep::Upgrade {
                        return ModeAnswer::Fails(symptom);
                    }
                }
            }
            sleep(EXPERIMENT_PAUSE).await;
        }
        ModeAnswer::Unknown
    }

    /// Checks that the server answers in the other modes that the routes need.
    async fn check_other_modes(
        &mut self,
        dialer: &Dialer,
        voice_encoding: Option<VoiceEncoding>,
        log: &mut OutcomeLog,
    ) {
        let (start, mut refused, mut names) = (Instant::now(), Vec::new(), Vec::new());
        for mode in &self.target.other_modes {
            let experiment =
                self.experiment(self.target.dialect.clone(), *mode, voice_encoding, Depth::Answer);
            match self.try_mode(dialer, &experiment).await {
                ModeAnswer::Works => names.push(mode.name()),
                ModeAnswer::Fails(symptom) => refused.push((mode.name().to_owned(), symptom)),
                ModeAnswer::Unknown => {}
            }
        }
        if !refused.is_empty() {
            log.push(CheckOutcome::failed(
                DoctorStep::Modes,
                start.elapsed(),
                Symptom::ModesUnavailable(refused),
            ));
        } else if !names.is_empty() {
            log.push(CheckOutcome::completed(
                DoctorStep::Modes,
                start.elapsed(),
                Duration::MAX,
                format!("also accepts {}", names.join(", ")),
            ));
        }
    }
}

/// The number of sessions that a server takes at a time, as its page or its dialect says.
async fn announced_capacity(dialer: &Dialer) -> Option<String> {
    if !dialer.reports_workers() {
        return match dialer.capacity() {
            Capacity::AtMost(count) => Some(format!("at most {count} at a time")),
            Capacity::QueuesItself | Capacity::Unknown => None,
        };
    }
    // The steps of the check find out why there is no report.
    let report = timeout(REPORT_TIMEOUT, dialer.probe()).await.ok()?.ok()??;
    // The check itself has a worker by now.
    let WorkerReport { total, .. } = report;
    Some(format!("workers: {total}"))
}

/// Result of asking a server in one mode.
enum ModeAnswer {
    /// The server answers.
    Works,
    /// The server does not answer; this is the symptom.
    Fails(String),
    /// The server was not asked, because it is busy or the check was interrupted.
    Unknown,
}

/// The failure of a session that is due to its mode. Waiting in the queue, an answer that is only slow and a bad close are not.
fn failure_of_mode(outcomes: &[CheckOutcome]) -> Option<&CheckOutcome> {
    let is_of_mode = |outcome: &&CheckOutcome| match outcome.failure() {
        None | Some(Symptom::SlowerThanRealTime { .. }) => false,
        Some(_) => matches!(outcome.step, DoctorStep::Upgrade | DoctorStep::Init | DoctorStep::Answer),
    };
    outcomes.iter().find(is_of_mode)
}

/// Path and query of a URL.
fn path_and_query(url: &str) -> String {
    url.parse::<Uri>().ok().and_then(|uri| uri.path_and_query().map(ToString::to_string)).unwrap_or_default()
}

/// Replaces the path of a URL and removes its query.
fn with_path(url: &str, path: &str) -> Option<String> {
    let uri: Uri = url.parse().ok()?;
    Some(format!("{}://{}{path}", uri.scheme_str()?, uri.authority()?))
}
