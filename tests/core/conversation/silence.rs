//! Silence in place of the user's audio, and pauses in which no units are sent.
use voxbridge_test_support::cases::some_of;

use super::{support::*, *};

/// Number of units the upstreams received.
fn units(conversation: &Conversation) -> usize {
    conversation.heard_units
}

#[test]
fn missing_audio_sends_no_units() {
    let mut conversation = Conversation::new(config(ServerKind::Pytorch, &[]));
    conversation.wait_without_audio(secs(55));
    assert_eq!(units(&conversation), 0);
    conversation.ask();
    conversation.wait_without_audio(secs(20));
    let before = units(&conversation);
    conversation.wait_without_audio(secs(30));
    assert_eq!(units(&conversation), before, "no unit while both sides are silent");
    conversation.assert_all_heard();
    conversation.close_and_check();
}

#[test]
fn question_is_answered_after_microphone_stops() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &[]));
        for turn in 1..=5 {
            conversation.send_question();
            conversation.wait_without_audio(secs(12));
            assert_eq!(conversation.turns_ended, turn, "{backend:?}");
            assert_eq!(
                conversation.harness.bridge().uplink_counts().unwrap().waiting,
                0,
                "the last unit was padded and sent"
            );
            let before = units(&conversation);
            conversation.wait_without_audio(secs(30));
            assert!(units(&conversation) <= before + 2, "{backend:?}: {} units", units(&conversation));
        }
        conversation.assert_turns_complete(5);
        // Three units for each question, and silence until its answer was played or given up.
        assert!(units(&conversation) <= 5 * 13, "{backend:?}: {}", units(&conversation));
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}

#[test]
fn silence_is_sent_while_model_speaks() {
    for backend in BACKENDS {
        let mut config = config(backend, &[]);
        config.simulator.turn_units = 20;
        let mut conversation = Conversation::new(config);
        conversation.send_question();
        conversation.wait_without_audio(secs(40));
        assert_eq!(conversation.turns(), [(1, 19 * 24_000 + 14_400)], "{backend:?}");
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}

#[test]
fn question_before_model_is_ready_is_answered_later() {
    for backend in BACKENDS {
        for init_ms in some_of((500..16_000).step_by(1_500), 4) {
            let mut conversation = Conversation::new(with_init(config(backend, &[]), init_ms));
            conversation.send_question();
            conversation.wait_without_audio(ms(init_ms) + secs(14));
            assert_eq!(conversation.turns_ended, 1, "{backend:?}: ready after {init_ms} ms");
            conversation.assert_all_heard();
            conversation.close_and_check();
        }
    }
}

#[test]
fn question_during_rollover_is_answered_by_next_session() {
    for backend in BACKENDS {
        for init_ms in [2_000, 9_200, 15_800] {
            let mut conversation =
                Conversation::new(with_init(config(backend, &["kv=7200,times=1"]), init_ms));
            while conversation.goodbyes.is_empty() {
                conversation.stream_silence(500);
            }
            conversation.send_question();
            conversation.wait_without_audio(ms(init_ms) + secs(14));
            assert_eq!(conversation.turns_ended, 1, "{backend:?}: ready after {init_ms} ms");
            conversation.assert_all_heard();
            conversation.assert_continues();
        }
    }
}
