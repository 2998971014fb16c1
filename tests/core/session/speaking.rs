//! Texts: started and ended once each, stopped at once, and the microphone open again whatever happened.

use voxbridge::simulator::CORRUPTED;

use super::*;

#[test]
fn a_sentence_is_spoken() {
    let mut pair = Pair::new(PairConfig::default());
    say(&mut pair, LONG, "one");
    let end = pair.next_event("tts.speaking_end");
    assert_eq!(pair.names(), ["session.created", "tts.speaking_start", "binary", "tts.speaking_end"]);
    let start = pair.events("tts.speaking_start")[0];
    assert_eq!((&start["request_id"], &start["text"]), (&json!("one"), &json!(LONG)));
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("one"), &json!(false)));
    let audio_ms = pair.audio().len() / 24;
    assert_eq!(end["audio_ms"], audio_ms);
    assert!((4000..8000).contains(&audio_ms), "{audio_ms} ms");
    assert!(pair.audio().iter().any(|sample| sample.unsigned_abs() > 3000), "it is silent");
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn cancelled_before_its_first_sound_a_text_never_was() {
    for (wait, latency) in [(0, 0), (20, 0), (45, 0), (200, 0), (0, 20), (30, 20), (50, 20), (100, 20)] {
        let mut pair = Pair::new(PairConfig { latency: ms(latency), ..PairConfig::default() });
        say(&mut pair, LONG, "never");
        pair.advance(ms(wait));
        pair.client(&json!({"type": "tts.cancel"}));
        pair.advance(secs(5));
        assert_eq!(pair.names(), ["session.created"], "cancelled after {wait} ms");
        is_understood(&mut pair);
        is_spoken(&mut pair);
        ends_well(pair);
    }
}

#[test]
fn cancelled_midway_it_ends_at_once_and_no_sound_follows() {
    let mut pair = Pair::new(PairConfig::default());
    say(&mut pair, LONG, "cut");
    pair.next_event("tts.speaking_start");
    pair.advance(ms(600));
    let seen = pair.log.len();
    pair.client(&json!({"type": "tts.cancel"}));
    let names: Vec<String> = pair.log[seen..].iter().map(|(_, seen)| seen.name()).collect();
    assert_eq!(names, ["tts.speaking_end"], "without a wait");
    assert_eq!(pair.events("tts.speaking_end")[0]["cancelled"], true);
    is_understood(&mut pair);
    is_spoken(&mut pair);
    assert_eq!(pair.received_count(CORRUPTED.trim()), 0, "two generations ran at once");
    ends_well(pair);
}

#[test]
fn the_second_text_replaces_the_first() {
    let mut pair = Pair::new(PairConfig::default());
    say(&mut pair, LONG, "one");
    pair.next_event("tts.speaking_start");
    say(&mut pair, "Two.", "two");
    pair.run_until(|pair| pair.events("tts.speaking_end").len() == 2, secs(20));
    let ends: Vec<_> = pair
        .events("tts.speaking_end")
        .iter()
        .map(|end| json!([end["request_id"], end["cancelled"]]))
        .collect();
    assert_eq!(ends, [json!(["one", true]), json!(["two", false])]);
    assert_eq!(pair.received_count(CORRUPTED.trim()), 0, "two generations ran at once");
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn ten_texts_in_a_hurry_leave_only_the_last() {
    let mut pair = Pair::new(PairConfig::default());
    for number in 0..10 {
        say(&mut pair, LONG, &format!("t{number}"));
        pair.advance(ms(30));
    }
    let end = pair.next_event("tts.speaking_end");
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("t9"), &json!(false)));
    assert_eq!(pair.events("tts.speaking_start").len(), 1);
    assert_eq!(pair.received_count("session_failed"), 0);
    ends_well(pair);
}

#[test]
fn an_upstream_lost_midway_is_an_error_and_then_the_end() {
    let mut pair = Pair::new(PairConfig::default());
    say(&mut pair, LONG, "lost");
    pair.next_event("tts.speaking_start");
    pair.advance(ms(300));
    pair.break_lanes();
    let names = pair.names();
    assert_eq!(names[names.len() - 2..], ["error", "tts.speaking_end"]);
    assert_eq!(pair.events("tts.speaking_end")[0]["cancelled"], false);
    let (code, message) = &errors(&pair)[0];
    assert_eq!(code, "tts_worker_error");
    assert!(message.contains("lost the connection"), "{message}");
    is_understood(&mut pair);
    is_spoken(&mut pair);
    ends_well(pair);
}

#[test]
fn the_microphone_is_muted_while_it_speaks_and_only_then() {
    let mut pair = Pair::new(PairConfig::default());
    let mut config = PairConfig::default().simulator;
    config.timing.speech_second = secs(1);
    pair.replace_gateway(config);
    say(&mut pair, LONG, "over");
    pair.next_event("tts.speaking_start");
    pair.stream(&utterance(), 40);
    assert!(pair.events("tts.speaking_end").is_empty(), "it spoke too short for this test");
    assert_eq!(pair.names(), ["session.created", "tts.speaking_start", "binary"]);
    assert_eq!(pair.bridge().account().0.muted, utterance().len() as u64);
    assert!(pair.heard.is_empty());
    pair.next_event("tts.speaking_end");
    is_understood(&mut pair);
    ends_well(pair);
}

#[test]
fn a_long_text_is_spoken_in_parts_and_in_one_go() {
    let mut pair = Pair::new(PairConfig::default());
    let text: Vec<String> = (0..40).map(|number| format!("This is sentence number {number}.")).collect();
    say(&mut pair, &text.join(" "), "long");
    pair.next_event("tts.speaking_end");
    assert_eq!(pair.names(), ["session.created", "tts.speaking_start", "binary", "tts.speaking_end"]);
    let asked: String = pair
        .traffic
        .iter()
        .filter_map(|(_, traffic)| match traffic {
            Traffic::Sent(_, text) if text.contains("input.append") => Some(text.as_str()),
            _ => None,
        })
        .collect();
    let places: Vec<usize> = text.iter().map(|sentence| asked.find(sentence).unwrap()).collect();
    assert!(places.is_sorted() && asked.matches("input.append").count() > 3, "{places:?}");
    ends_well(pair);
}

#[test]
fn closing_the_session_midway_ends_the_text_first() {
    let mut pair = Pair::new(PairConfig::default());
    say(&mut pair, LONG, "x");
    pair.next_event("tts.speaking_start");
    pair.client(&json!({"type": "session.close"}));
    let names = pair.names();
    assert_eq!(names[names.len() - 3..], ["tts.speaking_end", "session.closed", "close 1000"]);
    pair.advance(secs(60));
    assert!(pair.finished);
    assert_eq!(sanity::problems(&pair), [""; 0]);
}

#[test]
fn a_part_that_stays_silent_is_no_secret() {
    let mut config = PairConfig::default();
    let speech = include_str!("../../../mappings/profile/speech.toml");
    config
        .library
        .add("speech.toml", &speech.replace("part_max_chars = 300 ", "part_max_chars = 50 "))
        .unwrap();
    config.simulator.faults = vec!["no-audio,times=1".parse().unwrap()];
    let mut pair = Pair::new(config);
    say(&mut pair, LONG, "halves");
    pair.next_event("tts.speaking_end");
    let names = pair.names();
    assert_eq!(names, ["session.created", "tts.speaking_start", "binary", "error", "tts.speaking_end"]);
    let error = (
        json!("tts_worker_error"),
        "TTS worker error: the upstream answered 1 of 2 parts of the text without audio".to_owned(),
    );
    assert_eq!(errors(&pair), [error]);
    ends_well(pair);
}

#[test]
fn a_queue_that_is_held_up_by_the_client_itself_is_no_news() {
    let mut config = PairConfig::default();
    // One worker, slower than real time: a sentence of five seconds takes twenty.
    config.simulator.timing.speech_second = secs(4);
    let mut pair = Pair::new(config);
    say(&mut pair, LONG, "one");
    pair.next_event("tts.speaking_start");
    pair.client(&json!({"type": "tts.cancel"}));
    say(&mut pair, "And now this.", "two");
    pair.run_until(|pair| pair.events("tts.speaking_end").len() == 2, secs(90)).expect("it is spoken");
    assert_eq!(errors(&pair), []);
    ends_well(pair);
}
