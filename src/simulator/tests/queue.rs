//! Waiting for a worker (field notes §1.2).

use super::*;

#[test]
fn a_query_decides_the_mode() {
    use crate::simulator::decide;
    assert_eq!(decide(Some("mode=chat")), Ok(Mode::Chat));
    assert_eq!(decide(Some("client_id=x&mode=ch%61t")), Ok(Mode::Chat));
    assert_eq!(decide(Some("mode=audio")), Ok(Mode::Audio));
    for video in [None, Some(""), Some("client_id=x"), Some("mode=chat&mode=video")] {
        assert_eq!(decide(video), Ok(Mode::Video), "{video:?}");
    }
    for refused in [Some("mode="), Some("mode=Chat"), Some("mode=Audio"), Some("mode=chat&mode=x")] {
        assert_eq!(decide(refused).unwrap_err().status, 403, "{refused:?}");
    }
}

#[test]
fn those_who_wait_are_served_in_order() {
    let mut lab = Lab::on(Backend::Pytorch);
    let first = lab.session();
    let second = lab.connect();
    let third = lab.connect();
    let ticket = lab.last(second)["ticket_id"].as_str().unwrap().to_owned();
    assert!(ticket.len() == 14 && ticket.starts_with("q_"));
    assert_eq!(
        lab.last(second),
        json!({"type": "session.queued", "position": 1, "estimated_wait_s": 0.8, "ticket_id": ticket, "queue_length": 1})
    );
    assert_eq!((&lab.last(third)["position"], &lab.last(third)["queue_length"]), (&json!(2), &json!(2)));
    lab.pass(Duration::from_secs(7));
    assert_eq!(
        names(&lab.events(second)),
        ["session.queued", "session.queue_update", "session.queue_update"]
    );
    assert_eq!(
        lab.last(second),
        json!({"type": "session.queue_update", "position": 1, "estimated_wait_s": 0.8, "queue_length": 2})
    );
    lab.close(first, "x");
    assert_eq!(lab.last(second), json!({"type": "session.queue_done"}));
    lab.pass(Duration::from_secs(3));
    assert_eq!(lab.last(third)["position"], 1);
}

#[test]
fn two_workers_serve_two() {
    let mut lab = Lab::new(SimulatorConfig { workers: 2, ..SimulatorConfig::default() });
    lab.session();
    lab.session();
    let third = lab.connect();
    assert_eq!(lab.last(third)["type"], "session.queued");
}

#[test]
fn frames_sent_early_are_delivered_later() {
    let mut lab = Lab::on(Backend::Pytorch);
    let first = lab.session();
    let second = lab.connect();
    lab.send(second, &json!({"type": "session.init", "payload": {}}));
    lab.append(second, asr(16_000));
    lab.close(first, "x");
    lab.pass(Duration::from_secs(2));
    assert_eq!(
        names(&lab.events(second)),
        ["session.queued", "session.queue_done", "session.created", "text", "text", "text", "response.done"]
    );
}

#[test]
fn a_full_queue_refuses() {
    let mut lab = Lab::new(SimulatorConfig { queue_limit: 1, ..SimulatorConfig::default() });
    lab.session();
    let waiting = lab.connect();
    let refused = lab.connect();
    let error = json!({"code": "queue_full", "message": "Queue full", "type": "server_error"});
    assert_eq!(lab.last(refused), json!({"type": "error", "error": error}));
    assert_eq!(lab.ended(refused), Some(Seen::Close(1013, "Queue full".to_owned())));
    lab.input(SimInput::Closed(waiting));
    let next = lab.connect();
    assert_eq!(lab.last(next)["position"], 1, "who leaves the queue makes room");
}

#[test]
fn nobody_fills_the_memory_of_the_queue() {
    let mut lab = Lab::on(Backend::Pytorch);
    lab.session();
    let flood = lab.connect();
    for _ in 0..1_025 {
        lab.input(SimInput::Text(flood, "{}"));
    }
    assert_eq!(lab.ended(flood), polite());
    assert_eq!(lab.gateway.connections(), 1);
}

#[test]
fn a_long_queue_of_doomed_sessions_unwinds() {
    let mut lab = Lab::new(SimulatorConfig { queue_limit: 3_000, ..SimulatorConfig::default() });
    let first = lab.session();
    for _ in 0..3_000 {
        let waiting = lab.connect();
        lab.input(SimInput::Text(waiting, "[]"));
    }
    lab.close(first, "x");
    assert_eq!(lab.gateway.connections(), 0);
}
