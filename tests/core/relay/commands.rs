//! Clients of the model's own protocol on an upstream whose dialect has no messages of a relay, so that its lane's codec gets
//! the commands of a conversation.

use super::{
    harness::{Harness, HarnessConfig, zeros},
    *,
};

/// The current dialect's file under another name, without its messages for relays.
fn commands_file() -> String {
    let file = include_str!("../../../mappings/upstream/minicpm-o.toml");
    let (before, relay) = file.split_once("relay_open").unwrap();
    let (_, after) = relay.split_once("\n[[receive]]").unwrap();
    format!("{before}\n[[receive]]{after}").replace("name = \"minicpm-o\"", "name = \"commands\"")
}

/// On that dialect.
fn on_commands(config: HarnessConfig) -> HarnessConfig {
    let mut config = HarnessConfig { upstream: "commands", ..config };
    config.library.add("commands", &commands_file()).unwrap();
    config
}

/// The same with this text of its file replaced.
fn changed(config: HarnessConfig, old: &str, new: &str) -> HarnessConfig {
    let mut config = on_commands(config);
    let file = commands_file().replacen(old, new, 1);
    config.library.add("commands", &file).unwrap();
    config
}

fn open_session(client: &str, opening: &Value, config: HarnessConfig) -> Harness {
    opened_with(Harness::new_relay(on_commands(config), &[client]), opening)
}

fn open_current(config: HarnessConfig) -> Harness {
    open_session("minicpm-o", &init_message(), config)
}

#[test]
fn client_of_either_dialect_gets_all_words_and_audio() {
    let update = json!({"type": "session.update", "session": {"instructions": "x"}});
    let append = |client: &str, samples: &[i16]| match client {
        "minicpm-o" => append_message(samples),
        _ => legacy_append_message(samples),
    };
    for (client, opening) in [("minicpm-o", init_message()), ("minicpm-o-legacy", update)] {
        let mut harness = open_session(client, &opening, config("mode=audio", &[]));
        let seconds = question_seconds(8);
        for second in &seconds {
            harness.send_json(&append(client, second));
            harness.advance(ms(1000));
        }
        let output = text_and_audio(harness.texts.iter().map(String::as_str));
        assert_eq!(output, text_and_audio(received_texts(&harness).into_iter()), "{client}");
        assert!(!output.0.is_empty() && !output.1.is_empty());
        let sent: Vec<f32> = seconds.concat().iter().map(|sample| f32::from(*sample) / 32768.0).collect();
        let heard: Vec<f32> = harness.units.iter().flat_map(|(_, unit)| unit.samples.clone()).collect();
        assert_eq!(heard, sent, "{client}: every sample reaches the model unchanged");
        harness.send_json(&json!({"type": "session.close"}));
        harness.advance(ms(1000));
        assert_eq!(harness.names().last().unwrap(), "close 1000");
        assert!(harness.finished && harness.events("error").is_empty());
    }
}

#[test]
fn opening_has_prompt_settings_and_voice_of_the_client() {
    let samples: Vec<i16> = (0..1600).map(|at| at * 7 - 5000).collect();
    let opening = json!({"type": "session.init", "payload": {
        "system_prompt": "Speak briefly.", "config": {"temperature": 0.25},
        "voice": {"ref_audio_base64": base64_of(&samples)}
    }});
    let harness = open_session("minicpm-o", &opening, config("mode=audio", &[]));
    let opened = &harness.openings[0].1;
    assert_eq!(opened.prompt.as_deref(), Some("Speak briefly."));
    assert_eq!(opened.config["temperature"], 0.25);
    let voice = opened.voice.as_ref().unwrap();
    let expected: Vec<f32> = samples.iter().map(|sample| f32::from(*sample) / 32768.0).collect();
    assert_eq!(*voice, expected);
}

#[test]
fn input_of_any_length_becomes_units_of_one_second() {
    let mut harness = open_current(config("mode=audio", &[]));
    let audio: Vec<i16> = (0..4).flat_map(|at| unique_second(at, false)).collect();
    for (at, part) in [(0, 0..8_000), (1, 8_000..20_000), (2, 20_000..60_000)] {
        let mut append = append_message(&audio[part]);
        append["input"]["input_id"] = json!(format!("part{at}"));
        harness.send_json(&append);
        harness.advance(ms(1000));
    }
    let units: Vec<_> =
        harness.units.iter().map(|(_, unit)| (unit.samples.len(), unit.input_id.clone().unwrap())).collect();
    assert_eq!(units, [(16_000, json!("part1")), (16_000, json!("part2")), (16_000, json!("part2"))]);
    let ids: Vec<_> =
        harness.events("response.output.delta").iter().map(|delta| delta["input_id"].clone()).collect();
    assert_eq!(ids, ["part1", "part2", "part2"]);
}

#[test]
fn picture_and_forced_silence_reach_the_model() {
    let mut harness = open_current(config("mode=video", &[]));
    let mut append = append_message(&zeros(1000));
    append["input"]["video_frames"] = json!([PICTURE]);
    append["input"]["force_listen"] = json!(true);
    harness.send_json(&append);
    harness.advance(ms(1000));
    let unit = &harness.units[0].1;
    assert_eq!((unit.frame_count, unit.force_listen), (1, true));
    assert_eq!(harness.events("response.output.delta")[0]["kind"], "listen");
}

#[test]
fn unreadable_audio_is_reported_and_not_sent() {
    let mut harness = open_session(
        "minicpm-o-legacy",
        &json!({"type": "session.update", "session": {}}),
        config("mode=audio", &[]),
    );
    harness.send_json(&json!({"type": "input_audio_buffer.append", "audio": "AAAAA"}));
    harness.advance(ms(100));
    assert_eq!(harness.events("error")[0]["error"]["code"], "invalid_payload");
    assert_eq!(harness.units.len(), 0);
}

/// Longest audio of a message: 600 s of float32 at 16 kHz as base64.
#[test]
fn audio_of_a_message_that_is_too_long_is_refused_in_the_clients_protocol_and_not_sent() {
    let seconds = |seconds: usize| "A".repeat(seconds * 16_000 * 4 / 3 * 4);
    let words = "too long: 699 s in one message (expected at most 600 s)";
    let update = json!({"type": "session.update", "session": {}});
    let mut harness = open_session("minicpm-o-legacy", &update, config("mode=audio", &[]));
    harness.send_json(&json!({"type": "input_audio_buffer.append", "audio": seconds(699)}));
    harness.advance(ms(1000));
    let error = harness.events("error")[0]["error"].clone();
    assert_eq!(error["code"], "invalid_payload", "{error}");
    assert!(error["message"].as_str().unwrap().contains(words), "{error}");
    assert_eq!(harness.units.len(), 0);
    harness.send_json(&legacy_append_message(&zeros(1000)));
    harness.advance(ms(1000));
    assert_eq!((harness.units.len(), harness.is_closed()), (1, false), "the session goes on");
    // The current gateway ends the session at any such error.
    let mut harness = open_current(config("mode=audio", &[]));
    let mut append = append_message(&[]);
    append["input"]["audio"] = json!(seconds(699));
    harness.send_json(&append);
    harness.advance(ms(1000));
    let closed = harness.events("session.closed")[0].to_string();
    assert!(closed.contains("backend_error") && closed.contains(words), "{closed}");
    assert_eq!((harness.units.len(), harness.is_closed()), (0, true));
}

#[test]
fn another_session_replaces_a_lost_one() {
    let mut harness = open_current(config("mode=audio", &[]));
    for _ in 0..4 {
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(1000));
    }
    harness.break_lanes();
    harness.send_json(&append_message(&zeros(1000)));
    harness.advance(ms(5000));
    assert_eq!((harness.openings.len(), harness.units.len()), (2, 5));
    assert!(!harness.is_closed() && harness.events("error").is_empty());
}

#[test]
fn missing_voice_sample_is_an_error_in_the_clients_own_protocol() {
    let close = |code: u64| json!(code);
    let update = json!({"type": "session.update", "session": {}});
    for (client, opening, code, closed) in [
        ("minicpm-o", init_message(), "session_failed", close(1000)),
        ("minicpm-o-legacy", update, "service_unavailable", close(1013)),
    ] {
        let config = changed(config("mode=audio", &[]), "path = ", "voice_required = true\npath = ");
        let mut harness = Harness::new_relay(config, &[client]);
        harness.send_json(&opening);
        harness.advance(ms(1000));
        let error = &harness.events("error")[0]["error"];
        assert_eq!(error["code"], code, "{error}");
        assert!(error["message"].as_str().unwrap().contains("only with a voice sample"), "{error}");
        assert!(
            harness.names().last().unwrap().contains(&format!("close {closed}")),
            "{:?}",
            harness.names()
        );
        assert!(harness.openings.is_empty());
    }
}

#[test]
fn settings_that_the_upstream_does_not_know_are_named_once() {
    let opening = json!({"type": "session.init", "payload": {
        "system_prompt": "x", "config": {"temperature": 0.25, "length_penalty": 1.1, "top_k": 3}
    }});
    let config = changed(config("mode=audio", &[]), "path = ", "config_keys = [\"temperature\"]\npath = ");
    let mut harness = Harness::new_relay(config, &["minicpm-o"]);
    harness.send_json(&opening);
    harness.advance(ms(100));
    let notes: Vec<_> =
        harness.observations.iter().filter(|it| matches!(it, Observation::NoEffect(_))).collect();
    assert_eq!(notes.len(), 1, "{notes:?}");
    let Observation::NoEffect(note) = notes[0] else { unreachable!() };
    assert!(note.contains("no effect: length_penalty, top_k."), "{note}");
}
