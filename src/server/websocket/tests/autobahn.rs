//! Autobahn's test suite against the framing of sessions, as server and as client: every message is echoed.
//!
//! ```sh
//! pip install autobahntestsuite      # Python 2.7
//! VOXBRIDGE_WSTEST=/path/to/wstest cargo test --lib autobahn -- --ignored --nocapture
//! ```

use std::{collections::BTreeMap, path::Path, process::Stdio, time::Duration};

use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    process::Command,
    sync::mpsc,
    time::{sleep, timeout},
};
use tokio_tungstenite::{accept_async, client_async};

use super::super::{
    http_head::HttpHeadStream,
    session_socket::{SessionSocket, SocketEvent, websocket_config},
    *,
};
use crate::vocabulary;

/// The largest message of the suite, and room for its header.
const MESSAGE_MAX_BYTES: usize = (16 << 20) + 1024;
/// Cases that pass as "NON-STRICT": invalid UTF-8 in a frame that arrives in parts is detected at the end of the frame, not at
/// the byte. The connection then fails, as RFC 6455 §8.1 asks.
const NON_STRICT: [&str; 2] = ["6.4.3", "6.4.4"];

/// Echoes messages as a session's task would, until the connection ends.
async fn echo<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(stream: S, read: Vec<u8>, role: Role) {
    let socket = WebSocket::new(stream, read, role, websocket_config(MESSAGE_MAX_BYTES));
    let mut socket = SessionSocket::new(socket);
    let next = async |socket: &mut SessionSocket<S>| {
        poll_fn(|cx| match socket.poll_write(cx) {
            Poll::Ready(Err(reason)) => Poll::Ready(SocketEvent::End(reason)),
            _ => socket.poll_read(cx),
        })
        .await
    };
    while let SocketEvent::Message(message) = next(&mut socket).await {
        socket.send(match message {
            Message::Text(text) => vocabulary::Message::Text(text.as_str().to_owned()),
            other => vocabulary::Message::Binary(other.into_data()),
        });
    }
    let (guard, mut is_closed) = mpsc::channel(1);
    socket.close_in_background(Duration::from_secs(2), guard);
    is_closed.recv().await;
}

/// Starts the suite in this mode.
fn start_suite(mode: &str, dir: &Path, spec: &Value) -> tokio::process::Child {
    #[expect(clippy::disallowed_methods, reason = "where the suite is, is said from outside")]
    let program = std::env::var("VOXBRIDGE_WSTEST").expect("VOXBRIDGE_WSTEST names the suite's program");
    std::fs::write(dir.join("spec.json"), spec.to_string()).unwrap();
    let mut command = Command::new(program);
    command.args(["-m", mode, "-s", "spec.json"]).current_dir(dir).stdout(Stdio::null());
    command.kill_on_drop(true).spawn().unwrap()
}

fn scratch_dir(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("voxbridge-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Checks the suite's report.
fn check_report(dir: &Path) {
    let report = std::fs::read_to_string(dir.join("reports/index.json")).unwrap();
    let report: BTreeMap<String, BTreeMap<String, Value>> = serde_json::from_str(&report).unwrap();
    let cases = report.into_values().next().unwrap();
    let mut counts = BTreeMap::<String, usize>::new();
    let mut wrong = Vec::new();
    for (case, result) in &cases {
        let [behaviour, close] = ["behavior", "behaviorClose"].map(|key| result[key].as_str().unwrap());
        *counts.entry(format!("{behaviour}, close {close}")).or_default() += 1;
        let is_known = behaviour == "NON-STRICT" && NON_STRICT.contains(&case.as_str());
        if !(is_known || ["OK", "INFORMATIONAL"].contains(&behaviour))
            || !["OK", "INFORMATIONAL"].contains(&close)
        {
            wrong.push(format!("{case}: {behaviour}, close {close}"));
        }
    }
    println!("{} cases: {counts:?}", cases.len());
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
#[ignore = "needs Autobahn's test suite"]
async fn autobahn_client_finds_no_fault() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dir = scratch_dir("autobahn-client");
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let spec = json!({
        "outdir": "./reports", "servers": [{ "agent": "voxbridge", "url": url }],
        "cases": ["*"], "exclude-cases": ["12.*", "13.*"], "exclude-agent-cases": {},
    });
    let mut suite = start_suite("fuzzingclient", &dir, &spec);
    let serving = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                if let Ok(socket) = accept_async(stream).await {
                    echo(socket.into_inner(), Vec::new(), Role::Server).await;
                }
            });
        }
    };
    tokio::select! {
        ended = suite.wait() => assert!(ended.unwrap().success()),
        () = serving => {}
    }
    check_report(&dir);
}

/// Opens a WebSocket at a path of the suite.
async fn open(address: &str, path: &str) -> (TcpStream, Vec<u8>) {
    let stream = HttpHeadStream::new(TcpStream::connect(address).await.unwrap());
    let (socket, _) = client_async(format!("ws://{address}{path}"), stream).await.unwrap();
    socket.into_inner().into_parts()
}

#[tokio::test]
#[ignore = "needs Autobahn's test suite"]
async fn autobahn_server_finds_no_fault() {
    let dir = scratch_dir("autobahn-server");
    // The suite reports no port that the system chose.
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let address = format!("127.0.0.1:{port}");
    let spec = json!({
        "outdir": "./reports", "url": format!("ws://{address}"),
        "cases": ["*"], "exclude-cases": ["12.*", "13.*"], "exclude-agent-cases": {},
    });
    let _suite = start_suite("fuzzingserver", &dir, &spec);
    let started = async {
        while TcpStream::connect(&address).await.is_err() {
            sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(Duration::from_secs(30), started).await.expect("the suite does not start");
    let (stream, read) = open(&address, "/getCaseCount").await;
    let mut socket = WebSocket::new(stream, read, Role::Client, websocket_config(MESSAGE_MAX_BYTES));
    let count = poll_fn(|cx| Pin::new(&mut socket).poll_next(cx)).await.unwrap().unwrap();
    let count: usize = count.to_text().unwrap().parse().unwrap();
    drop(socket);
    for case in 1..=count {
        let (stream, read) = open(&address, &format!("/runCase?case={case}&agent=voxbridge")).await;
        echo(stream, read, Role::Client).await;
    }
    let (stream, read) = open(&address, "/updateReports?agent=voxbridge").await;
    echo(stream, read, Role::Client).await;
    check_report(&dir);
}
