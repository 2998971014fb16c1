//! A client on an upstream that spells as it does: everything passes as it came, both ways.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    pair::zeros,
    support::{append, chat, config, cpp, current, init, lane, ms, opened, received, seconds, sent},
};

#[test]
fn an_audio_session_passes_as_it_is() {
    for config in [config("mode=audio", &[]), cpp("mode=audio", &[])] {
        let mut pair = current(config);
        let mut said = vec![init().to_string()];
        pair.client_text(&said[0]);
        for second in seconds(6) {
            said.push(append(&second).to_string());
            pair.client_text(said.last().unwrap());
            pair.advance(ms(1000));
        }
        said.push(json!({"type": "session.close", "reason": "user_stop"}).to_string());
        pair.client_text(said.last().unwrap());
        pair.advance(ms(5000));
        assert_eq!(sent(&pair), said);
        assert_eq!(pair.texts, received(&pair));
        assert_eq!(pair.names().last().unwrap(), "close 1000");
        assert!(pair.texts.iter().any(|text| text.contains("\"audio\"")), "the model has spoken");
        assert!(pair.finished);
    }
}

#[test]
fn a_chat_passes_as_it_is() {
    let mut pair = opened(config("mode=chat", &[]));
    for turn in ["Hello", "and again"] {
        pair.client(&chat(turn));
        pair.advance(ms(5000));
    }
    assert_eq!(pair.events("response.done").len(), 2);
    pair.client(&json!({"type": "session.close", "reason": "turn_done"}));
    pair.advance(ms(100));
    assert_eq!(pair.events("session.closed")[0]["reason"], "turn_done");
    assert_eq!(pair.texts, received(&pair));
    assert!(pair.finished);
}

#[test]
fn what_comes_too_early_waits_for_the_upstream() {
    let mut config = config("mode=audio", &[]);
    config.latency = ms(50);
    let mut pair = current(config);
    pair.client(&init());
    pair.client(&append(&zeros(1000)));
    pair.advance(ms(1000));
    assert_eq!(pair.names(), ["session.queue_done", "session.created", "response.output.delta"]);
}

#[test]
fn an_append_may_come_first() {
    let mut pair = current(config("mode=audio", &[]));
    pair.client(&append(&zeros(1000)));
    pair.client(&append(&zeros(1000)));
    pair.advance(ms(1000));
    let names = ["session.queue_done", "session.created", "response.output.delta", "response.output.delta"];
    assert_eq!(pair.names(), names);
    assert_eq!(pair.units.len(), 2, "neither lost nor told twice");
}

#[test]
fn a_queue_is_told_as_it_is() {
    let mut pair = current(config("mode=audio", &["stuck-queue,times=1"]));
    pair.advance(ms(7000));
    assert_eq!(pair.names(), ["session.queued", "session.queue_update", "session.queue_update"]);
    assert_eq!(pair.texts, received(&pair));
}

#[test]
fn who_leaves_without_a_word_leaves_politely() {
    let mut pair = opened(config("mode=audio", &[]));
    pair.close_client();
    pair.advance(ms(1000));
    assert_eq!(sent(&pair).last().unwrap(), &r#"{"type":"session.close","reason":"turn_done"}"#);
    assert!(pair.finished && received(&pair).last().unwrap().contains("session.closed"));
    // In the middle of a chat answer, which cannot be stopped, it is waited out.
    let mut pair = opened(config("mode=chat", &[]));
    pair.client(&chat("Hello"));
    pair.advance(ms(200));
    pair.close_client();
    pair.advance(ms(10_000));
    let all = received(&pair);
    let done = all.iter().position(|text| text.contains("response.done")).unwrap();
    assert!(all[done..].iter().any(|text| text.contains("session.closed")) && pair.finished);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

fn any_object() -> impl Strategy<Value = Value> {
    let map = prop::collection::btree_map(any::<String>(), any_json(), 0..6);
    map.prop_map(|map| Value::Object(map.into_iter().collect()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn objects_of_any_kind_survive(
        up in prop::collection::vec((any_object(), 0..4usize), 1..6),
        down in prop::collection::vec((any_object(), 0..5usize), 1..6),
    ) {
        let mut pair = opened(config("mode=audio", &[]));
        let lane = lane(&pair);
        for (mut event, kind) in down {
            let types = ["session.resume", "response.output.delta", "response.done", "x", "session.created"];
            event["type"] = json!(types[kind]);
            event["kind"] = json!(["text", "audio", "listen", "other", ""][kind]);
            let text = event.to_string();
            let seen = pair.texts.len();
            pair.upstream_says(lane, &text);
            prop_assert_eq!(&pair.texts[seen..], std::slice::from_ref(&text));
        }
        for (mut message, kind) in up {
            message["type"] = json!(["input.append", "session.init", "input.tool_result", "x"][kind]);
            message["input"] = json!({"x": message.clone()});
            message["payload"] = json!({"x": message.clone()});
            let text = message.to_string();
            pair.client_text(&text);
            prop_assert!(sent(&pair).contains(&text.as_str()));
            if pair.closed() {
                break;
            }
        }
    }
}
