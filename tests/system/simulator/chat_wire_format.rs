//! Every event, field by field, compared with the captures (mappings/notes/minicpm-o.md#events,
//! mappings/notes/minicpm-o.md#exchanges).

use super::*;

const SENTENCE: &str = "I have a wrap up that I want to offer you now, a conclusion bye.";

/// The fields of an event in wire order.
fn delta_fields(sim: &TestGateway, name: &str, kind: Option<&str>) -> Vec<String> {
    let written = sim.outputs.iter().find_map(|output| match output {
        SimOutput::Text(_, text) => {
            let event: Value = serde_json::from_str(text).unwrap();
            (event["type"] == name && event["kind"].as_str() == kind).then(|| (text.clone(), event))
        }
        _ => None,
    });
    let (text, event) = written.unwrap();
    let mut keys: Vec<String> = event.as_object().unwrap().keys().cloned().collect();
    keys.sort_by_key(|key| text.find(&format!("\"{key}\":")));
    keys
}

#[test]
fn asr_exchange_matches_capture() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, asr_request(36_960));
    sim.close_session(conn, "turn_done");
    let events = sim.events_of(conn);
    assert_eq!(
        event_names(&events),
        ["session.queue_done", "session.created", "text", "text", "text", "response.done", "session.closed"]
    );
    assert_eq!(events[0], json!({"type": "session.queue_done"}));
    let id = events[1]["session_id"].as_str().unwrap();
    assert!(id.len() == 17 && id.starts_with("sess_") && id[5..].chars().all(|c| c.is_ascii_hexdigit()));
    assert_eq!(
        events[1],
        json!({"type": "session.created", "session_id": id, "mode": "turn_based",
            "metrics": {"backend": "pytorch", "kv_cache_length": 0}, "server_send_ts": 1_795_148_864.04})
    );
    let answer = events[2]["response_id"].as_str().unwrap();
    assert!(answer.len() == 17 && answer.starts_with("resp_"));
    assert_eq!(
        events[2],
        json!({"type": "response.output.delta", "kind": "text", "session_id": id, "response_id": answer,
            "text": "simulated", "server_send_ts": 1_795_148_864.21})
    );
    let kv = events[5]["metrics"]["kv_cache_length"].as_u64().unwrap();
    assert!(kv > 20, "{kv}");
    assert_eq!(events[5]["text"], "simulated transcript: 2.31 s of speech");
    assert_eq!(events[6]["reason"], "turn_done");
    assert_eq!(sim.end_of(conn), normal_close());
    let next = sim.open_chat_session();
    assert_eq!(sim.last_event(next)["metrics"]["kv_cache_length"], kv, "the next session sees the old cache");
}

#[test]
fn field_order_matches_capture() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, tts_request(SENTENCE, true));
    sim.close_session(conn, "x");
    let delta = ["type", "kind", "session_id", "response_id"];
    assert_eq!(
        delta_fields(&sim, "session.created", None),
        ["type", "session_id", "mode", "metrics", "server_send_ts"]
    );
    for kind in ["text", "audio"] {
        let expected = [&delta[..], &[kind, "server_send_ts"]].concat();
        assert_eq!(delta_fields(&sim, "response.output.delta", Some(kind)), expected);
    }
    let done = ["type", "session_id", "response_id", "text", "reason", "metrics", "server_send_ts"];
    assert_eq!(delta_fields(&sim, "response.done", None), done);
    assert_eq!(
        delta_fields(&sim, "session.closed", None),
        ["type", "session_id", "reason", "server_send_ts"]
    );
}

#[test]
fn streamed_speech_matches_capture() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, tts_request(SENTENCE, true));
    let events = sim.events_of(conn);
    let expected =
        ["text", "audio", "text", "audio", "text", "audio", "text", "audio", "audio", "response.done"];
    assert_eq!(event_names(&events)[2..], expected);
    let audio: Vec<_> = events.iter().filter(|event| event["kind"] == "audio").map(decode_audio).collect();
    let (last, full) = audio.split_last().unwrap();
    assert!(full.iter().all(|unit| unit.len() == 24_000) && last.len() < 24_000);
    assert!(full[0][..2_880].iter().all(|sample| *sample == 0.0));
    let text: String = events
        .iter()
        .filter_map(|event| event["text"].as_str().filter(|_| event["kind"] == "text"))
        .collect();
    assert_eq!(text, SENTENCE);
    let done = sim.last_event(conn);
    assert_eq!((done["text"].as_str(), done.get("audio")), (Some(SENTENCE), None));
}

#[test]
fn unstreamed_speech_matches_capture() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, tts_request("At 10:30 (UTC).", false));
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["response.done"]);
    let done = sim.last_event(conn);
    assert_eq!(done["text"], "At 10:30 (UTC).", "only streaming bans characters");
    assert!(decode_audio(&done).len() > 24_000);
    sim.append_and_wait(
        conn,
        json!({"messages": [{"role": "user", "content": "Reply with: test"}], "streaming": false}),
    );
    let done = sim.last_event(conn);
    assert_eq!(
        (done["text"].as_str(), done.get("audio")),
        (Some("simulated answer to: Reply with: test"), None)
    );
}

#[test]
fn streamed_speech_omits_banned_characters() {
    for (backend, expected) in [(Backend::Pytorch, "At 1030 UTC."), (Backend::Cpp, "At 10:30 (UTC).")] {
        let mut sim = TestGateway::with_backend(backend);
        let conn = sim.open_chat_session();
        sim.append_and_wait(conn, tts_request("At 10:30 (UTC).", true));
        assert_eq!(sim.last_event(conn)["text"], expected);
    }
}

#[test]
fn ids_are_echoed_by_pytorch_but_not_by_cpp() {
    let request =
        json!({"messages": [{"role": "user", "content": "Hi"}], "input_id": "in_1", "response_id": "mine"});
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, request.clone());
    for event in &sim.events_of(conn)[2..] {
        assert_eq!((&event["input_id"], &event["response_id"]), (&json!("in_1"), &json!("mine")));
    }
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, request);
    let id = sim.last_event(conn)["session_id"].as_str().unwrap().to_owned();
    assert_eq!(sim.last_event(conn)["response_id"], format!("{id}_resp_1"));
    assert_eq!(sim.last_event(conn).get("input_id"), None);
}

#[test]
fn cpp_events_have_cpp_fields() {
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_chat_session();
    assert_eq!(sim.last_event(conn)["metrics"], json!({"backend": "llama.cpp-omni"}), "without zeros");
    sim.append_and_wait(conn, asr_request(16_000));
    let done = sim.last_event(conn);
    assert_eq!(done.get("audio"), Some(&Value::Null));
    assert_eq!(done["text"], "simulated transcript: 1.00 s of speech");
    assert_eq!(sim.events_of(conn)[2]["metrics"]["backend"], "llama.cpp-omni", "its deltas carry metrics");
    let first = done["metrics"]["kv_cache_length"].as_u64().unwrap();
    sim.append_and_wait(conn, asr_request(16_000));
    assert_eq!(sim.last_event(conn)["metrics"]["kv_cache_length"], first * 2, "it is kept");
    sim.close_session(conn, "turn_done");
    assert_eq!(sim.last_event(conn)["reason"], "client_closed", "the client's reason is lost");
}

#[test]
fn cpp_takes_voice_from_init_and_pytorch_from_request() {
    let voice_used = |backend, init: Value, request: Value| {
        let mut sim = TestGateway::with_backend(backend);
        let conn = sim.connect();
        sim.send(conn, &json!({"type": "session.init", "payload": init}));
        let mut input = tts_request("Hello there.", false);
        input["tts"] = request;
        sim.append_and_wait(conn, input);
        decode_audio(&sim.last_event(conn))
    };
    let voice = json!({"voice": {"ref_audio_base64": speech_base64(160)}});
    let reference = json!({"enabled": true, "ref_audio_data": speech_base64(160)});
    let plain = json!({"enabled": true});
    let neutral = voice_used(Backend::Pytorch, json!({}), plain.clone());
    assert_eq!(neutral, voice_used(Backend::Pytorch, voice.clone(), plain.clone()));
    assert_ne!(neutral, voice_used(Backend::Pytorch, json!({}), reference.clone()));
    assert_eq!(neutral, voice_used(Backend::Cpp, json!({}), reference));
    assert_ne!(neutral, voice_used(Backend::Cpp, voice, plain));
}

#[test]
fn long_answer_is_cut_at_max_new_tokens() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    let mut input = tts_request(&"word ".repeat(400), true);
    input["generation"] = json!({});
    sim.append_and_wait(conn, input);
    assert_eq!(sim.last_event(conn)["text"].as_str().unwrap().len(), 256 * 4);
}

#[test]
fn tts_template_alone_makes_only_cpp_speak() {
    for (backend, speaks) in [(Backend::Pytorch, false), (Backend::Cpp, true)] {
        let mut sim = TestGateway::with_backend(backend);
        let conn = sim.open_chat_session();
        sim.append_and_wait(
            conn,
            json!({"messages": [{"role": "user", "content": "Hi"}], "use_tts_template": true}),
        );
        assert_eq!(event_names(&sim.events_of(conn)).contains(&"audio".to_owned()), speaks);
    }
}

#[test]
fn same_seed_gives_same_bytes() {
    let run = |seed| {
        let mut sim = TestGateway::new(SimulatorConfig { seed, ..SimulatorConfig::default() });
        let conn = sim.open_chat_session();
        sim.append_and_wait(conn, tts_request(SENTENCE, true));
        sim.close_session(conn, "x");
        sim.outputs
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8), "the seed makes the ids");
}
