//! Tests of errors: what is sent again, what is refused, and what does not matter.

use super::*;

#[test]
fn refused_append_is_sent_again_before_the_next_and_more_slowly() {
    let mut lane = Lane::open();
    lane.append(false);
    lane.error("input_backpressure", Some("1"));
    assert_eq!(lane.take_events(), [r#"Unknown("input_backpressure: words")"#]);
    lane.take_sent();
    lane.append(false);
    assert_eq!(lane.take_sent(), [""; 0], "the next one waits");
    lane.wait(MS(500));
    assert_eq!(lane.take_sent(), ["append 1"]);
    lane.error("input_backpressure", None);
    lane.wait(MS(499));
    assert_eq!(lane.take_sent(), [""; 0]);
    lane.wait(MS(1_501));
    assert_eq!(lane.take_sent(), ["append 1", "append 2"]);
    lane.listen();
    lane.append(false);
    assert_eq!(lane.take_sent(), ["append 3"], "the server has room");
}

#[test]
fn refused_unit_is_one_error_whatever_its_code() {
    for code in ["bad_audio", "bad_event", "invalid_input_modality", "unknown_event", "runtime_append_failed"]
    {
        let mut lane = Lane::open();
        lane.append(false);
        lane.error(code, Some("1"));
        let refused = if code == "runtime_append_failed" { "" } else { " (Whole)" };
        assert_eq!(lane.take_events(), [format!("error {code}: words{refused}")]);
        lane.error("bad_audio", Some("1"));
        assert!(!lane.take_events().iter().any(|event| event.starts_with("error")), "{code}");
        lane.append(false);
        lane.take_sent();
        lane.error("input_backpressure", None);
        lane.wait(MS(500));
        assert_eq!(lane.take_sent(), ["append 2"], "{code}: the refused one is not sent again");
    }
}

#[test]
fn harmless_errors_are_no_refusals() {
    let mut lane = Lane::open();
    lane.append(false);
    for (code, id) in
        [("playback_ack_unknown", None), ("bad_event", Some("cancel")), ("journal_overflow", None)]
    {
        lane.error(code, id);
    }
    assert_eq!(lane.take_events(), [""; 0]);
}

#[test]
fn error_says_whether_another_attempt_may_succeed() {
    for (code, retryable, end) in [
        ("resource_exhausted", json!(true), "QueueFull"),
        ("ref_audio_required", json!(null), "RefusedForGood"),
        ("ref_audio_required", json!(false), "RefusedForGood"),
        ("engine_error", json!(null), "Other"),
        ("engine_error", json!(true), "Other"),
        ("engine_error", json!(false), "Other"),
        ("output_backpressure", json!(null), "LimitReached"),
        ("output_backpressure", json!(false), "LimitReached"),
    ] {
        let mut lane = Lane::dial();
        let error = json!({"code": code, "message": "m", "retryable": retryable});
        lane.receive(&json!({"type": "error", "error": error}));
        assert_eq!(lane.take_events(), [format!("closed {end} {code}: m")]);
    }
    for code in ["tool_call_registration_failed", "semantic_vad_unavailable", "invalid_function_call"] {
        let mut lane = Lane::open();
        lane.error(code, None);
        lane.append(false);
        lane.listen();
        let events = lane.take_events();
        assert!(events[0].starts_with(&format!("error {code}: words")), "{code}: {events:?}");
        assert_eq!(events[1..], ["listen 1"], "{code} ends no session");
    }
    let mut ended = Lane::open();
    ended.receive(&json!({"type": "session.closed", "reason": "output_backpressure"}));
    assert_eq!(ended.take_events(), ["closed LimitReached output_backpressure"]);
}

#[test]
fn only_refusals_of_a_unit_say_which_part_of_it_was_refused() {
    let whole = " (Whole)";
    for (code, id, refused) in [
        ("invalid_video_frames", None, whole),
        ("invalid_video_frames", Some("1"), whole),
        ("bad_audio", Some("1"), whole),
        ("invalid_video_frames", Some("7"), ""),
        ("runtime_append_failed", Some("1"), ""),
        ("internal_error", None, ""),
    ] {
        let mut lane = Lane::open();
        lane.append(false);
        lane.error(code, id);
        assert_eq!(lane.take_events(), [format!("error {code}: words{refused}")], "{id:?}");
    }
    for (id, refused) in [(Some("1.0"), " (Piece)"), (Some("1.3"), ""), (None, "")] {
        let mut lane = Lane::dial();
        let capabilities = json!({"chunk_period_ms": 200, "implementation_level": "model_native_duplex"});
        let session = json!({"id": "duplex-1", "capabilities": capabilities});
        lane.receive(&json!({"type": "session.created", "session": session, "resume_token": "t"}));
        lane.take_events();
        lane.append(false);
        lane.error("invalid_video_frames", id);
        assert_eq!(lane.take_events(), [format!("error invalid_video_frames: words{refused}")], "{id:?}");
    }
}

#[test]
fn unit_that_is_refused_for_its_rate_is_sent_again_at_the_rate_of_the_model() {
    let mut lane = Lane::dial();
    let capabilities = json!({"chunk_period_ms": 80, "implementation_level": "model_native_duplex"});
    let session = json!({"id": "duplex-1", "capabilities": capabilities});
    lane.receive(&json!({"type": "session.created", "session": session, "resume_token": "t"}));
    lane.take_events();
    lane.sent.clear();
    lane.append(false);
    let refused = std::mem::take(&mut lane.sent);
    assert!(refused.len() > 1 && refused.iter().all(|append| append.get("sample_rate_hz").is_none()));
    let error = json!({"code": "bad_event", "message": "PersonaPlex sample_rate_hz must be 24000"});
    for _ in &refused {
        lane.receive_numbered(json!({"type": "error", "error": error}));
    }
    assert_eq!(lane.take_events(), [""; 0], "the session knows nothing of it");
    let samples = |append: &Value| {
        assert_eq!((&append["format"], &append["sample_rate_hz"]), (&json!("pcm_f32le"), &json!(24_000)));
        append["audio"].as_str().unwrap().len() * 3 / 4 / 4
    };
    let again = std::mem::take(&mut lane.sent);
    let lengths: Vec<usize> = again.iter().map(samples).collect();
    assert!(lengths.iter().all(|length| *length <= 1920), "{lengths:?}");
    let said = (16_000 + LEAD_SAMPLES) * 3 / 2;
    assert!((said - 480..=said).contains(&lengths.iter().sum::<usize>()), "{lengths:?}");
    // The output of the model answers it, and the next unit has its format at once.
    lane.delta("r", "One.");
    assert_eq!(lane.take_events(), ["done 1", "text One.", "audio 24000"]);
    lane.append(false);
    lane.sent.retain(|message| message["type"] == "input_audio_buffer.append");
    assert!(lane.sent.iter().map(samples).sum::<usize>().abs_diff(24_000) <= 480);
    // A model that refuses that, too, cannot be served.
    lane.receive_numbered(json!({"type": "error", "error": error}));
    assert_eq!(lane.take_events(), ["error bad_event: PersonaPlex sample_rate_hz must be 24000"]);
}
