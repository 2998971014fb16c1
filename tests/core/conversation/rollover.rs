//! Rollover of a conversation to the next upstream session: its causes, its moment, the carried history and
//! the standby session.

use voxbridge::vocabulary::RolloverReason::TimeLimit;

use super::{harness::HarnessConfig, support::*, *};

/// An upstream that does not report its context length.
fn without_metrics(mut config: HarnessConfig) -> HarnessConfig {
    config.change_file(MappingKind::Upstream, config.upstream, &[("/kv_cache_length", "/nothing")]);
    config
}

/// Times in seconds at which the upstream sessions ended.
fn lane_end_times(conversation: &Conversation) -> Vec<u64> {
    conversation.goodbyes.iter().map(|at| at.as_secs()).collect()
}

#[test]
fn rollover_happens_before_time_limit() {
    for (profile, from, to) in [("conversation", 550, 580), ("video", 270, 290)] {
        let mut conversation = Conversation::new(HarnessConfig {
            profile,
            ..with_init(config(ServerKind::Pytorch, &[]), 2_000)
        });
        while conversation.rollovers().len() < 2 {
            conversation.ask();
            conversation.wait_without_audio(secs(30));
        }
        assert_eq!(conversation.rollovers(), [(TimeLimit, 2_020, false); 2], "{profile}");
        assert_eq!(conversation.reported_rollovers(), vec![("time_limit".to_owned(), 2_020, false); 2]);
        let first = conversation.goodbyes[0].as_secs();
        assert!((from..=to).contains(&first), "{profile}: left at {first} s");
        conversation.assert_no_goodbye_during_answer();
        conversation.assert_turns_complete(conversation.questions.len());
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}

#[test]
fn rollover_is_invisible_unless_requested() {
    let mut conversation = Conversation::without_rollover_events(with_init(
        config(ServerKind::Pytorch, &["kv=7150,times=1"]),
        2_000,
    ));
    conversation.stream_silence(12_000);
    conversation.ask();
    assert_eq!(conversation.rollovers(), [(ContextFull, 2_020, false)]);
    assert_eq!(conversation.reported_rollovers(), []);
    conversation.close_and_check();
}

#[test]
fn initially_full_sessions_do_not_cause_rollover_storm() {
    let mut conversation = Conversation::new(with_init(config(ServerKind::Pytorch, &["kv=8100"]), 500));
    conversation.stream_silence(120_000);
    let ends = conversation.harness.events("error");
    assert_eq!(ends.last().map(|error| &error["recoverable"]), Some(&json!(false)), "the session ends");
    assert!(
        conversation.harness.openings.len() < 30,
        "{} sessions in a minute",
        conversation.harness.openings.len()
    );
}

#[test]
fn rollover_precedes_full_context_outside_questions() {
    for backend in BACKENDS {
        for kv in some_of((7_040..7_200).step_by(13), 4) {
            let mut conversation =
                Conversation::new(with_init(config(backend, &[&format!("kv={kv},times=1")]), 2_000));
            for _ in 0..3 {
                conversation.ask();
                conversation.stream_silence(2_000);
            }
            assert_eq!(conversation.rollovers(), [(ContextFull, 2_020, false)], "{backend:?} {kv}");
            conversation.assert_no_goodbye_during_answer();
            conversation.assert_turns_complete(3);
            conversation.assert_all_heard();
            conversation.close_and_check();
        }
    }
}

#[test]
fn unreported_context_is_estimated_including_pictures() {
    for backend in BACKENDS {
        // On that server a turn takes one unit more and thus more context positions.
        let min_s = if backend == ServerKind::Documented { 340 } else { 350 };
        for (frames, from, to) in [(false, min_s, 500), (true, 80, 100)] {
            let mut config = without_metrics(config(backend, &[]));
            config.profile = if frames { "video" } else { "conversation" };
            let mut conversation = Conversation::new(config);
            while conversation.rollovers().is_empty() {
                conversation.stream_speech(&endless_speech(1));
                for _ in 0..9 {
                    if frames {
                        conversation.harness.send_json(&json!({"type": "video.frame", "image": PICTURE}));
                    }
                    conversation.stream_silence(1_000);
                }
            }
            assert_eq!(conversation.rollovers()[0].0, ContextFull, "{backend:?}");
            assert!(
                (from..to).contains(&lane_end_times(&conversation)[0]),
                "{backend:?}: {:?}",
                lane_end_times(&conversation)
            );
            conversation.assert_all_heard();
            conversation.close_and_check();
        }
    }
}

#[test]
fn endless_speaker_does_not_prevent_rollover() {
    for backend in BACKENDS {
        // Endless user: no quiet moment after the soft bound; 28 positions a second until the hard bound.
        let mut conversation = Conversation::new(with_init(config(backend, &["kv=7100,times=1"]), 2_000));
        conversation.stream_speech(&endless_speech(60));
        assert_eq!(conversation.rollovers(), [(ContextFull, 2_020, false)], "{backend:?}");
        assert!(
            (30..=36).contains(&lane_end_times(&conversation)[0]),
            "{backend:?}: {:?}",
            lane_end_times(&conversation)
        );
        conversation.stream_until_answered(0);
        conversation.assert_all_heard();
        conversation.close_and_check();

        // Endless model: its audio is played to the end and the conversation continues.
        let faults = ["kv=7500,times=1", "never-listens,times=1"];
        let mut conversation = Conversation::new(with_init(config(backend, &faults), 2_000));
        conversation.ask();
        let turns = conversation.turns();
        // The documented server's turns begin with half a unit.
        let unit = if backend == ServerKind::Documented { 12_000 } else { 24_000 };
        assert!(turns.len() == 1 && turns[0].1 > 10 * 24_000 && turns[0].1.is_multiple_of(unit), "{turns:?}");
        conversation.ask();
        assert_eq!(conversation.turns()[1..], [(2, TURN_SAMPLES)], "{backend:?}");
        assert_eq!(conversation.rollovers(), [(ContextFull, 2_020, false)], "{backend:?}");
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}

#[test]
fn question_that_a_hard_limit_leaves_unanswered_is_asked_again() {
    for backend in BACKENDS {
        for kv in some_of((7_880..8_000).step_by(20), 4) {
            let mut conversation =
                Conversation::new(with_init(config(backend, &[&format!("kv={kv},times=1")]), 2_000));
            conversation.ask();
            conversation.stream_silence(10_000);
            let [(ContextFull, gap, false)] = conversation.rollovers()[..] else {
                panic!("{backend:?} {kv}: {:?}", conversation.rollovers())
            };
            assert!((2_000..2_500).contains(&gap), "{backend:?} {kv}: {gap} ms");
            conversation.assert_continues();
        }
    }
}

#[test]
fn server_ending_session_at_any_second_loses_nothing() {
    for backend in BACKENDS {
        for second in some_of(1..=24, 6) {
            let faults = [&*format!("timeout={second},times=1")];
            let mut conversation = Conversation::new(with_init(config(backend, &faults), 800));
            while conversation.harness.now() < secs(second + 2) {
                conversation.send_question();
                conversation.stream_silence(4_000);
            }
            conversation.stream_silence(12_000);
            let errors = [("worker_crash".to_owned(), true)];
            assert_eq!(conversation.errors(), errors, "{backend:?} {second}");
            let [(UpstreamLost, gap, false)] = conversation.rollovers()[..] else {
                panic!("{:?}", conversation.rollovers())
            };
            assert!((900..1_100).contains(&gap), "{backend:?} {second}: {gap} ms");
            assert!(conversation.resent_samples <= 64_000, "at most one question is sent again");
            conversation.turns();
            conversation.ask();
            conversation.assert_all_heard();
            conversation.close_and_check();
        }
    }
}

#[test]
fn next_session_receives_history() {
    let mut config = config(ServerKind::Pytorch, &["kv=5900,times=1"]);
    config.library =
        with_profile_changes(config.library, &[("history_max_chars = 2000", "history_max_chars = 120")]);
    let mut conversation = Conversation::new(config);
    for seconds in 1..=6 {
        let before = conversation.turns_ended;
        conversation.stream_speech(&endless_speech(seconds));
        conversation.stream_until_answered(before);
    }
    conversation.stream_silence(5_000);
    while conversation.harness.openings.len() < 2 {
        conversation.stream_silence(1_000);
    }
    let prompts: Vec<&str> =
        conversation.harness.openings.iter().map(|(_, opening)| opening.prompt.as_deref().unwrap()).collect();
    assert_eq!(prompts[0], "You are a helpful assistant.");
    let (_, said) = prompts[1].split_once("mentioning it: ").unwrap();
    let lines: Vec<&str> = said.lines().collect();
    assert!(said.chars().count() <= 122 && lines.len() == 2, "{said}");
    assert!(lines.iter().all(|line| line.starts_with("Assistant: I heard ")), "{said}");
    let finals = conversation.harness.events("transcript.final");
    assert_eq!(lines[1], format!("Assistant: {}", finals[5]["text"].as_str().unwrap()), "the newest");
    assert_eq!(lines[0], format!("Assistant: {}", finals[4]["text"].as_str().unwrap()));
    conversation.close_and_check();
}
