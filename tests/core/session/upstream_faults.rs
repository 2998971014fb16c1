//! Upstream failures as the client sees them: a clear error or none at all, and the session continues.
use voxbridge_test_support::cases::some_of;

use super::*;

/// Faults that only cost time.
const INVISIBLE: [&str; 9] = [
    "queue-full,times=2",
    "busy,times=2",
    "403-after-queue=3",
    "slow-init=3,times=1",
    "die-before-created,times=2",
    "die-mid-answer=0,times=1",
    "die-mid-answer=1,times=1",
    "drop-mid-answer=0,times=1",
    "never-answers,times=1",
];

fn without_partials(harness: &Harness) -> Vec<String> {
    let mut names = harness.names();
    names.retain(|name| name != "transcript.partial");
    names
}

#[test]
fn retryable_faults_are_not_reported() {
    for fault in INVISIBLE {
        let mut harness = Harness::new(HarnessConfig::with_faults(&[fault]));
        harness.stream(&utterance(), 40);
        let limit = secs(55);
        let words = harness.run_until(|harness| !harness.events("transcript.final").is_empty(), limit);
        assert!(words.is_some(), "{fault}: {:?}", harness.names());
        assert_eq!(errors(&harness), [], "{fault}");
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);

        let mut harness = Harness::new(HarnessConfig::with_faults(&[fault]));
        assert_speaks(&mut harness);
        assert_transcribes(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn utterance_lost_twice_is_reported_with_segment_id() {
    for fault in ["die-mid-answer=0,times=2", "die-mid-answer=1,times=2", "drop-mid-answer=1,times=2"] {
        let mut harness = Harness::new(HarnessConfig::with_faults(&[fault]));
        harness.stream(&utterance(), 40);
        harness.advance(secs(5));
        assert_eq!(
            without_partials(&harness),
            ["session.created", "vad.speech_start", "error", "vad.speech_end"],
            "{fault}"
        );
        let error = harness.events("error")[0];
        assert_eq!(
            (&error["code"], &error["recoverable"], &error["resume_segment_id"]),
            (&json!("worker_crash"), &json!(true), &json!(0)),
            "{fault}"
        );
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn unanswered_utterance_is_reported_after_half_a_minute() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["never-answers,times=2"]));
    harness.stream(&utterance(), 40);
    // The microphone stays open; otherwise the session would become idle first.
    harness.stream(&zeros(36_000), 100);
    assert_eq!(
        without_partials(&harness),
        ["session.created", "vad.speech_start", "vad.speech_end", "error"]
    );
    let reported = &errors(&harness)[0].1;
    assert!(reported.contains("did not answer within 15000 ms (2 attempts in 3"), "{reported}");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

/// The next attempt goes to another upstream where there is one.
#[test]
fn ignored_utterance_is_transcribed_within_twenty_seconds() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["never-answers,times=1"]));
    harness.stream(&voice(1200), 40);
    let spoken_at = harness.now();
    harness.stream(&zeros(25_000), 100);
    let heard = |(_, frame): &&(Duration, ClientFrame)| frame.name() == "transcript.final";
    let heard_at = harness.log.iter().find(heard).map(|(at, _)| *at).expect("a transcript");
    assert!(heard_at - spoken_at < secs(20), "{:?}", heard_at - spoken_at);
    assert_eq!(errors(&harness), []);
}

#[test]
fn silent_initialisation_is_reported_after_one_minute() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["slow-init=100"]));
    send_speak(&mut harness, LONG, "silent");
    harness.run_until(|harness| !harness.events("error").is_empty(), secs(130));
    assert!(harness.now() < secs(64), "{:?}", harness.now());
    let reported = &errors(&harness)[0].1;
    assert!(reported.contains("did not initialise within 60000 ms (1 attempt in 63.0 s)"), "{reported}");
}

#[test]
fn silent_answer_is_reported_with_all_attempts() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["never-answers,times=2"]));
    send_speak(&mut harness, LONG, "silent");
    harness.run_until(|harness| !harness.events("error").is_empty(), secs(130));
    let reported = &errors(&harness)[0].1;
    assert!(reported.contains("did not answer within 15000 ms (2 attempts in 30."), "{reported}");
}

#[test]
fn empty_model_answer_is_empty_transcript() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["empty-transcript,times=1"]));
    harness.stream(&utterance(), 40);
    harness.advance(secs(3));
    assert_eq!(
        harness.names(),
        ["session.created", "vad.speech_start", "transcript.final", "vad.speech_end"]
    );
    assert_eq!(harness.events("transcript.final")[0]["text"], "");
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn rejecting_upstream_is_reported_and_session_recovers() {
    for (fault, code, words) in [
        ("queue-full", "service_unavailable", "queue_full"),
        ("busy", "worker_unavailable", "worker_busy"),
        ("403-after-queue", "worker_unavailable", "session_failed"),
        ("die-before-created", "worker_unavailable", "backend_error"),
    ] {
        let mut harness = Harness::new(HarnessConfig::with_faults(&[fault]));
        harness.stream(&utterance(), 40);
        harness.next_event("error");
        assert!(harness.now() < secs(15), "{fault}: reported after {:?}", harness.now());
        let (error_code, message) = errors(&harness)[0].clone();
        assert_eq!(error_code, code, "{fault}");
        assert!(message.contains(words) && message.contains("attempts"), "{fault}: {message}");
        assert!(message.contains("utterance 0 was not transcribed"), "{fault}: {message}");
        harness.advance(secs(1));
        assert_eq!(errors(&harness).len(), 1, "{fault}: reported more than once");
        send_speak(&mut harness, LONG, "no");
        let error = harness.next_event("error");
        assert_eq!((&error["code"], &error["request_id"]), (&code.into(), &"no".into()), "{fault}");
        let end = harness.events("tts.speaking_end")[0].clone();
        assert_has(&end, json!({"/request_id": "no", "/cancelled": true, "/audio_ms": 0}));
        let last: Vec<String> = harness.names().into_iter().rev().take(3).collect();
        assert_eq!(last, ["tts.speaking_end", "tts.speaking_start", "error"], "{fault}");
        harness.replace_gateway(HarnessConfig::default().simulator);
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn unspeakable_text_yields_error_and_closed_pair() {
    let silent = ["session.created", "error"];
    let interrupted = ["session.created", "tts.speaking_start", "binary", "error", "tts.speaking_end"];
    for (fault, expected, words) in [
        ("die-mid-answer=0,times=2", &silent[..], "the upstream "),
        ("drop-mid-answer=0,times=2", &silent, "the upstream "),
        ("never-answers,times=2", &silent, "the upstream "),
        ("no-audio,times=1", &silent, "without audio"),
        ("die-mid-answer=2,times=1", &interrupted, "the upstream "),
        ("drop-mid-answer=5,times=1", &interrupted, "the upstream "),
    ] {
        let mut harness = Harness::new(HarnessConfig::with_faults(&[fault]));
        send_speak(&mut harness, LONG, "bad");
        let reported = harness.run_until(|harness| !harness.events("error").is_empty(), secs(70));
        assert!(reported.is_some(), "{fault}");
        assert_eq!(harness.names(), expected, "{fault}");
        let (code, message) = &errors(&harness)[0];
        assert_eq!(code, "tts_worker_error", "{fault}");
        assert!(message.starts_with("TTS worker error: ") && message.contains(words), "{fault}: {message}");
        assert!(harness.events("tts.speaking_end").iter().all(|end| end["cancelled"] == false), "{fault}");
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn text_stuck_in_queue_is_reported_once_and_cancellable() {
    let mut harness = Harness::new(HarnessConfig::with_faults(&["stuck-queue,times=1"]));
    send_speak(&mut harness, LONG, "stuck");
    harness.advance(ms(14_999));
    assert_eq!(errors(&harness), []);
    harness.advance(secs(15));
    let reported = errors(&harness);
    assert!(reported.len() == 1 && reported[0].0 == "service_unavailable", "{reported:?}");
    assert!(reported[0].1.contains("position 1"), "{reported:?}");
    harness.send_json(&json!({"type": "tts.cancel"}));
    assert_speaks(&mut harness);
    assert_transcribes(&mut harness);
    assert_closes_cleanly(harness);
}

#[test]
fn network_break_leaves_no_pair_open() {
    for after_ms in some_of((0..3000).step_by(97), 4) {
        let mut harness = Harness::new(HarnessConfig { latency: ms(10), ..HarnessConfig::default() });
        send_speak(&mut harness, "Short.", "s");
        for frame in utterance().chunks(640) {
            if harness.now() >= ms(after_ms) && harness.now() < ms(after_ms + 40) {
                harness.break_lanes();
            }
            harness.stream(frame, 40);
        }
        harness.advance(secs(8));
        assert_eq!(protocol_checks::find_violations(&harness), [""; 0], "broken after {after_ms} ms");
        assert_transcribes(&mut harness);
        assert_speaks(&mut harness);
        assert_closes_cleanly(harness);
    }
}

#[test]
fn client_disconnect_closes_its_lanes() {
    for after_ms in some_of((0..2600).step_by(130), 4) {
        let mut harness = Harness::new(HarnessConfig { latency: ms(10), ..HarnessConfig::default() });
        harness.stream(&voice(after_ms.min(1200)), 20);
        if after_ms > 1200 {
            harness.stream(&zeros(after_ms - 1200), 20);
        }
        send_speak(&mut harness, LONG, "gone");
        harness.advance(ms(after_ms % 500));
        harness.close_client();
        harness.advance(secs(60));
        assert!(harness.finished && harness.connections() == 0, "left after {after_ms} ms");
        assert_eq!(harness.received_count("session_failed"), 0, "left after {after_ms} ms");
    }
}
