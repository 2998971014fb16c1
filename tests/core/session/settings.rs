//! Changes of settings in a session.

use super::*;

/// Number of utterances of two words with a second of silence between them.
fn utterances(harness: &mut Harness, event: &str) -> usize {
    for samples in [voice(1500), zeros(1000), voice(1500), zeros(3000)] {
        harness.stream(&samples, 20);
    }
    harness.events(event).len()
}

#[test]
fn formats_that_fit_only_together_are_accepted() {
    let mut harness = Harness::new(HarnessConfig::of("asterisk", "speech", ""));
    for format in ["slin44", "opus", "slin44", "slin192", "opus"] {
        harness.send_json(&json!({"event": "MEDIA_START", "format": format, "optimal_frame_size": 640}));
    }
    let is_error = |observation: &&Observation| matches!(observation, Observation::ErrorTold(_));
    assert_eq!(harness.observations.iter().find(is_error), None);
}

#[test]
fn wrong_rate_leaves_the_other_settings_in_force() {
    let mut harness = Harness::new(HarnessConfig::of("macaw", "speech", ""));
    let change = json!({"type": "session.configure", "silence_timeout_ms": 2000, "input_sample_rate": 1});
    harness.send_json(&change);
    let errors = errors(&harness);
    assert!(errors.len() == 1 && errors[0].1.contains("audio from the client"), "{errors:?}");
    assert_eq!(utterances(&mut harness, "vad.speech_start"), 1);
}

#[test]
fn idle_timeout_of_the_client_is_at_most_the_sessions_own() {
    for (client, query, expected_s) in [
        ("assemblyai", "inactivity_timeout=5", 5),
        ("assemblyai", "inactivity_timeout=3600", 300),
        ("assemblyai", "inactivity_timeout=2", 300),
        ("assemblyai", "inactivity_timeout=soon", 300),
        ("elevenlabs-speak", "inactivity_timeout=30", 30),
        ("elevenlabs-speak", "", 180),
    ] {
        let mut harness = Harness::new(HarnessConfig::of(client, "speech", query));
        harness.advance(secs(expected_s - 1));
        assert!(!harness.is_closed(), "{client} {query} ended early");
        harness.advance(secs(2));
        assert!(harness.is_closed(), "{client} {query} did not end");
    }
}

#[test]
fn lower_threshold_ends_the_wait_of_a_higher_one() {
    for (thresholds, expected) in [(&[1.0][..], 1), (&[1.0, 0.5][..], 2), (&[0.5][..], 2)] {
        let mut harness = Harness::new(HarnessConfig::of("assemblyai", "speech", "sample_rate=16000"));
        for threshold in thresholds {
            let change =
                json!({"type": "UpdateConfiguration", "end_of_turn_confidence_threshold": threshold});
            harness.send_json(&change);
        }
        assert_eq!(utterances(&mut harness, "SpeechStarted"), expected, "{thresholds:?}");
    }
}
