//! A lane that nothing needs any more stays in the upstream's queue until it has a worker. Both real gateways lose the
//! worker for ever otherwise.

use super::*;

/// A session of this client and profile, on a gateway with three workers that other clients hold.
fn open_behind_others(client: &'static str, profile: &'static str) -> Harness {
    let mut config = HarnessConfig { client, profile, taken_workers: 3, ..HarnessConfig::default() };
    config.simulator.workers = 3;
    match profile {
        "relay" => {
            config.query = "mode=audio".to_owned();
            Harness::new_relay(config, &[client])
        }
        _ => Harness::new(config),
    }
}

/// Other clients give back their workers. No lane may cost one of them, and every lane is closed politely.
fn assert_costs_no_worker(harness: &mut Harness, case: &str) {
    let dropped = |(_, traffic): &&(Duration, Traffic)| matches!(traffic, Traffic::Dropped(_));
    assert_eq!(harness.traffic.iter().find(dropped), None, "{case}");
    harness.release_workers();
    harness.advance(secs(10));
    assert_eq!(harness.lost_workers(), 0, "{case}");
}

/// Brings the session into the queue.
fn join_queue(harness: &mut Harness, client: &str, profile: &str) {
    match (client, profile) {
        ("macaw", "speech") => send_speak(harness, LONG, "waits"),
        ("rest", _) => {
            harness.send_binary(&harness::bytes_of(&utterance()));
            harness.send_json(&json!({"type": "finish"}));
        }
        _ => harness.stream(&[0; 1600].map(|_: i16| 0), 20),
    }
    if profile == "assistant" {
        harness.stream(&voice(1200), 20);
    }
    harness.advance(ms(500));
    assert_eq!(harness.received_count("session.queued"), harness.dial_count(), "{client} {profile}");
    assert!(harness.dial_count() > 0, "{client} {profile}");
}

#[test]
fn cancelled_texts_in_the_queue_cost_no_worker() {
    let mut harness = open_behind_others("macaw", "speech");
    for _ in 0..3 {
        send_speak(&mut harness, LONG, "unheard");
        harness.advance(ms(100));
        harness.send_json(&json!({"type": "tts.cancel"}));
        harness.advance(ms(100));
    }
    assert_eq!(harness.dial_count(), 1, "the next text takes over the place in the queue");
    assert_costs_no_worker(&mut harness, "cancelled texts");
    assert_speaks(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn texts_cancelled_while_dialling_take_a_bounded_number_of_places() {
    let mut harness = open_behind_others("macaw", "speech");
    for _ in 0..20 {
        send_speak(&mut harness, LONG, "unheard");
        harness.send_json(&json!({"type": "tts.cancel"}));
        harness.advance(ms(20));
    }
    assert!(harness.dial_count() <= 6, "{} connections wait for one client", harness.dial_count());
    assert_costs_no_worker(&mut harness, "texts cancelled while dialling");
    assert_speaks(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn text_after_a_cancel_in_the_queue_is_spoken_from_the_same_place() {
    let mut harness = open_behind_others("macaw", "speech");
    send_speak(&mut harness, LONG, "unheard");
    harness.advance(secs(2));
    harness.send_json(&json!({"type": "tts.cancel"}));
    harness.advance(secs(2));
    send_speak(&mut harness, LONG, "heard");
    harness.release_workers();
    assert_eq!(harness.next_event("tts.speaking_end")["request_id"], "heard");
    assert_eq!((harness.dial_count(), harness.lost_workers()), (1, 0));
}

#[test]
fn utterances_given_up_in_the_queue_cost_no_worker() {
    let mut harness = open_behind_others("macaw", "speech");
    for _ in 0..3 {
        harness.stream(&voice(600), 20);
        harness.send_json(&json!({"type": "input_audio_buffer.clear"}));
        harness.advance(ms(100));
    }
    assert_costs_no_worker(&mut harness, "utterances");
    assert_transcribes(&mut harness);
}

#[test]
fn session_that_ends_in_the_queue_costs_no_worker() {
    for (client, profile) in [
        ("macaw", "speech"),
        ("rest", "speech"),
        ("macaw", "conversation"),
        ("macaw", "assistant"),
        ("minicpm-o", "relay"),
    ] {
        for end in ["client gone", "session.close", "operator", "drain"] {
            let case = format!("{client} {profile} {end}");
            if client == "rest" && end == "session.close" {
                continue;
            }
            let mut harness = open_behind_others(client, profile);
            join_queue(&mut harness, client, profile);
            match end {
                "client gone" => harness.close_client(),
                "session.close" => harness.send_json(&json!({"type": "session.close"})),
                "operator" => harness.order_close(),
                _ => harness.drain(),
            }
            harness.advance(secs(60));
            assert!(!harness.finished, "{case}: the lane waits");
            assert!(harness.report().only_waits_in_queue, "{case}: the client's session is over");
            assert_costs_no_worker(&mut harness, &case);
            assert!(harness.finished && harness.connections() == 0, "{case}: {:?}", harness.lanes());
        }
    }
}

#[test]
fn lane_whose_longest_wait_is_over_stays_in_the_queue() {
    let mut harness = open_behind_others("macaw", "speech");
    send_speak(&mut harness, LONG, "late");
    harness.advance(secs(121));
    assert!(errors(&harness).last().unwrap().1.contains("for 120 s"), "{:?}", errors(&harness));
    assert_costs_no_worker(&mut harness, "longest wait");
    assert_speaks(&mut harness);
}

#[test]
fn operators_see_lanes_that_leave_the_queue() {
    use voxbridge::session::Observation;
    let mut harness = open_behind_others("macaw", "speech");
    send_speak(&mut harness, LONG, "unheard");
    harness.advance(ms(100));
    harness.send_json(&json!({"type": "tts.cancel"}));
    let leaves = |it: &&Observation| matches!(it, Observation::LaneUnneeded { position: Some(1), .. });
    assert_eq!(harness.observations.iter().filter(leaves).count(), 1);
}
