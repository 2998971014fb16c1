//! Every event field by field against the captures (field notes §1.2, §1.3, §6.2, §6.3).

use super::*;

const SENTENCE: &str = "I have a wrap up that I want to offer you now, a conclusion bye.";

/// The fields of an event in the order in which they were written.
fn fields(lab: &Lab, name: &str, kind: Option<&str>) -> Vec<String> {
    let written = lab.raw.iter().find_map(|output| match output {
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
fn asr_as_captured() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.ask(conn, asr(36_960));
    lab.close(conn, "turn_done");
    let events = lab.events(conn);
    assert_eq!(
        names(&events),
        ["session.queue_done", "session.created", "text", "text", "text", "response.done", "session.closed"]
    );
    assert_eq!(events[0], json!({"type": "session.queue_done"}));
    let id = events[1]["session_id"].as_str().unwrap();
    assert!(
        id.len() == 17 && id.starts_with("sess_") && id[5..].chars().all(|c| c.is_ascii_hexdigit()),
        "{id}"
    );
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
    assert_eq!(lab.ended(conn), polite());
    let next = lab.session();
    assert_eq!(lab.last(next)["metrics"]["kv_cache_length"], kv, "the next session sees the old cache");
}

#[test]
fn the_order_of_the_fields_is_the_captured_one() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.ask(conn, tts(SENTENCE, true));
    lab.close(conn, "x");
    let delta = ["type", "kind", "session_id", "response_id"];
    assert_eq!(
        fields(&lab, "session.created", None),
        ["type", "session_id", "mode", "metrics", "server_send_ts"]
    );
    for kind in ["text", "audio"] {
        let expected = [&delta[..], &[kind, "server_send_ts"]].concat();
        assert_eq!(fields(&lab, "response.output.delta", Some(kind)), expected);
    }
    let done = ["type", "session_id", "response_id", "text", "reason", "metrics", "server_send_ts"];
    assert_eq!(fields(&lab, "response.done", None), done);
    assert_eq!(fields(&lab, "session.closed", None), ["type", "session_id", "reason", "server_send_ts"]);
}

fn samples(event: &Value) -> Vec<f32> {
    let mut samples = Vec::new();
    crate::audio::pcm::pull_base64_f32(event["audio"].as_str().unwrap(), &mut samples).unwrap();
    samples
}

#[test]
fn streamed_speech_as_captured() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.ask(conn, tts(SENTENCE, true));
    let events = lab.events(conn);
    let expected =
        ["text", "audio", "text", "audio", "text", "audio", "text", "audio", "audio", "response.done"];
    assert_eq!(names(&events)[2..], expected);
    let audio: Vec<_> = events.iter().filter(|event| event["kind"] == "audio").map(samples).collect();
    let (last, full) = audio.split_last().unwrap();
    assert!(full.iter().all(|unit| unit.len() == 24_000) && last.len() < 24_000);
    assert!(full[0][..2_880].iter().all(|sample| *sample == 0.0));
    let text: String = events
        .iter()
        .filter_map(|event| event["text"].as_str().filter(|_| event["kind"] == "text"))
        .collect();
    assert_eq!(text, SENTENCE);
    let done = lab.last(conn);
    assert_eq!((done["text"].as_str(), done.get("audio")), (Some(SENTENCE), None));
}

#[test]
fn speech_at_once_as_captured() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.ask(conn, tts("At 10:30 (UTC).", false));
    assert_eq!(names(&lab.events(conn))[2..], ["response.done"]);
    let done = lab.last(conn);
    assert_eq!(done["text"], "At 10:30 (UTC).", "only streaming bans characters");
    assert!(samples(&done).len() > 24_000);
    lab.ask(conn, json!({"messages": [{"role": "user", "content": "Reply with: test"}], "streaming": false}));
    let done = lab.last(conn);
    assert_eq!(
        (done["text"].as_str(), done.get("audio")),
        (Some("simulated answer to: Reply with: test"), None)
    );
}

#[test]
fn streamed_speech_cannot_say_banned_characters() {
    for (backend, expected) in [(Backend::Pytorch, "At 1030 UTC."), (Backend::Cpp, "At 10:30 (UTC).")] {
        let mut lab = Lab::on(backend);
        let conn = lab.session();
        lab.ask(conn, tts("At 10:30 (UTC).", true));
        assert_eq!(lab.last(conn)["text"], expected);
    }
}

#[test]
fn ids_are_echoed_by_pytorch_and_not_by_cpp() {
    let request =
        json!({"messages": [{"role": "user", "content": "Hi"}], "input_id": "in_1", "response_id": "mine"});
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.ask(conn, request.clone());
    for event in &lab.events(conn)[2..] {
        assert_eq!((&event["input_id"], &event["response_id"]), (&json!("in_1"), &json!("mine")));
    }
    let mut lab = Lab::on(Backend::Cpp);
    let conn = lab.session();
    lab.ask(conn, request);
    let id = lab.last(conn)["session_id"].as_str().unwrap().to_owned();
    assert_eq!(lab.last(conn)["response_id"], format!("{id}_resp_1"));
    assert_eq!(lab.last(conn).get("input_id"), None);
}

#[test]
fn cpp_events_have_their_own_shape() {
    let mut lab = Lab::on(Backend::Cpp);
    let conn = lab.session();
    assert_eq!(lab.last(conn)["metrics"], json!({"backend": "llama.cpp-omni"}), "zero values are left out");
    lab.ask(conn, asr(16_000));
    let done = lab.last(conn);
    assert_eq!(done.get("audio"), Some(&Value::Null));
    assert_eq!(done["text"], "simulated transcript: 1.00 s of speech");
    assert_eq!(lab.events(conn)[2]["metrics"]["backend"], "llama.cpp-omni", "its deltas carry metrics");
    let first = done["metrics"]["kv_cache_length"].as_u64().unwrap();
    lab.ask(conn, asr(16_000));
    assert_eq!(lab.last(conn)["metrics"]["kv_cache_length"], first * 2, "the cache is kept between appends");
    lab.close(conn, "turn_done");
    assert_eq!(lab.last(conn)["reason"], "client_closed", "the client's reason is lost");
}

#[test]
fn cpp_takes_the_voice_from_the_init_and_pytorch_from_the_request() {
    let said = |backend, init: Value, request: Value| {
        let mut lab = Lab::on(backend);
        let conn = lab.connect();
        lab.send(conn, &json!({"type": "session.init", "payload": init}));
        let mut input = tts("Hello there.", false);
        input["tts"] = request;
        lab.ask(conn, input);
        samples(&lab.last(conn))
    };
    let voice = json!({"voice": {"ref_audio_base64": speech(160)}});
    let reference = json!({"enabled": true, "ref_audio_data": speech(160)});
    let plain = json!({"enabled": true});
    let neutral = said(Backend::Pytorch, json!({}), plain.clone());
    assert_eq!(neutral, said(Backend::Pytorch, voice.clone(), plain.clone()));
    assert_ne!(neutral, said(Backend::Pytorch, json!({}), reference.clone()));
    assert_eq!(neutral, said(Backend::Cpp, json!({}), reference));
    assert_ne!(neutral, said(Backend::Cpp, voice, plain));
}

#[test]
fn long_answers_are_cut_at_max_new_tokens() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    let mut input = tts(&"word ".repeat(400), true);
    input["generation"] = json!({});
    lab.ask(conn, input);
    assert_eq!(lab.last(conn)["text"].as_str().unwrap().len(), 256 * 4);
}

#[test]
fn the_template_alone_makes_only_cpp_speak() {
    for (backend, speaks) in [(Backend::Pytorch, false), (Backend::Cpp, true)] {
        let mut lab = Lab::on(backend);
        let conn = lab.session();
        lab.ask(conn, json!({"messages": [{"role": "user", "content": "Hi"}], "use_tts_template": true}));
        assert_eq!(names(&lab.events(conn)).contains(&"audio".to_owned()), speaks);
    }
}

#[test]
fn the_same_inputs_give_the_same_bytes() {
    let run = |seed| {
        let mut lab = Lab::new(SimulatorConfig { seed, ..SimulatorConfig::default() });
        let conn = lab.session();
        lab.ask(conn, tts(SENTENCE, true));
        lab.close(conn, "x");
        lab.raw
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7), run(8), "the seed makes the ids");
}
