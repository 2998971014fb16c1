//! One bridge and one simulated gateway in virtual time: no socket, no sleep, no task.
//!
//! [`Pair`] moves frames between the two and lets time pass from deadline to deadline, so a minute of conversation
//! takes milliseconds and is the same every time. It panics where the contract of [`Bridge`] or of the wire is broken:
//! outputs without end, frames on a lane that is not up, frames to a client that was closed.

use std::{
    collections::{BTreeMap, VecDeque},
    path::Path,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::Bytes;
use serde_json::Value;
use voxbridge::{
    bridge::{Bridge, Input, Output},
    downstream::Codec,
    error::Error,
    event::{Frame, Lane, Message, Mode, Why},
    mapping::Library,
    session::{Lull, Observation, RelaySetup, Setup, VoiceBook},
    simulator::{ConnId, Dialect, Gateway, Opening, SimInput, SimOutput, SimulatorConfig, Unit},
    trace::{Kept, Start, Tape, start::Parts},
};

/// Outputs in a row without `Wait`, and inputs at one instant, above which somebody is going round in circles.
const LIVELOCK: usize = 20_000;

/// Time to finish what goes on when a session is to end.
pub(crate) const PARTING: Duration = Duration::from_secs(25);

/// Wall clock of the virtual time's start.
const UNIX: Duration = Duration::from_secs(1_795_148_864);

/// What meets whom.
pub(crate) struct PairConfig {
    /// The client's query string.
    pub(crate) query: String,
    /// The gateway.
    pub(crate) simulator: SimulatorConfig,
    /// The configured voices and speech models.
    pub(crate) voices: VoiceBook,
    /// Time a frame takes between bridge and gateway, each way.
    pub(crate) latency: Duration,
    /// The mappings, and which of them serve.
    pub(crate) library: Library,
    pub(crate) client: &'static str,
    pub(crate) upstream: &'static str,
    pub(crate) profile: &'static str,
    /// Where the bridge's ids and jitter come from.
    pub(crate) seed: u64,
    /// The session ends after so long, ms; 0 for as long as it likes.
    pub(crate) session_max_ms: u64,
    /// The session is recorded with this audio.
    pub(crate) record: Option<Kept>,
}

impl Default for PairConfig {
    fn default() -> Self {
        Self {
            query: "model=any".to_owned(),
            simulator: SimulatorConfig { record: true, ..SimulatorConfig::default() },
            voices: VoiceBook::default(),
            latency: Duration::ZERO,
            library: Library::embedded().unwrap(),
            client: "macaw",
            upstream: "minicpm-o",
            profile: "speech",
            seed: 1,
            session_max_ms: 0,
            record: None,
        }
    }
}

impl PairConfig {
    /// The default with these faults (`NAME[=VALUE][,times=N]`) on the gateway's side.
    pub(crate) fn with_faults(faults: &[&str]) -> Self {
        let mut config = Self::default();
        config.simulator.faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
        config
    }
}

/// What the client saw.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Seen {
    Event(Value),
    Binary(Bytes),
    Close(u16, String),
}

impl Seen {
    /// The event's type, `binary` or `close CODE`.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("?").to_owned(),
            Self::Binary(_) => "binary".to_owned(),
            Self::Close(code, _) => format!("close {code}"),
        }
    }
}

/// What passed between bridge and gateway, when the bridge said or heard it.
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
    /// The bridge dropped the transport.
    Dropped(Lane),
    /// The transport is gone by itself.
    Closed(Lane, Why),
}

/// A frame under way.
#[derive(Debug)]
enum Flight {
    Connect(Lane, Mode),
    Up(Lane, Message),
    Hangup(Lane),
    Opened(Lane),
    Down(Lane, String),
    Closed(Lane, Why),
}

impl Flight {
    const fn lane(&self) -> Lane {
        match self {
            Self::Connect(lane, _)
            | Self::Up(lane, _)
            | Self::Hangup(lane)
            | Self::Opened(lane)
            | Self::Down(lane, _)
            | Self::Closed(lane, _) => *lane,
        }
    }
}

/// One bridge, one gateway, one clock.
pub(crate) struct Pair {
    bridge: Bridge,
    dialect: Dialect,
    gateway: Gateway,
    started: Instant,
    now: Instant,
    latency: Duration,
    flights: VecDeque<(Instant, Flight)>,
    /// Lanes the bridge has, and whether they are up.
    lanes: BTreeMap<Lane, bool>,
    bridge_wait: Option<Instant>,
    gateway_wait: Option<Instant>,
    client_open: bool,
    /// The bridge said that it is done.
    pub(crate) finished: bool,
    /// Audio the client sent.
    pub(crate) sent_bytes: u64,
    /// What the client saw, and when.
    pub(crate) log: Vec<(Duration, Seen)>,
    /// The text frames among it, as they came.
    pub(crate) texts: Vec<String>,
    /// What passed on the lanes.
    pub(crate) traffic: Vec<(Duration, Traffic)>,
    /// What the bridge tells operators.
    pub(crate) observed: Vec<Observation>,
    /// The audio of every question the gateway heard, float32 at 16 kHz.
    pub(crate) heard: Vec<Vec<f32>>,
    /// What every full-duplex session was opened with.
    pub(crate) openings: Vec<(Lane, Opening)>,
    /// Every append of every full-duplex session, as the gateway heard it.
    pub(crate) units: Vec<(Lane, Unit)>,
    /// What is recorded of it.
    pub(crate) tape: Option<Tape>,
}

impl Pair {
    /// Opens a session.
    pub(crate) fn new(config: PairConfig) -> Self {
        let client = config.library.client(config.client).unwrap();
        let upstream = config.library.upstream(config.upstream).unwrap();
        let profile = config.library.profile(config.profile).unwrap();
        let mut setup = Setup::new(&client, profile, &upstream, config.seed);
        setup.voices = Arc::new(config.voices);
        setup.session_max_ms = config.session_max_ms;
        let mut codec = Codec::new(client, UNIX.as_secs_f64());
        let connect = codec.connect(&config.query);
        let tape = config.record.map(|audio| {
            let (library, client) = (&config.library, codec.mapping());
            let parts =
                Parts { library, client, dialect: &upstream, query: &config.query, opened_unix: UNIX };
            Tape::new(epoch(), Start::new(parts, &setup), audio)
        });
        let bridge = Bridge::open(epoch(), codec, connect, upstream, setup);
        Self::around(bridge, tape, config.simulator, config.latency)
    }

    /// Opens a session for the client of a relay, which may be of any of these protocols.
    pub(crate) fn relayed(config: PairConfig, clients: &[&str]) -> Self {
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
        let tape = config.record.map(|audio| {
            let (library, client, query) = (&config.library, &clients[0], config.query.as_str());
            let parts = Parts { library, client, dialect: &upstream, query, opened_unix: UNIX };
            Tape::new(epoch(), Start::relayed(parts, &clients[1..], &setup), audio)
        });
        let bridge = Bridge::open_relay(epoch(), &clients, &config.query, upstream, setup);
        Self::around(bridge, tape, config.simulator, config.latency)
    }

    /// A frame from an upstream that the gateway would not send.
    pub(crate) fn upstream_says(&mut self, lane: Lane, text: &str) {
        self.traffic.push((self.now(), Traffic::Received(lane, text.to_owned())));
        self.tell_bridge(Input::Lane(lane, Frame::Text(text)));
    }

    /// A connection that is refused.
    pub(crate) fn refused(config: PairConfig, error: &Error) -> Self {
        let codec = Codec::new(config.library.client(config.client).unwrap(), UNIX.as_secs_f64());
        let upstream = config.library.upstream(config.upstream).unwrap();
        let bridge = Bridge::refuse(epoch(), codec, upstream, error);
        Self::around(bridge, None, config.simulator, config.latency)
    }

    fn around(bridge: Bridge, tape: Option<Tape>, simulator: SimulatorConfig, latency: Duration) -> Self {
        let started = epoch();
        let mut pair = Self {
            bridge,
            dialect: simulator.dialect,
            gateway: Gateway::new(simulator, started, UNIX),
            started,
            now: started,
            latency,
            flights: VecDeque::new(),
            lanes: BTreeMap::new(),
            bridge_wait: None,
            gateway_wait: None,
            client_open: true,
            finished: false,
            sent_bytes: 0,
            log: Vec::new(),
            texts: Vec::new(),
            traffic: Vec::new(),
            observed: Vec::new(),
            heard: Vec::new(),
            openings: Vec::new(),
            units: Vec::new(),
            tape,
        };
        pair.drain_bridge();
        pair.drain_gateway();
        pair.settle();
        pair
    }

    /// Virtual time since the session was opened.
    pub(crate) fn now(&self) -> Duration {
        self.now - self.started
    }

    /// Whether the client's connection is over.
    pub(crate) fn closed(&self) -> bool {
        !self.client_open
    }

    /// The bridge, for what it accounts for.
    pub(crate) fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// How long what the client streams may lie unread now.
    pub(crate) fn lull(&self) -> Option<Lull> {
        self.bridge.lull(self.now)
    }

    /// The gateway's connections.
    pub(crate) fn connections(&self) -> usize {
        self.gateway.connections()
    }

    /// The client sends a text frame as it is.
    pub(crate) fn client_text(&mut self, text: &str) {
        self.tell_bridge(Input::Client(Frame::Text(text)));
    }

    /// The client sends JSON.
    pub(crate) fn client(&mut self, command: &Value) {
        self.client_text(&command.to_string());
    }

    /// The client sends a binary frame.
    pub(crate) fn client_binary(&mut self, bytes: &[u8]) {
        self.sent_bytes += bytes.len() as u64;
        self.tell_bridge(Input::Client(Frame::Binary(bytes)));
    }

    /// The client's microphone: frames of `frame_ms`, each sent when real time has come to its start, and at the end
    /// the time of the last one passes too.
    pub(crate) fn stream(&mut self, samples: &[i16], frame_ms: u64) {
        for frame in samples.chunks((16 * frame_ms) as usize) {
            self.client_binary(&bytes_of(frame));
            self.advance(Duration::from_millis(frame_ms));
        }
    }

    /// The client's transport goes.
    pub(crate) fn close_client(&mut self) {
        self.client_open = false;
        self.tell_bridge(Input::ClientClosed);
    }

    /// voxbridge is told to stop.
    pub(crate) fn drain(&mut self) {
        self.tell_bridge(Input::Drain(PARTING));
    }

    /// An operator ends the session.
    pub(crate) fn operator_closes(&mut self) {
        self.tell_bridge(Input::Close(PARTING));
    }

    /// An operator wants another upstream session.
    pub(crate) fn operator_rolls_over(&mut self) {
        self.tell_bridge(Input::Rollover);
    }

    /// The network between bridge and gateway breaks: every lane is lost on both sides, what was under way too.
    pub(crate) fn break_lanes(&mut self) {
        for (_, flight) in std::mem::take(&mut self.flights) {
            if let Flight::Hangup(lane) = flight {
                self.tell_gateway(SimInput::Closed(conn(lane)));
            }
        }
        let lost: Vec<Lane> = self.lanes.keys().copied().collect();
        for lane in &lost {
            self.tell_gateway(SimInput::Closed(conn(*lane)));
        }
        // What the gateway still says, it says to nobody; what the bridge does about it is under way again.
        self.flights.clear();
        for lane in lost {
            // The bridge may have dropped it over the loss of another.
            if self.lanes.remove(&lane).is_some() {
                let why = Why::Lost("Connection reset by peer (os error 104)".to_owned());
                self.traffic.push((self.now(), Traffic::Closed(lane, why.clone())));
                self.handle(Input::LaneClosed(lane, why));
            }
        }
        self.settle();
    }

    /// One lane is lost on both sides, what was under way on it too.
    pub(crate) fn break_lane(&mut self, lane: Lane) {
        self.tell_gateway(SimInput::Closed(conn(lane)));
        self.flights.retain(|(_, flight)| flight.lane() != lane);
        let why = Why::Lost("Connection reset by peer (os error 104)".to_owned());
        if self.lanes.remove(&lane).is_some() {
            self.traffic.push((self.now(), Traffic::Closed(lane, why.clone())));
            self.tell_bridge(Input::LaneClosed(lane, why));
        }
    }

    /// The lanes there are, oldest first.
    pub(crate) fn lanes(&self) -> Vec<Lane> {
        self.lanes.keys().copied().collect()
    }

    /// The gateway dies with every lane, and another takes its place.
    pub(crate) fn replace_gateway(&mut self, simulator: SimulatorConfig) {
        self.gateway = Gateway::new(simulator, self.now, UNIX + self.now());
        self.gateway_wait = None;
        self.break_lanes();
    }

    /// This goes wrong in the gateway from now on.
    pub(crate) fn break_now(&mut self, fault: &str) {
        self.tell_gateway(SimInput::Break(fault.parse().unwrap()));
        self.settle();
    }

    /// Lets time pass.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(next) = self.next().filter(|next| *next <= end) {
            self.now = self.now.max(next);
            self.settle();
        }
        self.now = end;
    }

    /// Lets time pass until something is so, and says when; `None` if it is not within `limit`.
    pub(crate) fn run_until(
        &mut self,
        mut so: impl FnMut(&Self) -> bool,
        limit: Duration,
    ) -> Option<Duration> {
        let end = self.now + limit;
        while !so(self) {
            let Some(next) = self.next().filter(|next| *next <= end) else {
                self.now = end;
                return None;
            };
            self.now = self.now.max(next);
            self.settle();
        }
        Some(self.now())
    }

    /// Lets time pass until the client has seen another event of this type, and returns it.
    ///
    /// # Panics
    /// If none comes within a virtual minute.
    pub(crate) fn next_event(&mut self, name: &str) -> Value {
        let seen_before = self.events(name).len();
        let limit = Duration::from_secs(60);
        let found = self.run_until(|pair| pair.events(name).len() > seen_before, limit);
        assert!(found.is_some(), "no {name} within {limit:?}; the client saw {:?}", self.names());
        self.events(name)[seen_before].clone()
    }

    /// Every event of this type so far.
    pub(crate) fn events(&self, name: &str) -> Vec<&Value> {
        let all = self.log.iter().filter_map(|(_, seen)| match seen {
            Seen::Event(event) => Some(event),
            _ => None,
        });
        all.filter(|event| event["type"] == name).collect()
    }

    /// What the client saw by [`Seen::name`], a run of binary frames as one.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.log.iter().map(|(_, seen)| seen.name()).collect();
        names.dedup_by(|next, last| next == "binary" && last == "binary");
        names
    }

    /// The audio the client got, int16.
    pub(crate) fn audio(&self) -> Vec<i16> {
        let frames = self.log.iter().filter_map(|(_, seen)| match seen {
            Seen::Binary(bytes) => Some(bytes),
            _ => None,
        });
        frames
            .flat_map(|frame| frame.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])))
            .collect()
    }

    /// What the bridge sent with this text in it.
    pub(crate) fn sent(&self, text: &str) -> Vec<&str> {
        let sent = self.traffic.iter().filter_map(|(_, traffic)| match traffic {
            Traffic::Sent(_, message) if message.contains(text) => Some(message.as_str()),
            _ => None,
        });
        sent.collect()
    }

    /// How many messages with this text in them the gateway sent.
    pub(crate) fn received_count(&self, text: &str) -> usize {
        let has =
            |traffic: &Traffic| matches!(traffic, Traffic::Received(_, message) if message.contains(text));
        self.traffic.iter().filter(|(_, traffic)| has(traffic)).count()
    }

    fn tell_bridge(&mut self, input: Input<'_>) {
        self.handle(input);
        self.settle();
    }

    fn handle(&mut self, input: Input<'_>) {
        if let Some(tape) = &mut self.tape {
            tape.input(self.now, &input);
        }
        self.bridge.handle_input(self.now, input);
        self.drain_bridge();
    }

    fn tell_gateway(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(self.now, input);
        self.drain_gateway();
    }

    fn drain_bridge(&mut self) {
        for _ in 0..LIVELOCK {
            let output = self.bridge.poll_output(self.now);
            if let Some(tape) = &mut self.tape {
                tape.output(self.now, &output);
            }
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
                Output::ToClient(message) => self.client_sees(message),
                // Here everything has left already.
                Output::DropAudio(_) => {}
                Output::Observe(observation) => self.observed.push(observation),
                Output::OpenLane(lane, mode) => {
                    assert!(self.lanes.insert(lane, false).is_none(), "{lane:?} is opened twice");
                    self.traffic.push((self.now(), Traffic::Dialled(lane)));
                    self.depart(Flight::Connect(lane, mode));
                }
                Output::ToLane(lane, message) => {
                    assert_eq!(self.lanes.get(&lane), Some(&true), "{lane:?} is not up for {message:?}");
                    if let Message::Text(text) = &message {
                        self.traffic.push((self.now(), Traffic::Sent(lane, text.clone())));
                    }
                    self.depart(Flight::Up(lane, message));
                }
                Output::CloseLane(lane) => {
                    assert!(self.lanes.remove(&lane).is_some(), "{lane:?} is closed but not open");
                    self.traffic.push((self.now(), Traffic::Dropped(lane)));
                    self.depart(Flight::Hangup(lane));
                }
            }
        }
        panic!("the bridge never waits; the client saw {:?}", self.names());
    }

    fn client_sees(&mut self, message: Message) {
        assert!(self.client_open, "to a client that is gone: {message:?}");
        let seen = match message {
            Message::Text(text) => {
                let event = serde_json::from_str(&text).unwrap();
                self.texts.push(text);
                Seen::Event(event)
            }
            Message::Binary(bytes) => Seen::Binary(bytes),
            Message::Close(code, reason) => {
                self.client_open = false;
                Seen::Close(code, reason)
            }
        };
        self.log.push((self.now(), seen));
    }

    fn drain_gateway(&mut self) {
        for _ in 0..LIVELOCK {
            let flight = match self.gateway.poll_output(self.now) {
                SimOutput::Wait(until) => {
                    self.gateway_wait = until;
                    return;
                }
                SimOutput::Heard(_, samples) => {
                    self.heard.push(samples);
                    continue;
                }
                SimOutput::Opened(conn, opening) => {
                    self.openings.push((lane(conn), opening));
                    continue;
                }
                SimOutput::Unit(conn, unit) => {
                    self.units.push((lane(conn), unit));
                    continue;
                }
                SimOutput::Engine(..) => panic!("there are no engines in virtual time"),
                SimOutput::Text(conn, text) => Flight::Down(lane(conn), text),
                SimOutput::Close(conn, code, reason) => Flight::Closed(lane(conn), Why::Closed(code, reason)),
                SimOutput::Drop(conn) => Flight::Closed(
                    lane(conn),
                    Why::Lost("Connection reset by peer (os error 104)".to_owned()),
                ),
            };
            self.depart(flight);
        }
        panic!("the gateway never waits");
    }

    fn depart(&mut self, flight: Flight) {
        self.flights.push_back((self.now + self.latency, flight));
    }

    /// When something happens next.
    fn next(&self) -> Option<Instant> {
        let flight = self.flights.front().map(|(at, _)| *at);
        [flight, self.bridge_wait, self.gateway_wait].into_iter().flatten().min()
    }

    /// Does all that is due now.
    fn settle(&mut self) {
        for _ in 0..LIVELOCK {
            if let Some(flight) = self.due_flight() {
                self.arrive(flight);
            } else if self.gateway_wait.is_some_and(|at| at <= self.now) {
                self.tell_gateway(SimInput::Timeout);
            } else if self.bridge_wait.is_some_and(|at| at <= self.now) {
                self.handle(Input::Timeout);
            } else {
                return;
            }
        }
        panic!("something is always due at {:?}; the client saw {:?}", self.now(), self.names());
    }

    fn due_flight(&mut self) -> Option<Flight> {
        self.flights.front().filter(|(at, _)| *at <= self.now)?;
        self.flights.pop_front().map(|(_, flight)| flight)
    }

    fn arrive(&mut self, flight: Flight) {
        match flight {
            Flight::Connect(lane, mode) => match self.dialect.decide(Some(query_of(mode))) {
                Ok(mode) => {
                    self.depart(Flight::Opened(lane));
                    self.tell_gateway(SimInput::Connected(conn(lane), mode));
                }
                Err(refused) => self.depart(Flight::Closed(lane, Why::Refused(refused.status))),
            },
            Flight::Up(lane, Message::Text(text)) => self.tell_gateway(SimInput::Text(conn(lane), &text)),
            Flight::Up(lane, Message::Binary(_)) => self.tell_gateway(SimInput::Binary(conn(lane))),
            Flight::Up(lane, Message::Close(..)) | Flight::Hangup(lane) => {
                self.tell_gateway(SimInput::Closed(conn(lane)));
            }
            // A lane the bridge dropped is silent, whatever is still under way.
            Flight::Opened(lane) | Flight::Down(lane, _) | Flight::Closed(lane, _)
                if !self.lanes.contains_key(&lane) => {}
            Flight::Opened(lane) => {
                self.lanes.insert(lane, true);
                self.traffic.push((self.now(), Traffic::Opened(lane)));
                self.handle(Input::LaneOpened(lane));
            }
            Flight::Down(lane, text) => {
                self.traffic.push((self.now(), Traffic::Received(lane, text.clone())));
                self.handle(Input::Lane(lane, Frame::Text(&text)));
            }
            Flight::Closed(lane, why) => {
                self.lanes.remove(&lane);
                self.traffic.push((self.now(), Traffic::Closed(lane, why.clone())));
                self.handle(Input::LaneClosed(lane, why));
            }
        }
    }
}

/// The one instant everything starts from.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *EPOCH.get_or_init(Instant::now)
}

fn conn(lane: Lane) -> ConnId {
    ConnId(lane.0.into())
}

fn query_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Chat => "mode=chat",
        Mode::Audio => "mode=audio",
        Mode::Video => "mode=video",
    }
}

fn lane(conn: ConnId) -> Lane {
    Lane(u32::try_from(conn.0).unwrap())
}

/// Samples as they go over the wire.
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
