//! A current client on a legacy upstream, which has fewer messages; and a legacy client on a legacy upstream.

use proptest::prelude::*;

use super::{
    harness::{Harness, HarnessConfig, zeros},
    *,
};

fn legacy_config(query: &str, documented: bool, faults: &[&str]) -> HarnessConfig {
    let mut config = HarnessConfig { upstream: "minicpm-o-legacy", ..config(query, faults) };
    config.simulator.dialect = SimDialect::Legacy { follows_document: documented };
    config
}

fn delta_kinds(harness: &Harness) -> Vec<String> {
    let deltas = harness.events("response.output.delta");
    deltas.iter().map(|delta| delta["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn legacy_upstream_provides_all_current_event_fields() {
    for documented in [false, true] {
        let mut harness = open_session(legacy_config("mode=audio", documented, &[]));
        let created = harness.events("session.created")[0].clone();
        assert_eq!((&created["mode"], &created["metrics"]), (&json!("full_duplex"), &json!({})));
        assert!(created["session_id"].to_string().starts_with("\"rt_") && created["server_send_ts"].is_f64());
        let all = question_seconds(6);
        for (at, second) in all.iter().enumerate() {
            let mut message = append_message(second);
            message["input"]["input_id"] = json!(format!("mine {at}"));
            harness.send_json(&message);
            harness.advance(ms(1000));
            let last = (*harness.events("response.output.delta").last().unwrap()).clone();
            assert_eq!(last["input_id"], format!("mine {at}"), "{}", last["kind"]);
            assert!(last["metrics"]["kv_cache_length"].as_u64().unwrap() > 0);
            assert_eq!(last["session_id"], created["session_id"]);
        }
        let kinds = delta_kinds(&harness);
        let first = kinds.iter().position(|kind| kind == "text").unwrap();
        let end = first + kinds[first..].iter().position(|kind| kind == "listen").unwrap();
        let deltas = harness.events("response.output.delta");
        let name = deltas[first]["response_id"].as_str().unwrap();
        assert!(name.starts_with("resp_") && name.len() == 17, "{name}");
        assert!(deltas[first..=end].iter().all(|delta| delta["response_id"] == name));
        assert!(
            deltas[end + 1..].iter().all(|delta| delta.get("response_id").is_none()),
            "idle deltas have no response_id"
        );
        assert_eq!(
            harness.units.iter().map(|(_, unit)| unit.samples.len()).sum::<usize>(),
            16_000 * all.len()
        );
        assert_eq!(
            text_and_audio(harness.texts.iter().map(String::as_str)),
            text_and_audio(received_texts(&harness).into_iter())
        );
        harness.send_json(&json!({"type": "session.close", "reason": "enough"}));
        harness.advance(ms(1000));
        let closed = harness.events("session.closed")[0];
        assert_eq!((&closed["reason"], &closed["session_id"]), (&json!("enough"), &created["session_id"]));
        assert!(harness.finished);
    }
}

#[test]
fn all_field_spellings_are_understood() {
    let raw = base64_of(&[1, 2, 3, 4]);
    for payload in [
        json!({"system_prompt": "p", "config": {"top_k": 5}, "voice": {"ref_audio_base64": raw, "tts_ref_audio_base64": raw}}),
        json!({"instructions": "p", "duplex": {"top_k": 5}, "voice": {"ref_audio": raw, "tts_ref_audio": raw}}),
        json!({"instructions": "p", "config": {"top_k": 5}, "ref_audio_base64": raw, "tts_ref_audio_base64": raw}),
    ] {
        let mut harness = connect_current(legacy_config("mode=video", false, &[]));
        harness.send_json(&json!({"type": "session.init", "payload": payload}));
        harness.advance(ms(100));
        let sent: Value = serde_json::from_str(sent_texts(&harness)[0]).unwrap();
        let session = json!({"instructions": "p", "voice_config": {"top_k": 5}, "ref_audio": raw, "tts_ref_audio": raw});
        assert_eq!(sent, json!({"type": "session.update", "session": session}));
    }
    let audio = base64_of(&zeros(1000));
    let audio_only = json!({"type": "input_audio_buffer.append", "audio": audio});
    let with_image = json!({"type": "input_audio_buffer.append", "audio": audio, "force_listen": true,
        "video_frames": [PICTURE], "max_slice_nums": 2});
    let mut harness = open_session(legacy_config("mode=video", false, &[]));
    for (input, expected) in [
        (json!({"audio": audio}), &audio_only),
        (json!({"audio": {"data": audio}}), &audio_only),
        (json!({"audio": {"base64": audio}}), &audio_only),
        (json!({"audio": {"audio_base64": audio}}), &audio_only),
        (json!({"audio_base64": audio}), &audio_only),
        (json!({"audio_data": audio}), &audio_only),
        (json!({"audio": format!("data:audio/pcm;base64,{audio}")}), &audio_only),
        (
            json!({"audio": audio, "video_frames": [PICTURE], "force_listen": true, "max_slice_nums": 2}),
            &with_image,
        ),
        (
            json!({"audio": audio, "frames": [PICTURE], "hints": {"force_listen": true, "max_slice_nums": 2}}),
            &with_image,
        ),
        (
            json!({"audio": audio, "frame_base64_list": [PICTURE], "force_listen": true, "max_slice_nums": 2}),
            &with_image,
        ),
    ] {
        harness.send_json(&json!({"type": "input.append", "input": input}));
        harness.advance(ms(1000));
        let sent: Value = serde_json::from_str(sent_texts(&harness).last().unwrap()).unwrap();
        assert_eq!(&sent, expected, "{input}");
    }
}

#[test]
fn voice_sample_uses_encoding_accepted_by_server() {
    for documented in [false, true] {
        let mut harness = connect_current(legacy_config("mode=audio", documented, &[]));
        let voice = base64_of(&vec![100; 3200]);
        harness
            .send_json(&json!({"type": "session.init", "payload": {"voice": {"ref_audio_base64": voice}}}));
        harness.advance(ms(20_000));
        assert_eq!(harness.names(), ["session.queue_done", "session.created"], "documented: {documented}");
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(1000));
        assert_eq!(delta_kinds(&harness), ["listen"]);
    }
}

#[test]
fn rejected_session_update_may_be_repeated() {
    let mut harness = Harness::new_relay(legacy_config("mode=audio", true, &[]), &["minicpm-o-legacy"]);
    harness.send_json(&json!({"type": "session.update", "session": {}}));
    harness.advance(ms(1000));
    assert_eq!(harness.names(), ["session.queue_done", "error"]);
    harness.send_json(&json!({"type": "session.update", "session": {"instructions": "p"}}));
    harness.advance(ms(1000));
    assert_eq!(harness.names(), ["session.queue_done", "error", "session.created"]);
    assert_eq!(harness.texts, received_texts(&harness));
    // A client of the current dialect gets an error and the session ends.
    let mut harness = connect_current(legacy_config("mode=audio", true, &[]));
    let payload = json!({"system_prompt": "p", "voice": {"ref_audio_base64": "UklGRgAAAAAA"}});
    harness.send_json(&json!({"type": "session.init", "payload": payload}));
    harness.advance(ms(20_000));
    assert_eq!(harness.names().last().unwrap(), "close 1000", "{:?}", harness.names());
}

#[test]
fn lost_legacy_upstream_is_replaced() {
    for client in ["minicpm-o", "minicpm-o-legacy"] {
        let mut harness = Harness::new_relay(legacy_config("mode=audio", false, &[]), &[client]);
        let native = client == "minicpm-o-legacy";
        let say = |harness: &mut Harness| {
            let audio = base64_of(&zeros(1000));
            let older = json!({"type": "input_audio_buffer.append", "audio": audio});
            harness.send_json(&if native { older } else { append_message(&zeros(1000)) });
            harness.advance(ms(1000));
        };
        harness.send_json(&if native {
            json!({"type": "session.update", "session": {}})
        } else {
            init_message()
        });
        harness.advance(ms(500));
        (0..4).for_each(|_| say(&mut harness));
        harness.break_lanes();
        (0..3).for_each(|_| say(&mut harness));
        harness.advance(ms(5000));
        assert_eq!(harness.names()[..2], ["session.queue_done", "session.created"], "{client}");
        let created = harness.events("session.created");
        assert!(created.len() == 2 && created[0]["session_id"] != created[1]["session_id"], "{client}");
        assert_eq!(harness.names().len(), 10, "{client}: {:?}", harness.names());
        assert!(!harness.is_closed());
    }
}

#[test]
fn messages_that_the_bridge_answers_itself_do_not_reach_a_server_of_the_same_dialect() {
    let append = |audio: &str| format!(r#"{{"type":"input_audio_buffer.append","audio":{audio}}}"#);
    for (text, answer) in [
        ("{".to_owned(), "close 1003"),
        ("[]".to_owned(), "close 1003"),
        (r#"{"type":"session.update"}"#.to_owned(), "missing_field"),
        (r#"{"type":"session.update","session":{"instructions":5}}"#.to_owned(), "invalid_payload"),
        (append(r#""""#), "missing_field"),
        (append("null"), "missing_field"),
        (append("5"), "invalid_payload"),
        (append(r#""AAAAA""#), "invalid_payload"),
        (append(r#""AAAA""#), "invalid_payload"),
    ] {
        let config = legacy_config("mode=audio", false, &[]);
        let mut harness = Harness::new_relay(config, &["minicpm-o-legacy"]);
        harness.send_json(&json!({"type": "session.update", "session": {}}));
        harness.advance(ms(500));
        let sent = sent_texts(&harness).len();
        harness.send_text(&text);
        let goodbye = usize::from(answer.starts_with("close"));
        assert_eq!(sent_texts(&harness).len(), sent + goodbye, "{text}");
        let code = harness.events("error").last().map(|error| error["error"]["code"].as_str().unwrap());
        assert_eq!(code.unwrap_or(harness.names().last().unwrap()), answer, "{text}");
    }
}

#[test]
fn chat_mode_is_rejected_on_legacy_upstream() {
    let mut harness = connect_current(legacy_config("mode=chat", false, &[]));
    harness.advance(ms(1000));
    assert_eq!(harness.names(), ["error", "session.closed", "close 1000"]);
    let words = harness.events("error")[0]["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("has no mode chat; it has `audio` and `video`"), "{words}");
    assert!(harness.finished && harness.traffic.is_empty());
}

#[test]
fn untranslatable_message_is_reported_and_session_continues() {
    let mut harness = open_session(legacy_config("mode=audio", false, &[]));
    harness.send_json(&json!({"type": "response.cancel"}));
    assert_eq!(harness.events("error")[0]["error"]["code"], "unknown_event");
    let mut odd = append_message(&zeros(1000));
    odd["input"]["volume"] = json!(11);
    harness.send_json(&odd);
    harness.send_json(&odd);
    assert_eq!(harness.events("error").len(), 2, "the error is sent once");
    assert_eq!(harness.events("error")[1]["error"]["code"], "invalid_payload");
    harness.advance(ms(2000));
    assert_eq!(delta_kinds(&harness), ["listen", "listen"]);
    // Messages that end the real current server's session end this one too.
    for message in [
        json!({"type": "input.append", "input": {}}),
        json!({"type": "input.append", "input": {"audio": "AAAA"}}),
    ] {
        let mut harness = open_session(legacy_config("mode=audio", false, &[]));
        harness.send_json(&message);
        harness.advance(ms(5000));
        assert_eq!(harness.names()[2..], ["session.closed", "close 1000"]);
        assert_eq!(harness.events("session.closed")[0]["reason"], "backend_error");
        assert!(harness.finished);
    }
}

#[test]
fn legacy_end_reasons_are_translated() {
    for (fault, reason) in [("timeout=2", "timeout"), ("context-full=90", "context_full")] {
        let mut harness = open_session(legacy_config("mode=audio", false, &[fault]));
        for second in question_seconds(4) {
            if harness.is_closed() {
                break;
            }
            harness.send_json(&append_message(&second));
            harness.advance(ms(1000));
        }
        assert_eq!(harness.events("session.closed").len(), 1, "{fault}: {:?}", harness.names());
        assert_eq!(harness.events("session.closed")[0]["reason"], reason);
        assert_eq!(harness.names().last().unwrap(), "close 1000");
        harness.advance(ms(10_000));
        assert!(harness.finished);
    }
}

#[test]
fn legacy_session_passes_unchanged_to_legacy_server() {
    for documented in [false, true] {
        let mut harness =
            Harness::new_relay(legacy_config("mode=audio", documented, &[]), &["minicpm-o-legacy"]);
        let mut sent =
            vec![json!({"type": "session.update", "session": {"instructions": "p", "x": [1]}}).to_string()];
        harness.send_text(&sent[0]);
        harness.advance(ms(1000));
        for second in question_seconds(6) {
            sent.push(
                json!({"type": "input_audio_buffer.append", "audio": base64_of(&second), "y": null})
                    .to_string(),
            );
            harness.send_text(sent.last().unwrap());
            harness.advance(ms(1000));
        }
        sent.push(json!({"type": "session.close", "reason": "user_stop"}).to_string());
        harness.send_text(sent.last().unwrap());
        harness.advance(ms(5000));
        assert_eq!(sent_texts(&harness), sent);
        assert_eq!(harness.texts, received_texts(&harness));
        assert_eq!(harness.events("session.closed")[0]["reason"], "stopped");
        assert!(harness.finished);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn appends_and_output_arrive_once_and_in_order(script in any_script(), documented: bool) {
        let mut harness = open_session(legacy_config("mode=audio", documented, &[]));
        let mut sent_audio = Vec::new();
        for (at, step) in script.iter().enumerate() {
            let samples = unique_second(at, step.loud);
            let mut message = append_message(&samples);
            message["input"]["force_listen"] = json!(step.forced);
            message["input"]["input_id"] = json!(at.to_string());
            sent_audio.push(message["input"]["audio"].clone());
            harness.send_json(&message);
            harness.advance(ms(step.pause_ms));
        }
        harness.advance(ms(40_000));
        let appended: Vec<Value> = sent_texts(&harness).iter().filter(|text| text.contains("_buffer.append")).map(|text| {
            serde_json::from_str::<Value>(text).unwrap()["audio"].clone()
        }).collect();
        prop_assert!(appended == sent_audio);
        let (client_output, upstream_output) = (text_and_audio(harness.texts.iter().map(String::as_str)), text_and_audio(received_texts(&harness).into_iter()));
        prop_assert!(client_output == upstream_output);
        // The documented server may drop appends that come too fast; the real one answers all of them in
        // order.
        if !documented {
            let deltas = harness.events("response.output.delta");
            let mut ids: Vec<usize> =
                deltas.iter().map(|delta| delta["input_id"].as_str().unwrap().parse().unwrap()).collect();
            prop_assert!(ids.is_sorted());
            ids.dedup();
            prop_assert_eq!(ids, (0..script.len()).collect::<Vec<_>>());
        }
    }
}
