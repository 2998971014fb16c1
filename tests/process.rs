//! The program as a process among others: it takes leave of everybody, and nobody makes it swell.
#![cfg(all(feature = "io", target_os = "linux"))]

#[path = "support/bench.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod bench;

use std::{process::Stdio, time::Duration};

use bench::{Client, Seen, upgrade};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    process::{Child, Command},
    time::timeout,
};

/// Longer than anything takes here on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bridge in a process of its own, before an upstream that is not there.
async fn bridge() -> (Child, String) {
    let mut process = Command::new(env!("CARGO_BIN_EXE_voxbridge"))
        .args(["serve", "--listen", "127.0.0.1:0", "--upstream", "ws://127.0.0.1:9", "--log", "error"])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (process, line.trim_start_matches("listening on ").to_owned())
}

async fn client(address: &str) -> Client {
    let stream = TcpStream::connect(address).await.unwrap();
    let (_, mut client) = upgrade(stream, "/v1/realtime?model=m", "", &[]).await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

#[tokio::test]
async fn every_client_hears_the_goodbye_of_a_server_that_stops() {
    for round in 0..6 {
        let (mut process, address) = bridge().await;
        let mut clients = Vec::new();
        for number in 0..8 {
            let mut client = client(&address).await;
            if number % 2 == 1 {
                client.audio(&[0; 64_000], 640).await;
            }
            clients.push(client);
        }
        let id = process.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        for client in &mut clients {
            let rest = client.rest().await;
            let close = Seen::Close(1001, "server_shutdown".into());
            let tail: Vec<&str> = rest.iter().rev().take(3).map(Seen::kind).collect();
            assert_eq!(tail, ["end", "close", "session.closed"], "round {round}: {rest:?}");
            assert!(rest.contains(&close), "{rest:?}");
        }
        let ended = timeout(PATIENCE, process.wait()).await.expect("it does not stop").unwrap();
        assert!(ended.success());
    }
}

#[tokio::test]
async fn who_asks_and_never_reads_the_answers_costs_little_and_harms_nobody() {
    let (process, address) = bridge().await;
    let deaf = client(&address).await;
    let mut deaf = deaf.socket.into_inner();
    // A masked text frame `{}`: eight bytes, and an error of a hundred and fifty for each.
    let flood = [0x81, 0x82, 0, 0, 0, 0, b'{', b'}'].repeat(8192);
    let mut written = 0;
    // Until nothing more is taken; a bridge that takes everything ends the loop too, and fails.
    while written < 64 << 20 {
        match timeout(Duration::from_millis(500), deaf.write_all(&flood)).await {
            Ok(Ok(())) => written += flood.len(),
            _ => break,
        }
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id().unwrap())).unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 64 * 1024, "{peak} KiB after {written} bytes");
    let mut healthy = client(&address).await;
    healthy.command(serde_json::json!({"type": "nonsense"})).await;
    assert_eq!(healthy.event("error").await["code"], "unknown_command");
}
