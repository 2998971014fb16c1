//! What fails before a session is open is tried again, what is lost in the middle is replaced, and who stops says so.

use serde_json::json;
use voxbridge::{session::Observation, simulator::SimulatorConfig};

use super::{
    pair::{PairConfig, zeros},
    support::{append, chat, config, current, dialled, init, lane, ms, opened, seconds, sent},
};

#[test]
fn what_fails_before_the_session_is_open_is_tried_again_unseen() {
    for fault in ["403-after-queue=3", "busy,times=2", "queue-full,times=2", "die-before-created,times=1"] {
        let mut pair = current(config("mode=audio", &[fault]));
        pair.client(&init());
        pair.client(&append(&zeros(1000)));
        pair.advance(ms(10_000));
        let names = ["session.queue_done", "session.created", "response.output.delta"];
        assert_eq!(pair.names(), names, "{fault}");
        assert!(dialled(&pair) > 1, "{fault}");
    }
}

#[test]
fn when_patience_ends_the_client_is_told_in_its_own_words() {
    for (fault, code) in [("busy", "worker_busy"), ("queue-full", "queue_full")] {
        let mut pair = current(config("mode=audio", &[fault]));
        pair.client(&init());
        pair.advance(ms(30_000));
        assert_eq!(pair.names(), ["error", "close 1013"], "{fault}");
        assert_eq!(pair.events("error")[0]["error"]["code"], code);
        assert_eq!(pair.events("error")[0]["error"]["type"], "server_error");
        assert!(pair.finished);
    }
}

#[test]
fn what_the_upstream_refuses_to_open_is_the_clients_to_know() {
    let mut pair = current(config("mode=audio", &[]));
    let bad = json!({"type": "session.init", "payload": {"config": {"temperature": 99}}});
    pair.client(&bad);
    pair.advance(ms(10_000));
    assert_eq!(pair.names(), ["session.queue_done", "session.closed", "close 1000"]);
    assert_eq!(pair.events("session.closed")[0]["session_id"], json!(null));
    assert_eq!(dialled(&pair), 2, "once more, in case it was the upstream's fault");
    assert!(pair.finished);
}

#[test]
fn a_lost_upstream_is_replaced_and_the_client_sees_a_pause() {
    let mut pair = opened(config("mode=audio", &[]));
    for _ in 0..4 {
        pair.client(&append(&zeros(1000)));
        pair.advance(ms(1000));
    }
    let before = pair.names().len();
    let openings = pair.openings.len();
    pair.break_lanes();
    for _ in 0..3 {
        pair.client(&append(&zeros(1000)));
        pair.advance(ms(1000));
    }
    pair.advance(ms(3000));
    let after = &pair.names()[before..];
    assert_eq!(after, ["response.output.delta"; 3], "every append of the gap is answered");
    assert_eq!(pair.openings.len(), openings + 1);
    let inits: Vec<_> = sent(&pair).into_iter().filter(|text| text.contains("session.init")).collect();
    assert!(inits.len() > 1 && inits.iter().all(|text| *text == inits[0]), "{inits:?}");
    let resumed = |seen: &&Observation| matches!(seen, Observation::RelayResumed { dropped: 0, .. });
    assert_eq!(pair.observed.iter().filter(resumed).count(), 1);
}

#[test]
fn a_turn_that_is_lost_is_closed() {
    let mut pair = opened(config("mode=audio", &["drop-mid-turn,times=1"]));
    for second in seconds(6) {
        pair.client(&append(&second));
        pair.advance(ms(1000));
    }
    let deltas: Vec<_> = pair.events("response.output.delta");
    let kinds: Vec<_> = deltas.iter().map(|delta| delta["kind"].as_str().unwrap()).collect();
    let spoken = kinds.iter().rposition(|kind| *kind == "audio").unwrap();
    assert_eq!(kinds[spoken + 1], "listen");
    assert_eq!(deltas[spoken + 1]["response_id"], deltas[spoken]["response_id"]);
    assert!(!pair.closed());
}

#[test]
fn of_too_long_a_gap_the_oldest_is_dropped_and_counted() {
    let mut pair = opened(config("mode=audio", &[]));
    pair.replace_gateway(config("", &["stuck-queue"]).simulator);
    for _ in 0..15 {
        pair.client(&append(&zeros(1000)));
        pair.advance(ms(1000));
    }
    assert_eq!(pair.names().len(), 2, "of the queue the client hears nothing");
    pair.replace_gateway(config("", &[]).simulator);
    pair.advance(ms(20_000));
    let resumed =
        |seen: &&Observation| matches!(seen, Observation::RelayResumed { kept: 10, dropped: 5, .. });
    assert_eq!(pair.observed.iter().filter(resumed).count(), 1, "{:?}", pair.observed);
    assert_eq!(pair.names().len(), 12);
}

#[test]
fn an_upstream_that_talks_and_dies_is_not_dialled_without_end() {
    let mut pair = opened(config("mode=audio", &[]));
    let listen = json!({"type": "response.output.delta", "kind": "listen"}).to_string();
    while !pair.closed() && pair.now() < ms(60_000) {
        let openings = pair.openings.len();
        let lane = lane(&pair);
        for _ in 0..5 {
            pair.upstream_says(lane, &listen);
        }
        pair.break_lane(lane);
        pair.run_until(|pair| pair.closed() || pair.openings.len() > openings, ms(20_000));
        pair.advance(ms(100));
    }
    let dialled = dialled(&pair);
    assert!(pair.closed() && dialled < 20, "{dialled} in {:?}", pair.now());
    assert_eq!(pair.events("session.closed")[0]["reason"], "backend_error");
    pair.advance(ms(10_000));
    assert!(pair.finished);
}

#[test]
fn a_chat_is_asked_again_if_nothing_of_its_answer_was_heard() {
    let mut pair = opened(config("mode=chat", &[]));
    pair.client(&chat("Hello"));
    pair.break_lanes();
    pair.advance(ms(10_000));
    assert_eq!(pair.events("response.done").len(), 1);
    assert_eq!(pair.events("session.created").len(), 1);
    let asked = sent(&pair).into_iter().filter(|text| text.contains("Hello")).count();
    assert_eq!(asked, 2);
}

#[test]
fn a_chat_answer_that_was_begun_ends_as_on_the_real_server() {
    let mut pair = opened(config("mode=chat", &["drop-mid-answer=2,times=1"]));
    pair.client(&chat("Hello"));
    pair.advance(ms(10_000));
    assert!(!pair.events("response.output.delta").is_empty());
    let closed = pair.events("session.closed");
    assert_eq!((closed.len(), closed[0]["reason"].as_str()), (1, Some("backend_error")));
    assert_eq!(pair.names().last().unwrap(), "close 1000");
    assert!(pair.finished);
}

#[test]
fn an_upstream_that_never_comes_back_ends_the_session() {
    let mut pair = opened(config("mode=audio", &[]));
    pair.replace_gateway(SimulatorConfig { workers: 0, ..SimulatorConfig::default() });
    pair.advance(ms(60_000));
    assert_eq!(pair.names()[2..], ["error", "session.closed", "close 1000"]);
    assert_eq!(pair.events("session.closed")[0]["reason"], "backend_error");
    assert!(pair.finished);
}

#[test]
fn what_ends_an_upstream_session_ends_the_clients() {
    let mut pair = opened(config("mode=audio", &["timeout=2"]));
    pair.advance(ms(5000));
    assert_eq!(pair.names()[2..], ["session.closed", "close 1000"]);
    assert_eq!(pair.events("session.closed")[0], &json!({"type": "session.closed", "reason": "timeout"}));
    assert!(pair.finished);
}

#[test]
fn who_stops_lets_an_answer_end_and_says_so() {
    let mut idle = opened(config("mode=audio", &[]));
    idle.drain();
    idle.advance(ms(1000));
    assert_eq!(idle.names()[2..], ["session.closed", "close 1012"]);
    assert_eq!(idle.events("session.closed")[0]["reason"], "server_shutdown");
    assert!(idle.finished);

    let mut busy = opened(config("mode=chat", &[]));
    busy.client(&chat("Hello"));
    busy.advance(ms(200));
    busy.drain();
    busy.advance(ms(10_000));
    let names = busy.names();
    assert_eq!(names[names.len() - 3..], ["response.done", "session.closed", "close 1012"]);

    let mut stuck = opened(config("mode=chat", &["never-answers"]));
    stuck.client(&chat("Hello"));
    stuck.drain();
    stuck.advance(ms(9000));
    assert!(!stuck.closed());
    stuck.advance(ms(2000));
    assert!(stuck.closed());
    stuck.advance(ms(30_000));
    assert!(stuck.finished);
}

#[test]
fn whose_time_is_up_has_its_answer_first() {
    let limited =
        |query: &str, faults: &[&str]| opened(PairConfig { session_max_ms: 300, ..config(query, faults) });
    let mut idle = limited("mode=audio", &[]);
    idle.advance(ms(199));
    assert!(!idle.closed());
    idle.advance(ms(1));
    assert_eq!(idle.names()[2..], ["session.closed", "close 1000"]);
    assert_eq!(idle.events("session.closed")[0]["reason"], "timeout");

    let mut busy = limited("mode=chat", &[]);
    busy.client(&chat("Hello"));
    busy.advance(ms(10_000));
    let names = busy.names();
    assert_eq!(names[names.len() - 3..], ["response.done", "session.closed", "close 1000"]);

    let mut stuck = limited("mode=chat", &["never-answers"]);
    stuck.client(&chat("Hello"));
    stuck.advance(ms(9_000));
    assert!(!stuck.closed());
    stuck.advance(ms(2_000));
    assert!(stuck.closed());
    stuck.advance(ms(30_000));
    assert!(stuck.finished);
}
