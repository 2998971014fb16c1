//! A bridge and a simulated upstream on real sockets, and a client that waits for what it expects and never for time.
//!
//! Everything runs in the test's own process and on ports the system chose, so that any number of tests run at once.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};
use voxbridge::{
    config::{Config, UpstreamConfig},
    server::{Server, registry::Registry, tap::Tap},
    simulator::{
        Dialect, SimulatorConfig, Timing,
        engines::Engines,
        socket::{self, Recorder},
    },
    telemetry::metrics::Metrics,
};

/// Longer than anything takes here on a busy machine; a test that fails waits this long for what does not come.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a bench is made of.
#[derive(Default)]
pub(crate) struct Options {
    pub(crate) simulator: SimulatorConfig,
    pub(crate) engines: Option<Arc<dyn Engines>>,
    /// Its upstream is the simulator unless it names one.
    pub(crate) config: Config,
    pub(crate) tap: Option<Arc<dyn Tap>>,
}

/// A simulated upstream that records and loses no time.
pub(crate) fn quick() -> SimulatorConfig {
    SimulatorConfig { timing: Timing::instant(), record: true, ..SimulatorConfig::default() }
}

/// A server on a task of its own.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(Box<dyn Future<Output = ()> + Send + Unpin>) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = Box::pin(async move { drop(stopped.await) });
        Self { stop: Some(stop), task: tokio::spawn(run(Box::new(stopped))) }
    }

    /// Gives the order to stop, as SIGTERM does.
    pub(crate) fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits for the end.
    pub(crate) async fn ended(self) {
        timeout(PATIENCE, self.task).await.expect("the server does not stop").unwrap();
    }
}

/// A bridge and its upstream.
pub(crate) struct Bench {
    pub(crate) bridge: Running,
    pub(crate) recorder: Recorder,
    pub(crate) metrics: Metrics,
    pub(crate) sessions: Registry,
    address: SocketAddr,
    _simulator: Running,
}

impl Bench {
    /// A bridge with the defaults in front of a [`quick`] simulator.
    pub(crate) async fn start() -> Self {
        Self::with(quick(), Config::default()).await
    }

    pub(crate) async fn with(simulator: SimulatorConfig, config: Config) -> Self {
        Self::of(Options { simulator, config, ..Options::default() }).await
    }

    pub(crate) async fn of(options: Options) -> Self {
        let legacy = options.simulator.dialect != Dialect::Current;
        let (upstream, simulator, recorder) =
            simulate("127.0.0.1:0", options.simulator, options.engines).await;
        let mut config = options.config;
        if config.upstream.is_empty() {
            let mut upstream = upstream_at(upstream);
            if legacy {
                upstream.dialect = "minicpm-o-legacy".into();
            }
            config.upstream.push(upstream);
        }
        let mut service = config.service().unwrap_or_else(|problem| panic!("{problem}"));
        service.tap = options.tap;
        let mut server = Server::bind("127.0.0.1:0", service).await.unwrap();
        config.access_log.open().unwrap().into_iter().for_each(|log| server.log_access(log));
        let address = server.local_addr().unwrap();
        let (metrics, sessions) = (server.metrics(), server.registry());
        let bridge = Running::start(|stop| server.run(stop));
        Self { bridge, recorder, metrics, sessions, address, _simulator: simulator }
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// A client whose session is open.
    pub(crate) async fn client(&self, query: &str) -> Client {
        let mut client = self.dial(&format!("/v1/realtime?{query}")).await;
        let first = client.next().await;
        assert_eq!(first.kind(), "session.created", "{first:?}");
        client
    }

    /// A client just connected.
    pub(crate) async fn dial(&self, path: &str) -> Client {
        let (head, client) = self.upgrade(path, "").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        client
    }

    /// The answer to a handshake with these further header lines, and the client it makes.
    pub(crate) async fn upgrade(&self, path: &str, headers: &str) -> (String, Client) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        upgrade(stream, path, headers, &[]).await
    }

    /// The whole answer to a plain HTTP request.
    pub(crate) async fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer").unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// A simulator: where it is, itself, and what it receives.
pub(crate) async fn simulate(
    address: &str,
    config: SimulatorConfig,
    engines: Option<Arc<dyn Engines>>,
) -> (SocketAddr, Running, Recorder) {
    let mut simulator = socket::bind(address, config).await.unwrap();
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    let (address, recorder) = (simulator.local_addr(), simulator.recorder());
    (address, Running::start(|stop| simulator.run(stop)), recorder)
}

pub(crate) fn upstream_at(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig { url: format!("ws://{address}/v1/realtime"), ..UpstreamConfig::of_dialect() }
}

/// A WebSocket handshake by hand, with more bytes in the same packet: the answer's head, and the client.
pub(crate) async fn upgrade(
    mut stream: TcpStream,
    path: &str,
    headers: &str,
    more: &[u8],
) -> (String, Client) {
    let mut request = format!(
        "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
    )
    .into_bytes();
    request.extend_from_slice(more);
    stream.write_all(&request).await.unwrap();
    let (head, rest) = head(&mut stream).await;
    let socket = WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await;
    (head, Client { socket, seen: Vec::new() })
}

/// An answer's head, and what was read beyond it.
async fn head(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return (String::from_utf8(read).unwrap(), rest);
        }
        let count = timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("no answer").unwrap();
        assert!(count > 0, "hung up after {:?}", String::from_utf8_lossy(&read));
    }
}

/// What a client received.
#[derive(Clone, PartialEq)]
pub(crate) enum Seen {
    Event(Value),
    Audio(Vec<u8>),
    Close(u16, String),
    /// The transport's end; why, if it was no orderly one.
    End(Option<String>),
}

/// Events as they stand on the wire, audio by its length alone.
impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(event) => write!(f, "{event}"),
            Self::Audio(audio) => write!(f, "{} bytes of audio", audio.len()),
            Self::Close(code, reason) => write!(f, "close {code} {reason:?}"),
            Self::End(why) => write!(f, "end {why:?}"),
        }
    }
}

impl Seen {
    /// An event's type, or what else it is.
    pub(crate) fn kind(&self) -> &str {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("event without type"),
            Self::Audio(_) => "audio",
            Self::Close(..) => "close",
            Self::End(_) => "end",
        }
    }
}

/// A client; remembers everything it received.
pub(crate) struct Client {
    pub(crate) socket: WebSocketStream<TcpStream>,
    pub(crate) seen: Vec<Seen>,
}

impl Client {
    pub(crate) async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.expect("nothing is taken").unwrap();
    }

    pub(crate) async fn command(&mut self, command: Value) {
        self.send(Message::text(command.to_string())).await;
    }

    /// Sends int16 audio in frames of so many bytes.
    pub(crate) async fn audio(&mut self, audio: &[u8], frame_bytes: usize) {
        for frame in audio.chunks(frame_bytes) {
            self.send(Message::binary(frame.to_vec())).await;
        }
    }

    /// An utterance, and the silence that ends it.
    pub(crate) async fn say(&mut self, samples: &[i16]) {
        self.audio(&bytes(samples), 640).await;
        self.audio(&bytes(&[0; 8_000]), 640).await;
    }

    /// Says this as a microphone does, 16 kHz, which goes on when it is said, until such a thing came: all that came.
    pub(crate) async fn live(&mut self, samples: &[i16], until: impl Fn(&Seen) -> bool) -> &[Seen] {
        let from = self.seen.len();
        let speech = bytes(samples);
        let mut frames = speech.chunks_exact(640);
        let mut ticks = interval(Duration::from_millis(20));
        let talking = async {
            loop {
                tokio::select! {
                    seen = self.next() => if until(&seen) { return },
                    _ = ticks.tick() => {
                        let frame = frames.next().map_or(vec![0; 640], <[u8]>::to_vec);
                        self.send(Message::binary(frame)).await;
                    }
                }
            }
        };
        let talked = timeout(2 * PATIENCE, talking).await;
        assert!(talked.is_ok(), "it does not come: {}", self.story());
        &self.seen[from..]
    }

    /// The next thing that comes.
    pub(crate) async fn next(&mut self) -> Seen {
        let seen = loop {
            match timeout(PATIENCE, self.socket.next()).await {
                Err(_) => panic!("nothing comes after {}", self.story()),
                Ok(Some(Ok(Message::Text(text)))) => break Seen::Event(serde_json::from_str(&text).unwrap()),
                Ok(Some(Ok(Message::Binary(bytes)))) => break Seen::Audio(bytes.to_vec()),
                Ok(Some(Ok(Message::Close(frame)))) => {
                    break frame.map_or(Seen::Close(1005, String::new()), |frame| {
                        Seen::Close(frame.code.into(), frame.reason.to_string())
                    });
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => break Seen::End(Some(error.to_string())),
                Ok(None) => break Seen::End(None),
            }
        };
        self.seen.push(seen.clone());
        seen
    }

    /// Waits for an event of this type; others are passed over and remembered.
    pub(crate) async fn event(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                Seen::Event(event) if event["type"] == kind => return event,
                Seen::Close(..) | Seen::End(_) => panic!("waited for {kind}: {}", self.story()),
                _ => {}
            }
        }
    }

    /// Says goodbye and waits for the end: everything that came since the connection was opened.
    pub(crate) async fn close(mut self) -> Vec<Seen> {
        self.command(serde_json::json!({"type": "session.close"})).await;
        self.rest().await;
        self.seen
    }

    /// Everything until the end.
    pub(crate) async fn rest(&mut self) -> &[Seen] {
        let from = self.seen.len();
        while !matches!(self.next().await, Seen::End(_)) {}
        &self.seen[from..]
    }

    /// What came so far, in short.
    pub(crate) fn story(&self) -> String {
        format!("{:#?}", self.seen)
    }
}

/// The events of one type.
pub(crate) fn events<'s>(seen: &'s [Seen], kind: &str) -> Vec<&'s Value> {
    let wanted = |seen: &'s Seen| match seen {
        Seen::Event(event) if event["type"] == kind => Some(event),
        _ => None,
    };
    seen.iter().filter_map(wanted).collect()
}

/// All audio in one piece.
pub(crate) fn audio(seen: &[Seen]) -> Vec<i16> {
    let frames = seen.iter().filter_map(|seen| match seen {
        Seen::Audio(audio) => Some(audio.as_slice()),
        _ => None,
    });
    samples(&frames.collect::<Vec<_>>().concat())
}

/// Both pairs alternate and are closed, and audio comes inside its pair only.
pub(crate) fn assert_pairs(seen: &[Seen]) {
    let (mut speech, mut speaking) = (false, false);
    for (at, seen) in seen.iter().enumerate() {
        let legal = match seen.kind() {
            "vad.speech_start" => !std::mem::replace(&mut speech, true),
            "vad.speech_end" => std::mem::replace(&mut speech, false),
            "tts.speaking_start" => !std::mem::replace(&mut speaking, true),
            "tts.speaking_end" => std::mem::replace(&mut speaking, false),
            "audio" => speaking,
            "session.closed" => !speech && !speaking,
            _ => true,
        };
        assert!(legal, "{} at {at} is out of place", seen.kind());
    }
    assert!(!speech && !speaking, "a pair is open");
}

/// A recording of examples/speech, int16 mono 16 kHz.
pub(crate) fn recording(name: &str) -> Vec<i16> {
    let path = speech_dir().join(format!("{name}_16k.wav"));
    hound::WavReader::open(path).unwrap().samples::<i16>().map(Result::unwrap).collect()
}

pub(crate) fn speech_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/speech")
}

/// A directory for what a test writes, its own by name.
pub(crate) fn scratch(name: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory with the default profile, in which these keys have other numbers: key, old, new.
pub(crate) fn tuned(name: &str, numbers: &[(&str, u32, u32)]) -> PathBuf {
    let number =
        |(key, old, new): &(&str, u32, u32)| (format!("{key} = {old}\n"), format!("{key} = {new}\n"));
    let lines: Vec<_> = numbers.iter().map(number).collect();
    changed(name, "speech", include_str!("../../mappings/profile/speech.toml"), &lines)
}

/// A directory with the profile `conversation`, in which these lines are others: old, new.
pub(crate) fn tuned_talk(name: &str, lines: &[(&str, &str)]) -> PathBuf {
    let lines: Vec<_> = lines.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
    changed(name, "conversation", include_str!("../../mappings/profile/conversation.toml"), &lines)
}

/// A directory with the Macaw protocol, in which a client may be minutes ahead of the clock: on a fast machine, who says one
/// thing after the other soon is.
pub(crate) fn ahead_of_time(name: &str) -> PathBuf {
    let lines = [("ahead_max_ms = 10000".to_owned(), "ahead_max_ms = 600000".to_owned())];
    changed(name, "macaw", include_str!("../../mappings/client/macaw.toml"), &lines)
}

fn changed(name: &str, profile: &str, source: &str, lines: &[(String, String)]) -> PathBuf {
    let mut source = source.to_owned();
    for (from, to) in lines {
        let line = format!("\n{from}");
        assert_eq!(source.matches(&line).count(), 1, "{from} in profile {profile}");
        source = source.replace(&line, &format!("\n{to}"));
    }
    let dir = scratch(name);
    std::fs::write(dir.join(format!("{profile}.toml")), source).unwrap();
    dir
}

pub(crate) fn bytes(samples: &[i16]) -> Vec<u8> {
    samples.iter().flat_map(|sample| sample.to_le_bytes()).collect()
}

pub(crate) fn samples(bytes: &[u8]) -> Vec<i16> {
    assert_eq!(bytes.len() % 2, 0, "audio ends within a sample");
    bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]])).collect()
}
