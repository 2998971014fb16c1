//! Configuration of a harness: the client, the bridge and the server.

use std::time::Duration;

use voxbridge::{
    session::VoiceCatalog,
    simulator::{EngineAnswer, EngineRequest, RealtimeServer, SimDialect, SimulatorConfig},
    spelling::{Library, MappingKind},
    trace::AudioRetention,
    vocabulary::{ListedTool, RemoteServer, ServerCall, ServerCallResult, ToolServer},
};

use super::{
    http_server::HttpScript,
    session::{Opening, epoch},
};

/// Wall-clock time at the start of the virtual time.
pub(super) const UNIX: Duration = Duration::from_secs(1_795_148_864);

/// The client, the bridge's configuration and the gateway.
pub struct HarnessConfig {
    /// The client's query string.
    pub query: String,
    /// The gateway.
    pub simulator: SimulatorConfig,
    /// The configured voices and speech models.
    pub voices: VoiceCatalog,
    /// Latency between bridge and gateway, each way.
    pub latency: Duration,
    /// The mappings in use.
    pub library: Library,
    pub client: &'static str,
    pub upstream: &'static str,
    pub profile: &'static str,
    /// Seed of the bridge's ids and jitter.
    pub seed: u64,
    /// Time limit of the session, ms; 0 for none.
    pub session_max_ms: u64,
    /// Records the session, keeping this much audio.
    pub record: Option<AudioRetention>,
    /// The outputs contain the recording of the session.
    pub is_recorded: bool,
    /// Workers that other clients hold when the session opens.
    pub taken_workers: u64,
    /// The gateway's speech engines.
    pub engines: Option<fn(EngineRequest) -> EngineAnswer>,
    /// Judges the ends of turns.
    pub judge: Option<ScriptedJudge>,
    /// Tool servers of the operator.
    pub tools: Option<ScriptedTools>,
    /// A worker is free in every pause, and no one waits for it.
    pub has_free_worker: bool,
    /// The server refuses this many handshakes.
    pub refused_handshakes: usize,
    /// Answers HTTP requests, for dialects that send them.
    pub http: HttpScript,
    /// The gateway is behind another bridge, which is the upstream of the first by OpenAI's Realtime API.
    pub has_second_bridge: bool,
}

/// The probability that the user has finished, from the audio that ends in the pause; `None` if the model is too busy.
pub type Judgement = dyn FnMut(&[i16]) -> Option<f32>;

/// Judges the ends of turns, after a virtual time.
pub struct ScriptedJudge {
    pub takes: Duration,
    pub verdict: Box<Judgement>,
}

/// The result of a call; `None` if none ever comes.
pub type ToolAnswer = dyn FnMut(&ServerCall) -> Option<ServerCallResult>;

/// The tools of a client's server, or why there are none.
pub type ToolListing = dyn FnMut(&RemoteServer) -> Result<Vec<ListedTool>, String>;

/// Tool servers, which answer each call after a virtual time.
pub struct ScriptedTools {
    pub servers: Vec<ToolServer>,
    /// Tools of servers that the client names.
    pub list: Box<ToolListing>,
    pub takes: Duration,
    pub answer: Box<ToolAnswer>,
}

impl HarnessConfig {
    /// A conversation in full duplex, on two workers, whose profile also transcribes the user.
    pub fn transcribed_conversation() -> Self {
        let toml = "mode = \"audio\"\n[converse]\ntranscribe_user = true\n";
        Self::default().with_profile("transcribed", "conversation", toml).workers(2)
    }

    /// Adds a profile that extends another, and uses it. The first lines of `toml` may be keys, such as `mode`.
    #[must_use]
    pub fn with_profile(mut self, name: &'static str, extends: &str, toml: &str) -> Self {
        self.add_profile(name, extends, toml);
        Self { profile: name, ..self }
    }

    /// Adds a profile that extends another.
    pub fn add_profile(&mut self, name: &str, extends: &str, toml: &str) {
        let head = format!("kind = \"profile\"\nname = \"{name}\"\ntitle = \"-\"\nextends = \"{extends}\"\n");
        self.library.add(&format!("{name}.toml"), &(head + toml)).unwrap();
    }

    /// Replaces texts of a mapping file, which has each of them.
    pub fn change_file(&mut self, kind: MappingKind, name: &str, replaced: &[(&str, &str)]) {
        let files = self.library.clone();
        let is_meant = |(of, known): (MappingKind, &str)| (of, known) == (kind, name);
        let (_, _, file, source) = files.files().find(|(of, known, ..)| is_meant((*of, known))).unwrap();
        let changed = replaced.iter().fold(source.to_owned(), |source, (old, new)| {
            assert!(source.contains(old), "{old}");
            source.replace(old, new)
        });
        self.library.add(file, &changed).unwrap_or_else(|problem| panic!("{problem}"));
    }
}

impl Default for HarnessConfig {
    fn default() -> Self {
        Self {
            query: "model=any".to_owned(),
            simulator: SimulatorConfig { record: true, ..SimulatorConfig::default() },
            voices: VoiceCatalog::default(),
            latency: Duration::ZERO,
            library: Library::embedded().unwrap(),
            client: "macaw",
            upstream: "minicpm-o",
            profile: "speech",
            seed: 1,
            session_max_ms: 0,
            record: None,
            is_recorded: false,
            taken_workers: 0,
            engines: None,
            judge: None,
            tools: None,
            has_free_worker: true,
            refused_handshakes: 0,
            http: HttpScript::default(),
            has_second_bridge: false,
        }
    }
}

impl HarnessConfig {
    /// A client of this protocol with this profile and query.
    pub fn of(client: &'static str, profile: &'static str, query: &str) -> Self {
        Self { client, profile, query: query.to_owned(), ..Self::default() }
    }

    /// The default with these gateway faults (`NAME[=VALUE][,times=N]`).
    pub fn with_faults(faults: &[&str]) -> Self {
        Self::default().faults(faults)
    }

    /// The same with these gateway faults.
    #[must_use]
    pub fn faults(mut self, faults: &[&str]) -> Self {
        self.simulator.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        self
    }

    /// The same with a model that gives these answers.
    #[must_use]
    pub fn answers(mut self, answers: &[&str]) -> Self {
        self.simulator.answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        self
    }

    /// The same with this many workers.
    #[must_use]
    pub const fn workers(mut self, workers: usize) -> Self {
        self.simulator.workers = workers;
        self
    }

    /// The same with a server of OpenAI's Realtime API, which has two workers.
    #[must_use]
    pub fn realtime(self, kind: RealtimeServer) -> Self {
        let mut config = Self { upstream: "openai-realtime", ..self }.workers(2);
        config.simulator.dialect = SimDialect::OpenaiRealtime(kind);
        config
    }

    /// The same with another bridge before the gateway, if `is_chained`.
    #[must_use]
    pub fn chained(mut self, is_chained: bool) -> Self {
        if is_chained {
            self.has_second_bridge = true;
            self.upstream = "openai-realtime";
        }
        self
    }

    /// The opening of the session.
    pub(super) fn opening(&self) -> Opening<'_> {
        Opening {
            library: &self.library,
            client: self.client,
            upstream: self.upstream,
            profile: self.profile,
            query: &self.query,
            seed: self.seed,
            unix: UNIX,
            at: epoch(),
            record: self.record,
        }
    }
}
