//! The server at its socket: HTTP, the handshake, every end of a session, and misbehaving clients.

use std::time::Instant;

use super::*;

const ERROR: &str = "error";

fn route_for_model(model: &str) -> RouteConfig {
    RouteConfig { model: model.into(), ..RouteConfig::catch_all("speech") }
}

/// Advances the clock of this process by this much.
async fn advance_time(time: Duration) {
    pause();
    advance(time).await;
    resume();
}

async fn assert_speaks(client: &mut Client) {
    client.send_utterance(&recording("goforward")).await;
    client.wait_for_event("transcript.final").await;
    client.wait_for_event("vad.speech_end").await;
}

#[tokio::test]
async fn both_paths_accept_sessions() {
    let bench = Bench::start().await;
    for path in ["/v1/realtime?model=x", "/api/v1/realtime?language=en&model=x&unknown=%00"] {
        let mut client = bench.dial(path).await;
        let ClientFrame::Event(created) = client.next().await else {
            panic!("{}", client.describe_received())
        };
        assert_eq!((&created["type"], &created["model"]), (&json!("session.created"), &json!("x")));
        assert_speaks(&mut client).await;
    }
}

#[tokio::test]
async fn plain_http_requests_get_http_answers() {
    let bench = Bench::start().await;
    let ask = |line: &str, headers: &str| {
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let bench = &bench;
        async move { bench.http(&request).await.to_lowercase() }
    };
    let posted = ask("POST /v1/realtime?model=x", "Content-Length: 0\r\n").await;
    assert!(posted.starts_with("http/1.1 405 ") && posted.contains("\r\nallow: get\r\n"), "{posted}");
    assert!(posted.ends_with(r#"{"detail":"method not allowed"}"#), "{posted}");
    let lost = ask("GET /v9/realtime?model=x", "").await;
    assert!(lost.starts_with("http/1.1 404 ") && lost.contains("did you mean `/v1/realtime`"), "{lost}");
    let long = ask("GET /v1/realtime?model=x", &format!("X: {}\r\n", "x".repeat(20_000))).await;
    assert!(long.starts_with("http/1.1 431 "), "{long}");
    let junk = bench.http("\u{16}\u{3}\u{1} this is no HTTP\r\n\r\n").await;
    assert!(junk.starts_with("HTTP/1.1 400 "), "{junk}");
}

/// Bodies of the real Macaw server (mappings/notes/macaw.md#connect). The other protocols' servers are not known to
/// answer.
#[tokio::test]
async fn get_without_upgrade_is_answered_as_by_macaw_server() {
    let bench = Bench::start().await;
    const MISSING: &str =
        r#"{"detail":[{"type":"missing","loc":["query","model"],"msg":"Field required","input":null}]}"#;
    let hint = |url: &str| {
        format!(
            r#"{{"error":"This endpoint requires a WebSocket connection","hint":"Connect using: ws://<host>{url}"}}"#
        )
    };
    for (target, status, body) in [
        ("/v1/realtime?model=faster-whisper-tiny", 426, hint("/v1/realtime?model=faster-whisper-tiny")),
        ("/v1/realtime?language=en&model=a%20b", 426, hint("/v1/realtime?model=a b")),
        ("/v1/realtime", 422, MISSING.to_owned()),
        ("/api/v1/realtime?language=en", 422, MISSING.to_owned()),
        ("/v1/realtime?mode=audio", 426, hint("/v1/realtime")),
        ("/v1/listen", 426, hint("/v1/listen")),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        let answer = bench.http(&request).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{target}: {answer}");
        assert_eq!(answer.split_once("\r\n\r\n").unwrap().1, body, "{target}");
        assert_eq!(answer.contains("\r\nupgrade: websocket\r\n"), status == 426, "{target}: {answer}");
    }
}

#[tokio::test]
async fn unsupported_handshake_version_is_rejected() {
    let bench = Bench::start().await;
    let answer = bench
        .http(
            "GET /v1/realtime?model=x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        )
        .await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn unservable_connection_gets_error_and_close() {
    let bench = Bench::of(Config { routes: vec![route_for_model("whisper*")], ..Config::default() }).await;
    for (query, code, message, reason) in [
        (
            "",
            "invalid_request",
            "Query parameter 'model' is required",
            "Missing required query parameter: model",
        ),
        ("?model=nope", "model_not_found", "Model 'nope' not found in registry", "Model not found: nope"),
        ("?model=", "model_not_found", "Model '' not found in registry", "Model not found: "),
    ] {
        let mut client = bench.dial(&format!("/v1/realtime{query}")).await;
        client.read_to_end().await;
        let error = json!({
            "type": ERROR, "code": code, "message": message, "recoverable": false, "resume_segment_id": null,
        });
        let expected =
            [ClientFrame::Event(error), ClientFrame::Close(1008, reason.into()), ClientFrame::End(None)];
        assert_eq!(client.received, expected, "{query}");
    }
    // A reason too long for a close frame is truncated and not fatal.
    let mut client = bench.dial(&format!("/v1/realtime?model={}", "%C3%A9".repeat(300))).await;
    client.read_to_end().await;
    assert!(
        matches!(&client.received[1], ClientFrame::Close(1008, reason) if reason.len() > 100),
        "{}",
        client.describe_received()
    );
    bench.client("model=whisper-tiny").await;
}

#[tokio::test]
async fn session_is_created_independently_of_upstream() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let dead = closed_port();
    for upstream in [silent.local_addr().unwrap(), dead] {
        let config = Config { upstream: vec![upstream_at(upstream)], ..Config::default() };
        let bench = Bench::of(config).await;
        let asked_at = tokio::time::Instant::now();
        let mut client = bench.client("model=x").await;
        assert!(asked_at.elapsed() < Duration::from_secs(1), "{:?}", asked_at.elapsed());
        client.send_json(json!({"type": "nonsense"})).await;
        assert_eq!(client.wait_for_event(ERROR).await["code"], "unknown_command");
        let frames = client.close().await;
        assert_eq!(events(&frames, "session.closed")[0]["reason"], "client_request");
    }
}

#[tokio::test]
async fn data_sent_with_handshake_is_kept() {
    let bench = Bench::start().await;
    let stream = TcpStream::connect(bench.address()).await.unwrap();
    let frame = masked_frame(0x81, br#"{"type":"early"}"#);
    let (_, mut client) = open_websocket(stream, "/v1/realtime?model=x", "", &frame).await;
    client.wait_for_event("session.created").await;
    assert_eq!(client.wait_for_event(ERROR).await["message"], "Unknown command type: 'early'");
}

#[tokio::test]
async fn unsupported_offers_are_ignored() {
    let bench = Bench::start().await;
    for offer in [
        "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n",
        "Sec-WebSocket-Protocol: speech, x.y\r\n",
        "Origin: https://example.org\r\nAuthorization: Basic none\r\n",
    ] {
        let (head, mut client) = bench.open_websocket("/v1/realtime?model=x", offer).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let head = head.to_lowercase();
        assert!(!head.contains("sec-websocket-extensions") && !head.contains("sec-websocket-protocol"));
        client.wait_for_event("session.created").await;
        assert_speaks(&mut client).await;
    }
}

/// A masked frame, as a client must send it. The mask is zero, so the payload is readable.
fn masked_frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![opcode, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

#[tokio::test]
async fn oversized_fragmented_message_closes_only_its_session() {
    let bench = Bench::start().await;
    let mut other = bench.client("model=x").await;
    let mut client = bench.client("model=x").await;
    for (at, opcode) in [0x02u8].into_iter().chain(std::iter::repeat_n(0, 20)).enumerate() {
        let mut fragment = vec![opcode, 0xff];
        fragment.extend((1u64 << 20).to_be_bytes());
        fragment.extend(vec![0; (1 << 20) + 4]);
        if client.socket.get_mut().write_all(&fragment).await.is_err() {
            assert!(at >= 16, "rejected at fragment {at}");
            break;
        }
    }
    let rest = client.read_to_end().await;
    // The refusal of the audio comes first.
    assert!(matches!(rest[1], ClientFrame::Close(1009, _)), "{rest:?}");
    assert_speaks(&mut other).await;
}

#[tokio::test]
async fn oversized_audio_frame_is_reported_and_session_continues() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.send(Message::binary(vec![0; (1 << 20) + 2])).await;
    let error = client.wait_for_event(ERROR).await;
    assert_eq!((&error["code"], &error["recoverable"]), (&json!("frame_too_large"), &json!(true)));
    assert_eq!(error["message"], "Frame too large: 1048578 bytes (max 1048576)");
    assert_speaks(&mut client).await;
}

#[tokio::test]
async fn pings_are_sent_and_answered() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.socket.get_mut().write_all(&masked_frame(0x89, b"hello")).await.unwrap();
    let mut pong = [0; 7];
    timeout(Duration::from_secs(5), client.socket.get_mut().read_exact(&mut pong)).await.unwrap().unwrap();
    assert_eq!(&pong, b"\x8a\x05hello");
    advance_time(Duration::from_secs(20)).await;
    let mut ping = [0; 2];
    timeout(Duration::from_secs(5), client.socket.get_mut().read_exact(&mut ping)).await.unwrap().unwrap();
    assert_eq!(&ping, b"\x89\x00");
}

#[tokio::test]
async fn silently_gone_client_is_closed() {
    let bench = Bench::of(Config { idle_timeout_ms: Some(0), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..4 {
        // The client reads nothing, so it answers no ping.
        advance_time(Duration::from_secs(20)).await;
        // Gives the server's task a turn at this time. A turn that is missed only moves a ping to the next step.
        sleep(Duration::from_millis(10)).await;
    }
    let rest = client.read_to_end().await;
    assert!(matches!(rest, [ClientFrame::End(_)]), "{rest:?}");
}

#[tokio::test]
async fn session_close_is_answered_before_close_frame() {
    let bench = Bench::start().await;
    for (command, reason) in [("session.close", "client_request"), ("session.cancel", "cancelled")] {
        let mut client = bench.client("model=x").await;
        client.send_json(json!({"type": command})).await;
        let asked_at = tokio::time::Instant::now();
        let rest = client.read_to_end().await;
        assert!(
            matches!(rest, [ClientFrame::Event(_), ClientFrame::Close(1000, _), ClientFrame::End(None)]),
            "{rest:?}"
        );
        assert_eq!(events(rest, "session.closed")[0]["reason"], reason);
        // Clients wait for the server to end the transport (RFC 6455 §7.1.1), so the server must not wait for
        // the client.
        assert!(asked_at.elapsed() < Duration::from_secs(2), "the end took {:?}", asked_at.elapsed());
    }
}

#[tokio::test]
async fn speech_before_session_close_is_answered() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.send_utterance(&recording("goforward")).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert_eq!(events(&frames, "transcript.final").len(), 1, "{frames:?}");
    assert_eq!(events(&frames, "session.closed")[0]["segments_transcribed"], 1);
}

#[tokio::test]
async fn client_close_frame_is_echoed() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    let code = CloseCode::from(1001);
    client.socket.close(Some(CloseFrame { code, reason: "bye".into() })).await.unwrap();
    let rest = client.read_to_end().await;
    assert_eq!(rest, [ClientFrame::Close(1001, "bye".into()), ClientFrame::End(None)]);
}

#[tokio::test]
async fn vanished_client_releases_worker_politely() {
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    client.send_audio(&bytes(&recording("goforward")), 640).await;
    client.wait_for_event("vad.speech_start").await;
    // With zero linger, the drop sends a reset.
    client.socket.get_mut().set_zero_linger().unwrap();
    drop(client);
    let mut next = bench.client("model=x").await;
    assert_speaks(&mut next).await;
    let frames = next.close().await;
    assert!(events(&frames, ERROR).is_empty(), "{frames:?}");
    let disconnects =
        bench.recorder.all().into_iter().filter(|it| matches!(it, RecordedInput::Disconnected(_))).count();
    assert_eq!(disconnects, 0, "a worker was left without session.close");
}

#[tokio::test]
async fn session_without_audio_times_out() {
    let bench = Bench::of(Config { idle_timeout_ms: Some(100), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    let rest = client.read_to_end().await;
    assert_eq!(events(rest, "session.closed")[0]["reason"], "inactivity_timeout");
    assert_eq!(rest[1..], [ClientFrame::Close(1000, "inactivity_timeout".into()), ClientFrame::End(None)]);
}

#[tokio::test]
async fn empty_audio_frames_prevent_idle_timeout_and_text_does_not() {
    // The protocol's own limit of 60 s, in virtual time.
    let bench = Bench::start().await;
    let mut client = bench.client("model=x").await;
    for _ in 0..4 {
        // Waiting for each answer ensures that the previous frame has arrived.
        client.send(Message::binary(Vec::new())).await;
        client.send_json(json!({"type": "x"})).await;
        client.wait_for_event(ERROR).await;
        advance_time(Duration::from_secs(40)).await;
    }
    client.send_json(json!({"type": "x"})).await;
    client.wait_for_event(ERROR).await;
    advance_time(Duration::from_secs(40)).await;
    let rest = client.read_to_end().await;
    assert_eq!(events(rest, "session.closed")[0]["reason"], "inactivity_timeout");
}

#[tokio::test]
async fn idle_timeout_can_be_disabled() {
    let bench = Bench::of(Config { idle_timeout_ms: Some(0), ..Config::default() }).await;
    let mut client = bench.client("model=x").await;
    for _ in 0..10 {
        advance_time(Duration::from_secs(40)).await;
        // The error and the pongs prove that both directions still work.
        client.send_json(json!({"type": "x"})).await;
        client.wait_for_event(ERROR).await;
    }
    assert_eq!(events(&client.close().await, "session.closed")[0]["reason"], "client_request");
}

#[tokio::test]
async fn drain_lets_utterance_finish() {
    let mut bench = Bench::start().await;
    let mut idle = bench.client("model=x").await;
    let mut client = bench.client("model=x").await;
    client.send_audio(&bytes(&recording("goforward")[..32_000]), 640).await;
    client.wait_for_event("vad.speech_start").await;
    bench.bridge.stop();
    client.read_to_end().await;
    assert_pairs_closed(&client.received);
    assert_eq!(events(&client.received, "transcript.final").len(), 1, "{}", client.describe_received());
    assert_eq!(events(&client.received, "session.closed")[0]["reason"], "server_shutdown");
    assert!(
        client.received.contains(&ClientFrame::Close(1012, "server_shutdown".into())),
        "{}",
        client.describe_received()
    );
    assert_eq!(events(idle.read_to_end().await, "session.closed")[0]["reason"], "server_shutdown");
    let address = bench.address();
    bench.bridge.wait_for_end().await;
    assert!(TcpStream::connect(address).await.is_err(), "the server still listens");
}

#[tokio::test]
async fn drain_lets_text_finish() {
    let mut bench =
        Bench::with_config(SimulatorConfig { record: true, ..SimulatorConfig::default() }, Config::default())
            .await;
    let mut client = bench.client("model=x").await;
    client.send_json(json!({"type": "tts.speak", "text": "Two seconds of this, and some more words."})).await;
    client.wait_for_event("tts.speaking_start").await;
    bench.bridge.stop();
    client.read_to_end().await;
    assert_pairs_closed(&client.received);
    assert_eq!(events(&client.received, "tts.speaking_end")[0]["cancelled"], false);
    bench.bridge.wait_for_end().await;
}

#[tokio::test]
async fn session_limit_rejects_with_try_again() {
    let bench = Bench::of(Config { sessions_max: Some(1), ..Config::default() }).await;
    let first = bench.client("model=x").await;
    let (head, _) = bench.open_websocket("/v1/realtime?model=x", "").await;
    assert!(head.starts_with("HTTP/1.1 503 "), "{head}");
    assert!(head.to_lowercase().contains("\r\nretry-after: 5\r\n"), "{head}");
    first.close().await;
    // The client sees its session's end slightly before its slot is free.
    let retried = timeout(Duration::from_secs(5), async {
        while bench.open_websocket("/v1/realtime?model=x", "").await.0.starts_with("HTTP/1.1 503 ") {}
    });
    retried.await.expect("the slot is not freed");
}

/// Bytes sent in each direction.
#[derive(Default)]
struct ByteCounter {
    to_clients: AtomicUsize,
}

impl Tap for ByteCounter {
    fn on_frame(&self, _: &str, _: Instant, wire: TapPoint, frame: TapFrame<'_>) {
        if let (TapPoint::ToClient, TapFrame::Binary(bytes)) = (wire, frame) {
            self.to_clients.fetch_add(bytes.len(), Relaxed);
        }
    }
}

/// A bench with a client that asks for minutes of speech and reads nothing.
async fn client_that_never_reads() -> (Bench, Client, Arc<ByteCounter>) {
    let byte_counter = Arc::new(ByteCounter::default());
    let bench = Bench::with_options(Options {
        simulator: SimulatorConfig { workers: 2, ..instant_simulator() },
        config: Config { sessions_max: Some(2), ..Config::default() },
        tap: Some(byte_counter.clone()),
        ..Options::default()
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.address()).await.unwrap();
    let (_, mut slow) = open_websocket(stream, "/v1/realtime?model=x", "", &[]).await;
    slow.wait_for_event("session.created").await;
    slow.send_json(json!({"type": "tts.speak", "text": text_with_chars(4096)})).await;
    // Data flows until the kernel's and the bridge's buffers are full. Nothing announces that, but a pause shows it.
    let mut before = 0;
    loop {
        sleep(Duration::from_millis(300)).await;
        let passed = byte_counter.to_clients.load(Relaxed);
        if passed > 0 && passed == before {
            break;
        }
        before = passed;
    }
    (bench, slow, byte_counter)
}

/// A text of about five minutes of speech per 4096 characters: 14 MB.
fn text_with_chars(chars: usize) -> String {
    "Nothing of this is read for a while. ".chars().cycle().take(chars).collect()
}

/// The kernel's buffers (Linux allows a sender up to 4 MiB), the bridge's own limit, and one delta.
const BUFFERED_MAX_BYTES: usize = 7 << 20;

#[tokio::test]
async fn late_reader_delays_only_itself_and_loses_nothing() {
    let (bench, mut slow, byte_counter) = client_that_never_reads().await;
    let held = byte_counter.to_clients.load(Relaxed);
    assert!(held < BUFFERED_MAX_BYTES, "{held} bytes are buffered for a client that does not read");
    let mut other = bench.client("model=x").await;
    assert_speaks(&mut other).await;
    slow.wait_for_event("tts.speaking_end").await;
    let spoken = audio(&slow.received).len();
    assert!(spoken > 280 * 24_000, "{spoken} samples for a text of five minutes");
    assert_eq!(spoken * 2, byte_counter.to_clients.load(Relaxed));
    assert_eq!(events(&slow.received, "tts.speaking_end")[0]["cancelled"], false);
    assert_pairs_closed(&slow.received);
}

#[tokio::test]
async fn client_that_reads_in_steps_loses_nothing() {
    let (_bench, mut slow, _) = client_that_never_reads().await;
    for _ in 0..8 {
        // In steps, between which the upstream's answers arrive.
        for _ in 0..40 {
            advance_time(Duration::from_secs(1)).await;
            sleep(Duration::from_millis(2)).await;
        }
        let before = audio(&slow.received).len();
        while audio(&slow.received).len() < before + 5 * 24_000 {
            slow.next().await;
        }
    }
    slow.wait_for_event("tts.speaking_end").await;
    let (samples, errors) = (audio(&slow.received).len(), events(&slow.received, "error"));
    assert!(samples > 280 * 24_000 && errors.is_empty(), "{} s, {errors:?}", samples / 24_000);
}

#[tokio::test]
async fn client_that_never_reads_is_closed() {
    let (bench, mut slow, byte_counter) = client_that_never_reads().await;
    advance_time(Duration::from_secs(121)).await;
    // Its slot is free again: two more clients fit.
    let mut clients = Vec::new();
    wait_until_async("the slot is freed", async || {
        let (head, client) = bench.open_websocket("/v1/realtime?model=x", "").await;
        clients.extend(head.starts_with("HTTP/1.1 101 ").then_some(client));
        clients.len() == 2
    })
    .await;
    assert_speaks(&mut clients[1]).await;
    assert!(byte_counter.to_clients.load(Relaxed) < BUFFERED_MAX_BYTES);
    assert!(matches!(slow.read_to_end().await.last(), Some(ClientFrame::End(_))));
}

#[tokio::test]
async fn unfinished_http_head_is_disconnected() {
    let bench = Bench::of(Config { sessions_max: Some(1), ..Config::default() }).await;
    let mut half = TcpStream::connect(bench.address()).await.unwrap();
    half.write_all(b"GET /v1/realtime?model=x HTTP/1.1\r\nHost: x\r\nX-Slow: ").await.unwrap();
    // The unfinished head takes no session slot. It has arrived once another client is served.
    bench.client("model=x").await.close().await;
    advance_time(Duration::from_secs(11)).await;
    let mut answer = Vec::new();
    let read = timeout(Duration::from_secs(5), half.read_to_end(&mut answer)).await;
    assert!(read.is_ok(), "still open; the server sent {:?}", String::from_utf8_lossy(&answer));
}

#[tokio::test]
async fn first_known_subprotocol_is_selected() {
    let bench = Bench::start().await;
    for (path, offered, agreed) in [
        ("/v1/listen", "new, token, a-key", Some("token")),
        ("/v1/speak", "bearer,a.b.c", Some("bearer")),
        ("/v1/listen", "Token", None),
        ("/", "token", None),
        ("/v1/realtime?model=x", "token", None),
    ] {
        let (head, _) = bench.open_websocket(path, &format!("Sec-WebSocket-Protocol: {offered}\r\n")).await;
        let line = |name: &str| head.contains(&format!("\r\nsec-websocket-protocol: {name}\r\n"));
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
        match agreed {
            Some(name) => assert!(line(name), "{path}: {head}"),
            None => assert!(!head.contains("sec-websocket-protocol"), "{path}: {head}"),
        }
    }
}

#[tokio::test]
async fn file_upload_is_held_back_and_fully_transcribed() {
    const PARTS: usize = 24;
    let faults = vec!["slow-init=0.1".parse().unwrap()];
    let bench =
        Bench::with_config(SimulatorConfig { faults, ..instant_simulator() }, Config::default()).await;
    let mut client = bench.dial("/v1/listen").await;
    let voice = recording("librivox_0870");
    let part: Vec<i16> = voice.into_iter().chain([0; 16_000]).collect();
    let file = bytes_of(&part).repeat(PARTS);
    for frame in file.chunks(32_000) {
        client.send(Message::binary(frame.to_vec())).await;
    }
    // More than two minutes of audio wait. The server still answers during back-pressure.
    client.send(Message::Ping("still there?".into())).await;
    client.send_json(json!({"type": "CloseStream"})).await;
    client.read_to_end().await;
    let words = events(&client.received, "Results");
    assert_eq!(words.len(), PARTS, "{}", client.describe_received());
    let heard_s: f64 = words.iter().filter_map(|event| event["duration"].as_f64()).sum();
    let duration = events(&client.received, "Metadata")[0]["duration"].as_f64().unwrap();
    assert!(duration > 190.0 && heard_s > 0.8 * duration, "{heard_s} s of {duration} s");
    assert!(client.received.contains(&ClientFrame::Close(1000, String::new())));
}
