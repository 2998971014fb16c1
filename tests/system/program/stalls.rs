//! A thousand connections stalled at every stage: memory stays bounded, and healthy clients are unaffected.
//!
//! `VOXBRIDGE_STALLS=1000` sets the number per stage; the default is smaller. The test prints its figures.
//! Every bound is per connection and thus holds for any number.

use super::*;

/// Default number of stalled connections per stage.
const STALLED: usize = 120;
/// One in this many non-readers sends requests until the bridge accepts no more.
const FLOOD_EVERY: usize = 40;
/// Utterances and texts of a healthy client, with and without stalled connections.
const ROUNDS: usize = 7;
/// Memory that an allocator may keep.
const ALLOWANCE_KIB: u64 = 16 * 1024;
/// Descriptors apart from those of clients: listeners, the timer, closing lanes.
const ALLOWED_DESCRIPTORS: usize = 64;

#[expect(clippy::disallowed_methods, reason = "how many there are is said from outside")]
fn stalled_count() -> usize {
    std::env::var("VOXBRIDGE_STALLS").ok().map_or(STALLED, |count| count.parse().unwrap())
}

/// The stage of the stall, with its memory limit.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Connected, no bytes sent.
    Tcp,
    /// The first bytes of a TLS handshake.
    PartialTlsHandshake,
    /// After TLS, half of a request.
    PartialHttpHead,
    /// Upgraded without a first message, on a path where that message selects the protocol.
    SilentAfterUpgrade,
    /// A few bytes of a frame announced as 16 MB.
    PartialFrame,
    /// Stalled in the middle of an utterance.
    PartialUtterance,
    /// Requests a lot and reads nothing.
    NeverReads,
}

impl Stage {
    /// Memory limit per connection, KiB. A task and its buffers; TLS has its own (16 KiB per record and
    /// direction). A session has a resampler and a voice detector, and holds incoming audio twice, as samples
    /// and as floats. A client that does not read may have 2 MB of answers in its outbox.
    const fn memory_limit_kib(self) -> u64 {
        match self {
            Self::Tcp => 12,
            Self::PartialTlsHandshake => 32,
            Self::PartialHttpHead => 64,
            Self::SilentAfterUpgrade => 64,
            Self::PartialFrame => 96,
            Self::PartialUtterance => 320,
            Self::NeverReads => 320,
        }
    }

    /// Connects up to this stage.
    async fn connect(self, number: usize, server: &Server, tls: &TlsConnector) -> StalledConnection {
        match self {
            Self::Tcp => StalledConnection::Tcp(connect_tcp(server).await),
            Self::PartialTlsHandshake => {
                let mut stream = connect_tcp(server).await;
                stream.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").await.unwrap();
                StalledConnection::Tcp(stream)
            }
            Self::PartialHttpHead => {
                let name = "localhost".try_into().unwrap();
                let mut stream = tls.connect(name, connect_tcp(server).await).await.unwrap();
                stream.write_all(b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: local").await.unwrap();
                StalledConnection::Tls(Box::new(stream))
            }
            // Several protocols share this path.
            Self::SilentAfterUpgrade => {
                StalledConnection::Tcp(connect_websocket(server, "/v1/realtime").await.socket.into_inner())
            }
            Self::PartialFrame => {
                let mut stream = connect_macaw(server).await.socket.into_inner();
                let length = (16_u64 << 20).to_be_bytes();
                let head = [&[0x82, 0xff][..], &length, &[0; 4], &[0; 16_384]].concat();
                stream.write_all(&head).await.unwrap();
                StalledConnection::Tcp(stream)
            }
            Self::PartialUtterance => {
                let mut client = connect_macaw(server).await;
                client.send_audio(&bytes(&recording("goforward")[..20_000]), 640).await;
                StalledConnection::Tcp(client.socket.into_inner())
            }
            Self::NeverReads => {
                let mut client = connect_macaw(server).await;
                client.send_json(json!({"type": "tts.speak", "text": "One, two, three, four, five."})).await;
                let mut stream = client.socket.into_inner();
                // A masked text frame `{}`: eight bytes, and an error of 150 bytes for each.
                let flood = [0x81, 0x82, 0, 0, 0, 0, b'{', b'}'].repeat(64);
                stream.write_all(&flood).await.unwrap();
                if number.is_multiple_of(FLOOD_EVERY) {
                    let more = flood.repeat(128);
                    let taken = async |stream: &mut TcpStream| {
                        timeout(Duration::from_millis(500), stream.write_all(&more))
                            .await
                            .is_ok_and(|it| it.is_ok())
                    };
                    while taken(&mut stream).await {}
                }
                StalledConnection::Tcp(stream)
            }
        }
    }
}

/// A connection held open.
enum StalledConnection {
    Tcp(TcpStream),
    Tls(Box<tokio_rustls::client::TlsStream<TcpStream>>),
}

impl StalledConnection {
    /// Reads the rest; the connection must end, politely or not.
    async fn wait_for_end(self, within: Duration) {
        let mut stream = match self {
            Self::Tcp(stream) => stream,
            Self::Tls(stream) => stream.into_inner().0,
        };
        let mut rest = vec![0; 65_536];
        let end = async { while matches!(stream.read(&mut rest).await, Ok(1..)) {} };
        timeout(within, end).await.expect("the connection is still open");
    }
}

/// A TCP connection with a small window, so that unread data stays with the server.
async fn connect_tcp(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    timeout(PATIENCE, socket.connect(server.address)).await.expect("the connection is not accepted").unwrap()
}

async fn connect_websocket(server: &Server, path: &str) -> Client {
    let (head, client) = open_websocket(connect_tcp(server).await, path, "", &[]).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    client
}

async fn connect_macaw(server: &Server) -> Client {
    let mut client = connect_websocket(server, "/v1/realtime?model=m").await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

/// The process's resident memory in KiB and its number of open descriptors.
fn memory_and_descriptors(server: &Server) -> (u64, usize) {
    let proc = format!("/proc/{}", server.process.id().unwrap());
    let status = fs::read_to_string(format!("{proc}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib = line.trim().trim_end_matches(" kB").parse().unwrap();
    (kib, fs::read_dir(format!("{proc}/fd")).unwrap().count())
}

/// Response times of a healthy client: until a transcript and until audio. Each round has its own session,
/// because the client sends faster than real time, which one session would reject.
#[derive(Default)]
struct ResponseTimes {
    words: Vec<Duration>,
    voice: Vec<Duration>,
}

impl ResponseTimes {
    async fn round(&mut self, server: &Server) {
        let mut client = server.client().await;
        client.send_audio(&bytes(&recording("goforward")), 640).await;
        let utterance_end = Instant::now();
        client.send_audio(&bytes(&[0; 8_000]), 640).await;
        client.wait_for_event("transcript.final").await;
        self.words.push(utterance_end.elapsed());
        let speak_sent = Instant::now();
        client.send_json(json!({"type": "tts.speak", "text": "Good morning."})).await;
        client.wait_for_event("tts.speaking_start").await;
        self.voice.push(speak_sent.elapsed());
        assert_eq!(client.wait_for_event("tts.speaking_end").await["cancelled"], false);
        client.close().await;
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

/// Checks that response times have not grown tenfold. An increase of 0.2 s is within the noise of a busy
/// machine.
fn assert_not_slower(what: &str, crowded: &[Duration], calm: &[Duration]) {
    let (crowded, calm) = (median(crowded), median(calm));
    println!("{what}: {crowded:.1?} among the stalled, {calm:.1?} without them (medians of {ROUNDS})");
    assert!(crowded < 4 * calm + Duration::from_millis(800), "{what}: {crowded:?} instead of {calm:?}");
}

/// Two servers with one upstream: one for stalled connections and one without them.
struct ServerPair {
    crowded: Server,
    calm: Server,
    /// Figures of the crowded server when it is empty.
    before: (u64, usize),
}

impl ServerPair {
    async fn start(dir: &Path, upstream: &str, toml: &str) -> Self {
        let path = config(dir, toml);
        let crowded = Server::start(upstream, &["--log", "error", "--config", &path]).await;
        let calm = Server::start(upstream, &["--log", "error"]).await;
        let before = memory_and_descriptors(&crowded);
        Self { crowded, calm, before }
    }

    /// Stalls this many connections at this stage and checks the bounds.
    async fn stall_many(&self, stage: Stage, count: usize, tls: &TlsConnector) -> Vec<StalledConnection> {
        let (kib, raise_descriptor_limit) = memory_and_descriptors(&self.crowded);
        let mut all = Vec::new();
        let from = Instant::now();
        // Connects in groups, because the accept queue is limited.
        for some in (0..count).collect::<Vec<_>>().chunks(50) {
            all.extend(join_all(some.iter().map(|number| stage.connect(*number, &self.crowded, tls))).await);
        }
        let (after, now_open) = memory_and_descriptors(&self.crowded);
        let each = after.saturating_sub(kib) as f64 / count as f64;
        println!(
            "{stage:?}: {count} in {:.1?}: {kib} -> {after} KiB ({each:.1} each), {raise_descriptor_limit} -> {now_open} descriptors",
            from.elapsed()
        );
        assert!(
            after < kib + ALLOWANCE_KIB + count as u64 * stage.memory_limit_kib(),
            "{kib} -> {after} KiB"
        );
        // A session that awaits a transcript has at most two lanes.
        assert!(
            now_open <= raise_descriptor_limit + 3 * count + ALLOWED_DESCRIPTORS,
            "{stage:?}: {now_open} descriptors"
        );
        all
    }

    /// Checks that all connections end and their resources are released.
    async fn assert_released(&self, stalled: Vec<StalledConnection>, within: Duration) {
        let (count, from) = (stalled.len(), Instant::now());
        join_all(stalled.into_iter().map(|one| one.wait_for_end(within + PATIENCE))).await;
        let max = self.before.1 + ALLOWED_DESCRIPTORS;
        wait_until("descriptors are released", || memory_and_descriptors(&self.crowded).1 <= max).await;
        let (kib, raise_descriptor_limit) = memory_and_descriptors(&self.crowded);
        println!("{count} ended after another {:.1?}", from.elapsed());
        println!(
            "released: {} -> {kib} KiB, {} -> {raise_descriptor_limit} descriptors",
            self.before.0, self.before.1
        );
        // The allocator keeps a few KiB of freed memory per connection.
        assert!(kib < self.before.0 + 2 * ALLOWANCE_KIB + 96 * count as u64, "{kib} KiB");
    }
}

/// Raises the limit to both ends of every connection.
async fn raise_descriptor_limit(count: usize) {
    let limit = format!("--nofile={count}:");
    let id = std::process::id().to_string();
    // If the limit cannot be raised, it may already be high enough.
    let _ = Command::new("prlimit").args(["--pid", &id, &limit]).status().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_handshakes_cost_little_and_time_out() {
    let _machine = busy_machine().await;
    let count = stalled_count();
    raise_descriptor_limit(4 * count + 2_000).await;
    let (address, _simulator, _) = start_simulator(
        "127.0.0.1:0",
        SimulatorConfig { record: false, workers: 8, ..instant_simulator() },
        None,
    )
    .await;
    let upstream = format!("ws://{address}/v1/realtime");
    let dir = scratch("stalls-before");
    let (cert, key, tls) = certificate();
    fs::write(dir.join("cert.pem"), cert).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
    let room = 3 * count + 100;
    let toml = format!(
        "[tls]\ncert = \"cert.pem\"\nkey = \"key.pem\"\n\
         [limits]\nhandshake_timeout_ms = 5000\nhandshakes_max = {room}\n"
    );
    let two = ServerPair::start(&dir, &upstream, &toml).await;
    let mut all = Vec::new();
    for stage in [Stage::Tcp, Stage::PartialTlsHandshake, Stage::PartialHttpHead] {
        all.extend(two.stall_many(stage, count, &tls).await);
    }
    // Measures response times of a healthy client.
    let (mut crowded, mut calm) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let from = Instant::now();
        let name = "localhost".try_into().unwrap();
        let mut stream =
            tls.connect(name, TcpStream::connect(two.crowded.address).await.unwrap()).await.unwrap();
        stream.write_all(b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
        crowded.push(from.elapsed());
        let from = Instant::now();
        let mut stream = TcpStream::connect(two.calm.address).await.unwrap();
        stream.write_all(b"GET /v1/realtime?model=m HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 512]).await.unwrap() > 0);
        calm.push(from.elapsed());
    }
    assert_not_slower("an answer", &crowded, &calm);
    two.assert_released(all, Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_sessions_cost_little_and_time_out() {
    let _machine = busy_machine().await;
    let count = stalled_count();
    raise_descriptor_limit(8 * count + 2_000).await;
    // A worker for every session: this test does not measure the queue.
    let simulator = SimulatorConfig { record: false, workers: 3 * count + 100, ..instant_simulator() };
    let (address, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let upstream = format!("ws://{address}/v1/realtime");
    let (room, idle_ms) = (4 * count + 100, 3_000 + 20 * count);
    let toml =
        format!("sessions_max = {room}\nidle_timeout_ms = {idle_ms}\n[limits]\nhandshakes_max = {room}\n");
    let two = ServerPair::start(&scratch("stalls-within"), &upstream, &toml).await;
    let tls = certificate().2;
    let (mut crowded, mut calm) = (ResponseTimes::default(), ResponseTimes::default());
    let mut all = Vec::new();
    for stage in [Stage::SilentAfterUpgrade, Stage::PartialFrame, Stage::PartialUtterance, Stage::NeverReads]
    {
        let is_full = AtomicBool::new(false);
        let crowding = async {
            let stalled = two.stall_many(stage, count, &tls).await;
            is_full.store(true, Relaxed);
            stalled
        };
        // The server still works.
        let survives = async {
            while !is_full.load(Relaxed) {
                crowded.round(&two.crowded).await;
            }
        };
        let (stalled, ()) = tokio::join!(crowding, survives);
        all.extend(stalled);
    }
    crowded = ResponseTimes::default();
    for _ in 0..ROUNDS {
        crowded.round(&two.crowded).await;
        calm.round(&two.calm).await;
    }
    assert_not_slower("words", &crowded.words, &calm.words);
    assert_not_slower("a voice", &crowded.voice, &calm.voice);
    two.assert_released(all, Duration::from_millis(idle_ms as u64)).await;
}
