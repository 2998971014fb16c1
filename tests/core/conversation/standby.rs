//! The standby session on a second worker: no free worker, a dying standby, and a standby outdated by new
//! turns.

use super::{harness::HarnessConfig, support::*, *};

/// A conversation with a nearly full context, standby enabled, and this many workers.
fn standby_conversation(backend: ServerKind, workers: usize, kv: u32) -> Conversation {
    let mut config: HarnessConfig = with_init(config(backend, &[&format!("kv={kv},times=1")]), 2_000);
    config.library = with_profile_changes(config.library, &[STANDBY]);
    config.simulator.workers = workers;
    Conversation::new(config)
}

/// Runs until a second lane is open.
fn run_until_two_lanes(conversation: &mut Conversation) {
    while conversation.harness.lanes().len() < 2 {
        conversation.stream_silence(100);
    }
}

#[test]
fn standby_without_second_worker_has_no_effect() {
    for backend in BACKENDS {
        let mut conversation = standby_conversation(backend, 1, 7_100);
        conversation.ask();
        conversation.stream_silence(10_000);
        assert_eq!(conversation.rollovers(), [(ContextFull, 2_020, false)], "{backend:?}");
        assert_eq!((conversation.harness.openings.len(), conversation.errors()), (2, Vec::new()));
        conversation.assert_no_goodbye_during_answer();
        conversation.assert_continues();
    }
}

#[test]
fn dying_standby_is_not_noticed() {
    for backend in BACKENDS {
        for after_ms in some_of((0..4_500).step_by(300), 4) {
            let mut conversation = standby_conversation(backend, 2, 7_150);
            run_until_two_lanes(&mut conversation);
            conversation.stream_silence(after_ms);
            if let [_, standby] = conversation.harness.lanes()[..] {
                conversation.harness.break_lane(standby);
            }
            conversation.stream_silence(10_000);
            assert_eq!(conversation.rollovers().len(), 1, "{backend:?} {after_ms}");
            assert_eq!(
                (conversation.rollovers()[0].0, conversation.errors()),
                (ContextFull, Vec::new()),
                "{backend:?} {after_ms}"
            );
            conversation.assert_continues();
        }
    }
}

#[test]
fn standby_takes_over_from_dying_session() {
    for backend in BACKENDS {
        for after_ms in some_of((0..4_500).step_by(300), 4) {
            let mut conversation = standby_conversation(backend, 2, 7_150);
            run_until_two_lanes(&mut conversation);
            conversation.stream_silence(after_ms);
            let oldest = conversation.harness.lanes()[0];
            conversation.harness.break_lane(oldest);
            conversation.stream_silence(5_000);
            let (lost, gap, _) = *conversation.rollovers().last().unwrap();
            let replaced = conversation.rollovers().first().is_some_and(|(why, ..)| *why == ContextFull);
            assert!(
                replaced || (lost == UpstreamLost && gap <= 2_000),
                "{backend:?} {after_ms}: {:?}",
                conversation.rollovers()
            );
            conversation.assert_continues();
        }
    }
}

#[test]
fn active_and_standby_dying_together_are_replaced() {
    for backend in BACKENDS {
        for after_ms in some_of((0..4_500).step_by(300), 4) {
            let mut conversation = standby_conversation(backend, 2, 7_150);
            run_until_two_lanes(&mut conversation);
            conversation.stream_silence(after_ms);
            conversation.harness.break_lanes();
            conversation.stream_silence(5_000);
            conversation.assert_continues();
        }
    }
}

#[test]
fn outdated_standby_is_renewed() {
    for backend in BACKENDS {
        let mut conversation = standby_conversation(backend, 2, 7_180);
        conversation.ask();
        run_until_two_lanes(&mut conversation);
        // One question while the standby opens, and one while its replacement opens.
        conversation.ask();
        conversation.ask();
        conversation.stream_silence(10_000);
        assert_eq!(conversation.rollovers(), [(ContextFull, 0, true)], "{backend:?}");
        let prompts: Vec<_> = conversation
            .harness
            .openings
            .iter()
            .map(|(_, opening)| opening.prompt.clone().unwrap())
            .collect();
        assert!((3..=5).contains(&prompts.len()), "{backend:?}: {prompts:?}");
        assert_eq!(prompts.last().unwrap().lines().count(), 3, "{backend:?}: {prompts:?}");
        conversation.assert_no_goodbye_during_answer();
        conversation.assert_turns_complete(3);
        conversation.assert_continues();
    }
}

#[test]
fn successor_of_dying_session_knows_the_turn_spoken_since_the_standby_was_initialised() {
    for backend in BACKENDS {
        for after_ms in some_of((0..9_000).step_by(900), 4) {
            let mut conversation = standby_conversation(backend, 2, 7_150);
            run_until_two_lanes(&mut conversation);
            conversation.send_question();
            conversation.stream_silence(after_ms);
            conversation.harness.break_lane(conversation.harness.lanes()[0]);
            let said = conversation.said();
            conversation.stream_silence(6_000);
            conversation.assert_prompt_contains(&said);
            conversation.assert_continues();
        }
    }
}

#[test]
fn standby_without_the_last_turn_does_not_take_over_at_a_limit() {
    for backend in BACKENDS {
        for kv in some_of((7_600..7_880).step_by(40), 4) {
            let mut conversation = standby_conversation(backend, 2, kv);
            conversation.ask();
            let said = conversation.said();
            conversation.stream_silence(20_000);
            assert_eq!(conversation.rollovers().len(), 1, "{backend:?} {kv}");
            conversation.assert_prompt_contains(&said);
            conversation.assert_continues();
        }
    }
}

#[test]
fn next_session_of_a_slow_server_knows_every_turn() {
    let mut unaware = Vec::new();
    for backend in BACKENDS {
        for (init_ms, kv) in [(7_000, 7_150), (7_000, 7_450), (12_000, 7_150)] {
            let mut config: HarnessConfig =
                with_init(config(backend, &[&format!("kv={kv},times=1")]), init_ms);
            config.library = with_profile_changes(config.library, &[STANDBY]);
            config.simulator.workers = 2;
            let mut conversation = Conversation::new(config);
            while conversation.rollovers().is_empty() {
                conversation.ask();
                conversation.stream_silence(2_000);
            }
            let (said, gap_ms) = (conversation.said_before_rollover(), conversation.rollovers()[0].1);
            assert!(gap_ms <= init_ms + 500, "{backend:?} {init_ms} {kv}: a gap of {gap_ms} ms");
            let rollover = conversation.harness.events("session.rollover")[0];
            assert_has(rollover, json!({"/known_lines": said.len(), "/missing_lines": 0}));
            conversation.ask();
            if conversation.unknown_to_model(&said) > 0 {
                unaware.push((backend, init_ms, kv, conversation.unknown_to_model(&said)));
            }
            conversation.assert_continues();
        }
    }
    assert!(unaware.is_empty(), "(server, init ms, context, turns that the model forgot): {unaware:?}");
}

#[test]
fn standby_does_not_take_over_in_the_middle_of_a_turn() {
    for backend in BACKENDS {
        let faults = ["kv=7500,times=1", "never-listens,times=1"];
        let mut config: HarnessConfig = with_init(config(backend, &faults), 2_000);
        config.library = with_profile_changes(config.library, &[STANDBY]);
        config.simulator.workers = 2;
        let mut conversation = Conversation::new(config);
        conversation.ask();
        let said = conversation.said();
        conversation.stream_silence(5_000);
        assert_eq!((conversation.rollovers(), said.len()), (vec![(ContextFull, 2_020, false)], 1));
        conversation.assert_prompt_contains(&said);
        conversation.close_and_check();
    }
}

#[test]
fn text_takes_standby_worker_first() {
    for backend in ServerKind::WITH_CHAT {
        let mut conversation = standby_conversation(backend, 2, 7_150);
        run_until_two_lanes(&mut conversation);
        conversation.stream_silence(2_500);
        conversation.harness.send_json(&json!({"type": "tts.speak", "text": "Hello there."}));
        // Otherwise the model would hear silence instead of the user's words.
        conversation.wait_without_audio(secs(6));
        assert_eq!(
            conversation.harness.events("tts.speaking_end").len(),
            1,
            "{backend:?}: {:?}",
            conversation.harness.names()
        );
        assert!(
            conversation.rollovers().iter().all(|(why, ..)| *why == ContextFull),
            "{:?}",
            conversation.rollovers()
        );
        conversation.forget_turns();
        conversation.assert_continues();
    }
}
