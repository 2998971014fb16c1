//! Shutdown: sessions finish their current work, new clients are rejected, the process ends in time, and the
//! service manager is notified.

use std::os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr};

use tokio::net::UnixDatagram;
use voxbridge_test_support::servers::unresponsive_upstream;

use super::*;

async fn upstream_with(simulator: SimulatorConfig) -> (String, RunningServer) {
    let simulator = SimulatorConfig { record: false, workers: 4, ..simulator };
    let (address, running, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    (format!("ws://{address}/v1/realtime"), running)
}

async fn upstream() -> (String, RunningServer) {
    upstream_with(instant_simulator()).await
}

/// A client in the middle of an utterance, and the rest of the utterance.
async fn client_mid_utterance(server: &Server) -> (Client, Vec<i16>) {
    let mut client = server.client().await;
    let spoken = recording("goforward");
    client.send_audio(&bytes(&spoken[..16_000]), 640).await;
    client.wait_for_event("vad.speech_start").await;
    (client, spoken[16_000..].to_vec())
}

/// Checks that the client's last messages announce a restarting server.
fn assert_goodbye(client: &Client) {
    assert_pairs_closed(&client.received);
    assert_eq!(events(&client.received, "session.closed")[0]["reason"], "server_shutdown");
    assert!(
        client.received.contains(&ClientFrame::Close(1012, "server_shutdown".into())),
        "{}",
        client.describe_received()
    );
}

#[tokio::test]
async fn speaking_and_listening_clients_finish_before_shutdown() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &[]).await;
    let (mut speaker, rest) = client_mid_utterance(&server).await;
    let mut listener = server.client().await;
    listener
        .send_json(json!({"type": "tts.speak", "text": "Two seconds of this, and some more words."}))
        .await;
    listener.wait_for_event("tts.speaking_start").await;
    let mut idle = server.client().await;

    let drained = server.request("POST", "/drain").await;
    assert_eq!((drained.status, &drained.json()["already"]), (202, &json!(false)));
    idle.read_to_end().await;
    assert_goodbye(&idle);
    let ready = server.request("GET", "/readyz").await;
    assert_eq!((ready.status, ready.code().as_str()), (503, "draining"), "in the drain");
    assert_eq!(server.request("GET", "/healthz").await.json()["state"], "draining");
    assert_eq!(server.request("POST", "/drain").await.json()["already"], true);
    assert!(TcpStream::connect(server.address).await.is_err(), "the listener is closed for a successor");

    speaker.send_utterance(&rest).await;
    speaker.read_to_end().await;
    assert_goodbye(&speaker);
    let finals = events(&speaker.received, "transcript.final");
    let spoken_ms = (recording("goforward").len() / 16) as u64;
    let heard_ms = finals[0]["end_ms"].as_u64().unwrap() - finals[0]["start_ms"].as_u64().unwrap();
    assert!(finals.len() == 1 && heard_ms > spoken_ms * 2 / 3, "{heard_ms} of {spoken_ms} ms: {finals:?}");
    listener.read_to_end().await;
    assert_goodbye(&listener);
    assert_eq!(events(&listener.received, "tts.speaking_end")[0]["cancelled"], false);
    assert_eq!(server.wait_for_end().await, 0, "the server ends before the drain limit");
}

#[tokio::test]
async fn model_turn_finishes_before_shutdown() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &["--profile", "conversation"]).await;
    let mut client = server.client().await;
    client.stream_until(&recording("goforward"), |frame| frame.kind() == "tts.speaking_start").await;
    server.signal("-TERM").await;
    // No message can follow a close frame.
    client.stream_until(&[], |frame| frame.kind() == "close").await;
    client.read_to_end().await;
    assert_goodbye(&client);
    let ends = events(&client.received, "tts.speaking_end");
    assert!(ends.len() == 1 && ends[0]["cancelled"] == false, "{}", client.describe_received());
    assert_eq!(server.wait_for_end().await, 0);
}

#[tokio::test]
async fn relayed_answer_finishes_before_shutdown() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &[]).await;
    let mut client = dial(server.address, "/v1/realtime?mode=chat").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    let input = json!({"messages": [{"role": "user", "content": "Hello"}], "streaming": true, "tts": {"enabled": false}});
    client.send_json(json!({"type": "input.append", "input": input})).await;
    client.wait_for_event("response.output.delta").await;
    let id = server.only_session().await;
    let refused = server.request("POST", &format!("/sessions/{id}/rollover")).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "no_conversation"));
    server.signal("-INT").await;
    client.wait_for_event("response.done").await;
    assert_eq!(client.wait_for_event("session.closed").await["reason"], "server_shutdown");
    assert!(
        client.read_to_end().await.contains(&ClientFrame::Close(1012, "server_shutdown".into())),
        "{}",
        client.describe_received()
    );
    assert_eq!(server.wait_for_end().await, 0);
}

#[tokio::test]
async fn readiness_fails_before_listener_closes() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("leaving-grace");
    let path = config(&dir, "[drain]\ngrace_ms = 60000\n");
    let server = Server::start(&url, &["--config", &path]).await;
    let mut client = server.client().await;
    server.request_until("/readyz", |answer| answer.status == 200).await;
    server.signal("-TERM").await;
    let ready = server.request_until("/readyz", |answer| answer.status == 503).await;
    assert_eq!(ready.code(), "draining");
    let (head, _) = server.dial().await;
    assert!(head.starts_with("HTTP/1.1 503 ") && head.to_lowercase().contains("\r\nretry-after: "), "{head}");
    // An existing client is unaffected.
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 143, "a second signal ends the server at once");
}

#[tokio::test]
async fn unfinished_session_is_cut_off_at_drain_limit() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("leaving-bound");
    let never =
        SimulatorConfig { faults: vec!["never-answers".parse::<Fault>().unwrap()], ..instant_simulator() };
    let (stuck, _stuck) = upstream_with(never).await;
    let path = config(&dir, "[drain]\ntimeout_ms = 300\n");
    let mut server = Server::start(&stuck, &["--config", &path]).await;
    let mut client = server.client().await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_start").await;
    server.signal("-TERM").await;
    client.read_to_end().await;
    assert_goodbye(&client);
    server.wait_for_log("draining").await;
    assert_eq!(server.wait_for_end().await, 3, "the pending transcript is cut off");

    // An endless speaker is heard for two thirds of the drain time; the rest is for the transcript.
    let path = config(&dir, "[drain]\ntimeout_ms = 3000\n");
    let mut server = Server::start(&url, &["--config", &path]).await;
    let (mut client, _) = client_mid_utterance(&server).await;
    server.signal("-TERM").await;
    client.read_to_end().await;
    assert_goodbye(&client);
    assert_eq!(events(&client.received, "transcript.final").len(), 1, "the speech so far is transcribed");
    server.wait_for_log("cut off 1 sessions that could not finish within 3000 ms (drain.timeout_ms)").await;
    assert_eq!(server.wait_for_end().await, 3, "the speaker is cut off");
}

/// Reads the records of the access log.
fn read_log_lines(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("access.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn cut_off_session_is_logged_and_sets_exit_code() {
    let url = format!("ws://{}/v1/realtime", unresponsive_upstream().await);
    let dir = empty_scratch("leaving-cut");
    let log = "[access_log]\npath = \"access.log\"\n";
    let path = config(&dir, &format!("{log}[drain]\ntimeout_ms = 60000\n"));
    let mut server = Server::start(&url, &["--config", &path]).await;
    let mut client = server.client().await;
    client.send_utterance(&recording("goforward")).await;
    server.request_until("/sessions", |answer| answer.body.contains("\"lane_ready\"")).await;
    // The last configuration that was read applies.
    config(&dir, &format!("{log}[drain]\ntimeout_ms = 400\n"));
    assert_eq!(server.request("POST", "/reload").await.json()["changed"], json!(["`drain`"]));
    server.signal("-TERM").await;
    client.read_to_end().await;
    assert_goodbye(&client);
    server.wait_for_log("cut off 1 sessions that could not finish within 400 ms (drain.timeout_ms)").await;
    assert_eq!(server.wait_for_end().await, 3);
    let lines = read_log_lines(&dir);
    assert!(lines.len() == 1 && lines[0]["reason"] == "cut_off", "{lines:?}");
}

#[tokio::test]
async fn second_signal_stops_immediately() {
    let (url, _simulator) = upstream().await;
    for (first, second, code) in [("-TERM", "-INT", 130), ("-INT", "-TERM", 143)] {
        let dir = empty_scratch("leaving-at-once");
        let path = config(&dir, "[access_log]\npath = \"access.log\"\n");
        let server = Server::start(&url, &["--config", &path]).await;
        let (mut client, _) = client_mid_utterance(&server).await;
        server.signal(first).await;
        server.request_until("/readyz", |answer| answer.code() == "draining").await;
        server.signal(second).await;
        assert_eq!(server.wait_for_end().await, code);
        client.read_to_end().await;
        assert!(events(&client.received, "session.closed").is_empty(), "no session.closed");
        let lines = read_log_lines(&dir);
        assert!(lines.len() == 1 && lines[0]["reason"] == "cut_off", "{lines:?}");
        assert!(lines[0]["audio_in_s"].as_f64() >= Some(1.0), "{lines:?}");
    }
}

#[tokio::test]
async fn only_stop_signals_end_the_server() {
    let (url, _simulator) = upstream().await;
    let server = Server::start(&url, &[]).await;
    let mut client = server.client().await;
    server.request_until("/readyz", |answer| answer.status == 200).await;
    for ignored in ["-USR1", "-USR2", "-XFSZ", "-PIPE"] {
        server.signal(ignored).await;
        assert_eq!(server.request("GET", "/readyz").await.status, 200, "{ignored}");
    }
    server.signal("-QUIT").await;
    client.read_to_end().await;
    assert_goodbye(&client);
    assert_eq!(server.wait_for_end().await, 0);
}

/// A service manager that receives the server's notifications.
struct ServiceManager {
    socket: UnixDatagram,
    received: Vec<String>,
}

impl ServiceManager {
    /// Waits for a notification that begins with these words and records the others.
    async fn wait_for_message(&mut self, words: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let notification = timeout(PATIENCE, self.socket.recv(&mut bytes)).await;
            let length =
                notification.unwrap_or_else(|_| panic!("never {words:?} after {:?}", self.received)).unwrap();
            let notification = String::from_utf8(bytes[..length].to_vec()).unwrap();
            self.received.push(notification.clone());
            if notification.starts_with(words) {
                return notification;
            }
        }
    }
}

#[tokio::test]
async fn service_manager_is_notified() {
    let (url, _simulator) = upstream().await;
    // An abstract socket name, as container runtimes use; unit tests cover paths.
    let name = format!("voxbridge-leaving-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut manager =
        ServiceManager { socket: UnixDatagram::from_std(socket).unwrap(), received: Vec::new() };
    let dir = empty_scratch("leaving-manager");
    let path = config(&dir, "");
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url, "--config", &path];
    let mut command = voxbridge(&args);
    command.env("NOTIFY_SOCKET", format!("@{name}")).env("WATCHDOG_USEC", "200000");
    let server = Server::spawn(command).await;
    let ready = manager.wait_for_message("READY=1\n").await;
    assert!(ready.contains(&format!("STATUS=Serving at {}", server.address)), "{ready}");
    for _ in 0..3 {
        assert_eq!(manager.wait_for_message("WATCHDOG=1").await, "WATCHDOG=1\n");
    }
    config(&dir, "[drain]\ntimeout_ms = 40000\n");
    server.signal("-HUP").await;
    let reloading = manager.wait_for_message("RELOADING=1\n").await;
    let at = reloading.trim_end().rsplit_once("MONOTONIC_USEC=").unwrap().1;
    assert!(at.parse::<u64>().unwrap() > 0, "{reloading}");
    manager.wait_for_message("READY=1\n").await;

    let (mut client, rest) = client_mid_utterance(&server).await;
    server.signal("-TERM").await;
    let stopping = manager.wait_for_message("STOPPING=1\n").await;
    // 40 s for sessions, as in the last configuration, and 10 s for closing lanes.
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=50000000\n"), "{stopping}");
    assert!(stopping.contains("STATUS=Draining: 1 live sessions\n"), "{stopping}");
    manager.wait_for_message("WATCHDOG=1").await;
    client.send_utterance(&rest).await;
    client.read_to_end().await;
    assert_goodbye(&client);
    assert_eq!(server.wait_for_end().await, 0);
}
