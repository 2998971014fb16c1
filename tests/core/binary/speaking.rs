//! Texts that are gathered, flushed in order, and cleared.

use super::*;

fn speak(query: &str, faults: &[&str]) -> Pair {
    client("deepgram-speak", query, faults)
}

fn text(pair: &mut Pair, text: &str) {
    pair.client(&json!({"type": "Speak", "text": text}));
}

fn say(pair: &mut Pair, kind: &str) {
    pair.client(&json!({ "type": kind }));
}

fn audio_bytes(pair: &Pair) -> usize {
    let bytes = |seen: &Seen| if let Seen::Binary(bytes) = seen { bytes.len() } else { 0 };
    pair.log.iter().map(|(_, seen)| bytes(seen)).sum()
}

#[test]
fn texts_are_spoken_in_order_each_flush_told_after_its_last_audio() {
    let mut pair = speak("", &[]);
    for piece in ["Good ", "morning.", "How are you?"] {
        text(&mut pair, piece);
    }
    pair.advance(secs(5));
    assert_eq!(pair.names(), ["Metadata"], "nothing is spoken before it is flushed");
    assert_eq!(events(&pair, "Metadata")[0]["model_name"], "aura-asteria-en");
    say(&mut pair, "Flush");
    text(&mut pair, "The second one.");
    say(&mut pair, "Flush");
    say(&mut pair, "Flush");
    pair.advance(secs(30));
    assert_eq!(pair.names(), ["Metadata", "binary", "Flushed", "binary", "Flushed", "Flushed"]);
    let numbers: Vec<_> = events(&pair, "Flushed").iter().map(|event| event["sequence_id"].clone()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let asked: Vec<_> = pair.sent("input.append");
    assert_eq!(asked.len(), 2);
    assert!(asked[0].contains("Good morning. How are you?") && asked[1].contains("The second one."));
    ends(&mut pair);
}

#[test]
fn who_clears_hears_nothing_more_and_nothing_that_waited() {
    let mut pair = speak("", &[]);
    let long = "This sentence is not spoken to its end, and neither are those after it. ".repeat(10);
    text(&mut pair, &long);
    say(&mut pair, "Flush");
    text(&mut pair, "Nor is this.");
    say(&mut pair, "Flush");
    text(&mut pair, "And this is not even flushed.");
    assert!(pair.run_until(|pair| audio_bytes(pair) > 0, secs(10)).is_some());
    say(&mut pair, "Clear");
    let heard = audio_bytes(&pair);
    pair.advance(secs(60));
    assert_eq!(pair.names(), ["Metadata", "binary", "Cleared"]);
    assert_eq!(audio_bytes(&pair), heard, "silence");
    say(&mut pair, "Flush");
    text(&mut pair, "But this is.");
    say(&mut pair, "Flush");
    say(&mut pair, "Clear");
    text(&mut pair, "And this.");
    say(&mut pair, "Flush");
    pair.advance(secs(30));
    let names = pair.names();
    assert_eq!(names[3..], ["Flushed", "Cleared", "binary", "Flushed"], "{names:?}");
    assert!(pair.sent("And this.").len() == 1 && pair.sent("Nor is this.").is_empty());
    ends(&mut pair);
}

#[test]
fn who_closes_hears_all_it_sent() {
    let mut pair = speak("", &[]);
    text(&mut pair, "One.");
    say(&mut pair, "Flush");
    text(&mut pair, "Two.");
    say(&mut pair, "Close");
    text(&mut pair, "Too late.");
    pair.run_until(Pair::closed, secs(60));
    assert_eq!(pair.names(), ["Metadata", "binary", "Flushed", "binary", "close 1000"]);
    assert!(pair.sent("Too late").is_empty());
    ends(&mut pair);
}

#[test]
fn formats_are_those_asked_for() {
    let mut lengths = Vec::new();
    for (query, bytes_a_second) in [
        ("", 48_000),
        ("encoding=linear16&sample_rate=8000", 16_000),
        ("encoding=mulaw", 8000),
        ("encoding=alaw&sample_rate=16000", 16_000),
    ] {
        let mut pair = speak(query, &[]);
        text(&mut pair, "The quick brown fox jumps over the lazy dog.");
        say(&mut pair, "Flush");
        pair.advance(secs(30));
        assert_eq!(pair.names().last().unwrap(), "Flushed");
        lengths.push(audio_bytes(&pair) * 1000 / bytes_a_second);
        ends(&mut pair);
    }
    let (least, most) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
    assert!(*least > 1000 && most - least < 20, "{lengths:?}");
}

#[test]
fn a_text_that_fails_is_told_and_the_next_is_spoken() {
    let mut pair = speak("", &["no-audio,times=1"]);
    for piece in ["One.", "Two."] {
        text(&mut pair, piece);
        say(&mut pair, "Flush");
    }
    pair.advance(secs(60));
    assert_eq!(pair.names(), ["Metadata", "Warning", "Flushed", "binary", "Flushed"]);
    assert!(events(&pair, "Warning")[0]["warn_msg"].as_str().unwrap().contains("without audio"));
    ends(&mut pair);
}

#[test]
fn what_waits_is_bounded() {
    let mut pair = speak("", &["slow-init=50"]);
    for _ in 0..1000 {
        text(&mut pair, &"word ".repeat(300));
        say(&mut pair, "Flush");
    }
    assert!(events(&pair, "Warning").len() > 900, "{}", events(&pair, "Warning").len());
    say(&mut pair, "Clear");
    text(&mut pair, "Again.");
    say(&mut pair, "Flush");
    pair.advance(secs(200));
    assert_eq!(pair.names().last().unwrap(), "Flushed");
    ends(&mut pair);
}
