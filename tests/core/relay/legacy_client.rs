//! A legacy client on a current upstream, and how its messages are translated.

use proptest::prelude::*;

use super::{
    harness::{Harness, HarnessConfig, zeros},
    *,
};

fn connect_legacy(config: HarnessConfig) -> Harness {
    Harness::new_relay(config, &["minicpm-o-legacy"])
}

fn session_update() -> Value {
    json!({"type": "session.update", "session": {"instructions": "You are a helpful English assistant."}})
}

fn open_session(config: HarnessConfig) -> Harness {
    opened_with(connect_legacy(config), &session_update())
}

/// Short form of the events: the text, whether there is audio, and the end of a turn.
fn describe_events(harness: &Harness, from: usize) -> Vec<String> {
    let short = |event: &Value| match event["type"].as_str().unwrap() {
        "response.output_audio.delta" => {
            let audio = if event["audio"].is_null() { "-" } else { "audio" };
            let end = if event["end_of_turn"] == true { " end" } else { "" };
            format!("{}/{audio}{end}", event["text"].as_str().unwrap())
        }
        other => other.to_owned(),
    };
    let events = harness.texts[from..].iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
    events.map(|event| short(&event)).collect()
}

#[test]
fn every_append_yields_one_event() {
    let mut harness = open_session(config("mode=audio", &[]));
    let created = harness.events("session.created")[0].clone();
    assert_eq!(created["prompt_length"], 94, "36 characters of the client and 58 of the server");
    assert!(created["session_id"].as_str().unwrap().starts_with("sess_"));
    let mut appended = 0;
    for second in question_seconds(6) {
        harness.send_json(&legacy_append_message(&second));
        appended += 1;
        harness.advance(ms(1000));
        assert_eq!(harness.texts.len(), 2 + appended, "{:?}", describe_events(&harness, 2));
    }
    let events = describe_events(&harness, 2);
    let ends: Vec<_> = events.iter().filter(|event| event.ends_with("end")).collect();
    assert_eq!(ends.len(), 1, "{events:?}");
    let units = harness.units.iter().map(|(_, unit)| unit.samples.len()).collect::<Vec<_>>();
    assert_eq!(units, vec![16_000; appended]);
    harness.send_json(&json!({"type": "session.close", "reason": "user_stop"}));
    harness.advance(ms(1000));
    assert_eq!(harness.events("session.closed")[0], &json!({"type": "session.closed", "reason": "stopped"}));
    assert_eq!(harness.names().last().unwrap(), "close 1000");
    assert!(sent_texts(&harness).last().unwrap().contains(r#""reason":"user_stop""#) && harness.finished);
    for listen in harness.events("response.listen") {
        assert!(listen["kv_cache_length"].as_u64().unwrap() > 0);
    }
}

#[test]
fn turn_is_complete_and_unrepeated_on_both_backends() {
    for config in [
        config("mode=audio", &[]),
        cpp_config("mode=audio", &[]),
        cpp_config("mode=audio", &["double-terminal"]),
    ] {
        let mut harness = open_session(config);
        for second in question_seconds(8) {
            harness.send_json(&legacy_append_message(&second));
            harness.advance(ms(1000));
        }
        let client_output = text_and_audio(harness.texts.iter().map(String::as_str));
        assert_eq!(client_output, text_and_audio(received_texts(&harness).into_iter()));
        assert!(!client_output.0.is_empty() && !client_output.1.is_empty());
        let events = describe_events(&harness, 2);
        assert_eq!(events.iter().filter(|event| event.ends_with("end")).count(), 1, "{events:?}");
        let end = events.iter().position(|event| event.ends_with("end")).unwrap();
        assert_eq!(events[end + 1], "response.listen");
    }
}

#[test]
fn forced_listen_ends_turn_with_listen_event() {
    let mut harness = open_session(config("mode=audio", &[]));
    for second in question_seconds(2) {
        harness.send_json(&legacy_append_message(&second));
        harness.advance(ms(1000));
    }
    assert!(
        describe_events(&harness, 2).last().unwrap().ends_with("/audio"),
        "{:?}",
        describe_events(&harness, 2)
    );
    let mut forced = legacy_append_message(&zeros(1000));
    forced["force_listen"] = json!(true);
    harness.send_json(&forced);
    harness.advance(ms(1000));
    let events = describe_events(&harness, 2);
    assert_eq!(events.last().unwrap(), "response.listen");
    assert!(
        harness.units.last().unwrap().1.force_listen && !events.iter().any(|event| event.ends_with("end")),
        "{events:?}"
    );
}

#[test]
fn session_update_is_translated_to_session_init() {
    let samples: Vec<i16> = (0..1600).map(|at| at * 7 - 5000).collect();
    let raw = base64_of(&samples);
    let mut wav = std::io::Cursor::new(Vec::new());
    let spec = hound::WavSpec {
        channels: 1,
        sample_rate: 16_000,
        bits_per_sample: 16,
        sample_format: hound::SampleFormat::Int,
    };
    let mut writer = hound::WavWriter::new(&mut wav, spec).unwrap();
    samples.iter().for_each(|sample| writer.write_sample(*sample).unwrap());
    writer.finalize().unwrap();
    let wav = base64::Engine::encode(&STANDARD, wav.into_inner());
    for voice in [&raw, &wav] {
        let mut harness = connect_legacy(config("mode=video", &[]));
        let update = json!({"type": "session.update", "session": {
            "instructions": "p", "ref_audio": voice, "tts_ref_audio": raw, "max_slice_nums": 4,
            "voice_config": {"length_penalty": 1.10}
        }});
        harness.send_text(&update.to_string().replace("1.1}", "1.10}"));
        let mut seeing = legacy_append_message(&zeros(1000));
        harness.advance(ms(100));
        seeing["video_frames"] = json!([PICTURE]);
        seeing["force_listen"] = json!(false);
        harness.send_json(&seeing);
        harness.advance(ms(1000));
        let sent: Vec<Value> =
            sent_texts(&harness).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let payload = json!({
            "system_prompt": "p", "config": {"length_penalty": 1.10},
            "voice": {"ref_audio_base64": raw, "tts_ref_audio_base64": raw}
        });
        assert_eq!(sent[0], json!({"type": "session.init", "payload": payload}));
        let input = json!({
            "audio": base64_of(&zeros(1000)), "video_frames": [PICTURE], "force_listen": false,
            "max_slice_nums": 4, "input_id": "a1"
        });
        assert_eq!(sent[1], json!({"type": "input.append", "input": input}));
        assert!(sent_texts(&harness)[0].contains("1.10"), "the number keeps its spelling");
    }
}

#[test]
fn client_errors_use_documented_codes_and_keep_session_open() {
    let mut early = connect_legacy(config("mode=audio", &[]));
    early.send_json(&legacy_append_message(&zeros(1000)));
    assert_eq!(early.events("error")[0]["error"]["code"], "not_ready");
    let mut harness = open_session(config("mode=audio", &[]));
    let audio = |audio: Value| json!({"type": "input_audio_buffer.append", "audio": audio});
    for (message, code) in [
        (json!({"type": "response.cancel"}), "unknown_event"),
        (json!({"kind": "x"}), "unknown_event"),
        (json!({"type": "input_audio_buffer.append"}), "missing_field"),
        (audio(json!("")), "missing_field"),
        (audio(json!(5)), "invalid_payload"),
        (audio(json!("AAAAA")), "invalid_payload"),
        (audio(json!("AAAA")), "invalid_payload"),
        (
            json!({"type": "input_audio_buffer.append", "audio": "AAAAAA==", "force_listen": "x"}),
            "invalid_payload",
        ),
        (json!({"type": "session.update"}), "missing_field"),
        (json!({"type": "session.update", "session": {"instructions": 5}}), "invalid_payload"),
        (json!({"type": "session.update", "session": {"ref_audio": "UklGRgAAAAA="}}), "invalid_payload"),
    ] {
        harness.send_json(&message);
        let error = &harness.events("error").last().unwrap()["error"];
        assert_eq!((&error["code"], &error["type"]), (&json!(code), &json!("client_error")), "{message}");
    }
    harness.send_json(&legacy_append_message(&zeros(1000)));
    harness.advance(ms(1000));
    assert_eq!(harness.names().last().unwrap(), "response.listen");
    assert_eq!(harness.units.len(), 1);
    for text in ["{", "[]"] {
        let mut harness = open_session(config("mode=audio", &[]));
        harness.send_text(text);
        harness.advance(ms(5000));
        assert_eq!(harness.names()[2..], ["close 1003"], "{text}");
        assert!(harness.finished);
    }
    harness.send_binary(&[0]);
    harness.advance(ms(5000));
    assert_eq!(harness.names().last().unwrap(), "close 1003");
    assert!(harness.finished);
}

#[test]
fn server_failures_use_documented_codes() {
    for (fault, code) in [("busy", "service_unavailable"), ("queue-full", "queue_full")] {
        let mut harness = connect_legacy(config("mode=audio", &[fault]));
        harness.send_json(&session_update());
        harness.advance(ms(30_000));
        assert_eq!(harness.names(), ["error", "close 1013"], "{fault}");
        assert_eq!(harness.events("error")[0]["error"]["code"], code);
    }
    for (fault, reason) in
        [("timeout=2", "timeout"), ("context-full=90", "context_full"), ("die-mid-turn", "error")]
    {
        let mut harness = open_session(config("mode=audio", &[fault]));
        for second in question_seconds(6) {
            if harness.is_closed() {
                break;
            }
            harness.send_json(&legacy_append_message(&second));
            harness.advance(ms(1000));
        }
        assert_eq!(harness.events("session.closed")[0]["reason"], reason);
        assert_eq!(harness.names().last().unwrap(), "close 1000");
    }
    let mut stopping = open_session(config("mode=audio", &[]));
    stopping.drain();
    stopping.advance(ms(5000));
    assert_eq!(stopping.events("session.closed")[0]["reason"], "server_shutdown");
    assert_eq!(stopping.names().last().unwrap(), "close 1012");
}

#[test]
fn untranslatable_field_is_reported_once() {
    let mut harness = open_session(config("mode=audio", &[]));
    for _ in 0..3 {
        let mut message = legacy_append_message(&zeros(1000));
        message["volume"] = json!(11);
        harness.send_json(&message);
        harness.advance(ms(1000));
    }
    let reports: Vec<_> = harness
        .observations
        .iter()
        .filter(|observation| matches!(observation, Observation::NoEffect(_)))
        .collect();
    assert_eq!(reports.len(), 1, "{reports:?}");
    assert!(format!("{reports:?}").contains("volume"));
}

#[test]
fn second_session_update_opens_new_upstream_session() {
    let mut harness = open_session(config("mode=audio", &[]));
    harness.send_json(&legacy_append_message(&zeros(1000)));
    harness.advance(ms(1000));
    harness.send_json(&json!({"type": "session.update", "session": {"instructions": "other"}}));
    harness.advance(ms(5000));
    assert_eq!(harness.events("session.created").len(), 2);
    assert_eq!(harness.events("session.created")[1]["prompt_length"], 63);
    harness.send_json(&legacy_append_message(&zeros(1000)));
    harness.advance(ms(1000));
    assert_eq!(harness.events("response.listen").len(), 2);
    assert_eq!(harness.events("session.queue_done").len(), 1);
    // Repeated updates wait for replaced upstream sessions to close before too many are open.
    (0..20).for_each(|_| harness.send_json(&session_update()));
    assert!(harness.lanes().len() < 6, "{:?}", harness.lanes());
    harness.advance(ms(20_000));
    assert_eq!(harness.events("session.created").len(), 3);
}

#[test]
fn first_message_selects_protocol() {
    let protocols = ["minicpm-o", "minicpm-o-legacy"];
    let mut older = Harness::new_relay(config("mode=audio", &[]), &protocols);
    older.send_json(&session_update());
    older.advance(ms(100));
    assert_eq!(older.events("session.created")[0]["prompt_length"], 94);
    let mut newer = Harness::new_relay(config("mode=audio", &[]), &protocols);
    newer.send_json(&json!({"type": "session.init", "payload": {}}));
    newer.advance(ms(100));
    assert_eq!(newer.events("session.created")[0]["mode"], "full_duplex");
    // Texts of no known protocol go to the first protocol.
    for text in [r#"{"type":"x"}"#, "{"] {
        let mut harness = Harness::new_relay(config("mode=audio", &[]), &protocols);
        harness.send_text(text);
        harness.advance(ms(5000));
        assert_eq!(harness.events("session.closed")[0]["reason"], "backend_error", "{text}");
    }
    // The legacy protocol has no chat and ignores the mode.
    let mut chat = Harness::new_relay(config("mode=chat", &[]), &protocols);
    chat.send_json(&session_update());
    chat.advance(ms(2000));
    chat.send_json(&legacy_append_message(&zeros(1000)));
    chat.advance(ms(1000));
    assert_eq!(chat.names(), ["session.queue_done", "session.created", "response.listen"]);
    assert_eq!(chat.events("session.created")[0]["prompt_length"], 94);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn appends_and_output_arrive_once_and_in_order(script in any_script(), on_cpp: bool, yields: bool) {
        let faults: &[&str] = if yields { &["yields"] } else { &[] };
        let mut settings = config("mode=audio", faults);
        settings.simulator.backend = if on_cpp { Backend::Cpp } else { Backend::Pytorch };
        let mut harness = open_session(settings);
        let mut sent_audio = Vec::new();
        for (at, step) in script.iter().enumerate() {
            let samples = unique_second(at, step.loud);
            let mut message = legacy_append_message(&samples);
            message["force_listen"] = json!(step.forced);
            sent_audio.push(message["audio"].clone());
            harness.send_json(&message);
            harness.advance(ms(step.pause_ms));
        }
        harness.advance(ms(40_000));
        let appended: Vec<Value> = sent_texts(&harness).iter().filter(|text| text.contains("input.append")).map(|text| {
            serde_json::from_str::<Value>(text).unwrap()["input"]["audio"].clone()
        }).collect();
        prop_assert!(appended == sent_audio);
        prop_assert_eq!(harness.units.len(), script.len());
        let (client_output, upstream_output) = (text_and_audio(harness.texts.iter().map(String::as_str)), text_and_audio(received_texts(&harness).into_iter()));
        prop_assert!(client_output == upstream_output, "{:?}", describe_events(&harness, 2));
        // A turn ends before the next one begins, and no output lies outside a turn.
        if !on_cpp {
            prop_assert_eq!(harness.texts.len() - 2, script.len(), "{:?}", describe_events(&harness, 2));
        }
    }
}
