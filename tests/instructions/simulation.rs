//! One session in virtual time: a client with a microphone, the bridge, a simulated gateway. No socket, no sleep, no task.
//!
//! A scene is played twice from the same seed. At the rehearsal it is noted what each step of the bridge did; then the
//! steps of one kind are counted. A step is one input and all the outputs it leads to, as the driver takes them.
//!
//! It has no harness, which keeps all traffic: the counts would depend on what that leaves on the heap.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use voxbridge::{
    audio::{encoding::Encoding, pcm},
    bridge::{Bridge, Input, Output},
    client::Codec,
    session::{SessionSetup, VoiceCatalog},
    simulator::{
        ConnId, Gateway, RealtimeServer, SimDialect, SimInput, SimOutput, SimTiming, SimulatorConfig,
    },
    spelling::Library,
    vocabulary::{Frame, Lane, Message, Mode, VoiceEncoding, VoiceSample},
};
use voxbridge_test_support::world::session::{VirtualSession, epoch};

use crate::{
    audio_input::{self, RATE_HZ},
    counted,
};

/// Time of day at the start of virtual time.
const UNIX_START: Duration = Duration::from_secs(1_795_148_864);

/// Lower bound of messages that contain audio.
const AUDIO_BYTES: usize = 10_000;

/// Kind of work in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Received an audio frame from the client.
    ClientFrame,
    /// Sent an audio message to the model, for a unit or an utterance; the same step may have received the frame that
    /// completed it.
    UpstreamAudio,
    /// Received a second of the model's audio.
    ModelDelta,
    /// Received another message of the model.
    ModelEvent,
    /// Sent audio to the client when it was due.
    PlayoutSent,
    /// Any other work.
    Other,
}

/// Server of the model.
#[derive(Debug, Clone, Copy)]
struct Server {
    dialect: &'static str,
    simulated: SimDialect,
    /// Lower bound of messages that contain a whole second of the model's audio, bytes; OpenAI's have a fifth.
    delta_bytes: usize,
    /// Query of a lane, where the dialect has no mode.
    query: Option<&'static str>,
}

const DEMO: Server =
    Server { dialect: "minicpm-o", simulated: SimDialect::Current, delta_bytes: 128_000, query: None };
const SGLANG: Server =
    Server { dialect: "sglang-omni", simulated: SimDialect::SglangOmni, delta_bytes: 64_000, query: None };
const VLLM: Server =
    Server { dialect: "vllm-omni", simulated: SimDialect::VllmOmni, delta_bytes: 64_000, query: None };
const OPENAI: Server = Server {
    dialect: "openai-realtime",
    simulated: SimDialect::OpenaiRealtime(RealtimeServer::Openai),
    delta_bytes: 12_000,
    query: Some("model=gpt-realtime"),
};
const VLLM_TURNS: Server = Server {
    simulated: SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni),
    delta_bytes: 64_000,
    query: Some(""),
    ..OPENAI
};

/// An answer of eight seconds, for servers of OpenAI's protocol.
const LONG_ANSWER: &str = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen \
                           sixteen seventeen eighteen nineteen twenty.";

/// Script of a simulated session.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scenario {
    server: Server,
    client: &'static str,
    profile: &'static str,
    rate_hz: usize,
    /// The user's audio at a rate.
    microphone: fn(usize) -> Vec<i16>,
    /// Length of the client's frames.
    frame_ms: usize,
    /// Text to speak at the start.
    text: Option<&'static str>,
    /// Time before which nothing is counted, because buffers grow.
    count_from: Duration,
    /// Time from which on nothing is counted.
    count_until: Duration,
}

impl Scenario {
    /// Speech to text.
    pub(crate) fn transcription(microphone: fn(usize) -> Vec<i16>) -> Self {
        Self { profile: "speech", ..Self::conversation(microphone) }
    }

    /// Text to speech, about twelve seconds.
    pub(crate) fn read_aloud() -> Self {
        let text = "We choose to go to the moon in this decade and do the other things, not because they are easy, \
                    but because they are hard.";
        Self { text: Some(text), count_from: Duration::ZERO, ..Self::transcription(audio_input::quiet_room) }
    }

    /// Conversation with a model that only listens.
    pub(crate) fn conversation(microphone: fn(usize) -> Vec<i16>) -> Self {
        Self {
            server: DEMO,
            client: "macaw",
            profile: "conversation",
            rate_hz: RATE_HZ,
            microphone,
            frame_ms: 20,
            text: None,
            count_from: Duration::from_secs(1),
            count_until: Duration::MAX,
        }
    }

    /// A model that answers in turns.
    pub(crate) fn assistant(microphone: fn(usize) -> Vec<i16>) -> Self {
        Self { profile: "assistant", ..Self::conversation(microphone) }
    }

    /// An answer that a client of OpenAI's protocol asks for, about as long as [`Scenario::read_aloud`].
    pub(crate) fn answer() -> Self {
        Self { profile: "assistant", ..Self::read_aloud() }
    }

    /// The same with a microphone at 24 kHz.
    pub(crate) fn at_24k(self) -> Self {
        Self { rate_hz: 24_000, ..self }
    }

    /// The same for a client of this protocol with a microphone at 16 kHz.
    pub(crate) fn at_16k_of(self, client: &'static str) -> Self {
        Self { client, rate_hz: 16_000, ..self }
    }

    /// The same for a client of OpenAI's protocol, which sends this much audio at a time.
    pub(crate) fn openai(self, frame_ms: usize) -> Self {
        Self { client: "openai-realtime", frame_ms, ..self.at_24k() }
    }

    /// The same with SGLang-Omni.
    pub(crate) fn on_sglang(self) -> Self {
        Self { server: SGLANG, ..self }
    }

    /// The same with vLLM-Omni.
    pub(crate) fn on_vllm(self) -> Self {
        Self { server: VLLM, ..self }
    }

    /// The same with OpenAI, which decides when the user's turn is over.
    pub(crate) fn on_openai(self) -> Self {
        Self { server: OPENAI, ..self }
    }

    /// The same with a turn deployment of vLLM-Omni, which speaks OpenAI's protocol.
    pub(crate) fn on_vllm_turns(self) -> Self {
        Self { server: VLLM_TURNS, ..self }
    }

    /// Conversation while the model speaks.
    pub(crate) fn model_turn() -> Self {
        Self { count_from: Duration::from_secs(4), ..Self::conversation(audio_input::speech_then_quiet) }
    }

    /// Seconds of a conversation in each of which the user is heard and the model speaks.
    pub(crate) fn seconds() -> Self {
        let (count_from, count_until) = (Duration::from_secs(5), Duration::from_secs(9));
        Self { count_from, count_until, ..Self::model_turn() }
    }
}

/// Runs a scenario and counts the steps of these kinds; returns the number of steps of the first kind.
pub(crate) fn count_steps(scenario: Scenario, kinds: &[StepKind]) -> usize {
    let library = Library::embedded().unwrap();
    let microphone = (scenario.microphone)(scenario.rate_hz);
    let mut first_pass = Simulation::new(&library, scenario, BTreeSet::new());
    first_pass.run(&microphone);
    let mut calls = 0;
    let mut steps = BTreeSet::new();
    for (step, (at, did)) in first_pass.step_kinds.iter().enumerate() {
        if (scenario.count_from..scenario.count_until).contains(at) && kinds.contains(did) {
            steps.insert(step);
            calls += usize::from(*did == kinds[0]);
        }
    }
    Simulation::new(&library, scenario, steps).run(&microphone);
    calls
}

/// Creates a session like the server does.
pub(crate) fn new_bridge(library: &Library, scenario: Scenario) -> Bridge {
    let client = library.client(scenario.client).unwrap();
    let upstream = library.upstream(scenario.server.dialect).unwrap();
    let mut setup =
        SessionSetup::new(&client, library.profile(scenario.profile).unwrap(), &upstream.clone().into(), 1);
    if upstream.may_require_voice() {
        let samples = audio_input::recording_16k()[..32_000].into();
        let voice = VoiceSample { samples, encoding: VoiceEncoding::WavUrl };
        let voices = BTreeMap::from([("default".to_owned(), voice)]);
        setup.voice_catalog = Arc::new(VoiceCatalog::new(voices, Vec::new()));
    }
    let mut codec = Codec::new(client, UNIX_START.as_secs_f64());
    let connect = codec.decode_query(&format!("model=any&sample_rate={}", scenario.rate_hz));
    Bridge::open(epoch(), codec, connect, upstream, setup)
}

struct Simulation {
    session: VirtualSession,
    gateway: Gateway,
    scenario: Scenario,
    gateway_wait: Option<Instant>,
    step_kinds: Vec<(Duration, StepKind)>,
    counted_steps: BTreeSet<usize>,
    /// Encoding of the client's audio.
    encoding: Encoding,
}

impl Simulation {
    fn new(library: &Library, scenario: Scenario, counted_steps: BTreeSet<usize>) -> Self {
        let dialect = scenario.server.simulated;
        let mut simulator = SimulatorConfig { dialect, turn_units: 6, ..SimulatorConfig::default() };
        if matches!(dialect, SimDialect::OpenaiRealtime(_)) {
            // As fast as it is heard, as from the servers in full duplex.
            simulator.timing = SimTiming { speech_second: Duration::from_secs(1), ..simulator.timing };
            simulator.answers = vec![LONG_ANSWER.to_owned()];
        }
        let mut simulation = Self {
            session: VirtualSession::new(new_bridge(library, scenario), epoch()),
            gateway: Gateway::new(simulator, epoch(), UNIX_START),
            scenario,
            gateway_wait: None,
            step_kinds: Vec::new(),
            counted_steps,
            encoding: library.client(scenario.client).unwrap().audio_in.encoding,
        };
        simulation.bridge_input(Input::Timeout);
        simulation
    }

    /// Sends frames in real time.
    fn run(&mut self, microphone: &[i16]) {
        if let Some(text) = self.scenario.text {
            let speak = match self.scenario.client {
                "openai-realtime" => {
                    format!(r#"{{"type":"response.create","response":{{"instructions":"{text}"}}}}"#)
                }
                _ => format!(r#"{{"type":"tts.speak","text":"{text}"}}"#),
            };
            self.bridge_input(Input::Client(Frame::Text(&speak)));
        }
        let Scenario { client, rate_hz, frame_ms, .. } = self.scenario;
        let encoding = self.encoding;
        for frame in microphone.chunks_exact(rate_hz * frame_ms / 1000) {
            let mut bytes = Vec::new();
            let samples: Vec<f32> = frame.iter().map(|sample| pcm::to_f32(*sample)).collect();
            encoding.encode(&samples, &mut bytes);
            if client == "openai-realtime" {
                let audio = STANDARD.encode(&bytes);
                let append = format!(r#"{{"type":"input_audio_buffer.append","audio":"{audio}"}}"#);
                self.bridge_input(Input::Client(Frame::Text(&append)));
            } else {
                self.bridge_input(Input::Client(Frame::Binary(&bytes)));
            }
            self.advance(Duration::from_millis(frame_ms as u64));
        }
    }

    fn advance(&mut self, time: Duration) {
        let end = self.session.now + time;
        loop {
            let next = [self.session.wait, self.gateway_wait].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.session.now = self.session.now.max(next);
            if self.gateway_wait == Some(next) {
                self.gateway_input(SimInput::Timeout);
            } else {
                self.bridge_input(Input::Timeout);
            }
        }
        self.session.now = end;
    }

    fn bridge_input(&mut self, input: Input<'_>) {
        let is_counted = self.counted_steps.contains(&self.step_kinds.len());
        let kind = kind_of_input(&input, self.scenario.server.delta_bytes);
        let outputs = self.session.step(Some(input), |step| if is_counted { counted(step) } else { step() });
        self.step_kinds.push((self.session.now - epoch(), kind_of_step(kind, &outputs)));
        outputs.into_iter().for_each(|output| self.carry_out(output));
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::OpenLane(lane, mode, _) => {
                let of_mode = if mode == Mode::Chat { "mode=chat" } else { "mode=audio" };
                let query = self.scenario.server.query.unwrap_or(of_mode);
                let mode = self.scenario.server.simulated.parse_mode(Some(query)).unwrap();
                // A lane without a queue sends its first message at once.
                self.gateway.handle_input(self.session.now, SimInput::Connected(ConnId(lane.0.into()), mode));
                self.bridge_input(Input::LaneOpened(lane));
                self.deliver_gateway_outputs();
            }
            Output::ToLane(lane, Message::Text(text)) => {
                self.gateway_input(SimInput::Text(ConnId(lane.0.into()), &text));
            }
            Output::CloseLane(lane) => self.gateway_input(SimInput::Closed(ConnId(lane.0.into()))),
            _ => {}
        }
    }

    fn gateway_input(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(self.session.now, input);
        self.deliver_gateway_outputs();
    }

    fn deliver_gateway_outputs(&mut self) {
        loop {
            match self.gateway.poll_output(self.session.now) {
                SimOutput::Wait(until) => break self.gateway_wait = until,
                SimOutput::Text(conn, text) => {
                    let lane = Lane(u32::try_from(conn.0).unwrap());
                    self.bridge_input(Input::Lane(lane, Frame::Text(&text)));
                }
                _ => {}
            }
        }
    }
}

/// Kind of a step, as far as its input determines it.
fn kind_of_input(input: &Input<'_>, delta_bytes: usize) -> StepKind {
    match input {
        Input::Client(Frame::Binary(_)) => StepKind::ClientFrame,
        Input::Client(Frame::Text(text)) if text.contains("append") => StepKind::ClientFrame,
        Input::Lane(_, Frame::Text(text)) if text.len() > delta_bytes => StepKind::ModelDelta,
        Input::Lane(..) => StepKind::ModelEvent,
        Input::Timeout => StepKind::PlayoutSent,
        _ => StepKind::Other,
    }
}

fn kind_of_step(kind: StepKind, outputs: &[Output]) -> StepKind {
    let is_upstream_audio = |output: &Output| matches!(output, Output::ToLane(_, Message::Text(text)) if text.len() > AUDIO_BYTES);
    let is_client_audio = |output: &Output| matches!(output, Output::ToClient(_, Some(_)));
    match kind {
        StepKind::ModelDelta => StepKind::ModelDelta,
        _ if outputs.iter().any(is_upstream_audio) => StepKind::UpstreamAudio,
        StepKind::PlayoutSent if !outputs.iter().any(is_client_audio) => StepKind::Other,
        kind => kind,
    }
}
