//! Clients of the model's own protocol over real sockets.

use super::*;

fn append_message(samples: &[i16]) -> Value {
    let bytes: Vec<u8> =
        samples.iter().flat_map(|sample| (f32::from(*sample) / 32768.0).to_le_bytes()).collect();
    json!({"type": "input.append", "input": {"audio": STANDARD.encode(bytes)}})
}

/// Three seconds of silence, a question, and time for its answer, in seconds of audio.
fn question_seconds() -> Vec<Vec<i16>> {
    let mut samples = vec![0; 48_000];
    samples.extend(recording("goforward"));
    samples.resize(samples.len().next_multiple_of(16_000) + 16_000 * 6, 0);
    samples.chunks(16_000).map(<[i16]>::to_vec).collect()
}

#[tokio::test]
async fn conversation_passes_unchanged() {
    let bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.wait_for_event("session.queue_done").await;
    client
        .send_json(json!({"type": "session.init", "payload": {"system_prompt": "x", "unknown": 1.50}}))
        .await;
    let created = client.wait_for_event("session.created").await;
    assert_eq!(created["mode"], "full_duplex");
    for second in question_seconds() {
        client.send_json(append_message(&second)).await;
        client.wait_for_event("response.output.delta").await;
    }
    client.send_json(json!({"type": "session.close", "reason": "user_stop"})).await;
    client.read_to_end().await;
    let frames = &client.received;
    let kinds: Vec<_> =
        events(frames, "response.output.delta").iter().map(|delta| delta["kind"].clone()).collect();
    assert!(kinds.contains(&json!("audio")) && kinds.contains(&json!("text")), "{kinds:?}");
    assert_eq!(events(frames, "session.closed")[0]["reason"], "user_stop");
    assert!(
        frames.iter().any(|frame| matches!(frame, ClientFrame::Close(1000, _))),
        "{}",
        client.describe_received()
    );
}

#[tokio::test]
async fn chat_and_server_errors_pass_unchanged() {
    let bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=chat").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    let input = json!({"messages": [{"role": "user", "content": "Hello"}], "tts": {"enabled": false}});
    client.send_json(json!({"type": "input.append", "input": input})).await;
    assert_eq!(client.wait_for_event("response.done").await["reason"], "turn_end");
    client.send(Message::text("{")).await;
    assert_eq!(client.wait_for_event("session.closed").await["reason"], "backend_error");
    client.read_to_end().await;
    assert!(client.received.iter().any(|frame| matches!(frame, ClientFrame::Close(1000, _))));
}

#[tokio::test]
async fn silent_client_is_told_that_its_time_is_over() {
    let bench = Bench::of(Config { idle_timeout_ms: Some(300), ..Config::default() }).await;
    let mut client = bench.dial("/v1/realtime?mode=chat").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.read_to_end().await;
    assert_eq!(events(&client.received, "session.closed")[0]["reason"], "timeout");
}

#[tokio::test]
async fn drain_is_reported_to_relayed_clients() {
    let mut bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    bench.bridge.stop();
    assert_eq!(client.wait_for_event("session.closed").await["reason"], "server_shutdown");
    client.read_to_end().await;
    assert!(
        client.received.iter().any(|frame| matches!(frame, ClientFrame::Close(1012, _))),
        "{}",
        client.describe_received()
    );
    bench.bridge.wait_for_end().await;
}

/// Runs a whole conversation as a legacy client and returns the received frames.
async fn run_legacy_conversation(mut client: Client) -> Vec<ClientFrame> {
    client.wait_for_event("session.queue_done").await;
    client.send_json(json!({"type": "session.update", "session": {"instructions": "x"}})).await;
    client.wait_for_event("session.created").await;
    for second in question_seconds() {
        let audio = append_message(&second)["input"]["audio"].clone();
        client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
        client.next().await;
    }
    client.send_json(json!({"type": "input_audio_buffer.append"})).await;
    client.wait_for_event("error").await;
    client.send_json(json!({"type": "session.close", "reason": "user_stop"})).await;
    client.read_to_end().await;
    client.received
}

/// The events without the fields that differ from session to session.
fn comparable_events(frames: &[ClientFrame]) -> Vec<Value> {
    let events = frames.iter().filter_map(|frame| match frame {
        ClientFrame::Event(event) => Some(event.clone()),
        _ => None,
    });
    let plain = events.map(|mut event| {
        if let Some(id) = event.get_mut("session_id") {
            *id = json!("");
        }
        if event["type"] == "error" { json!(event["error"]["code"]) } else { event }
    });
    plain.collect()
}

#[tokio::test]
async fn two_bridges_match_direct_legacy_connection() {
    let server =
        SimulatorConfig { dialect: SimDialect::Legacy { follows_document: true }, ..instant_simulator() };
    let relay = |upstream: Option<UpstreamConfig>| Config {
        profile: Some("relay".into()),
        upstream: upstream.into_iter().collect(),
        ..Config::default()
    };
    // Each route has its own server: a server numbers its turns, and every turn has its own audio.
    let (far, _far, _) = start_simulator("127.0.0.1:0", server.clone(), None).await;
    let (near, _near, _) = start_simulator("127.0.0.1:0", server.clone(), None).await;
    let (own, _own, _) = start_simulator("127.0.0.1:0", server, None).await;
    let older = |address| UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(address) };
    let second = Bench::of(relay(Some(older(far)))).await;
    let first = Bench::of(relay(Some(upstream_at(second.address())))).await;
    let direct = Bench::of(relay(Some(older(near)))).await;
    let through = run_legacy_conversation(first.dial("/v1/realtime?mode=audio").await).await;
    let passed = run_legacy_conversation(direct.dial("/v1/realtime?mode=audio").await).await;
    let client = dial(own, "/v1/realtime?mode=audio").await;
    let directly = run_legacy_conversation(client).await;
    for frames in [through, passed] {
        let (frames, directly) = (comparable_events(&frames), comparable_events(&directly));
        for (at, (frames, directly)) in frames.iter().zip(&directly).enumerate() {
            assert!(frames == directly, "event {at}: {} {}", short_event(frames), short_event(directly));
        }
        assert_eq!(frames.len(), directly.len());
    }
    let spoken = events(&directly, "response.output_audio.delta");
    assert!(spoken.iter().any(|delta| delta["end_of_turn"] == true));
}

fn short_event(event: &Value) -> String {
    event.to_string().chars().rev().take(120).collect::<Vec<_>>().iter().rev().collect()
}

/// A server that opens a session, then reads only after a signal and returns the numbers of the received
/// messages in order.
async fn slow_upstream() -> (String, oneshot::Sender<()>, JoinHandle<Vec<u64>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}/v1/realtime", listener.local_addr().unwrap());
    let (go, gone_on) = oneshot::channel();
    let reading = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = accept_async(stream).await.unwrap();
        socket.send(Message::text(r#"{"type":"session.queue_done"}"#)).await.unwrap();
        socket.next().await.unwrap().unwrap();
        socket.send(Message::text(r#"{"type":"session.created","session_id":"s"}"#)).await.unwrap();
        gone_on.await.unwrap();
        let mut numbers = Vec::new();
        while let Some(Ok(Message::Text(text))) = socket.next().await {
            let message: Value = serde_json::from_str(&text).unwrap();
            match message["input"]["number"].as_u64() {
                Some(number) => numbers.push(number),
                None => break,
            }
        }
        numbers
    });
    (url, go, reading)
}

#[tokio::test]
async fn fast_client_is_held_back_without_loss() {
    const MESSAGES: u64 = 80;
    const BLOCKED: Duration = Duration::from_secs(2);
    let (url, go, reading) = slow_upstream().await;
    let upstream = UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() };
    let bench = Bench::of(Config { upstream: vec![upstream], ..Config::default() }).await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.send_json(json!({"type": "session.init", "payload": {}})).await;
    client.wait_for_event("session.created").await;
    let numbered_append = |number: u64| {
        let input = json!({"number": number, "audio": "A".repeat(1_000_000)});
        Message::text(json!({"type": "input.append", "input": input}).to_string())
    };
    let sending = async {
        let mut sent = 0;
        // The system's socket buffers on both sides and the bridge's own buffer take some messages.
        while sent < MESSAGES {
            let Ok(flushed) = timeout(BLOCKED, client.socket.flush()).await else { break };
            flushed.unwrap();
            client.socket.feed(numbered_append(sent)).await.unwrap();
            sent += 1;
        }
        assert!(sent < MESSAGES / 2, "{sent} MB were accepted although the upstream reads nothing");
        go.send(()).unwrap();
        for number in sent..MESSAGES {
            client.socket.send(numbered_append(number)).await.unwrap();
        }
        client.socket.send(Message::text(r#"{"type":"session.close"}"#)).await.unwrap();
    };
    timeout(Duration::from_secs(60), sending).await.unwrap();
    assert_eq!(reading.await.unwrap(), (0..MESSAGES).collect::<Vec<_>>());
}
