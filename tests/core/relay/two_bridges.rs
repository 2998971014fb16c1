//! A legacy client, two chained bridges and a legacy server. The client must see what it sees on the server
//! itself, except for the differences that `differences.toml` lists with reasons.

use std::{
    collections::BTreeSet,
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};
use voxbridge::{
    bridge::{Bridge, Input, Output},
    event::{DisconnectReason, Frame, Lane, Message},
    mapping::Library,
    session::RelaySetup,
    simulator::{ConnId, Gateway, SimDialect, SimInput, SimOutput, SimulatorConfig},
};

use super::{
    harness::{ClientFrame, Harness, HarnessConfig, zeros},
    support::{base64_of, config, ms, question_seconds},
};

/// A step of the script: a client message, or time that passes.
enum ScriptStep {
    Send(String),
    Wait(u64),
}

/// One script of the comparison.
struct Script {
    name: &'static str,
    faults: &'static [&'static str],
    steps: Vec<ScriptStep>,
}

pub(super) fn virtual_start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *START.get_or_init(Instant::now)
}

const UNIX: Duration = Duration::from_secs(1_795_148_864);

fn simulator(faults: &[&str]) -> SimulatorConfig {
    let dialect = SimDialect::Legacy { follows_document: true };
    SimulatorConfig { dialect, ..config("", faults).simulator }
}

/// Runs the script against the server itself.
fn run_directly(script: &Script) -> Vec<String> {
    let mut now = virtual_start();
    let mut gateway = Gateway::new(simulator(script.faults), now, UNIX);
    let (conn, mut client_log, mut wait) = (ConnId(0), Vec::new(), None);
    let mode = SimDialect::Legacy { follows_document: true }.parse_mode(Some("mode=audio")).unwrap();
    let mut forward_outputs = |gateway: &mut Gateway, now: Instant, wait: &mut Option<Instant>| loop {
        match gateway.poll_output(now) {
            SimOutput::Text(_, text) => client_log.push(text),
            SimOutput::Close(_, code, _) => client_log.push(format!("close {code}")),
            SimOutput::Abort(_) => client_log.push("dropped".to_owned()),
            SimOutput::Wait(until) => return *wait = until,
            _ => {}
        }
    };
    gateway.handle_input(now, SimInput::Connected(conn, mode));
    forward_outputs(&mut gateway, now, &mut wait);
    for step in &script.steps {
        match step {
            ScriptStep::Send(text) => gateway.handle_input(now, SimInput::Text(conn, text)),
            ScriptStep::Wait(time) => {
                let end = now + ms(*time);
                while let Some(at) = wait.filter(|at| *at <= end) {
                    now = now.max(at);
                    gateway.handle_input(now, SimInput::Timeout);
                    forward_outputs(&mut gateway, now, &mut wait);
                }
                now = end;
            }
        }
        forward_outputs(&mut gateway, now, &mut wait);
    }
    client_log
}

/// Two chained bridges: the second one is the upstream of the first.
struct BridgeChain<'s> {
    bridge: Bridge,
    now: Instant,
    wait: Option<Instant>,
    /// The second bridge with the server behind it, and how many of its texts were passed on.
    second: Option<(Lane, Harness, usize)>,
    closing: Vec<Harness>,
    faults: &'s [&'s str],
    client_log: Vec<String>,
}

impl BridgeChain<'_> {
    fn run(script: &Script) -> Vec<String> {
        let library = Library::embedded().unwrap();
        let profile = library.profile("relay").unwrap();
        let setup =
            RelaySetup { profile, idle_ms: None, session_max_ms: 0, unix_s: UNIX.as_secs_f64(), seed: 1 };
        let clients = [library.client("minicpm-o-legacy").unwrap()];
        let upstream = library.upstream("minicpm-o").unwrap();
        let bridge = Bridge::open_relay(virtual_start(), &clients, "mode=audio", upstream, setup);
        let faults = script.faults;
        let (now, wait) = (virtual_start(), None);
        let mut chain = BridgeChain {
            bridge,
            now,
            wait,
            second: None,
            closing: Vec::new(),
            faults,
            client_log: Vec::new(),
        };
        chain.settle();
        for step in &script.steps {
            match step {
                ScriptStep::Send(text) => {
                    chain.bridge.handle_input(chain.now, Input::Client(Frame::Text(text)));
                    chain.settle();
                }
                ScriptStep::Wait(time) => (0..*time / STEP_MS).for_each(|_| chain.tick()),
            }
        }
        chain.client_log
    }

    /// Advances both bridges by a short time.
    fn tick(&mut self) {
        self.now += ms(STEP_MS);
        if let Some((_, harness, _)) = &mut self.second {
            harness.advance(ms(STEP_MS));
        }
        self.closing.iter_mut().for_each(|harness| harness.advance(ms(STEP_MS)));
        if self.wait.is_some_and(|at| at <= self.now) {
            self.bridge.handle_input(self.now, Input::Timeout);
        }
        self.settle();
    }

    /// Passes messages between the bridges until none are left.
    fn settle(&mut self) {
        loop {
            self.drain();
            let Some((lane, harness, passed)) = &mut self.second else { return };
            let Some((_, frame)) = harness.log.get(*passed) else { return };
            *passed += 1;
            let lane = *lane;
            match frame {
                ClientFrame::Event(_) => {
                    let texts = harness.log[..*passed]
                        .iter()
                        .filter(|(_, frame)| matches!(frame, ClientFrame::Event(_)));
                    let text = harness.texts[texts.count() - 1].clone();
                    self.bridge.handle_input(self.now, Input::Lane(lane, Frame::Text(&text)));
                }
                ClientFrame::Close(code, reason) => {
                    let reason = DisconnectReason::Closed(*code, reason.clone());
                    self.second = None;
                    self.bridge.handle_input(self.now, Input::LaneClosed(lane, reason));
                }
                ClientFrame::Binary(_) => panic!("unexpected binary frame"),
            }
        }
    }

    fn drain(&mut self) {
        loop {
            match self.bridge.poll_output(self.now) {
                Output::Wait(until) => return self.wait = until,
                Output::Finished => return self.wait = None,
                Output::ToClient(Message::Text(text), _) => self.client_log.push(text),
                Output::ToClient(Message::Close(code, _), _) => self.client_log.push(format!("close {code}")),
                Output::OpenLane(lane, ..) => {
                    let config = HarnessConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", &[]) };
                    let config = HarnessConfig { simulator: simulator(self.faults), ..config };
                    let harness = Harness::new_relay(config, &["minicpm-o", "minicpm-o-legacy"]);
                    self.second = Some((lane, harness, 0));
                    self.bridge.handle_input(self.now, Input::LaneOpened(lane));
                }
                Output::ToLane(_, Message::Text(text)) => {
                    if let Some((_, harness, _)) = &mut self.second {
                        harness.send_text(&text);
                    }
                }
                Output::CloseLane(_) => {
                    let Some((_, mut harness, _)) = self.second.take() else { continue };
                    harness.close_client();
                    self.closing.push(harness);
                }
                _ => {}
            }
        }
    }
}

const STEP_MS: u64 = 5;

fn send_step(message: &Value) -> ScriptStep {
    ScriptStep::Send(message.to_string())
}

fn session_update() -> ScriptStep {
    send_step(
        &json!({"type": "session.update", "session": {"instructions": "You are a helpful English assistant."}}),
    )
}

fn append_message(samples: &[i16]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)})
}

/// An open session with a question and this many seconds of silence.
fn talk_steps(silence: usize) -> Vec<ScriptStep> {
    let opening = [ScriptStep::Wait(100), session_update(), ScriptStep::Wait(200)];
    let units = question_seconds(silence);
    opening
        .into_iter()
        .chain(units.iter().flat_map(|unit| [send_step(&append_message(unit)), ScriptStep::Wait(1000)]))
        .collect()
}

fn scripts() -> Vec<Script> {
    let close = || send_step(&json!({"type": "session.close", "reason": "user_stop"}));
    let with = |mut steps: Vec<ScriptStep>, more: Vec<ScriptStep>| {
        steps.extend(more);
        steps
    };
    let mut forced = append_message(&zeros(1000));
    forced["force_listen"] = json!(true);
    let errors = [
        json!({"type": "response.cancel"}),
        json!({"type": "input_audio_buffer.append"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAAA"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAA"}),
    ];
    let script = |name, faults, steps| Script { name, faults, steps };
    vec![
        script("a turn, and goodbye", &[], with(talk_steps(6), vec![close(), ScriptStep::Wait(5000)])),
        script(
            "an interruption",
            &[],
            with(
                talk_steps(2),
                vec![
                    send_step(&forced),
                    ScriptStep::Wait(1000),
                    send_step(&append_message(&zeros(1000))),
                    ScriptStep::Wait(1000),
                ],
            ),
        ),
        script("a time-out", &["timeout=6"], with(talk_steps(6), vec![ScriptStep::Wait(3000)])),
        script("a full context", &["context-full=120"], talk_steps(6)),
        script(
            "too early",
            &[],
            vec![
                ScriptStep::Wait(100),
                send_step(&append_message(&zeros(1000))),
                ScriptStep::Wait(100),
                session_update(),
                ScriptStep::Wait(200),
            ],
        ),
        script(
            "errors",
            &[],
            with(
                talk_steps(0),
                errors.iter().flat_map(|bad| [send_step(bad), ScriptStep::Wait(100)]).collect(),
            ),
        ),
        script(
            "no JSON",
            &[],
            with(talk_steps(0), vec![ScriptStep::Send("{".to_owned()), ScriptStep::Wait(5000)]),
        ),
        script("no room", &["queue-full"], vec![ScriptStep::Wait(60_000)]),
    ]
}

/// A permitted difference between the two runs.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Difference {
    script: String,
    directly: String,
    by_two_bridges: String,
    reason: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Differences {
    difference: Vec<Difference>,
}

/// The event with its audio shortened to a recognisable part.
fn with_short_audio(text: &str) -> String {
    let Ok(mut event) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    if let Some(audio) = event["audio"].as_str() {
        let sum = audio.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        event["audio"] = json!(format!("{} letters, {sum:016x}", audio.len()));
    }
    event.to_string()
}

#[test]
fn two_chained_bridges_match_direct_connection() {
    let differences: Differences = toml::from_str(include_str!("differences.toml")).unwrap();
    let mut stale: BTreeSet<usize> = (0..differences.difference.len()).collect();
    let mut unlisted = Vec::new();
    for script in scripts() {
        let (direct, chained) = (run_directly(&script), BridgeChain::run(&script));
        for at in 0..direct.len().max(chained.len()) {
            let text =
                |frame: &[String]| frame.get(at).map_or("nothing".to_owned(), |text| with_short_audio(text));
            let (direct, chained) = (text(&direct), text(&chained));
            if direct == chained {
                continue;
            }
            let listed = |entry: &Difference| {
                entry.script == script.name
                    && direct.contains(&entry.directly)
                    && chained.contains(&entry.by_two_bridges)
            };
            match differences.difference.iter().position(listed) {
                Some(entry) => {
                    assert!(differences.difference[entry].reason.len() > 20);
                    stale.remove(&entry);
                }
                None => unlisted.push(format!("{}, event {at}:\n  {direct}\n  {chained}", script.name)),
            }
        }
    }
    assert!(unlisted.is_empty(), "{}", unlisted.join("\n"));
    let stale: Vec<_> = stale.iter().map(|at| &differences.difference[*at]).collect();
    assert!(stale.is_empty(), "listed differences that no longer occur: {stale:#?}");
}
