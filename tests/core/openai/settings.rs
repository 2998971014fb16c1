//! Settings that are refused because of their type or range, the shapes of the protocol, and the user's silence.

use super::*;

fn error_of(client: &mut Realtime, session: &Value) -> Option<Value> {
    let errors = client.of_type("error").len();
    client.update(session);
    client.of_type("error").get(errors).map(|error| error["error"].clone())
}

/// A setting, values that it takes, and values that it does not take.
const SETTINGS: &str = r#"
audio.input.noise_reduction | {"type": "near_field"}, null, {"type": "far_field"} | "near_field", 7, [], {"type": "x"}, {"type": 1}
audio.input.transcription | {"model": "whisper-1", "language": "en"}, null | "whisper-1", {"model": 1}, {"language": []}, {"prompt": {}}
audio.input.format | {"type": "audio/pcm", "rate": 24000} | {"type": "mp3"}, 1
audio.input.turn_detection | null, {"type": "semantic_vad", "eagerness": "low"} | "server_vad", {"type": "x"}, {"type": "semantic_vad", "eagerness": "x"}
audio.input.turn_detection.threshold | 0, 0.7, 1 | -0.1, 1.1, "0.5"
audio.input.turn_detection.prefix_padding_ms | 0, 300 | -1, "300", {}
audio.input.turn_detection.silence_duration_ms | 200, 5000 | -1, true
audio.input.turn_detection.idle_timeout_ms | 5000, 30000, null | 4999, 30001, -1, "6000", 6000.5
audio.input.turn_detection.create_response | true, false | "true", 1
audio.input.turn_detection.interrupt_response | true | 0, "no"
audio.output.speed | 0.25, 1, 1.5 | 9, 0, "1.0", []
audio.output.voice | "cedar", {"id": "v"} | 7, [], {"name": "v"}
audio.output.format | {"type": "audio/pcmu"} | {"type": "opus"}
max_output_tokens | 1, 4096, "inf", null | "200", 0, -1, 4097, 1.5, true, {}
tracing | "auto", null, {"workflow_name": "w", "metadata": {"a": 1}} | "on", true, {"group_id": 7}, {"metadata": "x"}
truncation | "auto", "disabled", {"type": "retention_ratio", "retention_ratio": 0.8} | "none", 1, {"type": "x"}, {"type": "retention_ratio", "retention_ratio": 2}, {"type": "retention_ratio", "token_limits": {"post_instructions": "x"}}
prompt | null, {"id": "p", "variables": {"a": "b"}} | "p", {"id": 1}, {"id": "p", "variables": []}, {"id": "p", "version": 2}
include | null, ["item.input_audio_transcription.logprobs"] | "x", [1], {}
reasoning | {"effort": "low"} | "low", {"effort": 3}
parallel_tool_calls | true, null | "yes", 1
tools | [], null | {}, "x", [1]
tool_choice | "auto", "none" | "x", 1
temperature | 0.8 | 3, -1, "hot"
instructions | "Be brief." | 1, []
"#;

#[test]
fn settings_have_a_type_and_a_range_even_without_an_effect() {
    let list = |cell: &str| serde_json::from_str::<Vec<Value>>(&format!("[{cell}]")).unwrap();
    let session = |place: &str, value: &Value| {
        let mut session = json!({});
        if place.starts_with("audio.input.turn_detection.") {
            session["audio"]["input"]["turn_detection"]["type"] = "server_vad".into();
        }
        *place.split('.').fold(&mut session, |at, key| &mut at[key]) = value.clone();
        session
    };
    for profile in ["assistant", "conversation"] {
        for [key, good, bad] in rows(SETTINGS) {
            let mut client = Realtime::with_config(HarnessConfig { profile, ..config("model=gpt-realtime") });
            for value in list(good) {
                let error = error_of(&mut client, &session(key, &value));
                assert_eq!(error, None, "{profile}: {key}: {value}");
            }
            let before = client.wait_for("session.updated")["session"].clone();
            let before =
                client.of_type("session.updated").last().map_or(before, |event| event["session"].clone());
            for value in list(bad) {
                let error = error_of(&mut client, &session(key, &value));
                let error = error.unwrap_or_else(|| panic!("{profile}: {key}: {value} was taken"));
                let name = key.rsplit('.').next().unwrap();
                assert!(error["param"].as_str().unwrap().contains(name), "{key}: {value}: {error}");
            }
            client.update(&json!({"type": "realtime"}));
            let after = &client.of_type("session.updated").last().unwrap()["session"];
            assert_eq!(*after, before, "{key}: an update that is refused changes nothing");
        }
    }
}

#[test]
fn field_of_the_beta_shape_is_unknown_in_a_session_of_the_present_one() {
    for (key, value) in [
        ("modalities", json!(["text"])),
        ("voice", json!("alloy")),
        ("input_audio_format", json!("pcm16")),
        ("output_audio_format", json!("pcm16")),
        ("input_audio_transcription", json!({"model": "whisper-1"})),
        ("input_audio_noise_reduction", json!(null)),
        ("turn_detection", json!(null)),
        ("max_response_output_tokens", json!(7)),
    ] {
        let mut client = Realtime::connect("model=gpt-realtime");
        client.update(&json!({"type": "realtime", "instructions": "Be brief."}));
        let error =
            error_of(&mut client, &json!({"type": "realtime", "instructions": "No.", key: value})).unwrap();
        assert_has(&error, json!({"/code": "unknown_parameter", "/type": "invalid_request_error"}));
        assert_eq!(error["param"], format!("session.{key}"));
        assert_eq!(error["message"], format!("Unknown parameter: 'session.{key}'."));
        client.update(&json!({"type": "realtime"}));
        let session = &client.of_type("session.updated").last().unwrap()["session"];
        assert_has(session, json!({"/type": "realtime", "/instructions": "Be brief."}));
        assert!(session["modalities"].is_null() && session["output_modalities"].is_array(), "{session}");
        // Clients of the beta shape have no type.
        let mut client = Realtime::connect("model=gpt-realtime");
        assert_eq!(error_of(&mut client, &json!({"modalities": ["text"], key: value})), None, "{key}");
        let session = &client.of_type("session.updated")[0]["session"];
        assert_eq!(session["modalities"], json!(["text"]), "{session}");
    }
}

#[test]
fn refused_update_keeps_the_shape() {
    let mut client = Realtime::connect("model=gpt-realtime");
    assert!(error_of(&mut client, &json!({"modalities": ["smell"]})).is_some());
    client.update(&json!({"type": "realtime"}));
    assert_eq!(client.of_type("session.updated")[0]["session"]["type"], "realtime");
}

fn with_idle_timeout(ms: u64) -> Realtime {
    let mut client = Realtime::connect("model=gpt-realtime");
    let detection = json!({"type": "server_vad", "idle_timeout_ms": ms});
    client.update(&json!({"type": "realtime", "audio": {"input": {"turn_detection": detection}}}));
    let session = &client.of_type("session.updated")[0]["session"];
    assert_eq!(session["audio"]["input"]["turn_detection"]["idle_timeout_ms"], ms);
    client
}

#[test]
fn silence_after_an_answer_is_answered_after_the_idle_timeout() {
    let mut client = with_idle_timeout(6000);
    client.say_silence(20_000);
    assert!(client.of_type("response.created").is_empty(), "before the first answer");
    client.say(&speech());
    client.say_silence(1000);
    while client.of_type("response.done").is_empty() {
        client.say_silence(100);
    }
    let ended = client.events.last().unwrap().0;
    client.say_silence(5500);
    assert!(client.of_type("input_audio_buffer.timeout_triggered").is_empty());
    client.say_silence(1000);
    let triggered = client.of_type("input_audio_buffer.timeout_triggered")[0].clone();
    let at = client.events.iter().find(|(_, event)| *event == triggered).unwrap().0;
    assert!(at >= ended + Duration::from_secs(5) && at <= ended + Duration::from_secs(7), "{ended:?} {at:?}");
    let length = triggered["audio_end_ms"].as_u64().unwrap() - triggered["audio_start_ms"].as_u64().unwrap();
    assert!((5800..=6200).contains(&length), "{triggered}");
    let committed = client.of_type("input_audio_buffer.committed").last().copied().unwrap().clone();
    assert_eq!(committed["item_id"], triggered["item_id"]);
    let types = client.types();
    let from = types.iter().position(|kind| *kind == "input_audio_buffer.timeout_triggered").unwrap();
    assert_eq!(
        types[from..from + 5],
        [
            "input_audio_buffer.timeout_triggered",
            "input_audio_buffer.committed",
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
        ]
    );
    client.wait_for("response.done");
    client.wait_for("response.done");
    client.check();
}

#[test]
fn speech_and_missing_audio_are_no_silence() {
    let mut client = with_idle_timeout(5000);
    client.respond();
    // The client sends no audio.
    client.pass(Duration::from_secs(20));
    assert!(client.of_type("input_audio_buffer.timeout_triggered").is_empty());
    for _ in 0..3 {
        client.say_silence(3000);
        client.say(&speech());
    }
    assert!(client.of_type("input_audio_buffer.timeout_triggered").is_empty(), "{:?}", client.types());
    let off = json!({"turn_detection": {"type": "server_vad", "idle_timeout_ms": null}});
    client.update(&json!({"type": "realtime", "audio": {"input": off}}));
    client.say_silence(30_000);
    assert!(client.of_type("input_audio_buffer.timeout_triggered").is_empty());
}
