//! Test bench: a bridge and a simulated upstream on real sockets, and a client that waits for events and
//! never for time.
//!
//! Everything runs in the test's own process on ports chosen by the system, so tests can run in parallel.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream, ToSocketAddrs},
    sync::oneshot,
    task::JoinHandle,
    time::{interval, timeout},
};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::{Message, protocol::Role},
};
use voxbridge::{
    audio::pcm,
    config::{Config, UpstreamConfig},
    server::{Server, registry::SessionRegistry, tap::Tap, tool_servers::ToolServers},
    simulator::{
        HttpApi, RealtimeServer, SimDialect, SimTiming, SimulatorConfig,
        engines::SpeechEngines,
        socket::{self, InputRecorder},
    },
    telemetry::{metrics::Metrics, otlp::Otlp},
};

/// Longer than any step takes on a busy machine; a failing test waits this long for a missing event.
const PATIENCE: Duration = Duration::from_secs(20);

/// Settings of a bench.
#[derive(Default)]
pub struct Options {
    pub simulator: SimulatorConfig,
    pub engines: Option<Arc<dyn SpeechEngines>>,
    /// The configuration; its upstream is the simulator unless it names one.
    pub config: Config,
    pub tap: Option<Arc<dyn Tap>>,
}

/// A simulated upstream that records and answers immediately.
pub fn instant_simulator() -> SimulatorConfig {
    SimulatorConfig { timing: SimTiming::instant(), record: true, ..SimulatorConfig::default() }
}

/// A server on its own task.
pub struct RunningServer {
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl RunningServer {
    pub fn start<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(Box<dyn Future<Output = ()> + Send + Unpin>) -> F,
    ) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = Box::pin(async move { drop(stopped.await) });
        Self { stop: Some(stop), task: tokio::spawn(run(Box::new(stopped))) }
    }

    /// Orders the stop, as SIGTERM does.
    pub fn stop(&mut self) {
        self.stop.take();
    }

    /// Waits for the end.
    pub async fn wait_for_end(mut self) {
        self.wait_until_ended().await;
    }

    /// Waits for the end, once.
    pub async fn wait_until_ended(&mut self) {
        timeout(PATIENCE, &mut self.task).await.expect("the server does not stop").unwrap();
    }
}

/// A bridge and its upstream.
pub struct Bench {
    pub bridge: RunningServer,
    pub recorder: InputRecorder,
    pub metrics: Metrics,
    pub sessions: SessionRegistry,
    pub tools: ToolServers,
    address: SocketAddr,
    tcp_addresses: Vec<SocketAddr>,
    _simulator: RunningServer,
    /// Its recorder has the messages of the Demo's gateway.
    pub records_demo: bool,
    /// The upstream, if it is another bridge.
    _second: Option<Box<Self>>,
}

impl Bench {
    /// A bridge with the defaults and an [`instant_simulator`].
    pub async fn start() -> Self {
        Self::of(Config::default()).await
    }

    /// A bridge with this configuration and an [`instant_simulator`].
    pub async fn of(config: Config) -> Self {
        Self::with_config(instant_simulator(), config).await
    }

    pub async fn with_config(simulator: SimulatorConfig, config: Config) -> Self {
        Self::with_options(Options { simulator, config, ..Options::default() }).await
    }

    /// A bridge with these settings. Its upstream is the simulator, unless the settings or `BENCH_SERVER` name another: `openai` and
    /// `vllm-turn` for servers of OpenAI's Realtime API, `voxbridge` for another bridge before the simulator.
    #[allow(clippy::disallowed_methods, reason = "whoever runs the clients by hand chooses the server")]
    pub async fn with_options(mut options: Options) -> Self {
        let Options { simulator, config, .. } = &options;
        let is_usual = simulator.dialect == SimDialect::Current && simulator.http_api.is_none();
        let server = std::env::var("BENCH_SERVER").ok().filter(|_| is_usual && config.upstream.is_empty());
        match server.as_deref() {
            None => {}
            Some("openai") => options.simulator.dialect = SimDialect::OpenaiRealtime(RealtimeServer::Openai),
            Some("vllm-turn") => {
                options.simulator.dialect = SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni);
            }
            Some("voxbridge") => return Self::before_another(options).await,
            Some(other) => panic!("BENCH_SERVER = {other:?} is neither openai, vllm-turn nor voxbridge"),
        }
        Self::run_with(options).await
    }

    /// A bridge whose upstream is another bridge.
    async fn before_another(options: Options) -> Self {
        let Options { simulator, engines, mut config, tap } = options;
        let second = Self::run_with(Options { simulator, engines, ..Options::default() }).await;
        config.upstream.push(upstream_of(SimDialect::OpenaiRealtime(RealtimeServer::Openai), second.address));
        let first = Self::run_with(Options { config, tap, ..Options::default() }).await;
        Self {
            recorder: second.recorder.clone(),
            records_demo: second.records_demo,
            _second: Some(Box::new(second)),
            ..first
        }
    }

    async fn run_with(options: Options) -> Self {
        let (dialect, http_api) = (options.simulator.dialect, options.simulator.http_api);
        let (upstream, simulator, recorder) =
            start_simulator("127.0.0.1:0", options.simulator, options.engines).await;
        let mut config = options.config;
        if config.upstream.is_empty() {
            config.upstream.push(match http_api {
                Some(api) => http_upstream(api, upstream),
                None => upstream_of(dialect, upstream),
            });
        }
        let mut service = config.build_service().unwrap_or_else(|problem| panic!("{problem}"));
        service.tap = options.tap;
        let mut server = Server::bind("127.0.0.1:0", service).await.unwrap();
        config.load_turn_model(&mut server).unwrap();
        config.access_log.open().unwrap().into_iter().for_each(|log| server.set_access_log(log));
        if let Some(settings) = config.otlp.settings().unwrap() {
            let (otlp, exporters) = Otlp::new(settings);
            server.export_to(otlp, exporters);
        }
        if let Some(addresses) = config.webrtc.addresses().unwrap() {
            server.bind_calls(addresses).await.unwrap();
        }
        let mut tcp_addresses = Vec::new();
        for (listen, service) in config.tcp_services(&server.active_config().get().library).unwrap() {
            tcp_addresses.push(server.bind_tcp(listen, service).await.unwrap());
        }
        let address = server.local_addr().unwrap();
        let (metrics, sessions, tools) = (server.metrics(), server.registry(), server.tool_servers());
        let bridge = RunningServer::start(|stop| server.run(stop));
        Self {
            bridge,
            recorder,
            metrics,
            sessions,
            tools,
            address,
            tcp_addresses,
            _simulator: simulator,
            records_demo: dialect == SimDialect::Current && http_api.is_none(),
            _second: None,
        }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address of a `[[tcp]]` listener of the configuration.
    pub fn tcp_address(&self, at: usize) -> SocketAddr {
        self.tcp_addresses[at]
    }

    /// A client with an open session.
    pub async fn client(&self, query: &str) -> Client {
        let mut client = self.dial(&format!("/v1/realtime?{query}")).await;
        let first = client.next().await;
        assert_eq!(first.kind(), "session.created", "{first:?}");
        client
    }

    /// A connected client.
    pub async fn dial(&self, path: &str) -> Client {
        dial(self.address, path).await
    }

    /// Sends a handshake with these additional header lines; returns the answer's head and the client.
    pub async fn open_websocket(&self, path: &str, headers: &str) -> (String, Client) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        open_websocket(stream, path, headers, &[]).await
    }

    /// The head of the answer to a request.
    pub async fn head_of(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        read_http_head(&mut stream).await.0
    }

    /// The whole answer to a plain HTTP request.
    pub async fn http(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("no answer").unwrap();
        String::from_utf8(answer).unwrap()
    }
}

/// The answer to a request with this line, these headers and this body: its head in lower case, and its body.
pub async fn request(bench: &Bench, line: &str, headers: &str, body: &str) -> (String, String) {
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nHost: voice.local:8000\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}"
    );
    let answer = bench.http(&request).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.to_lowercase(), body.to_owned())
}

/// The status page of a simulated gateway.
pub async fn gateway_status(gateway: SocketAddr) -> Value {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

/// A configuration file with this text.
pub fn configuration(toml: &str) -> Config {
    toml::from_str(toml).unwrap()
}

/// True for frames of this kind.
pub fn is(kind: &'static str) -> impl Fn(&ClientFrame) -> bool {
    move |frame| frame.kind() == kind
}

/// Handles each connection to a new port on a task of its own; returns its address.
pub async fn serve_each<F>(mut handle: impl FnMut(TcpStream) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output: Send> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    address
}

/// Where a server listens that comes back at its port. Connections come from 127.0.0.1, so that none takes the port meanwhile.
pub const KEPT_PORT: &str = "127.0.0.2:0";

/// An address that nothing listens on.
pub fn closed_port() -> SocketAddr {
    std::net::TcpListener::bind(KEPT_PORT).unwrap().local_addr().unwrap()
}

/// Starts a simulator; returns its address, the server, and its recorder.
pub async fn start_simulator(
    address: &str,
    config: SimulatorConfig,
    engines: Option<Arc<dyn SpeechEngines>>,
) -> (SocketAddr, RunningServer, InputRecorder) {
    let mut simulator = socket::bind(address, config).await.unwrap();
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    let (address, recorder) = (simulator.local_addr(), simulator.recorder());
    (address, RunningServer::start(|stop| simulator.run(stop)), recorder)
}

pub fn upstream_at(address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig { url: format!("ws://{address}/v1/realtime"), ..UpstreamConfig::with_default_dialect() }
}

/// An upstream that speaks this dialect.
pub fn upstream_of(dialect: SimDialect, address: SocketAddr) -> UpstreamConfig {
    let name = match dialect {
        SimDialect::Current => "minicpm-o",
        SimDialect::Legacy { .. } => "minicpm-o-legacy",
        SimDialect::LlamaCppOmni => "llama-cpp-omni",
        SimDialect::VllmOmni => "vllm-omni",
        SimDialect::SglangOmni => "sglang-omni",
        SimDialect::OpenaiRealtime(_) => "openai-realtime",
    };
    let url = format!("ws://{address}{}", dialect.path());
    let needs_model = dialect == SimDialect::OpenaiRealtime(RealtimeServer::Openai);
    let model = needs_model.then(|| "gpt-realtime".to_owned());
    UpstreamConfig { url, dialect: name.into(), model, ..UpstreamConfig::with_default_dialect() }
}

/// An upstream with this HTTP API.
pub fn http_upstream(api: HttpApi, address: SocketAddr) -> UpstreamConfig {
    UpstreamConfig {
        url: format!("http://{address}"),
        dialect: api.dialect().into(),
        model: Some("openbmb/MiniCPM-o-4_5".into()),
        ..UpstreamConfig::default()
    }
}

/// A client that is connected to this server.
pub async fn dial(server: impl ToSocketAddrs, path: &str) -> Client {
    let stream = TcpStream::connect(server).await.unwrap();
    let (head, client) = open_websocket(stream, path, "", &[]).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client
}

/// Sends a WebSocket handshake with more bytes in the same packet; returns the answer's head and the client.
pub async fn open_websocket(
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
    let (head, rest) = read_http_head(&mut stream).await;
    let socket = WebSocketStream::from_partially_read(stream, rest, Role::Client, None).await;
    (head, Client { socket, received: Vec::new() })
}

/// Reads an answer's head; returns it and the bytes after it.
async fn read_http_head(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut read = Vec::new();
    loop {
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let rest = read.split_off(end + 4);
            return (String::from_utf8(read).unwrap(), rest);
        }
        let count = timeout(PATIENCE, stream.read_buf(&mut read)).await.expect("no answer").unwrap();
        assert!(count > 0, "connection closed after {:?}", String::from_utf8_lossy(&read));
    }
}

/// A frame that a client received.
#[derive(Clone, PartialEq)]
pub enum ClientFrame {
    Event(Value),
    Audio(Vec<u8>),
    Close(u16, String),
    /// End of the transport, with the error if it was not orderly.
    End(Option<String>),
}

/// Events as on the wire; audio by its length.
impl std::fmt::Debug for ClientFrame {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Event(event) => write!(f, "{event}"),
            Self::Audio(audio) => write!(f, "{} bytes of audio", audio.len()),
            Self::Close(code, reason) => write!(f, "close {code} {reason:?}"),
            Self::End(why) => write!(f, "end {why:?}"),
        }
    }
}

impl ClientFrame {
    /// The event's type, or the kind of frame.
    pub fn kind(&self) -> &str {
        match self {
            Self::Event(event) => event["type"].as_str().unwrap_or("event without type"),
            Self::Audio(_) => "audio",
            Self::Close(..) => "close",
            Self::End(_) => "end",
        }
    }
}

/// A client that keeps everything it received.
pub struct Client {
    pub socket: WebSocketStream<TcpStream>,
    pub received: Vec<ClientFrame>,
}

impl Client {
    pub async fn send(&mut self, message: Message) {
        timeout(PATIENCE, self.socket.send(message)).await.expect("the message cannot be sent").unwrap();
    }

    pub async fn send_json(&mut self, command: Value) {
        self.send(Message::text(command.to_string())).await;
    }

    /// Sends int16 audio in frames of this many bytes.
    pub async fn send_audio(&mut self, audio: &[u8], frame_bytes: usize) {
        for frame in audio.chunks(frame_bytes) {
            self.send(Message::binary(frame.to_vec())).await;
        }
    }

    /// Sends an utterance and the silence that ends it.
    pub async fn send_utterance(&mut self, samples: &[i16]) {
        self.send_audio(&bytes(samples), 640).await;
        self.send_audio(&bytes(&[0; 8_000]), 640).await;
    }

    /// Sends 16 kHz samples like a microphone, then silence, until a frame satisfies the condition. Returns
    /// all frames received meanwhile.
    pub async fn stream_until(
        &mut self,
        samples: &[i16],
        until: impl Fn(&ClientFrame) -> bool,
    ) -> &[ClientFrame] {
        let from = self.received.len();
        let speech = bytes(samples);
        let mut frames = speech.chunks_exact(640);
        let mut ticks = interval(Duration::from_millis(20));
        let talking = async {
            loop {
                tokio::select! {
                    frame = self.next() => if until(&frame) { return },
                    _ = ticks.tick() => {
                        let frame = frames.next().map_or(vec![0; 640], <[u8]>::to_vec);
                        self.send(Message::binary(frame)).await;
                    }
                }
            }
        };
        let arrived = timeout(2 * PATIENCE, talking).await;
        assert!(arrived.is_ok(), "the expected frame does not arrive: {}", self.describe_received());
        &self.received[from..]
    }

    /// Waits for the next frame.
    pub async fn next(&mut self) -> ClientFrame {
        let frame = loop {
            match timeout(PATIENCE, self.socket.next()).await {
                Err(_) => panic!("no frame arrives after {}", self.describe_received()),
                Ok(Some(Ok(Message::Text(text)))) => {
                    break ClientFrame::Event(serde_json::from_str(&text).unwrap());
                }
                Ok(Some(Ok(Message::Binary(bytes)))) => break ClientFrame::Audio(bytes.to_vec()),
                Ok(Some(Ok(Message::Close(frame)))) => {
                    break frame.map_or(ClientFrame::Close(1005, String::new()), |frame| {
                        ClientFrame::Close(frame.code.into(), frame.reason.to_string())
                    });
                }
                Ok(Some(Ok(_))) => {}
                Ok(Some(Err(error))) => break ClientFrame::End(Some(error.to_string())),
                Ok(None) => break ClientFrame::End(None),
            }
        };
        self.received.push(frame.clone());
        frame
    }

    /// Waits for an event of this type; other frames are kept.
    pub async fn wait_for_event(&mut self, kind: &str) -> Value {
        loop {
            match self.next().await {
                ClientFrame::Event(event) if event["type"] == kind => return event,
                ClientFrame::Close(..) | ClientFrame::End(_) => {
                    panic!("waited for {kind}: {}", self.describe_received())
                }
                _ => {}
            }
        }
    }

    /// Closes the session, waits for the end, and returns everything received since the connection was
    /// opened.
    pub async fn close(mut self) -> Vec<ClientFrame> {
        self.send_json(serde_json::json!({"type": "session.close"})).await;
        self.read_to_end().await;
        self.received
    }

    /// Reads until the end.
    pub async fn read_to_end(&mut self) -> &[ClientFrame] {
        let from = self.received.len();
        while !matches!(self.next().await, ClientFrame::End(_)) {}
        &self.received[from..]
    }

    /// Short description of all received frames.
    pub fn describe_received(&self) -> String {
        format!("{:#?}", self.received)
    }
}

/// All events of one type.
pub fn events<'s>(frames: &'s [ClientFrame], kind: &str) -> Vec<&'s Value> {
    let wanted = |frame: &'s ClientFrame| match frame {
        ClientFrame::Event(event) if event["type"] == kind => Some(event),
        _ => None,
    };
    frames.iter().filter_map(wanted).collect()
}

/// All audio, concatenated.
pub fn audio(frames: &[ClientFrame]) -> Vec<i16> {
    let audio = frames.iter().filter_map(|frame| match frame {
        ClientFrame::Audio(audio) => Some(audio.as_slice()),
        _ => None,
    });
    samples(&audio.collect::<Vec<_>>().concat())
}

/// Checks that both pairs alternate and close, and that audio lies inside its pair.
pub fn assert_pairs_closed(frames: &[ClientFrame]) {
    let (mut speech, mut speaking) = (false, false);
    for (at, frame) in frames.iter().enumerate() {
        let legal = match frame.kind() {
            "vad.speech_start" => !std::mem::replace(&mut speech, true),
            "vad.speech_end" => std::mem::replace(&mut speech, false),
            "tts.speaking_start" => !std::mem::replace(&mut speaking, true),
            "tts.speaking_end" => std::mem::replace(&mut speaking, false),
            "audio" => speaking,
            "session.closed" => !speech && !speaking,
            _ => true,
        };
        assert!(legal, "{} at {at} is out of place", frame.kind());
    }
    assert!(!speech && !speaking, "a pair is still open");
}

/// A recording of `examples/speech`, int16 mono 16 kHz.
pub fn recording(name: &str) -> Vec<i16> {
    crate::world::recording(&format!("{name}_16k.wav"))
}

pub fn speech_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/speech")
}

/// A directory for the files of the test with this name.
pub fn scratch(name: &str) -> PathBuf {
    // `CARGO_TARGET_TMPDIR` is known only to test programs, which lie in `target/PROFILE/deps`.
    let program = std::env::current_exe().unwrap();
    let dir = program.ancestors().nth(3).unwrap().join("tmp").join(name);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// A directory with the default profile, in which these numbers are replaced: key, old, new.
pub fn profile_with_numbers(name: &str, numbers: &[(&str, u32, u32)]) -> PathBuf {
    let number =
        |(key, old, new): &(&str, u32, u32)| (format!("{key} = {old}\n"), format!("{key} = {new}\n"));
    let lines: Vec<_> = numbers.iter().map(number).collect();
    write_changed_mapping(name, "speech", include_str!("../../mappings/profile/speech.toml"), &lines)
}

/// A directory with the `conversation` profile, in which these lines are replaced: old, new.
pub fn conversation_profile_with(name: &str, lines: &[(&str, &str)]) -> PathBuf {
    let lines: Vec<_> = lines.iter().map(|(from, to)| (from.to_string(), to.to_string())).collect();
    write_changed_mapping(
        name,
        "conversation",
        include_str!("../../mappings/profile/conversation.toml"),
        &lines,
    )
}

/// A directory with the Macaw protocol in which a client may be ten minutes ahead of the clock. Fast
/// consecutive utterances need that.
pub fn macaw_with_ten_minute_lead(name: &str) -> PathBuf {
    let lines = [("max_ahead_ms = 10000".to_owned(), "max_ahead_ms = 600000".to_owned())];
    write_changed_mapping(name, "macaw", include_str!("../../mappings/client/macaw.toml"), &lines)
}

fn write_changed_mapping(name: &str, profile: &str, source: &str, lines: &[(String, String)]) -> PathBuf {
    let mut source = source.to_owned();
    for (from, to) in lines {
        let line = format!("\n{from}");
        assert_eq!(source.matches(&line).count(), 1, "{from} in profile {profile}");
        source = source.replace(&line, &format!("\n{to}"));
    }
    mappings_with(name, &format!("{profile}.toml"), &source)
}

/// A directory of this name with this mapping file. Tests that use it at the same time have to write the same text.
pub fn mappings_with(name: &str, file: &str, text: &str) -> PathBuf {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let dir = scratch(name);
    // Another test may be reading it: it is whole at every moment.
    let process = std::process::id();
    let whole = scratch("mappings-in-work").join(format!("{process}-{}", FILES.fetch_add(1, Relaxed)));
    std::fs::write(&whole, text).unwrap();
    std::fs::rename(&whole, dir.join(file)).unwrap();
    dir
}

pub fn bytes(samples: &[i16]) -> Vec<u8> {
    pcm::s16le_bytes(samples)
}

pub fn samples(bytes: &[u8]) -> Vec<i16> {
    assert_eq!(bytes.len() % 2, 0, "audio ends in the middle of a sample");
    pcm::s16le_samples(bytes)
}
