//! Lost upstream sessions: the client is notified, every pair is closed and the next session gets the user's
//! audio. After a minute without an upstream the conversation ends with an error.

use super::{
    harness::{ClientFrame, Harness, HarnessConfig},
    support::*,
    *,
};

const INTERRUPTED: &str = "worker_crash";

#[test]
fn model_dying_mid_turn_is_replaced() {
    for backend in BACKENDS {
        for fault in ["die-mid-turn", "drop-mid-turn"] {
            for units in 0..3 {
                let fault = format!("{fault}={units},times=1");
                let mut conversation = Conversation::new(with_init(config(backend, &[&fault]), 2_000));
                conversation.send_question();
                conversation.stream_silence(12_000);
                assert_eq!(conversation.errors(), [(INTERRUPTED.to_owned(), true)], "{backend:?} {fault}");
                assert!(
                    matches!(conversation.rollovers()[..], [(UpstreamLost, _, false)]),
                    "{:?}",
                    conversation.rollovers()
                );
                let turn_samples: Vec<_> = conversation.turns().iter().map(|(_, samples)| *samples).collect();
                // Before the answer began, the next session gets the whole question again. After that, only
                // one unit remained unanswered.
                let (expected, again) = match units {
                    0 => (TURN_SAMPLES, 32_000..=64_000),
                    // The documented server's first delta is half a second long.
                    _ if backend == ServerKind::Documented => (24_000 * units - 12_000, 16_000..=16_000),
                    _ => (24_000 * units, 16_000..=16_000),
                };
                assert_eq!(turn_samples, [expected], "{backend:?} {fault}: received audio was played");
                assert!(
                    again.contains(&conversation.resent_samples),
                    "{backend:?} {fault}: {}",
                    conversation.resent_samples
                );
                conversation.assert_continues();
            }
        }
    }
}

#[test]
fn network_break_keeps_user_audio() {
    let mut resent = 0;
    for seed in 0..60 {
        let mut config = with_init(config(BACKENDS[seed % 2], &[]), 1_500);
        config.latency = ms(10);
        let mut rng = fastrand::Rng::with_seed(seed as u64);
        let mut conversation = Conversation::new(config);
        for _ in 0..rng.usize(1..4) {
            let at = rng.u64(0..9_000);
            let mut speech = endless_speech(2);
            speech.extend(vec![0; 16 * 7_000]);
            let (before, after) = speech.split_at(16 * at as usize);
            conversation.stream_speech(before);
            conversation.harness.break_lanes();
            conversation.stream_speech(after);
        }
        // A break before the model is assigned interrupts no turn.
        let known = [INTERRUPTED, "worker_unavailable"];
        let errors = conversation.errors();
        assert!(
            errors.iter().all(|(code, assert_continues)| known.contains(&&**code) && *assert_continues),
            "{seed}: {errors:?}"
        );
        resent += conversation.resent_samples;
        conversation.assert_continues();
    }
    assert!(resent > 0, "no unit was in flight");
}

#[test]
fn unanswered_unit_is_sent_again() {
    for backend in BACKENDS {
        let mut conversation =
            Conversation::new(with_init(config(backend, &["never-answers,times=1"]), 2_000));
        conversation.stream_silence(2_900);
        conversation.wait_without_audio(secs(20));
        assert_eq!(
            (conversation.resent_samples, conversation.errors()),
            (16_000, vec![(INTERRUPTED.to_owned(), true)]),
            "{backend:?}"
        );
        conversation.assert_continues();
    }
}

/// A server that hangs is as harmless as one that dies: it is noticed soon, and its successor hears the whole question.
#[test]
fn hung_upstream_loses_no_speech() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(with_init(config(backend, &[]), 2_000));
        conversation.ask();
        conversation.stream_silence(4_000);
        let hung_at = conversation.harness.now();
        conversation.harness.inject_fault("never-answers,times=1");
        let before = conversation.turns_ended;
        conversation.stream_speech(&endless_speech(11));
        let is_error = |(_, frame): &&(_, ClientFrame)| frame.name() == "error";
        let noticed_at = conversation.harness.log.iter().find(is_error).expect("an error").0;
        assert!(noticed_at - hung_at < ms(6_500), "{backend:?}: {:?}", noticed_at - hung_at);
        conversation.stream_until_answered(before);
        assert_eq!(
            (conversation.dropped(), conversation.errors()),
            (0, vec![(INTERRUPTED.to_owned(), true)]),
            "{backend:?}"
        );
        assert!(conversation.resent_samples >= 16_000, "{backend:?}: {}", conversation.resent_samples);
        conversation.assert_continues();
    }
}

#[test]
fn stalled_upstream_catches_up_without_loss() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &[]));
        conversation.ask();
        conversation.stream_silence(4_000);
        conversation.harness.inject_fault("slow-steps=4.5,times=1");
        let before = conversation.turns_ended;
        conversation.stream_speech(&endless_speech(8));
        conversation.stream_until_answered(before);
        assert_eq!((conversation.dropped(), conversation.errors()), (0, vec![]), "{backend:?}");
        conversation.assert_continues();
    }
}

#[test]
fn gateway_outage_keeps_recent_audio() {
    for (fault, seconds) in [("queue-full", 10), ("busy", 25), ("403-after-queue", 40), ("queue-full", 55)] {
        let config = with_init(config(ServerKind::Pytorch, &[]), 1_000);
        let healthy = config.simulator.clone();
        let mut conversation = Conversation::new(config);
        conversation.ask();
        let faulty = HarnessConfig::with_faults(&[fault]).simulator;
        conversation.harness.replace_gateway(faulty);
        conversation.stream_silence(seconds * 1_000 - 4_000);
        conversation.send_question();
        conversation.harness.replace_gateway(healthy);
        conversation.forget_turns();
        let before = conversation.turns_ended;
        conversation.stream_until_answered(before);
        assert_eq!(conversation.dropped() > 0, seconds > 31, "{fault}: {}", conversation.dropped());
        conversation.assert_all_heard();
        assert!(
            conversation.errors().iter().all(|(_, recoverable)| *recoverable),
            "{:?}",
            conversation.errors()
        );
        conversation.stream_silence(20_000);
        conversation.close_and_check();
    }
}

/// Checks that the conversation ended with an error.
fn assert_ends_with_error(mut harness: Harness) {
    harness.advance(secs(120));
    assert!(harness.finished && harness.connections() == 0);
    let last: Vec<String> =
        harness.log[harness.log.len() - 3..].iter().map(|(_, frame)| frame.name()).collect();
    assert_eq!(last, ["error", "session.closed", "close 1011"]);
    let error = *harness.events("error").last().unwrap();
    assert_eq!(error["recoverable"], false, "{error}");
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
}

#[test]
fn lasting_gateway_outage_ends_session_at_cap() {
    for fault in ["queue-full", "busy", "403-after-queue", "die-before-created"] {
        for under_way in [false, true] {
            let faulty = HarnessConfig { profile: "conversation", ..HarnessConfig::with_faults(&[fault]) };
            let mut conversation =
                Conversation::new(if under_way { config(ServerKind::Pytorch, &[]) } else { faulty });
            if under_way {
                conversation.ask();
                conversation.harness.replace_gateway(HarnessConfig::with_faults(&[fault]).simulator);
            }
            let from = conversation.harness.now();
            while !conversation.harness.is_closed() && conversation.harness.now() - from < secs(100) {
                conversation.harness.send_binary(&[0; 3_200]);
                conversation.harness.advance(ms(100));
            }
            let took = conversation.harness.now() - from;
            assert!((secs(55)..secs(75)).contains(&took), "{fault}: {took:?}");
            assert_ends_with_error(conversation.harness);
        }
    }
}

#[test]
fn short_lived_upstreams_end_session_at_cap() {
    let mut conversation = Conversation::new(config(ServerKind::Pytorch, &["timeout=2"]));
    while !conversation.harness.is_closed() && conversation.harness.now() < secs(200) {
        conversation.harness.send_binary(&[0; 3_200]);
        conversation.harness.advance(ms(100));
    }
    // A minute without a session, not counting the two seconds that each session lived.
    assert!((secs(60)..secs(120)).contains(&conversation.harness.now()), "{:?}", conversation.harness.now());
    assert_ends_with_error(conversation.harness);
}

#[test]
fn resolved_trouble_resets_retries() {
    // The first session is lost early, the second rolls over after a long life, and the third is lost early
    // again.
    let mut conversation =
        Conversation::new(config(ServerKind::Pytorch, &["timeout=5,times=1", "kv=6100,times=2"]));
    while conversation.rollovers().len() < 2 {
        conversation.stream_silence(1_000);
    }
    conversation.stream_silence(3_000);
    conversation.harness.break_lanes();
    conversation.stream_silence(3_000);
    assert_eq!(conversation.errors(), vec![(INTERRUPTED.to_owned(), true); 2]);
    conversation.assert_continues();
}

#[test]
fn old_trouble_is_forgotten_in_quiet_session() {
    let mut config = config(ServerKind::Pytorch, &[]);
    config.library =
        with_profile_changes(config.library, &[("trailing_silence_ms = 6000", "trailing_silence_ms = 0")]);
    let mut conversation = Conversation::new(config);
    for _ in 0..3 {
        conversation.harness.break_lanes();
        for _ in 0..2 {
            conversation.stream_silence(20);
            conversation.wait_without_audio(secs(40));
        }
    }
    assert!(conversation.errors().iter().all(|(_, recoverable)| *recoverable), "{:?}", conversation.errors());
    conversation.assert_continues();
}

#[test]
fn lost_upstream_closes_open_pair() {
    let mut conversation = Conversation::new(config(ServerKind::Cpp, &["burst=20"]));
    conversation.send_question();
    while conversation.harness.events("tts.speaking_start").is_empty() {
        conversation.stream_silence(100);
    }
    conversation.harness.break_lanes();
    conversation.stream_silence(25_000);
    let end = conversation.harness.events("tts.speaking_end")[0].clone();
    assert_eq!((&end["cancelled"], &end["audio_ms"]), (&json!(true), &json!(20_000)), "the rest was lost");
    assert_eq!(conversation.turns(), [(1, 20 * 24_000)], "received audio is played to its end");
    conversation.assert_continues();
}
