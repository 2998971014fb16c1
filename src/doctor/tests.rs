//! Walks against the simulator in virtual time, and what is said of what was seen.

use std::{
    sync::{Arc, LazyLock},
    time::{Duration, Instant},
};

use super::{
    diagnosis::{Subject, explain},
    experiments::{Clue, Tried, trials},
    fingerprint,
    report::{Walked, line, missing, paragraph},
    session_check::{Depth, Plan, Walk, Want},
    step::{Bounds, Outcome, Step, Verdict},
    symptom::{Certificate, Symptom},
};
use crate::{
    event::{Append, EndMeaning, Frame, LaneCommand, Opening, Why},
    mapping::{Library, upstream::Mode},
    simulator::{self, ConnId, Dialect, Gateway, SimInput, SimOutput, SimulatorConfig, Timing},
};

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::embedded().unwrap());

#[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
fn start() -> Instant {
    Instant::now()
}

fn plan(dialect: &str, depth: Depth) -> Plan {
    let opening = Opening { prompt: "Be brief.".into(), config: "{}".into(), voice: None };
    let audio = Arc::new(vec![0; 16_000]);
    Plan {
        dialect: LIBRARY.upstream(dialect).unwrap(),
        init: LaneCommand::Converse(Box::new(opening)),
        question: LaneCommand::Append(Append {
            audio,
            input_id: "".into(),
            force_listen: false,
            frame: None,
        }),
        depth,
        bounds: Bounds::within(Duration::from_secs(30)),
    }
}

/// A gateway and a clock.
struct Lab {
    gateway: Gateway,
    now: Instant,
    connections: u64,
}

impl Lab {
    fn new(config: SimulatorConfig) -> Self {
        let now = start();
        Self { gateway: Gateway::new(config, now, Duration::ZERO), now, connections: 0 }
    }

    /// One walk, given up after so long: what came of its steps, and how long it took.
    fn walk(&mut self, plan: Plan, stop_after: Option<Duration>) -> (Vec<Outcome>, Duration) {
        self.connections += 1;
        let (conn, from) = (ConnId(self.connections), self.now);
        let mut stop_at = stop_after.map(|after| from + after);
        self.gateway.handle_input(from, SimInput::Connected(conn, simulator::Mode::Audio));
        let (mut walk, mut outcomes) = (Walk::new(from, plan), Vec::new());
        loop {
            let wakes = self.deliver(conn, &mut walk);
            outcomes.extend(std::iter::from_fn(|| walk.outcome()));
            let until = match walk.poll() {
                Want::Over => return (outcomes, self.now - from),
                Want::Send(text) => {
                    self.gateway.handle_input(self.now, SimInput::Text(conn, &text));
                    continue;
                }
                Want::Leave(_) => {
                    self.gateway.handle_input(self.now, SimInput::Closed(conn));
                    walk.ended(self.now, Why::Closed(1000, String::new()));
                    continue;
                }
                Want::Wait(until) => until,
            };
            self.now = [Some(until), wakes, stop_at].into_iter().flatten().min().unwrap().max(self.now);
            if stop_at.is_some_and(|at| at <= self.now) {
                stop_at = None;
                walk.stop(self.now, "interrupted");
            }
            walk.tick(self.now);
            self.gateway.handle_input(self.now, SimInput::Timeout);
        }
    }

    fn deliver(&mut self, conn: ConnId, walk: &mut Walk) -> Option<Instant> {
        loop {
            match self.gateway.poll_output(self.now) {
                SimOutput::Text(to, text) if to == conn => walk.frame(self.now, Frame::Text(&text)),
                SimOutput::Close(to, code, reason) if to == conn => {
                    walk.ended(self.now, Why::Closed(code, reason));
                }
                SimOutput::Drop(to) if to == conn => walk.ended(self.now, Why::Lost("reset".into())),
                SimOutput::Wait(until) => return until,
                _ => {}
            }
        }
    }
}

fn verdicts(outcomes: &[Outcome]) -> Vec<(Step, &'static str)> {
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
fn wherever_it_ends_it_ends_in_time_and_the_next_one_is_served() {
    let dialects = [
        (Dialect::Current, "minicpm-o"),
        (Dialect::Legacy { documented: false }, "minicpm-o-legacy"),
        (Dialect::Legacy { documented: true }, "minicpm-o-legacy"),
        (Dialect::Legacy { documented: false }, "minicpm-o"),
        (Dialect::Current, "minicpm-o-legacy"),
    ];
    let stops = [0, 10, 45, 90, 700, 5_000, 29_990].map(|ms| Some(Duration::from_millis(ms)));
    let spoken = |(dialect, name): (Dialect, &'static str)| {
        FAULTS.into_iter().flat_map(move |fault| {
            stops.into_iter().chain([None]).map(move |stop| (dialect, name, fault, stop))
        })
    };
    for (dialect, name, fault, stop) in dialects.into_iter().flat_map(spoken) {
        let of = format!("{dialect:?} walked as {name}, {fault}, stopped after {stop:?}");
        let faults = vec![fault.parse().unwrap()];
        let mut lab = Lab::new(SimulatorConfig { dialect, faults, ..SimulatorConfig::default() });
        let (outcomes, took) = lab.walk(plan(name, Depth::Answer), stop);
        // Three steps in their bounds, a goodbye, and an end.
        assert!(took <= Duration::from_secs(3 * 30 + 5 + 1 + 5), "{of}: {took:?}");
        assert!(outcomes.is_sorted_by_key(|outcome| outcome.step), "{of}: {:?}", verdicts(&outcomes));
        let steps: Vec<Step> = outcomes.iter().map(|outcome| outcome.step).collect();
        assert!(steps.contains(&Step::Close) && !steps.is_empty(), "{of}: {steps:?}");
        let ended_by_server =
            outcomes.iter().any(|it| it.step == Step::Close && it.verdict == Verdict::Skipped);
        lab.gateway.handle_input(lab.now, SimInput::Mend);
        // Who is dropped by the server is cleaned up after: that is not this side's doing.
        if ended_by_server {
            lab.now += Timing::default().cleanup;
        }
        let speaks = if dialect == Dialect::Current { "minicpm-o" } else { "minicpm-o-legacy" };
        let (next, _) = lab.walk(plan(speaks, Depth::Answer), None);
        let well = [Step::Queue, Step::Init, Step::Answer, Step::Close].map(|step| (step, "ok"));
        assert_eq!(verdicts(&next), well, "{of}: first {outcomes:?}, then {next:?}");
    }
}

#[test]
fn a_second_unit_is_measured_when_the_first_one_was_slow() {
    let faults = |times: &str| vec![format!("slow-steps=1.5{times}").parse().unwrap()];
    let mut lab = Lab::new(SimulatorConfig { faults: faults(",times=1"), ..SimulatorConfig::default() });
    let (outcomes, _) = lab.walk(plan("minicpm-o", Depth::Answer), None);
    assert_eq!(outcomes[2].verdict, Verdict::Ok, "it had to warm up: {outcomes:?}");
    let mut lab = Lab::new(SimulatorConfig { faults: faults(""), ..SimulatorConfig::default() });
    let (outcomes, took) = lab.walk(plan("minicpm-o", Depth::Answer), None);
    assert_eq!(outcomes[2].note, "1.6 times real time");
    assert!(took < Duration::from_secs(6), "three units and no more: {took:?}");
}

#[test]
fn a_slow_initialisation_is_told_and_is_no_failure() {
    let faults = vec!["slow-init=20".parse().unwrap()];
    let mut lab = Lab::new(SimulatorConfig { faults, ..SimulatorConfig::default() });
    let (outcomes, _) = lab.walk(plan("minicpm-o", Depth::Answer), None);
    let slow = [(Step::Queue, "ok"), (Step::Init, "slow"), (Step::Answer, "ok"), (Step::Close, "ok")];
    assert_eq!(verdicts(&outcomes), slow);
    let walked = Walked { outcomes, ..Walked::default() };
    assert!(walked.is_ok() && walked.problems()[0].1.seen.contains("where 16 s are usual"));
}

#[test]
fn it_goes_no_further_than_it_is_to() {
    for (depth, steps) in [(Depth::Queue, 2), (Depth::Init, 3), (Depth::Answer, 4)] {
        let (outcomes, _) = Lab::new(SimulatorConfig::default()).walk(plan("minicpm-o", depth), None);
        assert_eq!(outcomes.len(), steps, "{outcomes:?}");
        assert!(outcomes.iter().all(|outcome| outcome.verdict == Verdict::Ok), "{outcomes:?}");
    }
}

#[test]
fn whatever_a_server_says_the_walk_ends() {
    let texts =
        ["", "{", "[]", "null", r#"{"type":"session.created"}"#, r#"{"type":"x"}"#, r#"{"type":"error"}"#];
    for first in texts {
        for second in texts {
            let (mut now, mut walk) = (start(), Walk::new(start(), plan("minicpm-o", Depth::Answer)));
            for text in [first, second] {
                walk.frame(now, Frame::Text(text));
            }
            walk.frame(now, Frame::Binary(&[0, 255]));
            let mut turns = 0;
            loop {
                turns += 1;
                assert!(turns < 20, "{first} {second}");
                match walk.poll() {
                    Want::Over => break,
                    Want::Send(_) => {}
                    Want::Wait(until) | Want::Leave(until) => {
                        now = now.max(until);
                        walk.tick(now);
                    }
                }
            }
            let failed = std::iter::from_fn(|| walk.outcome()).filter(|it| it.failure().is_some()).count();
            assert!(failed >= 1, "{first} {second}");
        }
    }
}

fn ended(meaning: EndMeaning, code: Option<u16>) -> Symptom {
    Symptom::Ended { words: "the words".into(), meaning, code, voice: false }
}

#[test]
fn every_cause_has_its_words() {
    let status = |status| Symptom::Status { status, server: None, page: false };
    let waited = Duration::from_secs(30);
    let second = Duration::from_secs(1);
    for (step, symptom, words) in [
        (Step::Dns, Symptom::NoName("unknown".into()), "misspelled"),
        (Step::Dns, Symptom::Silent { waited }, "name server"),
        (Step::Tcp, Symptom::Silent { waited }, "firewall"),
        (Step::Tcp, Symptom::Refused, "Nothing listens"),
        (Step::Tcp, Symptom::Unreachable("no route".into()), "routes"),
        (Step::Tcp, Symptom::Slow { took: waited, usual: second }, "far away"),
        (Step::Tls, Symptom::Silent { waited }, "no TLS"),
        (Step::Tls, Symptom::SpeaksPlain, "Use ws://"),
        (Step::Upgrade, Symptom::SpeaksTls, "use wss://"),
        (Step::Tls, Symptom::Certificate(Certificate::UnknownIssuer), "makes its own"),
        (Step::Tls, Symptom::Certificate(Certificate::WrongName(vec!["gpu".into()])), "for gpu"),
        (Step::Tls, Symptom::Certificate(Certificate::Expired), "expired"),
        (Step::Tls, Symptom::Certificate(Certificate::NotYet), "clock"),
        (Step::Tls, Symptom::Certificate(Certificate::Other("x".into())), "another purpose"),
        (Step::Tls, Symptom::WantsCertificate("alert".into()), "client certificate"),
        (Step::Tls, Symptom::TlsBroken("eof".into()), "TLS 1.2"),
        (Step::Upgrade, status(403), "not authentication"),
        (Step::Upgrade, status(401), "credentials"),
        (Step::Upgrade, status(404), "path"),
        (Step::Upgrade, status(429), "too many"),
        (Step::Upgrade, status(502), "nobody behind it"),
        (Step::Upgrade, status(504), "nobody behind it"),
        (Step::Upgrade, status(200), "`Upgrade`"),
        (Step::Upgrade, status(301), "elsewhere"),
        (Step::Upgrade, status(500), "broken"),
        (Step::Upgrade, Symptom::NotHttp("x".into()), "Some other service"),
        (Step::Upgrade, Symptom::HungUp("reset".into()), "about to stop"),
        (Step::Upgrade, Symptom::Extension("permessage-deflate".into()), "permessage-deflate"),
        (
            Step::Queue,
            Symptom::Held { position: Some(2), length: Some(3), waited },
            "position 2 of 3 after 30 s",
        ),
        (Step::Queue, Symptom::Silent { waited }, "address of the gateway"),
        (Step::Queue, ended(EndMeaning::QueueFull, Some(1013)), "--max-queue-size"),
        (Step::Queue, ended(EndMeaning::Over, Some(1013)), "No worker"),
        (Step::Queue, ended(EndMeaning::Over, None), "stopping"),
        (Step::Queue, Symptom::Unasked, "another kind"),
        (Step::Init, ended(EndMeaning::Over, Some(1000)), "never becomes ready"),
        (Step::Init, Symptom::Silent { waited }, "9 to 16 s"),
        (Step::Init, Symptom::Dropped(Why::Closed(1009, "too big".into())), "voice"),
        (Step::Answer, Symptom::Silent { waited }, "hangs"),
        (Step::Answer, Symptom::SlowerThanLife { took: second * 3 / 2, unit: second }, "1.50 times"),
        (Step::Answer, Symptom::Trouble("oom".into()), "oom"),
        (Step::Answer, Symptom::Dropped(Why::Lost("reset".into())), "died"),
        (Step::Close, Symptom::NoGoodbye("silence".into()), "overloaded"),
        (Step::Configuration, Symptom::VoiceTooLarge { bytes: 9, limit: 8 }, "shorter sample"),
        (Step::Configuration, Symptom::Misconfigured("token_file x: no such file".into()), "is gone"),
        (Step::Session, Symptom::NoSession("no route".into()), "no route"),
        (Step::Modes, Symptom::NoModes(vec![("chat".into(), "HTTP 403".into())]), "turnbased"),
    ] {
        let problem = explain(
            &Subject { authority: "gpu:8006".into(), url: "ws://gpu:8006".into(), ..Subject::default() },
            step,
            &symptom,
            None,
        );
        let text = paragraph(step, &problem);
        let said = text.replace("\n  ", " ").to_lowercase();
        assert!(said.contains(&words.to_lowercase()), "{symptom:?}: {text}");
        for part in [&problem.seen, &problem.cause, &problem.advice] {
            assert!(part.ends_with('.') || part.ends_with("shows it."), "{symptom:?}: {part}");
            assert!(part.chars().next().is_some_and(|first| !first.is_whitespace()), "{symptom:?}: {part}");
        }
    }
}

#[test]
fn a_voxbridge_has_causes_of_its_own() {
    let status = |status| Symptom::Status { status, server: None, page: false };
    for (symptom, has_key, words) in [
        (status(401), false, "--key-file"),
        (status(401), true, "not among those"),
        (status(403), true, "not for this path"),
        (status(404), false, "No client protocol"),
        (status(426), false, "does not pass it on"),
        (status(429), true, "Retry-After"),
        (status(503), false, "draining"),
        (status(502), false, "no voxbridge behind it"),
        (Symptom::Refused, false, "No voxbridge runs"),
        (Symptom::SpeaksTls, false, "--client-ca"),
        (Symptom::SpeaksPlain, false, "no [tls]"),
        (Symptom::Certificate(Certificate::UnknownIssuer), false, "--client-ca"),
        (Symptom::WantsCertificate("alert".into()), false, "client_ca"),
    ] {
        let subject = Subject { is_listener: true, has_key, ..Subject::default() };
        let problem = explain(&subject, Step::Upgrade, &symptom, None);
        let text = format!("{} {} {}", problem.seen, problem.cause, problem.advice);
        assert!(text.contains(words), "{symptom:?}: {text}");
        assert!(!text.contains("gateway") && !text.contains("8006"), "{symptom:?}: {text}");
    }
}

#[test]
fn an_attempt_that_had_to_wait_is_said_to_have_waited() {
    let died = ended(EndMeaning::Over, None);
    let problem = explain(&Subject::default(), Step::Init, &died, Some(&Clue::Held));
    assert!(problem.cause.contains("waited in the queue"), "{problem:?}");
}

#[test]
fn trials_are_few_and_begin_with_the_likeliest() {
    let dialect = LIBRARY.upstream("minicpm-o").unwrap();
    let tried = |voice, at_other_path| Tried { dialect: &dialect, mode: Mode::Audio, at_other_path, voice };
    let refused = Symptom::Status { status: 403, server: None, page: false };
    let clues = |tried: &Tried<'_>, step, symptom: &Symptom| {
        trials(&LIBRARY, tried, step, symptom)
            .into_iter()
            .map(|trial| (trial.clue, trial.mode, trial.own_path))
            .collect::<Vec<_>>()
    };
    let elsewhere = clues(&tried(false, true), Step::Upgrade, &refused);
    assert_eq!(
        elsewhere[0],
        (Clue::Place(String::new(), None), Mode::Audio, true),
        "the path is the likeliest"
    );
    assert!(elsewhere.len() <= 6);
    assert!(clues(&tried(false, false), Step::Upgrade, &refused).iter().all(|(_, _, own)| !own));
    let died = ended(EndMeaning::Over, None);
    let first = |voice, symptom| clues(&tried(voice, false), Step::Init, symptom).remove(0).0;
    assert_eq!(first(false, &died), Clue::Again);
    assert_eq!(first(true, &Symptom::Silent { waited: Duration::ZERO }), Clue::NoVoice, "not the same again");
    assert!(clues(&tried(true, true), Step::Tcp, &Symptom::Refused).is_empty());
}

#[test]
fn a_server_for_clients_is_told_from_a_model() {
    let like = |texts: &[&str]| {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        fingerprint::like_a_server_of(&LIBRARY, &texts)
    };
    let created = r#"{"type":"session.created","session_id":"s","model":"m","config":{}}"#;
    assert!(like(&[created]).is_some_and(|title| title.contains("Macaw")));
    for of_a_model in [
        r#"{"type":"session.queue_done"}"#,
        r#"{"type":"session.created","session_id":"s","mode":"full_duplex"}"#,
        r#"{"type":"error","error":{"code":"queue_full","message":"Queue full"}}"#,
    ] {
        assert_eq!(like(&[of_a_model]), None, "{of_a_model}");
        assert_eq!(like(&[created, of_a_model]), None);
    }
    assert_eq!(like(&[]), None);
}

#[test]
fn lines_are_short_and_steer_no_terminal() {
    let nasty = format!("\u{1b}[31m{}\n", "x".repeat(1000));
    let failed = Outcome::failed(Step::Queue, Duration::from_millis(1500), Symptom::Trouble(nasty.clone()));
    let line = line(&failed);
    assert!(line.starts_with("  failed   queue           1.5 s  ") && line.chars().count() < 350, "{line}");
    assert!(!line.contains(char::is_control));
    let problem = explain(&Subject::default(), Step::Answer, &Symptom::Trouble(nasty), None);
    let text = paragraph(Step::Answer, &problem);
    assert!(!text.replace('\n', "").contains(char::is_control), "{text}");
    let skipped = missing(&[failed], &Step::UPSTREAM);
    assert_eq!(skipped.len(), Step::UPSTREAM.len() - 1);
    assert!(skipped.iter().all(|outcome| outcome.note == "queue failed"));
}
