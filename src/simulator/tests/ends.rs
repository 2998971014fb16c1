//! How sessions end, and what an end leaves behind (field notes §1.2, §2).

use super::*;
use crate::simulator::CORRUPTED;

/// Closes without waiting, as `bare` says, and tells whether the next session was refused.
fn next_after(end: impl FnOnce(&mut Lab, ConnId), wait: Duration) -> (Lab, ConnId) {
    let mut lab = Lab::on(Backend::Pytorch);
    let first = lab.session();
    end(&mut lab, first);
    lab.pass(wait);
    let next = lab.connect();
    (lab, next)
}

fn bare(lab: &mut Lab, conn: ConnId) {
    lab.input(SimInput::Closed(conn));
}

#[test]
fn an_impolite_end_costs_the_next_session() {
    let (lab, next) = next_after(bare, Duration::ZERO);
    let message = "server rejected WebSocket connection: HTTP 403";
    let error = json!({"code": "session_failed", "message": message, "type": "server_error"});
    assert_eq!(
        lab.events(next),
        [json!({"type": "session.queue_done"}), json!({"type": "error", "error": error})]
    );
    assert_eq!(lab.ended(next), polite());
    let (lab, next) = next_after(bare, Duration::from_millis(299));
    assert_eq!(lab.last(next)["type"], "error");
    let (lab, next) = next_after(bare, Duration::from_millis(300));
    assert_eq!(lab.last(next)["type"], "session.queue_done");
}

#[test]
fn a_polite_end_costs_nothing() {
    let (lab, next) = next_after(|lab, conn| lab.close(conn, "x"), Duration::ZERO);
    assert_eq!(lab.last(next)["type"], "session.queue_done");
}

#[test]
fn a_close_that_does_not_wait_is_impolite() {
    let hasty = |lab: &mut Lab, conn| {
        lab.send(conn, &json!({"type": "session.close"}));
        lab.input(SimInput::Closed(conn));
    };
    let (lab, next) = next_after(hasty, Duration::ZERO);
    assert_eq!(lab.last(next)["type"], "error");
}

#[test]
fn closing_in_the_middle_answers_at_once_but_the_model_goes_on() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let mut lab = Lab::on(backend);
        let first = lab.session();
        lab.append(first, tts(&"a long story ".repeat(20), true));
        lab.pass(Duration::from_millis(500));
        lab.close(first, "cancelled");
        assert_eq!((lab.last(first)["type"].as_str(), lab.ended(first)), (Some("session.closed"), polite()));
        let second = lab.session();
        lab.ask(second, asr(16_000));
        let text = lab.last(second)["text"].as_str().unwrap().to_owned();
        assert_eq!(text, format!("{CORRUPTED}simulated transcript: 1.00 s of speech"));
        lab.ask(second, asr(16_000));
        assert_eq!(lab.last(second)["text"], "simulated transcript: 1.00 s of speech", "it ends some time");
    }
}

#[test]
fn draining_before_closing_keeps_the_model_clean() {
    let mut lab = Lab::on(Backend::Pytorch);
    let first = lab.session();
    lab.ask(first, tts(&"a long story ".repeat(20), true));
    lab.close(first, "done");
    let second = lab.session();
    lab.ask(second, asr(16_000));
    assert_eq!(lab.last(second)["text"], "simulated transcript: 1.00 s of speech");
}

#[test]
fn a_second_append_waits_for_the_first_answer() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.append(conn, asr(16_000));
    lab.append(conn, asr(32_000));
    lab.pass(Duration::from_secs(5));
    let events = lab.events(conn);
    assert_eq!(
        names(&events)[2..],
        ["text", "text", "text", "response.done", "text", "text", "text", "response.done"]
    );
    assert_eq!(events[9]["text"], "simulated transcript: 2.00 s of speech");
    assert_ne!(events[5]["response_id"], events[9]["response_id"]);
}

#[test]
fn the_default_reason_and_silence_after_the_close() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.session();
    lab.send(conn, &json!({"type": "session.close"}));
    lab.input(SimInput::Text(conn, "nonsense"));
    lab.pass(Duration::from_secs(1));
    assert_eq!(names(&lab.events(conn))[2..], ["session.closed"]);
    assert_eq!(lab.last(conn)["reason"], "client_closed");
    lab.send(conn, &json!({"type": "session.close"}));
    assert_eq!(names(&lab.events(conn))[2..], ["session.closed"]);
}

#[test]
fn messages_wait_for_the_initialisation() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.connect();
    lab.send(conn, &json!({"type": "session.init", "payload": {}}));
    lab.send(conn, &json!({"type": "session.close", "reason": "early"}));
    lab.pass(Duration::from_secs(1));
    assert_eq!(names(&lab.events(conn)), ["session.queue_done", "session.created", "session.closed"]);
    assert_eq!(lab.last(conn)["reason"], "early");
}
