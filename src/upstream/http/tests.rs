//! Requests of each kind of server, and their answers as the servers write them.

use std::{sync::Arc, time::Instant};

use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    audio::{pcm, wav},
    spelling::Library,
    upstream::{
        lane::{CodecAction, LaneCodec},
        sse::EventStream,
    },
    vocabulary::{
        AnswerPart, ChatMessage, ChatTurn, DisconnectReason, EntryPart, Frame, HttpBody, HttpRequest,
        LaneEvent, LanePurpose, LaneRequest, Mode, Role, ToolOffer, TranscribePrompt, VoiceSample,
    },
};

#[expect(clippy::disallowed_methods, reason = "an instant must come from somewhere")]
fn now() -> Instant {
    Instant::now()
}

fn codec(dialect: &str) -> LaneCodec {
    let dialect = Library::embedded().unwrap().upstream(dialect).unwrap();
    LaneCodec::new(dialect, Mode::Chat, LanePurpose::Transcribe)
}

fn transcribe() -> LaneRequest {
    let prompt = TranscribePrompt { language: "en".into(), hints: "voxbridge".into(), .."Listen.".into() };
    LaneRequest::Transcribe { prompt, audio: Arc::new(vec![1, -1, 300]) }
}

fn speak(voice: Option<VoiceSample>) -> LaneRequest {
    LaneRequest::Speak {
        before_voice: "before".into(),
        after_voice: "after".into(),
        request: "Read: Hello".into(),
        text: "Hello".into(),
        voice,
        voice_name: None,
    }
}

fn actions(codec: &mut LaneCodec) -> Vec<CodecAction> {
    std::iter::from_fn(|| codec.pop_action()).collect()
}

/// Sends a command and returns its request.
fn request(codec: &mut LaneCodec, command: &LaneRequest) -> HttpRequest {
    codec.encode(now(), command.clone(), |message| panic!("{message:?}"));
    match actions(codec).pop() {
        Some(CodecAction::Request(request)) => request,
        other => panic!("{other:?}"),
    }
}

fn json_request(dialect: &str, command: &LaneRequest) -> (String, Value) {
    let HttpRequest { path, body } = request(&mut codec(dialect), command);
    match body {
        HttpBody::Json(json) => (path, serde_json::from_str(&json).unwrap()),
        HttpBody::Form { .. } => panic!("a form"),
    }
}

/// Piece of an answer after its head.
enum Piece {
    Text(String),
    Binary(Vec<u8>),
}

/// Events of an answer, and then the codec's own actions.
fn answered(
    codec: &mut LaneCodec,
    (status, content_type): (u16, &str),
    pieces: &[Piece],
) -> (Vec<String>, Vec<CodecAction>) {
    let mut events = Vec::new();
    let describe = |event: LaneEvent<'_>| match event {
        LaneEvent::Audio(samples) => format!("Audio({})", samples.len()),
        LaneEvent::Done { text, audio } => format!("Done({text:?}, {})", audio.len()),
        other => format!("{other:?}"),
    };
    let head = AnswerPart::Head { status, content_type: content_type.to_owned() };
    codec.handle_answer(head, |event, _| events.push(describe(event)));
    for piece in pieces {
        let frame = match piece {
            Piece::Text(text) => Frame::Text(text),
            Piece::Binary(bytes) => Frame::Binary(bytes),
        };
        codec.decode(now(), frame, |event, _| events.push(describe(event)));
    }
    codec.handle_answer(AnswerPart::End, |event, _| events.push(describe(event)));
    (events, actions(codec))
}

fn texts(messages: &[Value]) -> Vec<Piece> {
    messages
        .iter()
        .map(|message| Piece::Text(message.to_string()))
        .chain([Piece::Text("[DONE]".into())])
        .collect()
}

/// A WAV file in base64.
fn wav_base64(samples: usize, rate_hz: u32) -> String {
    let mut base64 = String::new();
    pcm::encode_base64(&wav::write_s16(&vec![100; samples], rate_hz), &mut base64);
    base64
}

#[test]
fn lane_is_ready_at_once_and_ends_when_it_is_left() {
    let mut codec = codec("vllm-omni-http");
    codec.encode(now(), LaneRequest::Init(None), |message| panic!("{message:?}"));
    assert_eq!(actions(&mut codec), [CodecAction::Event(LaneEvent::Ready { session_id: None })]);
    for command in [LaneRequest::Close, LaneRequest::Cancel] {
        request(&mut codec, &transcribe());
        codec.encode(now(), command.clone(), |message| panic!("{message:?}"));
        let end = CodecAction::End(DisconnectReason::Closed(1000, String::new()));
        assert_eq!(actions(&mut codec), [end]);
        // The rest of the answer is on its way.
        assert_eq!(answered(&mut codec, (200, "text/event-stream"), &texts(&[])), (vec![], vec![]));
    }
}

#[test]
fn request_that_a_dialect_lacks_ends_the_lane() {
    let mut codec = codec("openai-audio");
    codec.encode(now(), LaneRequest::Chat(Box::new(turn())), |message| panic!("{message:?}"));
    let words = format!("{:?}", actions(&mut codec));
    assert!(
        words.contains("the dialect openai-audio has no request `chat_with_voice`") && words.contains("End("),
        "{words}"
    );
}

#[test]
fn questions_to_vllm_omni_have_audio_items_and_its_template_switches() {
    let (path, body) = json_request("vllm-omni-http", &transcribe());
    assert_eq!(path, "/chat/completions");
    let content = &body["messages"][0]["content"];
    assert_eq!(
        (&content[0]["text"], &content[1]["input_audio"]["format"]),
        (&json!("Listen."), &json!("wav"))
    );
    assert!(content[1]["input_audio"]["data"].as_str().unwrap().starts_with("UklGR"));
    assert_eq!((&body["modalities"], &body["stream"]), (&json!(["text"]), &json!(true)));
    let (_, body) = json_request("vllm-omni-http", &speak(Some(VoiceSample::new([0]))));
    assert!(body["ref_audio"].as_str().unwrap().starts_with("data:audio/wav;base64,UklGR"));
    assert_eq!(body["messages"][0]["content"], "after");
    assert_eq!(body["messages"][1]["content"], "Read: Hello");
    assert_eq!(body["chat_template_kwargs"], json!({"use_tts_template": true, "enable_thinking": false}));
    let (_, body) = json_request("vllm-omni-http", &speak(None));
    assert!(body.get("ref_audio").is_none());
}

#[test]
fn recording_is_sent_as_a_form_and_a_text_word_for_word() {
    for (dialect, known) in [
        ("sglang-omni-http", json!({"language": "en", "response_format": "json", "stream": "true"})),
        (
            "openai-audio",
            json!({"language": "en", "prompt": "voxbridge", "response_format": "json", "stream": "true"}),
        ),
    ] {
        let HttpRequest { path, body } = request(&mut codec(dialect), &transcribe());
        let HttpBody::Form { fields, file_field, file } = body else { panic!("{dialect}: JSON") };
        let fields: serde_json::Map<_, _> =
            fields.into_iter().map(|(name, value)| (name, Value::from(value))).collect();
        assert_eq!((path.as_str(), file_field.as_str()), ("/audio/transcriptions", "file"));
        assert_eq!((Value::from(fields), file.len()), (known, 44 + 6), "{dialect}");
        let (path, body) = json_request(dialect, &speak(None));
        assert_eq!((path.as_str(), &body["input"]), ("/audio/speech", &json!("Hello")));
    }
    let (_, body) = json_request("sglang-omni-http", &speak(Some(VoiceSample::new([0]))));
    assert!(body["ref_audio"].as_str().unwrap().starts_with("data:audio/wav;base64,"));
}

#[test]
fn translation_is_a_request_of_its_own_and_refused_where_there_is_none() {
    let prompt = TranscribePrompt {
        language: "en".into(),
        hints: "voxbridge".into(),
        translates: true,
        .."Translate into English.".into()
    };
    let command = LaneRequest::Transcribe { prompt, audio: Arc::new(vec![1, -1, 300]) };
    let HttpRequest { path, body } = request(&mut codec("openai-audio"), &command);
    let HttpBody::Form { fields, file, .. } = body else { panic!("JSON") };
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!((path.as_str(), file.len()), ("/audio/translations", 44 + 6));
    assert_eq!(fields, [("prompt", "voxbridge"), ("response_format", "json")]);
    for dialect in ["sglang-omni-http", "vllm-omni-http"] {
        let (path, body) = json_request(dialect, &command);
        let content = &body["messages"][0]["content"];
        assert_eq!(
            (path.as_str(), &content[0]["text"]),
            ("/chat/completions", &json!("Translate into English."))
        );
        assert!(content[1]["input_audio"]["data"].as_str().unwrap().starts_with("UklGR"), "{body}");
    }
    let mut library = Library::embedded().unwrap();
    let source = include_str!("../../../mappings/upstream/openai-audio.toml");
    let without: Vec<&str> = source.lines().filter(|line| !line.starts_with("translate = ")).collect();
    let source = without.join("\n").replace(r#"translate = "/audio/translations", "#, "");
    library.add("own.toml", &source.replace(r#"name = "openai-audio""#, r#"name = "own""#)).unwrap();
    let mut codec = LaneCodec::new(library.upstream("own").unwrap(), Mode::Chat, LanePurpose::Transcribe);
    codec.encode(now(), command, |message| panic!("{message:?}"));
    let ends = actions(&mut codec);
    let Some(CodecAction::Event(LaneEvent::Closed(end))) = ends.first() else { panic!("{ends:?}") };
    assert!(end.detail.contains("no request `translate`"), "{end:?}");
}

/// A turn with instructions, a picture and speech.
fn turn() -> ChatTurn {
    let parts = vec![
        EntryPart::Text("Look:".into()),
        EntryPart::Picture(vec![0xff, 0xd8].into()),
        EntryPart::Audio(vec![1, 2].into()),
    ];
    ChatTurn {
        instructions: "Be brief.".into(),
        before_voice: "before".into(),
        voice: Some(VoiceSample::new([0])),
        voice_name: None,
        messages: vec![ChatMessage { role: Role::User, parts }],
        speaks: true,
        max_tokens: 7,
        temperature: None,
        tools: ToolOffer::default(),
    }
}

#[test]
fn answer_is_asked_for_with_the_conversation_and_the_voice_beside_it() {
    for (dialect, voice) in [("vllm-omni-http", "/ref_audio"), ("sglang-omni-http", "/audio/ref_audio")] {
        let (path, body) = json_request(dialect, &LaneRequest::Chat(Box::new(turn())));
        assert_eq!(path, "/chat/completions");
        assert!(
            body.pointer(voice).unwrap().as_str().unwrap().starts_with("data:audio/wav;base64,"),
            "{dialect}"
        );
        assert_eq!(body["messages"][0]["content"], json!([{"type": "text", "text": "Be brief."}]));
        let content = &body["messages"][1]["content"];
        assert_eq!(content[1]["image_url"]["url"], "data:image/jpeg;base64,/9g=");
        assert_eq!(content[2]["input_audio"]["format"], "wav");
        assert_eq!((&body["modalities"], &body["max_tokens"]), (&json!(["text", "audio"]), &json!(7)));
        let silent = ChatTurn { speaks: false, voice: None, ..turn() };
        let (_, body) = json_request(dialect, &LaneRequest::Chat(Box::new(silent)));
        assert_eq!((&body["modalities"], body.pointer(voice)), (&json!(["text"]), None));
    }
}

/// The stream of vLLM-Omni for an answer with speech.
fn vllm_omni_stream() -> Vec<Value> {
    let chunk = |modality: &str, delta: Value, finish: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}], "modality": modality})
    };
    vec![
        chunk("text", json!({"role": "assistant", "content": ""}), Value::Null),
        chunk("text", json!({"content": "Hello you"}), Value::Null),
        chunk("audio", json!({"role": "assistant", "content": wav_base64(2400, 24_000)}), Value::Null),
        chunk("audio", json!({"role": "assistant", "content": wav_base64(4800, 48_000)}), json!("stop")),
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [], "usage": {"prompt_tokens": 1}}),
    ]
}

#[test]
fn streamed_answers_of_each_server_are_decoded() {
    let mut vllm = codec("vllm-omni-http");
    request(&mut vllm, &speak(None));
    let (events, actions) =
        answered(&mut vllm, (200, "text/event-stream; charset=utf-8"), &texts(&vllm_omni_stream()));
    assert_eq!(events, ["Text(\"Hello you\")", "Audio(2400)", "Audio(2400)", "Done(None, 0)"]);
    assert!(actions.is_empty());

    let mut sglang = codec("sglang-omni-http");
    request(&mut sglang, &transcribe());
    let deltas = [
        json!({"type": "transcript.text.delta", "delta": "Hello"}),
        json!({"type": "transcript.text.delta", "delta": " you\n||{"}),
        json!({"type": "transcript.text.done", "text": "Hello you", "usage": {"type": "duration", "seconds": 1}}),
    ];
    let (events, _) = answered(&mut sglang, (200, "text/event-stream"), &texts(&deltas));
    assert_eq!(events, ["Text(\"Hello\")", "Text(\" you\\n||{\")", "Done(Some(\"Hello you\"), 0)"]);

    request(&mut sglang, &LaneRequest::Chat(Box::new(turn())));
    let delta = |delta: Value| {
        json!({"id": "chatcmpl-1", "object": "chat.completion.chunk",
            "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
    };
    let audio = json!({"id": "audio-1", "data": wav_base64(1200, 24_000)});
    let deltas = [
        delta(json!({"role": "assistant", "content": "Hi."})),
        delta(json!({"audio": audio})),
        delta(json!({})),
    ];
    let (events, _) = answered(&mut sglang, (200, "text/event-stream"), &texts(&deltas));
    assert_eq!(events, ["Text(\"Hi.\")", "Audio(1200)", "Done(None, 0)"]);

    for (message, words) in [
        (json!({"text": "Hello you", "usage": {}}), "Hello you"),
        (
            json!({"object": "transcription.chunk", "choices": [{"delta": {"content": "Hello you"}}]}),
            "Hello you",
        ),
    ] {
        let mut other = codec("openai-audio");
        request(&mut other, &transcribe());
        let (events, _) =
            answered(&mut other, (200, "application/json"), &[Piece::Text(message.to_string())]);
        assert_eq!(events, [format!("Text({words:?})"), "Done(None, 0)".to_owned()]);
    }
}

#[test]
fn whole_answer_has_its_text_and_its_audio() {
    for dialect in ["vllm-omni-http", "sglang-omni-http"] {
        let mut codec = codec(dialect);
        request(&mut codec, &LaneRequest::Chat(Box::new(turn())));
        let message =
            json!({"role": "assistant", "content": "Hi.", "audio": {"data": wav_base64(2400, 24_000)}});
        let answer = json!({"object": "chat.completion", "choices": [{"index": 0, "message": message}]});
        let (events, _) = answered(&mut codec, (200, "application/json"), &[Piece::Text(answer.to_string())]);
        assert_eq!(events, ["Done(Some(\"Hi.\"), 2400)"]);
    }
}

#[test]
fn body_of_audio_is_played_as_it_comes() {
    let mut codec = codec("openai-audio");
    request(&mut codec, &speak(None));
    let file = wav::write_s16(&[100; 1000], 24_000);
    let pieces: Vec<_> = file.chunks(999).map(|piece| Piece::Binary(piece.to_vec())).collect();
    let (events, _) = answered(&mut codec, (200, "audio/wav"), &pieces);
    assert_eq!(events, ["Audio(477)", "Audio(500)", "Audio(23)", "Done(None, 0)"]);
    request(&mut codec, &speak(None));
    let (_, actions) = answered(&mut codec, (200, "audio/mpeg"), &[Piece::Binary(vec![0; 100])]);
    assert!(format!("{actions:?}").contains("answered with audio/mpeg"), "{actions:?}");
}

#[test]
fn failures_end_the_lane_with_the_servers_words() {
    for ((status, body), kind, words) in [
        (
            (503, r#"{"detail":"Queue is full"}"#),
            "QueueFull",
            "HTTP 503 for /chat/completions: Queue is full",
        ),
        ((429, "slow down"), "QueueFull", "HTTP 429 for /chat/completions: slow down"),
        (
            (
                400,
                r#"{"error":{"message":"audio item is longer than 30 s","type":"BadRequestError","code":400}}"#,
            ),
            "Refused",
            "HTTP 400 for /chat/completions: audio item is longer than 30 s",
        ),
        (
            (422, r#"{"detail":[{"loc":["body","model"],"msg":"Field required"}]}"#),
            "Refused",
            "Field required (body.model)",
        ),
        (
            (401, "bad key"),
            "Misconfigured",
            "HTTP 401 for /chat/completions: bad key (check the upstream's `token`",
        ),
        ((500, ""), "Other", "HTTP 500 for /chat/completions"),
    ] {
        let mut codec = codec("vllm-omni-http");
        request(&mut codec, &transcribe());
        let pieces: Vec<_> = Some(body)
            .filter(|body| !body.is_empty())
            .map(|body| Piece::Text(body.into()))
            .into_iter()
            .collect();
        let (events, actions) = answered(&mut codec, (status, "application/json"), &pieces);
        assert!(events.is_empty(), "{events:?}");
        let said = format!("{:?}", actions[0]);
        assert!(said.contains(&format!("kind: {kind}")) && said.contains(words), "{said}");
        assert!(matches!(actions[1], CodecAction::End(_)) && actions.len() == 2);
    }
}

#[test]
fn failure_within_a_stream_ends_the_lane() {
    for (dialect, command) in [("vllm-omni-http", transcribe()), ("openai-audio", transcribe())] {
        let mut codec = codec(dialect);
        request(&mut codec, &command);
        let messages =
            texts(&[json!({"error": {"message": "the engine died", "type": "server_error", "code": 500}})]);
        let (events, actions) = answered(&mut codec, (200, "text/event-stream"), &messages);
        assert!(events.is_empty(), "{dialect}: {events:?}");
        assert!(format!("{:?}", actions[0]).contains("the engine died"), "{dialect}: {actions:?}");
    }
}

#[test]
fn answer_without_a_known_message_is_a_failure() {
    let (stream, json) = ("text/event-stream", "application/json");
    for (case, content_type, pieces) in [
        ("nothing", json, vec![]),
        ("no member", json, vec!["{}".to_owned()]),
        ("a page", "text/html", vec!["<html>Welcome</html>".to_owned()]),
        ("an end alone", stream, vec!["[DONE]".to_owned()]),
        ("no event", stream, vec![]),
    ] {
        let mut codec = codec("vllm-omni-http");
        request(&mut codec, &transcribe());
        let pieces: Vec<_> = pieces.into_iter().map(Piece::Text).collect();
        let (events, actions) = answered(&mut codec, (200, content_type), &pieces);
        assert!(!events.iter().any(|event| event.starts_with("Done")), "{case}: {events:?}");
        assert!(format!("{actions:?}").contains("Closed(UpstreamEnd"), "{case}: {actions:?}");
    }
    let mut open = codec("openai-audio");
    request(&mut open, &transcribe());
    let (_, actions) = answered(&mut open, (200, json), &[Piece::Text("{}".to_owned())]);
    assert!(format!("{actions:?}").contains("without an answer"), "{actions:?}");
    request(&mut open, &transcribe());
    let (_, actions) = answered(&mut open, (200, stream), &[Piece::Text("{}".to_owned())]);
    assert!(format!("{actions:?}").contains("without an answer"), "{actions:?}");
    // speaches sends an event for each segment with words, and no end.
    request(&mut open, &transcribe());
    let (events, actions) = answered(&mut open, (200, stream), &[]);
    assert_eq!((events.len(), actions.len()), (1, 0), "{events:?} {actions:?}");
    request(&mut open, &transcribe());
    let segment = Piece::Text(r#"{"text": "All of it."}"#.to_owned());
    let (events, actions) = answered(&mut open, (200, stream), &[segment]);
    assert_eq!((events.len(), actions.len()), (2, 0), "{events:?} {actions:?}");
    let mut codec = codec("openai-audio");
    request(&mut codec, &speak(None));
    let file = wav::write_s16(&[100; 1000], 24_000);
    let (events, actions) = answered(&mut codec, (200, "audio/wav"), &[Piece::Binary(file[..600].to_vec())]);
    assert!(!events.iter().any(|event| event.starts_with("Done")), "{events:?}");
    assert!(format!("{actions:?}").contains("too early"), "{actions:?}");
}

proptest! {
    /// The events of an answer do not depend on where the network cuts it.
    #[test]
    fn stream_cut_anywhere_has_the_same_events(cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let stream: String = vllm_omni_stream().iter().map(|message| format!("data: {message}\n\n")).collect();
        let stream = stream + "data: [DONE]\n\n";
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let (mut reader, mut pieces, mut from) = (EventStream::default(), Vec::new(), 0);
        for cut in cuts.into_iter().chain([stream.len()]) {
            reader.push(&stream.as_bytes()[from..cut]);
            pieces.extend(std::iter::from_fn(|| reader.pop()).map(Piece::Text));
            from = cut;
        }
        let mut codec = codec("vllm-omni-http");
        request(&mut codec, &speak(None));
        let (events, _) = answered(&mut codec, (200, "text/event-stream"), &pieces);
        prop_assert_eq!(events, ["Text(\"Hello you\")", "Audio(2400)", "Audio(2400)", "Done(None, 0)"]);
    }
}
