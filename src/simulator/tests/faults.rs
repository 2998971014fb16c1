//! Each fault by its command-line name, and the recovery after it.

use super::*;

/// Runs one ASR session to its end.
fn transcribe(lab: &mut Lab) -> ConnId {
    let conn = lab.connect();
    lab.send(conn, &json!({"type": "session.init", "payload": {}}));
    lab.append(conn, asr(16_000));
    lab.pass(Duration::from_secs(2));
    if lab.ended(conn).is_none() {
        lab.close(conn, "x");
    }
    conn
}

fn recovers(lab: &mut Lab) {
    lab.pass(Duration::from_millis(300));
    let conn = transcribe(lab);
    let events = lab.events(conn);
    assert_eq!(events[events.len() - 2]["text"], "simulated transcript: 1.00 s of speech", "{events:?}");
}

#[test]
fn refusals_at_the_door() {
    for (fault, code, message) in [
        ("queue-full,times=1", "queue_full", "Queue full"),
        ("busy,times=1", "worker_busy", "No worker available"),
    ] {
        let mut lab = Lab::with_faults(&[fault]);
        let conn = lab.connect();
        assert_eq!(lab.last(conn)["error"]["code"], code);
        assert_eq!(lab.ended(conn), Some(Seen::Close(1013, message.to_owned())));
        recovers(&mut lab);
    }
}

#[test]
fn refused_after_the_queue() {
    let mut lab = Lab::with_faults(&["403-after-queue=2"]);
    for _ in 0..2 {
        let conn = lab.connect();
        assert_eq!(names(&lab.events(conn)), ["session.queue_done", "error"]);
        assert_eq!(lab.ended(conn), polite());
    }
    recovers(&mut lab);
}

#[test]
fn stuck_in_the_queue() {
    let mut lab = Lab::with_faults(&["stuck-queue,times=1"]);
    let stuck = lab.connect();
    lab.pass(Duration::from_secs(30));
    assert_eq!(names(&lab.events(stuck)).iter().filter(|name| *name == "session.queue_update").count(), 10);
    recovers(&mut lab);
    assert_eq!(lab.last(stuck)["type"], "session.queue_update");
}

#[test]
fn slow_initialisation() {
    let mut lab = Lab::with_faults(&["slow-init=9.5,times=1"]);
    let conn = lab.connect();
    lab.send(conn, &json!({"type": "session.init", "payload": {}}));
    lab.pass(Duration::from_millis(9_539));
    assert_eq!(lab.last(conn)["type"], "session.queue_done");
    lab.pass(Duration::from_millis(1));
    assert_eq!(lab.last(conn)["type"], "session.created");
    lab.close(conn, "x");
    recovers(&mut lab);
}

#[test]
fn death_before_created() {
    let mut lab = Lab::with_faults(&["die-before-created,times=1"]);
    let conn = transcribe(&mut lab);
    assert_eq!(
        lab.last(conn),
        json!({"type": "session.closed", "session_id": null, "reason": "backend_error"})
    );
    recovers(&mut lab);
}

#[test]
fn death_in_the_middle() {
    let mut lab = Lab::with_faults(&["die-mid-answer=1,times=1"]);
    let conn = transcribe(&mut lab);
    let events = lab.events(conn);
    assert_eq!(names(&events)[2..], ["text", "session.closed"]);
    assert_eq!(events[3]["reason"], "backend_error");
    assert_eq!(events[3]["diagnostic"]["message"], "simulated: the generator died");
    recovers(&mut lab);
    let mut lab = Lab::with_faults(&["die-mid-answer=99"]);
    let conn = transcribe(&mut lab);
    assert_eq!(
        names(&lab.events(conn))[2..],
        ["text", "text", "text", "session.closed"],
        "at the latest before the end"
    );
}

#[test]
fn the_connection_breaks_in_the_middle() {
    let mut lab = Lab::with_faults(&["drop-mid-answer=1,times=1"]);
    let conn = transcribe(&mut lab);
    assert_eq!(names(&lab.events(conn))[2..], ["text"]);
    assert_eq!(lab.ended(conn), Some(Seen::Drop));
    recovers(&mut lab);
}

#[test]
fn an_empty_transcript_kills_pytorch_and_is_empty_from_cpp() {
    let mut lab = Lab::with_faults(&["empty-transcript,times=1"]);
    let conn = transcribe(&mut lab);
    let closed = lab.last(conn);
    assert_eq!(closed["diagnostic"]["message"], "torch.cat(): expected a non-empty list of Tensors");
    assert_eq!((&closed["reason"], lab.ended(conn)), (&json!("backend_error"), polite()));
    recovers(&mut lab);
    let faults = vec!["empty-transcript".parse().unwrap()];
    let mut lab = Lab::new(SimulatorConfig { faults, backend: Backend::Cpp, ..SimulatorConfig::default() });
    let conn = lab.session();
    lab.ask(conn, asr(16_000));
    assert_eq!((&lab.last(conn)["type"], &lab.last(conn)["text"]), (&json!("response.done"), &json!("")));
}

#[test]
fn no_answer_at_all() {
    let mut lab = Lab::with_faults(&["never-answers,times=1"]);
    let conn = transcribe(&mut lab);
    assert_eq!(names(&lab.events(conn))[2..], ["session.closed"]);
    recovers(&mut lab);
}

#[test]
fn an_answer_without_audio() {
    for streaming in [true, false] {
        let mut lab = Lab::with_faults(&["no-audio,times=1"]);
        let conn = lab.session();
        lab.ask(conn, tts("Hello.", streaming));
        let done = lab.last(conn);
        assert_eq!((&done["text"], done.get("audio")), (&json!("Hello."), None));
        assert!(!names(&lab.events(conn)).contains(&"audio".to_owned()));
        lab.ask(conn, tts("Hello.", streaming));
        let heard =
            names(&lab.events(conn)).contains(&"audio".to_owned()) || lab.last(conn)["audio"].is_string();
        assert!(heard);
    }
}
