//! Unmodified public clients of the Macaw protocol: the `macaw` command line, the demo page's WebSocket code,
//! and common WebSocket libraries.

use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStdout},
    sync::oneshot,
    task::JoinHandle,
};
use voxbridge::{
    config::UpstreamConfig,
    server::Server,
    simulator::socket::{self, InputRecorder, RecordedInput},
};
use voxbridge_test_support::programs::send_signal;

use super::{client_programs::clients_dir, *};

const PATIENCE: Duration = Duration::from_secs(40);
/// Limit for reactions that need no computation but the client's own.
const REACTION_MAX: Duration = Duration::from_secs(4);
const RECORDING: &str = "librivox_0880_16k.wav";
const EXPECTED_WORDS: &str = "he was not an ill disposed young man";
/// Another processor may get one of the eight words wrong.
const WER: f64 = 0.13;
/// Versions installed by `tests/clients/setup`.
const WEBSOCKETS: [&str; 2] = ["websockets-13.1", "websockets-17.4"];

/// A bridge with a simulated upstream; ends when dropped.
struct Bench {
    address: SocketAddr,
    received: InputRecorder,
    stop: Option<oneshot::Sender<()>>,
    bridge: JoinHandle<()>,
    _simulator: oneshot::Sender<()>,
}

impl Bench {
    async fn start(engines: Option<Arc<dyn SpeechEngines>>, config: Config) -> Self {
        // One worker per client; other tests cover the queue.
        let simulated = SimulatorConfig { workers: 16, record: true, ..SimulatorConfig::default() };
        let mut simulator = socket::bind("127.0.0.1:0", simulated).await.unwrap();
        if let Some(engines) = engines {
            simulator = simulator.with_engines(engines);
        }
        let received = simulator.recorder();
        let url = format!("ws://{}/v1/realtime", simulator.local_addr());
        let (simulator_stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(simulator.run(async { drop(stopped.await) }));

        let mut config = config;
        if config.upstream.is_empty() {
            config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
        }
        let service = config.build_service().unwrap_or_else(|problem| panic!("{problem}"));
        let server = Server::bind("127.0.0.1:0", service).await.unwrap();
        let address = server.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let bridge = tokio::spawn(server.run(async { drop(stopped.await) }));
        Self { address, received, stop: Some(stop), bridge, _simulator: simulator_stop }
    }
}

/// A running `macaw transcribe --stream`.
struct MacawCommand {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl MacawCommand {
    fn start(websockets: &str, server: SocketAddr, more: &[&str]) -> Self {
        let mut child = python(clients_dir().join("macaw/bin/macaw"), &["macaw", websockets])
            .args(["transcribe", "--stream", "--model", "faster-whisper-tiny", "--server"])
            .arg(format!("http://{server}"))
            .args(more)
            .env("MICROPHONE", recording(RECORDING))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The printed first transcript: partials overwrite one another, then the final one.
    async fn transcript(&mut self) -> String {
        loop {
            let mut line = String::new();
            let read =
                timeout(PATIENCE, self.out.read_line(&mut line)).await.expect("the client prints nothing");
            assert!(read.unwrap() > 0, "the client ended:\n{}", self.errors().await);
            if let Some((partial, last)) = line.split_once("\r> ") {
                assert!(partial.contains("\r  ... "), "no partial transcript: {line:?}");
                return last.trim().to_owned();
            }
        }
    }

    /// The first line of standard error that contains this text.
    async fn error_with(&mut self, wanted: &str) -> String {
        let mut errors = BufReader::new(self.child.stderr.as_mut().unwrap()).lines();
        loop {
            let line = timeout(PATIENCE, errors.next_line()).await.expect("no error").unwrap();
            let line = line.unwrap_or_else(|| panic!("the client ended without {wanted:?}"));
            if line.contains(wanted) {
                return line;
            }
        }
    }

    async fn errors(&mut self) -> String {
        let mut errors = String::new();
        self.child.stderr.as_mut().unwrap().read_to_string(&mut errors).await.unwrap();
        errors
    }

    async fn press_ctrl_c(&self) {
        send_signal(self.child.id().unwrap(), "-INT");
    }

    /// Waits for a prompt end; returns the exit code, the rest of the output, and the errors.
    async fn end(mut self) -> (Option<i32>, String, String) {
        let status =
            timeout(REACTION_MAX, self.child.wait()).await.expect("the client does not end").unwrap();
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).await.unwrap();
        (status.code(), rest, self.errors().await)
    }
}

/// Checks the end after Ctrl-C. Python may first report that its sending task met the closed connection.
fn assert_aborted(code: Option<i32>, errors: &str) {
    assert!(code == Some(1) && errors.trim().ends_with("Aborted!"), "{code:?}: {errors}");
}

#[tokio::test(flavor = "multi_thread")]
async fn macaw_clients_print_spoken_words() {
    let Some(engines) = shared_engines_for_clients().await else { return };
    let mut bench = Bench::start(Some(engines), Config::default()).await;
    let address = bench.address;

    let mut clients = JoinSet::new();
    for websockets in WEBSOCKETS {
        clients.spawn(async move {
            let options = ["--language", "en", "--hot-words", "ill,disposed", "--no-itn"];
            let mut macaw = MacawCommand::start(websockets, address, &options);
            let text = macaw.transcript().await;
            println!("macaw over {websockets}: {text}");
            assert!(word_error_rate(EXPECTED_WORDS, &text) <= WER, "{text}");
            macaw
        });
    }
    let page = run_demo_page(address);
    let (macaws, page) = tokio::join!(clients.join_all(), page);
    assert_page(&page);

    let questions = bench.received.all();
    let questions = questions
        .iter()
        .filter(|it| matches!(it, RecordedInput::Message(_, text) if text.contains("ill, disposed")));
    assert_eq!(questions.count(), WEBSOCKETS.len(), "hot words are sent before session.created was read");

    let [first, second] = <[MacawCommand; 2]>::try_from(macaws).ok().unwrap();
    // The client sends `session.close`, waits for the end of the connection, and ends like any click program
    // after Ctrl-C.
    first.press_ctrl_c().await;
    let (code, _, errors) = first.end().await;
    assert_aborted(code, &errors);
    // `session.closed` also ends the client.
    bench.stop.take();
    let (code, out, errors) = second.end().await;
    assert_eq!((code, out.trim(), errors.trim()), (Some(0), "Done.", ""));
    // The text the page cancelled is still being generated; its lane stays open until then.
    timeout(PATIENCE, bench.bridge).await.expect("sessions are left over").unwrap();
    let disconnects =
        bench.received.all().into_iter().filter(|it| matches!(it, RecordedInput::Disconnected(_)));
    assert_eq!(disconnects.count(), 0, "lanes that were not closed");
}

async fn run_demo_page(address: SocketAddr) -> Value {
    let mut page = node("demo_page.cjs");
    page.arg(format!("ws://{address}")).arg(recording(RECORDING));
    serde_json::from_str(&run(page).await).unwrap()
}

fn assert_page(page: &Value) {
    let text = page["finals"][0]["text"].as_str().unwrap();
    assert!(word_error_rate(EXPECTED_WORDS, text) <= WER, "{text}");
    assert_eq!(page["finals"][0]["id"], 0);
    assert!(page["partials"].as_u64() > Some(0), "{page}");
    for (field, kind) in [
        ("session.created.session_id", "string"),
        ("transcript.partial.text", "string"),
        ("transcript.partial.segment_id", "number"),
        ("transcript.final.text", "string"),
        ("transcript.final.segment_id", "number"),
        ("tts.speaking_start.request_id", "string"),
        ("tts.speaking_end.request_id", "string"),
        ("tts.speaking_end.cancelled", "boolean"),
    ] {
        assert_eq!(page["types"][field], kind, "{field}");
    }
    assert_eq!(page["spoken"].as_array().unwrap().len(), 2, "{page}");
    assert!(page["spoken"][0]["played"].as_u64() > Some(12_000), "{page}");
    assert_eq!(page["spoken"][1], json!({"cancelled": true, "played": 0}));
    assert_eq!((&page["errors"], &page["socketErrors"]), (&json!([]), &json!(0)));
    assert_eq!((&page["code"], &page["wasClean"]), (&json!(1000), &json!(true)));
    assert!(page["closedAfterMs"].as_u64() < Some(REACTION_MAX.as_millis() as u64), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn websocket_libraries_receive_words() {
    if installed_clients().is_none() {
        return;
    }
    let bench = Bench::start(None, Config::default()).await;
    let conversation_bench = Bench::start(None, conversation()).await;
    let libraries = WEBSOCKETS
        .iter()
        .flat_map(|version| {
            ["WebsocketsLegacy", "WebsocketsAsyncio", "WebsocketsThreads"].map(|it| (*version, it))
        })
        .chain([("aiohttp", "Aiohttp"), ("websocket-client", "WebsocketClient")]);
    let mut running = JoinSet::new();
    for (package, library) in libraries {
        for (bench, profile) in [(&bench, "speech"), (&conversation_bench, "conversation")] {
            let url = page_row("macaw", "websockets").code_for(bench.address);
            let mut client = python("talk.py", &[package]);
            client
                .arg(library)
                .arg(format!("{}&language=en", url.replace("NAME", "any")))
                .arg(recording("goforward_16k.wav"))
                .arg(profile);
            running.spawn(run(client));
        }
    }
    assert_eq!(running.join_all().await.len(), 16);
}

fn conversation() -> Config {
    Config { profile: Some("conversation".into()), ..Config::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_prints_model_words() {
    if installed_clients().is_none() {
        return;
    }
    let bench = Bench::start(None, conversation()).await;
    let mut clients = JoinSet::new();
    for websockets in WEBSOCKETS {
        let address = bench.address;
        clients.spawn(async move {
            let mut macaw = MacawCommand::start(websockets, address, &[]);
            assert_eq!(macaw.transcript().await, "I heard 3.0 seconds of speech.");
            macaw.press_ctrl_c().await;
            let (code, _, errors) = macaw.end().await;
            assert_aborted(code, &errors);
        });
    }
    assert_eq!(clients.join_all().await.len(), WEBSOCKETS.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn command_line_prints_errors() {
    if installed_clients().is_none() {
        return;
    }
    let unreachable = UpstreamConfig {
        url: "ws://127.0.0.1:1/v1/realtime".into(),
        ..UpstreamConfig::with_default_dialect()
    };
    let no_upstream = Bench::start(None, Config { upstream: vec![unreachable], ..Config::default() });
    let route = RouteConfig { model: "another".into(), ..RouteConfig::catch_all("speech") };
    let no_model = Bench::start(None, Config { routes: vec![route], ..Config::default() });
    let (no_upstream, no_model) = tokio::join!(no_upstream, no_model);

    let mut waiting = MacawCommand::start(WEBSOCKETS[1], no_upstream.address, &[]);
    let mut refused = MacawCommand::start(WEBSOCKETS[1], no_model.address, &[]);
    refused.error_with("Unexpected event: error").await;
    refused.error_with("1008 (policy violation) Model not found: faster-whisper-tiny").await;
    let (code, out, _) = refused.end().await;
    assert_eq!(code, Some(0), "as with the real server: {out}");

    // The bridge tries for ten seconds; then the session goes on.
    let line = waiting.error_with("[recovering]").await;
    assert!(line.contains("utterance 0 was not transcribed: the upstream cannot be reached"), "{line}");
    waiting.press_ctrl_c().await;
    let (code, _, errors) = waiting.end().await;
    assert_aborted(code, &errors);
}
