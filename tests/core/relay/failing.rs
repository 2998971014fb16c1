//! What goes wrong before a session is open or between two upstreams, and how it ends: never in silence.

use serde_json::json;
use voxbridge::{
    session::Observation,
    simulator::{Dialect, SimulatorConfig},
};

use super::{
    pair::{Pair, PairConfig, zeros},
    support::{base64_of, config, current, dialled, init, lane, ms, opened, sent},
};

fn older_update(prompt: &str) -> serde_json::Value {
    json!({"type": "session.update", "session": {"instructions": prompt}})
}

#[test]
fn an_upstream_that_drops_whoever_opens_a_session_is_not_asked_for_ever() {
    for client in ["minicpm-o", "minicpm-o-legacy"] {
        let mut pair = Pair::relayed(config("mode=audio", &["slow-init=30"]), &[client]);
        pair.client(&if client == "minicpm-o" { init() } else { older_update("p") });
        for _ in 0..20 {
            pair.advance(ms(5000));
            if pair.sent("session.init").len() > dialled(&pair) - 1 && !pair.closed() {
                pair.break_lanes();
            }
        }
        assert!(pair.closed() && pair.finished, "{client}");
        assert!(dialled(&pair) <= 3, "{client}: {}", dialled(&pair));
        assert!(pair.names().contains(&"error".to_owned()), "{client}: {:?}", pair.names());
    }
}

#[test]
fn a_second_opening_in_the_queue_keeps_the_place() {
    let mut pair = Pair::relayed(config("mode=audio", &["stuck-queue"]), &["minicpm-o-legacy"]);
    pair.client(&older_update("first"));
    pair.advance(ms(3000));
    let before = dialled(&pair);
    pair.client(&older_update("second"));
    pair.advance(ms(1000));
    assert_eq!(dialled(&pair), before);
    let mut pair = Pair::relayed(config("mode=audio", &["stuck-queue,times=1"]), &["minicpm-o-legacy"]);
    pair.client(&older_update("first"));
    pair.client(&older_update("second"));
    pair.replace_gateway(config("", &[]).simulator);
    pair.advance(ms(20_000));
    assert_eq!(pair.events("session.created").len(), 1);
    let opening = sent(&pair).into_iter().rfind(|text| text.contains("session.init")).unwrap();
    assert!(opening.contains("second"), "{opening}");
}

#[test]
fn what_an_upstream_says_that_nobody_knows_is_reported_once() {
    let mut pair = opened(config("mode=audio", &[]));
    let lane = lane(&pair);
    pair.upstream_says(lane, r#"{"type":"news"}"#);
    let told = pair.observed.iter().filter(|seen| matches!(seen, Observation::UnknownFromLane { .. }));
    assert_eq!(told.count(), 1);
    assert_eq!(pair.texts.last().unwrap(), r#"{"type":"news"}"#);
}

#[test]
fn what_opens_nothing_does_not_keep_the_next_message_from_opening_the_session() {
    for queued in [false, true] {
        let faults: &[&str] = if queued { &["stuck-queue,times=1"] } else { &[] };
        let mut settings = PairConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", faults) };
        settings.simulator.dialect = Dialect::Legacy { documented: false };
        let mut pair = Pair::relayed(settings, &["minicpm-o-legacy"]);
        pair.client(&json!({"type": "hello"}));
        pair.advance(ms(if queued { 0 } else { 1000 }));
        pair.client(&json!({"type": "hello again"}));
        pair.client(&older_update("p"));
        if queued {
            pair.replace_gateway(SimulatorConfig {
                dialect: Dialect::Legacy { documented: false },
                ..<_>::default()
            });
        }
        pair.advance(ms(10_000));
        assert_eq!(pair.events("session.created").len(), 1, "queued: {queued} {:?}", pair.names());
        pair.client(&json!({"type": "input_audio_buffer.append", "audio": base64_of(&zeros(1000))}));
        pair.advance(ms(1000));
        assert_eq!(pair.names().last().unwrap(), "response.listen");
        let said: Vec<_> = sent(&pair).iter().map(|text| text.contains("hello") as u8).collect();
        assert_eq!(said.iter().sum::<u8>(), 2, "both pass: {:?}", sent(&pair));
    }
}

#[test]
fn who_has_a_worker_and_opens_nothing_does_not_keep_it() {
    for (client, upstream, words) in
        [("minicpm-o", "minicpm-o", ""), ("minicpm-o-legacy", "minicpm-o-legacy", r#"{"type":"hello"}"#)]
    {
        let mut settings = PairConfig { upstream, ..config("mode=audio", &[]) };
        if upstream == "minicpm-o-legacy" {
            settings.simulator.dialect = Dialect::Legacy { documented: false };
        }
        let mut pair = Pair::relayed(settings, &[client]);
        if !words.is_empty() {
            pair.client_text(words);
        }
        pair.advance(ms(59_000));
        assert!(!pair.closed(), "{client}");
        pair.advance(ms(10_000));
        assert_eq!(pair.events("session.closed")[0]["reason"], "timeout", "{client}");
        assert!(pair.closed() && pair.finished, "{client}");
    }
    // Who waits in a queue waits.
    let mut waiting = current(config("mode=audio", &["stuck-queue"]));
    waiting.advance(ms(120_000));
    assert!(!waiting.closed());
}

#[test]
fn a_gap_is_not_longer_than_a_client_may_be_left_without_a_word() {
    for (query, client) in
        [("mode=audio", "minicpm-o"), ("mode=chat", "minicpm-o"), ("mode=audio", "minicpm-o-legacy")]
    {
        let mut pair = Pair::relayed(config(query, &[]), &[client]);
        pair.client(&if client == "minicpm-o" { init() } else { older_update("p") });
        pair.advance(ms(500));
        pair.replace_gateway(config("", &["stuck-queue"]).simulator);
        pair.advance(ms(29_000));
        assert!(!pair.closed(), "{query} {client}");
        pair.advance(ms(2000));
        assert_eq!(pair.names()[2..4], ["error", "session.closed"], "{query} {client}");
        pair.advance(ms(20_000));
        assert!(pair.closed() && pair.finished);
    }
}

#[test]
fn a_step_in_which_nothing_is_said_is_answered() {
    let mut settings = PairConfig { upstream: "minicpm-o-legacy", ..config("mode=audio", &[]) };
    settings.simulator.dialect = Dialect::Legacy { documented: false };
    let mut pair = opened(settings);
    let lane = lane(&pair);
    let nothing = json!({"type": "response.output_audio.delta", "text": "", "audio": null, "end_of_turn": false, "kv_cache_length": 9});
    pair.upstream_says(lane, &nothing.to_string());
    let told = pair.events("response.output.delta");
    assert_eq!((told.len(), &told[0]["kind"], &told[0]["text"]), (1, &json!("text"), &json!("")));
}

#[test]
fn a_message_of_nobodys_decides_nothing() {
    for (upstream, opening) in [("minicpm-o-legacy", older_update("p")), ("minicpm-o-legacy", init())] {
        let mut settings = PairConfig { upstream, ..config("mode=audio", &[]) };
        settings.simulator.dialect = Dialect::Legacy { documented: false };
        let mut pair = Pair::relayed(settings, &["minicpm-o", "minicpm-o-legacy"]);
        pair.client(&json!({"type": "hello"}));
        pair.advance(ms(1000));
        pair.client(&opening);
        pair.advance(ms(10_000));
        assert_eq!(pair.events("session.created").len(), 1, "{opening}: {:?}", pair.names());
        let current = opening["type"] == "session.init";
        assert_eq!(pair.events("session.created")[0].get("mode").is_some(), current);
    }
}
