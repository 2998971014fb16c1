//! Transcription: what a request sends and receives.

use super::*;

#[test]
fn recording_gives_segments_with_times_and_a_close() {
    let mut harness = open_request(1, &[]);
    let file = [zeros(2000), sentence(), zeros(1500), sentence(), zeros(500)].concat();
    upload(&mut harness, &file);
    assert_finishes(&mut harness);
    let segment = ["speech_start", "transcript", "speech_end"];
    let expected = [&["session_created"][..], &segment, &segment, &["closed", "close 1000"]].concat();
    assert_eq!(harness.names(), expected);
    let length_ms = sentence().len() as u64 / 16;
    let starts = [2000, 3500 + length_ms];
    for (transcript, start_ms) in harness.events("transcript").into_iter().zip(starts) {
        let at = |key: &str| transcript[key].as_u64().unwrap();
        assert!(at("start_ms").abs_diff(start_ms) < 300, "{transcript}, spoken from {start_ms}");
        assert!(at("end_ms").abs_diff(start_ms + length_ms) < 300, "{transcript}, spoken from {start_ms}");
        assert_eq!(transcript["language"], "en");
    }
    for (start, transcript) in harness.events("speech_start").into_iter().zip(harness.events("transcript")) {
        assert_eq!(
            ["segment_id", "start_ms"].map(|key| &start[key]),
            ["segment_id", "start_ms"].map(|key| &transcript[key])
        );
    }
}

#[test]
fn settings_of_the_request_reach_the_prompt() {
    for (task, language, instruction, answered) in [
        ("transcribe", "zh", "请仔细听", "zh"),
        ("transcribe", "en", "transcribe the content", "en"),
        ("translate", "zh", "translate the content into English", "en"),
    ] {
        let mut harness = open_request(1, &[]);
        harness.send_json(&json!({
            "type": "configure", "task": task, "language": language, "hot_words": ["Ara"], "partials": true,
            "prompt": "Birds of South America."
        }));
        upload(&mut harness, &sentence());
        assert_finishes(&mut harness);
        let asked = harness.sent_containing("Birds of South America.")[0];
        assert!(asked.contains(instruction) && asked.contains("Ara"), "{asked:.300}");
        assert_eq!(harness.events("transcript")[0]["language"], answered);
        assert!(!harness.events("partial").is_empty() && harness.events("error").is_empty());
    }
}

#[test]
fn too_long_prompt_and_unknown_task_are_invalid() {
    for field in [json!({"prompt": "a".repeat(4097)}), json!({"task": "summarise"})] {
        let mut harness = open_request(1, &[]);
        let mut command = field;
        command["type"] = "configure".into();
        harness.send_json(&command);
        assert_eq!(harness.events("error")[0]["code"], "invalid");
    }
}

#[test]
fn silence_is_answered_without_a_model() {
    let mut harness = open_request(1, &[]);
    upload(&mut harness, &zeros(60_000));
    assert_finishes(&mut harness);
    assert_eq!(harness.names(), ["session_created", "closed", "close 1000"]);
    assert!(harness.traffic.is_empty(), "a model was asked");
}

#[test]
fn failed_utterance_is_reported_with_its_segment() {
    let mut harness = open_request(1, &["drop-mid-answer=0,times=2"]);
    upload(&mut harness, &[sentence(), zeros(1500), sentence()].concat());
    assert_finishes(&mut harness);
    let (error, transcript) = (harness.events("error")[0], harness.events("transcript")[0]);
    assert_eq!((&error["code"], &error["segment_id"]), (&json!("transcribe_failed"), &json!(0)), "{error}");
    assert_eq!(transcript["segment_id"], 1);
}

#[test]
fn long_speech_is_cut_at_pauses() {
    let mut harness = open_request(4, &[]);
    // Phrases with pauses that are too short to end an utterance.
    harness.send_json(&json!({"type": "configure", "end_silence_ms": 1000}));
    let phrase = [sentence()[..16 * 2550].to_vec(), zeros(400)].concat();
    upload(&mut harness, &phrase.repeat(40));
    assert_finishes(&mut harness);
    let pieces = &harness.question_audio;
    let seconds: Vec<usize> = pieces.iter().map(|piece| piece.len() / 16_000).collect();
    assert!((5..=7).contains(&pieces.len()), "{seconds:?}");
    for piece in pieces {
        let seconds = piece.len() as f64 / 16_000.0;
        assert!(seconds <= 24.0, "{seconds} s");
        let end = &piece[piece.len() - 16 * 130..];
        assert!(end.iter().all(|sample| sample.abs() < 0.02), "a piece of {seconds} s is cut in speech");
    }
    let sent: usize = pieces.iter().map(Vec::len).sum();
    let (counts, _) = harness.bridge().sample_counts();
    assert_eq!(
        (sent as u64, counts.silent + counts.pending),
        (counts.recorded, counts.received - counts.recorded)
    );
}

#[test]
fn utterances_without_an_answer_are_reported_when_the_session_ends() {
    let mut harness = open_request(1, &["slow-init=4"]);
    upload(&mut harness, &[sentence(), zeros(800)].concat().repeat(20));
    harness.drain();
    assert_finishes(&mut harness);
    let ids = |name: &str| {
        harness.events(name).iter().filter_map(|it| it["segment_id"].as_u64()).collect::<Vec<_>>()
    };
    let (transcribed, failed) = (ids("transcript"), ids("error"));
    assert!(!transcribed.is_empty() && !failed.is_empty(), "{transcribed:?} {failed:?}");
    assert_eq!([transcribed, failed].concat(), (0..20).collect::<Vec<_>>());
    assert_eq!(ids("speech_start"), ids("speech_end"));
}
