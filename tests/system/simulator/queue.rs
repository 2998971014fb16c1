//! The queue for a worker (mappings/notes/minicpm-o.md#queue).

use super::*;

#[test]
fn query_selects_mode() {
    use voxbridge::simulator::parse_mode;
    assert_eq!(parse_mode(Some("mode=chat")), Ok(SimMode::Chat));
    assert_eq!(parse_mode(Some("client_id=x&mode=ch%61t")), Ok(SimMode::Chat));
    assert_eq!(parse_mode(Some("mode=audio")), Ok(SimMode::Audio));
    for video in [None, Some(""), Some("client_id=x"), Some("mode=chat&mode=video")] {
        assert_eq!(parse_mode(video), Ok(SimMode::Video), "{video:?}");
    }
    for refused in [Some("mode="), Some("mode=Chat"), Some("mode=Audio"), Some("mode=chat&mode=x")] {
        assert_eq!(parse_mode(refused).unwrap_err().status, 403, "{refused:?}");
    }
}

#[test]
fn queued_connections_are_served_in_order() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let first = sim.open_chat_session();
    let second = sim.connect();
    let third = sim.connect();
    let ticket = sim.last_event(second)["ticket_id"].as_str().unwrap().to_owned();
    assert!(ticket.len() == 14 && ticket.starts_with("q_"));
    assert_eq!(
        sim.last_event(second),
        json!({"type": "session.queued", "position": 1, "estimated_wait_s": 15.0, "ticket_id": ticket, "queue_length": 1})
    );
    assert_has(&sim.last_event(third), json!({"/position": 2, "/queue_length": 2}));
    sim.advance(Duration::from_secs(7));
    assert_eq!(
        event_names(&sim.events_of(second)),
        ["session.queued", "session.queue_update", "session.queue_update"]
    );
    assert_eq!(
        sim.last_event(second),
        json!({"type": "session.queue_update", "position": 1, "estimated_wait_s": 9.0, "queue_length": 2})
    );
    sim.close_session(first, "x");
    assert_eq!(sim.last_event(second), json!({"type": "session.queue_done"}));
    sim.advance(Duration::from_secs(3));
    assert_eq!(sim.last_event(third)["position"], 1);
}

/// The health check takes a worker in cleanup for busy with a task that the gateway knows nothing about.
#[test]
fn health_check_during_cleanup_stalls_the_queue_for_ten_seconds() {
    let mut sim = TestGateway::with_faults(&["health-check-stall,times=1"]);
    let first = sim.open_chat_session();
    sim.input(SimInput::Closed(first));
    let second = sim.connect();
    assert_eq!(sim.last_event(second)["estimated_wait_s"], 0.0);
    let page = sim.gateway.http_page(sim.now, "GET", "/status").json;
    assert!(page.contains(r#""idle_workers":0,"busy_workers":1,"#) && page.contains(r#""running_tasks":[]"#));
    sim.advance(Duration::from_millis(9_999));
    assert_eq!(sim.last_event(second)["type"], "session.queue_update");
    assert_eq!(sim.last_event(second)["estimated_wait_s"], 0.0);
    sim.advance(Duration::from_millis(1));
    assert_eq!(sim.last_event(second), json!({"type": "session.queue_done"}));
    sim.close_session(second, "x");
    sim.input(SimInput::Closed(second));
    let third = sim.connect();
    assert_eq!(sim.last_event(third)["type"], "session.queue_done", "the fault occurs once");
}

#[test]
fn two_workers_serve_two_sessions() {
    let mut sim = TestGateway::new(SimulatorConfig { workers: 2, ..SimulatorConfig::default() });
    sim.open_chat_session();
    sim.open_chat_session();
    let third = sim.connect();
    assert_eq!(sim.last_event(third)["type"], "session.queued");
}

#[test]
fn frames_sent_while_queued_are_delivered_later() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let first = sim.open_chat_session();
    let second = sim.connect();
    sim.send(second, &json!({"type": "session.init", "payload": {}}));
    sim.send_append(second, asr_request(16_000));
    sim.close_session(first, "x");
    sim.advance(Duration::from_secs(2));
    assert_eq!(
        event_names(&sim.events_of(second)),
        ["session.queued", "session.queue_done", "session.created", "text", "text", "text", "response.done"]
    );
}

#[test]
fn full_queue_rejects_connection() {
    let mut sim = TestGateway::new(SimulatorConfig { queue_limit: 1, ..SimulatorConfig::default() });
    sim.open_chat_session();
    let waiting = sim.connect();
    let refused = sim.connect();
    let error = json!({"code": "queue_full", "message": "Queue full", "type": "server_error"});
    assert_eq!(sim.last_event(refused), json!({"type": "error", "error": error}));
    assert_eq!(sim.end_of(refused), Some(ServerOutput::Close(1013, "Queue full".to_owned())));
    sim.input(SimInput::Closed(waiting));
    sim.advance(Duration::from_secs(3));
    let next = sim.connect();
    assert_eq!(sim.last_event(next)["position"], 1, "the failed update makes room");
}

/// Both real gateways send `session.queue_done` outside their `try`.
#[test]
fn worker_assigned_to_a_client_that_left_the_queue_is_lost() {
    let legacy = SimDialect::Legacy { follows_document: false };
    for (dialect, faults, waits_ms, lost) in [
        (SimDialect::Current, None, 2_999, 1),
        (legacy, None, 2_999, 1),
        (SimDialect::Current, None, 3_000, 0),
        (legacy, None, 3_000, 0),
        (SimDialect::Current, Some("notices-leavers"), 0, 0),
    ] {
        let faults = faults.into_iter().map(|fault: &str| fault.parse().unwrap()).collect();
        let mut sim = TestGateway::new(SimulatorConfig { dialect, faults, ..SimulatorConfig::default() });
        let first = sim.connect_with_mode(SimMode::Audio);
        let leaver = sim.connect_with_mode(SimMode::Audio);
        sim.input(SimInput::Closed(leaver));
        sim.advance(Duration::from_millis(waits_ms));
        sim.input(SimInput::Closed(first));
        sim.advance(Duration::from_secs(3600));
        assert_eq!(sim.gateway.lost_worker_count(), lost, "{dialect:?} {waits_ms}");
        assert_eq!(sim.gateway.connection_count(), 0);
        let next = sim.connect_with_mode(SimMode::Audio);
        let first_event = if lost == 1 { "session.queued" } else { "session.queue_done" };
        assert_eq!(event_names(&sim.events_of(next))[0], first_event, "{dialect:?} {waits_ms}");
        let page = sim.gateway.http_page(sim.now, "GET", "/status").json;
        assert!(lost == 0 || page.contains(r#""idle_workers":0,"busy_workers":1,"#), "{page}");
    }
}

#[test]
fn estimated_wait_agrees_with_the_status_page() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    sim.connect_with_mode(SimMode::Audio);
    sim.advance(Duration::from_millis(100));
    let second = sim.connect();
    let third = sim.connect();
    assert_eq!(sim.last_event(second)["estimated_wait_s"], 119.9);
    assert_eq!(sim.last_event(third)["estimated_wait_s"], 134.9, "the chat before it takes 15 s");
    let page = sim.gateway.http_page(sim.now, "GET", "/status").json;
    assert!(page.contains(r#""estimated_remaining_s":119.9"#), "{page}");
    sim.advance(Duration::from_secs(180));
    assert_eq!(sim.last_event(second)["estimated_wait_s"], 15.0, "the task is overdue");
}

#[test]
fn queued_connection_with_too_many_frames_fails() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    sim.open_chat_session();
    let flood = sim.connect();
    for _ in 0..1_025 {
        sim.input(SimInput::Text(flood, "{}"));
    }
    assert_eq!(sim.end_of(flood), normal_close());
    assert_eq!(sim.gateway.connection_count(), 1);
}

#[test]
fn long_queue_of_dying_sessions_drains() {
    let mut sim = TestGateway::new(SimulatorConfig { queue_limit: 3_000, ..SimulatorConfig::default() });
    let first = sim.open_chat_session();
    for _ in 0..3_000 {
        let waiting = sim.connect();
        sim.input(SimInput::Text(waiting, "[]"));
    }
    sim.close_session(first, "x");
    assert_eq!(sim.gateway.connection_count(), 0);
}
