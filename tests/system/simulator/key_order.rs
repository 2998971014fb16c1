//! The members of an event come in the order of the captures (mappings/notes/minicpm-o.md#queue,
//! mappings/notes/minicpm-o.md#events).

use super::*;

/// The name of an event, and its members in their order.
fn members(text: &str) -> (String, Vec<String>) {
    let event: Value = serde_json::from_str(text).unwrap();
    let mut names: Vec<String> = event.as_object().unwrap().keys().cloned().collect();
    names.sort_by_key(|name| text.find(&format!("\"{name}\":")).unwrap());
    let kind = event.get("kind").or(event.get("type")).unwrap();
    (kind.as_str().unwrap().to_owned(), names)
}

/// Checks the order of the members of every event of this name.
fn assert_order(sim: &TestGateway, name: &str, order: &str) {
    let texts = sim.outputs.iter().filter_map(|output| match output {
        SimOutput::Text(_, text) => Some(members(text)),
        _ => None,
    });
    let found: Vec<_> = texts.filter(|(kind, _)| kind == name).collect();
    assert!(!found.is_empty(), "no {name}");
    for (_, names) in found {
        assert_eq!(names.join(" "), order, "{name}");
    }
}

#[test]
fn queue_events_and_errors_begin_with_their_type() {
    let mut sim = TestGateway::new(SimulatorConfig { queue_limit: 1, ..SimulatorConfig::default() });
    sim.open_chat_session();
    sim.connect();
    sim.advance(Duration::from_secs(4));
    sim.connect();
    assert_order(&sim, "session.queued", "type position estimated_wait_s ticket_id queue_length");
    assert_order(&sim, "session.queue_update", "type position estimated_wait_s queue_length");
    assert_order(&sim, "error", "type error");
    let SimOutput::Text(_, error) = &sim.outputs[sim.outputs.len() - 2] else { panic!("no error") };
    let expected =
        r#"{"type":"error","error":{"code":"queue_full","message":"Queue full","type":"server_error"}}"#;
    assert_eq!(error, expected);
}

#[test]
fn session_events_have_the_captured_order() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.connect_with_mode(SimMode::Audio);
    sim.send(conn, &json!({"type": "session.init", "payload": {}}));
    sim.advance(Duration::from_secs(1));
    sim.append_and_wait(conn, json!({"audio": speech_base64(16_000)}));
    sim.advance(Duration::from_secs(600));
    assert_order(&sim, "session.created", "type session_id mode metrics server_send_ts");
    assert_order(&sim, "listen", "type kind session_id metrics server_send_ts");
    assert_order(&sim, "session.closed", "type reason");
}

#[test]
fn legacy_events_have_the_captured_order() {
    let dialect = SimDialect::Legacy { follows_document: false };
    let mut sim = TestGateway::new(SimulatorConfig { dialect, ..SimulatorConfig::default() });
    let conn = sim.connect_with_mode(SimMode::Audio);
    sim.send(conn, &json!({"type": "session.update", "session": {}}));
    sim.advance(Duration::from_secs(1));
    for level in [0.1, 0.1, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0] {
        let audio = base64_f32(&[level; 16_000]);
        sim.send(conn, &json!({"type": "input_audio_buffer.append", "audio": audio}));
        sim.advance(Duration::from_secs(1));
    }
    sim.send(conn, &json!({"type": "session.close"}));
    sim.advance(Duration::from_secs(1));
    assert_order(&sim, "session.created", "type session_id prompt_length");
    assert_order(&sim, "response.listen", "type kv_cache_length");
    assert_order(&sim, "response.output_audio.delta", "type text audio end_of_turn kv_cache_length");
    assert_order(&sim, "session.closed", "type reason");
}
