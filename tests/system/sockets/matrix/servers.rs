//! The simulated servers, and the bridge a user would run in front of each.

use std::{path::PathBuf, sync::LazyLock, time::Duration};

use voxbridge::{
    config::Config,
    simulator::{Backend, SimDialect, SimTiming, SimulatorConfig, read_watermark, socket::RecordedInput},
    spelling::Library,
};

use super::bench::{Bench, instant_simulator, scratch};

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerKind {
    pub(crate) name: &'static str,
    pub(crate) dialect: SimDialect,
    backend: Backend,
}

const fn legacy_server(name: &'static str, documented: bool) -> ServerKind {
    ServerKind {
        name,
        dialect: SimDialect::Legacy { follows_document: documented },
        backend: Backend::Pytorch,
    }
}

const fn current_server(name: &'static str, backend: Backend) -> ServerKind {
    ServerKind { name, dialect: SimDialect::Current, backend }
}

pub(crate) const SERVERS: [ServerKind; 4] = [
    legacy_server("older", false),
    legacy_server("older by the book", true),
    current_server("current PyTorch", Backend::Pytorch),
    current_server("current C++", Backend::Cpp),
];

/// Routes of a user with clients of every kind: Macaw clients select a profile by model name.
const ROUTES: &str = r#"
    [[route]]
    client = "macaw"
    model = "talk"
    profile = "conversation"

    [[route]]
    client = "macaw"
    model = "see"
    profile = "video"

    [[route]]
    client = "minicpm-o*"
    profile = "relay"
"#;

/// The speech route, for servers with a chat mode only.
const SPEECH: &str = r#"
    [[route]]
    profile = "speech"
"#;

impl ServerKind {
    pub(crate) fn is_current(self) -> bool {
        self.dialect == SimDialect::Current
    }

    /// The simulated server, with turns of this many units and these faults.
    pub(crate) fn simulator(self, turn_units: usize, faults: &[&str]) -> SimulatorConfig {
        let (dialect, backend) = (self.dialect, self.backend);
        let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        SimulatorConfig { dialect, backend, workers: 4, turn_units, faults, ..instant_simulator() }
    }

    /// The bridge in front of the simulated server.
    pub(crate) async fn bench(self, turn_units: usize, faults: &[&str]) -> Bench {
        Bench::with_config(self.simulator(turn_units, faults), self.config(None)).await
    }

    /// Like `bench`, for chat: answers take a moment, so that they can be interrupted.
    pub(crate) async fn chat_bench(self, idle_timeout_ms: Option<u64>) -> Bench {
        let moment = Duration::from_millis(100);
        let timing = SimTiming { text_delta: moment, speech_second: moment, ..SimTiming::instant() };
        let simulator = SimulatorConfig { timing, ..self.simulator(1, &[]) };
        Bench::with_config(simulator, self.config(idle_timeout_ms)).await
    }

    /// Like `bench`, for conversations limited to ten seconds on both sides.
    pub(crate) async fn short_bench(self, turn_units: usize) -> Bench {
        let limit = Duration::from_secs(10);
        let simulator = SimulatorConfig {
            audio_time_limit: limit,
            video_time_limit: limit,
            ..self.simulator(turn_units, &[])
        };
        Bench::with_config(
            simulator,
            Config { mappings: Some(TEN_SECOND_SESSIONS.clone()), ..self.config(None) },
        )
        .await
    }

    /// The reason in the server's `session.closed` after the client closed with this reason.
    pub(crate) fn close_reason(self, reason: &str) -> &str {
        if self.backend == Backend::Cpp { "client_closed" } else { reason }
    }

    fn config(self, idle_timeout_ms: Option<u64>) -> Config {
        let speech = if self.is_current() { SPEECH } else { "" };
        Config { idle_timeout_ms, ..toml::from_str(&format!("{ROUTES}{speech}")).unwrap() }
    }
}

/// Mappings of servers whose sessions last at most ten seconds.
static TEN_SECOND_SESSIONS: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = scratch("matrix-short");
    for (_, name, _, source) in Library::embedded().unwrap().files() {
        let changed = ["session_max_ms =", "soft_before_ms =", "hard_before_ms ="]
            .iter()
            .zip(["{ audio = 10000, video = 10000 }", "8500", "1000"])
            .fold(source.to_owned(), |source, (key, value)| with_value(&source, key, value));
        if changed != *source {
            std::fs::write(dir.join(format!("{name}.toml")), changed).unwrap();
        }
    }
    dir
});

/// Replaces the value in the line that begins with this key.
pub(crate) fn with_value(source: &str, key: &str, value: &str) -> String {
    let line = |line: &str| if line.starts_with(key) { format!("{key} {value}") } else { line.to_owned() };
    source.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The model's answer to a question.
#[derive(Debug)]
pub(crate) struct ModelAnswer {
    pub(crate) text: String,
    pub(crate) audio: Vec<i16>,
}

impl ModelAnswer {
    /// Checks that the answer is exactly one turn of this many units.
    #[track_caller]
    pub(crate) fn assert_complete_turn(&self, turn_units: usize) {
        let Self { text, audio } = self;
        assert!(text.starts_with("I heard ") && text.ends_with(" seconds of speech."), "{text:?}");
        assert_eq!(audio.len(), (turn_units - 1) * 24_000 + 14_400);
        self.assert_one_turn();
    }

    /// Checks that all audio belongs to one turn, complete from its beginning and in order.
    #[track_caller]
    pub(crate) fn assert_one_turn(&self) {
        let marks: Vec<_> = self
            .audio
            .iter()
            .map(|sample| read_watermark(*sample).expect("model audio has a watermark"))
            .collect();
        for (at, mark) in marks.iter().enumerate() {
            assert_eq!(*mark, (marks[0].0, at % 8190), "sample {at}");
        }
    }
}

/// Stops the bridge and checks that this many sessions were opened, each one closed politely and no
/// connection lost.
pub(crate) async fn assert_sessions_closed(mut bench: Bench, sessions: usize) {
    bench.bridge.stop();
    bench.bridge.wait_for_end().await;
    let received = bench.recorder.all();
    let of_type = |kinds: &[&str]| {
        let has_type = |received: &&RecordedInput| match received {
            RecordedInput::Message(_, text) => {
                let message: serde_json::Value = serde_json::from_str(text).unwrap();
                kinds.iter().any(|kind| message["type"] == *kind)
            }
            _ => false,
        };
        received.iter().filter(has_type).count()
    };
    let counts = (of_type(&["session.init", "session.update"]), of_type(&["session.close"]));
    assert_eq!(counts, (sessions, sessions), "sessions opened and closed");
    assert!(
        !received.iter().any(|received| matches!(received, RecordedInput::Disconnected(_))),
        "a session was left without session.close"
    );
}

/// Number of pictures the server processed.
pub(crate) fn video_frame_count(bench: &Bench) -> usize {
    bench.recorder.duplex_units().iter().map(|(_, unit)| unit.frame_count).sum()
}
