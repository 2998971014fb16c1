//! Full duplex on the wire, compared with the capture (mappings/notes/minicpm-o.md#exchanges) and the rules of
//! mappings/notes/minicpm-o-duplex.md#units and mappings/notes/llama-cpp-omni.md#events.

use super::*;

/// Loud enough to count as speech.
const SPEECH_LEVEL: f32 = 0.1;

impl TestGateway {
    /// Opens a full-duplex session with this payload.
    pub(super) fn open_duplex_session(&mut self, mode: SimMode, payload: Value) -> ConnId {
        let conn = self.connect_with_mode(mode);
        self.send(conn, &json!({"type": "session.init", "payload": payload}));
        self.advance(Duration::from_millis(40));
        conn
    }

    /// Sends one second at this level and waits for its answer; returns the names of the answer's events.
    pub(super) fn send_second(&mut self, conn: ConnId, level: f32) -> Vec<String> {
        self.send_second_with(conn, level, json!({}))
    }

    pub(super) fn send_second_with(&mut self, conn: ConnId, level: f32, more: Value) -> Vec<String> {
        let before = self.events_of(conn).len();
        let mut input = json!({"audio": base64_f32(&[level; 16_000])});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.send_append(conn, input);
        self.advance(Duration::from_secs(1));
        event_names(&self.events_of(conn)[before..])
    }

    /// Three silent seconds, three of speech, then silence: the next silent second starts the turn.
    pub(super) fn send_user_speech(&mut self, conn: ConnId) {
        for level in [0.0, 0.0, 0.0, SPEECH_LEVEL, SPEECH_LEVEL, SPEECH_LEVEL] {
            assert_eq!(self.send_second(conn, level), ["listen"]);
        }
    }

    pub(super) fn audio_of(&self, conn: ConnId) -> Vec<Vec<f32>> {
        self.events_of(conn).iter().filter(|event| event["kind"] == "audio").map(decode_audio).collect()
    }

    pub(super) fn text_of(&self, conn: ConnId) -> String {
        let events = self.events_of(conn);
        events.iter().filter(|e| e["kind"] == "text").filter_map(|e| e["text"].as_str()).collect()
    }

    pub(super) fn context_tokens(&self, conn: ConnId) -> u64 {
        self.last_event(conn)["metrics"]["kv_cache_length"].as_u64().unwrap()
    }

    /// Openings of this gateway's full-duplex sessions.
    pub(super) fn duplex_openings(&self) -> Vec<DuplexOpening> {
        let opening = |output: &SimOutput| match output {
            SimOutput::DuplexOpened(_, opening) => Some(opening.clone()),
            _ => None,
        };
        self.outputs.iter().filter_map(opening).collect()
    }
}

pub(super) fn decode_audio(event: &Value) -> Vec<f32> {
    let mut samples = Vec::new();
    voxbridge::audio::pcm::decode_base64_f32(event["audio"].as_str().unwrap(), &mut samples).unwrap();
    samples
}

pub(super) fn field_names(event: &Value) -> Vec<&str> {
    event.as_object().unwrap().keys().map(String::as_str).collect()
}

const CAPTURED_EVENTS: &str = r#"[
{"type": "session.created", "session_id": "s", "mode": "full_duplex", "metrics": {"backend": "pytorch", "kv_cache_length": 75}, "server_send_ts": 1795148861.073},
{"type": "response.output.delta", "kind": "listen", "session_id": "s", "metrics": {"backend": "pytorch", "kv_cache_length": 86, "generate_ms": 80, "cost_llm_ms": 80.0, "n_tokens": 0, "n_tts_tokens": 0, "prefill_ms": 0.2, "wall_clock_ms": 80.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.158},
{"type": "response.output.delta", "kind": "text", "session_id": "s", "response_id": "r", "text": "I heard about ", "metrics": {"backend": "pytorch", "kv_cache_length": 170, "generate_ms": 250, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 250.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.849},
{"type": "response.output.delta", "kind": "audio", "session_id": "s", "response_id": "r", "audio": "AAAA", "metrics": {"backend": "pytorch", "kv_cache_length": 170, "generate_ms": 250, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 250.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.850},
{"type": "response.output.delta", "kind": "listen", "session_id": "s", "response_id": "r", "metrics": {"backend": "pytorch", "kv_cache_length": 208, "generate_ms": 253, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 253.9, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148862.420},
{"type": "session.closed", "session_id": "s", "reason": "user_stop", "server_send_ts": 1795148862.582}
]"#;

#[test]
fn conversation_matches_capture() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn =
        sim.open_duplex_session(SimMode::Audio, json!({"system_prompt": "You are a helpful assistant."}));
    sim.send_user_speech(conn);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio", "listen"]);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
    sim.close_session(conn, "user_stop");
    let events = sim.events_of(conn);
    let captured: Vec<Value> = serde_json::from_str(CAPTURED_EVENTS).unwrap();
    for (event, expected) in [(1, 0), (2, 1), (8, 2), (9, 3), (14, 4), (15, 1), (16, 5)] {
        let (event, expected) = (&events[event], &captured[expected]);
        assert_eq!(field_names(event), field_names(expected), "{event}");
        if let Some(metrics) = expected.get("metrics") {
            assert_eq!(field_names(&event["metrics"]), field_names(metrics), "{event}");
            assert_eq!(event["metrics"]["generate_ms"].is_u64(), metrics["generate_ms"].is_u64());
        }
    }
    assert_eq!((&events[1]["mode"], &events[1]["metrics"]), (&json!("full_duplex"), &captured[0]["metrics"]));
    assert_eq!((&events[2]["metrics"]["wall_clock_ms"]), &json!(80.8));
    assert_has(&events[8], json!({"/metrics/cost_llm_ms": 100.0, "/metrics/n_tts_tokens": 25}));
    let ids: Vec<&Value> = events[8..15].iter().map(|event| &event["response_id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    assert_eq!(sim.text_of(conn), "I heard 3.0 seconds of speech.");
    let audio = sim.audio_of(conn);
    assert_eq!(audio.iter().map(Vec::len).collect::<Vec<_>>(), [24_000, 24_000, 14_400]);
    let expected: Vec<f32> = (0..62_400).map(|index| watermark_sample(1, index)).collect();
    assert_eq!(audio.concat(), expected);
    assert_eq!(sim.end_of(conn), normal_close());
}

#[test]
fn queued_appends_are_processed_one_step_at_a_time() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    let started = sim.now - sim.started;
    for level in [SPEECH_LEVEL, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
        sim.send_append(conn, json!({"audio": base64_f32(&[level; 16_000]), "input_id": "burst"}));
    }
    sim.advance(Duration::from_secs(2));
    let steps: Vec<u128> = sim
        .log
        .iter()
        .filter(|(_, at, _)| *at > started)
        .map(|(_, at, _)| (*at - started).as_millis())
        .collect();
    assert_eq!(steps, [80, 160, 240, 490, 490, 740, 740, 990, 990, 990, 1070]);
    assert!(sim.events_of(conn)[2..].iter().all(|event| event["input_id"] == "burst"));
}

#[test]
fn first_units_only_listen() {
    for (backend, config, forced) in [
        (Backend::Pytorch, json!({}), 3),
        (Backend::Pytorch, json!({"force_listen_count": 1}), 3),
        (Backend::Cpp, json!({"force_listen_count": 5}), 5),
    ] {
        let mut sim = TestGateway::with_backend(backend);
        let conn = sim.open_duplex_session(SimMode::Audio, json!({"config": config}));
        sim.send_second(conn, SPEECH_LEVEL);
        let listen_count = (1..10).take_while(|_| sim.send_second(conn, 0.0) == ["listen"]).count();
        assert_eq!(listen_count + 1, forced, "{backend:?} {config}");
    }
}

#[test]
fn force_listen_ends_turn_with_its_response_id() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    sim.send_second(conn, 0.0);
    let turn = sim.last_event(conn)["response_id"].clone();
    let force = json!({"hints": {"force_listen": true}, "input_id": 7});
    assert_eq!(sim.send_second_with(conn, SPEECH_LEVEL, force.clone()), ["listen"]);
    assert_eq!((&sim.last_event(conn)["response_id"], &sim.last_event(conn)["input_id"]), (&turn, &json!(7)));
    assert_eq!(sim.send_second_with(conn, SPEECH_LEVEL, force), ["listen"]);
    assert_eq!(sim.last_event(conn).get("response_id"), None, "the turn was over");
    let chosen = json!({"response_id": "mine"});
    assert_eq!(sim.send_second_with(conn, 0.0, chosen), ["text", "audio"], "speech in the turn is answered");
    assert_eq!(sim.last_event(conn)["response_id"], "mine");
    assert_eq!(decode_audio(&sim.last_event(conn))[0], watermark_sample(2, 0));
}

#[test]
fn cpp_turn_has_cpp_events() {
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    let id = sim.last_event(conn)["session_id"].as_str().unwrap().to_owned();
    assert_eq!(sim.last_event(conn)["response_id"], format!("{id}_resp_6"), "listen events have an id too");
    assert_eq!(sim.last_event(conn)["metrics"].get("n_tokens"), None, "zeros are left out");
    let mut text = String::new();
    for unit in 7..10 {
        let before = sim.events_of(conn).len();
        let answer = sim.send_second_with(conn, 0.0, json!({"input_id": "in"}));
        assert_eq!((answer[0].as_str(), answer.last().unwrap().as_str()), ("text", "response.done"));
        assert!(answer.iter().filter(|name| *name == "text").count() > 1, "{answer:?}");
        assert!(!answer.contains(&"listen".to_owned()));
        for event in &sim.events_of(conn)[before..] {
            assert_eq!(
                (&event["response_id"], event.get("input_id")),
                (&json!(format!("{id}_resp_{unit}")), None)
            );
        }
        let done = sim.last_event(conn);
        assert_eq!((done.get("audio"), &done["reason"]), (Some(&Value::Null), &json!("turn_end")));
        text.push_str(done["text"].as_str().unwrap());
    }
    assert_eq!(
        (text.as_str(), sim.text_of(conn).as_str()),
        ("I heard 3.0 seconds of speech.", text.as_str())
    );
    let audio = sim.audio_of(conn);
    assert!(audio.len() > 6 && audio.iter().all(|part| part.len() != 24_000));
    assert_eq!(audio.concat(), (0..62_400).map(|index| watermark_sample(1, index)).collect::<Vec<_>>());
    assert_eq!(sim.send_second(conn, 0.0), ["listen"], "the turn has ended");
    sim.close_session(conn, "user_stop");
    assert_eq!(sim.last_event(conn)["reason"], "client_closed");
}

#[test]
fn force_listen_ends_cpp_turn() {
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    sim.send_second(conn, 0.0);
    assert_eq!(sim.send_second_with(conn, 0.0, json!({"force_listen": true})), ["listen"]);
    assert!(sim.last_event(conn)["response_id"].as_str().unwrap().ends_with("_resp_8"));
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
}

#[test]
fn watchdog_limit_counts_from_worker_assignment() {
    for (mode, limit) in [(SimMode::Audio, 600), (SimMode::Video, 300)] {
        let mut sim = TestGateway::with_backend(Backend::Pytorch);
        let first = sim.open_chat_session();
        let conn = sim.connect_with_mode(mode);
        sim.advance(Duration::from_secs(50));
        sim.close_session(first, "x");
        sim.advance(Duration::from_millis(limit * 1000 - 1));
        assert_eq!(sim.last_event(conn)["type"], "session.queue_done");
        sim.advance(Duration::from_millis(1));
        assert_eq!(sim.last_event(conn), json!({"type": "session.closed", "reason": "timeout"}));
        assert_eq!(sim.end_of(conn), normal_close());
    }
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let chat = sim.open_chat_session();
    sim.advance(Duration::from_secs(10_000));
    assert_eq!(sim.end_of(chat), None, "chat has no limit");
}

#[test]
fn context_grows_past_limit_without_closing() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Video, json!({}));
    assert_eq!(sim.context_tokens(conn), 75);
    sim.send_second(conn, 0.0);
    assert_eq!(sim.context_tokens(conn), 75 + 13);
    sim.send_second(conn, SPEECH_LEVEL);
    assert_eq!(sim.context_tokens(conn), 75 + 13 + 28);
    let jpeg = PICTURE;
    sim.send_second_with(conn, 0.0, json!({"video_frames": [jpeg, jpeg]}));
    assert_eq!(sim.context_tokens(conn), 75 + 13 + 28 + 13 + 128);
    let metrics = &sim.last_event(conn)["metrics"];
    assert_eq!((&metrics["vision_slices"], &metrics["vision_tokens"]), (&json!(2), &json!(128)));
    let mut sim = TestGateway::with_faults(&["kv=8190"]);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_second(conn, 0.0);
    assert_eq!((sim.context_tokens(conn), sim.end_of(conn)), (8_203, None));
}

#[test]
fn running_step_finishes_before_session_ends() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_append(conn, json!({"audio": speech_base64(16_000)}));
    sim.send_append(conn, json!({"audio": speech_base64(16_000)}));
    sim.send(conn, &json!({"type": "session.close", "reason": "bye"}));
    sim.advance(Duration::from_millis(79));
    assert_eq!(sim.last_event(conn)["type"], "session.created");
    sim.advance(Duration::from_millis(1));
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["listen", "session.closed"], "no unit waits");
    let next = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.last_event(next)["type"], "session.created");
    sim.send_append(next, json!({"audio": speech_base64(16_000)}));
    sim.input(SimInput::Closed(next));
    sim.advance(Duration::from_millis(299));
    let refused = sim.connect_with_mode(SimMode::Audio);
    assert_eq!(sim.last_event(refused)["error"]["code"], "session_failed");
}

/// As newer servers count (their document realtime-api/usage.md): in `session.created`, in the first delta of each unit, and in
/// `session.closed`.
#[test]
fn tokens_are_counted_by_unit_and_by_session() {
    let config = SimulatorConfig { counts_tokens: true, ..SimulatorConfig::default() };
    let mut sim = TestGateway::new(config);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    let created = sim.last_event(conn);
    assert_eq!((&created["type"], &created["usage"]["total_tokens"]), (&json!("session.created"), &json!(0)));
    sim.send_user_speech(conn);
    sim.send_second(conn, 0.0);
    sim.send_second(conn, 0.0);
    sim.close_session(conn, "done");
    let events = sim.events_of(conn);
    let counted: Vec<&Value> = events.iter().filter(|event| event.get("chunk_index").is_some()).collect();
    let indices: Vec<u64> = counted.iter().map(|event| event["chunk_index"].as_u64().unwrap()).collect();
    assert_eq!(indices, (0..8).collect::<Vec<_>>());
    let mut total = 0;
    for event in &counted {
        total += event["chunk_usage"]["total_tokens"].as_u64().unwrap();
        assert_eq!(event["usage"]["total_tokens"], total, "{event}");
    }
    let deltas = events.iter().filter(|event| event["type"] == "response.output.delta").count();
    assert!(deltas > counted.len(), "a unit of an answer has several deltas, of which the first counts");
    let closed = events.last().unwrap();
    assert_has(closed, json!({"/type": "session.closed", "/usage/total_tokens": total}));
    let chat = sim.connect();
    assert!(sim.events_of(chat).iter().all(|event| event.get("usage").is_none()));

    let mut older = TestGateway::with_backend(Backend::Pytorch);
    let conn = older.open_duplex_session(SimMode::Audio, json!({}));
    older.send_second(conn, 0.0);
    let is_counted = |event: &Value| event.get("usage").is_some() || event.get("chunk_index").is_some();
    assert!(!older.events_of(conn).iter().any(is_counted));
}
