//! `voxbridge doctor`: tests the path to every configured upstream and prints each result as soon as it is known.

mod client;

use std::sync::Arc;

use futures_util::future::join_all;
use tokio::sync::{mpsc, watch};

use super::{CommandError, ending};
use crate::{
    cli::{
        args::{ConfigArgs, DoctorArgs},
        output::{self, print_line},
    },
    config::{Config, UpstreamConfig},
    doctor::{
        check_target::{CheckTarget, SessionTexts},
        report::{self, CheckReport},
        runner::check_upstream,
        step::{CheckOutcome, StepLimits},
    },
    secret::redacted_url,
    server::{ServiceConfig, queue_keeper::QueueWaits, upstream_pool::dial::Dialer},
    session::DEFAULT_VOICE,
    spelling::{Library, Profile, UpstreamMapping, profile::PromptRequest},
    vocabulary::{LanePurpose, Mode},
};

/// Upper bound of the number of steps of one check.
const STEPS_MAX: usize = 32;

pub(super) async fn run(args: DoctorArgs) -> Result<(), CommandError> {
    let ConfigArgs { config, settings } = args.config;
    let mut config = Config::load(config.as_deref(), &settings).map_err(CommandError::usage)?;
    config.log.start_log(None).map_err(CommandError::usage)?;
    config.detect_dialects().await;
    let service = config.build_service().map_err(CommandError::usage)?;
    let targets = check_targets(&config, &service).map_err(CommandError::usage)?;
    let limits = StepLimits::with_timeout(args.timeout);
    let key = args.key.key_file.as_deref();
    let client = args.client_url.map(|url| client::ClientCheck::new(url, args.client_ca.as_deref(), key));
    let client = client.transpose().map_err(CommandError::from)?;

    let (ending, (stopping, stopped)) = (ending()?, watch::channel(false));
    let (is_printing, leaving) = (!args.json, ending.leaving());
    let checks = async {
        let mut reports =
            check_upstreams(&targets, &service.library, limits, &stopped, &leaving, is_printing).await;
        if let Some(client) = &client {
            reports.push(check_client_path(client, limits, &stopped, is_printing).await);
        }
        reports
    };
    let interrupt = |_| {
        output::print_message("stopping; closing open sessions");
        stopping.send_replace(true);
    };
    let reports = ending.run(checks, interrupt).await.map_err(CommandError::stopped_by)?;
    let mut printed = Ok(());
    if args.json {
        let json =
            serde_json::to_string_pretty(&report::reports_to_json(&reports)).map_err(CommandError::failed)?;
        printed = print_line(&json);
    }
    if !reports.iter().all(CheckReport::is_ok) {
        return Err(CommandError::already_reported());
    }
    printed.map_err(CommandError::from)
}

/// Checks all upstreams concurrently, with one session each. Prints them one after the other, each step when it is done.
async fn check_upstreams(
    targets: &[CheckTarget],
    library: &Library,
    limits: StepLimits,
    stop: &watch::Receiver<bool>,
    leaving: &QueueWaits,
    is_printing: bool,
) -> Vec<CheckReport> {
    let (checks, displays): (Vec<_>, Vec<_>) = targets
        .iter()
        .map(|target| {
            let (live_sender, steps) = mpsc::channel(STEPS_MAX);
            let title = format!("{}  {}", target_title(target), target.dialect.title);
            let (done, report) = tokio::sync::oneshot::channel();
            let check = async move {
                let (stop, leaving) = (stop.clone(), leaving.clone());
                let _ = done.send(check_upstream(target, library, limits, stop, leaving, live_sender).await);
            };
            (check, (title, steps, report))
        })
        .unzip();
    let display_all = async {
        let mut all = Vec::new();
        for (title, steps, report) in displays {
            print_steps(&title, steps, is_printing).await;
            all.extend(report.await.inspect(|report| print_diagnoses(report, is_printing)));
        }
        all
    };
    tokio::join!(join_all(checks), display_all).1
}

async fn check_client_path(
    client: &client::ClientCheck,
    limits: StepLimits,
    stop: &watch::Receiver<bool>,
    is_printing: bool,
) -> CheckReport {
    let (live_sender, steps) = mpsc::channel(STEPS_MAX);
    let (report, ()) = tokio::join!(
        client.run(limits, stop.clone(), live_sender),
        print_steps(client.title(), steps, is_printing)
    );
    print_diagnoses(&report, is_printing);
    report
}

fn target_title(target: &CheckTarget) -> String {
    let url = redacted_url(&target.config.url);
    match &target.config.name {
        Some(name) => format!("{name}  {url}"),
        None => url,
    }
}

/// Prints the title, then a line for each step as it completes.
async fn print_steps(title: &str, mut steps: mpsc::Receiver<CheckOutcome>, is_printing: bool) {
    if is_printing {
        // A closed terminal does not stop the check, so that open sessions are still closed cleanly.
        let _ = print_line(title);
    }
    while let Some(outcome) = steps.recv().await {
        if is_printing {
            let _ = print_line(report::format_step_line(&outcome));
        }
    }
}

/// Prints a paragraph for each problem.
fn print_diagnoses(report: &CheckReport, is_printing: bool) {
    if !is_printing {
        return;
    }
    for (step, diagnosis) in report.diagnoses() {
        let _ = print_line(format!("\n{}", report::format_diagnosis(step, &diagnosis)));
    }
    let _ = print_line("");
}

/// All configured upstreams with the mode and the texts that sessions would use.
pub(super) fn check_targets(config: &Config, service: &ServiceConfig) -> Result<Vec<CheckTarget>, String> {
    let target = |upstream: &UpstreamConfig| {
        let dialect = upstream.mapping(&service.library)?;
        let mode_in_url = Dialer::mode_in_url(&upstream.url, &dialect);
        let profiles: Vec<_> = profiles_of_dialect(service, &dialect).collect();
        let mut needed_modes: Vec<Mode> = profiles.iter().map(|profile| profile.mode).collect();
        needed_modes.sort_unstable();
        needed_modes.dedup();
        let mode = choose_mode(&dialect, mode_in_url.as_deref(), &needed_modes);
        needed_modes.retain(|needed| *needed != mode && serves_mode(upstream, &dialect, *needed));
        let texts = session_texts(service, &profiles)?;
        Ok(CheckTarget { config: upstream.clone(), dialect, mode, other_modes: needed_modes, texts })
    };
    config.upstream.iter().map(target).collect()
}

/// True if this upstream has lanes of a mode. In a pool, each upstream may have its own.
fn serves_mode(upstream: &UpstreamConfig, dialect: &UpstreamMapping, mode: Mode) -> bool {
    let purposes: &[LanePurpose] = match mode {
        Mode::Chat => &[LanePurpose::Transcribe, LanePurpose::Speak, LanePurpose::Answer],
        Mode::Audio | Mode::Video => &[LanePurpose::Converse],
    };
    let is_chosen =
        |purpose: &LanePurpose| upstream.serves.as_ref().is_none_or(|chosen| chosen.contains(purpose));
    purposes.iter().filter(|purpose| is_chosen(purpose)).any(|purpose| dialect.can(*purpose, mode))
}

/// Chooses the mode to check. A mode in the URL takes precedence. Otherwise it prefers a full-duplex mode that the routes
/// need, because the answer to a second of audio shows the speed of the GPU. Relayed clients choose the mode themselves,
/// so that any available mode will do.
fn choose_mode(dialect: &UpstreamMapping, mode_in_url: Option<&str>, needed_modes: &[Mode]) -> Mode {
    let requested =
        dialect.modes.iter().find(|(_, value)| Some(value.as_str()) == mode_in_url).map(|(mode, _)| *mode);
    let is_available = |mode: &Mode| {
        dialect.modes.contains_key(mode) && (needed_modes.is_empty() || needed_modes.contains(mode))
    };
    requested
        .or_else(|| [Mode::Audio, Mode::Video, Mode::Chat].into_iter().find(is_available))
        .unwrap_or(Mode::Chat)
}

/// Profiles whose sessions can use upstreams of this dialect.
fn profiles_of_dialect<'s>(
    service: &'s ServiceConfig,
    dialect: &UpstreamMapping,
) -> impl Iterator<Item = &'s Arc<Profile>> {
    let routes = service
        .routes
        .iter()
        .filter(|route| !route.is_fallback && route.upstreams.dialects.named(&dialect.name).is_some());
    routes.map(|route| &route.profile).filter(|profile| !profile.is_relay())
}

/// Texts for opening sessions, from the routed profiles or else from the built-in ones.
fn session_texts(service: &ServiceConfig, profiles: &[&Arc<Profile>]) -> Result<SessionTexts, String> {
    let all = || profiles.iter().copied().chain(service.library.profiles());
    let talk = all().find_map(|profile| profile.dialogue.clone()).ok_or("no profile holds a conversation")?;
    let hear =
        all().find(|profile| !profile.is_relay()).map(|profile| &profile.hear).ok_or("no profile hears")?;
    Ok(SessionTexts {
        prompt: talk.converse.prompt(""),
        config: talk.converse.config.clone(),
        transcribe_prompt: hear.prompt(&PromptRequest::default()),
        voice: service.voices.voices_and_models().0.get(DEFAULT_VOICE).cloned(),
    })
}
