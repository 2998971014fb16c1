//! Upstream failures: retries before the session opens, replacement of a lost upstream, and announced
//! endings.

use super::{
    harness::{Harness, HarnessConfig, zeros},
    *,
};

#[test]
fn failure_before_open_is_retried_silently() {
    for fault in ["403-after-queue=3", "busy,times=2", "queue-full,times=2", "die-before-created,times=1"] {
        let mut harness = connect_current(config("mode=audio", &[fault]));
        harness.send_json(&init_message());
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(10_000));
        let names = ["session.queue_done", "session.created", "response.output.delta"];
        assert_eq!(harness.names(), names, "{fault}");
        assert!(harness.dial_count() > 1, "{fault}");
    }
}

#[test]
fn exhausted_retries_are_reported_in_client_protocol() {
    for (fault, code) in [("busy", "worker_busy"), ("queue-full", "queue_full")] {
        let mut harness = connect_current(config("mode=audio", &[fault]));
        harness.send_json(&init_message());
        harness.advance(ms(30_000));
        assert_eq!(harness.names(), ["error", "close 1013"], "{fault}");
        assert_eq!(harness.events("error")[0]["error"]["code"], code);
        assert_eq!(harness.events("error")[0]["error"]["type"], "server_error");
        assert!(harness.finished);
    }
}

#[test]
fn rejected_init_is_reported_to_client() {
    let mut harness = connect_current(config("mode=audio", &[]));
    let bad = json!({"type": "session.init", "payload": {"config": {"temperature": 99}}});
    harness.send_json(&bad);
    harness.advance(ms(10_000));
    assert_eq!(harness.names(), ["session.queue_done", "session.closed", "close 1000"]);
    assert_eq!(harness.events("session.closed")[0]["session_id"], json!(null));
    assert_eq!(harness.dial_count(), 2, "one retry, in case the upstream was at fault");
    assert!(harness.finished);
}

#[test]
fn lost_upstream_is_replaced_and_every_append_answered() {
    let mut harness = open_session(config("mode=audio", &[]));
    for _ in 0..4 {
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(1000));
    }
    let before = harness.names().len();
    let openings = harness.openings.len();
    harness.break_lanes();
    for _ in 0..3 {
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(1000));
    }
    harness.advance(ms(3000));
    let after = &harness.names()[before..];
    assert_eq!(after[0], "session.created", "the client learns the new session id");
    assert_eq!(after[1..], ["response.output.delta"; 3], "every append of the gap is answered");
    let ids: Vec<_> = harness.events("session.created").iter().map(|event| &event["session_id"]).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1], "{ids:?}");
    let answers = harness.events("response.output.delta");
    assert!(answers[4..].iter().all(|answer| answer["session_id"] == *ids[1]), "{answers:?}");
    assert_eq!(harness.openings.len(), openings + 1);
    let inits: Vec<_> =
        sent_texts(&harness).into_iter().filter(|text| text.contains("session.init")).collect();
    assert!(inits.len() > 1 && inits.iter().all(|text| *text == inits[0]), "{inits:?}");
    let resumed =
        |observation: &&Observation| matches!(observation, Observation::RelayResumed { dropped: 0, .. });
    assert_eq!(harness.observations.iter().filter(resumed).count(), 1);
}

#[test]
fn interrupted_turn_ends_with_listen() {
    let mut harness = open_session(config("mode=audio", &["drop-mid-turn,times=1"]));
    for second in question_seconds(6) {
        harness.send_json(&append_message(&second));
        harness.advance(ms(1000));
    }
    let deltas: Vec<_> = harness.events("response.output.delta");
    let kinds: Vec<_> = deltas.iter().map(|delta| delta["kind"].as_str().unwrap()).collect();
    let spoken = kinds.iter().rposition(|kind| *kind == "audio").unwrap();
    assert_eq!(kinds[spoken + 1], "listen");
    assert_eq!(deltas[spoken + 1]["response_id"], deltas[spoken]["response_id"]);
    assert!(!harness.is_closed());
}

#[test]
fn long_gap_drops_oldest_appends_and_counts_them() {
    let mut harness = open_session(config("mode=audio", &[]));
    harness.replace_gateway(config("", &["stuck-queue"]).simulator);
    for _ in 0..15 {
        harness.send_json(&append_message(&zeros(1000)));
        harness.advance(ms(1000));
    }
    assert_eq!(harness.names().len(), 2, "the client gets no queue events");
    harness.replace_gateway(config("", &[]).simulator);
    harness.advance(ms(20_000));
    let resumed = |observation: &&Observation| {
        matches!(observation, Observation::RelayResumed { kept: 10, dropped: 5, .. })
    };
    assert_eq!(harness.observations.iter().filter(resumed).count(), 1, "{:?}", harness.observations);
    let errors = harness.events("error");
    let words = errors[0]["error"]["message"].as_str().unwrap();
    assert!(errors.len() == 1 && words.contains("5 messages with 5000 ms of audio"), "{errors:?}");
    assert_eq!(harness.names().len(), 13);
}

/// Only one server, whose back-end is down for 25 s: every attempt to open a session is refused.
#[test]
fn session_continues_after_its_only_back_end_was_down() {
    for (upstream, client) in [("minicpm-o", "minicpm-o"), ("minicpm-o", "minicpm-o-legacy")] {
        let down = HarnessConfig { upstream, ..config("mode=audio", &["die-before-created"]) };
        for (down_ms, ends) in [(25_000, false), (40_000, true)] {
            let mut harness = Harness::new_relay(config("mode=audio", &[]), &[client]);
            harness.send_json(&match client {
                "minicpm-o" => init_message(),
                _ => json!({"type": "session.update", "session": {"instructions": "p"}}),
            });
            harness.advance(ms(100));
            let lost_at = harness.now();
            harness.replace_gateway(down.simulator.clone());
            let closed_at = harness.run_until(|harness| harness.is_closed(), ms(down_ms));
            assert_eq!(closed_at.is_some(), ends, "{client}: {closed_at:?} {:?}", harness.names());
            if let Some(closed_at) = closed_at {
                assert_eq!(closed_at - lost_at, ms(30_000), "{client}");
                continue;
            }
            harness.replace_gateway(config("", &[]).simulator);
            let resumed = |observation: &Observation| matches!(observation, Observation::RelayResumed { .. });
            let is_resumed = |harness: &Harness| harness.observations.iter().any(resumed);
            assert!(harness.run_until(is_resumed, ms(5000)).is_some(), "{client}: {:?}", harness.names());
        }
    }
}

#[test]
fn repeatedly_dying_upstream_is_given_up() {
    let mut harness = open_session(config("mode=audio", &[]));
    let listen = json!({"type": "response.output.delta", "kind": "listen"}).to_string();
    while !harness.is_closed() && harness.now() < ms(60_000) {
        let openings = harness.openings.len();
        let lane = newest_lane(&harness);
        for _ in 0..5 {
            harness.inject_upstream_text(lane, &listen);
        }
        harness.break_lane(lane);
        harness.run_until(|harness| harness.is_closed() || harness.openings.len() > openings, ms(20_000));
        harness.advance(ms(100));
    }
    let dialled = harness.dial_count();
    assert!(harness.is_closed() && dialled < 20, "{dialled} in {:?}", harness.now());
    assert_eq!(harness.events("session.closed")[0]["reason"], "backend_error");
    harness.advance(ms(10_000));
    assert!(harness.finished);
}

#[test]
fn unanswered_chat_is_resent_after_upstream_loss() {
    let mut harness = open_session(config("mode=chat", &[]));
    harness.send_json(&chat_message("Hello"));
    harness.break_lanes();
    harness.advance(ms(10_000));
    assert_eq!(harness.events("response.done").len(), 1);
    assert_eq!(harness.events("session.created").len(), 1);
    let questions = sent_texts(&harness).into_iter().filter(|text| text.contains("Hello")).count();
    assert_eq!(questions, 2);
}

#[test]
fn partial_chat_answer_ends_session_after_upstream_loss() {
    let mut harness = open_session(config("mode=chat", &["drop-mid-answer=2,times=1"]));
    harness.send_json(&chat_message("Hello"));
    harness.advance(ms(10_000));
    assert!(!harness.events("response.output.delta").is_empty());
    let closed = harness.events("session.closed");
    assert_eq!((closed.len(), closed[0]["reason"].as_str()), (1, Some("backend_error")));
    assert_eq!(harness.names().last().unwrap(), "close 1000");
    assert!(harness.finished);
}

#[test]
fn unavailable_upstream_ends_session() {
    let mut harness = open_session(config("mode=audio", &[]));
    harness.replace_gateway(SimulatorConfig { workers: 0, ..SimulatorConfig::default() });
    harness.advance(ms(60_000));
    assert_eq!(harness.names()[2..], ["error", "session.closed", "close 1000"]);
    assert_eq!(harness.events("session.closed")[0]["reason"], "backend_error");
    assert!(harness.finished);
}

#[test]
fn upstream_timeout_ends_client_session() {
    let mut harness = open_session(config("mode=audio", &["timeout=2"]));
    harness.advance(ms(5000));
    assert_eq!(harness.names()[2..], ["session.closed", "close 1000"]);
    assert_eq!(harness.events("session.closed")[0], &json!({"type": "session.closed", "reason": "timeout"}));
    assert!(harness.finished);
}

#[test]
fn drain_lets_chat_answer_finish_and_sends_server_shutdown() {
    let mut idle = open_session(config("mode=audio", &[]));
    idle.drain();
    idle.advance(ms(1000));
    assert_eq!(idle.names()[2..], ["session.closed", "close 1012"]);
    assert_eq!(idle.events("session.closed")[0]["reason"], "server_shutdown");
    assert!(idle.finished);

    let mut busy = open_session(config("mode=chat", &[]));
    busy.send_json(&chat_message("Hello"));
    busy.advance(ms(200));
    busy.drain();
    busy.advance(ms(10_000));
    let names = busy.names();
    assert_eq!(names[names.len() - 3..], ["response.done", "session.closed", "close 1012"]);
    assert!(!idle.was_cut_off() && !busy.was_cut_off());

    let mut stuck = open_session(config("mode=chat", &["never-answers"]));
    stuck.send_json(&chat_message("Hello"));
    stuck.drain();
    stuck.advance(ms(9000));
    assert!(!stuck.is_closed());
    stuck.advance(ms(2000));
    assert!(stuck.is_closed() && stuck.was_cut_off());
    stuck.advance(ms(30_000));
    assert!(stuck.finished);
}

#[test]
fn session_time_limit_waits_for_pending_answer() {
    let limited = |query: &str, faults: &[&str]| {
        open_session(HarnessConfig { session_max_ms: 300, ..config(query, faults) })
    };
    let mut idle = limited("mode=audio", &[]);
    idle.advance(ms(199));
    assert!(!idle.is_closed());
    idle.advance(ms(1));
    assert_eq!(idle.names()[2..], ["session.closed", "close 1000"]);
    assert_eq!(idle.events("session.closed")[0]["reason"], "timeout");

    let mut busy = limited("mode=chat", &[]);
    busy.send_json(&chat_message("Hello"));
    busy.advance(ms(10_000));
    let names = busy.names();
    assert_eq!(names[names.len() - 3..], ["response.done", "session.closed", "close 1000"]);

    let mut stuck = limited("mode=chat", &["never-answers"]);
    stuck.send_json(&chat_message("Hello"));
    stuck.advance(ms(9_000));
    assert!(!stuck.is_closed());
    stuck.advance(ms(2_000));
    assert!(stuck.is_closed());
    stuck.advance(ms(30_000));
    assert!(stuck.finished);
}

/// Messages of a worker whose back-end is gone, or that does not know a message.
const WORKER_CLOSE: &str = r#"{"type":"session.closed","session_id":"s","reason":"backend_error"}"#;

#[test]
fn crashed_backend_is_replaced() {
    for mode in ["mode=audio", "mode=chat"] {
        let mut harness = open_session(config(mode, &[]));
        let lane = newest_lane(&harness);
        if mode == "mode=chat" {
            harness.send_json(&chat_message("Hello"));
        }
        harness.inject_upstream_text(lane, WORKER_CLOSE);
        harness.break_lane(lane);
        harness.advance(ms(10_000));
        assert!(!harness.is_closed() && newest_lane(&harness) != lane, "{mode}: {:?}", harness.names());
        if mode == "mode=chat" {
            assert_eq!(harness.events("response.done").len(), 1, "the question is asked again");
        }
        // Some chat clients would ask their question again.
        let created = harness.events("session.created").len();
        assert_eq!(created, if mode == "mode=chat" { 1 } else { 2 }, "{mode}");
    }
}

#[test]
fn refused_message_or_diagnostic_ends_session() {
    let mut refused = open_session(config("mode=audio", &[]));
    refused.send_json(&json!({"type": "response.cancel"}));
    refused.advance(ms(10_000));
    assert_eq!((refused.names().last().unwrap().as_str(), refused.openings.len()), ("close 1000", 1));

    let mut failed = open_session(config("mode=audio", &[]));
    let diagnostic = WORKER_CLOSE.replace('}', r#","diagnostic":{"message":"CUDA error"}}"#);
    failed.inject_upstream_text(newest_lane(&failed), &diagnostic);
    failed.advance(ms(10_000));
    assert_eq!((failed.names().last().unwrap().as_str(), failed.openings.len()), ("close 1000", 1));
}

#[test]
fn repeatedly_crashing_backend_is_given_up() {
    let mut harness = open_session(config("mode=audio", &[]));
    while !harness.is_closed() && harness.now() < ms(60_000) {
        let openings = harness.openings.len();
        let lane = newest_lane(&harness);
        harness.inject_upstream_text(lane, WORKER_CLOSE);
        harness.break_lane(lane);
        harness.run_until(|harness| harness.is_closed() || harness.openings.len() > openings, ms(20_000));
        harness.advance(ms(100));
    }
    assert_eq!(harness.events("session.closed")[0]["reason"], "backend_error");
    assert!(harness.is_closed() && harness.dial_count() < 20);
}
