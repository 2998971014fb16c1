//! Clients of the profiles `speech` and `assistant`, in virtual time.

mod assistant;
mod cpp_backend;
mod floor;
mod properties;
mod queue;
mod settings;
mod stt;
mod tts;
mod upstream_faults;

use voxbridge::simulator::CORRUPTED_PREFIX;

use super::*;

/// About five seconds of speech.
const LONG: &str = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.";

fn send_speak(harness: &mut Harness, text: &str, request_id: &str) {
    harness.send_json(&json!({"type": "tts.speak", "text": text, "request_id": request_id}));
}

/// Proves that the microphone is open and the upstream works: an utterance is transcribed.
fn assert_transcribes(harness: &mut Harness) {
    let before = harness.log.len();
    harness.stream(&utterance(), 40);
    let ended =
        |harness: &Harness| harness.log[before..].iter().any(|(_, frame)| frame.name() == "vad.speech_end");
    harness.run_until(ended, secs(10));
    let names: Vec<String> = harness.log[before..].iter().map(|(_, frame)| frame.name()).collect();
    let events: Vec<&String> = names.iter().filter(|name| *name != "transcript.partial").collect();
    assert_eq!(events, ["vad.speech_start", "transcript.final", "vad.speech_end"], "{:?}", harness.names());
    let words = harness.events("transcript.final").last().unwrap()["text"].clone();
    assert!(words.as_str().unwrap().starts_with("simulated transcript: "), "{words}");
}

/// Proves that a text is spoken: one start, audio, one end, nothing else.
fn assert_speaks(harness: &mut Harness) {
    let before = harness.log.len();
    send_speak(harness, "All is well again.", "proof");
    let end = harness.next_event("tts.speaking_end");
    assert_eq!((&end["request_id"], &end["cancelled"]), (&json!("proof"), &json!(false)));
    let mut names: Vec<String> = harness.log[before..].iter().map(|(_, frame)| frame.name()).collect();
    names.dedup();
    assert_eq!(names, ["tts.speaking_start", "binary", "tts.speaking_end"]);
}

/// Ends the session and checks that every lane was closed politely.
fn assert_closes_cleanly(mut harness: Harness) {
    harness.send_json(&json!({"type": "session.close"}));
    harness.advance(secs(60));
    assert!(harness.is_over(), "the session does not finish");
    assert_eq!(harness.names().last().unwrap(), "close 1000");
    assert_eq!(protocol_checks::find_violations(&harness), [""; 0]);
}

fn errors(harness: &Harness) -> Vec<(Value, String)> {
    let code_and_message =
        |event: &&Value| (event["code"].clone(), event["message"].as_str().unwrap().to_owned());
    harness.events("error").iter().map(code_and_message).collect()
}
