//! Profile `assistant` for a client of the Macaw protocol: answers in turns, with the user's words and the model's.

use super::*;

fn connect() -> Harness {
    Harness::new(HarnessConfig { profile: "assistant", ..HarnessConfig::default() })
}

/// Asks, and waits until the answer is audible.
fn ask(harness: &mut Harness) {
    let earlier = harness.events("tts.speaking_start").len();
    harness.stream(&recording("goforward_16k.wav"), 20);
    while harness.events("tts.speaking_start").len() == earlier {
        harness.stream(&zeros(100), 20);
    }
}

#[test]
fn question_is_answered_with_transcripts_of_both_speakers() {
    let mut harness = connect();
    ask(&mut harness);
    harness.next_event("tts.speaking_end");
    let finals: Vec<(&Value, &Value)> =
        harness.events("transcript.final").iter().map(|it| (&it["speaker"], &it["source"])).collect();
    assert!(finals.contains(&(&json!("user"), &json!("transcription"))), "{finals:?}");
    assert!(finals.contains(&(&json!("assistant"), &json!("model"))), "{finals:?}");
    let names = harness.names();
    let at =
        |name: &str| names.iter().position(|it| it == name).unwrap_or_else(|| panic!("{name}: {names:?}"));
    assert!(at("vad.speech_start") < at("vad.speech_end") && at("vad.speech_end") < at("tts.speaking_start"));
    assert!(!harness.audio().is_empty());
    let end = harness.events("tts.speaking_end")[0];
    assert_eq!(end["cancelled"], false);
}

#[test]
fn speech_during_an_answer_interrupts_it_and_the_next_question_knows_what_was_heard() {
    let mut harness = connect();
    ask(&mut harness);
    harness.stream(&recording("goforward_16k.wav"), 20);
    let end = harness.events("tts.speaking_end")[0].clone();
    assert_eq!(end["cancelled"], true);
    harness.stream(&zeros(900), 20);
    harness.next_event("tts.speaking_end");
    assert_eq!(harness.answer_requests().len(), 2);
}

/// The model's final transcripts.
fn answers(harness: &Harness) -> Vec<&Value> {
    harness.events("transcript.final").into_iter().filter(|event| event["speaker"] == "assistant").collect()
}

#[test]
fn final_transcript_of_an_answer_waits_for_its_playback_and_has_the_words_that_were_heard() {
    let mut harness = connect();
    ask(&mut harness);
    harness.next_event("tts.speaking_end");
    let names = harness.names();
    let end = names.iter().position(|name| name == "tts.speaking_end").unwrap();
    assert_eq!(names[end - 1], "transcript.final");
    let (whole, whole_ms) =
        (answers(&harness)[0].clone(), harness.events("tts.speaking_end")[0]["audio_ms"].clone());
    assert_eq!(whole["end_ms"], whole_ms);

    let mut harness = connect();
    ask(&mut harness);
    // Long enough for the whole answer to be made, and shorter than it plays.
    harness.advance(Duration::from_millis(1_000));
    assert_eq!(answers(&harness), [&Value::Null; 0], "a final transcript before the end of playback");
    harness.send_json(&json!({"type": "tts.cancel"}));
    let end = harness.events("tts.speaking_end")[0].clone();
    let cut = answers(&harness)[0].clone();
    let (text, all) = (cut["text"].as_str().unwrap(), whole["text"].as_str().unwrap());
    assert_eq!(cut["end_ms"], end["audio_ms"]);
    let share = end["audio_ms"].as_f64().unwrap() / whole_ms.as_f64().unwrap();
    assert!(all.starts_with(text) && text.len() as f64 <= share * all.len() as f64, "{share}: {text:?}");
    ask(&mut harness);
    let asked = harness.answer_requests().last().unwrap().to_string();
    assert!(!asked.contains(all) && (text.is_empty() || asked.contains(text)), "{text:?} in {asked}");
}

#[test]
fn requested_text_and_cancel_end_an_answer() {
    for command in [json!({"type": "tts.cancel"}), json!({"type": "tts.speak", "text": "Something else."})] {
        let mut harness = connect();
        ask(&mut harness);
        harness.send_json(&command);
        harness.advance(Duration::from_millis(10));
        assert_eq!(harness.events("tts.speaking_end")[0]["cancelled"], true, "{command}");
        harness.advance(Duration::from_secs(10));
        ask(&mut harness);
    }
}

#[test]
fn finished_session_gives_back_every_worker() {
    let mut harness = connect();
    ask(&mut harness);
    harness.send_json(&json!({"type": "session.close"}));
    harness.advance(Duration::from_secs(60));
    assert!(harness.finished && harness.connections() == 0, "{:?}", harness.lanes());
}

/// The client waits for its answer, not for the lane that was dialled when the user began to speak.
#[test]
fn queue_is_reported_while_an_answer_waits_for_it() {
    let mut harness =
        Harness::new(HarnessConfig { profile: "assistant", taken_workers: 1, ..HarnessConfig::default() });
    harness.stream(&voice(20_000), 20);
    assert_eq!((harness.events("error").len(), harness.events("session.hold").len()), (0, 0));
    harness.stream(&zeros(4000), 20);
    let notice = harness.events("session.hold")[0].clone();
    assert_eq!((&notice["queue_position"], &notice["timestamp_ms"]), (&json!(1), &json!(2000)));
    harness.advance(Duration::from_secs(20));
    let stuck =
        |event: &&&Value| event["message"].as_str().unwrap().contains("stayed at position 1 for 15 s");
    assert_eq!(harness.events("error").iter().filter(stuck).count(), 1, "{:?}", harness.names());
    harness.release_workers();
    harness.next_event("tts.speaking_start");
    assert_eq!((harness.lost_workers(), harness.events("session.hold").len() > 3), (0, true));
}
