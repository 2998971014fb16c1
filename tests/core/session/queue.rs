//! A lane that nothing needs any more stays in the upstream's queue until it has a worker. Both real gateways lose the
//! worker for ever otherwise.

use super::*;

/// A session of this client and profile, on a gateway with three workers that other clients hold.
fn open_behind_others(client: &'static str, profile: &'static str) -> Harness {
    let mut config =
        HarnessConfig { client, profile, taken_workers: 3, ..HarnessConfig::default() }.workers(3);
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
            harness.send_binary(&bytes_of(&utterance()));
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

#[test]
fn request_behind_lanes_that_were_left_has_the_queues_deadlines() {
    let mut harness = open_behind_others("macaw", "speech");
    // Each is closed before the gateway's first word, and so waits for good.
    for _ in 0..12 {
        send_speak(&mut harness, LONG, "unheard");
        harness.send_json(&json!({"type": "tts.cancel"}));
        harness.advance(ms(20));
    }
    let dialled = harness.dial_count();
    send_speak(&mut harness, LONG, "waits");
    harness.advance(secs(16));
    assert_eq!(errors(&harness).len(), 1, "a notice: {:?}", errors(&harness));
    harness.advance(secs(106));
    let errors = errors(&harness);
    assert_eq!(errors.len(), 2, "{errors:?}");
    assert_eq!((&errors[0].0, &errors[1].0), (&json!("service_unavailable"), &json!("service_unavailable")));
    assert!(errors[1].1.contains("for 120 s"), "{errors:?}");
    assert_eq!(harness.dial_count(), dialled, "no further place in the queue");
    assert_costs_no_worker(&mut harness, "impatient client");
    assert_speaks(&mut harness);
}

#[test]
fn request_that_was_held_back_takes_the_first_worker() {
    let mut harness = open_behind_others("macaw", "speech");
    for _ in 0..12 {
        send_speak(&mut harness, LONG, "unheard");
        harness.send_json(&json!({"type": "tts.cancel"}));
        harness.advance(ms(20));
    }
    send_speak(&mut harness, LONG, "heard");
    harness.advance(secs(3));
    harness.release_workers();
    assert_eq!(harness.next_event("tts.speaking_end")["request_id"], "heard");
    assert_eq!(harness.lost_workers(), 0);
}

/// Says that another upstream has room for the lanes in the queue. The harness has one gateway, where others gave back their
/// workers meanwhile or not.
fn find_place(harness: &mut Harness, lane: u32) {
    harness.find_place(Lane(lane));
    harness.advance(ms(200));
}

#[test]
fn lane_in_a_queue_goes_on_at_an_upstream_with_room_and_costs_no_worker() {
    for (client, profile) in
        [("macaw", "speech"), ("rest", "speech"), ("macaw", "conversation"), ("macaw", "assistant")]
    {
        let case = format!("{client} {profile}");
        let mut harness = open_behind_others(client, profile);
        join_queue(&mut harness, client, profile);
        let before = harness.dial_count();
        find_place(&mut harness, 0);
        assert_eq!(harness.dial_count(), before + 1, "{case}: it dials again");
        // The lane that it left is no longer its own.
        find_place(&mut harness, 0);
        assert_eq!(harness.dial_count(), before + 1, "{case}");
        harness.release_workers();
        harness.advance(secs(5));
        assert!(errors(&harness).is_empty(), "{case}: {:?}", errors(&harness));
        harness.close_client();
        harness.advance(secs(60));
        assert!(harness.finished && harness.connections() == 0, "{case}: {:?}", harness.lanes());
        assert_eq!(harness.lost_workers(), 0, "{case}");
    }
}

#[test]
fn first_worker_of_several_queues_serves_the_request() {
    let mut harness = open_behind_others("macaw", "speech");
    send_speak(&mut harness, LONG, "heard");
    harness.advance(ms(500));
    // Each attempt ends in a queue, too.
    for lane in 0..6 {
        find_place(&mut harness, lane);
    }
    assert!(harness.dial_count() <= 5, "{} places for one request", harness.dial_count());
    harness.release_workers();
    assert_eq!(harness.next_event("tts.speaking_end")["request_id"], "heard");
    harness.advance(secs(10));
    assert_eq!((harness.connections(), harness.lost_workers()), (0, 0));
}

#[test]
fn moves_between_queues_do_not_put_off_the_deadline() {
    let mut harness = open_behind_others("macaw", "speech");
    send_speak(&mut harness, LONG, "late");
    harness.advance(secs(60));
    find_place(&mut harness, 0);
    harness.advance(secs(61));
    let errors = errors(&harness);
    assert!(errors.last().unwrap().1.contains("for 120 s"), "{errors:?}");
    assert_costs_no_worker(&mut harness, "moved");
}
