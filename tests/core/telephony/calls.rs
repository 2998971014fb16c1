//! Calls in the profiles `conversation` and `speech`.

use super::*;

/// One simulated turn, 2.6 s at 8 kHz.
const TURN_BYTES: usize = 20_800;

fn close_of(call: &Call) -> Option<u16> {
    call.harness.log.iter().find_map(|(_, frame)| match frame {
        ClientFrame::Close(code, _) => Some(*code),
        _ => None,
    })
}

#[test]
fn caller_is_answered_and_the_answer_is_marked() {
    let mut call = Call::connect("conversation", &json!({"language": "en"}));
    call.listen(Duration::from_secs(2));
    call.say(&phone_recording("goforward_16k.wav"));
    call.listen_until(|call| call.marks.len() == 1);
    assert_eq!(call.received.len(), TURN_BYTES, "the whole turn at 8 kHz");
    assert!(call.received.iter().any(|byte| *byte != 0xff), "the answer is not silence");
    call.listen_until(|call| call.heard_bytes == TURN_BYTES);
    call.listen(Duration::from_millis(200));
    // A second question is answered by a second turn, with a mark of its own.
    call.say(&phone_recording("goforward_16k.wav"));
    call.listen_until(|call| call.marks.len() == 2);
    assert_ne!(call.marks[0].1, call.marks[1].1);
    assert_eq!((call.received.len(), call.clears.len()), (2 * TURN_BYTES, 0));
    call.send("stop", json!({"stop": {"accountSid": "AC0", "callSid": "CA0"}}));
    call.harness.advance(Duration::from_secs(60));
    assert_eq!((close_of(&call), call.harness.finished), (Some(1000), true));
}

#[test]
fn barge_in_clears_the_buffer_and_no_media_of_the_turn_follows() {
    for talk_ms in [100, 700, 1100, 1500] {
        let mut call = Call::connect("conversation", &json!({}));
        call.listen(Duration::from_secs(2));
        call.say(&phone_recording("goforward_16k.wav"));
        call.listen_until(|call| call.heard_bytes > 0);
        call.listen(Duration::from_millis(talk_ms));
        assert!(call.clears.is_empty());
        call.say(&phone_recording("goforward_16k.wav"));
        assert_eq!(call.clears.len(), 1, "after {talk_ms} ms");
        // The interruption is answered by a whole turn; any rest of the first would make it longer.
        let marks = call.marks.len();
        call.listen_until(|call| call.marks.len() == marks + 1);
        assert_eq!(call.received_since_clear, TURN_BYTES, "after {talk_ms} ms");
    }
}

#[test]
fn barge_in_counts_until_the_mark_returns() {
    let mut call = Call::connect("conversation", &json!({}));
    call.listen(Duration::from_secs(2));
    call.say(&phone_recording("goforward_16k.wav"));
    call.returns_marks = false;
    call.listen_until(|call| call.heard_bytes == TURN_BYTES);
    // The caller still hears the line's echo of the answer, so the answer can still be interrupted.
    call.say(&phone_recording("goforward_16k.wav"));
    assert_eq!(call.clears.len(), 1);
}

#[test]
fn greeting_is_spoken_and_the_caller_is_transcribed() {
    let mut call = Call::connect("speech", &json!({"say": "Welcome to the mill.", "language": "en"}));
    call.listen_until(|call| call.marks.len() == 1);
    let greeting_bytes = call.received.len();
    assert!(greeting_bytes > 4000, "{greeting_bytes}");
    assert!(!call.harness.sent_containing("Welcome to the mill.").is_empty());
    call.listen_until(|call| call.heard_bytes == greeting_bytes);
    call.listen(Duration::from_millis(100));
    let muted = call.muted_samples();
    assert!(muted + 1600 >= greeting_bytes as u64, "the greeting is heard: {muted}");
    call.say(&phone_recording("goforward_16k.wav"));
    call.listen(Duration::from_secs(2));
    assert_eq!(call.muted_samples(), muted, "and heard after the mark has returned");
    assert_eq!(call.harness.question_audio.len(), 1, "one utterance is transcribed");
    let seconds = call.harness.question_audio[0].len() as f64 / 16_000.0;
    assert!((2.0..4.5).contains(&seconds), "{seconds}");
    assert!(call.clears.is_empty());
}

#[test]
fn lost_mark_keeps_the_caller_muted_for_five_seconds_at_most() {
    let mut call = Call::connect("speech", &json!({"say": "Welcome."}));
    call.returns_marks = false;
    call.listen_until(|call| call.marks.len() == 1);
    let heard_at = |call: &Call| Duration::from_millis(call.received.len() as u64 / 8);
    call.listen(heard_at(&call) + Duration::from_millis(5200));
    let muted = call.muted_samples();
    call.listen(Duration::from_secs(1));
    assert_eq!(call.muted_samples(), muted);
}

#[test]
fn settings_come_from_the_calls_parameters() {
    let parameters = json!({"microphone": "muted", "end_silence_ms": "900", "vad_sensitivity": "high"});
    let mut call = Call::connect("conversation", &parameters);
    call.listen(Duration::from_secs(2));
    call.say(&phone_recording("goforward_16k.wav"));
    call.listen_until(|call| call.heard_bytes > 0);
    call.say(&phone_recording("goforward_16k.wav"));
    assert!(call.clears.is_empty() && call.muted_samples() > 0, "a muted microphone interrupts nothing");
    let without_effect =
        call.harness.observations.iter().filter(|it| matches!(it, Observation::NoEffect(_))).count();
    assert_eq!(without_effect, 2, "encoding and rate of the media format");
}
