//! Errors of a client of the current dialect, and the answers to them (mappings/notes/minicpm-o.md#connect,
//! mappings/notes/minicpm-o.md#rejections).

use super::{
    harness::{Harness, zeros},
    *,
};

fn run_to_closed_event(harness: &mut Harness) -> Value {
    harness.advance(ms(10_000));
    assert_eq!(harness.names().last().unwrap(), "close 1000");
    assert!(harness.finished);
    (*harness.events("session.closed").last().unwrap()).clone()
}

#[test]
fn malformed_message_ends_session_with_backend_error() {
    for text in ["{", "[]", "5", "nul", r#"{"type":"input.append"}"#, r#"{"type":"input.append","input":[]}"#]
    {
        let mut harness = open_session(config("mode=audio", &[]));
        harness.send_text(text);
        let closed = run_to_closed_event(&mut harness);
        assert_eq!(closed["reason"], "backend_error", "{text}");
        assert!(closed["session_id"].as_str().unwrap().starts_with("sess_"), "{text}");
        assert!(!closed["diagnostic"]["message"].as_str().unwrap().is_empty(), "{text}");
    }
}

#[test]
fn invalid_init_ends_session_with_backend_error() {
    for text in [r#"{"type":"session.init"}"#, r#"{"type":"session.init","payload":7}"#] {
        let mut harness = connect_current(config("mode=audio", &[]));
        harness.send_text(text);
        let closed = run_to_closed_event(&mut harness);
        assert_has(&closed, json!({"/reason": "backend_error", "/session_id": null}));
    }
}

#[test]
fn unknown_content_is_passed_to_server_and_its_error_reported() {
    let audio = |audio: &str| json!({"type": "input.append", "input": {"audio": audio}});
    for (message, words) in [
        (json!({"type": "response.cancel"}), ""),
        (json!({"type": "session.init", "payload": {}}), ""),
        (json!({"type": "input.append", "input": {}}), "full_duplex input requires audio"),
        (audio("AAAAA"), "base64"),
        (audio("AAAA"), "buffer size must be a multiple of element size"),
    ] {
        let mut harness = open_session(config("mode=audio", &[]));
        harness.send_json(&message);
        let closed = run_to_closed_event(&mut harness);
        assert_eq!(closed["reason"], "backend_error", "{message}");
        let diagnostic = closed["diagnostic"]["message"].as_str().unwrap_or_default();
        assert!(diagnostic.contains(words), "{message}: {closed}");
    }
}

#[test]
fn binary_frame_fails_session() {
    let mut harness = open_session(config("mode=audio", &[]));
    harness.send_binary(&[0, 1]);
    harness.advance(ms(5000));
    assert_eq!(harness.names()[2..], ["error", "close 1000"]);
    let error = json!({"code": "session_failed", "message": "'text'", "type": "server_error"});
    assert_eq!(harness.events("error")[0]["error"], error);
    assert!(harness.finished);
}

#[test]
fn client_is_held_back_when_upstream_is_not_ready() {
    let mut harness = connect_current(config("mode=audio", &["stuck-queue"]));
    harness.send_json(&init_message());
    let mut append_count = 0;
    while !harness.report().needs_backpressure {
        harness.send_json(&append_message(&zeros(1000)));
        append_count += 1;
    }
    assert!((190..210).contains(&append_count), "{append_count} seconds are 16 MiB");
    // Frames that still arrive are accepted.
    harness.send_json(&append_message(&zeros(1000)));
    harness.replace_gateway(config("", &[]).simulator);
    harness.advance(ms(10_000));
    assert!(!harness.report().needs_backpressure && !harness.is_closed());
    assert_eq!(
        sent_texts(&harness).iter().filter(|text| text.contains("input.append")).count(),
        append_count + 1
    );
}
