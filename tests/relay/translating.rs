//! A client of the older dialect on an upstream of the current one, and what it makes of everything.

use proptest::prelude::*;
use serde_json::{Value, json};
use voxbridge::{session::Observation, simulator::Backend};

use crate::{
    pair::{Pair, PairConfig, zeros},
    support::{any_seconds, base64_of, config, cpp, ms, received, second, seconds, sent, spoken},
};

fn legacy(config: PairConfig) -> Pair {
    Pair::relayed(config, &["minicpm-o-legacy"])
}

fn update() -> Value {
    json!({"type": "session.update", "session": {"instructions": "You are a helpful English assistant."}})
}

fn append(samples: &[i16]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)})
}

fn opened(config: PairConfig) -> Pair {
    let mut pair = legacy(config);
    pair.client(&update());
    pair.advance(ms(100));
    assert_eq!(pair.names(), ["session.queue_done", "session.created"]);
    pair
}

/// What an event is, in short: the text, whether there is audio, and the end of a turn.
fn story(pair: &Pair, from: usize) -> Vec<String> {
    let short = |event: &Value| match event["type"].as_str().unwrap() {
        "response.output_audio.delta" => {
            let audio = if event["audio"].is_null() { "-" } else { "audio" };
            let end = if event["end_of_turn"] == true { " end" } else { "" };
            format!("{}/{audio}{end}", event["text"].as_str().unwrap())
        }
        other => other.to_owned(),
    };
    let events = pair.texts[from..].iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
    events.map(|event| short(&event)).collect()
}

#[test]
fn a_conversation_is_one_event_for_each_append() {
    let mut pair = opened(config("mode=audio", &[]));
    let created = pair.events("session.created")[0].clone();
    assert_eq!(created["prompt_length"], 94, "the client's 36 characters and the server's 58");
    assert!(created["session_id"].as_str().unwrap().starts_with("sess_"));
    let mut appended = 0;
    for second in seconds(6) {
        pair.client(&append(&second));
        appended += 1;
        pair.advance(ms(1000));
        assert_eq!(pair.texts.len(), 2 + appended, "{:?}", story(&pair, 2));
    }
    let story = story(&pair, 2);
    let ends: Vec<_> = story.iter().filter(|event| event.ends_with("end")).collect();
    assert_eq!(ends.len(), 1, "{story:?}");
    let units = pair.units.iter().map(|(_, unit)| unit.samples.len()).collect::<Vec<_>>();
    assert_eq!(units, vec![16_000; appended]);
    pair.client(&json!({"type": "session.close", "reason": "user_stop"}));
    pair.advance(ms(1000));
    assert_eq!(pair.events("session.closed")[0], &json!({"type": "session.closed", "reason": "stopped"}));
    assert_eq!(pair.names().last().unwrap(), "close 1000");
    assert!(sent(&pair).last().unwrap().contains(r#""reason":"user_stop""#) && pair.finished);
    for listen in pair.events("response.listen") {
        assert!(listen["kv_cache_length"].as_u64().unwrap() > 0);
    }
}

#[test]
fn nothing_of_a_turn_is_lost_or_told_twice_on_either_back_end() {
    for config in [config("mode=audio", &[]), cpp("mode=audio", &[]), cpp("mode=audio", &["double-terminal"])]
    {
        let mut pair = opened(config);
        for second in seconds(8) {
            pair.client(&append(&second));
            pair.advance(ms(1000));
        }
        let told = spoken(pair.texts.iter().map(String::as_str));
        assert_eq!(told, spoken(received(&pair).into_iter()));
        assert!(!told.0.is_empty() && !told.1.is_empty());
        let story = story(&pair, 2);
        assert_eq!(story.iter().filter(|event| event.ends_with("end")).count(), 1, "{story:?}");
        let end = story.iter().position(|event| event.ends_with("end")).unwrap();
        assert_eq!(story[end + 1], "response.listen");
    }
}

#[test]
fn a_turn_that_is_told_to_listen_is_over_with_a_listen() {
    let mut pair = opened(config("mode=audio", &[]));
    for second in seconds(2) {
        pair.client(&append(&second));
        pair.advance(ms(1000));
    }
    assert!(story(&pair, 2).last().unwrap().ends_with("/audio"), "{:?}", story(&pair, 2));
    let mut forced = append(&zeros(1000));
    forced["force_listen"] = json!(true);
    pair.client(&forced);
    pair.advance(ms(1000));
    let story = story(&pair, 2);
    assert_eq!(story.last().unwrap(), "response.listen");
    assert!(
        pair.units.last().unwrap().1.forced && !story.iter().any(|event| event.ends_with("end")),
        "{story:?}"
    );
}

#[test]
fn what_opens_a_session_is_said_in_the_other_words() {
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
    let wav = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, wav.into_inner());
    for voice in [&raw, &wav] {
        let mut pair = legacy(config("mode=video", &[]));
        let update = json!({"type": "session.update", "session": {
            "instructions": "p", "ref_audio": voice, "tts_ref_audio": raw, "max_slice_nums": 4,
            "voice_config": {"length_penalty": 1.10}
        }});
        pair.client_text(&update.to_string().replace("1.1}", "1.10}"));
        let mut seeing = append(&zeros(1000));
        pair.advance(ms(100));
        seeing["video_frames"] = json!(["/9j/"]);
        seeing["force_listen"] = json!(false);
        pair.client(&seeing);
        pair.advance(ms(1000));
        let said: Vec<Value> = sent(&pair).iter().map(|text| serde_json::from_str(text).unwrap()).collect();
        let payload = json!({
            "system_prompt": "p", "config": {"length_penalty": 1.10},
            "voice": {"ref_audio_base64": raw, "tts_ref_audio_base64": raw}
        });
        assert_eq!(said[0], json!({"type": "session.init", "payload": payload}));
        let input = json!({
            "audio": base64_of(&zeros(1000)), "video_frames": ["/9j/"], "force_listen": false,
            "max_slice_nums": 4, "input_id": "a1"
        });
        assert_eq!(said[1], json!({"type": "input.append", "input": input}));
        assert!(sent(&pair)[0].contains("1.10"), "as it was written");
    }
}

#[test]
fn errors_are_the_documented_ones_and_the_session_goes_on() {
    let mut early = legacy(config("mode=audio", &[]));
    early.client(&append(&zeros(1000)));
    assert_eq!(early.events("error")[0]["error"]["code"], "not_ready");
    let mut pair = opened(config("mode=audio", &[]));
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
        pair.client(&message);
        let error = &pair.events("error").last().unwrap()["error"];
        assert_eq!((&error["code"], &error["type"]), (&json!(code), &json!("client_error")), "{message}");
    }
    pair.client(&append(&zeros(1000)));
    pair.advance(ms(1000));
    assert_eq!(pair.names().last().unwrap(), "response.listen");
    assert_eq!(pair.units.len(), 1);
    for text in ["{", "[]"] {
        let mut pair = opened(config("mode=audio", &[]));
        pair.client_text(text);
        pair.advance(ms(5000));
        assert_eq!(pair.names()[2..], ["close 1003"], "{text}");
        assert!(pair.finished);
    }
    pair.client_binary(&[0]);
    pair.advance(ms(5000));
    assert_eq!(pair.names().last().unwrap(), "close 1003");
    assert!(pair.finished);
}

#[test]
fn the_servers_failures_are_the_documented_ones() {
    for (fault, code) in [("busy", "service_unavailable"), ("queue-full", "queue_full")] {
        let mut pair = legacy(config("mode=audio", &[fault]));
        pair.client(&update());
        pair.advance(ms(30_000));
        assert_eq!(pair.names(), ["error", "close 1013"], "{fault}");
        assert_eq!(pair.events("error")[0]["error"]["code"], code);
    }
    for (fault, reason) in
        [("timeout=2", "timeout"), ("context-full=90", "context_full"), ("die-mid-turn", "error")]
    {
        let mut pair = opened(config("mode=audio", &[fault]));
        for second in seconds(6) {
            if pair.closed() {
                break;
            }
            pair.client(&append(&second));
            pair.advance(ms(1000));
        }
        assert_eq!(pair.events("session.closed")[0]["reason"], reason);
        assert_eq!(pair.names().last().unwrap(), "close 1000");
    }
    let mut stopping = opened(config("mode=audio", &[]));
    stopping.drain();
    stopping.advance(ms(5000));
    assert_eq!(stopping.events("session.closed")[0]["reason"], "server_shutdown");
    assert_eq!(stopping.names().last().unwrap(), "close 1012");
}

#[test]
fn what_has_no_counterpart_is_reported_once() {
    let mut pair = opened(config("mode=audio", &[]));
    for _ in 0..3 {
        let mut message = append(&zeros(1000));
        message["volume"] = json!(11);
        pair.client(&message);
        pair.advance(ms(1000));
    }
    let told: Vec<_> = pair.observed.iter().filter(|seen| matches!(seen, Observation::NoEffect(_))).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(format!("{told:?}").contains("volume"));
}

#[test]
fn who_opens_the_session_twice_has_another_one() {
    let mut pair = opened(config("mode=audio", &[]));
    pair.client(&append(&zeros(1000)));
    pair.advance(ms(1000));
    pair.client(&json!({"type": "session.update", "session": {"instructions": "other"}}));
    pair.advance(ms(5000));
    assert_eq!(pair.events("session.created").len(), 2);
    assert_eq!(pair.events("session.created")[1]["prompt_length"], 63);
    pair.client(&append(&zeros(1000)));
    pair.advance(ms(1000));
    assert_eq!(pair.events("response.listen").len(), 2);
    assert_eq!(pair.events("session.queue_done").len(), 1);
    // However often: an upstream session that is left is waited for before too many are.
    (0..20).for_each(|_| pair.client(&update()));
    assert!(pair.lanes().len() < 6, "{:?}", pair.lanes());
    pair.advance(ms(20_000));
    assert_eq!(pair.events("session.created").len(), 3);
}

#[test]
fn the_first_message_says_which_protocol_it_is() {
    let both = ["minicpm-o", "minicpm-o-legacy"];
    let mut older = Pair::relayed(config("mode=audio", &[]), &both);
    older.client(&update());
    older.advance(ms(100));
    assert_eq!(older.events("session.created")[0]["prompt_length"], 94);
    let mut newer = Pair::relayed(config("mode=audio", &[]), &both);
    newer.client(&json!({"type": "session.init", "payload": {}}));
    newer.advance(ms(100));
    assert_eq!(newer.events("session.created")[0]["mode"], "full_duplex");
    // Nobody's message, and nobody's JSON: the first.
    for text in [r#"{"type":"x"}"#, "{"] {
        let mut pair = Pair::relayed(config("mode=audio", &[]), &both);
        pair.client_text(text);
        pair.advance(ms(5000));
        assert_eq!(pair.events("session.closed")[0]["reason"], "backend_error", "{text}");
    }
    // The older protocol has no chat, and takes the word for another one.
    let mut chat = Pair::relayed(config("mode=chat", &[]), &both);
    chat.client(&update());
    chat.advance(ms(2000));
    chat.client(&append(&zeros(1000)));
    chat.advance(ms(1000));
    assert_eq!(chat.names(), ["session.queue_done", "session.created", "response.listen"]);
    assert_eq!(chat.events("session.created")[0]["prompt_length"], 94);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_said_arrives_once_and_in_order(script in any_seconds(), on_cpp: bool, yields: bool) {
        let faults: &[&str] = if yields { &["yields"] } else { &[] };
        let mut settings = config("mode=audio", faults);
        settings.simulator.backend = if on_cpp { Backend::Cpp } else { Backend::Pytorch };
        let mut pair = opened(settings);
        let mut said = Vec::new();
        for (at, step) in script.iter().enumerate() {
            let samples = second(at, step.loud);
            let mut message = append(&samples);
            message["force_listen"] = json!(step.forced);
            said.push(message["audio"].clone());
            pair.client(&message);
            pair.advance(ms(step.pause));
        }
        pair.advance(ms(40_000));
        let heard: Vec<Value> = sent(&pair).iter().filter(|text| text.contains("input.append")).map(|text| {
            serde_json::from_str::<Value>(text).unwrap()["input"]["audio"].clone()
        }).collect();
        prop_assert!(heard == said);
        prop_assert_eq!(pair.units.len(), script.len());
        let (told, came) = (spoken(pair.texts.iter().map(String::as_str)), spoken(received(&pair).into_iter()));
        prop_assert!(told == came, "{:?}", story(&pair, 2));
        // A turn ends before another begins, and nothing is told outside of one.
        if !on_cpp {
            prop_assert_eq!(pair.texts.len() - 2, script.len(), "{:?}", story(&pair, 2));
        }
    }
}
