//! Hops: the distinct functions of this crate that one message passes between the two sockets.
//!
//! The server runs with its real driver on loopback sockets in virtual time; this program is the client and the upstream.
//! callgrind counts only while one message passes. It needs a build without optimisation, where no function is inlined:
//! `tests/instructions/run --hops`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    time::Duration,
};

use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::{
    net::{TcpListener, TcpStream},
    runtime::Runtime,
};
use tokio_tungstenite::{WebSocketStream, accept_async, client_async, tungstenite::Message};
use voxbridge::{
    config::{Config, UpstreamConfig},
    server::Server,
    simulator::{ConnId, Gateway, SimDialect, SimInput, SimOutput, SimulatorConfig},
};

use crate::{
    audio_input::{self, RATE_HZ},
    counted, figures,
};

/// One message whose hops are counted.
struct Passage {
    name: &'static str,
    profile: &'static str,
    /// The message is a second of the model's audio; otherwise it is a frame of the client.
    is_delta: bool,
}

static PASSAGES: [Passage; 4] = [
    Passage { name: "hops-talk-frame", profile: "conversation", is_delta: false },
    Passage { name: "hops-speech-frame", profile: "speech", is_delta: false },
    Passage { name: "hops-talk-delta", profile: "conversation", is_delta: true },
    Passage { name: "hops-speech-delta", profile: "speech", is_delta: true },
];

/// Parts of the crate that a message does not pass: they run beside the session, or are the other end of a socket.
const OTHER_PARTS: [&str; 8] = [
    "simulator",
    "server::listen",
    "server::accept",
    "server::identify",
    "server::rest",
    "server::pages",
    "server::upstream_pool",
    "server::process",
];
/// Traits of the standard library whose implementations are glue.
const GLUE: [&str; 3] = [" as core::", " as alloc::", " as std::"];
/// Names of constructors.
const CONSTRUCTORS: [&str; 2] = ["new", "default"];

const FRAME: Duration = Duration::from_millis(20);
/// Frames until the reader knows that the client streams.
const WARM_UP_FRAMES: usize = 150;
/// Frames after a unit, when none of the next ones completes another.
const FRAMES_AFTER_UNIT: usize = 15;
/// A scheduled read comes within these.
const COUNTED_FRAMES: usize = 12;
/// The first deltas begin a turn or text.
const COUNTED_DELTA: usize = 3;
/// Shortest message with a second of the model's audio.
const DELTA_BYTES: usize = 128_000;
/// Shortest message with audio for the model.
const UNIT_BYTES: usize = 10_000;
const TEXT: &str =
    "We choose to go to the moon in this decade and do the other things, not because they are easy.";

type Socket = WebSocketStream<TcpStream>;

/// Prints how many functions each message passes, and which.
pub(crate) fn print_all() -> Result<(), String> {
    if !cfg!(debug_assertions) {
        return Err("an optimised build hides hops; use tests/instructions/run --hops".into());
    }
    for passage in &PASSAGES {
        let (counts, _) = figures::run_callgrind(passage.name, &["--compress-strings=no"])?;
        let counts = fs::read_to_string(&counts).map_err(|error| format!("{}: {error}", counts.display()))?;
        let counts = counts.replace("voxbridge_audio::", "voxbridge::audio::");
        let hops: BTreeSet<(String, String)> = counts.lines().filter_map(hop).collect();
        println!("{}: {}", passage.name, hops.len());
        let mut modules = BTreeMap::<&str, Vec<&str>>::new();
        for (module, function) in &hops {
            modules.entry(module).or_default().push(function);
        }
        for (module, functions) in modules {
            println!("    {module} ({}): {}", functions.len(), functions.join(", "));
        }
    }
    Ok(())
}

/// Module and name of the function in a line of callgrind's file, if it is a hop.
fn hop(line: &str) -> Option<(String, String)> {
    let name = line.strip_prefix("fn=")?;
    let is_own =
        ["voxbridge::", "<voxbridge::", "<&mut voxbridge::"].iter().any(|start| name.starts_with(start));
    if !is_own || GLUE.iter().any(|glue| name.contains(glue)) {
        return None;
    }
    let path = without_generics(name).replace("::{{closure}}", "").replace("'2", "");
    let path = path.strip_prefix("voxbridge::")?;
    if OTHER_PARTS.iter().any(|part| path.starts_with(part)) {
        return None;
    }
    let names: Vec<&str> = path.split("::").filter(|name| !is_hash(name)).collect();
    let (function, owners) = names.split_last()?;
    let is_type = |name: &&&str| name.starts_with(char::is_uppercase);
    let module: Vec<&str> = owners.iter().take_while(|name| !is_type(name)).copied().collect();
    let owner = owners.iter().find(is_type).map_or_else(String::new, |owner| format!("{owner}::"));
    (!CONSTRUCTORS.contains(function) && *function != "{{constant}}")
        .then(|| (module.join("/"), format!("{owner}{function}")))
}

/// A path without type parameters; of an implementation of a trait, the path of the type.
fn without_generics(name: &str) -> String {
    let (mut path, mut depth) = (String::new(), 0);
    let name = match name.strip_prefix('<').and_then(|name| name.split_once(" as ")) {
        Some((own_type, method)) => {
            format!("{own_type}{}", method.rfind(">::").map_or("", |at| &method[at + 1..]))
        }
        None => name.trim_start_matches('<').replacen(">::", "::", usize::from(name.starts_with('<'))),
    };
    for letter in name.trim_start_matches("&mut ").chars() {
        match letter {
            '<' => depth += 1,
            '>' => depth -= 1,
            _ if depth == 0 => path.push(letter),
            _ => {}
        }
    }
    path.replace("::::", "::")
}

/// True for the hash at the end of a mangled name.
fn is_hash(name: &str) -> bool {
    name.len() == 17 && name.starts_with('h') && name[1..].chars().all(|digit| digit.is_ascii_hexdigit())
}

/// Runs a session until the message named so has passed; `None` if there is no such message.
pub(crate) fn count(name: &str) -> Option<usize> {
    let passage = PASSAGES.iter().find(|passage| passage.name == name)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let mut scene = runtime.block_on(Scene::open(passage));
    if passage.is_delta {
        scene.count_delta(&runtime);
    } else {
        scene.count_frame(&runtime);
    }
    Some(1)
}

/// A session on real sockets with a simulated gateway.
struct Scene {
    client: Socket,
    listener: TcpListener,
    lanes: Vec<Socket>,
    gateway: Gateway,
    gateway_due: Option<std::time::Instant>,
    is_conversation: bool,
    microphone: Box<dyn Iterator<Item = i16>>,
    /// Messages of the gateway that were not sent yet.
    replies: Vec<(usize, String)>,
    /// Units and utterances that the gateway got.
    units: usize,
    frames_since_unit: usize,
}

impl Scene {
    async fn open(passage: &Passage) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("ws://{}/v1/realtime", listener.local_addr().unwrap());
        let upstream = UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() };
        let config =
            Config { profile: Some(passage.profile.into()), upstream: vec![upstream], ..Config::default() };
        let server = Server::bind("127.0.0.1:0", config.build_service().unwrap()).await.unwrap();
        let address = server.local_addr().unwrap();
        tokio::spawn(server.run(std::future::pending()));
        let stream = TcpStream::connect(address).await.unwrap();
        let url = format!("ws://{address}/v1/realtime?model=any&sample_rate={RATE_HZ}");
        let (client, _) = client_async(url, stream).await.unwrap();
        let is_conversation = passage.profile == "conversation";
        let start = match is_conversation && passage.is_delta {
            true => audio_input::speech_then_quiet(RATE_HZ),
            false => Vec::new(),
        };
        let quiet_room = audio_input::quiet_room(RATE_HZ).into_iter().cycle();
        let config = SimulatorConfig { turn_units: 6, ..SimulatorConfig::default() };
        let now = tokio::time::Instant::now().into_std();
        Self {
            client,
            listener,
            lanes: Vec::new(),
            gateway: Gateway::new(config, now, Duration::from_secs(1_795_148_864)),
            gateway_due: None,
            is_conversation,
            microphone: Box::new(start.into_iter().chain(quiet_room)),
            replies: Vec::new(),
            units: 0,
            frames_since_unit: 0,
        }
    }

    /// Counts the frames of one scheduled read that completes no unit.
    fn count_frame(&mut self, runtime: &Runtime) {
        let talk = |scene: &mut Self| {
            runtime.block_on(async {
                scene.step(true).await;
                scene.send_replies(usize::MAX).await;
            });
        };
        for _ in 0..WARM_UP_FRAMES {
            talk(self);
        }
        while self.is_conversation && self.frames_since_unit != FRAMES_AFTER_UNIT {
            talk(self);
        }
        for _ in 0..COUNTED_FRAMES {
            counted(&mut || talk(self));
        }
    }

    /// Counts a delta in the middle of a turn or text, until its first audio has left. The client sends no frame meanwhile.
    fn count_delta(&mut self, runtime: &Runtime) {
        if !self.is_conversation {
            let speak = format!(r#"{{"type":"tts.speak","text":"{TEXT}"}}"#);
            runtime.block_on(async { self.client.send(Message::text(speak)).await.unwrap() });
        }
        for _ in 1..COUNTED_DELTA {
            self.run_to_delta(runtime);
            runtime.block_on(self.send_replies(usize::MAX));
        }
        self.run_to_delta(runtime);
        runtime.block_on(self.send_replies(DELTA_BYTES));
        counted(&mut || {
            runtime.block_on(self.send_replies(usize::MAX));
            while !runtime.block_on(self.has_received_audio()) {
                runtime.block_on(self.rest());
            }
        });
    }

    /// Runs until the gateway has the next delta. In a conversation it answers a unit.
    fn run_to_delta(&mut self, runtime: &Runtime) {
        let mut units = self.units;
        while self.replies.iter().all(|(_, text)| text.len() <= DELTA_BYTES) {
            if !self.replies.is_empty() {
                runtime.block_on(self.send_replies(usize::MAX));
                units = self.units;
            }
            let talks = self.is_conversation && self.units == units;
            runtime.block_on(self.step(talks));
        }
    }

    /// One frame's time, with a frame if the client `talks`.
    async fn step(&mut self, talks: bool) {
        if talks {
            self.frames_since_unit += 1;
            let frame: Vec<i16> = self.microphone.by_ref().take(RATE_HZ / 50).collect();
            self.client.send(Message::binary(audio_input::to_le_bytes(&frame))).await.unwrap();
        }
        self.rest().await;
        self.has_received_audio().await;
        self.exchange().await;
    }

    /// One frame's time, in which the server does what is due.
    async fn rest(&self) {
        settle().await;
        tokio::time::sleep(FRAME).await;
        settle().await;
    }

    /// Takes the messages that the client was sent. True if there is audio among them.
    async fn has_received_audio(&mut self) -> bool {
        let mut has_audio = false;
        while let Some(message) = self.client.next().now_or_never() {
            has_audio |= message.is_some_and(|message| message.unwrap().is_binary());
        }
        has_audio
    }

    /// Passes what the server sent to the gateway, and keeps its replies.
    async fn exchange(&mut self) {
        while let Some(accepted) = self.listener.accept().now_or_never() {
            let (stream, _) = accepted.unwrap();
            self.lanes.push(accept_async(stream).await.unwrap());
            let query = if self.is_conversation { "mode=audio" } else { "mode=chat" };
            let mode = SimDialect::Current.parse_mode(Some(query)).unwrap();
            self.gateway_input(SimInput::Connected(ConnId(self.lanes.len() as u64), mode));
        }
        for lane in 0..self.lanes.len() {
            while let Some(Some(Ok(message))) = self.lanes[lane].next().now_or_never() {
                let Ok(text) = message.into_text() else { continue };
                if text.len() > UNIT_BYTES {
                    self.units += 1;
                    self.frames_since_unit = 0;
                }
                self.gateway_input(SimInput::Text(ConnId(lane as u64 + 1), &text));
            }
        }
        if self.gateway_due.is_some_and(|due| due <= tokio::time::Instant::now().into_std()) {
            self.gateway_input(SimInput::Timeout);
        }
    }

    fn gateway_input(&mut self, input: SimInput<'_>) {
        let now = tokio::time::Instant::now().into_std();
        self.gateway.handle_input(now, input);
        loop {
            match self.gateway.poll_output(now) {
                SimOutput::Wait(due) => break self.gateway_due = due,
                SimOutput::Text(ConnId(lane), text) => self.replies.push((lane as usize - 1, text)),
                _ => {}
            }
        }
    }

    /// Sends the gateway's messages that are no longer than this.
    async fn send_replies(&mut self, max_bytes: usize) {
        for (lane, text) in self.replies.extract_if(.., |(_, text)| text.len() <= max_bytes) {
            self.lanes[lane].send(Message::text(text)).await.unwrap();
        }
        settle().await;
    }
}

/// Lets all tasks run that can, and sockets bring what was sent, without time passing.
async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}
