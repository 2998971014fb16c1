//! A client of the current dialect on an upstream of the older one, which has fewer words; and the older one on its own.

use proptest::prelude::*;
use serde_json::{Value, json};
use voxbridge::simulator::Dialect;

use super::{
    pair::{Pair, PairConfig, zeros},
    support::{
        any_seconds, append, base64_of, config, current, init, ms, received, second, seconds, sent, spoken,
    },
};

fn older(query: &str, documented: bool, faults: &[&str]) -> PairConfig {
    let mut config = PairConfig { upstream: "minicpm-o-legacy", ..config(query, faults) };
    config.simulator.dialect = Dialect::Legacy { documented };
    config
}

fn opened(config: PairConfig) -> Pair {
    let mut pair = current(config);
    pair.client(&init());
    pair.advance(ms(100));
    assert_eq!(pair.names(), ["session.queue_done", "session.created"]);
    pair
}

fn kinds(pair: &Pair) -> Vec<String> {
    let deltas = pair.events("response.output.delta");
    deltas.iter().map(|delta| delta["kind"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_conversation_has_everything_the_current_dialect_promises() {
    for documented in [false, true] {
        let mut pair = opened(older("mode=audio", documented, &[]));
        let created = pair.events("session.created")[0].clone();
        assert_eq!((&created["mode"], &created["metrics"]), (&json!("full_duplex"), &json!({})));
        assert!(
            created["session_id"].as_str().unwrap().starts_with("rt_") && created["server_send_ts"].is_f64()
        );
        let all = seconds(6);
        for (at, second) in all.iter().enumerate() {
            let mut message = append(second);
            message["input"]["input_id"] = json!(format!("mine {at}"));
            pair.client(&message);
            pair.advance(ms(1000));
            let last = (*pair.events("response.output.delta").last().unwrap()).clone();
            assert_eq!(last["input_id"], format!("mine {at}"), "{}", last["kind"]);
            assert!(last["metrics"]["kv_cache_length"].as_u64().unwrap() > 0);
            assert_eq!(last["session_id"], created["session_id"]);
        }
        let kinds = kinds(&pair);
        let first = kinds.iter().position(|kind| kind == "text").unwrap();
        let end = first + kinds[first..].iter().position(|kind| kind == "listen").unwrap();
        let deltas = pair.events("response.output.delta");
        let name = deltas[first]["response_id"].as_str().unwrap();
        assert!(name.starts_with("resp_") && name.len() == 17, "{name}");
        assert!(deltas[first..=end].iter().all(|delta| delta["response_id"] == name));
        assert!(deltas[end + 1..].iter().all(|delta| delta.get("response_id").is_none()), "idle");
        assert_eq!(pair.units.iter().map(|(_, unit)| unit.samples.len()).sum::<usize>(), 16_000 * all.len());
        assert_eq!(spoken(pair.texts.iter().map(String::as_str)), spoken(received(&pair).into_iter()));
        pair.client(&json!({"type": "session.close", "reason": "enough"}));
        pair.advance(ms(1000));
        let closed = pair.events("session.closed")[0];
        assert_eq!((&closed["reason"], &closed["session_id"]), (&json!("enough"), &created["session_id"]));
        assert!(pair.finished);
    }
}

#[test]
fn every_spelling_of_a_field_is_understood() {
    let raw = base64_of(&[1, 2, 3, 4]);
    for payload in [
        json!({"system_prompt": "p", "config": {"top_k": 5}, "voice": {"ref_audio_base64": raw, "tts_ref_audio_base64": raw}}),
        json!({"instructions": "p", "duplex": {"top_k": 5}, "voice": {"ref_audio": raw, "tts_ref_audio": raw}}),
        json!({"instructions": "p", "config": {"top_k": 5}, "ref_audio_base64": raw, "tts_ref_audio_base64": raw}),
    ] {
        let mut pair = current(older("mode=video", false, &[]));
        pair.client(&json!({"type": "session.init", "payload": payload}));
        pair.advance(ms(100));
        let said: Value = serde_json::from_str(sent(&pair)[0]).unwrap();
        let session = json!({"instructions": "p", "voice_config": {"top_k": 5}, "ref_audio": raw, "tts_ref_audio": raw});
        assert_eq!(said, json!({"type": "session.update", "session": session}));
    }
    let audio = base64_of(&zeros(1000));
    let heard = json!({"type": "input_audio_buffer.append", "audio": audio});
    let seen = json!({"type": "input_audio_buffer.append", "audio": audio, "force_listen": true,
        "video_frames": ["/9j/"], "max_slice_nums": 2});
    let mut pair = opened(older("mode=video", false, &[]));
    for (input, expected) in [
        (json!({"audio": audio}), &heard),
        (json!({"audio": {"data": audio}}), &heard),
        (json!({"audio": {"base64": audio}}), &heard),
        (json!({"audio": {"audio_base64": audio}}), &heard),
        (json!({"audio_base64": audio}), &heard),
        (json!({"audio_data": audio}), &heard),
        (json!({"audio": format!("data:audio/pcm;base64,{audio}")}), &heard),
        (json!({"audio": audio, "video_frames": ["/9j/"], "force_listen": true, "max_slice_nums": 2}), &seen),
        (
            json!({"audio": audio, "frames": ["/9j/"], "hints": {"force_listen": true, "max_slice_nums": 2}}),
            &seen,
        ),
        (
            json!({"audio": audio, "frame_base64_list": ["/9j/"], "force_listen": true, "max_slice_nums": 2}),
            &seen,
        ),
    ] {
        pair.client(&json!({"type": "input.append", "input": input}));
        pair.advance(ms(1000));
        let said: Value = serde_json::from_str(sent(&pair).last().unwrap()).unwrap();
        assert_eq!(&said, expected, "{input}");
    }
}

#[test]
fn a_voice_is_written_as_the_server_takes_it() {
    for documented in [false, true] {
        let mut pair = current(older("mode=audio", documented, &[]));
        let voice = base64_of(&vec![100; 3200]);
        pair.client(&json!({"type": "session.init", "payload": {"voice": {"ref_audio_base64": voice}}}));
        pair.advance(ms(20_000));
        assert_eq!(pair.names(), ["session.queue_done", "session.created"], "documented: {documented}");
        pair.client(&append(&zeros(1000)));
        pair.advance(ms(1000));
        assert_eq!(kinds(&pair), ["listen"]);
    }
}

#[test]
fn what_its_documented_server_refuses_may_be_said_again() {
    let mut pair = Pair::relayed(older("mode=audio", true, &[]), &["minicpm-o-legacy"]);
    pair.client(&json!({"type": "session.update", "session": {}}));
    pair.advance(ms(1000));
    assert_eq!(pair.names(), ["session.queue_done", "error"]);
    pair.client(&json!({"type": "session.update", "session": {"instructions": "p"}}));
    pair.advance(ms(1000));
    assert_eq!(pair.names(), ["session.queue_done", "error", "session.created"]);
    assert_eq!(pair.texts, received(&pair));
    // A client of the current dialect is told the end of it.
    let mut pair = current(older("mode=audio", true, &[]));
    let payload = json!({"system_prompt": "p", "voice": {"ref_audio_base64": "UklGRgAAAAAA"}});
    pair.client(&json!({"type": "session.init", "payload": payload}));
    pair.advance(ms(20_000));
    assert_eq!(pair.names().last().unwrap(), "close 1000", "{:?}", pair.names());
}

#[test]
fn a_lost_upstream_of_the_older_dialect_is_replaced_too() {
    for client in ["minicpm-o", "minicpm-o-legacy"] {
        let mut pair = Pair::relayed(older("mode=audio", false, &[]), &[client]);
        let native = client == "minicpm-o-legacy";
        let say = |pair: &mut Pair| {
            let audio = base64_of(&zeros(1000));
            let older = json!({"type": "input_audio_buffer.append", "audio": audio});
            pair.client(&if native { older } else { append(&zeros(1000)) });
            pair.advance(ms(1000));
        };
        pair.client(&if native { json!({"type": "session.update", "session": {}}) } else { init() });
        pair.advance(ms(500));
        (0..4).for_each(|_| say(&mut pair));
        pair.break_lanes();
        (0..3).for_each(|_| say(&mut pair));
        pair.advance(ms(5000));
        assert_eq!(pair.names()[..2], ["session.queue_done", "session.created"], "{client}");
        assert_eq!(pair.names().len(), 9, "{client}: {:?}", pair.names());
        assert!(!pair.closed());
    }
}

#[test]
fn there_is_no_chat() {
    let mut pair = current(older("mode=chat", false, &[]));
    pair.advance(ms(1000));
    assert_eq!(pair.names(), ["error", "session.closed", "close 1000"]);
    let words = pair.events("error")[0]["error"]["message"].as_str().unwrap().to_owned();
    assert!(words.contains("has no mode chat; it has `audio` and `video`"), "{words}");
    assert!(pair.finished && pair.traffic.is_empty());
}

#[test]
fn what_the_older_dialect_cannot_say_is_told_and_the_session_goes_on() {
    let mut pair = opened(older("mode=audio", false, &[]));
    pair.client(&json!({"type": "response.cancel"}));
    assert_eq!(pair.events("error")[0]["error"]["code"], "unknown_event");
    let mut odd = append(&zeros(1000));
    odd["input"]["volume"] = json!(11);
    pair.client(&odd);
    pair.client(&odd);
    assert_eq!(pair.events("error").len(), 2, "once");
    assert_eq!(pair.events("error")[1]["error"]["code"], "invalid_payload");
    pair.advance(ms(2000));
    assert_eq!(kinds(&pair), ["listen", "listen"]);
    // What the real server of the current dialect dies of, it dies of here as well.
    for message in [
        json!({"type": "input.append", "input": {}}),
        json!({"type": "input.append", "input": {"audio": "AAAA"}}),
    ] {
        let mut pair = opened(older("mode=audio", false, &[]));
        pair.client(&message);
        pair.advance(ms(5000));
        assert_eq!(pair.names()[2..], ["session.closed", "close 1000"]);
        assert_eq!(pair.events("session.closed")[0]["reason"], "backend_error");
        assert!(pair.finished);
    }
}

#[test]
fn its_ends_are_told_in_current_words() {
    for (fault, reason) in [("timeout=2", "timeout"), ("context-full=90", "context_full")] {
        let mut pair = opened(older("mode=audio", false, &[fault]));
        for second in seconds(4) {
            if pair.closed() {
                break;
            }
            pair.client(&append(&second));
            pair.advance(ms(1000));
        }
        assert_eq!(pair.events("session.closed").len(), 1, "{fault}: {:?}", pair.names());
        assert_eq!(pair.events("session.closed")[0]["reason"], reason);
        assert_eq!(pair.names().last().unwrap(), "close 1000");
        pair.advance(ms(10_000));
        assert!(pair.finished);
    }
}

#[test]
fn the_older_dialect_passes_through_to_its_own_server() {
    for documented in [false, true] {
        let mut pair = Pair::relayed(older("mode=audio", documented, &[]), &["minicpm-o-legacy"]);
        let mut said =
            vec![json!({"type": "session.update", "session": {"instructions": "p", "x": [1]}}).to_string()];
        pair.client_text(&said[0]);
        pair.advance(ms(1000));
        for second in seconds(6) {
            said.push(
                json!({"type": "input_audio_buffer.append", "audio": base64_of(&second), "y": null})
                    .to_string(),
            );
            pair.client_text(said.last().unwrap());
            pair.advance(ms(1000));
        }
        said.push(json!({"type": "session.close", "reason": "user_stop"}).to_string());
        pair.client_text(said.last().unwrap());
        pair.advance(ms(5000));
        assert_eq!(sent(&pair), said);
        assert_eq!(pair.texts, received(&pair));
        assert_eq!(pair.events("session.closed")[0]["reason"], "stopped");
        assert!(pair.finished);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_said_arrives_once_and_in_order(script in any_seconds(), documented: bool) {
        let mut pair = opened(older("mode=audio", documented, &[]));
        let mut said = Vec::new();
        for (at, step) in script.iter().enumerate() {
            let samples = second(at, step.loud);
            let mut message = append(&samples);
            message["input"]["force_listen"] = json!(step.forced);
            message["input"]["input_id"] = json!(at.to_string());
            said.push(message["input"]["audio"].clone());
            pair.client(&message);
            pair.advance(ms(step.pause));
        }
        pair.advance(ms(40_000));
        let heard: Vec<Value> = sent(&pair).iter().filter(|text| text.contains("_buffer.append")).map(|text| {
            serde_json::from_str::<Value>(text).unwrap()["audio"].clone()
        }).collect();
        prop_assert!(heard == said);
        let (told, came) = (spoken(pair.texts.iter().map(String::as_str)), spoken(received(&pair).into_iter()));
        prop_assert!(told == came);
        // The documented server may drop what comes too fast; the real one answers everything, and in order.
        if !documented {
            let deltas = pair.events("response.output.delta");
            let mut ids: Vec<usize> =
                deltas.iter().map(|delta| delta["input_id"].as_str().unwrap().parse().unwrap()).collect();
            prop_assert!(ids.is_sorted());
            ids.dedup();
            prop_assert_eq!(ids, (0..script.len()).collect::<Vec<_>>());
        }
    }
}
