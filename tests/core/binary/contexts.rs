//! Text to speech in contexts: texts with ids are collected, spoken and cancelled on their own, and sentences without a flush.

use super::*;

fn generate(harness: &mut Harness, context: &str, text: &str, members: Value) {
    let mut message = json!({
        "context_id": context, "transcript": text, "model_id": "sonic-3", "voice": {"mode": "id", "id": "v"},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
    });
    message.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    harness.send_json(&message);
}

/// Kind and context of the events, without repetitions.
fn steps(harness: &Harness) -> Vec<String> {
    let events = harness.all_events();
    let text = |event: &Value, key: &str| event[key].as_str().unwrap_or("-").to_owned();
    let mut steps: Vec<_> =
        events.map(|event| format!("{} {}", text(event, "type"), text(event, "context_id"))).collect();
    steps.dedup();
    steps
}

#[test]
fn contexts_are_spoken_one_after_the_other() {
    let mut harness = open_client("cartesia-speak", "", &[]);
    generate(&mut harness, "a", "Good ", json!({"continue": true}));
    generate(&mut harness, "b", "The other one.", json!({}));
    generate(&mut harness, "a", "morning", json!({"continue": true}));
    harness.advance(secs(20));
    assert_eq!(steps(&harness), ["chunk b", "done b"], "the first context has no complete sentence");
    generate(&mut harness, "a", "", json!({"continue": false}));
    harness.advance(secs(20));
    assert_eq!(steps(&harness)[2..], ["chunk a", "done a"]);
    let questions = harness.sent_containing("input.append");
    assert!(questions[0].contains("The other one.") && questions[1].contains("Good morning"));
    assert_session_ends(&mut harness);
}

#[test]
fn complete_sentences_are_spoken_before_the_text_is_complete() {
    let mut harness = open_client("cartesia-speak", "", &[]);
    for word in ["It costs 3.5 euro. ", "Is that ", "much? ", "Who ", "knows"] {
        generate(&mut harness, "a", word, json!({"continue": true}));
    }
    harness.advance(secs(30));
    assert_eq!(steps(&harness), ["chunk a"], "the context goes on");
    let questions = harness.sent_containing("input.append");
    assert!(questions[0].contains("It costs 3.5 euro.") && !questions.concat().contains("Who knows"));
    generate(&mut harness, "a", "?", json!({}));
    harness.advance(secs(20));
    assert_eq!(steps(&harness), ["chunk a", "done a"]);
    assert_eq!(harness.sent_containing("Who knows?").len(), 1);
    assert_session_ends(&mut harness);
}

#[test]
fn cancel_concerns_one_context() {
    let mut harness = open_client("cartesia-speak", "", &[]);
    let long = "This sentence is not spoken to its end, and neither are those after it. ".repeat(10);
    generate(&mut harness, "a", &long, json!({}));
    generate(&mut harness, "b", "Never heard.", json!({}));
    generate(&mut harness, "c", "The last one.", json!({}));
    harness.wait_until(|harness| !steps(harness).is_empty(), secs(10));
    harness.send_json(&json!({"context_id": "b", "cancel": true}));
    harness.send_json(&json!({"context_id": "a", "cancel": true}));
    harness.advance(secs(60));
    assert_eq!(steps(&harness), ["chunk a", "chunk c", "done c"]);
    assert!(harness.sent_containing("Never heard.").is_empty());
    assert_session_ends(&mut harness);
}

#[test]
fn pieces_without_a_word_are_silent_and_end_nothing() {
    let mut harness = open_client("cartesia-speak", "", &[]);
    for piece in ["🙂\n", "\n", "Hello there.\n", "…\n"] {
        generate(&mut harness, "a", piece, json!({"continue": true, "cancel": null}));
        harness.advance(secs(10));
    }
    assert_eq!(steps(&harness), ["chunk a"], "{:?}", harness.log);
    generate(&mut harness, "a", "", json!({}));
    generate(&mut harness, "b", "🙂", json!({}));
    harness.advance(secs(20));
    assert_eq!(steps(&harness), ["chunk a", "done a", "done b"]);
    assert_session_ends(&mut harness);
}

#[test]
fn wrong_message_is_reported_and_the_next_one_is_spoken() {
    let mut harness = open_client("cartesia-speak", "", &[]);
    generate(&mut harness, "a", "Hello.", json!({"output_format": {"container": "mp3"}}));
    harness.send_json(&json!({"transcript": "No context."}));
    harness.send_json(&json!({"cancel": true}));
    harness.send_json(&json!({"text": "?"}));
    generate(&mut harness, &"x".repeat(300), "Hello.", json!({}));
    harness.advance(secs(1));
    assert_eq!(events(&harness, "error").len(), 5);
    generate(&mut harness, "a", "Hello.", json!({}));
    harness.advance(secs(20));
    let long = format!("error {}", "x".repeat(256));
    assert_eq!(steps(&harness), ["error a", "error -", &long, "chunk a", "done a"]);
    assert_session_ends(&mut harness);
}

#[test]
fn end_of_input_speaks_the_rest_and_ends_the_session() {
    let mut harness = open_client("elevenlabs-speak", "voice_id=v&output_format=pcm_16000", &[]);
    for text in [" ", "Good morning. ", "It is warm", ""] {
        harness.send_json(&json!({"text": text, "try_trigger_generation": true}));
    }
    harness.run_until(Harness::is_closed, secs(60));
    assert_eq!(close_frame(&harness), Some((1000, "")));
    let audio = events(&harness, "audio");
    assert!(audio.len() > 1 && audio.last().unwrap()["isFinal"] == true);
    assert!(!harness.sent_containing("It is warm").is_empty());
    assert_session_ends(&mut harness);
}

#[test]
fn error_about_a_message_names_its_context() {
    let cases = [
        (
            "cartesia-speak",
            "",
            json!({"context_id": "a", "transcript": "Hi.", "output_format": {"sample_rate": 7}}),
            "/context_id",
        ),
        (
            "soniox-speak",
            "",
            json!({"stream_id": "a", "audio_format": "pcm_s16le", "sample_rate": 7}),
            "/stream_id",
        ),
        ("elevenlabs-contexts", "voice_id=v", json!({"context_id": "a", "text": 7}), "/contextId"),
        ("elevenlabs-dialogue", "", json!({"context_id": "a", "inputs": 7}), "/context_id"),
    ];
    for (client, query, message, pointer) in cases {
        let mut harness = open_client(client, query, &[]);
        harness.send_json(&message);
        let named = harness.log.iter().find_map(|(_, frame)| match frame {
            ClientFrame::Event(event) => event.pointer(pointer),
            _ => None,
        });
        assert_eq!(named, Some(&json!("a")), "{client}: {:?}", harness.log);
    }
}
