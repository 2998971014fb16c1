//! Conversations over real sockets: clients that do not read, hang up or compete for a worker; lost
//! upstreams; shutdown; large pictures.

use voxbridge::server::tap::TapPoint as Place;

use super::*;

const RATE_HZ: f64 = 24_000.0;
/// Largest lead of sent over played audio plus one frame, s. A busy machine's clock is late, never early.
const LEAD_S: f64 = 0.4 + 0.2;

fn profile_config(profile: &str) -> Config {
    Config { profile: Some(profile.into()), ..Config::default() }
}

fn with_fault(fault: &str) -> SimulatorConfig {
    SimulatorConfig { faults: vec![fault.parse().unwrap()], ..instant_simulator() }
}

/// Asks a question and waits for the end of its answer.
async fn ask_question(client: &mut Client) {
    let question = recording("goforward");
    let frames = client.stream_until(&question, is("tts.speaking_end")).await;
    assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false, "{frames:?}");
    assert_one_turn(frames);
}

/// Checks that all audio belongs to one turn, complete from its beginning and in order.
#[track_caller]
fn assert_one_turn(frames: &[ClientFrame]) {
    let marks: Vec<_> =
        audio(frames).into_iter().map(|sample| read_watermark(sample).expect("no watermark")).collect();
    assert_eq!(marks[0].1, 0);
    for pair in marks.windows(2) {
        assert_eq!(pair[1], (pair[0].0, (pair[0].1 + 1) % 8190));
    }
}

/// Checks that the upstream got a close for every session and lost no connection.
fn assert_sessions_closed(received: &[RecordedInput], sessions: usize) {
    let of_type = |kind: &str| {
        let has_type = |received: &&RecordedInput| match received {
            RecordedInput::Message(_, text) => serde_json::from_str::<Value>(text).unwrap()["type"] == kind,
            _ => false,
        };
        received.iter().filter(has_type).count()
    };
    assert_eq!((of_type("session.init"), of_type("session.close")), (sessions, sessions));
    assert!(
        !received.iter().any(|received| matches!(received, RecordedInput::Disconnected(_))),
        "a session was left without session.close"
    );
}

/// Advances the clock of this process by this much while the client keeps reading.
async fn advance_time(client: &mut Client, time: Duration) {
    pause();
    advance(time).await;
    resume();
    while timeout(Duration::from_millis(50), client.next()).await.is_ok() {}
}

#[derive(Default)]
struct ByteCounter {
    to_client: AtomicUsize,
}

impl Tap for ByteCounter {
    fn on_frame(&self, _: &str, _: std::time::Instant, place: Place, passed: TapFrame<'_>) {
        if let (Place::ToClient, TapFrame::Binary(bytes)) = (place, passed) {
            self.to_client.fetch_add(bytes.len(), Relaxed);
        }
    }
}

#[tokio::test]
async fn slow_reader_is_paced_and_can_interrupt() {
    let byte_counter = Arc::new(ByteCounter::default());
    let bench = Bench::with_options(Options {
        simulator: with_fault("burst=34"),
        config: profile_config("conversation"),
        tap: Some(byte_counter.clone()),
        ..Options::default()
    })
    .await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    let stream = socket.connect(bench.address()).await.unwrap();
    let (_, mut client) = open_websocket(stream, "/v1/realtime?model=x", "", &[]).await;
    client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
    let (start, before) = (Instant::now(), client.received.len());
    // Half a minute of speech is generated at once. The microphone continues, and the client reads nothing.
    while start.elapsed() < Duration::from_secs(3) {
        client.send(Message::binary(vec![0; 640])).await;
        sleep(Duration::from_millis(20)).await;
        let sent_s = byte_counter.to_client.load(Relaxed) as f64 / 2.0 / RATE_HZ;
        assert!(sent_s <= start.elapsed().as_secs_f64() + LEAD_S, "{sent_s} s after {:?}", start.elapsed());
    }
    assert!(byte_counter.to_client.load(Relaxed) > 2 * 48_000, "the turn continues");
    client.stream_until(&recording("cards_005"), is("tts.speaking_end")).await;
    let interrupted = &client.received[before..];
    assert_eq!(events(interrupted, "tts.speaking_end")[0]["cancelled"], true);
    assert_one_turn(interrupted);
    // The next turn is a new one, played from its beginning.
    client.stream_until(&[], is("tts.speaking_start")).await;
    client.send_json(json!({"type": "tts.cancel"})).await;
    client.wait_for_event("tts.speaking_end").await;
    assert_pairs_closed(&client.close().await);
}

#[tokio::test]
async fn silently_lost_upstream_is_replaced() {
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let proxy = TcpProxy::to(upstream).await;
    let config = Config {
        upstream: vec![upstream_at(proxy.address())],
        idle_timeout_ms: Some(0),
        ..profile_config("conversation")
    };
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    ask_question(&mut client).await;
    // Both sides stay silent for long: no unit awaits an answer, so only pings can detect the loss.
    for _ in 0..3 {
        advance_time(&mut client, Duration::from_secs(15)).await;
    }
    assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
    proxy.set_paused(true);
    for _ in 0..4 {
        advance_time(&mut client, Duration::from_secs(20)).await;
    }
    let errors = events(&client.received, "error");
    assert!(errors[0]["message"].as_str().unwrap().contains("nothing heard for 60 s"), "{errors:?}");
    proxy.set_paused(false);
    ask_question(&mut client).await;
    assert_pairs_closed(&client.close().await);
}

#[tokio::test]
async fn disconnect_mid_turn_leaves_no_session() {
    for is_polite in [true, false] {
        let simulator = SimulatorConfig { turn_units: 20, ..instant_simulator() };
        let bench = Bench::with_config(simulator, profile_config("conversation")).await;
        let mut client = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        if is_polite {
            client.socket.close(None).await.unwrap();
            client.read_to_end().await;
        }
        drop(client);
        // With one worker, serving the next client shows that the worker is free.
        let mut next = bench.client("model=x").await;
        next.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        let frames = next.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").is_empty(), "{frames:?}");
        assert_sessions_closed(&bench.recorder.all(), 2);
    }
}

#[tokio::test]
async fn drain_ends_conversations_politely() {
    // A moment or half a minute of audio is left to play.
    for (fault, within_ms, heard_to_its_end) in
        [("think,times=1", 25_000, true), ("burst=34,times=1", 3_000, false)]
    {
        let simulator = SimulatorConfig { workers: 2, ..with_fault(fault) };
        let mut config = profile_config("conversation");
        config.drain.timeout_ms = Some(within_ms);
        let mut bench = Bench::with_config(simulator, config).await;
        let mut client = bench.client("model=x").await;
        let mut silent = bench.client("model=x").await;
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        bench.bridge.stop();
        client.read_to_end().await;
        silent.read_to_end().await;
        for client in [&client, &silent] {
            assert_pairs_closed(&client.received);
            assert_eq!(events(&client.received, "session.closed")[0]["reason"], "server_shutdown");
            assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
        }
        assert_one_turn(&client.received);
        let ends = events(&client.received, "tts.speaking_end");
        assert_eq!(ends[0]["cancelled"], !heard_to_its_end, "{fault}");
        bench.bridge.wait_for_end().await;
        assert_sessions_closed(&bench.recorder.all(), 2);
    }
}

#[tokio::test]
async fn queued_client_is_informed_and_gets_freed_worker() {
    let mappings =
        conversation_profile_with("talks-queue", &[("queue_stuck_ms = 15000", "queue_stuck_ms = 500")]);
    let bench = Bench::of(Config { mappings: Some(mappings), ..profile_config("conversation") }).await;
    let mut first = bench.client("model=x").await;
    ask_question(&mut first).await;
    let mut second = bench.client("model=x").await;
    // Speech during the wait is kept.
    second.send_utterance(&recording("goforward")).await;
    let error = second.wait_for_event("error").await;
    assert_eq!((&error["code"], &error["recoverable"]), (&json!("service_unavailable"), &json!(true)));
    assert!(error["message"].as_str().unwrap().contains("position 1"), "{error}");
    first.close().await;
    let frames = second.stream_until(&[], is("tts.speaking_end")).await;
    assert_one_turn(frames);
    assert_eq!(events(frames, "tts.speaking_end")[0]["cancelled"], false);
    assert_pairs_closed(&second.close().await);
}

/// Base64 of a JPEG file with data behind its end, this many bytes in all.
fn picture(bytes: usize) -> String {
    let mut jpeg = STANDARD.decode(PICTURE).unwrap();
    jpeg.extend((jpeg.len()..bytes).map(|at| (at * 31 % 251) as u8));
    STANDARD.encode(jpeg)
}

#[tokio::test]
async fn large_pictures_do_not_delay_audio() {
    let bench = Bench::of(profile_config("video")).await;
    let mut client = bench.client("model=x").await;
    let frame = json!({"type": "video.frame", "image": picture(300_000)});
    // With more pictures than seconds, only the newest picture of each second is sent.
    let question = recording("goforward");
    for second in question.chunks(16_000) {
        for _ in 0..4 {
            client.send_json(frame.clone()).await;
        }
        client.send_audio(&bytes(second), 640).await;
    }
    client.send_json(json!({"type": "video.frame", "image": picture(1_600_000)})).await;
    assert_eq!(client.wait_for_event("error").await["code"], "validation_error");
    client.send_json(json!({"type": "video.frame", "image": "bm90IGEgcGljdHVyZQ=="})).await;
    assert_eq!(client.wait_for_event("error").await["code"], "validation_error");
    let frames = client.stream_until(&[], is("tts.speaking_end")).await;
    assert_one_turn(frames);
    let units = bench.recorder.duplex_units();
    let frames: Vec<usize> = units.iter().map(|(_, unit)| unit.frame_count).collect();
    assert!(frames.iter().all(|frames| *frames <= 1) && frames.contains(&1), "{frames:?}");
    assert_pairs_closed(&client.close().await);
    assert_sessions_closed(&bench.recorder.all(), 1);
}

#[tokio::test]
async fn conversation_works_on_legacy_server() {
    for documented in [false, true] {
        let simulator = SimulatorConfig {
            dialect: SimDialect::Legacy { follows_document: documented },
            ..instant_simulator()
        };
        let bench = Bench::with_config(simulator, profile_config("conversation")).await;
        let mut client = bench.client("model=x").await;
        ask_question(&mut client).await;
        client.send_json(json!({"type": "tts.speak", "text": "Hello."})).await;
        let frames = client.stream_until(&[], is("error")).await;
        let words = events(frames, "error")[0]["message"].as_str().unwrap().to_owned();
        assert!(words.contains("no chat mode"), "{words}");
        let before = client.received.len();
        client.stream_until(&recording("goforward"), is("tts.speaking_start")).await;
        client.stream_until(&[], is("tts.speaking_end")).await;
        assert_one_turn(&client.received[before..]);
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert_eq!(events(&frames, "error").len(), 1, "{frames:?}");
        let received = bench.recorder.all();
        let of_type = |kind: &str| {
            let has_kind = |received: &&RecordedInput| matches!(received, RecordedInput::Message(_, text) if text.contains(kind));
            received.iter().filter(has_kind).count()
        };
        assert_eq!((of_type("\"session.update\""), of_type("\"session.close\"")), (1, 1));
    }
}
