//! Messages of each dialect, as captured and as documented.

use serde_json::Value;

use super::{decode::AUDIO_MAX_CHARS, *};
use crate::{
    audio::{SPEECH_RATE_HZ, pcm, wav},
    spelling::Library,
    vocabulary::{Frame, LaneEvent, LaneRequest, Mode, Sound, UnitInput, VoiceEncoding, VoiceSample},
};

fn dialect() -> Dialect {
    Dialect::new(Library::embedded().unwrap().upstream("minicpm-o").unwrap())
}

fn legacy() -> Dialect {
    Dialect::new(Library::embedded().unwrap().upstream("minicpm-o-legacy").unwrap())
}

fn decoded(text: &str) -> String {
    decoded_by(dialect(), text)
}

fn decoded_by(dialect: Dialect, text: &str) -> String {
    let mut decoded = Vec::new();
    dialect.decode(Frame::Text(text), |event, _| decoded.push(format!("{event:?}")));
    decoded.join(", ")
}

#[test]
fn captured_server_messages_are_decoded() {
    for (text, event) in [
        (r#"{"type":"session.queue_done"}"#, "Granted"),
        (
            r#"{"type":"session.queued","position":1,"estimated_wait_s":0.8,"ticket_id":"q","queue_length":1}"#,
            "Queued { position: Some(1), length: Some(1), wait_s: Some(0.8), ticket: Some(\"q\") }",
        ),
        (
            r#"{"type":"session.created","session_id":"s","metrics":{"kv_cache_length":17}}"#,
            "Ready { session_id: Some(\"s\") }",
        ),
        (r#"{"type":"response.output.delta","kind":"text","text":" jumps"}"#, "Text(\" jumps\")"),
        (
            r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAAAAAAD8="}"#,
            "Audio(Samples([0.0, 0.5]))",
        ),
        (
            r#"{"type":"response.output.delta","kind":"audio","audio":"data:audio/pcm;base64,AAAAAAAAAD8="}"#,
            "Audio(Samples([0.0, 0.5]))",
        ),
        (
            r#"{"type":"response.done","text":"x","reason":"turn_end"}"#,
            "Done { text: Some(\"x\"), audio: Samples([]) }",
        ),
        (
            r#"{"type":"response.done","text":"x","audio":null}"#,
            "Done { text: Some(\"x\"), audio: Samples([]) }",
        ),
        (
            r#"{"type":"session.closed","session_id":null,"reason":"backend_error"}"#,
            "Closed(UpstreamEnd { kind: BackendLost, detail: \"backend_error\" })",
        ),
        (
            r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"bad"}}"#,
            "Closed(UpstreamEnd { kind: Refused, detail: \"backend_error: bad\" })",
        ),
        (
            r#"{"type":"error","error":{"code":"queue_full","message":"Queue full","type":"server_error"}}"#,
            "Closed(UpstreamEnd { kind: QueueFull, detail: \"queue_full: Queue full\" })",
        ),
    ] {
        assert_eq!(decoded(text), event, "{text}");
    }
}

#[test]
fn torch_cat_crash_is_an_empty_answer() {
    let text = r#"{"type":"session.closed","reason":"backend_error","diagnostic":{"message":"torch.cat(): expected a non-empty list of Tensors"}}"#;
    assert!(decoded(text).contains("EmptyAnswer"));
}

#[test]
fn unreadable_messages_are_unknown_and_not_fatal() {
    for text in ["{", "[]", "{}", r#"{"type":"session.resume"}"#, r#"{"type":7}"#] {
        assert!(decoded(text).starts_with("Unknown"), "{text}");
    }
    for (audio, words) in [
        ("AAA", "audio of 3 characters that was dropped: the audio is not valid base64"),
        ("AAAA", "audio of 4 characters that was dropped: 3 bytes of audio are not a whole number"),
    ] {
        let text = format!(r#"{{"type":"response.output.delta","kind":"audio","audio":"{audio}"}}"#);
        assert!(decoded(&text).starts_with(&format!("Unknown(\"{words}")), "{}", decoded(&text));
    }
    assert!(decoded(r#"{"type":"response.output.delta","kind":"text"}"#).starts_with("Text(\"\")"));
}

#[test]
fn audio_of_a_far_too_long_message_is_decoded_in_part_and_ends_with_an_error() {
    let audio = "A".repeat(AUDIO_MAX_CHARS + 1_000_000);
    for text in [
        format!(r#"{{"type":"response.output.delta","kind":"audio","audio":"{audio}"}}"#),
        format!(r#"{{"type":"response.done","text":"Words.","audio":"{audio}"}}"#),
    ] {
        let mut events = Vec::new();
        dialect().decode(Frame::Text(&text), |event, _| {
            events.push(match event {
                LaneEvent::Audio(samples) => format!("{} s", samples.len() / 24_000),
                LaneEvent::RecoverableError(words) => words.to_owned(),
                other => panic!("{other:?}"),
            });
        });
        assert_eq!(events, ["600 s", "more than 600 s of audio in one message"]);
    }
}

#[test]
fn chat_requests_are_encoded_as_documented() {
    let transcribe = LaneRequest::Transcribe { prompt: "p \"q\"".into(), audio: Arc::new(vec![0, 16384]) };
    let json: Value = serde_json::from_str(&dialect().encode(&transcribe, Mode::Chat)).unwrap();
    let content = &json["input"]["messages"][0]["content"];
    assert_eq!(content[0]["text"], "p \"q\"");
    assert_eq!(content[1], serde_json::json!({"type": "audio", "data": "AAAAAAAAAD8="}));
    assert_eq!(json["input"]["tts"]["enabled"], false);
    assert!(json["input"].get("use_tts_template").is_none());

    let voice = VoiceSample::new([0]);
    let speak = LaneRequest::Speak {
        before_voice: "b".into(),
        after_voice: "a".into(),
        request: "r".into(),
        text: "t".into(),
        voice: Some(voice.clone()),
        voice_name: None,
    };
    let json: Value = serde_json::from_str(&dialect().encode(&speak, Mode::Chat)).unwrap();
    assert_eq!(json["input"]["tts"]["ref_audio_data"], "AAAAAA==");
    assert_eq!(json["input"]["messages"][0]["content"][1]["data"], "AAAAAA==");
    let init: Value =
        serde_json::from_str(&dialect().encode(&LaneRequest::Init(Some(voice)), Mode::Chat)).unwrap();
    assert_eq!(init["payload"]["voice"]["ref_audio_base64"], "AAAAAA==");
}

#[test]
fn legacy_delta_carries_the_whole_unit() {
    let ended = "Done { text: None, audio: Samples([]) }";
    for (text, audio, end_of_turn, events) in [
        ("\"a\"", "\"AAAAAAAAAD8=\"", "false", format!("Text(\"a\"), Audio(Samples([0.0, 0.5])), {ended}")),
        ("\"a\"", "\"AAAAAAAAAD8=\"", "true", "Text(\"a\"), Audio(Samples([0.0, 0.5])), Listen".to_owned()),
        ("\"\"", "null", "false", ended.to_owned()),
        ("\"\"", "\"\"", "true", "Listen".to_owned()),
        (
            "null",
            "\"AAAA\"",
            "false",
            format!(
                "Unknown(\"audio of 4 characters that was dropped: 3 bytes of audio are not a whole number of float32 samples\"), {ended}"
            ),
        ),
    ] {
        let message = format!(
            r#"{{"type":"response.output_audio.delta","text":{text},"audio":{audio},"end_of_turn":{end_of_turn},"kv_cache_length":172}}"#
        );
        assert_eq!(decoded_by(legacy(), &message), events, "{message}");
        legacy().decode(Frame::Text(&message), |_, meta| assert_eq!(meta.context_tokens, Some(172)));
    }
}

#[test]
fn message_as_sent_is_one_event_with_its_own_base64() {
    for (dialect, text, event) in [
        (
            dialect(),
            r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAAAAAAD8="}"#,
            "Audio(Base64(\"AAAAAAAAAD8=\"))",
        ),
        (
            legacy(),
            r#"{"type":"response.output_audio.delta","text":"a","audio":"AAAAAAAAAD8=","end_of_turn":true}"#,
            "Step { text: \"a\", audio: Base64(\"AAAAAAAAAD8=\"), end_of_turn: true }",
        ),
        (
            legacy(),
            r#"{"type":"response.output_audio.delta","text":"","audio":"","end_of_turn":false}"#,
            "Step { text: \"\", audio: Samples([]), end_of_turn: false }",
        ),
    ] {
        let mut events = Vec::new();
        dialect.decode_as_sent(Frame::Text(text), |event, _| events.push(format!("{event:?}")));
        assert_eq!(events, [event], "{text}");
    }
}

#[test]
fn samples_become_float32_base64_and_base64_stays_as_it_came() {
    assert_eq!(Sound::Samples(&[0.0, 0.5]).to_base64().as_deref(), Some("AAAAAAAAAD8="));
    assert_eq!(Sound::Base64("AAA").to_base64().as_deref(), Some("AAA"));
    assert_eq!((Sound::NONE.to_base64(), Sound::Base64("AAA").len()), (None, 0));
}

#[test]
fn legacy_server_messages_are_decoded() {
    let error = |code: &str| format!(r#"{{"type":"error","error":{{"code":"{code}","message":"m"}}}}"#);
    for (text, event) in [
        (r#"{"type":"session.queue_done"}"#.to_owned(), "Granted".to_owned()),
        (
            r#"{"type":"session.created","session_id":"rt_1","prompt_length":94}"#.to_owned(),
            "Ready { session_id: Some(\"rt_1\") }".to_owned(),
        ),
        (r#"{"type":"response.listen","kv_cache_length":88}"#.to_owned(), "Listen".to_owned()),
        (
            r#"{"type":"session.closed","reason":"context_full"}"#.to_owned(),
            "Closed(UpstreamEnd { kind: LimitReachedStillOpen, detail: \"context_full\" })".to_owned(),
        ),
        (error("inference_failed"), "RecoverableError(\"inference_failed: m\")".to_owned()),
        (error("not_ready"), "RecoverableError(\"not_ready: m\")".to_owned()),
        (
            error("queue_full"),
            "Closed(UpstreamEnd { kind: QueueFull, detail: \"queue_full: m\" })".to_owned(),
        ),
        (error("worker_busy"), "Closed(UpstreamEnd { kind: Other, detail: \"worker_busy: m\" })".to_owned()),
    ] {
        assert_eq!(decoded_by(legacy(), &text), event, "{text}");
    }
}

#[test]
fn legacy_commands_are_encoded_as_its_server_expects() {
    let encoded = |command: &LaneRequest| -> Value {
        serde_json::from_str(&legacy().encode(command, Mode::Audio)).unwrap()
    };
    let opening = crate::vocabulary::ConversationInit {
        prompt: "p".into(),
        config: r#"{"temperature":0.7}"#.into(),
        voice: Some(VoiceSample::new([0])),
        voice_name: None,
    };
    let expected = serde_json::json!({"type": "session.update", "session": {
        "instructions": "p", "voice_config": {"temperature": 0.7},
        "ref_audio": "AAAAAA==", "tts_ref_audio": "AAAAAA=="
    }});
    assert_eq!(encoded(&LaneRequest::InitConversation(Box::new(opening))), expected);
    let append = |frame: Option<&[u8]>| {
        LaneRequest::Append(UnitInput {
            audio: Arc::new(vec![0, 16384]),
            input_id: "1".into(),
            force_listen: true,
            frame: frame.map(|frame| crate::vocabulary::VideoFrame(frame.to_vec().into())),
        })
    };
    let mut expected = serde_json::json!(
        {"type": "input_audio_buffer.append", "audio": "AAAAAAAAAD8=", "force_listen": true}
    );
    assert_eq!(encoded(&append(None)), expected);
    expected["video_frames"] = serde_json::json!(["/9j/"]);
    expected["max_slice_nums"] = 1.into();
    assert_eq!(encoded(&append(Some(&[0xff, 0xd8, 0xff]))), expected);
}

#[test]
fn voice_as_wav_file_keeps_its_audio_and_cannot_be_mistaken_for_raw_floats() {
    use base64::Engine as _;
    for samples in [vec![], vec![1i16, -2, 3], vec![i16::MIN, i16::MAX, 0, 7]] {
        let voice = VoiceSample { encoding: VoiceEncoding::Wav, ..VoiceSample::new(samples.clone()) };
        let opening = crate::vocabulary::ConversationInit {
            prompt: String::new(),
            config: "{}".into(),
            voice: Some(voice),
            voice_name: None,
        };
        let opening = LaneRequest::InitConversation(Box::new(opening));
        let json: Value = serde_json::from_str(&legacy().encode(&opening, Mode::Audio)).unwrap();
        let base64 = json.pointer("/session/ref_audio").and_then(Value::as_str).unwrap();
        let bytes = base64::engine::general_purpose::STANDARD.decode(base64).unwrap();
        assert_eq!(bytes.len() % 4, 2);
        let (read, rate_hz) = wav::read(&bytes, std::time::Duration::from_secs(1)).unwrap();
        let read: Vec<i16> = read.into_iter().map(pcm::to_i16).collect();
        assert_eq!((&read[..samples.len()], rate_hz), (samples.as_slice(), SPEECH_RATE_HZ));
    }
}

#[test]
fn dialect_chooses_the_encoding_of_its_samples() {
    let file = include_str!("../../mappings/upstream/minicpm-o.toml");
    let file = file.replace("input_rate_hz = 16000", "input_rate_hz = 16000\ninput_encoding = \"s16le\"");
    let file = file.replace("output_rate_hz = 24000", "output_rate_hz = 24000\noutput_encoding = \"s16le\"");
    let file = file.replace("name = \"minicpm-o\"", "name = \"int16\"");
    let mut library = Library::embedded().unwrap();
    library.add("int16", &file).unwrap();
    let dialect = Dialect::new(library.upstream("int16").unwrap());
    let audio = Arc::new(vec![0, 256, -2]);
    let unit = UnitInput { audio, input_id: "u".into(), force_listen: false, frame: None };
    let json = dialect.encode(&LaneRequest::Append(unit), Mode::Audio);
    assert!(json.contains(r#""audio":"AAAAAf7/""#), "{json}");
    let text = r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAQAAA"}"#;
    assert_eq!(decoded_by(dialect.clone(), text), "Audio(Samples([0.0, 0.5, 0.0]))");
    let odd = r#"{"type":"response.output.delta","kind":"audio","audio":"AAAA"}"#;
    assert!(decoded_by(dialect, odd).contains("3 bytes of audio are not a whole number of int16 samples"));
}
