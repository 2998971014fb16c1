//! Speech in file formats: MP3, Opus in Ogg and WAV are whole, whatever is spoken after what.

use super::{
    plain_sockets::{messages, task},
    *,
};

const TEXTS: [&str; 2] = ["Good morning to all of you. ", "It is warm in here today. "];

/// Length of a file, s. Every format is recognised and decodes to its end.
fn seconds(file: Vec<u8>) -> f64 {
    let mut decoder = Decoder::open(file.into(), DecodeLimits::default()).unwrap();
    let chunks = std::iter::from_fn(|| decoder.next_chunk());
    chunks.map(|chunk| chunk.unwrap().len()).sum::<usize>() as f64 / 16_000.0
}

/// All audio in base64 at this member.
fn audio_in_json(harness: &Harness, member: &str) -> Vec<u8> {
    let messages = messages(harness);
    let parts = messages.iter().filter_map(|message| message[member].as_str());
    parts.flat_map(|part| STANDARD.decode(part).unwrap()).collect()
}

/// Both texts, spoken one after the other by ElevenLabs' protocol.
fn elevenlabs(query: &str) -> Vec<u8> {
    let mut harness = open_client("elevenlabs-speak", &format!("voice_id=v{query}"), &[]);
    for text in TEXTS {
        harness.send_json(&json!({"text": text, "flush": true}));
    }
    harness.send_json(&json!({"text": ""}));
    harness.run_until(Harness::is_closed, secs(60));
    assert_eq!(close_frame(&harness), Some((1000, "")));
    audio_in_json(&harness, "audio")
}

#[test]
fn elevenlabs_speech_is_whole_in_every_format() {
    let spoken = elevenlabs("&output_format=pcm_16000").len() as f64 / 32_000.0;
    assert!(spoken > 1.0, "{spoken}");
    for (query, magic) in [
        ("", &[0xff, 0xfb][..]),
        ("&output_format=mp3_22050_32", &[0xff, 0xf3]),
        ("&output_format=mp3_44100_192", &[0xff, 0xfb]),
        ("&output_format=opus_48000_32", b"OggS"),
    ] {
        let file = elevenlabs(query);
        assert!(file.starts_with(magic), "{query}: {:?}", &file[..4]);
        let length = seconds(file);
        // Each text has the delay of the encoder and fills its last frame.
        assert!((spoken - 0.01..spoken + 0.25).contains(&length), "{query}: {length} of {spoken} s");
    }
    // Each text is resampled alone, and its length rounded.
    let telephone = elevenlabs("&output_format=ulaw_8000").len();
    assert!(telephone.abs_diff((spoken * 8_000.0) as usize) <= TEXTS.len(), "{telephone}");
}

#[test]
fn elevenlabs_contexts_end_with_their_last_audio() {
    let mut harness = open_client("elevenlabs-contexts", "voice_id=v", &[]);
    for (context, text) in ["a", "b"].into_iter().zip(TEXTS) {
        harness.send_json(&json!({"text": text, "context_id": context}));
        harness.send_json(&json!({"close_context": true, "context_id": context}));
    }
    harness.advance(secs(20));
    let mut files = BTreeMap::<String, Vec<u8>>::new();
    for message in messages(&harness).iter().filter(|message| message["audio"].is_string()) {
        let context = message["contextId"].as_str().unwrap().to_owned();
        let bytes = STANDARD.decode(message["audio"].as_str().unwrap()).unwrap();
        files.entry(context).or_default().extend(bytes);
    }
    assert_eq!(files.keys().collect::<Vec<_>>(), ["a", "b"]);
    assert!(files.into_values().all(|file| seconds(file) > 0.5));
}

/// The bytes of a task with both texts, and its last event.
fn dashscope(harness: &mut Harness, id: &str, format: &str) -> Vec<u8> {
    let before = harness.bytes().len();
    let run = json!({"task_group": "audio", "task": "tts", "function": "SpeechSynthesizer", "model": "cosyvoice",
        "parameters": {"format": format, "sample_rate": 22050, "voice": "any", "bit_rate": 32}, "input": {}});
    harness.send_json(&task("run-task", id, run));
    for text in TEXTS {
        harness.send_json(&task("continue-task", id, json!({"input": {"text": text, "flush": true}})));
    }
    harness.send_json(&task("finish-task", id, json!({"input": {}})));
    let finished =
        |harness: &Harness| messages(harness).last().unwrap()["header"]["event"] == "task-finished";
    assert!(harness.run_until(finished, secs(60)).is_some(), "{format}");
    harness.bytes()[before..].to_vec()
}

#[test]
fn dashscope_tasks_have_a_file_each() {
    let mut harness = open_client("dashscope-tts", "", &[]);
    let spoken = dashscope(&mut harness, "raw", "pcm").len() as f64 / 44_100.0;
    for (id, format) in ["mp3", "opus", "wav", "wav"].into_iter().enumerate() {
        let file = dashscope(&mut harness, &format!("t{id}"), format);
        let headers = file.windows(4).filter(|four| four == b"RIFF").count();
        assert_eq!(headers, usize::from(format == "wav"), "{format}");
        let length = seconds(file);
        assert!((spoken - 0.01..spoken + 0.25).contains(&length), "{format}: {length} of {spoken} s");
    }
}

#[test]
fn soniox_streams_may_be_compressed() {
    let mut harness = open_client("soniox-speak", "", &[]);
    harness
        .send_json(&json!({"stream_id": "a", "audio_format": "mp3", "sample_rate": 44100, "bitrate": 64000}));
    harness.send_json(&json!({"stream_id": "a", "text": TEXTS[0], "text_end": true}));
    let ended = |harness: &Harness| messages(harness).last().is_some_and(|it| it["terminated"] == true);
    harness.wait_until(ended, secs(60));
    let file = audio_in_json(&harness, "audio");
    assert!(file.starts_with(&[0xff, 0xfb, 0x50]), "64 kbit/s at 44.1 kHz");
    assert!(seconds(file) > 0.5);
}
