//! `voxbridge doctor` against healthy and broken servers: it names the failed step and the cause, and closes
//! its sessions politely.

use rcgen::date_time_ymd;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::{
    accept_hdr_async,
    tungstenite::handshake::server::{Request, Response},
};
use voxbridge_test_support::certs::{acceptor, signed_with};

use super::*;

/// Longer than any check takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
/// Step timeout, s.
const STEP: &str = "1.5";

fn voxbridge(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
    command.arg("doctor").args(args).current_dir(scratch("doctor")).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    clear_settings(command.as_std_mut());
    command
}

/// Result of a run.
struct Report {
    code: i32,
    json: Value,
}

impl Report {
    async fn run(args: &[&str]) -> Self {
        Self::run_with(args, "", async {}).await
    }

    /// Does this once the doctor has said these words on standard error.
    async fn run_with(args: &[&str], words: &str, then: impl Future<Output = ()>) -> Self {
        let args: Vec<&str> = args.iter().copied().chain(["--json", "--timeout", STEP]).collect();
        let mut process = voxbridge(&args).spawn().unwrap();
        let (mut said, mut then) = (String::new(), Some(then));
        let mut lines = BufReader::new(process.stderr.take().unwrap()).lines();
        let listening = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                said.push_str(&line);
                if let Some(then) = then.take_if(|_| said.contains(words)) {
                    then.await;
                }
            }
        };
        let running = async { tokio::join!(process.wait_with_output(), listening).0.unwrap() };
        let output = timeout(PATIENCE, running).await.expect("the doctor does not end");
        let stdout = String::from_utf8_lossy(&output.stdout);
        let json = serde_json::from_str(&stdout).unwrap_or_else(|_| panic!("{stdout}{said}"));
        assert!(words.is_empty() || then.is_none(), "no {words:?} in {said:?}");
        Self { code: output.status.code().unwrap(), json }
    }

    fn steps(&self) -> &Vec<Value> {
        self.json["checks"][0]["steps"].as_array().unwrap()
    }

    fn verdict(&self, step: &str) -> &str {
        self.step(step)["verdict"].as_str().unwrap()
    }

    fn step(&self, step: &str) -> &Value {
        let found = self.steps().iter().find(|one| one["step"] == step);
        found.unwrap_or_else(|| panic!("no {step} in {:#}", self.json))
    }

    fn assert_healthy(&self) {
        assert_eq!((self.code, &self.json["ok"]), (0, &json!(true)), "{:#}", self.json);
        assert!(self.steps().iter().all(|step| step["verdict"] != "failed"), "{:#}", self.json);
    }

    /// Checks that this step failed, earlier ones succeeded, and later ones up to the close were skipped.
    fn assert_failed(&self, failed: &str, words: &[&str]) {
        assert_eq!((self.code, &self.json["ok"]), (1, &json!(false)), "{:#}", self.json);
        let at = self.steps().iter().position(|step| step["verdict"] == "failed");
        let at = at.unwrap_or_else(|| panic!("no step failed: {:#}", self.json));
        assert_eq!(self.steps()[at]["step"], failed, "{:#}", self.json);
        for later in self.steps()[at + 1..].iter().filter(|step| step["step"] != "close") {
            assert_eq!(later["verdict"], "skipped", "{later}");
        }
        let problem = self.steps()[at]["problem"].to_string();
        for words in words {
            assert!(problem.contains(words), "no {words:?} in {problem}");
        }
    }
}

/// A simulated upstream that records and answers immediately.
async fn start_simulated_server(
    faults: &[&str],
    dialect: SimDialect,
) -> (String, RunningServer, InputRecorder) {
    let faults = faults.iter().map(|fault| fault.parse().unwrap()).collect();
    let config = SimulatorConfig { faults, dialect, ..instant_simulator() };
    let (address, running, recorder) = start_simulator("127.0.0.1:0", config, None).await;
    (format!("ws://{address}"), running, recorder)
}

/// Checks that no session was left without a close.
fn assert_sessions_closed(recorder: &InputRecorder) {
    let disconnected =
        recorder.all().iter().any(|received| matches!(received, RecordedInput::Disconnected(_)));
    assert!(!disconnected, "{:#?}", recorder.all());
}

const LEGACY: SimDialect = SimDialect::Legacy { follows_document: false };
const DOCUMENTED_LEGACY: SimDialect = SimDialect::Legacy { follows_document: true };
/// Options of a run in a mode that answers each second of audio at once.
const CONVERSATION_ARGS: [&str; 2] = ["--profile", "conversation"];
const CURRENT_ARGS: [&str; 4] = ["--upstream-dialect", "minicpm-o", "--profile", "conversation"];
const LEGACY_ARGS: [&str; 4] = ["--upstream-dialect", "minicpm-o-legacy", "--profile", "conversation"];

#[tokio::test]
async fn healthy_servers_pass_every_step() {
    let routes =
        "[[route]]\nmodel = \"talk*\"\nprofile = \"conversation\"\n[[route]]\nprofile = \"speech\"\n";
    let routes_config = ["--config", &write_pem("both.toml", routes)];
    for (dialect, backend, args, words) in [
        (SimDialect::Current, Backend::Pytorch, &routes_config[..], "back-end pytorch"),
        (SimDialect::Current, Backend::Cpp, &routes_config, "back-end llama.cpp-omni"),
        (LEGACY, Backend::Pytorch, &LEGACY_ARGS, "rt_"),
        (DOCUMENTED_LEGACY, Backend::Pytorch, &LEGACY_ARGS, "rt_"),
    ] {
        let config = SimulatorConfig { dialect, backend, ..instant_simulator() };
        let (address, _running, recorder) = start_simulator("127.0.0.1:0", config, None).await;
        let url = format!("ws://{address}");
        let report = Report::run(&[&["--upstream", &url], args].concat()).await;
        report.assert_healthy();
        for step in ["configuration", "tcp", "upgrade", "queue", "init", "answer", "close"] {
            assert_eq!(report.verdict(step), "ok", "{:#}", report.json);
        }
        let note = report.step("init")["note"].as_str().unwrap();
        assert!(note.contains(words), "{note}");
        assert_sessions_closed(&recorder);
        // The profile of speech clients needs another mode.
        let modes = report.steps().iter().any(|step| step["step"] == "modes");
        assert_eq!(modes, dialect == SimDialect::Current);
    }
}

#[tokio::test]
async fn chat_is_checked_with_a_question() {
    let (url, _running, recorder) = start_simulated_server(&[], SimDialect::Current).await;
    let report = Report::run(&["--upstream", &format!("{url}/v1/realtime?mode=chat")]).await;
    report.assert_healthy();
    let (url, _running, _) = start_simulated_server(&["empty-transcript"], SimDialect::Current).await;
    Report::run(&["--upstream", &format!("{url}/v1/realtime?mode=chat")]).await.assert_healthy();
    assert_sessions_closed(&recorder);
}

#[tokio::test]
async fn failure_after_upgrade_is_named_and_session_closed() {
    for (fault, step, words) in [
        ("queue-full", "queue", &["queue of the gateway is full"][..]),
        ("busy", "queue", &["has no worker", "/status"]),
        ("403-after-queue", "init", &["never becomes ready", "HTTP 403"]),
        ("403-after-queue=1", "init", &["A second attempt worked", "without closing its session"]),
        ("die-before-created", "init", &["never becomes ready", "backend_error"]),
        ("slow-init=30", "init", &["not ready after", "--timeout"]),
        ("never-answers", "answer", &["did not answer", "back-end hangs"]),
        ("slow-steps=1.1", "answer", &["slower than real time", "1.1"]),
    ] {
        let (url, _running, recorder) = start_simulated_server(&[fault], SimDialect::Current).await;
        let report = Report::run(&[&["--upstream", &url], &CONVERSATION_ARGS[..]].concat()).await;
        report.assert_failed(step, words);
        // A session that is still initialising gets no close in time.
        if fault != "slow-init=30" {
            assert_sessions_closed(&recorder);
        }
    }
}

/// The upgrade succeeds in every mode.
#[tokio::test]
async fn mode_that_is_accepted_but_not_answered_fails() {
    let routes =
        "[[route]]\nmodel = \"talk*\"\nprofile = \"conversation\"\n[[route]]\nprofile = \"speech\"\n";
    let config = write_pem("both-modes.toml", routes);
    let (url, _running, recorder) = start_simulated_server(&["die-mid-answer"], SimDialect::Current).await;
    let report = Report::run(&["--upstream", &url, "--config", &config]).await;
    assert_eq!(report.verdict("answer"), "ok", "{:#}", report.json);
    report.assert_failed("modes", &["chat", "does not answer"]);
    assert_sessions_closed(&recorder);
}

#[tokio::test]
async fn announced_workers_are_reported() {
    let config = SimulatorConfig { workers: 3, ..instant_simulator() };
    let (address, _running, _) = start_simulator("127.0.0.1:0", config, None).await;
    let report =
        Report::run(&[&["--upstream", &format!("ws://{address}")], &CONVERSATION_ARGS[..]].concat()).await;
    report.assert_healthy();
    let note = report.step("queue")["note"].as_str().unwrap();
    assert!(note.contains("workers: 3"), "{note}");
}

#[tokio::test]
async fn slow_server_is_not_reported_broken() {
    let ms = Duration::from_millis;
    let timing = SimTiming { listen_step: ms(900), ..SimTiming::instant() };
    let (address, _running, _) =
        start_simulator("127.0.0.1:0", SimulatorConfig { timing, ..instant_simulator() }, None).await;
    let url = format!("ws://{address}");
    let report = Report::run(&[&["--upstream", &url], &CONVERSATION_ARGS[..]].concat()).await;
    report.assert_healthy();
    assert!(report.step("answer")["note"].as_str().unwrap().contains("0.9"), "{:#}", report.json);
}

#[tokio::test]
async fn dialect_is_detected() {
    for (dialect, args, right) in [
        (SimDialect::Current, &LEGACY_ARGS[..], "minicpm-o"),
        (LEGACY, &CURRENT_ARGS, "minicpm-o-legacy"),
        (DOCUMENTED_LEGACY, &CURRENT_ARGS, "minicpm-o-legacy"),
    ] {
        let (url, _running, recorder) = start_simulated_server(&[], dialect).await;
        let report = Report::run(&[&["--upstream", &url], args].concat()).await;
        report.assert_failed("init", &["The server speaks", &format!("dialect = \\\"{right}\\\"")]);
        assert_sessions_closed(&recorder);
    }
}

#[tokio::test]
async fn wrong_path_and_mode_are_distinguished_from_authentication() {
    let (url, _running, recorder) = start_simulated_server(&[], SimDialect::Current).await;
    let wrong_path = format!("{url}/realtime");
    let report = Report::run(&[&["--upstream", &wrong_path], &CONVERSATION_ARGS[..]].concat()).await;
    report.assert_failed("upgrade", &["HTTP 403", "/v1/realtime?mode=audio", "for this upstream"]);
    assert_sessions_closed(&recorder);
    let (url, _running, _) = start_simulated_server(&[], DOCUMENTED_LEGACY).await;
    // The documented legacy server has no chat.
    let report = Report::run(&["--upstream", &format!("{url}/v1/realtime?mode=chat")]).await;
    report.assert_failed("upgrade", &["mode=audio"]);
}

#[tokio::test]
async fn voice_is_checked_locally_and_on_server() {
    let dir = scratch("doctor-voice");
    let wav = speech_dir().join("goforward_16k.wav");
    let mapping = include_str!("../../../../mappings/upstream/minicpm-o.toml");
    let small = mapping.replace("message_max_bytes = 134217728", "message_max_bytes = 100000");
    fs::write(dir.join("small.toml"), small).unwrap();
    let config = |name: &str, url: &str, more: &str| {
        let path = scratch("doctor").join(name);
        let text = format!("{more}\n[[upstream]]\nurl = \"{url}\"\n[voices]\ndefault = {wav:?}\n");
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (url, _running, recorder) = start_simulated_server(&[], SimDialect::Current).await;
    let file = config("large.toml", &url, &format!("mappings = {dir:?}"));
    let report = Report::run(&["--config", &file]).await;
    report.assert_failed("configuration", &["allows 100000", "too large"]);
    assert!(recorder.all().is_empty(), "the bad file never reaches the server");

    let file = config("voice.toml", &url, "");
    Report::run(&["--config", &file]).await.assert_healthy();
    // The document requires a WAV file; the real server requires samples.
    let (url, _running, _) = start_simulated_server(&[], DOCUMENTED_LEGACY).await;
    let file = config("wav.toml", &url, "profile = \"conversation\"");
    let report = Report::run(&["--config", &file, "--upstream-dialect", "minicpm-o-legacy"]).await;
    report.assert_failed("init", &["encoded as a WAV file worked", "voice_encodings"]);
}

/// A client of the model's own protocol that holds a worker.
async fn hold_worker(address: SocketAddr) -> Client {
    let mut client = dial(address, "/v1/realtime?mode=audio").await;
    client.wait_for_event("session.queue_done").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    client
}

#[tokio::test]
async fn held_worker_is_detected_and_next_session_served() {
    let (address, _running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let held = hold_worker(address).await;
    let url = format!("ws://{address}");
    let args = ["--upstream", &url];
    // The doctor has given up, and waits until it can close its session.
    let report = Report::run_with(&args, WAITS, async { drop(held.close().await) }).await;
    report.assert_failed("queue", &["position 1 of 1", "Another client occupies the worker"]);
    assert_eq!(report.verdict("close"), "ok");
    // The doctor left the queue, and the worker serves the next session normally.
    hold_worker(address).await.close().await;
    Report::run(&["--upstream", &format!("ws://{address}")]).await.assert_healthy();
    hold_worker(address).await.close().await;
}

#[tokio::test]
async fn server_of_openais_protocol_is_found_checked_and_told_from_one_in_full_duplex() {
    for kind in [RealtimeServer::Openai, RealtimeServer::VllmOmni] {
        let dialect = SimDialect::OpenaiRealtime(kind);
        let config = SimulatorConfig { dialect, workers: 4, ..instant_simulator() };
        let (address, _running, _) = start_simulator("127.0.0.1:0", config, None).await;
        let url = format!("ws://{address}");
        let file = scratch("program").join(format!("doctor-{kind:?}.toml"));
        let model = if kind == RealtimeServer::Openai { "model = \"gpt-realtime\"\n" } else { "" };
        let upstream = format!("[[upstream]]\nurl = {url:?}\n{model}");
        fs::write(&file, format!("profile = \"assistant\"\n{upstream}")).unwrap();
        for profile in ["speech", "assistant", "conversation"] {
            Report::run(&["--config", file.to_str().unwrap(), "--profile", profile]).await.assert_healthy();
        }
        if kind == RealtimeServer::Openai {
            fs::write(&file, format!("profile = \"assistant\"\n[[upstream]]\nurl = {url:?}\n")).unwrap();
            let report = Report::run(&["--config", file.to_str().unwrap()]).await;
            report.assert_failed("init", &["missing_model", "Set `model`"]);
        } else {
            let args = ["--upstream", &url, "--upstream-dialect", "vllm-omni"];
            let report = Report::run(&[&args[..], &CONVERSATION_ARGS].concat()).await;
            report.assert_failed("init", &["--upstream-dialect openai-realtime"]);
        }
    }
}

#[tokio::test]
async fn advice_names_the_start_options_of_the_server() {
    let config = SimulatorConfig { dialect: SimDialect::SglangOmni, workers: 1, ..instant_simulator() };
    let (address, _running, _) = start_simulator("127.0.0.1:0", config, None).await;
    let _held = dial(address, "/v1/realtime").await;
    let url = format!("ws://{address}");
    let report = Report::run(&[&["--upstream", &url][..], &CONVERSATION_ARGS].concat()).await;
    report.assert_failed("upgrade", &["`max_sessions`", "sgl-omni serve"]);

    let turn_based = r#"{"type":"error","error":"Realtime API is not available","code":"unsupported"}"#;
    let url = serve_text(turn_based).await;
    let voice = speech_dir().join("goforward_16k.wav");
    let config = scratch("program").join("doctor-vllm.toml");
    fs::write(&config, format!("[voices]\ndefault = {voice:?}\n")).unwrap();
    let args = ["--upstream", &url, "--upstream-dialect", "vllm-omni", "--config", config.to_str().unwrap()];
    let report = Report::run(&[&args[..], &CONVERSATION_ARGS].concat()).await;
    report
        .assert_failed("init", &["Realtime API is not available", "session_mode: duplex", "vllm-omni serve"]);

    let free = closed_port();
    let url = format!("ws://{free}");
    let args = ["--upstream", &url, "--upstream-dialect", "sglang-omni", "--profile", "conversation"];
    Report::run(&args).await.assert_failed("tcp", &["Nothing listens", "--enable-realtime"]);
}

#[tokio::test]
async fn interrupted_doctor_closes_its_session() {
    let timing = SimTiming { init: Duration::from_secs(1), ..SimTiming::instant() };
    let (address, _running, recorder) =
        start_simulator("127.0.0.1:0", SimulatorConfig { timing, ..instant_simulator() }, None).await;
    let url = format!("ws://{address}");
    let mut process = voxbridge(&[&["--upstream", &url], &CONVERSATION_ARGS[..]].concat()).spawn().unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let queue = async {
        while !lines.next_line().await.unwrap().expect("the doctor ends too early").contains(" queue ") {}
    };
    timeout(PATIENCE, queue).await.expect("the doctor never reaches the queue");
    send_signal(process.id().unwrap(), "-INT");
    let mut rest = String::new();
    while let Some(line) =
        timeout(PATIENCE, lines.next_line()).await.expect("the doctor does not end").unwrap()
    {
        rest.push_str(&line);
        rest.push('\n');
    }
    assert_eq!(process.wait().await.unwrap().code(), Some(1));
    assert!(rest.contains("skipped  init") && rest.contains("because interrupted"), "{rest}");
    assert!(rest.contains("ok       close"), "{rest}");
    assert_sessions_closed(&recorder);
    let is_close = |received: &RecordedInput| matches!(received, RecordedInput::Message(_, text) if text.contains("session.close"));
    assert!(recorder.all().iter().any(is_close), "{:#?}", recorder.all());
}

/// A server that sends these bytes to each connection and closes it.
async fn serve_http_answer(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 4096];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(answer.as_bytes()).await;
            let _ = stream.shutdown().await;
            while matches!(stream.read(&mut request).await, Ok(1..)) {}
        }
    });
    format!("ws://{address}")
}

#[tokio::test]
async fn http_status_is_explained() {
    for (answer, words) in [
        ("HTTP/1.1 403 Forbidden\r\n\r\n", &["This is not authentication"][..]),
        ("HTTP/1.1 401 Unauthorized\r\n\r\n", &["credentials"]),
        ("HTTP/1.1 404 Not Found\r\nServer: nginx\r\n\r\n", &["no WebSocket at this path", "nginx"]),
        ("HTTP/1.1 502 Bad Gateway\r\n\r\n", &["the gateway behind it does not"]),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", &["the gateway behind it does not"]),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 6\r\n\r\n<html>",
            &["does not forward the header `Upgrade`", "an HTML page"],
        ),
        ("SSH-2.0-OpenSSH_9.6\r\n", &["other than HTTP", "Another service"]),
        ("", &["without an answer"]),
    ] {
        let url = serve_http_answer(answer).await;
        Report::run(&["--upstream", &url]).await.assert_failed("upgrade", words);
    }
}

#[tokio::test]
async fn unresolvable_names_and_closed_ports_are_explained() {
    let closed = closed_port();
    let report = Report::run(&["--upstream", &format!("ws://{closed}")]).await;
    report.assert_failed("tcp", &["Nothing listens"]);
    assert_eq!(report.verdict("dns"), "skipped");
    // The name is too long for DNS, so no resolver is asked.
    let unresolvable = format!("ws://{}.invalid", "x".repeat(64));
    Report::run(&["--upstream", &unresolvable]).await.assert_failed("dns", &["has no address"]);
    // The system accepts the connection, but no server answers.
    let mute = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("wss://{}", mute.local_addr().unwrap());
    let pem = certificate("localhost", None).0;
    let args = ["--upstream", &url, "--upstream-ca", &write_pem("mute.pem", &pem)];
    Report::run(&args).await.assert_failed("tls", &["did not answer the TLS handshake"]);
}

/// A certificate of an authority, valid until this year, and the authority's own certificate.
fn certificate(name: &str, until_year: Option<i32>) -> (String, TlsAcceptor) {
    let ca = authority("gateway");
    let pair = signed_with(&ca, name, |own| {
        if let Some(year) = until_year {
            own.not_before = date_time_ymd(year - 1, 1, 1);
            own.not_after = date_time_ymd(year, 1, 1);
        }
    });
    (ca.as_ref().pem(), acceptor(&pair))
}

fn write_pem(name: &str, text: &str) -> String {
    let path: PathBuf = scratch("doctor").join(name);
    fs::write(&path, text).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn tls_failures_are_explained() {
    let (plain, _running, recorder) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let (pem, acceptor) = certificate("localhost", None);
    let port = serve_tls(plain, acceptor).await.port();
    let (own, other) =
        (write_pem("own.pem", &pem), write_pem("other.pem", &certificate("localhost", None).0));
    let url = format!("wss://localhost:{port}");
    let report = Report::run(&["--upstream", &url, "--upstream-ca", &own]).await;
    report.assert_healthy();
    assert_eq!(report.verdict("tls"), "ok");
    assert_sessions_closed(&recorder);

    let unknown = Report::run(&["--upstream", &url, "--upstream-ca", &other]).await;
    unknown.assert_failed("tls", &["this system does not trust", "`ca`"]);
    let by_number = format!("wss://127.0.0.1:{port}");
    let wrong_name = Report::run(&["--upstream", &by_number, "--upstream-ca", &own]).await;
    wrong_name.assert_failed("tls", &["for localhost", "certificate's names"]);
    let (pem, acceptor) = certificate("localhost", Some(2020));
    let expired = format!("wss://localhost:{}", serve_tls(plain, acceptor).await.port());
    let expired = Report::run(&["--upstream", &expired, "--upstream-ca", &write_pem("old.pem", &pem)]).await;
    expired.assert_failed("tls", &["expired", "`date`"]);

    let plain_to_tls = Report::run(&["--upstream", &format!("ws://localhost:{port}")]).await;
    plain_to_tls.assert_failed("upgrade", &["The server speaks TLS, use wss://"]);
    let url = format!("wss://{plain}");
    let tls_to_plain = Report::run(&["--upstream", &url, "--upstream-ca", &own]).await;
    tls_to_plain.assert_failed("tls", &["Use ws://"]);
}

/// A WebSocket server that sends this text and waits for the client's close.
async fn serve_text(text: &'static str) -> String {
    let address = serve_each(move |stream| async move {
        let Ok(mut socket) = accept_async(stream).await else { return };
        let _ = socket.send(Message::text(text)).await;
        while let Some(Ok(_)) = socket.next().await {}
    })
    .await;
    format!("ws://{address}")
}

#[tokio::test]
async fn other_servers_are_recognised() {
    // Captured from a real server.
    let macaw = r#"{"type": "error", "code": "invalid_request", "message": "Query parameter 'model' is required", "recoverable": false, "resume_segment_id": null}"#;
    for (text, words) in [
        (macaw, &["Macaw", "gateway instead"][..]),
        (r#"{"type": "hello"}"#, &["another kind of server", "hello"]),
    ] {
        let url = serve_text(text).await;
        Report::run(&["--upstream", &url]).await.assert_failed("queue", words);
    }
}

/// A server that accepts an extension that was not offered, and the messages it receives.
async fn serve_unoffered_extension() -> (String, tokio::sync::mpsc::UnboundedReceiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, receiver) = tokio::sync::mpsc::unbounded_channel();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        #[expect(clippy::result_large_err, reason = "the callback's type is tungstenite's")]
        let agree = |_: &Request, mut response: Response| {
            let name = "permessage-deflate".parse().unwrap();
            response.headers_mut().insert("Sec-WebSocket-Extensions", name);
            Ok(response)
        };
        let mut socket = accept_hdr_async(stream, agree).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if let Message::Text(text) = message {
                sender.send(text.to_string()).unwrap();
            }
        }
    });
    (format!("ws://{address}"), receiver)
}

#[tokio::test]
async fn unoffered_extension_is_reported_and_connection_closed() {
    let (url, mut receiver) = serve_unoffered_extension().await;
    Report::run(&["--upstream", &url, "--upstream-dialect", "minicpm-o"])
        .await
        .assert_failed("upgrade", &["permessage-deflate", "was not offered"]);
    let message = timeout(PATIENCE, receiver.recv()).await.expect("no message was received").unwrap();
    assert!(message.contains("session.close"), "{message}");
}

#[tokio::test]
async fn client_side_check_passes() {
    let bench = Bench::start().await;
    let (upstream, _running, _) = start_simulated_server(&[], SimDialect::Current).await;
    let url = format!("ws://{}", bench.address());
    let report = Report::run(&["--upstream", &upstream, "--client-url", &url]).await;
    report.assert_healthy();
    let client = &report.json["checks"][1];
    let verdicts: Vec<_> = client["steps"].as_array().unwrap().iter().map(|step| &step["verdict"]).collect();
    assert_eq!(verdicts, ["skipped", "ok", "skipped", "ok", "ok", "ok"], "{client:#}");
    let closed_port = closed_port();
    let report =
        Report::run(&["--upstream", &upstream, "--client-url", &format!("ws://{closed_port}")]).await;
    assert_eq!((report.code, &report.json["checks"][1]["steps"][1]["verdict"]), (1, &json!("failed")));
}

/// Address of a gateway that offers chat only.
async fn serve_chat_only(gateway: SocketAddr) -> String {
    let address = serve_each(move |mut stream| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0);
        }
        if !head.starts_with(b"GET /v1/realtime?mode=chat ") {
            return stream.write_all(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n").await.unwrap();
        }
        let mut upstream = TcpStream::connect(gateway).await.unwrap();
        upstream.write_all(&head).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut stream, &mut upstream).await;
    })
    .await;
    format!("ws://{address}")
}

#[tokio::test]
async fn modes_without_route_are_not_required() {
    let (gateway, _running, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let url = serve_chat_only(gateway).await;
    let report = Report::run(&["--upstream", &url]).await;
    report.assert_healthy();
    assert_eq!(report.verdict("answer"), "ok");
    let report = Report::run(&[&["--upstream", &url], &CONVERSATION_ARGS[..]].concat()).await;
    report.assert_failed("upgrade", &["HTTP 403", "mode=chat"]);
}

#[tokio::test]
async fn client_key_is_sent_and_rejection_explained() {
    let keys = write_pem("keys.toml", "[[key]]\nname = \"doctor\"\nkey = \"d0ct0rs-s3cr3t\"\n");
    let mut config = Config::default();
    config.access.keys = Some(keys.into());
    let bench = Bench::of(config).await;
    let (upstream, _running, _) = start_simulated_server(&[], SimDialect::Current).await;
    let url = format!("ws://{}", bench.address());
    let run_doctor = async |args: &[&str]| {
        let common = ["--upstream", &upstream, "--client-url", &url];
        Report::run(&[&common, args].concat()).await
    };
    let (good, bad) = (write_pem("good.key", "d0ct0rs-s3cr3t\n"), write_pem("bad.key", "an0th3r-s3cr3t\n"));
    run_doctor(&["--key-file", &good]).await.assert_healthy();
    for (args, words) in [(&[][..], "--key-file FILE"), (&["--key-file", &bad], "not among those")] {
        let report = run_doctor(args).await;
        let upgrade = &report.json["checks"][1]["steps"][3];
        assert_eq!((report.code, &upgrade["verdict"]), (1, &json!("failed")), "{:#}", report.json);
        assert!(upgrade["problem"].to_string().contains(words), "{upgrade}");
        assert!(!report.json.to_string().contains("s3cr3t"), "{:#}", report.json);
    }
    let header = |set: Option<&str>| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
        let wav = speech_dir().join("goforward_16k.wav");
        command.arg("transcribe").arg(wav).args(["--url", &url]).env_remove("VOXBRIDGE_KEY");
        if let Some(key) = set {
            command.env("VOXBRIDGE_KEY", key);
        }
        command
    };
    let output = timeout(PATIENCE, header(None).output()).await.unwrap().unwrap();
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(69) && words.contains("--key-file"), "{words}");
    let output = timeout(PATIENCE, header(Some("d0ct0rs-s3cr3t")).output()).await.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
}

#[tokio::test]
async fn late_session_is_closed_politely() {
    let (sender, mut receiver) = tokio::sync::mpsc::unbounded_channel();
    let address = serve_each(move |stream| {
        let sender = sender.clone();
        async move {
            // Longer than the step timeout.
            sleep(Duration::from_millis(2000)).await;
            let Ok(mut socket) = accept_async(stream).await else { return };
            let _ = socket.send(Message::text(r#"{"type": "session.queue_done"}"#)).await;
            while let Some(Ok(message)) = socket.next().await {
                let _ = sender.send(message);
            }
        }
    })
    .await;
    let url = format!("ws://{address}");
    Report::run(&["--upstream", &url]).await.assert_failed("upgrade", &["no answer within 1.5 s"]);
    let message = timeout(PATIENCE, receiver.recv()).await.expect("no message was received").unwrap();
    assert!(message.to_text().is_ok_and(|text| text.contains("session.close")), "{message:?}");
}

#[tokio::test]
async fn text_report_has_line_per_step_and_paragraph_per_problem() {
    let (url, _running, _) = start_simulated_server(&["busy"], SimDialect::Current).await;
    let output = timeout(PATIENCE, voxbridge(&["--upstream", &url]).output()).await.unwrap().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with(&url) && lines.iter().all(|line| line.len() <= 110), "{text}");
    let order: Vec<&str> = lines[1..10].iter().map(|line| line.split_whitespace().nth(1).unwrap()).collect();
    let steps = ["configuration", "dns", "tcp", "tls", "upgrade", "queue", "init", "answer", "close"];
    assert_eq!(order, steps, "{text}");
    assert!(text.contains("\n\n  queue: ") && text.contains("What to do: check that"), "{text}");

    let invalid = voxbridge(&["--upstream", "http://gpu"]).output().await.unwrap();
    assert_eq!(invalid.status.code(), Some(2), "an invalid configuration is a usage error");
}
