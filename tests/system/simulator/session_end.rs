//! Session ends and their after-effects (mappings/notes/minicpm-o.md#queue,
//! mappings/notes/minicpm-o.md#stopping-a-chat).

use super::*;

/// Closes as the closure does, without waiting, and opens the next session.
fn connect_after(end: impl FnOnce(&mut TestGateway, ConnId), wait: Duration) -> (TestGateway, ConnId) {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let first = sim.open_chat_session();
    end(&mut sim, first);
    sim.advance(wait);
    let next = sim.connect();
    (sim, next)
}

fn drop_connection(sim: &mut TestGateway, conn: ConnId) {
    sim.input(SimInput::Closed(conn));
}

#[test]
fn dropped_connection_makes_worker_reject_next_session() {
    let (sim, next) = connect_after(drop_connection, Duration::ZERO);
    let message = "server rejected WebSocket connection: HTTP 403";
    let error = json!({"code": "session_failed", "message": message, "type": "server_error"});
    assert_eq!(
        sim.events_of(next),
        [json!({"type": "session.queue_done"}), json!({"type": "error", "error": error})]
    );
    assert_eq!(sim.end_of(next), normal_close());
    let (sim, next) = connect_after(drop_connection, Duration::from_millis(299));
    assert_eq!(sim.last_event(next)["type"], "error");
    let (sim, next) = connect_after(drop_connection, Duration::from_millis(300));
    assert_eq!(sim.last_event(next)["type"], "session.queue_done");
}

#[test]
fn closed_session_frees_worker_at_once() {
    let (sim, next) = connect_after(|sim, conn| sim.close_session(conn, "x"), Duration::ZERO);
    assert_eq!(sim.last_event(next)["type"], "session.queue_done");
}

#[test]
fn close_without_waiting_makes_worker_reject_next_session() {
    let close_without_waiting = |sim: &mut TestGateway, conn| {
        sim.send(conn, &json!({"type": "session.close"}));
        sim.input(SimInput::Closed(conn));
    };
    let (sim, next) = connect_after(close_without_waiting, Duration::ZERO);
    assert_eq!(sim.last_event(next)["type"], "error");
}

#[test]
fn close_mid_answer_leaves_generation_running() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut sim = TestGateway::with_backend(backend);
        let first = sim.open_chat_session();
        sim.send_append(first, tts_request(&"a long story ".repeat(20), true));
        sim.advance(Duration::from_millis(500));
        sim.close_session(first, "cancelled");
        assert_eq!(
            (sim.last_event(first)["type"].as_str(), sim.end_of(first)),
            (Some("session.closed"), normal_close())
        );
        let second = sim.open_chat_session();
        sim.append_and_wait(second, asr_request(16_000));
        let text = sim.last_event(second)["text"].as_str().unwrap().to_owned();
        assert_eq!(text, format!("{CORRUPTED_PREFIX}simulated transcript: 1.00 s of speech"));
        sim.append_and_wait(second, asr_request(16_000));
        assert_eq!(
            sim.last_event(second)["text"],
            "simulated transcript: 1.00 s of speech",
            "the orphaned generation ends eventually"
        );
    }
}

#[test]
fn drained_session_leaves_model_clean() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let first = sim.open_chat_session();
    sim.append_and_wait(first, tts_request(&"a long story ".repeat(20), true));
    sim.close_session(first, "done");
    let second = sim.open_chat_session();
    sim.append_and_wait(second, asr_request(16_000));
    assert_eq!(sim.last_event(second)["text"], "simulated transcript: 1.00 s of speech");
}

#[test]
fn second_append_waits_for_first_answer() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.send_append(conn, asr_request(16_000));
    sim.send_append(conn, asr_request(32_000));
    sim.advance(Duration::from_secs(5));
    let events = sim.events_of(conn);
    assert_eq!(
        event_names(&events)[2..],
        ["text", "text", "text", "response.done", "text", "text", "text", "response.done"]
    );
    assert_eq!(events[9]["text"], "simulated transcript: 2.00 s of speech");
    assert_ne!(events[5]["response_id"], events[9]["response_id"]);
}

#[test]
fn messages_after_close_are_ignored() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_chat_session();
    sim.send(conn, &json!({"type": "session.close"}));
    sim.input(SimInput::Text(conn, "nonsense"));
    sim.advance(Duration::from_secs(1));
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["session.closed"]);
    assert_eq!(sim.last_event(conn)["reason"], "client_closed");
    sim.send(conn, &json!({"type": "session.close"}));
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["session.closed"]);
}

#[test]
fn messages_wait_for_initialisation() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.connect();
    sim.send(conn, &json!({"type": "session.init", "payload": {}}));
    sim.send(conn, &json!({"type": "session.close", "reason": "early"}));
    sim.advance(Duration::from_secs(1));
    assert_eq!(
        event_names(&sim.events_of(conn)),
        ["session.queue_done", "session.created", "session.closed"]
    );
    assert_eq!(sim.last_event(conn)["reason"], "early");
}
