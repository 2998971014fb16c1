//! Text to speech: texts are collected, flushed in order and cleared.

use super::*;

fn open_speak_client(query: &str, faults: &[&str]) -> Harness {
    open_client("deepgram-speak", query, faults)
}

fn send_speak_text(harness: &mut Harness, text: &str) {
    harness.send_json(&json!({"type": "Speak", "text": text}));
}

fn audio_bytes(harness: &Harness) -> usize {
    let bytes = |frame: &ClientFrame| if let ClientFrame::Binary(bytes) = frame { bytes.len() } else { 0 };
    harness.log.iter().map(|(_, frame)| bytes(frame)).sum()
}

#[test]
fn flushed_texts_are_spoken_in_order_with_flushed_after_audio() {
    let mut harness = open_speak_client("", &[]);
    for piece in ["Good ", "morning.", "How are you?"] {
        send_speak_text(&mut harness, piece);
    }
    harness.advance(secs(5));
    assert_eq!(harness.names(), ["Metadata"], "nothing is spoken before it is flushed");
    assert_eq!(events(&harness, "Metadata")[0]["model_name"], "aura-asteria-en");
    send_command(&mut harness, "Flush");
    send_speak_text(&mut harness, "The second one.");
    send_command(&mut harness, "Flush");
    send_command(&mut harness, "Flush");
    harness.advance(secs(30));
    assert_eq!(harness.names(), ["Metadata", "binary", "Flushed", "binary", "Flushed", "Flushed"]);
    let numbers: Vec<_> =
        events(&harness, "Flushed").iter().map(|event| event["sequence_id"].clone()).collect();
    assert_eq!(numbers, [0, 1, 2]);
    let questions: Vec<_> = harness.sent_containing("input.append");
    assert_eq!(questions.len(), 2);
    assert!(questions[0].contains("Good morning. How are you?") && questions[1].contains("The second one."));
    assert_session_ends(&mut harness);
}

#[test]
fn clear_stops_playback_and_discards_queued_texts() {
    let mut harness = open_speak_client("", &[]);
    let long = "This sentence is not spoken to its end, and neither are those after it. ".repeat(10);
    send_speak_text(&mut harness, &long);
    send_command(&mut harness, "Flush");
    send_speak_text(&mut harness, "Nor is this.");
    send_command(&mut harness, "Flush");
    send_speak_text(&mut harness, "And this is not even flushed.");
    harness.wait_until(|harness| audio_bytes(harness) > 0, secs(10));
    send_command(&mut harness, "Clear");
    let sent_bytes = audio_bytes(&harness);
    harness.advance(secs(60));
    assert_eq!(harness.names(), ["Metadata", "binary", "Cleared"]);
    assert_eq!(audio_bytes(&harness), sent_bytes, "no audio follows");
    send_command(&mut harness, "Flush");
    send_speak_text(&mut harness, "But this is.");
    send_command(&mut harness, "Flush");
    send_command(&mut harness, "Clear");
    send_speak_text(&mut harness, "And this.");
    send_command(&mut harness, "Flush");
    harness.advance(secs(30));
    let names = harness.names();
    assert_eq!(names[3..], ["Flushed", "Cleared", "binary", "Flushed"], "{names:?}");
    assert!(
        harness.sent_containing("And this.").len() == 1 && harness.sent_containing("Nor is this.").is_empty()
    );
    assert_session_ends(&mut harness);
}

#[test]
fn close_plays_everything_already_sent() {
    let mut harness = open_speak_client("", &[]);
    send_speak_text(&mut harness, "One.");
    send_command(&mut harness, "Flush");
    send_speak_text(&mut harness, "Two.");
    send_command(&mut harness, "Close");
    send_speak_text(&mut harness, "Too late.");
    harness.run_until(Harness::is_closed, secs(60));
    assert_eq!(harness.names(), ["Metadata", "binary", "Flushed", "binary", "close 1000"]);
    assert!(harness.sent_containing("Too late").is_empty());
    assert_session_ends(&mut harness);
}

#[test]
fn output_format_follows_query() {
    let mut lengths = Vec::new();
    for (query, bytes_a_second) in [
        ("", 48_000),
        ("encoding=linear16&sample_rate=8000", 16_000),
        ("encoding=mulaw", 8000),
        ("encoding=alaw&sample_rate=16000", 16_000),
    ] {
        let mut harness = open_speak_client(query, &[]);
        send_speak_text(&mut harness, "The quick brown fox jumps over the lazy dog.");
        send_command(&mut harness, "Flush");
        harness.advance(secs(30));
        assert_eq!(harness.names().last().unwrap(), "Flushed");
        lengths.push(audio_bytes(&harness) * 1000 / bytes_a_second);
        assert_session_ends(&mut harness);
    }
    let (shortest, longest) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
    assert!(*shortest > 1000 && longest - shortest < 20, "{lengths:?}");
}

#[test]
fn failed_text_is_reported_and_next_is_spoken() {
    let mut harness = open_speak_client("", &["no-audio,times=1"]);
    for piece in ["One.", "Two."] {
        send_speak_text(&mut harness, piece);
        send_command(&mut harness, "Flush");
    }
    harness.advance(secs(60));
    assert_eq!(harness.names(), ["Metadata", "Warning", "Flushed", "binary", "Flushed"]);
    assert!(events(&harness, "Warning")[0]["warn_msg"].as_str().unwrap().contains("without audio"));
    assert_session_ends(&mut harness);
}

#[test]
fn queued_texts_are_bounded() {
    let mut harness = open_speak_client("", &["slow-init=50"]);
    for _ in 0..1000 {
        send_speak_text(&mut harness, &"word ".repeat(300));
        send_command(&mut harness, "Flush");
    }
    assert!(events(&harness, "Warning").len() > 900, "{}", events(&harness, "Warning").len());
    send_command(&mut harness, "Clear");
    send_speak_text(&mut harness, "Again.");
    send_command(&mut harness, "Flush");
    harness.advance(secs(200));
    assert_eq!(harness.names().last().unwrap(), "Flushed");
    assert_session_ends(&mut harness);
}
