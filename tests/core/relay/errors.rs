//! What a client of the current dialect does wrong, and what it gets: field notes, sections 1.1 and 1.5.

use serde_json::{Value, json};

use super::{
    pair::{Pair, zeros},
    support::{append, config, current, init, ms, opened, sent},
};

fn ended(pair: &mut Pair) -> Value {
    pair.advance(ms(10_000));
    assert_eq!(pair.names().last().unwrap(), "close 1000");
    assert!(pair.finished);
    (*pair.events("session.closed").last().unwrap()).clone()
}

#[test]
fn what_is_no_message_ends_the_session() {
    for text in ["{", "[]", "5", "nul", r#"{"type":"input.append"}"#, r#"{"type":"input.append","input":[]}"#]
    {
        let mut pair = opened(config("mode=audio", &[]));
        pair.client_text(text);
        let closed = ended(&mut pair);
        assert_eq!(closed["reason"], "backend_error", "{text}");
        assert!(closed["session_id"].as_str().unwrap().starts_with("sess_"), "{text}");
        assert!(!closed["diagnostic"]["message"].as_str().unwrap().is_empty(), "{text}");
    }
}

#[test]
fn so_does_what_opens_nothing() {
    for text in [r#"{"type":"session.init"}"#, r#"{"type":"session.init","payload":7}"#] {
        let mut pair = current(config("mode=audio", &[]));
        pair.client_text(text);
        let closed = ended(&mut pair);
        assert_eq!(
            (&closed["reason"], &closed["session_id"]),
            (&json!("backend_error"), &json!(null)),
            "{text}"
        );
    }
}

#[test]
fn what_only_the_server_can_judge_is_judged_by_the_server() {
    let audio = |audio: &str| json!({"type": "input.append", "input": {"audio": audio}});
    for (message, words) in [
        (json!({"type": "response.cancel"}), ""),
        (json!({"type": "session.init", "payload": {}}), ""),
        (json!({"type": "input.append", "input": {}}), "full_duplex input requires audio"),
        (audio("AAAAA"), "base64"),
        (audio("AAAA"), "buffer size must be a multiple of element size"),
    ] {
        let mut pair = opened(config("mode=audio", &[]));
        pair.client(&message);
        let closed = ended(&mut pair);
        assert_eq!(closed["reason"], "backend_error", "{message}");
        let said = closed["diagnostic"]["message"].as_str().unwrap_or_default();
        assert!(said.contains(words), "{message}: {closed}");
    }
}

#[test]
fn a_binary_frame_is_a_failed_session() {
    let mut pair = opened(config("mode=audio", &[]));
    pair.client_binary(&[0, 1]);
    pair.advance(ms(5000));
    assert_eq!(pair.names()[2..], ["error", "close 1000"]);
    let error = json!({"code": "session_failed", "message": "'text'", "type": "server_error"});
    assert_eq!(pair.events("error")[0]["error"], error);
    assert!(pair.finished);
}

#[test]
fn who_says_too_much_before_there_is_an_upstream_is_read_no_further() {
    let mut pair = current(config("mode=audio", &["stuck-queue"]));
    pair.client(&init());
    let mut said = 0;
    while !pair.bridge().holds_back() {
        pair.client(&append(&zeros(1000)));
        said += 1;
    }
    assert!((190..210).contains(&said), "{said} seconds are 16 MiB");
    // What was on its way all the same is taken.
    pair.client(&append(&zeros(1000)));
    pair.replace_gateway(config("", &[]).simulator);
    pair.advance(ms(10_000));
    assert!(!pair.bridge().holds_back() && !pair.closed());
    assert_eq!(sent(&pair).iter().filter(|text| text.contains("input.append")).count(), said + 1);
}
