//! What goes wrong before a session is open or between two upstreams, and how it ends: never in silence.

use serde_json::json;
use voxbridge::session::Observation;

use crate::{
    pair::{Pair, Traffic, zeros},
    support::{append, base64_of, config, current, dialled, init, lane, ms, opened, sent},
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
