//! Each fault by its command-line name, and the recovery after it.

use super::*;

/// Runs one ASR session to its end.
fn run_asr_session(sim: &mut TestGateway) -> ConnId {
    let conn = sim.connect();
    sim.send(conn, &json!({"type": "session.init", "payload": {}}));
    sim.send_append(conn, asr_request(16_000));
    sim.advance(Duration::from_secs(2));
    if sim.end_of(conn).is_none() {
        sim.close_session(conn, "x");
    }
    conn
}

fn assert_recovers(sim: &mut TestGateway) {
    sim.advance(Duration::from_millis(300));
    let conn = run_asr_session(sim);
    let events = sim.events_of(conn);
    assert_eq!(events[events.len() - 2]["text"], "simulated transcript: 1.00 s of speech", "{events:?}");
}

#[test]
fn queue_full_and_busy_faults_close_with_1013() {
    for (fault, code, message) in [
        ("queue-full,times=1", "queue_full", "Queue full"),
        ("busy,times=1", "worker_busy", "No worker available"),
    ] {
        let mut sim = TestGateway::with_faults(&[fault]);
        let conn = sim.connect();
        assert_eq!(sim.last_event(conn)["error"]["code"], code);
        assert_eq!(sim.end_of(conn), Some(ServerOutput::Close(1013, message.to_owned())));
        assert_recovers(&mut sim);
    }
}

#[test]
fn fault_403_after_queue_sends_session_failed() {
    let mut sim = TestGateway::with_faults(&["403-after-queue=2"]);
    for _ in 0..2 {
        let conn = sim.connect();
        assert_eq!(event_names(&sim.events_of(conn)), ["session.queue_done", "error"]);
        assert_eq!(sim.end_of(conn), normal_close());
    }
    assert_recovers(&mut sim);
}

#[test]
fn stuck_queue_fault_keeps_sending_updates() {
    let mut sim = TestGateway::with_faults(&["stuck-queue,times=1"]);
    let stuck = sim.connect();
    sim.advance(Duration::from_secs(30));
    assert_eq!(
        event_names(&sim.events_of(stuck)).iter().filter(|name| *name == "session.queue_update").count(),
        10
    );
    assert_recovers(&mut sim);
    assert_eq!(sim.last_event(stuck)["type"], "session.queue_update");
}

#[test]
fn slow_init_fault_delays_session_created() {
    let mut sim = TestGateway::with_faults(&["slow-init=9.5,times=1"]);
    let conn = sim.connect();
    sim.send(conn, &json!({"type": "session.init", "payload": {}}));
    sim.advance(Duration::from_millis(9_539));
    assert_eq!(sim.last_event(conn)["type"], "session.queue_done");
    sim.advance(Duration::from_millis(1));
    assert_eq!(sim.last_event(conn)["type"], "session.created");
    sim.close_session(conn, "x");
    assert_recovers(&mut sim);
}

#[test]
fn die_before_created_fault_closes_without_session_id() {
    let mut sim = TestGateway::with_faults(&["die-before-created,times=1"]);
    let conn = run_asr_session(&mut sim);
    assert_eq!(
        sim.last_event(conn),
        json!({"type": "session.closed", "session_id": null, "reason": "backend_error"})
    );
    assert_recovers(&mut sim);
}

#[test]
fn die_mid_answer_fault_ends_in_backend_error() {
    let mut sim = TestGateway::with_faults(&["die-mid-answer=1,times=1"]);
    let conn = run_asr_session(&mut sim);
    let events = sim.events_of(conn);
    assert_eq!(event_names(&events)[2..], ["text", "session.closed"]);
    assert_eq!(events[3]["reason"], "backend_error");
    assert_eq!(events[3]["diagnostic"]["message"], "simulated: the generator died");
    assert_recovers(&mut sim);
    let mut sim = TestGateway::with_faults(&["die-mid-answer=99"]);
    let conn = run_asr_session(&mut sim);
    assert_eq!(
        event_names(&sim.events_of(conn))[2..],
        ["text", "text", "text", "session.closed"],
        "at the latest before response.done"
    );
}

#[test]
fn drop_mid_answer_fault_aborts_connection() {
    let mut sim = TestGateway::with_faults(&["drop-mid-answer=1,times=1"]);
    let conn = run_asr_session(&mut sim);
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["text"]);
    assert_eq!(sim.end_of(conn), Some(ServerOutput::Abort));
    assert_recovers(&mut sim);
}

#[test]
fn empty_transcript_kills_pytorch_and_is_empty_from_cpp() {
    let mut sim = TestGateway::with_faults(&["empty-transcript,times=1"]);
    let conn = run_asr_session(&mut sim);
    let closed = sim.last_event(conn);
    assert_eq!(closed["diagnostic"]["message"], "torch.cat(): expected a non-empty list of Tensors");
    assert_eq!((&closed["reason"], sim.end_of(conn)), (&json!("backend_error"), normal_close()));
    assert_recovers(&mut sim);
    let faults = vec!["empty-transcript".parse().unwrap()];
    let mut sim =
        TestGateway::new(SimulatorConfig { faults, backend: Backend::Cpp, ..SimulatorConfig::default() });
    let conn = sim.open_chat_session();
    sim.append_and_wait(conn, asr_request(16_000));
    assert_has(&sim.last_event(conn), json!({"/type": "response.done", "/text": ""}));
}

#[test]
fn never_answers_fault_swallows_append() {
    let mut sim = TestGateway::with_faults(&["never-answers,times=1"]);
    let conn = run_asr_session(&mut sim);
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["session.closed"]);
    assert_recovers(&mut sim);
}

#[test]
fn no_audio_fault_sends_text_only() {
    for streaming in [true, false] {
        let mut sim = TestGateway::with_faults(&["no-audio,times=1"]);
        let conn = sim.open_chat_session();
        sim.append_and_wait(conn, tts_request("Hello.", streaming));
        let done = sim.last_event(conn);
        assert_eq!((&done["text"], done.get("audio")), (&json!("Hello."), None));
        assert!(!event_names(&sim.events_of(conn)).contains(&"audio".to_owned()));
        sim.append_and_wait(conn, tts_request("Hello.", streaming));
        let has_audio = event_names(&sim.events_of(conn)).contains(&"audio".to_owned())
            || sim.last_event(conn)["audio"].is_string();
        assert!(has_audio);
    }
}
