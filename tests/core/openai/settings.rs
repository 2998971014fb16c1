//! Settings that are refused because of their type or range, the shapes of the protocol, and the user's silence.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Realtime, speech};

fn error_of(client: &mut Realtime, session: &Value) -> Option<Value> {
    let errors = client.of_type("error").len();
    client.update(session);
    client.of_type("error").get(errors).map(|error| error["error"].clone())
}

#[test]
fn settings_have_a_type_and_a_range_even_without_an_effect() {
    let input = |key: &str, value: Value| json!({"audio": {"input": {key: value}}});
    let output = |key: &str, value: Value| json!({"audio": {"output": {key: value}}});
    let vad = |key: &str, value: Value| input("turn_detection", json!({"type": "server_vad", key: value}));
    let field = |key: &str, value: Value| json!({ key: value });
    type Make<'m> = &'m dyn Fn(&str, Value) -> Value;
    let cases: [(Make<'_>, &str, Vec<Value>, Vec<Value>); 24] = [
        (
            &input,
            "noise_reduction",
            vec![json!({"type": "near_field"}), json!(null), json!({"type": "far_field"})],
            vec![json!("near_field"), json!(7), json!([]), json!({"type": "x"}), json!({"type": 1})],
        ),
        (
            &input,
            "transcription",
            vec![json!({"model": "whisper-1", "language": "en"}), json!(null)],
            vec![json!("whisper-1"), json!({"model": 1}), json!({"language": []}), json!({"prompt": {}})],
        ),
        (
            &input,
            "format",
            vec![json!({"type": "audio/pcm", "rate": 24000})],
            vec![json!({"type": "mp3"}), json!(1)],
        ),
        (
            &input,
            "turn_detection",
            vec![json!(null), json!({"type": "semantic_vad", "eagerness": "low"})],
            vec![
                json!("server_vad"),
                json!({"type": "x"}),
                json!({"type": "semantic_vad", "eagerness": "x"}),
            ],
        ),
        (
            &vad,
            "threshold",
            vec![json!(0), json!(0.7), json!(1)],
            vec![json!(-0.1), json!(1.1), json!("0.5")],
        ),
        (&vad, "prefix_padding_ms", vec![json!(0), json!(300)], vec![json!(-1), json!("300"), json!({})]),
        (&vad, "silence_duration_ms", vec![json!(200), json!(5000)], vec![json!(-1), json!(true)]),
        (
            &vad,
            "idle_timeout_ms",
            vec![json!(5000), json!(30000), json!(null)],
            vec![json!(4999), json!(30001), json!(-1), json!("6000"), json!(6000.5)],
        ),
        (&vad, "create_response", vec![json!(true), json!(false)], vec![json!("true"), json!(1)]),
        (&vad, "interrupt_response", vec![json!(true)], vec![json!(0), json!("no")]),
        (
            &output,
            "speed",
            vec![json!(0.25), json!(1), json!(1.5)],
            vec![json!(9), json!(0), json!("1.0"), json!([])],
        ),
        (
            &output,
            "voice",
            vec![json!("cedar"), json!({"id": "v"})],
            vec![json!(7), json!([]), json!({"name": "v"})],
        ),
        (&output, "format", vec![json!({"type": "audio/pcmu"})], vec![json!({"type": "opus"})]),
        (
            &field,
            "max_output_tokens",
            vec![json!(1), json!(4096), json!("inf"), json!(null)],
            vec![json!("200"), json!(0), json!(-1), json!(4097), json!(1.5), json!(true), json!({})],
        ),
        (
            &field,
            "tracing",
            vec![json!("auto"), json!(null), json!({"workflow_name": "w", "metadata": {"a": 1}})],
            vec![json!("on"), json!(true), json!({"group_id": 7}), json!({"metadata": "x"})],
        ),
        (
            &field,
            "truncation",
            vec![
                json!("auto"),
                json!("disabled"),
                json!({"type": "retention_ratio", "retention_ratio": 0.8}),
            ],
            vec![
                json!("none"),
                json!(1),
                json!({"type": "x"}),
                json!({"type": "retention_ratio", "retention_ratio": 2}),
                json!({"type": "retention_ratio", "token_limits": {"post_instructions": "x"}}),
            ],
        ),
        (
            &field,
            "prompt",
            vec![json!(null), json!({"id": "p", "variables": {"a": "b"}})],
            vec![
                json!("p"),
                json!({"id": 1}),
                json!({"id": "p", "variables": []}),
                json!({"id": "p", "version": 2}),
            ],
        ),
        (
            &field,
            "include",
            vec![json!(null), json!(["item.input_audio_transcription.logprobs"])],
            vec![json!("x"), json!([1]), json!({})],
        ),
        (&field, "reasoning", vec![json!({"effort": "low"})], vec![json!("low"), json!({"effort": 3})]),
        (&field, "parallel_tool_calls", vec![json!(true), json!(null)], vec![json!("yes"), json!(1)]),
        (&field, "tools", vec![json!([]), json!(null)], vec![json!({}), json!("x"), json!([1])]),
        (&field, "tool_choice", vec![json!("auto"), json!("none")], vec![json!("x"), json!(1)]),
        (&field, "temperature", vec![json!(0.8)], vec![json!(3), json!(-1), json!("hot")]),
        (&field, "instructions", vec![json!("Be brief.")], vec![json!(1), json!([])]),
    ];
    for profile in ["assistant", "conversation"] {
        for (make, key, good, bad) in &cases {
            let mut client = Realtime::with_config(crate::harness::HarnessConfig {
                profile,
                ..super::config("model=gpt-realtime")
            });
            for value in good {
                assert_eq!(
                    error_of(&mut client, &make(key, value.clone())),
                    None,
                    "{profile}: {key}: {value}"
                );
            }
            let before = client.wait_for("session.updated")["session"].clone();
            let before =
                client.of_type("session.updated").last().map_or(before, |event| event["session"].clone());
            for value in bad {
                let error = error_of(&mut client, &make(key, value.clone()));
                let error = error.unwrap_or_else(|| panic!("{profile}: {key}: {value} was taken"));
                assert!(error["param"].as_str().unwrap().contains(key), "{key}: {value}: {error}");
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
        assert_eq!(
            (&error["code"], &error["type"]),
            (&json!("unknown_parameter"), &json!("invalid_request_error"))
        );
        assert_eq!(error["param"], format!("session.{key}"));
        assert_eq!(error["message"], format!("Unknown parameter: 'session.{key}'."));
        client.update(&json!({"type": "realtime"}));
        let session = &client.of_type("session.updated").last().unwrap()["session"];
        assert_eq!(
            (&session["type"], &session["instructions"]),
            (&json!("realtime"), &json!("Be brief.")),
            "{key}"
        );
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
    client.send(&json!({"type": "response.create"}));
    client.wait_for("response.done");
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
