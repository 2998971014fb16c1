//! Harness: one bridge and one simulated gateway in virtual time, without socket, sleep or task.
//!
//! [`Harness`] moves frames between the two and advances from deadline to deadline, so a minute of
//! conversation takes milliseconds and is deterministic. It panics on breaches of the contract of [`Bridge`]
//! or of the wire: endless outputs, frames on a lane that is not up, frames to a closed client.
//! Not here: the network between them ([`super::network`]), and the observations ([`super::observed`]).

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;
use voxbridge::{
    bridge::{Bridge, Input},
    error::Error,
    session::{Observation, ReadWindow, RecordedItem, SessionReport},
    simulator::{
        ConnId, DuplexOpening, DuplexUnit, EngineAnswer, EngineRequest, RealtimeServer, SimDialect, SimInput,
        SimMode, SimulatorConfig,
    },
    spelling::UpstreamMapping,
    vocabulary::{
        DisconnectReason, EntryId, Frame, HttpRequest, Lane, LanePurpose, Message, Mode, RemoteServer,
        ServerCall, SpeechId, ToolServer,
    },
};

use super::{
    bytes_of,
    config::{HarnessConfig, ScriptedJudge, ScriptedTools, UNIX},
    http_server::HttpScript,
    network::{InFlight, OTHER_CLIENTS_FROM, conn_of},
    observed::{ClientFrame, Traffic},
    reader::Reader,
    server::VirtualServer,
    session::VirtualSession,
};

/// Drain time: how long a session may take to finish.
pub const DRAIN_TIME: Duration = Duration::from_secs(25);

/// Measures the cost of a step of the bridge.
pub trait StepMeter {
    /// Figures of one step.
    type Cost;

    /// Runs the step, and measures it.
    fn measure(step: &mut dyn FnMut()) -> Self::Cost;
}

/// One bridge, one gateway, one clock.
pub struct Harness<M: StepMeter> {
    pub(super) session: VirtualSession,
    pub(super) dialect: SimDialect,
    pub(super) server: VirtualServer,
    started: Instant,
    pub(super) latency: Duration,
    pub(super) in_flight: VecDeque<(Instant, InFlight)>,
    /// The bridge's lanes; true for those that are up.
    pub(super) lanes: BTreeMap<Lane, bool>,
    pub(super) client_open: bool,
    /// Messages not yet received by a client that does not read; `None` for one that reads.
    pub(super) unread: Option<Vec<(Message, Option<SpeechId>)>>,
    /// A client that reads slowly.
    pub reader: Reader,
    /// The bridge has finished.
    pub finished: bool,
    /// Bytes of audio the client sent.
    pub sent_bytes: u64,
    /// All frames the client received, with their times.
    pub log: Vec<(Duration, ClientFrame)>,
    /// The text frames among them, unchanged.
    pub texts: Vec<String>,
    /// All messages the client received, unchanged, with their times.
    pub received: Vec<(Duration, Message)>,
    /// Purposes of all lanes.
    pub purposes: BTreeMap<Lane, (Mode, LanePurpose)>,
    pub(super) mapping: Arc<UpstreamMapping>,
    pub(super) refused_handshakes: usize,
    pub(super) http: HttpScript,
    /// All HTTP requests.
    pub requests: Vec<HttpRequest>,
    /// All traffic on the lanes.
    pub traffic: Vec<(Duration, Traffic)>,
    /// The bridge's observations for operators.
    pub observations: Vec<Observation>,
    /// Audio of every question the gateway received, float32 at 16 kHz.
    pub question_audio: Vec<Vec<f32>>,
    /// The opening of every full-duplex session.
    pub openings: Vec<(Lane, DuplexOpening)>,
    /// Every append of every full-duplex session, as the gateway received it.
    pub units: Vec<(Lane, DuplexUnit)>,
    /// All inputs of the bridge so far.
    pub steps: Vec<BridgeStep<M::Cost>>,
    /// The gateway's connections of other clients.
    other_clients: Vec<ConnId>,
    pub(super) engines: Option<fn(EngineRequest) -> EngineAnswer>,
    pub(super) judge: Option<ScriptedJudge>,
    pub(super) tools: Option<ScriptedTools>,
    /// Calls on tool servers.
    pub called: Vec<(Duration, ServerCall)>,
    /// Tool servers of the client that are connected.
    pub connected: Vec<(EntryId, RemoteServer)>,
    pub(super) has_free_worker: bool,
    /// Answers to the bridge's questions about pauses and to its calls of tools, with the times when they come.
    pub(super) pause_answers: VecDeque<(Instant, Input<'static>)>,
    /// Lengths of the audio of every question to the judge, samples.
    pub judged: Vec<usize>,
    /// The recording of the session, with instants.
    pub recorded: Vec<(Instant, RecordedItem)>,
}

/// One input of the bridge, up to the next `Wait`.
#[derive(Debug, Clone, Copy)]
pub struct BridgeStep<F> {
    /// Bytes of the frame, if the input is one.
    pub frame_bytes: usize,
    /// The input is a frame of the client.
    pub is_from_client: bool,
    /// Outputs before `Wait`.
    pub outputs: usize,
    /// Cost of the step.
    pub cost: F,
}

impl<M: StepMeter> Harness<M> {
    /// Opens a session.
    pub fn new(mut config: HarnessConfig) -> Self {
        let voices = Arc::new(std::mem::take(&mut config.voices));
        let session = config.opening().open(|setup| {
            setup.voice_catalog = voices;
            setup.session_max_ms = config.session_max_ms;
            setup.has_turn_judge = config.judge.is_some();
        });
        let session = if config.is_recorded { session.recorded() } else { session };
        Self::with_session(session, config)
    }

    /// The instant at which the session was opened.
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// Opens a relay session for a client of one of these protocols.
    pub fn new_relay(config: HarnessConfig, clients: &[&str]) -> Self {
        Self::with_session(config.opening().open_relay(clients, config.session_max_ms), config)
    }

    /// A connection that the bridge rejects with this error.
    pub fn new_refused(config: HarnessConfig, error: &Error) -> Self {
        Self::with_session(config.opening().reject(error), config)
    }

    fn with_session(session: VirtualSession, config: HarnessConfig) -> Self {
        let mapping = config.opening().upstream();
        let started = session.now;
        let mut harness = Self {
            session,
            dialect: match config.has_second_bridge {
                true => SimDialect::OpenaiRealtime(RealtimeServer::Openai),
                false => config.simulator.dialect,
            },
            server: VirtualServer::new(config.simulator, started, UNIX, config.has_second_bridge),
            started,
            latency: config.latency,
            in_flight: VecDeque::new(),
            lanes: BTreeMap::new(),
            client_open: true,
            unread: None,
            reader: Reader::new(),
            finished: false,
            sent_bytes: 0,
            log: Vec::new(),
            texts: Vec::new(),
            received: Vec::new(),
            purposes: BTreeMap::new(),
            mapping,
            refused_handshakes: 0,
            http: HttpScript::default(),
            requests: Vec::new(),
            traffic: Vec::new(),
            observations: Vec::new(),
            question_audio: Vec::new(),
            openings: Vec::new(),
            units: Vec::new(),
            steps: Vec::new(),
            engines: None,
            judge: None,
            tools: None,
            called: Vec::new(),
            connected: Vec::new(),
            has_free_worker: false,
            pause_answers: VecDeque::new(),
            judged: Vec::new(),
            recorded: Vec::new(),
            other_clients: (0..config.taken_workers)
                .map(|number| ConnId(OTHER_CLIENTS_FROM + number))
                .collect(),
        };
        for other in harness.other_clients.clone() {
            harness.feed_gateway(SimInput::Connected(other, SimMode::Chat));
        }
        let outputs = harness.session.opened();
        harness.handle_outputs(outputs);
        harness.feed_gateway(SimInput::Timeout);
        harness.process_due();
        // After the opening, so that its first dials succeed.
        harness.refused_handshakes = config.refused_handshakes;
        harness.http = config.http;
        harness.engines = config.engines;
        harness.judge = config.judge;
        harness.has_free_worker = config.has_free_worker;
        if let Some(tools) = config.tools {
            let servers = tools.servers.clone();
            harness.tools = Some(tools);
            harness.set_tool_servers(servers);
        }
        harness
    }

    /// Tells the bridge which tool servers can be called from now on.
    pub fn set_tool_servers(&mut self, servers: Vec<ToolServer>) {
        self.feed_bridge_and_settle(Input::ToolServers(servers.into()));
    }

    /// Injects an upstream frame that the gateway would not send.
    pub fn inject_upstream_text(&mut self, lane: Lane, text: &str) {
        self.traffic.push((self.now(), Traffic::Received(lane, text.to_owned())));
        self.feed_bridge_and_settle(Input::Lane(lane, Frame::Text(text)));
    }

    /// Virtual time since the session was opened.
    pub fn now(&self) -> Duration {
        self.session.now - self.started
    }

    /// True if the client's connection has ended.
    pub fn is_closed(&self) -> bool {
        !self.client_open
    }

    /// The trace of a recorded session.
    pub fn trace(&self) -> &str {
        &self.session.recorder.as_ref().expect("the session is recorded").text
    }

    /// The bridge, for its counters.
    pub fn bridge(&self) -> &Bridge {
        &self.session.bridge
    }

    /// The current read window: how long client audio may stay unread.
    pub fn read_window(&self) -> Option<ReadWindow> {
        self.report().read_window
    }

    /// The session's state, and what the driver takes into account.
    pub fn report(&self) -> SessionReport {
        self.session.bridge.report(self.session.now)
    }

    /// Other clients give back the workers that they hold.
    pub fn release_workers(&mut self) {
        while let Some(other) = self.other_clients.pop() {
            self.feed_gateway(SimInput::Text(other, r#"{"type":"session.close"}"#));
        }
        self.process_due();
    }

    /// True if the bridge has finished, or only waits until lanes have left the gateway's queue. Nothing else is left then.
    pub fn is_over(&self) -> bool {
        let is_over = self.finished || self.report().only_waits_in_queue;
        is_over && self.server.connection_count() == self.lanes.len()
    }

    /// The client sends this text frame unchanged.
    pub fn send_text(&mut self, text: &str) {
        self.feed_bridge_and_settle(Input::Client(Frame::Text(text)));
    }

    /// The client sends JSON.
    pub fn send_json(&mut self, command: &Value) {
        self.send_text(&command.to_string());
    }

    /// The client sends a binary frame.
    pub fn send_binary(&mut self, bytes: &[u8]) {
        self.sent_bytes += bytes.len() as u64;
        self.feed_bridge_and_settle(Input::Client(Frame::Binary(bytes)));
    }

    /// The client's microphone: sends frames of `frame_ms`, each at its start in real time, then waits for
    /// the end of the last one.
    pub fn stream(&mut self, samples: &[i16], frame_ms: u64) {
        for frame in samples.chunks((16 * frame_ms) as usize) {
            self.send_binary(&bytes_of(frame));
            self.advance(Duration::from_millis(frame_ms));
        }
    }

    /// The client stops reading.
    pub fn stop_reading(&mut self) {
        self.unread.get_or_insert_default();
    }

    /// The client reads again: everything that the server still holds for it.
    pub fn resume_reading(&mut self) {
        let unread = self.unread.take().unwrap_or_default();
        unread.into_iter().for_each(|(message, _)| self.record_client_frame(message));
    }

    /// The client reads this fast from now on, bytes a second; 0 for a client that pauses.
    pub fn set_reading_rate(&mut self, bytes_per_second: u64) {
        self.reader.set_rate(self.session.now, bytes_per_second);
        self.process_due();
    }

    /// The client's transport is lost.
    pub fn close_client(&mut self) {
        self.client_open = false;
        self.reader.leave();
        self.feed_bridge_and_settle(Input::ClientClosed);
    }

    /// Starts the drain, as a stopping voxbridge does.
    pub fn drain(&mut self) {
        self.feed_bridge_and_settle(Input::Drain(DRAIN_TIME));
    }

    /// An operator closes the session.
    pub fn order_close(&mut self) {
        self.feed_bridge_and_settle(Input::Close(DRAIN_TIME));
    }

    /// Another upstream has room for a lane that waits in the queue. In this harness it is the same one.
    pub fn find_place(&mut self, lane: Lane) {
        self.feed_bridge_and_settle(Input::PlaceFound(lane));
    }

    /// An operator orders a rollover.
    pub fn order_rollover(&mut self) {
        self.feed_bridge_and_settle(Input::Rollover);
    }

    /// Breaks the network between bridge and gateway: both sides lose every lane and all frames in transit.
    pub fn break_lanes(&mut self) {
        for (_, frame) in std::mem::take(&mut self.in_flight) {
            if let InFlight::Hangup(lane) = frame {
                self.feed_gateway(SimInput::Closed(conn_of(lane)));
            }
        }
        let lost: Vec<Lane> = self.lanes.keys().copied().collect();
        for lane in &lost {
            self.feed_gateway(SimInput::Closed(conn_of(*lane)));
        }
        // Frames the gateway still sends are lost; frames the bridge sends in reaction are in transit again.
        self.in_flight.clear();
        for lane in lost {
            // The bridge may have dropped this lane when it lost another.
            if self.lanes.remove(&lane).is_some() {
                let reason = DisconnectReason::Lost("Connection reset by peer (os error 104)".to_owned());
                self.traffic.push((self.now(), Traffic::Closed(lane, reason.clone())));
                self.feed_bridge(Input::LaneClosed(lane, reason));
            }
        }
        self.process_due();
    }

    /// Breaks one lane on both sides with its frames in transit.
    pub fn break_lane(&mut self, lane: Lane) {
        self.feed_gateway(SimInput::Closed(conn_of(lane)));
        self.in_flight.retain(|(_, frame)| frame.lane() != lane);
        let reason = DisconnectReason::Lost("Connection reset by peer (os error 104)".to_owned());
        if self.lanes.remove(&lane).is_some() {
            self.traffic.push((self.now(), Traffic::Closed(lane, reason.clone())));
            self.feed_bridge_and_settle(Input::LaneClosed(lane, reason));
        }
    }

    /// The open lanes, oldest first.
    pub fn lanes(&self) -> Vec<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// Kills the gateway with every lane and starts another.
    pub fn replace_gateway(&mut self, simulator: SimulatorConfig) {
        self.server = self.server.replaced(simulator, self.session.now, UNIX + self.now());
        self.break_lanes();
    }

    /// Injects this fault into the gateway from now on.
    pub fn inject_fault(&mut self, fault: &str) {
        self.feed_gateway(SimInput::AddFault(fault.parse().unwrap()));
        self.process_due();
    }

    /// The server recovers: no fault is left, and it refuses nothing.
    pub fn end_trouble(&mut self) {
        self.refused_handshakes = 0;
        self.http.failure = None;
        self.feed_gateway(SimInput::ClearFaults);
        self.process_due();
    }

    /// Lets time pass.
    pub fn advance(&mut self, time: Duration) {
        let end = self.session.now + time;
        while let Some(next) = self.next_deadline().filter(|next| *next <= end) {
            self.session.now = self.session.now.max(next);
            self.process_due();
        }
        self.session.now = end;
    }

    /// Lets time pass until the condition holds and returns that time; `None` if the limit passes first.
    pub fn run_until(
        &mut self,
        mut condition: impl FnMut(&Self) -> bool,
        limit: Duration,
    ) -> Option<Duration> {
        let end = self.session.now + limit;
        while !condition(self) {
            let Some(next) = self.next_deadline().filter(|next| *next <= end) else {
                self.session.now = end;
                return None;
            };
            self.session.now = self.session.now.max(next);
            self.process_due();
        }
        Some(self.now())
    }

    /// Lets time pass until the condition holds and returns that time.
    ///
    /// # Panics
    /// If the limit passes first.
    pub fn wait_until(&mut self, condition: impl FnMut(&Self) -> bool, limit: Duration) -> Duration {
        let held = self.run_until(condition, limit);
        held.unwrap_or_else(|| panic!("not within {limit:?}; the client saw {:?}", self.names()))
    }

    /// Lets time pass until the client has received another event of this type, and returns it.
    ///
    /// # Panics
    /// If none comes within a virtual minute.
    pub fn next_event(&mut self, name: &str) -> Value {
        let seen_before = self.events(name).len();
        let limit = Duration::from_secs(60);
        self.wait_until(|harness| harness.events(name).len() > seen_before, limit);
        self.events(name)[seen_before].clone()
    }
}
