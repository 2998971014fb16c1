//! Text to speech: as fast as the model makes it, complete, and stopped when the client leaves.

use super::*;

/// A text of several parts, about 1 000 characters.
fn long_text() -> String {
    "The quick brown fox jumps over the lazy dog, and then it goes home to have a rest. ".repeat(12)
}

/// Requests of the bridge that have a text spoken.
fn spoken_parts(harness: &Harness) -> usize {
    harness.sent_containing("input.append").len()
}

#[test]
fn text_is_spoken_as_fast_as_the_model_makes_it() {
    let mut harness = open_request(1, &[]);
    harness.send_json(&json!({
        "type": "speak", "text": long_text(), "request_id": "r1", "instruction": "Whisper it."
    }));
    harness.send_json(&json!({"type": "finish"}));
    assert_finishes(&mut harness);
    assert_eq!(
        harness.names(),
        ["session_created", "speaking_start", "binary", "speaking_end", "closed", "close 1000"]
    );
    let heard = Duration::from_secs_f64(harness.audio().len() as f64 / 24_000.0);
    let took = harness.log.last().unwrap().0;
    assert!(heard > secs(40) && took < heard / 2, "{heard:?} of speech took {took:?}");
    let end = harness.events("speaking_end")[0];
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("r1"), &json!(false)));
    assert_eq!(end["audio_ms"], harness.audio().len() as u64 / 24);
    assert!(spoken_parts(&harness) > 2);
    assert!(harness.sent_containing("input.append").iter().all(|part| part.contains("Whisper it.")));
}

#[test]
fn client_that_leaves_stops_the_speech_and_frees_the_worker() {
    for leave in
        [Harness::close_client, |harness: &mut Harness| harness.send_json(&json!({"type": "cancel"}))]
    {
        let mut harness = open_request(1, &[]);
        harness.send_json(&json!({"type": "speak", "text": long_text()}));
        harness.run_until(|harness| harness.audio().len() > 24_000, secs(60)).unwrap();
        leave(&mut harness);
        let (parts, left_at) = (spoken_parts(&harness), harness.now());
        harness.run_until(|harness| harness.connections() == 0, secs(600)).unwrap();
        assert!(harness.now() - left_at < secs(31), "the worker is free after {:?}", harness.now() - left_at);
        assert_eq!(spoken_parts(&harness), parts, "another part was asked for");
        harness.advance(secs(10));
        assert!(harness.finished);
    }
}

#[test]
fn client_that_leaves_frees_the_workers_of_its_recording() {
    let mut harness = open_request(4, &["never-answers"]);
    upload(&mut harness, &[sentence(), zeros(800)].concat().repeat(8));
    harness.advance(secs(2));
    assert_eq!(spoken_parts(&harness), 4);
    harness.close_client();
    let asked_after = |harness: &Harness, at: Duration| {
        let later = harness.traffic.iter().filter(|(time, _)| *time > at);
        later.filter(|(_, traffic)| matches!(traffic, Traffic::Dialled(_))).count()
    };
    let left_at = harness.now();
    harness.run_until(|harness| harness.connections() == 0, secs(600)).unwrap();
    assert!(harness.now() - left_at <= secs(34), "{:?}", harness.now() - left_at);
    harness.advance(secs(60));
    assert!(harness.finished && asked_after(&harness, left_at) == 0);
}

#[test]
fn failed_speech_is_reported_for_its_request() {
    let mut harness = open_request(1, &["drop-mid-answer=0,times=9"]);
    harness.send_json(&json!({"type": "speak", "text": "Hello there.", "request_id": "r1"}));
    harness.send_json(&json!({"type": "finish"}));
    assert_finishes(&mut harness);
    let error = harness.events("error")[0];
    assert_eq!((&error["code"], &error["request_id"]), (&json!("speak_failed"), &json!("r1")));
    assert!(matches!(harness.log.last(), Some((_, ClientFrame::Close(1000, _)))));
}
