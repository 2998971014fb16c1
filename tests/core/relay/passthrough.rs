//! A client and an upstream of one dialect: every message passes unchanged in both directions.

use proptest::prelude::*;

use super::{harness::zeros, *};

#[test]
fn audio_session_passes_unchanged() {
    for config in [config("mode=audio", &[]), cpp_config("mode=audio", &[])] {
        let mut harness = connect_current(config);
        let mut sent = vec![init_message().to_string()];
        harness.send_text(&sent[0]);
        for second in question_seconds(6) {
            sent.push(append_message(&second).to_string());
            harness.send_text(sent.last().unwrap());
            harness.advance(ms(1000));
        }
        sent.push(json!({"type": "session.close", "reason": "user_stop"}).to_string());
        harness.send_text(sent.last().unwrap());
        harness.advance(ms(5000));
        assert_eq!(sent_texts(&harness), sent);
        assert_eq!(harness.texts, received_texts(&harness));
        assert_eq!(harness.names().last().unwrap(), "close 1000");
        assert!(harness.texts.iter().any(|text| text.contains("\"audio\"")), "the model has spoken");
        assert!(harness.finished);
    }
}

#[test]
fn chat_passes_unchanged() {
    let mut harness = open_session(config("mode=chat", &[]));
    for turn in ["Hello", "and again"] {
        harness.send_json(&chat_message(turn));
        harness.advance(ms(5000));
    }
    assert_eq!(harness.events("response.done").len(), 2);
    harness.send_json(&json!({"type": "session.close", "reason": "turn_done"}));
    harness.advance(ms(100));
    assert_eq!(harness.events("session.closed")[0]["reason"], "turn_done");
    assert_eq!(harness.texts, received_texts(&harness));
    assert!(harness.finished);
}

#[test]
fn early_messages_wait_for_upstream() {
    let mut config = config("mode=audio", &[]);
    config.latency = ms(50);
    let mut harness = connect_current(config);
    harness.send_json(&init_message());
    harness.send_json(&append_message(&zeros(1000)));
    harness.advance(ms(1000));
    assert_eq!(harness.names(), ["session.queue_done", "session.created", "response.output.delta"]);
}

#[test]
fn append_before_init_opens_session() {
    let mut harness = connect_current(config("mode=audio", &[]));
    harness.send_json(&append_message(&zeros(1000)));
    harness.send_json(&append_message(&zeros(1000)));
    harness.advance(ms(1000));
    let names = ["session.queue_done", "session.created", "response.output.delta", "response.output.delta"];
    assert_eq!(harness.names(), names);
    assert_eq!(harness.units.len(), 2, "no unit is lost or repeated");
}

#[test]
fn queue_events_pass_unchanged() {
    let mut harness = connect_current(config("mode=audio", &["stuck-queue,times=1"]));
    harness.advance(ms(7000));
    assert_eq!(harness.names(), ["session.queued", "session.queue_update", "session.queue_update"]);
    assert_eq!(harness.texts, received_texts(&harness));
}

#[test]
fn disconnect_sends_session_close_upstream() {
    let mut harness = open_session(config("mode=audio", &[]));
    harness.close_client();
    harness.advance(ms(1000));
    assert_eq!(sent_texts(&harness).last().unwrap(), &r#"{"type":"session.close","reason":"turn_done"}"#);
    assert!(harness.finished && received_texts(&harness).last().unwrap().contains("session.closed"));
    // A chat answer cannot be stopped: the bridge waits for its end.
    let mut harness = open_session(config("mode=chat", &[]));
    harness.send_json(&chat_message("Hello"));
    harness.advance(ms(200));
    harness.close_client();
    harness.advance(ms(10_000));
    let all = received_texts(&harness);
    let done = all.iter().position(|text| text.contains("response.done")).unwrap();
    assert!(all[done..].iter().any(|text| text.contains("session.closed")) && harness.finished);
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
            vec(inner.clone(), 0..6).prop_map(Value::from),
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
    fn arbitrary_json_objects_pass_unchanged(
        up in vec((any_object(), 0..4usize), 1..6),
        down in vec((any_object(), 0..5usize), 1..6),
    ) {
        let mut harness = open_session(config("mode=audio", &[]));
        let lane = newest_lane(&harness);
        for (mut event, kind) in down {
            let types = ["session.resume", "response.output.delta", "response.done", "x", "session.created"];
            event["type"] = json!(types[kind]);
            event["kind"] = json!(["text", "audio", "listen", "other", ""][kind]);
            let text = event.to_string();
            let text_count = harness.texts.len();
            harness.inject_upstream_text(lane, &text);
            prop_assert_eq!(&harness.texts[text_count..], std::slice::from_ref(&text));
        }
        for (mut message, kind) in up {
            message["type"] = json!(["input.append", "session.init", "input.tool_result", "x"][kind]);
            message["input"] = json!({"x": message.clone()});
            message["payload"] = json!({"x": message.clone()});
            let text = message.to_string();
            harness.send_text(&text);
            prop_assert!(sent_texts(&harness).contains(&text.as_str()));
            if harness.is_closed() {
                break;
            }
        }
    }
}

/// The type of the event that a bridge sends its client.
fn event_type(outputs: &[Output]) -> Value {
    let Some(Output::ToClient(Message::Text(text), None)) = outputs.first() else { panic!("{outputs:?}") };
    serde_json::from_str::<Value>(text).unwrap()["type"].clone()
}

#[test]
fn client_of_dialect_without_queue_gets_whole_events_and_closes_by_socket() {
    let own = include_str!("../../../mappings/client/minicpm-o.toml")
        .replacen("name = \"minicpm-o\"", "name = \"own\"", 1)
        .replacen("dialect = \"minicpm-o\"", "dialect = \"llama-cpp-omni\"", 1)
        .replacen("/v1/realtime", "/own", 1);
    let mut library = Library::embedded().unwrap();
    library.add("own.toml", &own).unwrap();
    let opening = Opening::new(&library, "own", "llama-cpp-omni", "relay");
    let mut session = Opening { query: "mode=audio", ..opening }.open_relay(&["own"], 0);
    let without_observations = |mut outputs: Vec<Output>| {
        outputs.retain(|output| !matches!(output, Output::Observe(_)));
        outputs
    };
    let [Output::OpenLane(lane, ..)] = without_observations(session.opened())[..] else { panic!("no lane") };
    let mut answer = |input: Input<'_>| without_observations(session.input(input));
    assert_eq!(event_type(&answer(Input::LaneQueued(lane, 2))), "session.queued");
    assert_eq!(event_type(&answer(Input::LaneOpened(lane))), "session.queue_done");
    let init = init_message().to_string();
    assert_eq!(
        answer(Input::Client(Frame::Text(&init))),
        [Output::ToLane(lane, Message::Text(init.clone()))]
    );
    let created = r#"{"type": "session.created", "session_id": "s"}"#;
    assert_eq!(event_type(&answer(Input::Lane(lane, Frame::Text(created)))), "session.created");
    let close = r#"{"type": "session.close"}"#;
    assert_eq!(
        answer(Input::Client(Frame::Text(close))),
        [Output::ToLane(lane, Message::Close(1000, String::new()))]
    );
    let closed = Input::LaneClosed(lane, DisconnectReason::Closed(1000, String::new()));
    assert_eq!(event_type(&answer(closed)), "session.closed");
}
