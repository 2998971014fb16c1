//! The process as a whole: it closes every session at shutdown, and its memory stays bounded.

use super::*;

/// Longer than any step takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A bridge in its own process, with an unreachable upstream.
async fn bridge() -> (Child, String) {
    bridge_to("ws://127.0.0.1:9", "speech").await
}

async fn bridge_to(upstream: &str, profile: &str) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_voxbridge"));
    clear_settings(command.as_std_mut());
    let mut process = command
        .args(["serve", "--listen", "127.0.0.1:0", "--log", "error"])
        .args(["--upstream", upstream, "--profile", profile])
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
    let line = timeout(PATIENCE, lines.next_line()).await.unwrap().unwrap().unwrap();
    (process, line.trim_start_matches("listening on ").to_owned())
}

async fn client(address: &str) -> Client {
    let mut client = dial(address, "/v1/realtime?model=m").await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

/// A figure of the process's `/proc` status, KiB.
fn status_kib(process: &Child, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id().unwrap())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[tokio::test]
async fn stopping_server_says_goodbye_to_every_client() {
    for round in 0..6 {
        let (mut process, address) = bridge().await;
        let mut clients = Vec::new();
        for number in 0..8 {
            let mut client = client(&address).await;
            if number % 2 == 1 {
                client.send_audio(&[0; 64_000], 640).await;
            }
            clients.push(client);
        }
        send_signal(process.id().unwrap(), "-TERM");
        for client in &mut clients {
            let rest = client.read_to_end().await;
            let close = ClientFrame::Close(1012, "server_shutdown".into());
            let tail: Vec<&str> = rest.iter().rev().take(3).map(ClientFrame::kind).collect();
            assert_eq!(tail, ["end", "close", "session.closed"], "round {round}: {rest:?}");
            assert!(rest.contains(&close), "{rest:?}");
        }
        let ended = timeout(PATIENCE, process.wait()).await.expect("the process does not stop").unwrap();
        assert!(ended.success());
    }
}

#[tokio::test]
async fn client_that_never_reads_uses_bounded_memory() {
    let _machine = busy_machine().await;
    let (process, address) = bridge().await;
    let stalled = client(&address).await;
    let mut stalled = stalled.socket.into_inner();
    // A masked text frame `{}`: eight bytes, and an error of 150 bytes for each.
    let flood = [0x81, 0x82, 0, 0, 0, 0, b'{', b'}'].repeat(8192);
    let mut written = 0;
    // Writes until the bridge accepts no more. A bridge that accepts everything ends the loop and fails the
    // test.
    while written < 64 << 20 {
        match timeout(Duration::from_millis(500), stalled.write_all(&flood)).await {
            Ok(Ok(())) => written += flood.len(),
            _ => break,
        }
    }
    let peak = status_kib(&process, "VmHWM:");
    assert!(peak < 64 * 1024, "{peak} KiB after {written} bytes");
    let mut healthy = client(&address).await;
    healthy.send_json(serde_json::json!({"type": "nonsense"})).await;
    assert_eq!(healthy.wait_for_event("error").await["code"], "unknown_command");
}

/// Number of concurrent clients.
const CONNECTION_COUNT: usize = 40;
/// Memory that one finished client may leave behind, bytes: less than a second of audio, for the allocator's
/// sake.
const LEFTOVER_MAX_BYTES: u64 = 16 * 1024;

/// Asks the model a question and leaves after, during or before the answer, or without a close.
async fn connect_and_leave(address: &str, number: usize) {
    let mut client = client(address).await;
    client.send_utterance(&recording("goforward")).await;
    let how = number % 4;
    if how != 0 {
        client.wait_for_event("tts.speaking_start").await;
    }
    match how {
        1 => drop(client.wait_for_event("tts.speaking_end").await),
        2 => client.socket.close(None).await.unwrap(),
        _ => {}
    }
}

#[tokio::test]
async fn finished_clients_leave_no_memory() {
    let _machine = busy_machine().await;
    let simulator = SimulatorConfig { workers: 2 * CONNECTION_COUNT, record: false, ..instant_simulator() };
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", simulator, None).await;
    let (process, address) = bridge_to(&format!("ws://{upstream}/v1/realtime"), "conversation").await;
    let mut after_kib = Vec::new();
    for _ in 0..8 {
        join_all((0..CONNECTION_COUNT).map(|number| connect_and_leave(&address, number))).await;
        after_kib.push(status_kib(&process, "VmRSS:"));
    }
    // The first rounds allocate memory that later rounds reuse. The minimum of three evens out the allocator.
    let minimum = |rounds: &[u64]| rounds.iter().min().copied().unwrap();
    let grown = minimum(&after_kib[5..]).saturating_sub(minimum(&after_kib[1..4])) * 1024;
    assert!(grown < 4 * CONNECTION_COUNT as u64 * LEFTOVER_MAX_BYTES, "KiB after each round: {after_kib:?}");
    println!("KiB after each round of {CONNECTION_COUNT}: {after_kib:?}");
}
