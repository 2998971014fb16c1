//! Clients of Qwen-Omni-Realtime in virtual time: formats, pictures, and the announced end.

use super::*;

const MINUTE: Duration = Duration::from_secs(60);

fn connect() -> Harness {
    let query = "model=qwen3-omni-flash-realtime";
    Harness::new(HarnessConfig::of("qwen-omni-realtime", "assistant", query).workers(2))
}

fn update(harness: &mut Harness, session: &Value) -> Value {
    harness.send_json(&json!({"type": "session.update", "session": session}));
    let updated = harness.events("session.updated");
    updated.last().unwrap_or_else(|| panic!("{:?}", harness.log))["session"].clone()
}

fn say(harness: &mut Harness, samples: &[i16], rate_factor: usize) {
    for frame in samples.chunks(1600) {
        let frame: Vec<i16> = frame.iter().flat_map(|sample| vec![*sample; rate_factor]).collect();
        let audio = STANDARD.encode(bytes_of(&frame));
        harness.send_json(&json!({"type": "input_audio_buffer.append", "audio": audio}));
        harness.advance(Duration::from_millis(100));
    }
}

#[test]
fn utterance_with_a_picture_is_answered_and_the_end_is_announced() {
    let mut harness = connect();
    let session = update(
        &mut harness,
        &json!({
            "modalities": ["text", "audio"], "voice": "Cherry", "input_audio_format": "pcm16", "output_audio_format": "pcm16",
            "input_audio_transcription": {"model": null},
            "turn_detection": {"type": "server_vad", "threshold": 0.2, "prefix_padding_ms": 300, "silence_duration_ms": 800},
        }),
    );
    assert_eq!(session["input_audio_format"], "pcm16");
    harness.send_json(&json!({"type": "input_image_buffer.append", "image": PICTURE}));
    say(&mut harness, &recording("goforward_16k.wav"), 1);
    say(&mut harness, &zeros(1500), 1);
    harness.wait_until(|harness| !harness.events("response.done").is_empty(), MINUTE);
    assert!(!harness.events("response.audio.delta").is_empty(), "{:?}", harness.names());
    assert!(harness.sent_containing(&PICTURE[..40]).len() == 1, "the model sees the picture");
    assert_eq!(harness.events("error").len(), 0, "{:?}", harness.events("error"));
    harness.send_json(&json!({"type": "session.finish"}));
    harness.wait_until(Harness::is_closed, MINUTE);
    let names = harness.names();
    assert_eq!(names[names.len() - 2..], ["session.finished", "close 1000"], "{names:?}");
}

#[test]
fn formats_have_the_protocols_rates_or_the_clients() {
    for (session, factor) in [
        (json!({"input_audio_format": "pcm", "sample_rate": 16000}), 1),
        (json!({"audio": {"input": {"format": {"type": "pcm", "sample_rate": 48000}}}}), 3),
        (json!({"input_audio_format": "pcm", "output_audio_format": "pcm24"}), 1),
    ] {
        let mut harness = connect();
        update(&mut harness, &session);
        say(&mut harness, &recording("goforward_16k.wav"), factor);
        say(&mut harness, &zeros(1500), factor);
        harness.next_event("response.done");
        let heard = harness.events("input_audio_buffer.speech_stopped")[0]["audio_end_ms"].as_u64().unwrap();
        assert!((2000..6000).contains(&heard), "{session}: {heard} ms");
    }
}

#[test]
fn smart_turn_is_the_protocols_name_of_semantic_detection() {
    let mut harness = connect();
    let session =
        json!({"instructions": "Be brief.", "turn_detection": {"type": "smart_turn", "threshold": 0.5}});
    let updated = update(&mut harness, &session);
    assert_eq!(updated["turn_detection"]["type"], "smart_turn", "{updated}");
    assert_eq!(updated["instructions"], "Be brief.", "the other settings hold, too");
    say(&mut harness, &recording("goforward_16k.wav"), 1);
    say(&mut harness, &zeros(3000), 1);
    harness.wait_until(|harness| !harness.events("response.done").is_empty(), MINUTE);
    harness.send_json(&json!({"type": "session.update", "session": {"turn_detection": {"type": "psychic"}}}));
    assert_eq!(harness.events("error").len(), 1, "{:?}", harness.names());
}

#[test]
fn unknown_format_is_an_error_and_the_session_goes_on() {
    let mut harness = connect();
    harness.send_json(&json!({"type": "session.update", "session": {"input_audio_format": "mp3"}}));
    assert_eq!(harness.events("error").len(), 1);
    harness.send_json(&json!({"type": "input_image_buffer.append", "image": "AAAA"}));
    assert_eq!(harness.events("error").len(), 2);
    assert!(!harness.is_closed());
}
