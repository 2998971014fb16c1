//! Sessions that only transcribe.

use super::*;

#[test]
fn transcription_session_has_words_and_no_answer() {
    for query in ["intent=transcription", "model=gpt-4o-transcribe&intent=transcription"] {
        let mut client = Realtime::connect(query);
        assert_eq!(client.of_type("session.created")[0]["session"]["type"], "transcription");
        client.update(&json!({"type": "transcription", "audio": {"input": {
            "format": {"type": "audio/pcm", "rate": 24000},
            "transcription": {"model": "gpt-4o-transcribe", "language": "en", "prompt": "voxbridge", "delay": "low"},
            "turn_detection": {"type": "server_vad", "silence_duration_ms": 300}}}}));
        let updated = &client.of_type("session.updated")[0]["session"]["audio"]["input"];
        let echoed = json!({"model": "gpt-4o-transcribe", "language": "en", "prompt": "voxbridge"});
        assert_eq!(updated["transcription"], echoed, "pipecat knows no other key");
        assert_eq!(updated["turn_detection"]["silence_duration_ms"], 300);
        client.say(&speech());
        client.say_silence(600);
        let completed = client.wait_for("conversation.item.input_audio_transcription.completed");
        client.check();
        assert!(completed["transcript"].as_str().unwrap().starts_with("simulated transcript"));
        assert_eq!(completed["usage"]["type"], "duration");
        assert!(completed["usage"]["seconds"].as_f64().unwrap() > 2.0);
        let deltas: String = client
            .of_type("conversation.item.input_audio_transcription.delta")
            .iter()
            .map(|event| event["delta"].as_str().unwrap())
            .collect();
        assert_eq!(completed["transcript"], Value::String(deltas));
        assert!(client.of_type("response.created").is_empty());
    }
}

#[test]
fn failed_transcription_is_told_with_its_item() {
    let config = config("intent=transcription").faults(&["die-mid-answer,times=2"]);
    let mut client = Realtime::with_config(config);
    client.say_question();
    let failed = client.wait_for("conversation.item.input_audio_transcription.failed");
    assert_eq!(failed["item_id"], client.of_type("input_audio_buffer.committed")[0]["item_id"]);
    assert_eq!(failed["error"]["type"], "server_error");
    assert!(client.of_type("error").is_empty(), "LiveKit's transcription ends at any error");
}

#[test]
fn beta_shape_has_flat_fields_and_older_names() {
    let mut client = Realtime::connect("model=gpt-4o-realtime-preview&shape=beta");
    assert_eq!(client.of_type("session.created")[0]["session"]["input_audio_format"], "pcm16");
    client.update(&json!({"modalities": ["text", "audio"], "voice": "alloy", "input_audio_format": "pcm16",
        "input_audio_transcription": {"model": "whisper-1"}, "turn_detection": {"type": "server_vad"}}));
    client.say_question();
    client.wait_for("response.done");
    let types = client.types();
    for kind in ["conversation.item.created", "response.audio.delta", "response.audio_transcript.done"] {
        assert!(types.contains(&kind), "{kind}: {types:?}");
    }
    assert!(!types.iter().any(|kind| kind.contains("output_audio") || *kind == "conversation.item.added"));
}
