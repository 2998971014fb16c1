//! Everything that can go wrong upstream, as the client lives through it: a clear error or none at all, and the session
//! goes on.

use super::*;

/// Faults that cost time and nothing else.
const INVISIBLE: [&str; 8] = [
    "queue-full,times=2",
    "busy,times=2",
    "403-after-queue=3",
    "slow-init=3,times=1",
    "die-before-created,times=2",
    "die-mid-answer=0,times=1",
    "drop-mid-answer=0,times=1",
    "never-answers,times=1",
];

fn without_partials(pair: &Pair) -> Vec<String> {
    let mut names = pair.names();
    names.retain(|name| name != "transcript.partial");
    names
}

#[test]
fn what_can_be_tried_again_is_not_told() {
    for fault in INVISIBLE {
        let mut pair = Pair::new(PairConfig::with_faults(&[fault]));
        pair.stream(&utterance(), 40);
        let limit = secs(55);
        let words = pair.run_until(|pair| !pair.events("transcript.final").is_empty(), limit);
        assert!(words.is_some(), "{fault}: {:?}", pair.names());
        assert_eq!(errors(&pair), [], "{fault}");
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);

        let mut pair = Pair::new(PairConfig::with_faults(&[fault]));
        is_spoken(&mut pair);
        is_understood(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn an_utterance_lost_twice_is_an_error_with_its_number() {
    for fault in ["die-mid-answer=0,times=2", "die-mid-answer=1,times=2", "drop-mid-answer=1,times=2"] {
        let mut pair = Pair::new(PairConfig::with_faults(&[fault]));
        pair.stream(&utterance(), 40);
        pair.advance(secs(5));
        assert_eq!(
            without_partials(&pair),
            ["session.created", "vad.speech_start", "error", "vad.speech_end"],
            "{fault}"
        );
        let error = pair.events("error")[0];
        assert_eq!(
            (&error["code"], &error["recoverable"], &error["resume_segment_id"]),
            (&json!("worker_crash"), &json!(true), &json!(0)),
            "{fault}"
        );
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn an_upstream_that_never_answers_is_an_error_after_a_minute() {
    let mut pair = Pair::new(PairConfig::with_faults(&["never-answers,times=2"]));
    pair.stream(&utterance(), 40);
    // The microphone stays open, or the session would be idle before.
    pair.stream(&zeros(66_000), 100);
    assert_eq!(without_partials(&pair), ["session.created", "vad.speech_start", "vad.speech_end", "error"]);
    assert!(errors(&pair)[0].1.contains("did not answer"), "{:?}", errors(&pair));
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn silence_to_the_model_is_an_empty_transcript() {
    let mut pair = Pair::new(PairConfig::with_faults(&["empty-transcript,times=1"]));
    pair.stream(&utterance(), 40);
    pair.advance(secs(3));
    assert_eq!(pair.names(), ["session.created", "vad.speech_start", "transcript.final", "vad.speech_end"]);
    assert_eq!(pair.events("transcript.final")[0]["text"], "");
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn an_upstream_that_refuses_everybody_is_told_in_words_and_recovers() {
    for (fault, code, words) in [
        ("queue-full", "service_unavailable", "queue_full"),
        ("busy", "worker_unavailable", "worker_busy"),
        ("403-after-queue", "worker_unavailable", "session_failed"),
        ("die-before-created", "worker_unavailable", "backend_error"),
    ] {
        let mut pair = Pair::new(PairConfig::with_faults(&[fault]));
        pair.stream(&utterance(), 40);
        pair.next_event("error");
        assert!(pair.now() < secs(15), "{fault}: told after {:?}", pair.now());
        let (told, message) = errors(&pair)[0].clone();
        assert_eq!(told, code, "{fault}");
        assert!(message.contains(words) && message.contains("attempts"), "{fault}: {message}");
        pair.advance(secs(1));
        assert_eq!(errors(&pair).len(), 1, "{fault}: told more than once");
        say(&mut pair, LONG, "no");
        pair.next_event("error");
        assert_eq!(pair.events("tts.speaking_start").len(), 0, "{fault}");
        pair.replace_gateway(PairConfig::default().simulator);
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn a_text_that_cannot_be_spoken_is_an_error_and_its_pair_closes() {
    let silent = ["session.created", "error"];
    let begun = ["session.created", "tts.speaking_start", "binary", "error", "tts.speaking_end"];
    for (fault, expected) in [
        ("die-mid-answer=0,times=2", &silent[..]),
        ("drop-mid-answer=0,times=2", &silent),
        ("never-answers,times=2", &silent),
        ("no-audio,times=1", &silent),
        ("die-mid-answer=2,times=1", &begun),
        ("drop-mid-answer=5,times=1", &begun),
    ] {
        let mut pair = Pair::new(PairConfig::with_faults(&[fault]));
        say(&mut pair, LONG, "bad");
        let told = pair.run_until(|pair| !pair.events("error").is_empty(), secs(70));
        assert!(told.is_some(), "{fault}");
        assert_eq!(pair.names(), expected, "{fault}");
        let (code, message) = &errors(&pair)[0];
        assert_eq!(code, "tts_worker_error", "{fault}");
        assert!(message.len() > "TTS worker error: ".len(), "{fault}: {message}");
        assert!(pair.events("tts.speaking_end").iter().all(|end| end["cancelled"] == false), "{fault}");
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn a_text_stuck_in_the_queue_is_told_once_and_can_be_given_up() {
    let mut pair = Pair::new(PairConfig::with_faults(&["stuck-queue,times=1"]));
    say(&mut pair, LONG, "stuck");
    pair.advance(ms(14_999));
    assert_eq!(errors(&pair), []);
    pair.advance(secs(15));
    let told = errors(&pair);
    assert!(told.len() == 1 && told[0].0 == "service_unavailable", "{told:?}");
    assert!(told[0].1.contains("position 1"), "{told:?}");
    pair.client(&json!({"type": "tts.cancel"}));
    is_spoken(&mut pair);
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn a_network_that_breaks_at_any_time_leaves_no_pair_open() {
    for after_ms in (0..3000).step_by(97) {
        let mut pair = Pair::new(PairConfig { latency: ms(10), ..PairConfig::default() });
        say(&mut pair, "Short.", "s");
        for frame in utterance().chunks(640) {
            if pair.now() >= ms(after_ms) && pair.now() < ms(after_ms + 40) {
                pair.break_lanes();
            }
            pair.stream(frame, 40);
        }
        pair.advance(secs(8));
        assert_eq!(sanity::problems(&pair), [""; 0], "broken after {after_ms} ms");
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn a_client_that_goes_away_takes_its_lanes_with_it() {
    for after_ms in (0..2600).step_by(130) {
        let mut pair = Pair::new(PairConfig { latency: ms(10), ..PairConfig::default() });
        pair.stream(&voice(after_ms.min(1200)), 20);
        if after_ms > 1200 {
            pair.stream(&zeros(after_ms - 1200), 20);
        }
        say(&mut pair, LONG, "gone");
        pair.advance(ms(after_ms % 500));
        pair.close_client();
        pair.advance(secs(60));
        assert!(pair.finished && pair.connections() == 0, "gone after {after_ms} ms");
        assert_eq!(pair.received_count("session_failed"), 0, "gone after {after_ms} ms");
    }
}
