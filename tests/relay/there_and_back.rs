//! A client of the older dialect, two bridges, and a server of the older dialect: what the client sees is what it sees of the
//! server itself, but for what `differences.toml` lists with its reasons.

use std::{
    collections::BTreeSet,
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde::Deserialize;
use serde_json::{Value, json};
use voxbridge::{
    bridge::{Bridge, Input, Output},
    event::{Frame, Lane, Message, Why},
    mapping::Library,
    session::RelaySetup,
    simulator::{ConnId, Dialect, Gateway, SimInput, SimOutput, SimulatorConfig},
};

use crate::{
    pair::{Pair, PairConfig, Seen, zeros},
    support::{base64_of, config, ms, seconds},
};

/// What a client does: something to say, or time that passes.
enum Step {
    Say(String),
    Wait(u64),
}

/// One script of the comparison.
struct Script {
    name: &'static str,
    faults: &'static [&'static str],
    steps: Vec<Step>,
}

fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *START.get_or_init(Instant::now)
}

const UNIX: Duration = Duration::from_secs(1_795_148_864);

fn simulator(faults: &[&str]) -> SimulatorConfig {
    let dialect = Dialect::Legacy { documented: true };
    SimulatorConfig { dialect, ..config("", faults).simulator }
}

/// The server itself.
fn directly(script: &Script) -> Vec<String> {
    let mut now = start();
    let mut gateway = Gateway::new(simulator(script.faults), now, UNIX);
    let (conn, mut seen, mut wait) = (ConnId(0), Vec::new(), None);
    let mode = Dialect::Legacy { documented: true }.decide(Some("mode=audio")).unwrap();
    let mut told = |gateway: &mut Gateway, now: Instant, wait: &mut Option<Instant>| loop {
        match gateway.poll_output(now) {
            SimOutput::Text(_, text) => seen.push(text),
            SimOutput::Close(_, code, _) => seen.push(format!("close {code}")),
            SimOutput::Drop(_) => seen.push("dropped".to_owned()),
            SimOutput::Wait(until) => return *wait = until,
            _ => {}
        }
    };
    gateway.handle_input(now, SimInput::Connected(conn, mode));
    told(&mut gateway, now, &mut wait);
    for step in &script.steps {
        match step {
            Step::Say(text) => gateway.handle_input(now, SimInput::Text(conn, text)),
            Step::Wait(time) => {
                let end = now + ms(*time);
                while let Some(at) = wait.filter(|at| *at <= end) {
                    now = now.max(at);
                    gateway.handle_input(now, SimInput::Timeout);
                    told(&mut gateway, now, &mut wait);
                }
                now = end;
            }
        }
        told(&mut gateway, now, &mut wait);
    }
    seen
}

/// The first bridge, whose upstream is the second one.
struct Chain<'s> {
    bridge: Bridge,
    now: Instant,
    wait: Option<Instant>,
    /// The second bridge with the server behind it, and what of its words was passed on.
    second: Option<(Lane, Pair, usize)>,
    leaving: Vec<Pair>,
    faults: &'s [&'s str],
    seen: Vec<String>,
}

impl Chain<'_> {
    fn run(script: &Script) -> Vec<String> {
        let library = Library::embedded().unwrap();
        let profile = library.profile("relay").unwrap();
        let setup =
            RelaySetup { profile, idle_ms: None, session_max_ms: 0, unix_s: UNIX.as_secs_f64(), seed: 1 };
        let clients = [library.client("minicpm-o-legacy").unwrap()];
        let upstream = library.upstream("minicpm-o").unwrap();
        let bridge = Bridge::open_relay(start(), &clients, "mode=audio", upstream, setup);
        let faults = script.faults;
        let (now, wait) = (start(), None);
        let mut chain =
            Chain { bridge, now, wait, second: None, leaving: Vec::new(), faults, seen: Vec::new() };
        chain.settle();
        for step in &script.steps {
            match step {
                Step::Say(text) => {
                    chain.bridge.handle_input(chain.now, Input::Client(Frame::Text(text)));
                    chain.settle();
                }
                Step::Wait(time) => (0..*time / STEP_MS).for_each(|_| chain.tick()),
            }
        }
        chain.seen
    }

    /// A short time passes everywhere.
    fn tick(&mut self) {
        self.now += ms(STEP_MS);
        if let Some((_, pair, _)) = &mut self.second {
            pair.advance(ms(STEP_MS));
        }
        self.leaving.iter_mut().for_each(|pair| pair.advance(ms(STEP_MS)));
        if self.wait.is_some_and(|at| at <= self.now) {
            self.bridge.handle_input(self.now, Input::Timeout);
        }
        self.settle();
    }

    /// Passes on what there is until nobody says anything.
    fn settle(&mut self) {
        loop {
            self.drain();
            let Some((lane, pair, passed)) = &mut self.second else { return };
            let Some((_, seen)) = pair.log.get(*passed) else { return };
            *passed += 1;
            let lane = *lane;
            match seen {
                Seen::Event(_) => {
                    let texts = pair.log[..*passed].iter().filter(|(_, seen)| matches!(seen, Seen::Event(_)));
                    let text = pair.texts[texts.count() - 1].clone();
                    self.bridge.handle_input(self.now, Input::Lane(lane, Frame::Text(&text)));
                }
                Seen::Close(code, reason) => {
                    let why = Why::Closed(*code, reason.clone());
                    self.second = None;
                    self.bridge.handle_input(self.now, Input::LaneClosed(lane, why));
                }
                Seen::Binary(_) => panic!("nobody sends binary frames here"),
            }
        }
    }

    fn drain(&mut self) {
        loop {
            match self.bridge.poll_output(self.now) {
                Output::Wait(until) => return self.wait = until,
                Output::Finished => return self.wait = None,
                Output::ToClient(Message::Text(text)) => self.seen.push(text),
                Output::ToClient(Message::Close(code, _)) => self.seen.push(format!("close {code}")),
                Output::OpenLane(lane, _) => {
                    let config = PairConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", &[]) };
                    let config = PairConfig { simulator: simulator(self.faults), ..config };
                    let pair = Pair::relayed(config, &["minicpm-o", "minicpm-o-legacy"]);
                    self.second = Some((lane, pair, 0));
                    self.bridge.handle_input(self.now, Input::LaneOpened(lane));
                }
                Output::ToLane(_, Message::Text(text)) => {
                    if let Some((_, pair, _)) = &mut self.second {
                        pair.client_text(&text);
                    }
                }
                Output::CloseLane(_) => {
                    let Some((_, mut pair, _)) = self.second.take() else { continue };
                    pair.close_client();
                    self.leaving.push(pair);
                }
                _ => {}
            }
        }
    }
}

const STEP_MS: u64 = 5;

fn say(message: &Value) -> Step {
    Step::Say(message.to_string())
}

fn update() -> Step {
    say(
        &json!({"type": "session.update", "session": {"instructions": "You are a helpful English assistant."}}),
    )
}

fn append(samples: &[i16]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)})
}

/// A session that is open, and so many seconds after a question in it.
fn talk(silence: usize) -> Vec<Step> {
    let opening = [Step::Wait(100), update(), Step::Wait(200)];
    let units = seconds(silence);
    opening.into_iter().chain(units.iter().flat_map(|unit| [say(&append(unit)), Step::Wait(1000)])).collect()
}

fn scripts() -> Vec<Script> {
    let close = || say(&json!({"type": "session.close", "reason": "user_stop"}));
    let with = |mut steps: Vec<Step>, more: Vec<Step>| {
        steps.extend(more);
        steps
    };
    let mut forced = append(&zeros(1000));
    forced["force_listen"] = json!(true);
    let errors = [
        json!({"type": "response.cancel"}),
        json!({"type": "input_audio_buffer.append"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAAA"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAA"}),
    ];
    let script = |name, faults, steps| Script { name, faults, steps };
    vec![
        script("a turn, and goodbye", &[], with(talk(6), vec![close(), Step::Wait(5000)])),
        script(
            "an interruption",
            &[],
            with(talk(2), vec![say(&forced), Step::Wait(1000), say(&append(&zeros(1000))), Step::Wait(1000)]),
        ),
        script("a time-out", &["timeout=6"], with(talk(6), vec![Step::Wait(3000)])),
        script("a full context", &["context-full=120"], talk(6)),
        script(
            "too early",
            &[],
            vec![Step::Wait(100), say(&append(&zeros(1000))), Step::Wait(100), update(), Step::Wait(200)],
        ),
        script(
            "errors",
            &[],
            with(talk(0), errors.iter().flat_map(|bad| [say(bad), Step::Wait(100)]).collect()),
        ),
        script("no JSON", &[], with(talk(0), vec![Step::Say("{".to_owned()), Step::Wait(5000)])),
        script("no room", &["queue-full"], vec![Step::Wait(60_000)]),
    ]
}

/// Where the two may differ.
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

/// An event with its audio shortened to what tells it from others.
fn shown(text: &str) -> String {
    let Ok(mut event) = serde_json::from_str::<Value>(text) else { return text.to_owned() };
    if let Some(audio) = event["audio"].as_str() {
        let sum = audio.bytes().fold(0u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        event["audio"] = json!(format!("{} letters, {sum:016x}", audio.len()));
    }
    event.to_string()
}

#[test]
fn what_two_bridges_make_of_a_session_is_the_session() {
    let differences: Differences = toml::from_str(include_str!("differences.toml")).unwrap();
    let mut stale: BTreeSet<usize> = (0..differences.difference.len()).collect();
    let mut unlisted = Vec::new();
    for script in scripts() {
        let (direct, chained) = (directly(&script), Chain::run(&script));
        for at in 0..direct.len().max(chained.len()) {
            let text = |seen: &[String]| seen.get(at).map_or("nothing".to_owned(), |text| shown(text));
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
    assert!(stale.is_empty(), "listed, but there is no such difference any more: {stale:#?}");
}
