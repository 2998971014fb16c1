//! Behaviour of legacy servers only: errors that end nothing, a full context that continues, undocumented
//! voice encodings, and missing features.

use super::{
    harness::{HarnessConfig, recording},
    support::*,
    *,
};

fn lane_retry_count(conversation: &Conversation) -> usize {
    conversation
        .harness
        .observations
        .iter()
        .filter(|observation| matches!(observation, Observation::LaneRetry { .. }))
        .count()
}

fn lane_trouble_count(conversation: &Conversation) -> usize {
    conversation
        .harness
        .observations
        .iter()
        .filter(|observation| matches!(observation, Observation::LaneTrouble { .. }))
        .count()
}

#[test]
fn failed_units_do_not_block_conversation() {
    for server_kind in ServerKind::LEGACY {
        for times in 1..=2 {
            let mut conversation = Conversation::new(config(server_kind, &[]));
            conversation.ask();
            conversation.harness.inject_fault(&format!("inference-fails,times={times}"));
            conversation.ask();
            conversation.ask();
            assert_eq!(
                (lane_trouble_count(&conversation), conversation.rollovers(), conversation.errors()),
                (times, vec![], vec![])
            );
            let (asked_at, answered_at) = conversation.questions[1];
            assert!(answered_at - asked_at < secs(8), "{server_kind:?}: {asked_at:?} {answered_at:?}");
            conversation.assert_turns_complete(3);
            conversation.assert_continues();
        }
    }
}

#[test]
fn permanently_failing_upstream_is_replaced_and_question_kept() {
    for server_kind in ServerKind::LEGACY {
        let mut conversation = Conversation::new(with_init(config(server_kind, &[]), 1_000));
        conversation.ask();
        conversation.harness.inject_fault("inference-fails,times=3");
        conversation.ask();
        assert_eq!(
            (lane_trouble_count(&conversation), conversation.errors()),
            (3, vec![("worker_crash".to_owned(), true)])
        );
        assert!(
            matches!(conversation.rollovers()[..], [(UpstreamLost, _, false)]),
            "{:?}",
            conversation.rollovers()
        );
        assert_eq!(conversation.goodbyes.len(), 1, "the session was closed politely");
        conversation.assert_turns_complete(2);
        conversation.assert_continues();
    }
}

#[test]
fn full_context_triggers_rollover() {
    for server_kind in ServerKind::LEGACY {
        for tokens in some_of((300..420).step_by(17), 4) {
            let fault = format!("context-full={tokens},times=1");
            let mut conversation = Conversation::new(with_init(config(server_kind, &[&fault]), 1_000));
            for _ in 0..2 {
                conversation.send_question();
                conversation.stream_silence(9_000);
            }
            let [(ContextFull, gap, false)] = conversation.rollovers()[..] else {
                panic!("{:?}", conversation.rollovers())
            };
            assert_eq!(conversation.errors(), [], "{server_kind:?} {tokens}: a limit is no failure");
            assert!(gap < 2_000, "{server_kind:?} {tokens}: {gap} ms");
            assert_eq!(conversation.goodbyes.len(), 1, "{server_kind:?} {tokens}: closed politely");
            conversation.turns();
            conversation.assert_continues();
        }
        let mut conversation = Conversation::new(with_init(config(server_kind, &["kv=7100,times=1"]), 1_000));
        conversation.ask();
        conversation.stream_silence(10_000);
        assert!(
            matches!(conversation.rollovers()[..], [(ContextFull, ..)]),
            "before the context is full: {:?}",
            conversation.rollovers()
        );
        conversation.assert_continues();
    }
}

#[test]
fn speak_command_is_rejected_without_interrupting() {
    for server_kind in ServerKind::LEGACY {
        let mut conversation = Conversation::new(config(server_kind, &[]));
        conversation.send_question();
        while conversation.harness.events("tts.speaking_start").is_empty() {
            conversation.stream_silence(100);
        }
        conversation.harness.send_json(&json!({"type": "tts.speak", "text": "Hello there."}));
        let error = conversation.harness.events("error")[0];
        assert_eq!((&error["code"], &error["recoverable"]), (&json!("tts_worker_error"), &json!(true)));
        let words = error["message"].as_str().unwrap();
        assert!(words.contains("no chat mode") && words.contains("cannot speak a given text"), "{words}");
        conversation.stream_until_answered(0);
        assert_eq!(conversation.assert_turns_complete(1), TURN_SAMPLES);
        assert_eq!(conversation.harness.events("tts.speaking_end")[0]["cancelled"], false);
        assert_eq!(conversation.harness.openings.len(), 1, "no lane is opened for the text");
        conversation.assert_continues();
    }
}

/// A voice as configured, and the samples the model must receive.
fn voice(samples: usize) -> (VoiceCatalog, Vec<f32>) {
    let model_samples: Vec<f32> = recording("goforward_16k.wav")[..samples]
        .iter()
        .map(|sample| f32::from(*sample) / 32_768.0)
        .collect();
    let sample = VoiceSample::new(recording("goforward_16k.wav")[..samples].to_vec());
    (VoiceCatalog::new(BTreeMap::from([("default".to_owned(), sample)]), Vec::new()), model_samples)
}

fn with_voice(server_kind: ServerKind, samples: usize, order: &str) -> (HarnessConfig, Vec<f32>) {
    let (voices, heard) = voice(samples);
    let mut config = HarnessConfig { voices, ..with_init(config(server_kind, &[]), 500) };
    config.change_file(MappingKind::Upstream, config.upstream, &[(r#"["f32le", "wav"]"#, order)]);
    (config, heard)
}

#[test]
fn accepted_voice_encoding_is_found_and_remembered() {
    for (server_kind, order, attempts) in [
        (ServerKind::Legacy, r#"["f32le", "wav"]"#, 0),
        (ServerKind::Legacy, r#"["wav", "f32le"]"#, 1),
        (ServerKind::Documented, r#"["f32le", "wav"]"#, 1),
        (ServerKind::Documented, r#"["wav", "f32le"]"#, 0),
    ] {
        // An even and an odd number of samples: neither encoding is mistaken for the other.
        for samples in [16_000, 16_001] {
            let (config, heard) = with_voice(server_kind, samples, order);
            let mut conversation = Conversation::new(config);
            conversation.ask();
            assert_eq!(lane_retry_count(&conversation), attempts, "{server_kind:?} {order}");
            conversation.harness.break_lanes();
            conversation.stream_silence(3_000);
            conversation.ask();
            assert_eq!(
                (lane_retry_count(&conversation), conversation.harness.openings.len()),
                (attempts, 2),
                "the working encoding is kept"
            );
            for (_, opening) in &conversation.harness.openings {
                let voice = opening.voice.as_ref().unwrap();
                assert_eq!(voice[..samples], heard);
                assert!(voice[samples..].iter().all(|sample| *sample == 0.0) && voice.len() <= samples + 1);
            }
            conversation.assert_continues();
        }
    }
}

#[test]
fn server_rejecting_all_voice_encodings_is_given_up() {
    for (server_kind, order) in [(ServerKind::Legacy, r#"["wav"]"#), (ServerKind::Documented, r#"["f32le"]"#)]
    {
        let (config, _) = with_voice(server_kind, 16_000, order);
        let mut conversation = Conversation::new(config);
        while !conversation.harness.is_closed() {
            conversation.harness.stream(&[1; 16_000], 100);
            assert!(conversation.harness.now() < secs(150), "{:?}", conversation.harness.names());
        }
        assert_eq!(conversation.harness.events("session.closed")[0]["reason"], "upstream_lost");
        assert_eq!(conversation.harness.openings, []);
    }
}
