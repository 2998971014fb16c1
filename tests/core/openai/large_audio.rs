//! Much audio in one message, and formats that change.

use super::*;

/// OpenAI's limit of one append: 15 MB.
const APPEND_MAX_BYTES: usize = 15 * 1024 * 1024;

#[test]
fn fifteen_megabytes_in_one_append_are_transcribed_whole() {
    let mut client = Realtime::connect("intent=transcription");
    client.update(&json!({"type": "transcription", "audio": {"input": {"turn_detection": null}}}));
    let sentence = bytes_of(&speech());
    let base64_bytes = APPEND_MAX_BYTES / 4 * 3;
    let bytes: Vec<u8> = sentence.iter().copied().cycle().take(base64_bytes / 2 * 2).collect();
    let seconds = bytes.len() as f64 / 48_000.0;
    client.send(&json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(&bytes)}));
    client.send(&json!({"type": "input_audio_buffer.commit"}));
    let committed = client.of_type("input_audio_buffer.committed").len();
    for _ in 0..committed {
        client.wait_for("conversation.item.input_audio_transcription.completed");
    }
    client.check();
    assert!(client.of_type("error").is_empty());
    let completed = client.of_type("conversation.item.input_audio_transcription.completed");
    let lengths = completed.iter().map(|event| event["usage"]["seconds"].as_f64().unwrap());
    let (total, longest) = lengths.fold((0.0, 0.0_f64), |(sum, max), length| (sum + length, max.max(length)));
    // Only the silence before the first word may be missing.
    assert!((seconds - 1.0..=seconds).contains(&total), "{total} of {seconds} s in {committed} pieces");
    assert!(longest <= 30.0, "MiniCPM-o takes 30 s at a time: {longest} s");
}

#[test]
fn too_large_an_append_is_an_error_and_nothing_of_it_is_heard() {
    let mut client = Realtime::connect("intent=transcription");
    let audio = STANDARD.encode(vec![0; APPEND_MAX_BYTES + 2]);
    client.send(&json!({"type": "input_audio_buffer.append", "audio": audio, "event_id": "big"}));
    let error = &client.of_type("error")[0]["error"];
    assert_eq!((&error["code"], &error["event_id"]), (&json!("invalid_value"), &json!("big")));
    assert!(error["message"].as_str().unwrap().contains("15728640"), "{error}");
}

#[test]
fn format_may_change_between_utterances() {
    let mut client = Realtime::connect("intent=transcription");
    client.say_question();
    let first = client.wait_for("conversation.item.input_audio_transcription.completed");
    client.update(&json!({"type": "transcription", "audio": {"input": {"format": {"type": "audio/pcmu"}}}}));
    let mulaw: Vec<u8> = speech()
        .chunks(3)
        .flat_map(|chunk| {
            let mut byte = Vec::new();
            Encoding::Mulaw.encode(&[f32::from(chunk[0]) / 32768.0], &mut byte);
            byte
        })
        .collect();
    for chunk in mulaw.chunks(800) {
        client.send(&json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(chunk)}));
        client.pass(Duration::from_millis(100));
    }
    let quiet = STANDARD.encode([0xff; 800]);
    for _ in 0..10 {
        client.send(&json!({"type": "input_audio_buffer.append", "audio": quiet}));
        client.pass(Duration::from_millis(100));
    }
    let second = client.wait_for("conversation.item.input_audio_transcription.completed");
    let seconds = |event: &Value| event["usage"]["seconds"].as_f64().unwrap();
    assert!((seconds(&first) - seconds(&second)).abs() < 0.3, "{first} {second}");
}
