//! Round-trips every example message of the published protocol documents, by document and section. Client and
//! server messages are decoded and encoded again as printed.
//!
//! The documents print placeholders between `<` and `>`; this test fills them with real values. The two
//! fragments that show how text leads audio are left out: they have no type.

use voxbridge::{
    audio::vad::Sensitivity,
    client::relay::RelayCodec,
    vocabulary::{
        ClientRequest, Mode, Setting, Speaker, SpeechModel,
        relay::{RelayEnd, RelayEndReason, RelayEventMeta, RelayInput, RelayOpening, RelayRequest},
    },
};

use super::*;

/// Fills the placeholders: silence as float32 and as a WAV file, and the ends of a picture.
fn with_placeholders_filled(example: &str) -> String {
    let audio = STANDARD.encode([0; 4000 * size_of::<f32>()]);
    let wav = STANDARD.encode(wav::write_s16(&[0; 4000], 16_000));
    [
        ("<base64 WAV, 16kHz>", wav.as_str()),
        ("<base64, 16000 samples = 1s, float32 PCM>", &audio),
        ("<base64, 24000 samples = 1s, float32 PCM>", &audio),
        ("<base64 float32 PCM, 24 kHz mono>", &audio),
        ("<base64 float32 PCM, 16 kHz mono>", &audio),
        ("<base64 float32 PCM>", &audio),
        ("<base64 JPEG>", "/9j/2Q=="),
        ("<base64 image>", "/9j/2Q=="),
    ]
    .iter()
    .fold(example.to_owned(), |text, (stands, thing)| text.replace(stands, thing))
}

/// Checks that the encoded message contains every printed field with its printed value.
fn assert_contains_printed(source: &str, encoded: &str, example: &Value) {
    let encoded: Value =
        serde_json::from_str(encoded).unwrap_or_else(|error| panic!("{source}: {error}: {encoded}"));
    if let Some(missing) = first_difference(&encoded, example) {
        panic!("{source}: {missing} is not as printed\nprinted {example}\nspelled {encoded}");
    }
}

/// Path of the first printed value that is missing or different.
fn first_difference(encoded: &Value, example: &Value) -> Option<String> {
    match (encoded, example) {
        (Value::Object(encoded), Value::Object(example)) => example.iter().find_map(|(key, value)| {
            let difference =
                encoded.get(key).map_or(Some(String::new()), |encoded| first_difference(encoded, value));
            difference.map(|rest| format!("/{key}{rest}"))
        }),
        // 20 and 20.0 are the same number.
        (Value::Number(encoded), Value::Number(example)) => {
            (encoded.as_f64() != example.as_f64()).then(String::new)
        }
        (encoded, example) => (encoded != example).then(String::new),
    }
}

const CURRENT: &str = "minicpm-o";

/// Examples by document and section, with their dialect, meaning and the message as printed.
fn examples(
    table: &'static str,
) -> impl Iterator<Item = (&'static str, &'static str, &'static str, &'static str)> {
    rows(table).into_iter().map(|[source, meaning, message]| {
        let is_legacy = source.split(", ").next().is_some_and(|document| document.ends_with("-legacy"));
        (source, if is_legacy { "minicpm-o-legacy" } else { CURRENT }, meaning, message)
    })
}

const FROM_CLIENTS: &str = r#"
minicpm-o-overview, session.init | open | {"type": "session.init", "payload": {"system_prompt": "You are a helpful assistant."}}
minicpm-o-overview, session.init, chat | open | { "type": "session.init", "payload": {} }
minicpm-o-overview, input.append, chat | chat | {"type": "input.append", "input": {"messages": [{ "role": "user", "content": "Reply with exactly: test" }], "streaming": true, "generation": {"max_new_tokens": 64, "length_penalty": 1.1}, "tts": {"enabled": false}}}
minicpm-o-overview, input.append, duplex | append | {"type": "input.append", "input": {"audio": "<base64 float32 PCM, 16 kHz mono>", "video_frames": ["<base64 JPEG>"], "force_listen": false, "max_slice_nums": 1}}
minicpm-o-overview, session.close | close | {"type": "session.close", "reason": "user_stop"}
minicpm-o-chat, Connection | open | { "type": "session.init", "payload": {} }
minicpm-o-chat, Input | chat | {"type": "input.append", "input": {"messages": [{ "role": "user", "content": "Reply with exactly: test" }], "streaming": true, "generation": {"max_new_tokens": 64, "length_penalty": 1.1}, "image": {"max_slice_nums": 1}, "omni_mode": false, "tts": {"enabled": false}, "use_tts_template": false, "enable_thinking": false}}
# The document prints the content alone; the test wraps it in a message.
minicpm-o-chat, Input, content list | chat | {"type": "input.append", "input": {"messages": [{"role": "user", "content": [{ "type": "text", "text": "Describe this image" }, { "type": "image", "data": "<base64 image>" }]}]}}
minicpm-o-chat, Close | close | { "type": "session.close", "reason": "turn_done" }
minicpm-o-video-duplex, Initialize | open | {"type": "session.init", "payload": {"system_prompt": "You are a helpful video voice assistant.", "config": {"length_penalty": 1.1}, "voice": {"ref_audio_base64": "<base64 float32 PCM>", "tts_ref_audio_base64": "<base64 float32 PCM>"}}}
minicpm-o-audio-duplex-legacy, session.update | open | {"type": "session.update", "session": {"instructions": "You are a helpful English assistant.", "ref_audio": "<base64 WAV, 16kHz>", "tts_ref_audio": "<base64 WAV, 16kHz>"}}
minicpm-o-audio-duplex-legacy, input_audio_buffer.append | append | {"type": "input_audio_buffer.append", "audio": "<base64, 16000 samples = 1s, float32 PCM>", "force_listen": false}
minicpm-o-audio-duplex-legacy, session.close | close | {"type": "session.close", "reason": "user_stop"}
"#;

#[test]
fn documented_client_messages_round_trip() {
    let library = Library::embedded().unwrap();
    for (source, dialect, meaning, example) in examples(FROM_CLIENTS) {
        let text = with_placeholders_filled(example);
        let codec = RelayCodec::new(library.client(dialect).unwrap(), "mode=video", 0.0).unwrap();
        let upstream = Dialect::new(library.upstream(dialect).unwrap());
        // Chat passes unchanged. No other dialect has it.
        let decoded =
            codec.decode(&text, meaning == "chat").unwrap_or_else(|error| panic!("{source}: {error}"));
        let encoded = match (meaning, decoded.to_request()) {
            ("open", RelayRequest::Open(opening)) => upstream.encode_relay_opening(&opening, Mode::Audio),
            ("append", RelayRequest::Append(input)) => upstream.encode_relay_append(&input),
            ("close", RelayRequest::Close(reason)) => upstream.encode_relay_close(reason),
            ("chat", RelayRequest::Append(RelayInput { audio: None, .. })) => text.clone(),
            (_, other) => panic!("{source}: {other:?} is not {meaning}"),
        };
        assert!(decoded.ineffective_fields(|_| true).is_empty() || meaning == "chat", "{source}");
        assert_contains_printed(source, &encoded, &serde_json::from_str(&text).unwrap());
    }
}

const FROM_SERVERS: &str = r#"
minicpm-o-overview, Queue Events | queued | {"type": "session.queued", "position": 2, "estimated_wait_s": 20, "ticket_id": "ticket_xxx", "queue_length": 3}
minicpm-o-overview, Lifecycle | granted | {"type": "session.queue_done"}
minicpm-o-overview, session.created | opened | {"type": "session.created", "session_id": "sess_xxx", "mode": "full_duplex", "metrics": {}}
minicpm-o-overview, response.output.delta | text | {"type": "response.output.delta", "kind": "text", "session_id": "sess_xxx", "response_id": "resp_xxx", "input_id": "input_xxx", "text": "Hello", "metrics": {}}
minicpm-o-overview, response.done | answered | {"type": "response.done", "session_id": "sess_xxx", "response_id": "resp_xxx", "text": "test", "reason": "turn_end", "metrics": {}}
minicpm-o-overview, session.closed | ended | {"type": "session.closed", "session_id": "sess_xxx", "reason": "user_stop"}
minicpm-o-overview, error | queue_full | {"type": "error", "error": {"code": "queue_full", "message": "Queue full", "type": "server_error"}}
minicpm-o-chat, Output, text | text | {"type": "response.output.delta", "kind": "text", "text": "test", "response_id": "resp_xxx", "session_id": "sess_xxx"}
minicpm-o-chat, Output, audio | speech | {"type": "response.output.delta", "kind": "audio", "audio": "<base64 float32 PCM, 24 kHz mono>", "response_id": "resp_xxx", "session_id": "sess_xxx"}
minicpm-o-chat, Output, done | answered | {"type": "response.done", "text": "test", "reason": "turn_end", "metrics": {}}
minicpm-o-video-duplex, Receive Output, text | text | {"type": "response.output.delta", "kind": "text", "text": "I can see", "response_id": "resp_xxx", "metrics": {}}
minicpm-o-video-duplex, Receive Output, audio | speech | {"type": "response.output.delta", "kind": "audio", "audio": "<base64 float32 PCM, 24 kHz mono>", "response_id": "resp_xxx", "metrics": {}}
minicpm-o-video-duplex, Close | timeout | {"type": "session.closed", "reason": "timeout"}
minicpm-o-audio-duplex-legacy, session.created | opened | {"type": "session.created", "session_id": "rt_1714200000000", "prompt_length": 256}
minicpm-o-audio-duplex-legacy, response.output_audio.delta | output | {"type": "response.output_audio.delta", "text": "The weather is nice today", "audio": "<base64, 24000 samples = 1s, float32 PCM>", "end_of_turn": false, "kv_cache_length": 1024}
minicpm-o-audio-duplex-legacy, response.listen | listening | {"type": "response.listen", "kv_cache_length": 1024}
minicpm-o-audio-duplex-legacy, session.closed | timeout | {"type": "session.closed", "reason": "timeout"}
minicpm-o-audio-duplex-legacy, Complete Timeline | ended | {"type": "session.closed", "reason": "stopped"}
minicpm-o-audio-duplex-legacy, Error Message Format | invalid | {"type": "error", "error": {"code": "invalid_payload", "message": "audio base64 decode failed", "type": "client_error"}}
# Only the upstream reports its metrics, so a bridge that encodes the message anew leaves them out (see below).
minicpm-o-video-duplex, Receive Output, listen | listening | {"type": "response.output.delta", "kind": "listen", "session_id": "sess_xxx", "metrics": {"kv_cache_length": 1024, "vision_slices": 1, "vision_tokens": 64}}
"#;

#[test]
fn documented_server_messages_round_trip() {
    let library = Library::embedded().unwrap();
    for (source, dialect, meaning, example) in examples(FROM_SERVERS) {
        let text = with_placeholders_filled(example);
        let mut example: Value = serde_json::from_str(&text).unwrap();
        // Metrics pass only where both ends share a dialect; then the whole message passes unchanged.
        if let Some(metrics) = example.get_mut("metrics").and_then(Value::as_object_mut) {
            metrics.retain(|key, _| !key.starts_with("vision_"));
        }
        let codec = RelayCodec::new(library.client(dialect).unwrap(), "mode=video", 0.0).unwrap();
        let mut encoded = None;
        Dialect::new(library.upstream(dialect).unwrap()).decode_as_sent(Frame::Text(&text), |event, meta| {
            let event_meta = RelayEventMeta {
                session_id: example.get("session_id").and_then(Value::as_str),
                response_id: meta.response_id,
                input_id: meta.input_id,
                context_tokens: meta.context_tokens,
                // The prompt has 256 characters; 58 are the server's own.
                prompt_chars: 256 - 58,
                ..RelayEventMeta::default()
            };
            encoded = encode_for_client(&codec, meaning, &event, meta.end_reason, &event_meta);
        });
        let encoded = encoded.unwrap_or_else(|| panic!("{source}: it is not {meaning}"));
        assert_contains_printed(source, &encoded, &example);
    }
}

/// Encodes the event for a client, if its meaning is the expected one.
fn encode_for_client(
    codec: &RelayCodec,
    meaning: &str,
    event: &LaneEvent<'_>,
    end_reason: Option<RelayEndReason>,
    event_meta: &RelayEventMeta<'_>,
) -> Option<String> {
    let encode_end = |reason| {
        let end = RelayEnd { reason, client_reason: Some("user_stop"), detail: None };
        codec.encode_end(&end, event_meta)
    };
    match (meaning, event, end_reason) {
        ("queued", LaneEvent::Queued { .. }, _)
        | ("granted", LaneEvent::Granted, _)
        | ("opened", LaneEvent::Ready { session_id: Some(_) }, _)
        | ("listening", LaneEvent::Listen, _)
        | ("text", LaneEvent::Text(_), _)
        | ("speech", LaneEvent::Audio(_), _)
        | ("output", LaneEvent::Step { .. }, _)
        | ("answered", LaneEvent::Done { .. }, _) => codec.encode(event, event_meta),
        ("ended", LaneEvent::Closed(_), Some(_)) => encode_end(RelayEndReason::ClientClose),
        ("timeout", LaneEvent::Closed(_), Some(RelayEndReason::Timeout)) => {
            encode_end(RelayEndReason::Timeout)
        }
        ("queue_full", LaneEvent::Closed(_), None) => {
            codec.encode_error(&Error::new(ErrorKind::QueueFull, ""), event_meta).event
        }
        ("invalid", LaneEvent::RecoverableError(_), _) => {
            let words = "audio base64 decode failed";
            codec.encode_error(&Error::new(ErrorKind::Invalid, words), event_meta).event
        }
        _ => None,
    }
}

fn macaw_codec() -> Codec {
    Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 1_234_567_890.0)
}

#[test]
fn documented_macaw_client_messages_are_decoded() {
    for (section, text, meaning) in [
        (
            "session.configure",
            r#"{"type": "session.configure", "vad": {"sensitivity": "normal"}, "language": "en", "hot_words": ["Macaw", "OpenVoice", "transcription"], "tts_model": "kokoro-v1"}"#,
            ClientRequest::Configure(vec![
                Setting::HotWords(vec!["Macaw".into(), "OpenVoice".into(), "transcription".into()]),
                Setting::Language("en".into()),
                Setting::SpeakModel(SpeechModel::if_known("kokoro-v1")),
                Setting::VadSensitivity(Sensitivity::Normal),
            ]),
        ),
        ("tts.cancel", r#"{"type": "tts.cancel"}"#, ClientRequest::CancelSpeech),
    ] {
        let check = |event: ClientRequest<'_>| assert_eq!(event, meaning, "macaw-realtime, {section}");
        assert_eq!(macaw_codec().decode(Frame::Text(text), check), Ok(()), "macaw-realtime, {section}");
    }
    let speak = r#"{"type": "tts.speak", "text": "Hello, how can I help you?", "voice": "default"}"#;
    let mut codec = macaw_codec();
    let mut events = Vec::new();
    codec.decode(Frame::Text(speak), |event| events.push(format!("{event:?}"))).unwrap();
    codec.decode(Frame::Binary(&[1, 2]), |event| events.push(format!("{event:?}"))).unwrap();
    assert_eq!(events.len(), 2, "macaw-realtime, tts.speak and Binary Frames");
    let words = ["Speak(", "text: \"Hello, how can I help you?\"", "voice: Some(\"default\")"];
    assert!(words.iter().all(|word| events[0].contains(word)), "{}", events[0]);
    assert_eq!(events[1], "Audio([1, 2])", "macaw-realtime, Binary Frames");
    let connect = macaw_codec().decode_query("model=faster-whisper-large-v3");
    assert_eq!(connect.model.as_deref(), Some("faster-whisper-large-v3"), "macaw-realtime, Connecting");
}

#[test]
fn documented_macaw_server_messages_are_encoded() {
    let speaker = Speaker::User;
    let request_id = String::new;
    let lost = Error::new(ErrorKind::Unavailable, "Worker connection lost");
    let events = [
        (
            "session.created",
            ClientEvent::SessionCreated { language: None, limit_ms: None },
            json!({"type": "session.created", "session_id": "abc123"}),
        ),
        (
            "vad.speech_start",
            ClientEvent::SpeechStarted { at_ms: 0, from_ms: 0, segment_id: 0 },
            json!({"type": "vad.speech_start", "timestamp": 1_234_567_890.123}),
        ),
        (
            "transcript.partial",
            ClientEvent::TranscriptPartial {
                speaker,
                text: "Hello how can".into(),
                segment_id: 0,
                start_ms: 0,
                audio_ms: 0,
            },
            json!({"type": "transcript.partial", "text": "Hello how can"}),
        ),
        (
            "transcript.final",
            ClientEvent::TranscriptFinal {
                speaker,
                text: "Hello, how can I help you today?".into(),
                segment_id: 0,
                duration_ms: 3420,
                start_ms: 0,
                speech_ms: (0, 3420),
                utterance_ended: true,
                finalized: false,
                language: Some("en".into()),
                words: Vec::new(),
            },
            json!({"type": "transcript.final", "text": "Hello, how can I help you today?", "language": "en", "duration": 3.42}),
        ),
        (
            "vad.speech_end",
            ClientEvent::SpeechEnded { at_ms: 0, segment_id: 0 },
            json!({"type": "vad.speech_end", "timestamp": 1_234_567_890.123}),
        ),
        (
            "tts.speaking_start",
            ClientEvent::SpeakingStarted {
                request_id: request_id(),
                at_ms: 0,
                text: String::new(),
                is_requested: true,
            },
            json!({"type": "tts.speaking_start"}),
        ),
        (
            "tts.speaking_end",
            ClientEvent::SpeakingEnded { request_id: request_id(), at_ms: 0, cancelled: false, audio_ms: 0 },
            json!({"type": "tts.speaking_end"}),
        ),
        (
            "error",
            ClientEvent::Error(lost),
            json!({"type": "error", "message": "Worker connection lost", "recoverable": true}),
        ),
    ];
    let mut codec = macaw_codec();
    codec.set_session("abc123", "m", 0);
    for (section, command, example) in events {
        let mut messages = Vec::new();
        codec.encode(&command, 0.123, |message, _| messages.push(message));
        let [Message::Text(spelled)] = messages.as_slice() else { panic!("{section} is not encoded") };
        assert_contains_printed(&format!("macaw-realtime, {section}"), spelled, &example);
    }
}

#[test]
fn documented_session_init_is_decoded_completely() {
    let is_meant = |it: &(&str, &str, &str, &str)| it.0 == "minicpm-o-video-duplex, Initialize";
    let text = with_placeholders_filled(examples(FROM_CLIENTS).find(is_meant).unwrap().3);
    let codec =
        RelayCodec::new(Library::embedded().unwrap().client(CURRENT).unwrap(), "mode=video", 0.0).unwrap();
    let read = codec.decode(&text, false).unwrap();
    let RelayRequest::Open(RelayOpening { prompt, config, voice, speech_voice, slice_max }) =
        read.to_request()
    else {
        panic!("the message opens a session")
    };
    assert_eq!(prompt, Some("You are a helpful video voice assistant."));
    assert_eq!(config.map(|config| config.replace(' ', "")).as_deref(), Some(r#"{"length_penalty":1.1}"#));
    assert!(voice.is_some() && voice == speech_voice && slice_max.is_none());
}
