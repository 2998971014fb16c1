//! Session checks against the simulator in virtual time, and diagnoses of all symptoms.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use super::{
    diagnosis::{CheckedServer, diagnose},
    experiments::{Clue, FailedAttempt, plan_experiments},
    fingerprint,
    report::{CheckReport, format_diagnosis, format_step_line, skipped_steps},
    session_check::{CheckAction, CheckPlan, Depth, SessionCheck},
    step::{CheckOutcome, DoctorStep, QUEUE_EXIT_MAX, StepLimits, StepVerdict},
    symptom::{CertificateProblem, Symptom},
};
use crate::{
    simulator::{self, ConnId, Gateway, SimDialect, SimInput, SimOutput, SimTiming, SimulatorConfig},
    spelling::Library,
    vocabulary::{ConversationInit, DisconnectReason, EndKind, Frame, LaneRequest, Mode, UnitInput},
};

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::embedded().unwrap());

#[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
fn start() -> Instant {
    Instant::now()
}

fn plan(dialect: &str, depth: Depth) -> CheckPlan {
    let opening =
        ConversationInit { prompt: "Be brief.".into(), config: "{}".into(), voice: None, voice_name: None };
    let audio = Arc::new(vec![0; 16_000]);
    CheckPlan {
        dialect: LIBRARY.upstream(dialect).unwrap(),
        mode: Mode::Audio,
        init: LaneRequest::InitConversation(Box::new(opening)),
        question: LaneRequest::Append(UnitInput {
            audio,
            input_id: "".into(),
            force_listen: false,
            frame: None,
        }),
        depth,
        capacity: None,
        limits: StepLimits::with_timeout(Duration::from_secs(30)),
    }
}

/// Simulated gateway with a virtual clock.
struct SimulatedGateway {
    gateway: Gateway,
    now: Instant,
    connections: u64,
}

impl SimulatedGateway {
    fn new(config: SimulatorConfig) -> Self {
        let now = start();
        Self { gateway: Gateway::new(config, now, Duration::ZERO), now, connections: 0 }
    }

    /// Runs one check, interrupted after `stop_after`; returns its outcomes and duration.
    fn run_check(&mut self, plan: CheckPlan, stop_after: Option<Duration>) -> (Vec<CheckOutcome>, Duration) {
        self.connections += 1;
        let (conn, started_at) = (ConnId(self.connections), self.now);
        let mut stop_at = stop_after.map(|after| started_at + after);
        self.gateway.handle_input(started_at, SimInput::Connected(conn, simulator::SimMode::Audio));
        let (mut check, mut outcomes) = (SessionCheck::new(started_at, plan), Vec::new());
        loop {
            let wakeup_at = self.deliver(conn, &mut check);
            outcomes.extend(std::iter::from_fn(|| check.next_outcome()));
            let until = match check.poll_action() {
                CheckAction::Finished => return (outcomes, self.now - started_at),
                CheckAction::Send(text) => {
                    self.gateway.handle_input(self.now, SimInput::Text(conn, &text));
                    continue;
                }
                CheckAction::CloseAndWait(_) => {
                    self.gateway.handle_input(self.now, SimInput::Closed(conn));
                    check.handle_disconnect(self.now, DisconnectReason::Closed(1000, String::new()));
                    continue;
                }
                CheckAction::Wait(until) => until,
            };
            self.now = [Some(until), wakeup_at, stop_at].into_iter().flatten().min().unwrap().max(self.now);
            if stop_at.is_some_and(|at| at <= self.now) {
                stop_at = None;
                check.stop(self.now, "interrupted");
            }
            check.handle_timeout(self.now);
            self.gateway.handle_input(self.now, SimInput::Timeout);
        }
    }

    fn deliver(&mut self, conn: ConnId, check: &mut SessionCheck) -> Option<Instant> {
        loop {
            match self.gateway.poll_output(self.now) {
                SimOutput::Text(to, text) if to == conn => check.handle_frame(self.now, Frame::Text(&text)),
                SimOutput::Close(to, code, reason) if to == conn => {
                    check.handle_disconnect(self.now, DisconnectReason::Closed(code, reason));
                }
                SimOutput::Abort(to) if to == conn => {
                    check.handle_disconnect(self.now, DisconnectReason::Lost("reset".into()));
                }
                SimOutput::Wait(until) => return until,
                _ => {}
            }
        }
    }
}

fn verdicts(outcomes: &[CheckOutcome]) -> Vec<(DoctorStep, &'static str)> {
    outcomes.iter().map(|outcome| (outcome.step, outcome.verdict.name())).collect()
}

const FAULTS: [&str; 14] = [
    "queue-full",
    "busy",
    "403-after-queue",
    "stuck-queue",
    "slow-init=3",
    "slow-init=29",
    "die-before-created",
    "never-answers",
    "slow-steps=1.5",
    "die-mid-turn",
    "inference-fails",
    "double-terminal",
    "timeout=0.05",
    "context-full=1",
];

#[test]
fn check_ends_in_time_and_frees_worker_whatever_the_fault() {
    let dialects = [
        (SimDialect::Current, "minicpm-o"),
        (SimDialect::Legacy { follows_document: false }, "minicpm-o-legacy"),
        (SimDialect::Legacy { follows_document: true }, "minicpm-o-legacy"),
        (SimDialect::Legacy { follows_document: false }, "minicpm-o"),
        (SimDialect::Current, "minicpm-o-legacy"),
        (SimDialect::LlamaCppOmni, "llama-cpp-omni"),
        (SimDialect::LlamaCppOmni, "minicpm-o"),
        (SimDialect::Current, "llama-cpp-omni"),
    ];
    let stops = [0, 10, 45, 90, 700, 5_000, 29_990].map(|ms| Some(Duration::from_millis(ms)));
    let cases = |(dialect, name): (SimDialect, &'static str)| {
        FAULTS.into_iter().flat_map(move |fault| {
            stops.into_iter().chain([None]).map(move |stop| (dialect, name, fault, stop))
        })
    };
    for (dialect, name, fault, stop) in dialects.into_iter().flat_map(cases) {
        let case = format!("{dialect:?} checked as {name}, {fault}, stopped after {stop:?}");
        let faults = vec![fault.parse().unwrap()];
        let mut gateway =
            SimulatedGateway::new(SimulatorConfig { dialect, faults, ..SimulatorConfig::default() });
        let (outcomes, took) = gateway.run_check(plan(name, Depth::Answer), stop);
        // Time limits of three steps, the close and the end of the connection; and of leaving a queue that is stuck.
        let leaving = if fault == "stuck-queue" { QUEUE_EXIT_MAX } else { Duration::ZERO };
        assert!(took <= leaving + Duration::from_secs(3 * 30 + 5 + 1 + 5), "{case}: {took:?}");
        assert!(outcomes.is_sorted_by_key(|outcome| outcome.step), "{case}: {:?}", verdicts(&outcomes));
        let steps: Vec<DoctorStep> = outcomes.iter().map(|outcome| outcome.step).collect();
        assert!(steps.contains(&DoctorStep::Close) && !steps.is_empty(), "{case}: {steps:?}");
        let ended_by_server = outcomes
            .iter()
            .any(|outcome| outcome.step == DoctorStep::Close && outcome.verdict == StepVerdict::Skipped);
        gateway.gateway.handle_input(gateway.now, SimInput::ClearFaults);
        // If the server ended the session, its worker needs time to clean up.
        if ended_by_server {
            gateway.now += SimTiming::default().cleanup;
        }
        // A session that the socket ends lasts until its step ends.
        if name == "llama-cpp-omni" {
            gateway.now += Duration::from_secs(2);
        }
        let dialect_of_server = match dialect {
            SimDialect::Current => "minicpm-o",
            SimDialect::Legacy { .. } => "minicpm-o-legacy",
            SimDialect::LlamaCppOmni => "llama-cpp-omni",
            SimDialect::VllmOmni => "vllm-omni",
            SimDialect::SglangOmni => "sglang-omni",
            SimDialect::OpenaiRealtime(_) => "openai-realtime",
        };
        let (next, _) = gateway.run_check(plan(dialect_of_server, Depth::Answer), None);
        let all_ok = [DoctorStep::Queue, DoctorStep::Init, DoctorStep::Answer, DoctorStep::Close]
            .map(|step| (step, "ok"));
        assert_eq!(verdicts(&next), all_ok, "{case}: first {outcomes:?}, then {next:?}");
    }
}

#[test]
fn check_that_ends_in_the_queue_waits_for_its_worker_and_closes() {
    for (stop_after, queue) in [(None, "failed"), (Some(Duration::from_secs(5)), "skipped")] {
        for dialect in [SimDialect::Current, SimDialect::Legacy { follows_document: false }] {
            let audio_time_limit = Duration::from_secs(100);
            let config = SimulatorConfig { dialect, audio_time_limit, ..SimulatorConfig::default() };
            let mut gateway = SimulatedGateway::new(config);
            // Another client holds the worker until its time limit.
            gateway
                .gateway
                .handle_input(gateway.now, SimInput::Connected(ConnId(99), simulator::SimMode::Audio));
            let name = if dialect == SimDialect::Current { "minicpm-o" } else { "minicpm-o-legacy" };
            let (outcomes, took) = gateway.run_check(plan(name, Depth::Answer), stop_after);
            assert_eq!(verdicts(&outcomes), [(DoctorStep::Queue, queue), (DoctorStep::Close, "ok")]);
            assert!(took >= audio_time_limit && took < audio_time_limit + Duration::from_secs(5), "{took:?}");
            let (workers, idle, queued) = gateway.gateway.worker_counts();
            assert_eq!((workers, idle, queued, gateway.gateway.lost_worker_count()), (1, 1, 0, 0));
        }
    }
}

#[test]
fn slow_first_unit_is_measured_again() {
    let faults = |times: &str| vec![format!("slow-steps=1.5{times}").parse().unwrap()];
    let mut gateway =
        SimulatedGateway::new(SimulatorConfig { faults: faults(",times=1"), ..SimulatorConfig::default() });
    let (outcomes, _) = gateway.run_check(plan("minicpm-o", Depth::Answer), None);
    assert_eq!(outcomes[2].verdict, StepVerdict::Ok, "only the first unit is slow: {outcomes:?}");
    let mut gateway =
        SimulatedGateway::new(SimulatorConfig { faults: faults(""), ..SimulatorConfig::default() });
    let (outcomes, took) = gateway.run_check(plan("minicpm-o", Depth::Answer), None);
    assert_eq!(outcomes[2].note, "1.6 times real time");
    assert!(took < Duration::from_secs(6), "at most three units: {took:?}");
}

#[test]
fn slow_initialisation_is_reported_without_failure() {
    let faults = vec!["slow-init=20".parse().unwrap()];
    let mut gateway = SimulatedGateway::new(SimulatorConfig { faults, ..SimulatorConfig::default() });
    let (outcomes, _) = gateway.run_check(plan("minicpm-o", Depth::Answer), None);
    let slow = [
        (DoctorStep::Queue, "ok"),
        (DoctorStep::Init, "slow"),
        (DoctorStep::Answer, "ok"),
        (DoctorStep::Close, "ok"),
    ];
    assert_eq!(verdicts(&outcomes), slow);
    let report = CheckReport { outcomes, ..CheckReport::default() };
    assert!(report.is_ok() && report.diagnoses()[0].1.seen.contains("16 s are usual"));
}

#[test]
fn check_stops_at_requested_depth() {
    for (depth, steps) in [(Depth::Queue, 2), (Depth::Init, 3), (Depth::Answer, 4)] {
        let (outcomes, _) =
            SimulatedGateway::new(SimulatorConfig::default()).run_check(plan("minicpm-o", depth), None);
        assert_eq!(outcomes.len(), steps, "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| outcome.verdict == StepVerdict::Ok), "{outcomes:?}");
    }
}

#[test]
fn check_ends_whatever_server_says() {
    let texts =
        ["", "{", "[]", "null", r#"{"type":"session.created"}"#, r#"{"type":"x"}"#, r#"{"type":"error"}"#];
    for first in texts {
        for second in texts {
            let (mut now, mut check) =
                (start(), SessionCheck::new(start(), plan("minicpm-o", Depth::Answer)));
            for text in [first, second] {
                check.handle_frame(now, Frame::Text(text));
            }
            check.handle_frame(now, Frame::Binary(&[0, 255]));
            let mut polls = 0;
            loop {
                polls += 1;
                assert!(polls < 20, "{first} {second}");
                match check.poll_action() {
                    CheckAction::Finished => break,
                    CheckAction::Send(_) => {}
                    CheckAction::Wait(until) | CheckAction::CloseAndWait(until) => {
                        now = now.max(until);
                        check.handle_timeout(now);
                    }
                }
            }
            let failures = std::iter::from_fn(|| check.next_outcome())
                .filter(|outcome| outcome.failure().is_some())
                .count();
            assert!(failures >= 1, "{first} {second}");
        }
    }
}

fn session_ended(kind: EndKind, code: Option<u16>) -> Symptom {
    Symptom::SessionEnded { detail: "the words".into(), kind, code, had_voice: false }
}

#[test]
fn every_symptom_has_a_diagnosis() {
    let status = |status| Symptom::HttpStatus { status, server: None, is_html: false };
    let waited = Duration::from_secs(30);
    let second = Duration::from_secs(1);
    for (step, symptom, expected) in [
        (DoctorStep::Dns, Symptom::NameNotFound("unknown".into()), "misspelled"),
        (DoctorStep::Dns, Symptom::NoAnswer { waited }, "name server"),
        (DoctorStep::Tcp, Symptom::NoAnswer { waited }, "firewall"),
        (DoctorStep::Tcp, Symptom::ConnectionRefused, "Nothing listens"),
        (DoctorStep::Tcp, Symptom::Unreachable("no route".into()), "routes"),
        (DoctorStep::Tcp, Symptom::Slow { took: waited, usual: second }, "far away"),
        (DoctorStep::Tls, Symptom::NoAnswer { waited }, "no TLS"),
        (DoctorStep::Tls, Symptom::ServerSpeaksPlaintext, "Use ws://"),
        (DoctorStep::Upgrade, Symptom::ServerSpeaksTls, "use wss://"),
        (DoctorStep::Tls, Symptom::UntrustedCertificate(CertificateProblem::UnknownIssuer), "makes its own"),
        (
            DoctorStep::Tls,
            Symptom::UntrustedCertificate(CertificateProblem::WrongName(vec!["gpu".into()])),
            "for gpu",
        ),
        (DoctorStep::Tls, Symptom::UntrustedCertificate(CertificateProblem::Expired), "expired"),
        (DoctorStep::Tls, Symptom::UntrustedCertificate(CertificateProblem::NotYetValid), "clock"),
        (
            DoctorStep::Tls,
            Symptom::UntrustedCertificate(CertificateProblem::Other("x".into())),
            "another purpose",
        ),
        (DoctorStep::Tls, Symptom::ClientCertificateRequired("alert".into()), "client certificate"),
        (DoctorStep::Tls, Symptom::TlsFailed("eof".into()), "TLS 1.2"),
        (DoctorStep::Upgrade, status(403), "not authentication"),
        (DoctorStep::Upgrade, status(401), "credentials"),
        (DoctorStep::Upgrade, status(404), "path"),
        (DoctorStep::Upgrade, status(429), "too many"),
        (DoctorStep::Upgrade, status(502), "the gateway behind it does not"),
        (DoctorStep::Upgrade, status(504), "the gateway behind it does not"),
        (DoctorStep::Upgrade, status(200), "`Upgrade`"),
        (DoctorStep::Upgrade, status(301), "redirects"),
        (DoctorStep::Upgrade, status(500), "internal error"),
        (DoctorStep::Upgrade, Symptom::NotHttp("x".into()), "Another service"),
        (DoctorStep::Upgrade, Symptom::ClosedWithoutAnswer("reset".into()), "about to stop"),
        (
            DoctorStep::Upgrade,
            Symptom::UnexpectedExtension("permessage-deflate".into()),
            "permessage-deflate",
        ),
        (
            DoctorStep::Queue,
            Symptom::StillQueued { position: Some(2), length: Some(3), waited },
            "position 2 of 3 after 30 s",
        ),
        (DoctorStep::Queue, Symptom::NoAnswer { waited }, "address of the gateway"),
        (DoctorStep::Queue, session_ended(EndKind::QueueFull, Some(1013)), "--max-queue-size"),
        (DoctorStep::Queue, session_ended(EndKind::Other, Some(1013)), "No worker"),
        (DoctorStep::Queue, session_ended(EndKind::Other, None), "stopping"),
        (DoctorStep::Queue, Symptom::UnrequestedSession, "another kind"),
        (DoctorStep::Init, session_ended(EndKind::Other, Some(1000)), "never becomes ready"),
        (DoctorStep::Init, Symptom::NoAnswer { waited }, "9 to 16 s"),
        (DoctorStep::Init, Symptom::Disconnected(DisconnectReason::Closed(1009, "too big".into())), "voice"),
        (DoctorStep::Answer, Symptom::NoAnswer { waited }, "hangs"),
        (
            DoctorStep::Answer,
            Symptom::SlowerThanRealTime { took: second * 3 / 2, unit: second },
            "1.50 times",
        ),
        (DoctorStep::Answer, Symptom::RecoverableError("oom".into()), "oom"),
        (DoctorStep::Answer, Symptom::Disconnected(DisconnectReason::Lost("reset".into())), "died"),
        (DoctorStep::Close, Symptom::CloseNotAcknowledged("silence".into()), "overloaded"),
        (DoctorStep::Configuration, Symptom::VoiceTooLarge { bytes: 9, limit: 8 }, "shorter sample"),
        (DoctorStep::Configuration, Symptom::Misconfigured("token_file x: no such file".into()), "is gone"),
        (DoctorStep::Session, Symptom::SessionNotOpened("no route".into()), "no route"),
        (DoctorStep::Modes, Symptom::ModesUnavailable(vec![("chat".into(), "HTTP 403".into())]), "turnbased"),
    ] {
        let diagnosis = diagnose(
            &CheckedServer {
                authority: "gpu:8006".into(),
                url: "ws://gpu:8006".into(),
                ..CheckedServer::default()
            },
            step,
            &symptom,
            None,
        );
        let text = format_diagnosis(step, &diagnosis);
        let lowercase = text.replace("\n  ", " ").to_lowercase();
        assert!(lowercase.contains(&expected.to_lowercase()), "{symptom:?}: {text}");
        for part in [&diagnosis.seen, &diagnosis.cause, &diagnosis.advice] {
            assert!(part.ends_with('.') || part.ends_with("shows it."), "{symptom:?}: {part}");
            assert!(part.chars().next().is_some_and(|first| !first.is_whitespace()), "{symptom:?}: {part}");
        }
    }
}

#[test]
fn voxbridge_symptoms_have_their_own_diagnoses() {
    let status = |status| Symptom::HttpStatus { status, server: None, is_html: false };
    for (symptom, has_key, expected) in [
        (status(401), false, "--key-file"),
        (status(401), true, "not among those"),
        (status(403), true, "not for this path"),
        (status(404), false, "No client protocol"),
        (status(426), false, "does not forward it"),
        (status(429), true, "Retry-After"),
        (status(503), false, "draining"),
        (status(502), false, "no voxbridge behind it"),
        (Symptom::ConnectionRefused, false, "No voxbridge runs"),
        (Symptom::ServerSpeaksTls, false, "--client-ca"),
        (Symptom::ServerSpeaksPlaintext, false, "no [tls]"),
        (Symptom::UntrustedCertificate(CertificateProblem::UnknownIssuer), false, "--client-ca"),
        (Symptom::ClientCertificateRequired("alert".into()), false, "client_ca"),
    ] {
        let server = CheckedServer { is_voxbridge: true, has_key, ..CheckedServer::default() };
        let diagnosis = diagnose(&server, DoctorStep::Upgrade, &symptom, None);
        let text = format!("{} {} {}", diagnosis.seen, diagnosis.cause, diagnosis.advice);
        assert!(text.contains(expected), "{symptom:?}: {text}");
        assert!(!text.contains("gateway") && !text.contains("8006"), "{symptom:?}: {text}");
    }
}

#[test]
fn queued_second_attempt_is_diagnosed_as_waiting() {
    let session_died = session_ended(EndKind::Other, None);
    let diagnosis =
        diagnose(&CheckedServer::default(), DoctorStep::Init, &session_died, Some(&Clue::StillQueued));
    assert!(diagnosis.cause.contains("waited in the queue"), "{diagnosis:?}");
}

#[test]
fn experiments_are_few_and_start_with_likeliest() {
    let dialect = LIBRARY.upstream("minicpm-o").unwrap();
    let failed_attempt = |has_voice, has_custom_path| FailedAttempt {
        dialect: &dialect,
        mode: Mode::Audio,
        has_custom_path,
        has_voice,
    };
    let refused = Symptom::HttpStatus { status: 403, server: None, is_html: false };
    let clues = |failed_attempt: &FailedAttempt<'_>, step, symptom: &Symptom| {
        plan_experiments(&LIBRARY, failed_attempt, step, symptom)
            .into_iter()
            .map(|experiment| (experiment.clue, experiment.mode, experiment.use_dialect_path))
            .collect::<Vec<_>>()
    };
    let clues_after_rejected_upgrade = clues(&failed_attempt(false, true), DoctorStep::Upgrade, &refused);
    assert_eq!(
        clues_after_rejected_upgrade[0],
        (Clue::OtherUrl(String::new(), None), Mode::Audio, true),
        "the path of the dialect comes first"
    );
    assert!(clues_after_rejected_upgrade.len() <= 6);
    assert!(
        clues(&failed_attempt(false, false), DoctorStep::Upgrade, &refused)
            .iter()
            .all(|(_, _, use_dialect_path)| !use_dialect_path)
    );
    let session_died = session_ended(EndKind::Other, None);
    let first =
        |has_voice, symptom| clues(&failed_attempt(has_voice, false), DoctorStep::Init, symptom).remove(0).0;
    assert_eq!(first(false, &session_died), Clue::SecondAttempt);
    assert_eq!(
        first(true, &Symptom::NoAnswer { waited: Duration::ZERO }),
        Clue::WithoutVoice,
        "a timeout is not repeated"
    );
    assert!(clues(&failed_attempt(true, true), DoctorStep::Tcp, &Symptom::ConnectionRefused).is_empty());
    let silent = Symptom::NoAnswer { waited: Duration::ZERO };
    let without_queue = clues(&failed_attempt(true, false), DoctorStep::Queue, &silent);
    // A server that takes turns has no other mode.
    let is_other_server =
        |clue: &(Clue, Mode, _)| matches!(clue, (Clue::OtherDialect(..), Mode::Audio | Mode::Chat, _));
    assert!(!without_queue.is_empty() && without_queue.iter().all(is_other_server));
    let is_llama =
        |clue: &(Clue, Mode, _)| matches!(&clue.0, Clue::OtherDialect(name, _) if name == "llama-cpp-omni");
    assert!(without_queue.iter().any(is_llama));
}

#[test]
fn voice_server_is_distinguished_from_model() {
    let recognized = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        fingerprint::recognize_server(&LIBRARY, &texts)
    };
    let created = r#"{"type":"session.created","session_id":"s","model":"m","config":{}}"#;
    let is_macaw = |clue: &Clue| matches!(clue, Clue::SpeaksClientProtocol(title) if title.contains("Macaw"));
    assert!(recognized(&[created]).as_ref().is_some_and(is_macaw));
    for model_message in [
        r#"{"type":"session.queue_done"}"#,
        r#"{"type":"session.created","session_id":"s","mode":"full_duplex"}"#,
        r#"{"type":"error","error":{"code":"queue_full","message":"Queue full"}}"#,
    ] {
        assert_eq!(recognized(&[model_message]), None, "{model_message}");
        assert_eq!(recognized(&[created, model_message]), None);
    }
    assert_eq!(recognized(&[]), None);
}

#[test]
fn refused_http_request_is_no_crash_of_the_back_end() {
    let detail = "HTTP 422 for /audio/transcriptions: Field required (body.model)".to_owned();
    let refused = Symptom::SessionEnded { detail, kind: EndKind::Other, code: None, had_voice: false };
    let diagnosis = diagnose(&CheckedServer::default(), DoctorStep::Answer, &refused, None);
    let text = format_diagnosis(DoctorStep::Answer, &diagnosis).replace('\n', " ");
    assert!(text.contains("refuses the request: HTTP 422") && text.contains("set `model`"), "{text}");
}

#[test]
fn step_lines_are_short_without_control_characters() {
    let control_text = format!("\u{1b}[31m{}\n", "x".repeat(1000));
    let failed = CheckOutcome::failed(
        DoctorStep::Queue,
        Duration::from_millis(1500),
        Symptom::RecoverableError(control_text.clone()),
    );
    let line = format_step_line(&failed);
    assert!(line.starts_with("  failed   queue           1.5 s  ") && line.chars().count() < 350, "{line}");
    assert!(!line.contains(char::is_control));
    let diagnosis = diagnose(
        &CheckedServer::default(),
        DoctorStep::Answer,
        &Symptom::RecoverableError(control_text),
        None,
    );
    let text = format_diagnosis(DoctorStep::Answer, &diagnosis);
    assert!(!text.replace('\n', "").contains(char::is_control), "{text}");
    let skipped = skipped_steps(&[failed], &DoctorStep::UPSTREAM);
    assert_eq!(skipped.len(), DoctorStep::UPSTREAM.len() - 1);
    assert!(skipped.iter().all(|outcome| outcome.note == "queue failed"));
}
