//! Harness: one bridge and one simulated gateway in virtual time, without socket, sleep or task.
//!
//! [`Harness`] moves frames between the two and advances from deadline to deadline, so a minute of
//! conversation takes milliseconds and is deterministic. It panics on breaches of the contract of [`Bridge`]
//! or of the wire: endless outputs, frames on a lane that is not up, frames to a closed client.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use allocation_counter::{AllocationInfo, measure};
use bytes::Bytes;
use serde_json::Value;
use voxbridge::{
    audio::{pcm, wav},
    bridge::{Bridge, Input, Output},
    downstream::Codec,
    error::Error,
    event::{AnswerPart, DisconnectReason, Frame, Lane, LanePurpose, Message, Mode, SpeechId},
    mapping::{
        Library, UpstreamMapping,
        upstream::{ReceiveName, SendName},
    },
    session::{
        EndReason, Measurement, Observation, ReadWindow, RelaySetup, SessionReport, SessionSetup,
        VoiceCatalog,
    },
    simulator::{
        ConnId, DuplexOpening, DuplexUnit, EngineAnswer, EngineRequest, Gateway, SimDialect, SimInput,
        SimMode, SimOutput, SimulatorConfig,
    },
    trace::{AudioRetention, TraceBuffer, TraceHeader, header::SessionParts},
};

use crate::reader::Reader;

/// Outputs in a row without `Wait`, or inputs at one instant, above which the bridge or gateway is in an
/// endless loop.
const MAX_STEPS_PER_INSTANT: usize = 20_000;

/// Number of the first connection of another client. Lanes have lower ones.
const OTHER_CLIENTS_FROM: u64 = 1 << 40;

/// Drain time: how long a session may take to finish.
pub(crate) const DRAIN_TIME: Duration = Duration::from_secs(25);

/// Wall-clock time at the start of the virtual time.
const UNIX: Duration = Duration::from_secs(1_795_148_864);

/// The client, the bridge's configuration and the gateway.
pub(crate) struct HarnessConfig {
    /// The client's query string.
    pub(crate) query: String,
    /// The gateway.
    pub(crate) simulator: SimulatorConfig,
    /// The configured voices and speech models.
    pub(crate) voices: VoiceCatalog,
    /// Latency between bridge and gateway, each way.
    pub(crate) latency: Duration,
    /// The mappings in use.
    pub(crate) library: Library,
    pub(crate) client: &'static str,
    pub(crate) upstream: &'static str,
    pub(crate) profile: &'static str,
    /// Seed of the bridge's ids and jitter.
    pub(crate) seed: u64,
    /// Time limit of the session, ms; 0 for none.
    pub(crate) session_max_ms: u64,
    /// Records the session, keeping this much audio.
    pub(crate) record: Option<AudioRetention>,
    /// Workers that other clients hold when the session opens.
    pub(crate) taken_workers: u64,
    /// The gateway's speech engines.
    pub(crate) engines: Option<fn(EngineRequest) -> EngineAnswer>,
    /// Judges the ends of turns.
    pub(crate) judge: Option<ScriptedJudge>,
    /// A worker is free in every pause, and no one waits for it.
    pub(crate) has_free_worker: bool,
    /// The server refuses this many handshakes.
    pub(crate) refused_handshakes: usize,
    /// Answers HTTP requests, for dialects that send them.
    pub(crate) http: HttpScript,
}

/// A scripted server that answers HTTP requests.
#[derive(Debug, Clone, Default)]
pub(crate) struct HttpScript {
    /// How it fails; `None` for answers.
    pub(crate) failure: Option<HttpFailure>,
    /// Number of requests that fail.
    pub(crate) failures: usize,
    /// Time before each part of an answer.
    pub(crate) delay: Duration,
}

/// How an HTTP request fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpFailure {
    /// Nothing ever comes.
    Stuck,
    /// This status.
    Status(u16),
    /// The connection breaks behind the first part.
    DiesMidAnswer,
}

/// Words of the scripted server.
pub(crate) const HTTP_WORDS: [&str; 2] = ["these words ", "are scripted"];
/// Samples of its speech: a second at 24 kHz.
pub(crate) static HTTP_SPEECH: [i16; 24_000] = [4000; 24_000];

/// The probability that the user has finished, from the audio that ends in the pause; `None` if the model is too busy.
pub(crate) type Judgement = dyn FnMut(&[i16]) -> Option<f32>;

/// Judges the ends of turns, after a virtual time.
pub(crate) struct ScriptedJudge {
    pub(crate) takes: Duration,
    pub(crate) verdict: Box<Judgement>,
}

impl HarnessConfig {
    /// A conversation in full duplex, on two workers, whose profile also transcribes the user.
    pub(super) fn transcribed_conversation() -> Self {
        let mut config = Self { profile: "transcribed", ..Self::default() };
        let profile = "kind = \"profile\"\nname = \"transcribed\"\ntitle = \"t\"\nextends = \"conversation\"\nmode = \"audio\"\n\
            [converse]\ntranscribe_user = true\n";
        config.library.add("transcribed.toml", profile).unwrap();
        config.simulator.workers = 2;
        config
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
            taken_workers: 0,
            engines: None,
            judge: None,
            has_free_worker: true,
            refused_handshakes: 0,
            http: HttpScript::default(),
        }
    }
}

impl HarnessConfig {
    /// The default with these gateway faults (`NAME[=VALUE][,times=N]`).
    pub(crate) fn with_faults(faults: &[&str]) -> Self {
        let mut config = Self::default();
        config.simulator.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        config
    }
}

/// A frame that the client received.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ClientFrame {
    Event(Value),
    Binary(Bytes),
    Close(u16, String),
}

impl ClientFrame {
    /// The event's type, `binary` or `close CODE`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("?").to_owned(),
            Self::Binary(_) => "binary".to_owned(),
            Self::Close(code, _) => format!("close {code}"),
        }
    }
}

/// An event between bridge and gateway, at the bridge's time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Traffic {
    /// The bridge dials.
    Dialled(Lane),
    /// The lane is up.
    Opened(Lane),
    /// From the bridge.
    Sent(Lane, String),
    /// From the gateway.
    Received(Lane, String),
    /// A piece of the body of an answer by HTTP.
    Body(Lane, Vec<u8>),
    /// The bridge dropped the transport.
    Dropped(Lane),
    /// The transport was lost.
    Closed(Lane, DisconnectReason),
}

/// A frame in transit.
#[derive(Debug)]
enum InFlight {
    Connect(Lane, Mode),
    ToGateway(Lane, Message),
    Hangup(Lane),
    Opened(Lane),
    ToBridge(Lane, String),
    Answer(Lane, AnswerPart),
    Body(Lane, Vec<u8>),
    Closed(Lane, DisconnectReason),
}

impl InFlight {
    const fn lane(&self) -> Lane {
        match self {
            Self::Connect(lane, _)
            | Self::ToGateway(lane, _)
            | Self::Hangup(lane)
            | Self::Opened(lane)
            | Self::ToBridge(lane, _)
            | Self::Answer(lane, _)
            | Self::Body(lane, _)
            | Self::Closed(lane, _) => *lane,
        }
    }
}

/// One bridge, one gateway, one clock.
pub(crate) struct Harness {
    bridge: Bridge,
    dialect: SimDialect,
    gateway: Gateway,
    started: Instant,
    now: Instant,
    latency: Duration,
    in_flight: VecDeque<(Instant, InFlight)>,
    /// The bridge's lanes; true for those that are up.
    lanes: BTreeMap<Lane, bool>,
    bridge_wait: Option<Instant>,
    gateway_wait: Option<Instant>,
    client_open: bool,
    /// Messages not yet received by a client that does not read; `None` for one that reads.
    unread: Option<Vec<(Message, Option<SpeechId>)>>,
    /// A client that reads slowly.
    pub(crate) reader: Reader,
    /// The bridge has finished.
    pub(crate) finished: bool,
    /// Bytes of audio the client sent.
    pub(crate) sent_bytes: u64,
    /// All frames the client received, with their times.
    pub(crate) log: Vec<(Duration, ClientFrame)>,
    /// The text frames among them, unchanged.
    pub(crate) texts: Vec<String>,
    /// All messages the client received, unchanged, with their times.
    pub(crate) received: Vec<(Duration, Message)>,
    /// Purposes of all lanes.
    pub(crate) purposes: BTreeMap<Lane, (Mode, LanePurpose)>,
    mapping: Arc<UpstreamMapping>,
    refused_handshakes: usize,
    http: HttpScript,
    /// All traffic on the lanes.
    pub(crate) traffic: Vec<(Duration, Traffic)>,
    /// The bridge's observations for operators.
    pub(crate) observations: Vec<Observation>,
    /// Audio of every question the gateway received, float32 at 16 kHz.
    pub(crate) question_audio: Vec<Vec<f32>>,
    /// The opening of every full-duplex session.
    pub(crate) openings: Vec<(Lane, DuplexOpening)>,
    /// Every append of every full-duplex session, as the gateway received it.
    pub(crate) units: Vec<(Lane, DuplexUnit)>,
    /// Trace of the session.
    pub(crate) recorder: Option<TraceBuffer>,
    /// All inputs of the bridge so far.
    pub(crate) steps: Vec<BridgeStep>,
    /// The gateway's connections of other clients.
    other_clients: Vec<ConnId>,
    engines: Option<fn(EngineRequest) -> EngineAnswer>,
    judge: Option<ScriptedJudge>,
    has_free_worker: bool,
    /// Answers to the bridge's questions about pauses, with the times when they come.
    pause_answers: VecDeque<(Instant, Input<'static>)>,
    /// Lengths of the audio of every question to the judge, samples.
    pub(crate) judged: Vec<usize>,
}

/// One input of the bridge, up to the next `Wait`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BridgeStep {
    /// Bytes of the frame, if the input is one.
    pub(crate) frame_bytes: usize,
    /// The input is a frame of the client.
    pub(crate) is_from_client: bool,
    /// Outputs before `Wait`.
    pub(crate) outputs: usize,
    /// Memory allocations of this step.
    pub(crate) allocations: AllocationInfo,
}

impl BridgeStep {
    fn new(input: &Input<'_>) -> Self {
        let (is_from_client, frame_bytes) = match input {
            Input::Client(Frame::Text(text)) => (true, text.len()),
            Input::Client(Frame::Binary(bytes)) => (true, bytes.len()),
            Input::Lane(_, Frame::Text(text)) => (false, text.len()),
            _ => (false, 0),
        };
        let allocations = AllocationInfo::default();
        Self { frame_bytes, is_from_client, outputs: 0, allocations }
    }
}

impl Harness {
    /// Opens a session.
    pub(crate) fn new(config: HarnessConfig) -> Self {
        let client = config.library.client(config.client).unwrap();
        let upstream = config.library.upstream(config.upstream).unwrap();
        let profile = config.library.profile(config.profile).unwrap();
        let mut setup = SessionSetup::new(&client, profile, &upstream.clone().into(), config.seed);
        setup.voice_catalog = Arc::new(config.voices);
        setup.session_max_ms = config.session_max_ms;
        setup.has_turn_judge = config.judge.is_some();
        let mut codec = Codec::new(client, UNIX.as_secs_f64());
        let connect = codec.decode_query(&config.query);
        let recorder = config.record.map(|audio| {
            let (library, client) = (&config.library, codec.mapping());
            let parts = SessionParts {
                library,
                client,
                dialects: &upstream.clone().into(),
                query: &config.query,
                opened_unix: UNIX,
            };
            TraceBuffer::new(epoch(), TraceHeader::new(parts, &setup), audio)
        });
        let bridge = Bridge::open(epoch(), codec, connect, upstream.clone(), setup);
        let mut harness = Self::with_bridge(
            (bridge, upstream),
            recorder,
            config.simulator,
            config.latency,
            config.taken_workers,
        );
        harness.refused_handshakes = config.refused_handshakes;
        harness.http = config.http;
        harness.engines = config.engines;
        harness.judge = config.judge;
        harness.has_free_worker = config.has_free_worker;
        harness
    }

    /// Opens a relay session for a client of one of these protocols.
    pub(crate) fn new_relay(config: HarnessConfig, clients: &[&str]) -> Self {
        let clients: Vec<_> = clients.iter().map(|name| config.library.client(name).unwrap()).collect();
        let profile = config.library.profile(config.profile).unwrap();
        let setup = RelaySetup {
            profile,
            idle_ms: None,
            session_max_ms: config.session_max_ms,
            unix_s: UNIX.as_secs_f64(),
            seed: config.seed,
        };
        let upstream = config.library.upstream(config.upstream).unwrap();
        let recorder = config.record.map(|audio| {
            let (library, client, query) = (&config.library, &clients[0], config.query.as_str());
            let parts = SessionParts {
                library,
                client,
                dialects: &upstream.clone().into(),
                query,
                opened_unix: UNIX,
            };
            TraceBuffer::new(epoch(), TraceHeader::relayed(parts, &clients[1..], &setup), audio)
        });
        let bridge = Bridge::open_relay(epoch(), &clients, &config.query, upstream.clone(), setup);
        Self::with_bridge(
            (bridge, upstream),
            recorder,
            config.simulator,
            config.latency,
            config.taken_workers,
        )
    }

    /// Injects an upstream frame that the gateway would not send.
    pub(crate) fn inject_upstream_text(&mut self, lane: Lane, text: &str) {
        self.traffic.push((self.now(), Traffic::Received(lane, text.to_owned())));
        self.feed_bridge_and_settle(Input::Lane(lane, Frame::Text(text)));
    }

    /// A connection that the bridge rejects with this error.
    pub(crate) fn new_refused(config: HarnessConfig, error: &Error) -> Self {
        let codec = Codec::new(config.library.client(config.client).unwrap(), UNIX.as_secs_f64());
        let upstream = config.library.upstream(config.upstream).unwrap();
        let bridge = Bridge::reject(epoch(), codec, upstream.clone(), error);
        Self::with_bridge((bridge, upstream), None, config.simulator, config.latency, 0)
    }

    fn with_bridge(
        (bridge, mapping): (Bridge, Arc<UpstreamMapping>),
        recorder: Option<TraceBuffer>,
        simulator: SimulatorConfig,
        latency: Duration,
        taken_workers: u64,
    ) -> Self {
        let started = epoch();
        let mut harness = Self {
            bridge,
            dialect: simulator.dialect,
            gateway: Gateway::new(simulator, started, UNIX),
            started,
            now: started,
            latency,
            in_flight: VecDeque::new(),
            lanes: BTreeMap::new(),
            bridge_wait: None,
            gateway_wait: None,
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
            traffic: Vec::new(),
            observations: Vec::new(),
            question_audio: Vec::new(),
            openings: Vec::new(),
            units: Vec::new(),
            recorder,
            steps: Vec::new(),
            engines: None,
            judge: None,
            has_free_worker: false,
            pause_answers: VecDeque::new(),
            judged: Vec::new(),
            other_clients: (0..taken_workers).map(|number| ConnId(OTHER_CLIENTS_FROM + number)).collect(),
        };
        for other in harness.other_clients.clone() {
            harness.feed_gateway(SimInput::Connected(other, SimMode::Chat));
        }
        harness.poll_bridge(&mut BridgeStep::new(&Input::Timeout));
        harness.poll_gateway();
        harness.process_due();
        harness
    }

    /// Virtual time since the session was opened.
    pub(crate) fn now(&self) -> Duration {
        self.now - self.started
    }

    /// True if the client's connection has ended.
    pub(crate) fn is_closed(&self) -> bool {
        !self.client_open
    }

    /// The bridge, for its counters.
    pub(crate) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// The current read window: how long client audio may stay unread.
    pub(crate) fn read_window(&self) -> Option<ReadWindow> {
        self.report().read_window
    }

    /// The session's state, and what the driver takes into account.
    pub(crate) fn report(&self) -> SessionReport {
        self.bridge.report(self.now)
    }

    /// Other clients give back the workers that they hold.
    pub(crate) fn release_workers(&mut self) {
        while let Some(other) = self.other_clients.pop() {
            self.feed_gateway(SimInput::Text(other, r#"{"type":"session.close"}"#));
        }
        self.process_due();
    }

    /// Number of workers that the gateway has lost, because a client left the queue.
    pub(crate) fn lost_workers(&self) -> usize {
        self.gateway.lost_worker_count()
    }

    /// True if the bridge has finished, or only waits until lanes have left the gateway's queue. Nothing else is left then.
    pub(crate) fn is_over(&self) -> bool {
        let is_over = self.finished || self.report().only_waits_in_queue;
        is_over && self.gateway.connection_count() == self.lanes.len()
    }

    /// Number of connections that the bridge has dialled.
    pub(crate) fn dial_count(&self) -> usize {
        self.traffic.iter().filter(|(_, traffic)| matches!(traffic, Traffic::Dialled(_))).count()
    }

    /// Number of the gateway's connections.
    pub(crate) fn connections(&self) -> usize {
        self.gateway.connection_count()
    }

    /// The client sends this text frame unchanged.
    pub(crate) fn send_text(&mut self, text: &str) {
        self.feed_bridge_and_settle(Input::Client(Frame::Text(text)));
    }

    /// The client sends JSON.
    pub(crate) fn send_json(&mut self, command: &Value) {
        self.send_text(&command.to_string());
    }

    /// The client sends a binary frame.
    pub(crate) fn send_binary(&mut self, bytes: &[u8]) {
        self.sent_bytes += bytes.len() as u64;
        self.feed_bridge_and_settle(Input::Client(Frame::Binary(bytes)));
    }

    /// The client's microphone: sends frames of `frame_ms`, each at its start in real time, then waits for
    /// the end of the last one.
    pub(crate) fn stream(&mut self, samples: &[i16], frame_ms: u64) {
        for frame in samples.chunks((16 * frame_ms) as usize) {
            self.send_binary(&bytes_of(frame));
            self.advance(Duration::from_millis(frame_ms));
        }
    }

    /// The client stops reading.
    pub(crate) fn stop_reading(&mut self) {
        self.unread.get_or_insert_default();
    }

    /// The client reads again: everything that the server still holds for it.
    pub(crate) fn resume_reading(&mut self) {
        let unread = self.unread.take().unwrap_or_default();
        unread.into_iter().for_each(|(message, _)| self.record_client_frame(message));
    }

    /// The client reads this fast from now on, bytes a second; 0 for a client that pauses.
    pub(crate) fn set_reading_rate(&mut self, bytes_per_second: u64) {
        self.reader.set_rate(self.now, bytes_per_second);
        self.process_due();
    }

    /// Reports the flow control to the bridge, as the driver does. Returns true if it has changed.
    fn update_flow(&mut self) -> bool {
        let flow = self.reader.changed_flow(&self.bridge.report(self.now)).filter(|_| self.client_open);
        flow.into_iter().for_each(|flow| self.feed_bridge(Input::Flow(flow)));
        flow.is_some()
    }

    /// True if the bridge's driver does not read the frame now.
    fn is_held(&self, frame: &InFlight) -> bool {
        let is_to_bridge = matches!(
            frame,
            InFlight::ToBridge(..) | InFlight::Answer(..) | InFlight::Body(..) | InFlight::Closed(..)
        );
        is_to_bridge && self.reader.are_lanes_held() && self.bridge.is_lane_held(frame.lane())
    }

    /// The client's transport is lost.
    pub(crate) fn close_client(&mut self) {
        self.client_open = false;
        self.reader.leave();
        self.feed_bridge_and_settle(Input::ClientClosed);
    }

    /// Starts the drain, as a stopping voxbridge does.
    pub(crate) fn drain(&mut self) {
        self.feed_bridge_and_settle(Input::Drain(DRAIN_TIME));
    }

    /// True if the session reported that a drain cut off speech or an answer.
    pub(crate) fn was_cut_off(&self) -> bool {
        let cut_off = Observation::Measured(Measurement::SessionEnding(EndReason::CutOff));
        self.observations.contains(&cut_off)
    }

    /// An operator closes the session.
    pub(crate) fn order_close(&mut self) {
        self.feed_bridge_and_settle(Input::Close(DRAIN_TIME));
    }

    /// Another upstream has room for a lane that waits in the queue. In this harness it is the same one.
    pub(crate) fn find_place(&mut self, lane: Lane) {
        self.feed_bridge_and_settle(Input::PlaceFound(lane));
    }

    /// An operator orders a rollover.
    pub(crate) fn order_rollover(&mut self) {
        self.feed_bridge_and_settle(Input::Rollover);
    }

    /// Breaks the network between bridge and gateway: both sides lose every lane and all frames in transit.
    pub(crate) fn break_lanes(&mut self) {
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
    pub(crate) fn break_lane(&mut self, lane: Lane) {
        self.feed_gateway(SimInput::Closed(conn_of(lane)));
        self.in_flight.retain(|(_, frame)| frame.lane() != lane);
        let reason = DisconnectReason::Lost("Connection reset by peer (os error 104)".to_owned());
        if self.lanes.remove(&lane).is_some() {
            self.traffic.push((self.now(), Traffic::Closed(lane, reason.clone())));
            self.feed_bridge_and_settle(Input::LaneClosed(lane, reason));
        }
    }

    /// The open lanes, oldest first.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// Kills the gateway with every lane and starts another.
    pub(crate) fn replace_gateway(&mut self, simulator: SimulatorConfig) {
        self.gateway = Gateway::new(simulator, self.now, UNIX + self.now());
        self.gateway_wait = None;
        self.break_lanes();
    }

    /// Injects this fault into the gateway from now on.
    pub(crate) fn inject_fault(&mut self, fault: &str) {
        self.feed_gateway(SimInput::AddFault(fault.parse().unwrap()));
        self.process_due();
    }

    /// The server recovers: no fault is left, and it refuses nothing.
    pub(crate) fn end_trouble(&mut self) {
        self.refused_handshakes = 0;
        self.http.failure = None;
        self.feed_gateway(SimInput::ClearFaults);
        self.process_due();
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next_deadline().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.process_due();
        }
        self.now = end;
    }

    /// Lets time pass until the condition holds and returns that time; `None` if the limit passes first.
    pub(crate) fn run_until(
        &mut self,
        mut condition: impl FnMut(&Self) -> bool,
        limit: Duration,
    ) -> Option<Duration> {
        let end = self.now + limit;
        while !condition(self) {
            let Some(next) = self.next_deadline().filter(|next| *next <= end) else {
                self.now = end;
                return None;
            };
            self.now = self.now.max(next);
            self.process_due();
        }
        Some(self.now())
    }

    /// Lets time pass until the client has received another event of this type, and returns it.
    ///
    /// # Panics
    /// If none comes within a virtual minute.
    pub(crate) fn next_event(&mut self, name: &str) -> Value {
        let seen_before = self.events(name).len();
        let limit = Duration::from_secs(60);
        let arrived = self.run_until(|harness| harness.events(name).len() > seen_before, limit);
        assert!(arrived.is_some(), "no {name} within {limit:?}; the client saw {:?}", self.names());
        self.events(name)[seen_before].clone()
    }

    /// Everything measured so far.
    pub(crate) fn measurements(&self) -> Vec<Measurement> {
        let measured = self.observations.iter().filter_map(|observation| match observation {
            Observation::Measured(measurement) => Some(*measurement),
            _ => None,
        });
        measured.collect()
    }

    /// Every event of this type so far.
    pub(crate) fn events(&self, name: &str) -> Vec<&Value> {
        let all = self.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Event(event) => Some(event),
            _ => None,
        });
        all.filter(|event| event["type"] == name).collect()
    }

    /// Names of the client's frames by [`ClientFrame::name`]; a run of binary frames counts as one.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.log.iter().map(|(_, frame)| frame.name()).collect();
        names.dedup_by(|next, last| next == "binary" && last == "binary");
        names
    }

    /// All audio the client received, int16.
    pub(crate) fn audio(&self) -> Vec<i16> {
        let frames = self.binary_frames();
        frames
            .flat_map(|frame| frame.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])))
            .collect()
    }

    /// The bytes of all binary frames that the client received.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.binary_frames().flatten().copied().collect()
    }

    fn binary_frames(&self) -> impl Iterator<Item = &Bytes> {
        self.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Binary(bytes) => Some(bytes),
            _ => None,
        })
    }

    /// Messages of the bridge that contain this text.
    pub(crate) fn sent_containing(&self, text: &str) -> Vec<&str> {
        let sent = self.traffic.iter().filter_map(|(_, traffic)| match traffic {
            Traffic::Sent(_, message) if message.contains(text) => Some(message.as_str()),
            _ => None,
        });
        sent.collect()
    }

    /// Number of gateway messages that contain this text.
    pub(crate) fn received_count(&self, text: &str) -> usize {
        let has =
            |traffic: &Traffic| matches!(traffic, Traffic::Received(_, message) if message.contains(text));
        self.traffic.iter().filter(|(_, traffic)| has(traffic)).count()
    }

    fn feed_bridge_and_settle(&mut self, input: Input<'_>) {
        self.feed_bridge(input);
        self.process_due();
    }

    fn feed_bridge(&mut self, input: Input<'_>) {
        if let Some(recorder) = &mut self.recorder {
            recorder.record_input(self.now, &input);
        }
        let mut step = BridgeStep::new(&input);
        step.allocations += measure(|| self.bridge.handle_input(self.now, input));
        self.poll_bridge(&mut step);
        self.steps.push(step);
    }

    fn feed_gateway(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(self.now, input);
        self.poll_gateway();
    }

    fn poll_bridge(&mut self, step: &mut BridgeStep) {
        for _ in 0..MAX_STEPS_PER_INSTANT {
            let mut output = Output::Finished;
            step.allocations += measure(|| output = self.bridge.poll_output(self.now));
            if let Some(recorder) = &mut self.recorder {
                recorder.record_output(self.now, &output);
            }
            step.outputs += usize::from(!matches!(output, Output::Wait(_)));
            match output {
                Output::Wait(until) => {
                    self.bridge_wait = until;
                    return;
                }
                Output::Finished => {
                    assert!(self.lanes.is_empty(), "finished with lanes open: {:?}", self.lanes);
                    self.bridge_wait = None;
                    self.finished = true;
                    return;
                }
                Output::ToClient(message, turn) => match &mut self.unread {
                    Some(unread) => unread.push((message, turn)),
                    None => {
                        let read = self.reader.send(self.now, message, turn);
                        read.into_iter().for_each(|message| self.record_client_frame(message));
                    }
                },
                Output::DropTurn { turn, .. } => {
                    self.reader.drop_turn(turn);
                    self.unread.iter_mut().for_each(|unread| unread.retain(|(_, tag)| *tag != Some(turn)));
                }
                Output::Observe(observation) => self.observations.push(observation),
                Output::JudgeTurn(pause, audio) => {
                    self.judged.push(audio.len());
                    let judge = self.judge.as_mut().expect("the session knows that there is a judge");
                    let answer = Input::TurnJudged(pause, (judge.verdict)(&audio));
                    self.pause_answers.push_back((self.now + judge.takes, answer));
                }
                Output::WithdrawJudgement => {
                    let before = self.pause_answers.len();
                    self.pause_answers.retain(|(_, answer)| !matches!(answer, Input::TurnJudged(..)));
                    assert!(
                        self.pause_answers.len() < before,
                        "only a question without a verdict is withdrawn"
                    );
                }
                Output::FindWorker(pause, lane) if self.has_free_worker => {
                    assert_eq!(self.lanes.get(&lane), Some(&true), "{lane:?} cannot be asked on");
                    self.pause_answers.push_front((self.now, Input::WorkerFound(pause)));
                }
                Output::FindWorker(..) => {}
                Output::Request(lane, request) => self.answer_request(lane, &request.path),
                Output::OpenLane(lane, mode, purpose) | Output::ReopenLane(lane, mode, purpose) => {
                    self.purposes.insert(lane, (mode, purpose));
                    assert!(self.lanes.insert(lane, false).is_none(), "{lane:?} is opened twice");
                    self.traffic.push((self.now(), Traffic::Dialled(lane)));
                    self.send_delayed(InFlight::Connect(lane, mode));
                }
                Output::ToLane(lane, message) => {
                    assert_eq!(self.lanes.get(&lane), Some(&true), "{lane:?} is not up for {message:?}");
                    if let Message::Text(text) = &message {
                        self.traffic.push((self.now(), Traffic::Sent(lane, text.clone())));
                    }
                    self.send_delayed(InFlight::ToGateway(lane, message));
                }
                Output::CloseLane(lane) => {
                    assert!(self.lanes.remove(&lane).is_some(), "{lane:?} is closed but not open");
                    self.traffic.push((self.now(), Traffic::Dropped(lane)));
                    self.send_delayed(InFlight::Hangup(lane));
                }
            }
        }
        panic!("the bridge never waits; the client saw {:?}", self.names());
    }

    /// Answers an HTTP request by a body of speech where only texts to speak go, otherwise by a stream.
    fn answer_request(&mut self, lane: Lane, path: &str) {
        assert!(self.mapping.is_http(), "{lane:?} has a WebSocket");
        let failure = self.http.failure.filter(|_| self.http.failures > 0);
        self.http.failures = self.http.failures.saturating_sub(1);
        let is_for = |name| self.mapping.request_path(name) == Some(path);
        let is_speech = is_for(SendName::Speak) && !is_for(SendName::Transcribe) && !is_for(SendName::Chat);
        let head = |status, kind: &str| {
            InFlight::Answer(lane, AnswerPart::Head { status, content_type: kind.to_owned() })
        };
        let mut parts = match failure {
            Some(HttpFailure::Stuck) => return,
            Some(HttpFailure::Status(status)) => {
                let page = r#"{"error": {"message": "refused by script"}}"#;
                vec![head(status, "application/json"), InFlight::ToBridge(lane, page.to_owned())]
            }
            _ if is_speech => {
                let bytes = bytes_of(&HTTP_SPEECH);
                let pieces = bytes.chunks(24_000).map(|piece| InFlight::Body(lane, piece.to_vec()));
                std::iter::once(head(200, "audio/pcm")).chain(pieces).collect()
            }
            _ => {
                let is_transcript = self.purposes[&lane].1 == LanePurpose::Transcribe;
                let mut messages: Vec<_> = HTTP_WORDS
                    .iter()
                    .map(|words| self.mapping.example(ReceiveName::Text, words, ""))
                    .collect();
                if !is_transcript {
                    let mut audio = String::new();
                    pcm::encode_base64(&wav::write_s16(&HTTP_SPEECH, 24_000), &mut audio);
                    let example = |event| self.mapping.example(event, "", &audio);
                    messages.push(example(ReceiveName::Audio).or_else(|| example(ReceiveName::Text)));
                }
                let messages = messages.into_iter().flatten().map(|text| InFlight::ToBridge(lane, text));
                std::iter::once(head(200, "text/event-stream")).chain(messages).collect()
            }
        };
        if failure == Some(HttpFailure::DiesMidAnswer) {
            parts.truncate(2);
            let reason = "Connection reset by peer (os error 104)".to_owned();
            parts.push(InFlight::Closed(lane, DisconnectReason::Lost(reason)));
        } else {
            parts.push(InFlight::Answer(lane, AnswerPart::End));
        }
        for (at, part) in (1..).zip(parts) {
            self.send_after(self.http.delay * at, part);
        }
    }

    fn record_client_frame(&mut self, message: Message) {
        assert!(self.client_open, "message to a client that is gone: {message:?}");
        self.received.push((self.now(), message.clone()));
        let frame = match message {
            Message::Text(text) => {
                let is_json = text.starts_with('{');
                let event =
                    if is_json { serde_json::from_str(&text).unwrap() } else { Value::from(text.as_str()) };
                self.texts.push(text);
                ClientFrame::Event(event)
            }
            Message::Binary(bytes) => ClientFrame::Binary(bytes),
            Message::Close(code, reason) => {
                self.client_open = false;
                ClientFrame::Close(code, reason)
            }
        };
        self.log.push((self.now(), frame));
    }

    fn poll_gateway(&mut self) {
        for _ in 0..MAX_STEPS_PER_INSTANT {
            let frame = match self.gateway.poll_output(self.now) {
                SimOutput::Wait(until) => {
                    self.gateway_wait = until;
                    return;
                }
                SimOutput::AsrAudio(_, samples) => {
                    self.question_audio.push(samples);
                    continue;
                }
                SimOutput::DuplexOpened(conn, opening) => {
                    self.openings.push((lane_of(conn), opening));
                    continue;
                }
                SimOutput::DuplexUnit(conn, unit) => {
                    self.units.push((lane_of(conn), unit));
                    continue;
                }
                SimOutput::Text(conn, _)
                | SimOutput::Close(conn, ..)
                | SimOutput::Abort(conn)
                | SimOutput::Refuse(conn, _)
                    if conn.0 >= OTHER_CLIENTS_FROM =>
                {
                    continue;
                }
                SimOutput::AskEngines(job, request) => {
                    let answer = self.engines.expect("the test has engines")(request);
                    self.gateway.handle_input(self.now, SimInput::EngineDone(job, answer));
                    continue;
                }
                SimOutput::Text(conn, text) => InFlight::ToBridge(lane_of(conn), text),
                SimOutput::Close(conn, code, reason) => {
                    InFlight::Closed(lane_of(conn), DisconnectReason::Closed(code, reason))
                }
                SimOutput::Refuse(conn, page) => {
                    let lane = lane_of(conn);
                    self.in_flight
                        .retain(|(_, frame)| !matches!(frame, InFlight::Opened(known) if *known == lane));
                    InFlight::Closed(lane, DisconnectReason::HttpRejected(page.status))
                }
                SimOutput::Abort(conn) => InFlight::Closed(
                    lane_of(conn),
                    DisconnectReason::Lost("Connection reset by peer (os error 104)".to_owned()),
                ),
            };
            self.send_delayed(frame);
        }
        panic!("the gateway never waits");
    }

    fn send_delayed(&mut self, frame: InFlight) {
        self.send_after(self.latency, frame);
    }

    fn send_after(&mut self, delay: Duration, frame: InFlight) {
        let at = self.now + delay;
        let place = self.in_flight.iter().rposition(|(known, _)| *known <= at).map_or(0, |place| place + 1);
        self.in_flight.insert(place, (at, frame));
    }

    /// Time of the next event.
    fn next_deadline(&self) -> Option<Instant> {
        let mut unheld = self.in_flight.iter().filter(|(_, frame)| !self.is_held(frame));
        let frame = unheld.next().map(|(at, _)| *at);
        let answer = self.pause_answers.front().map(|(at, _)| *at);
        [frame, answer, self.reader.next_read(), self.bridge_wait, self.gateway_wait]
            .into_iter()
            .flatten()
            .min()
    }

    /// Processes everything due now.
    fn process_due(&mut self) {
        for _ in 0..MAX_STEPS_PER_INSTANT {
            if self.update_flow() {
                continue;
            }
            if let Some(message) = self.reader.read(self.now) {
                self.record_client_frame(message);
            } else if let Some(frame) = self.take_due_frame() {
                self.deliver(frame);
            } else if let Some(answer) = self.take_due_answer() {
                self.feed_bridge(answer);
            } else if self.gateway_wait.is_some_and(|at| at <= self.now) {
                self.feed_gateway(SimInput::Timeout);
            } else if self.bridge_wait.is_some_and(|at| at <= self.now) {
                self.feed_bridge(Input::Timeout);
            } else {
                return;
            }
        }
        panic!("something is always due at {:?}; the client saw {:?}", self.now(), self.names());
    }

    fn take_due_frame(&mut self) -> Option<InFlight> {
        let is_due = |(at, frame): &(Instant, InFlight)| *at <= self.now && !self.is_held(frame);
        let at = self.in_flight.iter().position(is_due)?;
        self.in_flight.remove(at).map(|(_, frame)| frame)
    }

    fn take_due_answer(&mut self) -> Option<Input<'static>> {
        self.pause_answers.front().filter(|(at, _)| *at <= self.now)?;
        self.pause_answers.pop_front().map(|(_, answer)| answer)
    }

    fn deliver(&mut self, frame: InFlight) {
        match frame {
            InFlight::Connect(lane, _) if self.refused_handshakes > 0 => {
                self.refused_handshakes -= 1;
                self.send_delayed(InFlight::Closed(lane, DisconnectReason::HttpRejected(403)));
            }
            InFlight::Connect(lane, _) if self.mapping.is_http() => {
                self.send_delayed(InFlight::Opened(lane));
            }
            InFlight::Connect(lane, mode) => match self.dialect.parse_mode(Some(mode_query(mode))) {
                Ok(mode) => {
                    self.send_delayed(InFlight::Opened(lane));
                    self.feed_gateway(SimInput::Connected(conn_of(lane), mode));
                }
                Err(refused) => {
                    self.send_delayed(InFlight::Closed(lane, DisconnectReason::HttpRejected(refused.status)));
                }
            },
            InFlight::Hangup(_) if self.mapping.is_http() => {}
            InFlight::ToGateway(lane, Message::Text(text)) => {
                self.feed_gateway(SimInput::Text(conn_of(lane), &text));
            }
            InFlight::ToGateway(lane, Message::Binary(_)) => {
                self.feed_gateway(SimInput::Binary(conn_of(lane)));
            }
            InFlight::ToGateway(lane, Message::Close(..)) | InFlight::Hangup(lane) => {
                self.feed_gateway(SimInput::Closed(conn_of(lane)));
            }
            // A lane that the bridge dropped delivers nothing, even if frames are in transit.
            InFlight::Opened(lane)
            | InFlight::ToBridge(lane, _)
            | InFlight::Answer(lane, _)
            | InFlight::Body(lane, _)
            | InFlight::Closed(lane, _)
                if !self.lanes.contains_key(&lane) => {}
            InFlight::Opened(lane) => {
                self.lanes.insert(lane, true);
                self.traffic.push((self.now(), Traffic::Opened(lane)));
                self.feed_bridge(Input::LaneOpened(lane));
            }
            InFlight::ToBridge(lane, text) => {
                self.traffic.push((self.now(), Traffic::Received(lane, text.clone())));
                self.feed_bridge(Input::Lane(lane, Frame::Text(&text)));
            }
            InFlight::Answer(lane, part) => self.feed_bridge(Input::Answer(lane, part)),
            InFlight::Body(lane, bytes) => {
                self.traffic.push((self.now(), Traffic::Body(lane, bytes.clone())));
                self.feed_bridge(Input::Lane(lane, Frame::Binary(&bytes)));
            }
            InFlight::Closed(lane, why) => {
                self.lanes.remove(&lane);
                self.traffic.push((self.now(), Traffic::Closed(lane, why.clone())));
                self.feed_bridge(Input::LaneClosed(lane, why));
            }
        }
    }
}

/// The instant at which every run starts.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *EPOCH.get_or_init(Instant::now)
}

fn conn_of(lane: Lane) -> ConnId {
    ConnId(lane.0.into())
}

fn mode_query(mode: Mode) -> &'static str {
    match mode {
        Mode::Chat => "mode=chat",
        Mode::Audio => "mode=audio",
        Mode::Video => "mode=video",
    }
}

fn lane_of(conn: ConnId) -> Lane {
    Lane(u32::try_from(conn.0).unwrap())
}

/// Samples as bytes on the wire.
pub(crate) fn bytes_of(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

/// A recording of `examples/speech`, int16 mono 16 kHz.
pub(crate) fn recording(file: &str) -> Vec<i16> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech").join(file);
    let mut wav = hound::WavReader::open(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!((wav.spec().sample_rate, wav.spec().channels), (16_000, 1), "{file}");
    wav.samples::<i16>().map(Result::unwrap).collect()
}

/// Digital silence.
pub(crate) fn zeros(ms: u64) -> Vec<i16> {
    vec![0; (16 * ms) as usize]
}
