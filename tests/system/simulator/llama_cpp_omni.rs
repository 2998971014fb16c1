//! llama.cpp-omni's `/backend` (tools/server/ws_handler.cpp, protocol.cpp and server-omni.cpp of tc-mb/llama.cpp-omni).

use super::*;

fn server() -> TestGateway {
    TestGateway::new(SimulatorConfig { dialect: SimDialect::LlamaCppOmni, ..SimulatorConfig::default() })
}

fn open(sim: &mut TestGateway, payload: &Value) -> ConnId {
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.send(conn, &json!({"type": "session.init", "payload": payload}));
    sim.advance(Duration::from_secs(1));
    conn
}

fn append(samples: usize) -> Value {
    json!({"type": "input.append", "input": {"audio": base64_f32(&vec![0.0; samples])}})
}

#[test]
fn payload_names_the_mode_and_nothing_comes_before_the_session() {
    for (payload, mode) in [
        (json!({}), "full_duplex"),
        (json!({"mode": "full_duplex"}), "full_duplex"),
        (json!({"mode": "turn_based"}), "turn_based"),
    ] {
        let mut sim = server();
        let conn = open(&mut sim, &payload);
        let outputs = sim.outputs_of(conn);
        assert!(
            matches!(&outputs[..], [ServerOutput::Event(it)] if it["type"] == "session.created" && it["mode"] == mode),
            "{outputs:?}"
        );
    }
    let mut sim = server();
    let conn = open(&mut sim, &json!({"mode": "chat"}));
    assert_eq!(sim.outputs_of(conn), [ServerOutput::Close(1000, String::new())], "an unknown mode");
}

#[test]
fn second_session_is_closed_without_an_event_until_the_first_has_left() {
    let mut sim = server();
    let first = open(&mut sim, &json!({}));
    let second = open(&mut sim, &json!({}));
    assert_eq!(sim.outputs_of(second), [ServerOutput::Close(1000, String::new())]);
    sim.input(SimInput::Closed(first));
    let third = open(&mut sim, &json!({}));
    assert_eq!(sim.last_event(third)["type"], "session.created");
}

#[test]
fn messages_that_the_server_does_not_take_end_the_session_with_a_reason() {
    for (message, reason) in [
        (json!({"type": "session.close"}), "unexpected_message_type"),
        (json!({"type": "session.init", "payload": {}}), "unexpected_message_type"),
        (json!({"type": "input.append"}), "invalid_input"),
        (json!({"type": "input.append", "input": {}}), "missing_audio"),
        (json!({"type": "input.append", "input": {"messages": []}}), "mode_mismatch"),
        (append(30 * 16_000 + 1), "invalid_input"),
    ] {
        let mut sim = server();
        let conn = open(&mut sim, &json!({}));
        sim.send(conn, &message);
        sim.advance(Duration::from_secs(1));
        let outputs = sim.outputs_of(conn);
        assert!(
            matches!(&outputs[1..], [ServerOutput::Event(it), ServerOutput::Close(1000, _)]
                if it["type"] == "session.closed" && it["reason"] == reason),
            "{message}: {outputs:?}"
        );
    }
    let mut sim = server();
    let conn = open(&mut sim, &json!({}));
    sim.send(conn, &append(30 * 16_000));
    sim.advance(Duration::from_secs(1));
    assert_eq!(sim.last_event(conn)["kind"], "listen");
}

#[test]
fn session_ends_on_request_and_frees_the_server_at_once() {
    let mut sim = server();
    let conn = open(&mut sim, &json!({}));
    let id = sim.last_event(conn)["session_id"].as_str().unwrap().to_owned();
    let post = |sim: &mut TestGateway, id: &str| {
        let page = sim.gateway.handle_http(sim.now, "POST", &format!("/sessions/{id}/close"));
        sim.advance(Duration::ZERO);
        page.status
    };
    assert_eq!(post(&mut sim, "sess_other"), 404);
    assert_eq!(post(&mut sim, &id), 200);
    assert_eq!(sim.last_event(conn)["reason"], "client_closed");
    assert_eq!(sim.gateway.handle_http(sim.now, "GET", "/health").status, 200);
    let next = open(&mut sim, &json!({}));
    assert_eq!(sim.last_event(next)["type"], "session.created");
}
