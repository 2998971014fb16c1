//! Unread and unwritable logs: sessions and the shutdown go on. And what is never in a log.

use std::fs::OpenOptions;

use super::*;

/// Sessions whose access log lines fill a pipe.
const SESSIONS: usize = 150;
/// Commands whose log lines fill a pipe and the queue in front of it.
const BAD_COMMANDS: usize = 8_000;

/// One utterance and one text.
async fn converse(server: &Server) {
    let mut client = server.client().await;
    let samples: Vec<u8> = recording("goforward").iter().flat_map(|sample| sample.to_le_bytes()).collect();
    client.send_audio(&[samples, vec![0; 16_000]].concat(), 640).await;
    client.wait_for_event("transcript.final").await;
    client.send_json(json!({"type": "tts.speak", "text": "Good morning."})).await;
    client.wait_for_event("tts.speaking_end").await;
    client.close().await;
}

async fn assert_stops(mut server: Server) {
    server.signal("-TERM").await;
    let status = timeout(PATIENCE, server.process.wait()).await.expect("the server stops").unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn unread_logs_block_neither_sessions_nor_shutdown() {
    let (upstream, _simulator) = upstream().await;
    let dir = scratch("unread-logs");
    // A shutdown that waited for a log would take all of this time.
    let path = config(&dir, "[access_log]\npath = \"stdout\"\n[drain]\ntimeout_ms = 600000\n");
    // Standard error stays unread, and standard output after its first lines.
    let server = Server::start(&upstream, &["--log", "trace", "--config", &path]).await;
    for _ in 0..SESSIONS {
        server.client().await.close().await;
    }
    let mut client = server.client().await;
    for _ in 0..BAD_COMMANDS {
        client.send_json(json!({"type": "no.such"})).await;
    }
    for _ in 0..BAD_COMMANDS {
        client.wait_for_event("error").await;
        client.received.clear();
    }
    client.close().await;
    converse(&server).await;
    let metrics = server.request("GET", "/metrics").await.body;
    let lost = metrics.lines().find_map(|line| line.strip_prefix("voxbridge_log_lines_lost_total "));
    assert!(lost.unwrap().parse::<f64>().unwrap() > 1.0, "{lost:?}");
    assert_stops(server).await;
}

#[tokio::test]
async fn full_disk_ends_only_the_logs() {
    let (upstream, _simulator) = upstream().await;
    let dir = scratch("full-logs");
    let path = config(&dir, "[access_log]\npath = \"/dev/full\"\n");
    let admin = ["--admin", "127.0.0.1:0"];
    let args =
        ["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream, "--log", "debug", "--config", &path];
    let mut command = voxbridge(&[&args[..], &admin].concat());
    command.stderr(Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap()));
    let server = Server::spawn(command).await;
    converse(&server).await;
    let is_lost = |metrics: &str, log: &str| {
        let lost =
            metrics.lines().find_map(|line| line.strip_prefix(log)?.strip_prefix("_lines_lost_total "));
        lost.is_some_and(|lost| lost != "0.0")
    };
    let is_counted =
        |metrics: &str| is_lost(metrics, "voxbridge_access_log") && is_lost(metrics, "voxbridge_log");
    server.request_until("/metrics", |answer| is_counted(&answer.body)).await;
    assert_stops(server).await;
}

/// At the level `info`, a log may be kept for long and read by many. It may name a
/// voice, a language or a field that has no effect.
#[tokio::test]
async fn info_log_has_no_words_of_clients() {
    const WORDS: &str = "Xylophone";
    let (upstream, _simulator) = upstream().await;
    let log = scratch("wordless-logs").join("log");
    let args = ["serve", "--listen", "127.0.0.1:0", "--upstream", &upstream, "--admin", "127.0.0.1:0"];
    let mut command = voxbridge(&args);
    command.stderr(File::create(&log).unwrap());
    let server = Server::spawn(command).await;
    let mut client = server.client().await;
    for message in [
        json!({"type": WORDS}),
        json!({"type": "session.configure", "hot_words": [WORDS], "unknown": WORDS}),
        json!({"type": "tts.speak", "text": {"of": WORDS}}),
        json!({"type": "tts.speak", "text": format!("A {WORDS} is made of wood."), "request_id": WORDS}),
    ] {
        client.send_json(message).await;
    }
    client.send(Message::text(format!("{{{WORDS}"))).await;
    client.wait_for_event("tts.speaking_end").await;
    let errors = events(&client.received, "error");
    assert!(errors.iter().any(|error| error.to_string().contains(WORDS)), "{errors:?}");
    client.close().await;

    let mut realtime = dial(server.address, "/openai/v1/realtime?model=m").await;
    let part = json!({"type": "input_text", "text": WORDS});
    let tool =
        json!({"type": "function", "name": WORDS, "description": WORDS, "parameters": {"type": "object"}});
    let session =
        json!({"type": "realtime", "instructions": WORDS, "tools": [tool], "tool_choice": "required"});
    for message in [
        json!({"type": "session.update", "event_id": WORDS, "session": session}),
        json!({"type": "session.update", "session": {"type": "realtime", "unknown": WORDS}}),
        json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [part]}}),
        json!({"type": "conversation.item.delete", "item_id": WORDS}),
        json!({"type": "response.create", "response": {"instructions": WORDS, "metadata": {WORDS: WORDS}}}),
    ] {
        realtime.send_json(message).await;
    }
    realtime.wait_for_event("response.done").await;
    drop(realtime);
    assert_stops(server).await;
    let log = fs::read_to_string(log).unwrap();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(WORDS)).collect();
    assert!(lines.is_empty() && log.contains("client error"), "{lines:#?}\n{log}");
}
