//! Upstreams of several dialects behind one address, and upstreams that serve only some purposes.

use voxbridge::vocabulary::LanePurpose;

use super::*;

fn simulator(dialect: SimDialect) -> SimulatorConfig {
    let timing = SimTiming { listen_step: Duration::from_millis(2), ..SimTiming::default() };
    SimulatorConfig { dialect, timing, record: true, ..SimulatorConfig::default() }
}

fn ends_speech(frame: &ClientFrame) -> bool {
    frame.kind() == "tts.speaking_end"
}

#[tokio::test]
async fn user_of_a_conversation_is_transcribed_by_an_upstream_of_another_dialect() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (talking, _talking, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    let listening_upstream = simulator(SimDialect::Current);
    let (listening, _listening, recorder) = start_simulator("127.0.0.1:0", listening_upstream, None).await;
    let talking =
        UpstreamConfig { serves: Some(vec![LanePurpose::Converse]), ..upstream_of(legacy, talking) };
    let listening = UpstreamConfig {
        serves: Some(vec![LanePurpose::Transcribe]),
        ..upstream_of(SimDialect::Current, listening)
    };
    let mappings = conversation_profile_with(
        "mixed-transcribe",
        &[("transcribe_user = false", "transcribe_user = true ")],
    );
    let config = Config {
        profile: Some("conversation".into()),
        upstream: vec![talking, listening],
        mappings: Some(mappings),
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), ends_speech).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert!(!audio(&frames).is_empty() && events(&frames, "error").is_empty(), "{frames:?}");
    let transcripts = events(&frames, "transcript.final");
    let of = |speaker: &str| transcripts.iter().filter(|event| event["speaker"] == speaker).count();
    assert_eq!((of("user"), of("assistant")), (1, 1), "{transcripts:?}");
    let received = recorder.all();
    let asked = received.iter().filter(|input| matches!(input, RecordedInput::AsrAudio(..))).count();
    assert_eq!(asked, 1, "{received:?}");
    assert!(!received.iter().any(|input| matches!(input, RecordedInput::DuplexOpened(..))), "{received:?}");
}

#[tokio::test]
async fn conversation_moves_to_an_upstream_of_another_dialect_when_its_own_is_lost() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (first, mut first_server, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    let (second, _second, recorder) =
        start_simulator("127.0.0.1:0", simulator(SimDialect::Current), None).await;
    let upstream = vec![upstream_of(legacy, first), upstream_of(SimDialect::Current, second)];
    let config = Config { profile: Some("conversation".into()), upstream, ..Config::default() };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.client("model=x").await;
    let question = recording("goforward");
    client.stream_until(&question, ends_speech).await;
    assert_eq!(recorder.all().len(), 0, "the first upstream has the conversation");
    first_server.stop();
    client.stream_until(&question, ends_speech).await;
    let frames = client.close().await;
    assert_pairs_closed(&frames);
    assert_eq!(events(&frames, "tts.speaking_end").len(), 2, "{frames:?}");
    assert!(!recorder.all().is_empty());
}

#[tokio::test]
async fn dialect_of_each_server_is_found_by_its_pages() {
    let mut servers = Vec::new();
    let mut config = Config::default();
    let legacy = SimDialect::Legacy { follows_document: false };
    let dialects =
        [SimDialect::Current, SimDialect::LlamaCppOmni, SimDialect::SglangOmni, SimDialect::VllmOmni, legacy];
    for dialect in dialects {
        let (address, server, _) = start_simulator("127.0.0.1:0", simulator(dialect), None).await;
        servers.push(server);
        let url = format!("ws://{address}");
        config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
    }
    let closed = closed_port();
    let url = format!("ws://{closed}");
    config.upstream.push(UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() });
    config.detect_dialects().await;
    let found: Vec<&str> = config.upstream.iter().map(|upstream| &*upstream.dialect).collect();
    let known = ["minicpm-o", "llama-cpp-omni", "sglang-omni", "vllm-omni", "minicpm-o-legacy", "auto"];
    assert_eq!(found, known);
    assert!(config.has_unknown_dialects());
    // Without an answer, it counts as the server that most users have.
    config.voices = [("default".to_owned(), speech_dir().join("goforward_16k.wav"))].into();
    assert!(config.build_service().is_ok());
}

#[tokio::test]
async fn deployments_of_one_server_in_turns_and_in_full_duplex_are_told_apart() {
    let turns = [RealtimeServer::Openai, RealtimeServer::VllmOmni].map(SimDialect::OpenaiRealtime);
    for (dialect, name) in [
        (turns[0], "openai-realtime"),
        (turns[1], "openai-realtime"),
        (SimDialect::VllmOmni, "vllm-omni"),
        (SimDialect::SglangOmni, "sglang-omni"),
    ] {
        let (address, _server, _) = start_simulator("127.0.0.1:0", simulator(dialect), None).await;
        assert_eq!(found_dialect(address).await, name, "{dialect:?}");
    }
}

/// Dialect that is found for a server.
async fn found_dialect(address: SocketAddr) -> String {
    let url = format!("ws://{address}");
    let upstream = vec![UpstreamConfig { url, ..UpstreamConfig::with_default_dialect() }];
    let mut config = Config { upstream, ..Config::default() };
    config.detect_dialects().await;
    config.upstream.swap_remove(0).dialect
}

#[tokio::test]
async fn older_gateway_is_found_by_the_session_that_it_begins_and_keeps_its_worker() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (address, _server, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    for _ in 0..3 {
        assert_eq!(found_dialect(address).await, "minicpm-o-legacy");
    }
    let config = Config {
        profile: Some("conversation".into()),
        upstream: vec![upstream_of(legacy, address)],
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.client("model=x").await;
    client.stream_until(&recording("goforward"), |frame| frame.kind() == "tts.speaking_end").await;
    // A queue must not be left, so that nothing is tried while no worker is idle.
    assert_eq!(found_dialect(address).await, "auto");
    assert!(events(&client.close().await, "error").is_empty());
}

/// A gateway of the current dialect that takes any mode.
async fn gateway_that_checks_no_mode() -> SocketAddr {
    serve_each(move |mut stream| async move {
        let mut head = [0; 4096];
        let length = stream.peek(&mut head).await.unwrap();
        if !String::from_utf8_lossy(&head[..length]).to_lowercase().contains("upgrade: websocket") {
            let page = r#"{"gateway_healthy":true,"total_workers":8,"idle_workers":8,"queue_length":0}"#;
            let answer = format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{page}",
                page.len()
            );
            // Unread bytes would reset the connection.
            stream.read_exact(&mut head[..length]).await.unwrap();
            return stream.write_all(answer.as_bytes()).await.unwrap();
        }
        let mut socket = accept_async(stream).await.unwrap();
        socket.send(Message::text(r#"{"type":"session.queue_done"}"#)).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                let closed = r#"{"type":"session.closed","reason":"user_stop"}"#;
                socket.send(Message::text(closed)).await.unwrap();
                return socket.close(None).await.unwrap();
            }
        }
    })
    .await
}

#[tokio::test]
async fn gateway_that_checks_no_mode_has_the_dialect_of_its_page() {
    assert_eq!(found_dialect(gateway_that_checks_no_mode().await).await, "minicpm-o");
}

#[tokio::test]
async fn vllm_omni_is_found_whatever_its_model_is_called() {
    let servers = [PackageServer::vllm_omni(&["--model", "assistant"])];
    for server in servers.into_iter().flatten() {
        assert_eq!(found_dialect(server.address()).await, "vllm-omni");
    }
}

#[tokio::test]
async fn relayed_client_passes_to_its_own_dialect_and_is_translated_to_another() {
    let legacy = SimDialect::Legacy { follows_document: false };
    let (first, mut first_server, _) = start_simulator("127.0.0.1:0", simulator(legacy), None).await;
    let (second, _second, recorder) =
        start_simulator("127.0.0.1:0", simulator(SimDialect::Current), None).await;
    let upstream = vec![upstream_of(legacy, first), upstream_of(SimDialect::Current, second)];
    let config = Config { profile: Some("relay".into()), upstream, ..Config::default() };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.send_json(json!({"type": "session.init", "payload": {"system_prompt": "Speak briefly."}})).await;
    client.wait_for_event("session.created").await;
    let silence = STANDARD.encode([0; 64_000]);
    let append = json!({"type": "input.append", "input": {"audio": silence, "number": 1}});
    client.send_json(append.clone()).await;
    client.wait_for_event("response.output.delta").await;
    assert_eq!(recorder.all().len(), 0, "the first upstream has the session, in its own words");
    first_server.stop();
    client.wait_for_event("session.created").await;
    client.send_json(append).await;
    client.wait_for_event("response.output.delta").await;
    let messages = format!("{:?}", recorder.all());
    assert!(messages.contains("Speak briefly.") && messages.contains("number"), "{messages:.2000}");
    client.send_json(json!({"type": "session.close"})).await;
    client.read_to_end().await;
    let errors = events(&client.received, "error");
    let is_about_number = |error: &Value| error["error"]["message"].as_str().unwrap().contains("`number`");
    assert!(errors.len() == 1 && is_about_number(errors[0]), "{}", client.describe_received());
}

/// Each client asks its question, and is answered.
async fn ask_all(clients: &mut [Client]) {
    let question = recording("goforward");
    join_all(clients.iter_mut().map(|client| client.stream_until(&question, ends_speech))).await;
}

#[tokio::test]
async fn conversations_go_on_although_servers_of_two_kinds_are_lost() {
    const CLIENTS: usize = 6;
    let (mut servers, mut upstream) = (Vec::new(), Vec::new());
    for dialect in [SimDialect::SglangOmni, SimDialect::VllmOmni, SimDialect::Current] {
        let config = SimulatorConfig { workers: 2 * CLIENTS, ..simulator(dialect) };
        let (address, server, recorder) = start_simulator("127.0.0.1:0", config, None).await;
        servers.push((server, recorder));
        upstream.push(upstream_of(dialect, address));
    }
    let voices = [("default".to_owned(), speech_dir().join("goforward_16k.wav"))].into();
    let config = Config { profile: Some("conversation".into()), upstream, voices, ..Config::default() };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(bench.client("model=x&rollover_events=true").await);
    }
    ask_all(&mut clients).await;
    assert!(servers.iter().all(|(_, recorder)| !recorder.all().is_empty()), "each kind has conversations");
    for (lost, _) in &mut servers[..2] {
        lost.stop();
        ask_all(&mut clients).await;
    }
    for client in clients {
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "tts.speaking_end").len() >= 3, "{frames:?}");
        assert!(events(&frames, "error").iter().all(|error| error["recoverable"] == true), "{frames:?}");
    }
}

/// A server that is killed and brought back, with what each of its lives heard.
struct Mortal {
    config: SimulatorConfig,
    address: SocketAddr,
    server: RunningServer,
    lives: Vec<InputRecorder>,
}

impl Mortal {
    async fn start(config: SimulatorConfig) -> Self {
        let (address, server, recorder) = start_simulator(KEPT_PORT, config.clone(), None).await;
        Self { config, address, server, lives: vec![recorder] }
    }

    async fn kill(&mut self) {
        self.server.stop();
        self.server.wait_until_ended().await;
    }

    async fn revive(&mut self) {
        let (_, server, recorder) =
            start_simulator(&self.address.to_string(), self.config.clone(), None).await;
        self.server = server;
        self.lives.push(recorder);
    }

    /// Samples that each session heard, without silence.
    fn heard(&self) -> Vec<Vec<i16>> {
        let mut all = Vec::new();
        for life in &self.lives {
            let mut sessions = BTreeMap::<ConnId, Vec<i16>>::new();
            for (conn, unit) in life.duplex_units() {
                let samples = unit.samples.iter().map(|sample| (sample * 32_768.0) as i16);
                sessions.entry(conn).or_default().extend(samples.filter(|sample| *sample != 0));
            }
            all.extend(sessions.into_values());
        }
        all
    }
}

/// A question whose samples name their client and their round, and are not zero.
fn marked_question(client: usize, round: usize) -> Vec<i16> {
    let mark = (client + 1) | (round << 5);
    let mark = i16::try_from(mark).unwrap();
    recording("goforward").iter().take(16_000).map(|sample| (sample & !0x7f) | mark).collect()
}

fn is_transcript_of_user(frame: &ClientFrame) -> bool {
    matches!(frame, ClientFrame::Event(event) if event["type"] == "transcript.final" && event["speaker"] == "user")
}

/// Messages of a client's errors.
fn client_errors(frames: &[ClientFrame]) -> String {
    events(frames, "error").iter().map(|error| format!("{}\n", error["message"])).collect()
}

/// The part of `said` that a session heard.
#[track_caller]
fn stretch_of(heard: &[i16], said: &[i16]) -> std::ops::Range<usize> {
    let at = said.windows(heard.len()).position(|window| window == heard);
    let at = at.expect("a session heard its client's samples with a gap, twice, or those of another");
    at..at + heard.len()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn thirty_conversations_lose_no_sample_although_each_kind_of_server_is_killed_in_turn() {
    const CLIENTS: usize = 30;
    let dialects = [SimDialect::VllmOmni, SimDialect::SglangOmni, SimDialect::Current];
    let (mut servers, mut upstream) = (Vec::new(), Vec::new());
    for dialect in dialects {
        let server = Mortal::start(SimulatorConfig { workers: CLIENTS, turn_units: 1, ..simulator(dialect) });
        let server = server.await;
        upstream.push(UpstreamConfig {
            serves: Some(vec![LanePurpose::Converse]),
            ..upstream_of(dialect, server.address)
        });
        servers.push(server);
    }
    let listening = SimulatorConfig {
        http_api: Some(HttpApi::OpenaiAudio),
        workers: CLIENTS,
        ..simulator(SimDialect::Current)
    };
    let (address, _listening, transcribed) = start_simulator("127.0.0.1:0", listening, None).await;
    upstream.push(UpstreamConfig {
        serves: Some(vec![LanePurpose::Transcribe]),
        ..http_upstream(HttpApi::OpenaiAudio, address)
    });
    let mappings =
        conversation_profile_with("mixed-thirty", &[("transcribe_user = false", "transcribe_user = true ")]);
    let voices = [("default".to_owned(), speech_dir().join("goforward_16k.wav"))].into();
    let config = Config {
        profile: Some("conversation".into()),
        upstream,
        voices,
        mappings: Some(mappings),
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(bench.client("model=x&rollover_events=true").await);
    }
    for (round, victim) in servers.iter_mut().enumerate() {
        let life = victim.lives[0].clone();
        let talk = join_all(clients.iter_mut().enumerate().map(|(at, client)| {
            let question = marked_question(at, round);
            async move { client.stream_until(&question, ends_speech).await.len() }
        }));
        let kill = async {
            // It hears the questions of this round.
            let is_of_round = |sample: f32| ((sample * 32_768.0) as i16 & 0x7f) >> 5 == round as i16;
            let hears = |unit: &[f32]| unit.iter().any(|sample| *sample != 0.0 && is_of_round(*sample));
            wait_until("the server hears a question", || {
                life.duplex_units().iter().any(|(_, unit)| hears(&unit.samples))
            })
            .await;
            victim.kill().await;
            victim.revive().await;
        };
        tokio::join!(talk, kill);
    }
    let mut gaps = Vec::new();
    for mut client in clients {
        // The model may answer before the other server has transcribed the question.
        while client.received.iter().filter(|frame| is_transcript_of_user(frame)).count() < servers.len() {
            client.next().await;
        }
        let frames = client.close().await;
        assert_pairs_closed(&frames);
        assert!(events(&frames, "error").iter().all(|error| error["recoverable"] == true), "{frames:?}");
        let dropped = events(&frames, "session.frames_dropped");
        assert!(dropped.is_empty(), "{dropped:?}; {}", client_errors(&frames));
        let of_user = frames.iter().filter(|frame| is_transcript_of_user(frame)).count();
        assert_eq!(of_user, servers.len(), "{frames:?}");
        gaps.extend(events(&frames, "session.rollover").iter().map(|it| it["gap_ms"].as_u64().unwrap()));
    }
    assert_eq!(transcribed.asr_audio().len(), servers.len() * CLIENTS);
    assert!(servers.iter().all(|server| server.heard().len() >= CLIENTS / 3), "each kind is used");
    assert!(servers[..2].iter().all(|server| !server.lives[1].duplex_units().is_empty()), "it is used again");
    let heard: Vec<_> = servers.iter().flat_map(Mortal::heard).filter(|heard| !heard.is_empty()).collect();
    let (mut lost, mut repeated, mut repeats) = (0, 0, 0);
    for client in 0..CLIENTS {
        let said: Vec<_> = (0..servers.len()).flat_map(|round| marked_question(client, round)).collect();
        let is_its = |heard: &&Vec<i16>| usize::try_from(heard[0] & 0x1f).unwrap() == client + 1;
        let mut times_heard = vec![0_usize; said.len()];
        let stretches: Vec<_> = heard.iter().filter(is_its).map(|heard| stretch_of(heard, &said)).collect();
        stretches.iter().cloned().for_each(|stretch| times_heard[stretch].iter_mut().for_each(|it| *it += 1));
        lost += times_heard.iter().filter(|times| **times == 0).count();
        repeated += times_heard.iter().filter(|times| **times > 1).count();
        repeats += stretches.len() - 1;
    }
    gaps.sort_unstable();
    println!("{lost} samples lost; {repeated} said again to {repeats} next servers; gaps in ms: {gaps:?}");
    // A server that takes over a conversation hears again what its predecessor did not answer: one question at most.
    assert!(lost == 0 && repeated <= repeats * 16_000, "{lost} lost, {repeated} repeated");
    assert!(repeats >= servers.len() * CLIENTS / 6, "conversations moved: {repeats}");
}

/// Sends a recording at 24 kHz in JSON like a microphone, then silence, until an event of this type comes.
async fn say_in_json(client: &mut Client, samples: &[i16], until: &str) {
    let fast = samples.chunks_exact(2).flat_map(|pair| [pair[0], pair[0], pair[1]]);
    let fast: Vec<u8> = fast.flat_map(i16::to_le_bytes).collect();
    let mut chunks = fast.chunks_exact(4800);
    let mut ticks = interval(Duration::from_millis(100));
    loop {
        tokio::select! {
            frame = client.next() => if frame.kind() == until { return },
            _ = ticks.tick() => {
                let chunk = chunks.next().map_or(vec![0; 4800], <[u8]>::to_vec);
                let audio = STANDARD.encode(chunk);
                client.send_json(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
            }
        }
    }
}

#[tokio::test]
async fn client_that_asks_for_the_users_words_gets_them_from_an_http_server_beside_the_conversation() {
    let (talking, _talking, _) = start_simulator("127.0.0.1:0", simulator(SimDialect::Current), None).await;
    let transcribing = SimulatorConfig { http_api: Some(HttpApi::OpenaiAudio), ..instant_simulator() };
    let (transcribing, _transcribing, recorder) = start_simulator("127.0.0.1:0", transcribing, None).await;
    let talking = UpstreamConfig {
        serves: Some(vec![LanePurpose::Converse]),
        ..upstream_of(SimDialect::Current, talking)
    };
    let transcribing = UpstreamConfig {
        serves: Some(vec![LanePurpose::Transcribe]),
        ..http_upstream(HttpApi::OpenaiAudio, transcribing)
    };
    let config = Config {
        profile: Some("conversation".into()),
        upstream: vec![talking, transcribing],
        ..Config::default()
    };
    let bench = Bench::with_config(simulator(SimDialect::Current), config).await;
    let mut client = bench.dial("/openai/v1/realtime?model=gpt-realtime").await;
    client.wait_for_event("session.created").await;
    let input =
        json!({"format": {"type": "audio/pcm", "rate": 24000}, "transcription": {"model": "whisper-1"}});
    let session = json!({"type": "realtime", "audio": {"input": input}});
    client.send_json(json!({"type": "session.update", "session": session})).await;
    client.wait_for_event("session.updated").await;
    say_in_json(&mut client, &recording("goforward"), "response.done").await;
    let frames = client.received;
    let completed = events(&frames, "conversation.item.input_audio_transcription.completed");
    assert_eq!(completed.len(), 1, "{frames:?}");
    assert_eq!(completed[0]["item_id"], events(&frames, "input_audio_buffer.committed")[0]["item_id"]);
    assert!(completed[0]["transcript"].as_str().unwrap().starts_with("simulated transcript"));
    assert!(events(&frames, "error").is_empty(), "{frames:?}");
    let usage = &events(&frames, "response.done")[0]["response"]["usage"];
    assert!(usage["output_token_details"]["audio_tokens"].as_u64() > Some(10), "{usage}");
    let is_request = |input: &&RecordedInput| matches!(input, RecordedInput::Request(_, path, _) if path == "/v1/audio/transcriptions");
    assert_eq!(recorder.all().iter().filter(is_request).count(), 1);
}
