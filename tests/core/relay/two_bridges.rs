//! A legacy client, two chained bridges and a legacy server. The client must see what it sees on the server
//! itself, except for the differences that `differences.toml` lists with reasons.

use voxbridge::simulator::{ConnId, SimInput, SimOutput};
use voxbridge_test_support::world::gateway::VirtualGateway;

use super::{
    harness::{ClientFrame, Harness, HarnessConfig, zeros},
    *,
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

const UNIX: Duration = Duration::from_secs(1_795_148_864);

fn simulator(faults: &[&str]) -> SimulatorConfig {
    let dialect = SimDialect::Legacy { follows_document: true };
    SimulatorConfig { dialect, ..config("", faults).simulator }
}

/// Runs the script against the server itself.
fn run_directly(script: &Script) -> Vec<String> {
    let mut now = epoch();
    let mut gateway = VirtualGateway::new(simulator(script.faults), now, UNIX);
    let (conn, mut client_log) = (ConnId(0), Vec::new());
    let mode = SimDialect::Legacy { follows_document: true }.parse_mode(Some("mode=audio")).unwrap();
    let mut forward = |outputs: Vec<SimOutput>| {
        client_log.extend(outputs.into_iter().filter_map(|output| match output {
            SimOutput::Text(_, text) => Some(text),
            SimOutput::Close(_, code, _) => Some(format!("close {code}")),
            SimOutput::Abort(_) => Some("dropped".to_owned()),
            _ => None,
        }));
    };
    forward(gateway.input(now, SimInput::Connected(conn, mode)));
    for step in &script.steps {
        match step {
            ScriptStep::Send(text) => forward(gateway.input(now, SimInput::Text(conn, text))),
            ScriptStep::Wait(time) => {
                let end = now + ms(*time);
                while let Some(at) = gateway.wait.filter(|at| *at <= end) {
                    now = now.max(at);
                    forward(gateway.input(now, SimInput::Timeout));
                }
                now = end;
            }
        }
    }
    client_log
}

/// Two chained bridges: the second one is the upstream of the first.
struct BridgeChain<'s> {
    session: VirtualSession,
    /// The second bridge with the server behind it, and how many of its texts were passed on.
    second: Option<(Lane, Harness, usize)>,
    closing: Vec<Harness>,
    faults: &'s [&'s str],
    client_log: Vec<String>,
}

impl BridgeChain<'_> {
    fn run(script: &Script) -> Vec<String> {
        let library = Library::embedded().unwrap();
        let opening = Opening::new(&library, "minicpm-o-legacy", "minicpm-o", "relay");
        let opening = Opening { query: "mode=audio", unix: UNIX, ..opening };
        let session = opening.open_relay(&["minicpm-o-legacy"], 0);
        let (faults, client_log) = (script.faults, Vec::new());
        let mut chain = BridgeChain { session, second: None, closing: Vec::new(), faults, client_log };
        let outputs = chain.session.opened();
        chain.handle(outputs);
        chain.pass_messages();
        for step in &script.steps {
            match step {
                ScriptStep::Send(text) => {
                    chain.input(Input::Client(Frame::Text(text)));
                    chain.pass_messages();
                }
                ScriptStep::Wait(time) => (0..*time / STEP_MS).for_each(|_| chain.tick()),
            }
        }
        chain.client_log
    }

    /// Advances both bridges by a short time.
    fn tick(&mut self) {
        self.session.now += ms(STEP_MS);
        if let Some((_, harness, _)) = &mut self.second {
            harness.advance(ms(STEP_MS));
        }
        self.closing.iter_mut().for_each(|harness| harness.advance(ms(STEP_MS)));
        if self.session.wait.is_some_and(|at| at <= self.session.now) {
            self.input(Input::Timeout);
        }
        self.pass_messages();
    }

    /// Passes messages of the second bridge to the first until none are left.
    fn pass_messages(&mut self) {
        while let Some((lane, harness, passed)) = &mut self.second
            && let Some((_, frame)) = harness.log.get(*passed)
        {
            let lane = *lane;
            let earlier = harness.log[..*passed].iter();
            let texts = earlier.filter(|(_, frame)| matches!(frame, ClientFrame::Event(_))).count();
            *passed += 1;
            match frame {
                ClientFrame::Event(_) => {
                    let text = harness.texts[texts].clone();
                    self.input(Input::Lane(lane, Frame::Text(&text)));
                }
                ClientFrame::Close(code, reason) => {
                    let reason = DisconnectReason::Closed(*code, reason.clone());
                    self.second = None;
                    self.input(Input::LaneClosed(lane, reason));
                }
                ClientFrame::Binary(_) => panic!("unexpected binary frame"),
            }
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let outputs = self.session.input(input);
        self.handle(outputs);
    }

    fn handle(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::ToClient(Message::Text(text), _) => self.client_log.push(text),
                Output::ToClient(Message::Close(code, _), _) => self.client_log.push(format!("close {code}")),
                Output::OpenLane(lane, ..) => {
                    let config = HarnessConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", &[]) };
                    let config = HarnessConfig { simulator: simulator(self.faults), ..config };
                    let harness = Harness::new_relay(config, &["minicpm-o", "minicpm-o-legacy"]);
                    self.second = Some((lane, harness, 0));
                    self.input(Input::LaneOpened(lane));
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

/// An open session with a question and this many seconds of silence.
fn talk_steps(silence: usize) -> Vec<ScriptStep> {
    let opening = [ScriptStep::Wait(100), session_update(), ScriptStep::Wait(200)];
    let units = question_seconds(silence);
    opening
        .into_iter()
        .chain(
            units.iter().flat_map(|unit| [send_step(&legacy_append_message(unit)), ScriptStep::Wait(1000)]),
        )
        .collect()
}

fn scripts() -> Vec<Script> {
    let close = || send_step(&json!({"type": "session.close", "reason": "user_stop"}));
    let with = |mut steps: Vec<ScriptStep>, more: Vec<ScriptStep>| {
        steps.extend(more);
        steps
    };
    let mut forced = legacy_append_message(&zeros(1000));
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
                    send_step(&legacy_append_message(&zeros(1000))),
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
                send_step(&legacy_append_message(&zeros(1000))),
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
            with(talk_steps(0), vec![ScriptStep::Send("{".into()), ScriptStep::Wait(5000)]),
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
