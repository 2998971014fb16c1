//! Every request ends with its result or an error. The absence of an error is never success.

use super::*;

/// Codes of the errors of a session.
fn codes(harness: &Harness) -> Vec<&str> {
    harness.events("error").iter().map(|event| event["code"].as_str().unwrap()).collect()
}

/// Faults that never end, and the code of the error; `None` for a fault that a request survives.
const FAULTS: [(&str, Option<&str>); 13] = [
    ("stuck-queue", Some("queue_timeout")),
    ("queue-full", Some("queue_full")),
    ("busy", Some("unavailable")),
    ("403-after-queue=100000", Some("unavailable")),
    ("die-before-created", Some("unavailable")),
    ("slow-init=80000", Some("unavailable")),
    ("never-answers", Some("failed")),
    ("die-mid-answer=0", Some("failed")),
    ("die-mid-answer=1", Some("failed")),
    ("drop-mid-answer=0", Some("failed")),
    ("drop-mid-answer=1", Some("failed")),
    ("slow-init=2", None),
    ("die-mid-answer=1,times=1", None),
];

#[test]
fn every_utterance_has_a_transcript_or_an_error() {
    for (fault, code) in FAULTS {
        for workers in [1, 4] {
            let mut harness = open_request(workers, &[fault]);
            let pause = zeros(1200);
            upload(&mut harness, &[sentence(), pause.clone(), sentence(), pause].concat());
            assert_finishes(&mut harness);
            let has_id = |event: &Value, id: &Value| event["segment_id"] == *id;
            let starts = harness.events("speech_start");
            assert!(!starts.is_empty(), "{fault}");
            for start in starts {
                let id = &start["segment_id"];
                let words = harness.events("transcript").into_iter().filter(|event| has_id(event, id));
                assert!(words.clone().all(|event| event["text"] != ""), "{fault}: an empty transcript");
                let failed = harness.events("error").into_iter().filter(|event| has_id(event, id));
                assert_eq!(words.count() + failed.count(), 1, "{fault}: {:?}", harness.names());
            }
            let told = codes(&harness);
            match code {
                None => assert!(told.is_empty(), "{fault}: {told:?}"),
                Some(code) => {
                    let is_it = |it: &&str| it.contains(code) || *it == "queue_stuck";
                    assert!(told.iter().all(is_it), "{fault}: {told:?}");
                    assert!(told.iter().any(|it| *it != "queue_stuck"), "{fault}: {told:?}");
                }
            }
        }
    }
}

#[test]
fn every_text_is_spoken_to_its_end_or_has_an_error() {
    for (fault, code) in FAULTS.into_iter().chain([("no-audio", Some("failed"))]) {
        let mut harness = open_request(1, &[fault]);
        harness
            .send_json(&json!({"type": "speak", "text": "Three or four seconds of nothing in particular."}));
        harness.send_json(&json!({"type": "finish"}));
        assert_finishes(&mut harness);
        let is_whole = harness.events("speaking_end").iter().any(|event| event["cancelled"] == false);
        let told: Vec<_> = codes(&harness).into_iter().filter(|code| *code != "queue_stuck").collect();
        match code {
            None => assert!(is_whole && told.is_empty() && !harness.audio().is_empty(), "{fault}: {told:?}"),
            Some(code) => assert!(told.len() == 1 && told[0].contains(code), "{fault}: {told:?}"),
        }
    }
}

#[test]
fn answer_that_begins_and_then_ends_like_an_empty_one_is_asked_for_again() {
    let mut harness = open_request(1, &["never-answers,times=1"]);
    upload(&mut harness, &sentence());
    let asked = |harness: &Harness| harness.sent_containing("\"input.append\"").len() == 1;
    harness.run_until(asked, secs(60)).expect("a question");
    let lane = harness.lanes()[0];
    for message in [
        json!({"type": "response.output.delta", "kind": "text", "text": "Half a"}),
        json!({"type": "session.closed", "reason": "backend_error", "diagnostic": {"message": "torch.cat(): expected a non-empty list of Tensors"}}),
    ] {
        harness.inject_upstream_text(lane, &message.to_string());
    }
    assert_finishes(&mut harness);
    let transcripts = harness.events("transcript");
    assert_eq!(transcripts.len(), 1, "{:?}", harness.names());
    assert!(transcripts[0]["text"].as_str().unwrap().starts_with("simulated"), "{transcripts:?}");
}

#[test]
fn stuck_queue_is_reported_by_a_notice_and_then_by_an_error() {
    let mut harness =
        Harness::new(HarnessConfig { taken_workers: 1, ..HarnessConfig::of("rest", "speech", "") });
    upload(&mut harness, &sentence());
    harness.advance(secs(60));
    assert_eq!(codes(&harness), ["queue_stuck"]);
    harness.advance(secs(61));
    assert_eq!(codes(&harness), ["queue_stuck", "queue_timeout"]);
    assert_eq!(harness.events("transcript").len(), 0);
}
