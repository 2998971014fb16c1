//! How the program takes leave: who is in the middle of something finishes, nobody new comes in, and it ends in time. And
//! what the service manager is told meanwhile.

use std::{
    fs,
    os::{linux::net::SocketAddrExt as _, unix::net::SocketAddr},
    path::{Path, PathBuf},
};

use crate::bench::{Client, Running, Seen, assert_pairs, bytes, events, quick, recording, scratch, simulate};
use crate::operated::{PATIENCE, Server, config, voxbridge};
use futures_util::SinkExt as _;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream, UnixDatagram},
    time::timeout,
};
use tokio_tungstenite::{accept_async, tungstenite::Message};
use voxbridge::simulator::{Fault, SimulatorConfig};

async fn upstream_with(simulator: SimulatorConfig) -> (String, Running) {
    let simulator = SimulatorConfig { record: false, workers: 4, ..simulator };
    let (address, running, _) = simulate("127.0.0.1:0", simulator, None).await;
    (format!("ws://{address}/v1/realtime"), running)
}

async fn upstream() -> (String, Running) {
    upstream_with(quick()).await
}

fn empty(name: &str) -> PathBuf {
    fs::remove_dir_all(scratch(name)).unwrap();
    scratch(name)
}

/// A client in the middle of an utterance, and the rest of it.
async fn speaking(server: &Server) -> (Client, Vec<i16>) {
    let mut client = server.client().await;
    let spoken = recording("goforward");
    client.audio(&bytes(&spoken[..16_000]), 640).await;
    client.event("vad.speech_start").await;
    (client, spoken[16_000..].to_vec())
}

/// The last that it saw: the goodbye of a server that comes back.
fn assert_goodbye(client: &Client) {
    assert_pairs(&client.seen);
    assert_eq!(events(&client.seen, "session.closed")[0]["reason"], "server_shutdown");
    assert!(client.seen.contains(&Seen::Close(1012, "server_shutdown".into())), "{}", client.story());
}

#[tokio::test]
async fn whoever_speaks_or_listens_is_not_cut_off() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &[]).await;
    let (mut speaker, rest) = speaking(&server).await;
    let mut listener = server.client().await;
    listener.command(json!({"type": "tts.speak", "text": "Two seconds of this, and some more words."})).await;
    listener.event("tts.speaking_start").await;
    let mut idle = server.client().await;

    let drained = server.ask("POST", "/drain").await;
    assert_eq!((drained.status, &drained.json()["already"]), (202, &json!(false)));
    idle.rest().await;
    assert_goodbye(&idle);
    let ready = server.ask("GET", "/readyz").await;
    assert_eq!((ready.status, ready.code().as_str()), (503, "draining"), "it answers while others finish");
    assert_eq!(server.ask("GET", "/healthz").await.json()["state"], "draining");
    assert_eq!(server.ask("POST", "/drain").await.json()["already"], true);
    assert!(TcpStream::connect(server.address).await.is_err(), "a successor may have the address");

    speaker.say(&rest).await;
    speaker.rest().await;
    assert_goodbye(&speaker);
    let finals = events(&speaker.seen, "transcript.final");
    let spoken_ms = (recording("goforward").len() / 16) as u64;
    let heard_ms = finals[0]["end_ms"].as_u64().unwrap() - finals[0]["start_ms"].as_u64().unwrap();
    assert!(finals.len() == 1 && heard_ms > spoken_ms * 2 / 3, "{heard_ms} of {spoken_ms} ms: {finals:?}");
    listener.rest().await;
    assert_goodbye(&listener);
    assert_eq!(events(&listener.seen, "tts.speaking_end")[0]["cancelled"], false);
    assert_eq!(server.ended().await, 0, "it does not wait for the rest of the time");
}

#[tokio::test]
async fn a_turn_of_the_model_is_heard_to_its_end() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &["--profile", "conversation"]).await;
    let mut client = server.client().await;
    client.live(&recording("goforward"), |seen| seen.kind() == "tts.speaking_start").await;
    server.signal("-TERM").await;
    // Nothing can be said any more behind a close frame.
    client.live(&[], |seen| seen.kind() == "close").await;
    client.rest().await;
    assert_goodbye(&client);
    let ends = events(&client.seen, "tts.speaking_end");
    assert!(ends.len() == 1 && ends[0]["cancelled"] == false, "{}", client.story());
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn a_relayed_answer_comes_to_its_end() {
    let (url, _simulator) = upstream_with(SimulatorConfig::default()).await;
    let server = Server::start(&url, &[]).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut client = crate::bench::upgrade(stream, "/v1/realtime?mode=chat", "", &[]).await.1;
    client.command(json!({"type": "session.init", "payload": {}})).await;
    client.event("session.created").await;
    let input = json!({"messages": [{"role": "user", "content": "Hello"}], "streaming": true, "tts": {"enabled": false}});
    client.command(json!({"type": "input.append", "input": input})).await;
    client.event("response.output.delta").await;
    let id = server.only_session().await;
    let refused = server.ask("POST", &format!("/sessions/{id}/rollover")).await;
    assert_eq!((refused.status, refused.code().as_str()), (409, "no_conversation"));
    server.signal("-INT").await;
    client.event("response.done").await;
    assert_eq!(client.event("session.closed").await["reason"], "server_shutdown");
    assert!(client.rest().await.contains(&Seen::Close(1012, "server_shutdown".into())), "{}", client.story());
    assert_eq!(server.ended().await, 0);
}

#[tokio::test]
async fn a_balancer_has_time_to_notice() {
    let (url, _simulator) = upstream().await;
    let dir = empty("leaving-grace");
    let path = config(&dir, "[drain]\ngrace_ms = 60000\n");
    let server = Server::start(&url, &["--config", &path]).await;
    let mut client = server.client().await;
    server.signal("-TERM").await;
    let ready = server.until("/readyz", |answer| answer.status == 503).await;
    assert_eq!(ready.code(), "draining");
    let (head, _) = server.dial().await;
    assert!(head.starts_with("HTTP/1.1 503 ") && head.to_lowercase().contains("\r\nretry-after: "), "{head}");
    // Who is there already goes on as if nothing had happened.
    client.say(&recording("goforward")).await;
    client.event("transcript.final").await;
    server.signal("-TERM").await;
    assert_eq!(server.ended().await, 143, "a second signal waits for nothing");
}

#[tokio::test]
async fn what_does_not_finish_is_cut_off_in_time() {
    let (url, _simulator) = upstream().await;
    let dir = empty("leaving-bound");
    let never = SimulatorConfig { faults: vec!["never-answers".parse::<Fault>().unwrap()], ..quick() };
    let (stuck, _stuck) = upstream_with(never).await;
    let path = config(&dir, "[drain]\nwithin_ms = 300\n");
    let mut server = Server::start(&stuck, &["--config", &path]).await;
    let mut client = server.client().await;
    client.say(&recording("goforward")).await;
    server.signal("-TERM").await;
    client.rest().await;
    assert_goodbye(&client);
    server.logs("draining").await;
    let code = server.ended().await;
    assert!(code == 0 || code == 3, "its lane may have been cut off: {code}");

    // Who speaks on and on is heard for two thirds of the time.
    let server = Server::start(&url, &["--config", &path]).await;
    let (mut client, _) = speaking(&server).await;
    server.signal("-TERM").await;
    client.rest().await;
    assert_goodbye(&client);
    assert_eq!(events(&client.seen, "transcript.final").len(), 1, "what it said so far is answered");
    assert_eq!(server.ended().await, 0);
}

/// Where the sessions' lines are, and the lines.
fn lines(dir: &Path) -> Vec<Value> {
    let text = fs::read_to_string(dir.join("access.log")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// An upstream that lets everybody in and hears nothing, not even goodbyes.
async fn deaf() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1/realtime", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let Ok(mut socket) = accept_async(stream).await else { return };
                for said in
                    [r#"{"type": "session.queue_done"}"#, r#"{"type": "session.created", "session_id": "s"}"#]
                {
                    socket.send(Message::text(said)).await.unwrap();
                }
                std::future::pending::<()>().await;
            });
        }
    });
    url
}

#[tokio::test]
async fn who_is_cut_off_in_the_end_has_a_line_and_the_exit_code_tells() {
    let url = deaf().await;
    let dir = empty("leaving-cut");
    let log = "[access_log]\npath = \"access.log\"\n";
    let path = config(&dir, &format!("{log}[drain]\nwithin_ms = 60000\n"));
    let mut server = Server::start(&url, &["--config", &path]).await;
    let mut client = server.client().await;
    client.say(&recording("goforward")).await;
    server.until("/sessions", |answer| answer.body.contains("\"lane_ready\"")).await;
    // What holds is what was read last.
    config(&dir, &format!("{log}[drain]\nwithin_ms = 400\n"));
    assert_eq!(server.ask("POST", "/reload").await.json()["changed"], json!(["`drain`"]));
    server.signal("-TERM").await;
    client.rest().await;
    assert_goodbye(&client);
    server.logs("1 sessions had not finished after 400 ms (drain.within_ms) and were cut off").await;
    assert_eq!(server.ended().await, 3);
    let lines = lines(&dir);
    assert!(lines.len() == 1 && lines[0]["reason"] == "shutdown", "{lines:?}");
}

#[tokio::test]
async fn a_second_signal_waits_for_nobody() {
    let (url, _simulator) = upstream().await;
    for (first, second, code) in [("-TERM", "-INT", 130), ("-INT", "-TERM", 143)] {
        let dir = empty("leaving-at-once");
        let path = config(&dir, "[access_log]\npath = \"access.log\"\n");
        let server = Server::start(&url, &["--config", &path]).await;
        let (mut client, _) = speaking(&server).await;
        server.signal(first).await;
        server.until("/readyz", |answer| answer.code() == "draining").await;
        server.signal(second).await;
        assert_eq!(server.ended().await, code);
        client.rest().await;
        assert!(events(&client.seen, "session.closed").is_empty(), "there was no time for that");
        let lines = lines(&dir);
        assert!(lines.len() == 1 && lines[0]["reason"] == "cut_off", "{lines:?}");
        assert!(lines[0]["audio_in_s"].as_f64() >= Some(1.0), "{lines:?}");
    }
}

/// A service manager that a server tells things.
struct Manager {
    socket: UnixDatagram,
    heard: Vec<String>,
}

impl Manager {
    /// The next thing, by what it begins with; what else is told meanwhile is remembered.
    async fn hears(&mut self, words: &str) -> String {
        let mut bytes = [0; 4096];
        loop {
            let told = timeout(PATIENCE, self.socket.recv(&mut bytes)).await;
            let length = told.unwrap_or_else(|_| panic!("never {words:?} after {:?}", self.heard)).unwrap();
            let told = String::from_utf8(bytes[..length].to_vec()).unwrap();
            self.heard.push(told.clone());
            if told.starts_with(words) {
                return told;
            }
        }
    }
}

#[tokio::test]
async fn the_service_manager_is_told() {
    let (url, _simulator) = upstream().await;
    // A name that no file has, as container runtimes have them; paths are tested where they are told apart.
    let name = format!("voxbridge-leaving-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let socket = std::os::unix::net::UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    let mut manager = Manager { socket: UnixDatagram::from_std(socket).unwrap(), heard: Vec::new() };
    let dir = empty("leaving-manager");
    let path = config(&dir, "");
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--upstream", &url, "--config", &path];
    let mut command = voxbridge(&args);
    command.env("NOTIFY_SOCKET", format!("@{name}")).env("WATCHDOG_USEC", "200000");
    let server = Server::of(command).await;
    let ready = manager.hears("READY=1\n").await;
    assert!(ready.contains(&format!("STATUS=Serving at {}", server.address)), "{ready}");
    for _ in 0..3 {
        assert_eq!(manager.hears("WATCHDOG=1").await, "WATCHDOG=1\n");
    }
    config(&dir, "[drain]\nwithin_ms = 40000\n");
    server.signal("-HUP").await;
    let reloading = manager.hears("RELOADING=1\n").await;
    let at = reloading.trim_end().rsplit_once("MONOTONIC_USEC=").unwrap().1;
    assert!(at.parse::<u64>().unwrap() > 0, "{reloading}");
    manager.hears("READY=1\n").await;

    let (mut client, rest) = speaking(&server).await;
    server.signal("-TERM").await;
    let stopping = manager.hears("STOPPING=1\n").await;
    // Forty seconds for sessions as it was read last, and ten for goodbyes.
    assert!(stopping.contains("EXTEND_TIMEOUT_USEC=50000000\n"), "{stopping}");
    assert!(stopping.contains("STATUS=Draining: 1 sessions finish\n"), "{stopping}");
    manager.hears("WATCHDOG=1").await;
    client.say(&rest).await;
    client.rest().await;
    assert_goodbye(&client);
    assert_eq!(server.ended().await, 0);
}
