//! Spoken texts: one start and one end each, immediate stop, and an open microphone after every outcome.

use super::*;

#[test]
fn sentence_is_spoken_between_start_and_end() {
    let mut harness = Harness::new(HarnessConfig::default());
    send_speak(&mut harness, LONG, "one");
    let end = harness.next_event("tts.speaking_end");
    assert_eq!(harness.names(), ["session.created", "tts.speaking_start", "binary", "tts.speaking_end"]);
    let start = harness.events("tts.speaking_start")[0];
    assert_eq!((&start["request_id"], &start["text"]), (&json!("one"), &json!(LONG)));
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("one"), &json!(false)));
    let audio_ms = harness.audio().len() / 24;
    assert_eq!(end["audio_ms"], audio_ms);
    assert!((4000..8000).contains(&audio_ms), "{audio_ms} ms");
    assert!(harness.audio().iter().any(|sample| sample.unsigned_abs() > 3000), "it is silent");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn text_cancelled_before_first_audio_emits_no_events() {
    for (wait, latency) in [(0, 0), (20, 0), (45, 0), (200, 0), (0, 20), (30, 20), (50, 20), (100, 20)] {
        let mut harness = Harness::new(HarnessConfig { latency: ms(latency), ..HarnessConfig::default() });
        send_speak(&mut harness, LONG, "never");
        harness.advance(ms(wait));
        harness.send_json(&json!({"type": "tts.cancel"}));
        harness.advance(secs(5));
        assert_eq!(harness.names(), ["session.created"], "cancelled after {wait} ms");
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn cancelled_text_ends_at_once_without_further_audio() {
    let mut harness = Harness::new(HarnessConfig::default());
    send_speak(&mut harness, LONG, "cut");
    harness.next_event("tts.speaking_start");
    harness.advance(ms(600));
    let before = harness.log.len();
    harness.send_json(&json!({"type": "tts.cancel"}));
    let names: Vec<String> = harness.log[before..].iter().map(|(_, frame)| frame.name()).collect();
    assert_eq!(names, ["tts.speaking_end"], "the end comes at once");
    assert_eq!(harness.events("tts.speaking_end")[0]["cancelled"], true);
    assert_transcribes(&mut harness);
    assert_speaks(&mut harness);
    assert_eq!(harness.received_count(CORRUPTED_PREFIX.trim()), 0, "two generations ran at once");
    assert_closes_cleanly(harness);
}

#[test]
fn second_text_replaces_first() {
    let mut harness = Harness::new(HarnessConfig::default());
    send_speak(&mut harness, LONG, "one");
    harness.next_event("tts.speaking_start");
    send_speak(&mut harness, "Two.", "two");
    harness.run_until(|harness| harness.events("tts.speaking_end").len() == 2, secs(20));
    let ends: Vec<_> = harness
        .events("tts.speaking_end")
        .iter()
        .map(|end| json!([end["request_id"], end["cancelled"]]))
        .collect();
    assert_eq!(ends, [json!(["one", true]), json!(["two", false])]);
    assert_eq!(harness.received_count(CORRUPTED_PREFIX.trim()), 0, "two generations ran at once");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn rapid_texts_leave_only_the_last() {
    let mut harness = Harness::new(HarnessConfig::default());
    for number in 0..10 {
        send_speak(&mut harness, LONG, &format!("t{number}"));
        harness.advance(ms(30));
    }
    let end = harness.next_event("tts.speaking_end");
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("t9"), &json!(false)));
    assert_eq!(harness.events("tts.speaking_start").len(), 1);
    assert_eq!(harness.received_count("session_failed"), 0);
    assert_closes_cleanly(harness);
}

#[test]
fn upstream_lost_mid_text_yields_error_then_end() {
    let mut harness = Harness::new(HarnessConfig::default());
    send_speak(&mut harness, LONG, "lost");
    harness.next_event("tts.speaking_start");
    harness.advance(ms(300));
    harness.break_lanes();
    let names = harness.names();
    assert_eq!(names[names.len() - 2..], ["error", "tts.speaking_end"]);
    assert_eq!(harness.events("tts.speaking_end")[0]["cancelled"], false);
    let (code, message) = &errors(&harness)[0];
    assert_eq!(code, "tts_worker_error");
    assert!(message.contains("lost the connection"), "{message}");
    assert_transcribes(&mut harness);
    assert_speaks(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn microphone_is_muted_only_during_playback() {
    let mut harness = Harness::new(HarnessConfig::default());
    let mut config = HarnessConfig::default().simulator;
    config.timing.speech_second = secs(1);
    harness.replace_gateway(config);
    send_speak(&mut harness, LONG, "over");
    harness.next_event("tts.speaking_start");
    harness.stream(&utterance(), 40);
    assert!(harness.events("tts.speaking_end").is_empty(), "the text is too short for this test");
    assert_eq!(harness.names(), ["session.created", "tts.speaking_start", "binary"]);
    assert_eq!(harness.bridge().sample_counts().0.muted, utterance().len() as u64);
    assert!(harness.question_audio.is_empty());
    harness.next_event("tts.speaking_end");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn long_text_is_split_upstream_and_played_as_one() {
    let mut harness = Harness::new(HarnessConfig::default());
    let text: Vec<String> = (0..40).map(|number| format!("This is sentence number {number}.")).collect();
    send_speak(&mut harness, &text.join(" "), "long");
    harness.next_event("tts.speaking_end");
    assert_eq!(harness.names(), ["session.created", "tts.speaking_start", "binary", "tts.speaking_end"]);
    let requests: String = harness
        .traffic
        .iter()
        .filter_map(|(_, traffic)| match traffic {
            Traffic::Sent(_, text) if text.contains("input.append") => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let places: Vec<usize> = text.iter().map(|sentence| requests.find(sentence).unwrap()).collect();
    assert!(places.is_sorted() && requests.matches("input.append").count() > 3, "{places:?}");
    assert_closes_cleanly(harness);
}

#[test]
fn session_close_ends_text_first() {
    let mut harness = Harness::new(HarnessConfig::default());
    send_speak(&mut harness, LONG, "x");
    harness.next_event("tts.speaking_start");
    harness.send_json(&json!({"type": "session.close"}));
    let names = harness.names();
    assert_eq!(names[names.len() - 3..], ["tts.speaking_end", "session.closed", "close 1000"]);
    harness.advance(secs(60));
    assert!(harness.finished);
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
}

#[test]
fn text_part_without_audio_is_reported() {
    let mut config = HarnessConfig::default();
    let shorter = ("part_max_chars = 300 ", "part_max_chars = 50 ");
    config.change_file(MappingKind::Profile, "speech", &[shorter]);
    config.simulator.faults = vec!["no-audio,times=1".parse().unwrap()];
    let mut harness = Harness::new(config);
    send_speak(&mut harness, LONG, "halves");
    harness.next_event("tts.speaking_end");
    let names = harness.names();
    assert_eq!(names, ["session.created", "tts.speaking_start", "binary", "error", "tts.speaking_end"]);
    let error = (
        json!("tts_worker_error"),
        "TTS worker error: the upstream answered 1 of 2 parts of the text without audio".to_owned(),
    );
    assert_eq!(errors(&harness), [error]);
    assert_closes_cleanly(harness);
}

#[test]
fn own_cancelled_text_in_queue_reports_no_error() {
    let mut config = HarnessConfig::default();
    // One worker, slower than real time: a sentence of 5 s takes 20 s.
    config.simulator.timing.speech_second = secs(4);
    let mut harness = Harness::new(config);
    send_speak(&mut harness, LONG, "one");
    harness.next_event("tts.speaking_start");
    harness.send_json(&json!({"type": "tts.cancel"}));
    send_speak(&mut harness, "And now this.", "two");
    harness
        .run_until(|harness| harness.events("tts.speaking_end").len() == 2, secs(90))
        .expect("the text is spoken");
    assert_eq!(errors(&harness), []);
    assert_closes_cleanly(harness);
}
