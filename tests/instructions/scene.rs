//! One session in virtual time: a client with a microphone, the bridge, a simulated gateway. No socket, no sleep, no task.
//!
//! A scene is played twice from the same seed. At the rehearsal it is noted what each step of the bridge did; then the
//! steps of one kind are counted. A step is one input and all the outputs it leads to, as the driver takes them.

use std::{
    collections::BTreeSet,
    sync::OnceLock,
    time::{Duration, Instant},
};

use voxbridge::{
    bridge::{Bridge, Input, Output},
    downstream::Codec,
    event::{Frame, Lane, Message, Mode},
    mapping::Library,
    session::Setup,
    simulator::{ConnId, Dialect, Gateway, SimInput, SimOutput, SimulatorConfig},
};

use crate::{
    counted,
    sound::{self, RATE_HZ},
};

/// Wall clock of the virtual time's start.
const UNIX: Duration = Duration::from_secs(1_795_148_864);

/// A message with audio in it is longer than this; one with a whole second of the model's, which alone compares, than
/// [`DELTA_BYTES`].
const AUDIO_BYTES: usize = 10_000;
const DELTA_BYTES: usize = 128_000;

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    /// Took a frame of the client's audio.
    Frame,
    /// Made a message with audio for the model, of a unit or of an utterance; it may have been a frame that completed it.
    Message,
    /// Took a second of the model's audio.
    Delta,
    /// Sent some of it to the client when its time had come.
    Sent,
    /// Anything else.
    Other,
}

/// Who says what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Script {
    profile: &'static str,
    /// The user, at [`RATE_HZ`].
    microphone: fn() -> Vec<i16>,
    /// A text to be spoken from the beginning.
    text: Option<&'static str>,
    /// What was before is not counted: buffers find their size.
    from: Duration,
}

impl Script {
    /// Speech to text.
    pub(crate) fn speech(microphone: fn() -> Vec<i16>) -> Self {
        Self { profile: "speech", ..Self::talk(microphone) }
    }

    /// Text to speech: a dozen seconds of it.
    pub(crate) fn text() -> Self {
        let text = "We choose to go to the moon in this decade and do the other things, not because they are easy, \
                    but because they are hard.";
        Self { text: Some(text), from: Duration::ZERO, ..Self::speech(sound::quiet) }
    }

    /// Talk with a model that only listens.
    pub(crate) fn talk(microphone: fn() -> Vec<i16>) -> Self {
        Self { profile: "conversation", microphone, text: None, from: Duration::from_secs(1) }
    }

    /// Talk while the model speaks.
    pub(crate) fn answer() -> Self {
        Self { from: Duration::from_secs(4), ..Self::talk(sound::question) }
    }
}

/// Plays a scene and counts the steps that did one of these; how many did the first of them.
pub(crate) fn play(script: Script, wanted: &[Did]) -> usize {
    let library = Library::embedded().unwrap();
    let microphone = (script.microphone)();
    let mut rehearsal = Scene::new(&library, script, BTreeSet::new());
    rehearsal.run(&microphone);
    let mut calls = 0;
    let mut steps = BTreeSet::new();
    for (step, (at, did)) in rehearsal.did.iter().enumerate() {
        if *at >= script.from && wanted.contains(did) {
            steps.insert(step);
            calls += usize::from(*did == wanted[0]);
        }
    }
    Scene::new(&library, script, steps).run(&microphone);
    calls
}

/// A session as the server makes one.
pub(crate) fn session(library: &Library, script: Script) -> Bridge {
    let client = library.client("macaw").unwrap();
    let upstream = library.upstream("minicpm-o").unwrap();
    let setup = Setup::new(&client, library.profile(script.profile).unwrap(), &upstream, 1);
    let mut codec = Codec::new(client, UNIX.as_secs_f64());
    let connect = codec.connect(&format!("model=any&sample_rate={RATE_HZ}"));
    Bridge::open(epoch(), codec, connect, upstream, setup)
}

struct Scene {
    bridge: Bridge,
    gateway: Gateway,
    script: Script,
    now: Instant,
    bridge_wait: Option<Instant>,
    gateway_wait: Option<Instant>,
    did: Vec<(Duration, Did)>,
    counted: BTreeSet<usize>,
}

impl Scene {
    fn new(library: &Library, script: Script, counted: BTreeSet<usize>) -> Self {
        let simulator = SimulatorConfig { turn_units: 6, ..SimulatorConfig::default() };
        let mut scene = Self {
            bridge: session(library, script),
            gateway: Gateway::new(simulator, epoch(), UNIX),
            script,
            now: epoch(),
            bridge_wait: None,
            gateway_wait: None,
            did: Vec::new(),
            counted,
        };
        scene.tell_bridge(Input::Timeout);
        scene
    }

    /// Frames of 20 ms in real time.
    fn run(&mut self, microphone: &[i16]) {
        if let Some(text) = self.script.text {
            let speak = format!(r#"{{"type":"tts.speak","text":"{text}"}}"#);
            self.tell_bridge(Input::Client(Frame::Text(&speak)));
        }
        for frame in microphone.chunks_exact(RATE_HZ / 50) {
            self.tell_bridge(Input::Client(Frame::Binary(&sound::bytes(frame))));
            self.advance(Duration::from_millis(20));
        }
    }

    fn advance(&mut self, time: Duration) {
        let end = self.now + time;
        loop {
            let next = [self.bridge_wait, self.gateway_wait].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else { break };
            self.now = self.now.max(next);
            if self.gateway_wait == Some(next) {
                self.tell_gateway(SimInput::Timeout);
            } else {
                self.tell_bridge(Input::Timeout);
            }
        }
        self.now = end;
    }

    fn tell_bridge(&mut self, input: Input<'_>) {
        let now = self.now;
        let counts = self.counted.contains(&self.did.len());
        let kind = kind(&input);
        let mut outputs = Vec::with_capacity(100);
        let mut input = Some(input);
        let mut step = || {
            input.take().into_iter().for_each(|input| self.bridge.handle_input(now, input));
            self.bridge_wait = loop {
                match self.bridge.poll_output(now) {
                    Output::Wait(until) => break until,
                    Output::Finished => break None,
                    output => outputs.push(output),
                }
            };
        };
        if counts {
            counted(&mut step);
        } else {
            step();
        }
        self.did.push((now - epoch(), did(kind, &outputs)));
        outputs.into_iter().for_each(|output| self.carry_out(output));
    }

    fn carry_out(&mut self, output: Output) {
        match output {
            Output::OpenLane(lane, mode) => {
                let query = if mode == Mode::Chat { "mode=chat" } else { "mode=audio" };
                let mode = Dialect::Current.decide(Some(query)).unwrap();
                self.tell_bridge(Input::LaneOpened(lane));
                self.tell_gateway(SimInput::Connected(ConnId(lane.0.into()), mode));
            }
            Output::ToLane(lane, Message::Text(text)) => {
                self.tell_gateway(SimInput::Text(ConnId(lane.0.into()), &text));
            }
            Output::CloseLane(lane) => self.tell_gateway(SimInput::Closed(ConnId(lane.0.into()))),
            _ => {}
        }
    }

    fn tell_gateway(&mut self, input: SimInput<'_>) {
        self.gateway.handle_input(self.now, input);
        loop {
            match self.gateway.poll_output(self.now) {
                SimOutput::Wait(until) => break self.gateway_wait = until,
                SimOutput::Text(conn, text) => {
                    let lane = Lane(u32::try_from(conn.0).unwrap());
                    self.tell_bridge(Input::Lane(lane, Frame::Text(&text)));
                }
                _ => {}
            }
        }
    }
}

/// What a step does by its input alone.
fn kind(input: &Input<'_>) -> Did {
    match input {
        Input::Client(Frame::Binary(_)) => Did::Frame,
        Input::Lane(_, Frame::Text(text)) if text.len() > DELTA_BYTES => Did::Delta,
        Input::Timeout => Did::Sent,
        _ => Did::Other,
    }
}

fn did(kind: Did, outputs: &[Output]) -> Did {
    let up = |output: &Output| matches!(output, Output::ToLane(_, Message::Text(text)) if text.len() > AUDIO_BYTES);
    let down = |output: &Output| matches!(output, Output::ToClient(Message::Binary(_)));
    match kind {
        Did::Delta => Did::Delta,
        _ if outputs.iter().any(up) => Did::Message,
        Did::Sent if !outputs.iter().any(down) => Did::Other,
        kind => kind,
    }
}

/// The one instant everything starts from.
fn epoch() -> Instant {
    static EPOCH: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "an Instant has no other source; only differences count")]
    *EPOCH.get_or_init(Instant::now)
}
