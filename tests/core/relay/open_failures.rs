//! Failures before a session opens or between two upstreams. Each one ends with a message to the client.

use super::{
    harness::{Harness, HarnessConfig, zeros},
    *,
};

fn session_update(prompt: &str) -> Value {
    json!({"type": "session.update", "session": {"instructions": prompt}})
}

#[test]
fn upstream_dropping_every_open_is_given_up() {
    for client in ["minicpm-o", "minicpm-o-legacy"] {
        let mut harness = Harness::new_relay(config("mode=audio", &["slow-init=30"]), &[client]);
        harness.send_json(&if client == "minicpm-o" { init_message() } else { session_update("p") });
        for _ in 0..20 {
            harness.advance(ms(5000));
            if harness.sent_containing("session.init").len() > harness.dial_count() - 1
                && !harness.is_closed()
            {
                harness.break_lanes();
            }
        }
        assert!(harness.is_closed() && harness.finished, "{client}");
        assert!(harness.dial_count() <= 3, "{client}: {}", harness.dial_count());
        assert!(harness.names().contains(&"error".to_owned()), "{client}: {:?}", harness.names());
    }
}

#[test]
fn second_session_update_keeps_queue_position() {
    let mut harness = Harness::new_relay(config("mode=audio", &["stuck-queue"]), &["minicpm-o-legacy"]);
    harness.send_json(&session_update("first"));
    harness.advance(ms(3000));
    let before = harness.dial_count();
    harness.send_json(&session_update("second"));
    harness.advance(ms(1000));
    assert_eq!(harness.dial_count(), before);
    let mut harness =
        Harness::new_relay(config("mode=audio", &["stuck-queue,times=1"]), &["minicpm-o-legacy"]);
    harness.send_json(&session_update("first"));
    harness.send_json(&session_update("second"));
    harness.replace_gateway(config("", &[]).simulator);
    harness.advance(ms(20_000));
    assert_eq!(harness.events("session.created").len(), 1);
    let opening = sent_texts(&harness).into_iter().rfind(|text| text.contains("session.init")).unwrap();
    assert!(opening.contains("second"), "{opening}");
}

#[test]
fn unknown_upstream_message_is_reported_once_and_passed_on() {
    let mut harness = open_session(config("mode=audio", &[]));
    let lane = newest_lane(&harness);
    harness.inject_upstream_text(lane, r#"{"type":"news"}"#);
    let reports = harness
        .observations
        .iter()
        .filter(|observation| matches!(observation, Observation::UnknownFromLane { .. }));
    assert_eq!(reports.count(), 1);
    assert_eq!(harness.texts.last().unwrap(), r#"{"type":"news"}"#);
}

#[test]
fn unknown_first_message_does_not_block_session_update() {
    for queued in [false, true] {
        let faults: &[&str] = if queued { &["stuck-queue,times=1"] } else { &[] };
        let mut settings = HarnessConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", faults) };
        settings.simulator.dialect = SimDialect::Legacy { follows_document: false };
        let mut harness = Harness::new_relay(settings, &["minicpm-o-legacy"]);
        harness.send_json(&json!({"type": "hello"}));
        harness.advance(ms(if queued { 0 } else { 1000 }));
        harness.send_json(&json!({"type": "hello again"}));
        harness.send_json(&session_update("p"));
        if queued {
            harness.replace_gateway(SimulatorConfig {
                dialect: SimDialect::Legacy { follows_document: false },
                ..<_>::default()
            });
        }
        harness.advance(ms(10_000));
        assert_eq!(harness.events("session.created").len(), 1, "queued: {queued} {:?}", harness.names());
        harness.send_json(&json!({"type": "input_audio_buffer.append", "audio": base64_of(&zeros(1000))}));
        harness.advance(ms(1000));
        assert_eq!(harness.names().last().unwrap(), "response.listen");
        let hello_flags: Vec<_> =
            sent_texts(&harness).iter().map(|text| text.contains("hello") as u8).collect();
        assert_eq!(hello_flags.iter().sum::<u8>(), 2, "both messages pass: {:?}", sent_texts(&harness));
    }
}

#[test]
fn unopened_session_with_worker_times_out() {
    for (client, upstream, words) in
        [("minicpm-o", "minicpm-o", ""), ("minicpm-o-legacy", "minicpm-o-legacy", r#"{"type":"hello"}"#)]
    {
        let mut settings = HarnessConfig { upstream, ..config("mode=audio", &[]) };
        if upstream == "minicpm-o-legacy" {
            settings.simulator.dialect = SimDialect::Legacy { follows_document: false };
        }
        let mut harness = Harness::new_relay(settings, &[client]);
        if !words.is_empty() {
            harness.send_text(words);
        }
        harness.advance(ms(59_000));
        assert!(!harness.is_closed(), "{client}");
        harness.advance(ms(10_000));
        assert_eq!(harness.events("session.closed")[0]["reason"], "timeout", "{client}");
        assert!(harness.is_closed() && harness.finished, "{client}");
    }
    // A queued client keeps waiting.
    let mut waiting = connect_current(config("mode=audio", &["stuck-queue"]));
    waiting.advance(ms(120_000));
    assert!(!waiting.is_closed());
}

#[test]
fn upstream_gap_longer_than_30_s_ends_session() {
    for (query, client) in
        [("mode=audio", "minicpm-o"), ("mode=chat", "minicpm-o"), ("mode=audio", "minicpm-o-legacy")]
    {
        let mut harness = Harness::new_relay(config(query, &[]), &[client]);
        harness.send_json(&if client == "minicpm-o" { init_message() } else { session_update("p") });
        harness.advance(ms(500));
        harness.replace_gateway(config("", &["stuck-queue"]).simulator);
        harness.advance(ms(29_000));
        assert!(!harness.is_closed(), "{query} {client}");
        harness.advance(ms(2000));
        assert_eq!(harness.names()[2..4], ["error", "session.closed"], "{query} {client}");
        harness.advance(ms(20_000));
        assert!(harness.is_closed() && harness.report().only_waits_in_queue);
    }
}

#[test]
fn empty_legacy_delta_is_answered_with_empty_text() {
    let mut settings = HarnessConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", &[]) };
    settings.simulator.dialect = SimDialect::Legacy { follows_document: false };
    let mut harness = open_session(settings);
    let lane = newest_lane(&harness);
    let nothing = json!({"type": "response.output_audio.delta", "text": "", "audio": null, "end_of_turn": false, "kv_cache_length": 9});
    harness.inject_upstream_text(lane, &nothing.to_string());
    let deltas = harness.events("response.output.delta");
    assert_eq!((deltas.len(), &deltas[0]["kind"], &deltas[0]["text"]), (1, &json!("text"), &json!("")));
}

#[test]
fn unknown_message_does_not_select_protocol() {
    for (upstream, opening) in
        [("minicpm-o-legacy", session_update("p")), ("minicpm-o-legacy", init_message())]
    {
        let mut settings = HarnessConfig { upstream, ..config("mode=audio", &[]) };
        settings.simulator.dialect = SimDialect::Legacy { follows_document: false };
        let mut harness = Harness::new_relay(settings, &["minicpm-o", "minicpm-o-legacy"]);
        harness.send_json(&json!({"type": "hello"}));
        harness.advance(ms(1000));
        harness.send_json(&opening);
        harness.advance(ms(10_000));
        assert_eq!(harness.events("session.created").len(), 1, "{opening}: {:?}", harness.names());
        let current = opening["type"] == "session.init";
        assert_eq!(harness.events("session.created")[0].get("mode").is_some(), current);
    }
}
