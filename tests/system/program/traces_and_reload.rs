//! A running server as a process: session recording and replay, and the reload of configuration and mappings
//! on SIGHUP.

use super::*;

/// The path of a client whose URL has a secret.
const PATH: &str = "/v1/realtime?model=m&token=s3cr3t-query";

/// A client of this path.
async fn dial(server: &Server, path: &str) -> Client {
    let stream = TcpStream::connect(server.address).await.unwrap();
    open_websocket(stream, path, "", &[]).await.1
}

/// A client with an open session.
async fn connect(server: &Server) -> Client {
    let mut client = dial(server, PATH).await;
    assert_eq!(client.next().await.kind(), "session.created");
    client
}

async fn stop(server: Server) {
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
}

fn only_file(dir: &Path) -> PathBuf {
    let files: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

/// A client that speaks, has a text spoken, sends secrets and leaves.
async fn run_one_session(bridge: &Server) {
    let mut client = connect(bridge).await;
    client.send_json(json!({"type": "session.configure", "api_key": "s3cr3t-key"})).await;
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("vad.speech_end").await;
    client.send_json(json!({"type": "tts.speak", "text": "Good morning."})).await;
    client.wait_for_event("tts.speaking_end").await;
    client.close().await;
}

#[tokio::test]
async fn recorded_session_replays_identically() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("running-audio");
    let traces = dir.join("made").display().to_string();
    let bridge = Server::start(&url, &["--trace", &traces, "--trace-audio"]).await;
    run_one_session(&bridge).await;
    // A rejected client has no session to record.
    dial(&bridge, "/v1/realtime?language=en").await.read_to_end().await;
    stop(bridge).await;
    let file = only_file(Path::new(&traces));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(fs::metadata(&traces).unwrap().permissions().mode() & 0o777, 0o700);
    let text = fs::read_to_string(&file).unwrap();
    assert!(!text.contains("s3cr3t"), "a secret is in the trace");
    let trace = Trace::parse(&text).unwrap();
    let name = file.file_name().unwrap().to_str().unwrap();
    assert!(name.starts_with(&format!("{}-sess_", trace.header.opened_unix_ns / 1_000_000)), "{name}");
    assert!(trace.lost_records == 0 && !trace.is_truncated);

    let path = file.display().to_string();
    let (code, last_error, problem) = run(&["replay", &path]).await;
    assert!(code == 0 && last_error.starts_with("same: "), "{last_error}{problem}");
    let svg = dir.join("session.svg");
    let (code, _, told) = run(&["replay", &path, "--svg", svg.to_str().unwrap()]).await;
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(code == 0 && told.contains("wrote "), "{told}");
    assert!(drawn.contains("→ tts.speak “Good morning.”") && drawn.contains("#0"), "{drawn}");
    let (code, last_error, _) = run(&["replay", &path, "--profile", "conversation"]).await;
    assert!(code == 1 && last_error.contains("outputs differ") && last_error.contains("expected"));
    let changed = dir.join("changed.jsonl");
    fs::write(&changed, text.replacen(r#"\"cancelled\":false"#, r#"\"cancelled\":true"#, 1)).unwrap();
    let (code, last_error, _) = run(&["replay", &changed.display().to_string()]).await;
    assert!(
        code == 1 && last_error.contains("1 outputs differ") && last_error.contains("to the client"),
        "{last_error}"
    );
    for (bad, code) in [("Cargo.toml", 65), ("nowhere.jsonl", 66)] {
        assert_eq!(run(&["replay", bad]).await.0, code, "{bad}");
    }
    check_latencies(&traces, &path).await;
}

/// Where the time until the first audio of the only text of a session went, asked for by folder and by file.
async fn check_latencies(traces: &str, file: &str) {
    let (code, table, problem) = run(&["replay", "--latency", traces]).await;
    assert!(code == 0 && table.contains(": 1 text ") && table.contains("  model "), "{table}{problem}");
    let (code, json, problem) = run(&["replay", "--latency", "--json", file, file]).await;
    assert_eq!(code, 0, "{problem}");
    let report: Value = serde_json::from_str(&json).unwrap();
    let row = &report["rows"][0];
    assert_eq!((&row["trigger"], &row["answers"]), (&json!("text"), &json!(2)), "{report}");
    assert_eq!(row["stages"][0], json!({"stage": "verdict", "p50_ms": 0.0, "p90_ms": 0.0}), "{report}");
    assert!(row["total"]["p90_ms"].as_f64().unwrap() > 0.0 && report["notes"] == json!([]), "{report}");
    for (wrong, said) in
        [(vec![file, file], "several are for --latency"), (vec![file, "--json"], "--latency")]
    {
        let (code, _, problem) = run(&[&["replay"][..], &wrong[..]].concat()).await;
        assert!(code == 2 && problem.contains(said), "{problem}");
    }
}

#[tokio::test]
async fn trace_without_audio_is_small_and_bounded() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("running-bare");
    let traces = dir.display().to_string();
    let bridge = Server::start(&url, &["--trace", &traces]).await;
    run_one_session(&bridge).await;
    stop(bridge).await;
    let text = fs::read_to_string(only_file(&dir)).unwrap();
    assert!(text.len() < 100_000, "{} bytes", text.len());
    assert!(!text.contains("s3cr3t") && text.contains("Good morning.") && text.contains("[base64 "));
    let trace = Trace::parse(&text).unwrap();
    assert!(!trace.is_truncated && trace.records.len() > 100);

    let dir = empty_scratch("running-bound");
    let config = dir.join("voxbridge.toml");
    fs::write(&config, "[trace]\ndir = \"traces\"\naudio = true\nfile_max_bytes = 65536\n").unwrap();
    let bridge = Server::start(&url, &["--config", config.to_str().unwrap()]).await;
    run_one_session(&bridge).await;
    stop(bridge).await;
    let text = fs::read_to_string(only_file(&dir.join("traces"))).unwrap();
    assert!(text.len() < 65_536 + 200, "{} bytes", text.len());
    assert!(text.lines().last().unwrap().contains(r#""full":65536"#), "{}", &text[text.len() - 200..]);
    assert!(Trace::parse(&text).unwrap().is_truncated);
}

#[tokio::test]
async fn failed_recording_is_logged_once_and_harms_no_session() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("running-gone");
    let traces = dir.join("traces").display().to_string();
    let mut bridge = Server::start(&url, &["--trace", &traces]).await;
    fs::remove_dir_all(&traces).unwrap();
    run_one_session(&bridge).await;
    bridge.wait_for_log("cannot write a trace").await;
    run_one_session(&bridge).await;
    stop(bridge).await;
    let file = dir.join("file");
    fs::write(&file, "").unwrap();
    let (code, _, problem) =
        run(&["serve", "--listen", "127.0.0.1:0", "--upstream", &url, "--trace", file.to_str().unwrap()])
            .await;
    assert!(code == 1 && problem.contains("cannot write traces to"), "{problem}");
}

async fn error_text(client: &mut Client) -> String {
    client.send_json(json!({"type": "nope"})).await;
    client.wait_for_event("error").await["message"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn reload_applies_to_new_sessions_and_rejects_broken_files() {
    let (url, _simulator) = upstream().await;
    let dir = empty_scratch("running-reload");
    let (mappings, config) = (dir.join("mappings"), dir.join("voxbridge.toml"));
    fs::create_dir(&mappings).unwrap();
    fs::write(mappings.join("macaw.toml"), macaw_with_error_text("First")).unwrap();
    fs::write(&config, "mappings = \"mappings\"\n").unwrap();
    let mut bridge = Server::start(&url, &["--config", config.to_str().unwrap()]).await;
    let mut old = connect(&bridge).await;
    assert_eq!(error_text(&mut old).await, "First: 'nope'");

    fs::write(mappings.join("macaw.toml"), macaw_with_error_text("Second")).unwrap();
    bridge.signal("-HUP").await;
    let line = bridge.wait_for_log("reloaded").await;
    assert!(line.contains("client macaw changed"), "{line}");
    let mut new = connect(&bridge).await;
    assert_eq!(error_text(&mut new).await, "Second: 'nope'");
    assert_eq!(error_text(&mut old).await, "First: 'nope'", "an open session keeps its mapping");

    fs::write(
        mappings.join("macaw.toml"),
        macaw_with_error_text("Third").replace("command_key", "comand_key"),
    )
    .unwrap();
    bridge.signal("-HUP").await;
    let line = bridge.wait_for_log("not reloaded").await;
    assert!(line.contains("macaw.toml:") && line.contains("did you mean `command_key`"), "{line}");
    assert_eq!(error_text(&mut connect(&bridge).await).await, "Second: 'nope'");

    fs::write(mappings.join("macaw.toml"), macaw_with_error_text("Fourth")).unwrap();
    fs::write(&config, "mappings = \"mappings\"\nsessions_max = 7\nlanguage = \"zh\"\n").unwrap();
    bridge.signal("-HUP").await;
    let line = bridge.wait_for_log("reloaded").await;
    assert!(line.contains("`language`") && !line.contains("sessions_max"), "{line}");
    let line = bridge.wait_for_log("after a restart").await;
    assert!(line.contains("`sessions_max`"), "{line}");
    bridge.signal("-HUP").await;
    let line = bridge.wait_for_log("reloaded").await;
    assert!(line.contains("its changes take effect after a restart: `sessions_max`"), "{line}");
    assert_eq!(error_text(&mut connect(&bridge).await).await, "Fourth: 'nope'");
    // Old and new sessions still work.
    for client in [&mut old, &mut new] {
        client.send_utterance(&recording("goforward")).await;
        client.wait_for_event("transcript.final").await;
    }
    assert!(matches!(old.close().await.last(), Some(ClientFrame::End(_))));
    stop(bridge).await;
}

/// The next event of a client whose protocol has no types.
async fn last_error(client: &mut Client) -> Value {
    match client.next().await {
        ClientFrame::Event(event) => event,
        other => panic!("{other:?} is not an event"),
    }
}

/// The README's example: one file in a directory, with the existing program.
#[tokio::test]
async fn custom_protocol_needs_one_file() {
    let dir = empty_scratch("running-own");
    fs::write(dir.join("talkie.toml"), readme::shown_file("mappings/README.md", "own protocol")).unwrap();
    let mappings = dir.display().to_string();
    let (code, out, err) = run(&["check", "--mappings", &mappings]).await;
    assert!(code == 0 && out.contains("client talkie"), "{out}{err}");

    let (url, _simulator) = upstream().await;
    let bridge = Server::start(&url, &["--mappings", &mappings]).await;
    let mut client = dial(&bridge, "/talkie?channel=7").await;
    client.send_utterance(&recording("goforward")).await;
    client.send_json(json!({"do": "over"})).await;
    let transcript = last_error(&mut client).await;
    assert!(transcript["heard"].as_str().is_some_and(|text| !text.is_empty()), "{transcript}");
    client.send_json(json!({"do": "jump"})).await;
    assert_eq!(last_error(&mut client).await, json!({"problem": "Cannot do 'jump'"}));
    client.send_json(json!({"do": "say", "words": "Good morning."})).await;
    assert_eq!(last_error(&mut client).await, json!({"saying": "Good morning."}));
    let mut samples = 0;
    let spoken = loop {
        match client.next().await {
            ClientFrame::Audio(bytes) => samples += bytes.len() / 2,
            ClientFrame::Event(event) => break event,
            other => panic!("{other:?} is neither audio nor an event"),
        }
    };
    assert_eq!(spoken, json!({"said": true, "cut": false}));
    assert!(samples > 16_000 / 4, "{samples} samples are less than 250 ms");
    client.send_json(json!({"do": "bye"})).await;
    assert_eq!(last_error(&mut client).await, json!({"bye": "over and out"}));
    assert!(matches!(client.next().await, ClientFrame::Close(1000, _)));
    stop(bridge).await;
}
