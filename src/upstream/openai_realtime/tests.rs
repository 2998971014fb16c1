//! Messages of lanes in the names of GA and of its beta.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::*;
use crate::{
    audio::pcm,
    spelling::Library,
    upstream::lane::{LaneCodec, LaneOpening},
    vocabulary::{
        ChatMessage, ChatTurn, ConversationInit, EntryPart, Frame, Role, Tool, ToolCall, ToolChoice,
        ToolOffer, ToolResult, TranscribePrompt, VideoFrame,
    },
};

/// A codec, and what its lane saw.
struct Bench {
    codec: LaneCodec,
    now: Instant,
}

impl Bench {
    /// A lane whose transport is open.
    fn dialled(purpose: LanePurpose, mode: Mode) -> Self {
        let mapping = Library::embedded().unwrap().upstream("openai-realtime").unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant has no other source; only differences count"
        )]
        let now = Instant::now();
        let mut codec = LaneCodec::new(mapping, mode, purpose);
        assert_eq!(codec.handle_opened(now), LaneOpening::Granted);
        Self { codec, now }
    }

    /// A lane that is ready, at a server that takes and sends audio at this rate.
    fn ready(purpose: LanePurpose, rate_hz: u32) -> Self {
        let mut bench = Self::dialled(purpose, Mode::Chat);
        let settings = bench.encode(LaneRequest::Init(None));
        let created = bench.receive(&session("session.created", 24_000));
        if purpose != LanePurpose::Transcribe {
            assert_eq!(created, [""; 0]);
            assert_eq!(settings[0]["session"]["audio"]["input"]["turn_detection"], Value::Null);
            assert_eq!(bench.receive(&session("session.updated", rate_hz)), ["Ready s"]);
        } else {
            assert_eq!((settings.len(), created), (0, vec!["Ready s".to_owned()]));
        }
        bench
    }

    fn encode(&mut self, command: LaneRequest) -> Vec<Value> {
        let mut sent = Vec::new();
        self.codec.encode(self.now, command, |message| sent.push(parse(&message)));
        sent
    }

    fn ask(&mut self, turn: ChatTurn) -> Vec<Value> {
        self.encode(LaneRequest::Chat(Box::new(turn)))
    }

    fn receive(&mut self, message: &Value) -> Vec<String> {
        let mut events = Vec::new();
        self.codec.decode(self.now, Frame::Text(&message.to_string()), |event, meta| {
            events.push(match event {
                LaneEvent::Ready { session_id } => format!("Ready {}", session_id.unwrap_or_default()),
                LaneEvent::Audio(samples) => format!("audio {}", samples.len()),
                LaneEvent::Text(text) => format!("text {text}"),
                LaneEvent::Call { call_id, name, arguments } => format!("call {call_id} {name} {arguments}"),
                LaneEvent::Done { .. } if meta.hit_limit => "cut".to_owned(),
                LaneEvent::Done { text, .. } => format!("done {}", text.unwrap_or_default()),
                LaneEvent::Closed(end) => format!("{:?}: {}", end.kind, end.detail),
                other => format!("{other:?}"),
            });
        });
        events
    }

    fn receive_all(&mut self, messages: &[Value]) -> Vec<String> {
        messages.iter().flat_map(|message| self.receive(message)).collect()
    }

    fn actions(&mut self) -> Vec<Value> {
        std::iter::from_fn(|| self.codec.pop_action())
            .map(|action| match action {
                CodecAction::Send(message) => parse(&message),
                other => json!(format!("{other:?}")),
            })
            .collect()
    }
}

fn parse(message: &Message) -> Value {
    match message {
        Message::Text(text) => serde_json::from_str(text).unwrap(),
        other => json!(format!("{other:?}")),
    }
}

fn session(kind: &str, rate_hz: u32) -> Value {
    let format = json!({"format": {"type": "audio/pcm", "rate": rate_hz}});
    json!({"type": kind, "event_id": "e", "session": {
        "id": "s", "object": "realtime.session", "type": "realtime", "model": "m",
        "audio": {"input": format, "output": format},
    }})
}

fn done(status: &str, details: Value) -> Value {
    json!({"type": "response.done", "response": {"id": "r", "status": status, "status_details": details}})
}

fn turn(messages: Vec<ChatMessage>) -> ChatTurn {
    ChatTurn {
        before_voice: String::new(),
        instructions: "Be brief.".to_owned(),
        messages,
        speaks: true,
        voice: None,
        voice_name: None,
        max_tokens: 7,
        temperature: Some(0.5),
        tools: ToolOffer::default(),
    }
}

fn message(role: Role, parts: Vec<EntryPart>) -> ChatMessage {
    ChatMessage { role, parts }
}

fn text(words: &str) -> EntryPart {
    EntryPart::Text(words.to_owned())
}

fn audio(ms: usize) -> EntryPart {
    EntryPart::Audio(Arc::new(vec![1000; 16 * ms]))
}

/// Types of the messages, with those of items.
fn kinds(messages: &[Value]) -> Vec<String> {
    let kind = |message: &Value| match message["item"]["type"].as_str() {
        Some(item) => format!("{} {}", item, message["item"]["role"].as_str().unwrap_or_default()),
        None => message["type"].as_str().unwrap_or_default().to_owned(),
    };
    messages.iter().map(kind).collect()
}

/// Samples of appended audio.
fn appended(messages: &[Value]) -> Vec<usize> {
    let appends = messages.iter().filter(|message| message["type"] == "input_audio_buffer.append");
    appends.map(|message| decoded(&message["audio"]).len()).collect()
}

fn decoded(audio: &Value) -> Vec<f32> {
    let mut samples = Vec::new();
    pcm::decode_base64_s16(audio.as_str().unwrap(), &mut samples).unwrap();
    samples
}

fn pcm16(samples: usize) -> String {
    let mut base64 = String::new();
    pcm::encode_base64_s16(&vec![500; samples], &mut base64);
    base64
}

#[test]
fn question_is_sent_as_settings_items_audio_and_a_request() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    let sent = bench.ask(turn(vec![
        message(Role::System, vec![text("Rules.")]),
        message(Role::User, vec![audio(200), EntryPart::Picture(vec![0xff, 0xd8].into())]),
        message(Role::Assistant, vec![text("I see.")]),
        message(Role::User, vec![text("And"), audio(2500)]),
    ]));
    assert_eq!(
        kinds(&sent),
        [
            "session.update",
            "message system",
            "message user",
            "message assistant",
            "message user",
            "input_audio_buffer.append",
            "input_audio_buffer.append",
            "input_audio_buffer.append",
            "input_audio_buffer.commit",
            "response.create",
        ]
    );
    let settings = json!({
        "type": "realtime", "output_modalities": ["audio"], "instructions": "Be brief.", "max_output_tokens": 7,
    });
    assert_eq!(sent[0]["session"], settings, "no tools, and no temperature, which OpenAI refuses");
    assert_eq!(sent[1]["item"]["content"], json!([{"type": "input_text", "text": "Rules."}]));
    assert_eq!(decoded(&sent[2]["item"]["content"][0]["audio"]).len(), 4800);
    assert_eq!(sent[2]["item"]["content"][1]["image_url"], "data:image/jpeg;base64,/9g=");
    assert_eq!(sent[3]["item"]["content"], json!([{"type": "output_text", "text": "I see."}]));
    assert_eq!(sent[4]["item"]["content"], json!([{"type": "input_text", "text": "And"}]));
    assert_eq!(appended(&sent), [24_000, 24_000, 12_000]);
    let silent = bench.ask(ChatTurn { speaks: false, ..turn(Vec::new()) });
    assert_eq!(silent[0]["session"]["output_modalities"], json!(["text"]));
}

#[test]
fn audio_before_words_stays_in_its_item_and_short_audio_is_long_enough() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    let sent = bench.ask(turn(vec![message(Role::User, vec![audio(200), text("and this")])]));
    assert_eq!(kinds(&sent), ["session.update", "message user", "response.create"]);
    let sent = bench.ask(turn(vec![message(Role::User, vec![audio(20)])]));
    assert_eq!(appended(&sent), [2400], "OpenAI commits nothing shorter than 100 ms");
}

#[test]
fn tools_calls_and_results_are_sent_as_they_are() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    let parameters = r#"{"type":"object","properties":{"city":{"type":"string"}}}"#;
    let tool = |name: &str, description: Option<&str>| Tool {
        name: name.to_owned(),
        description: description.map(str::to_owned),
        parameters: parameters.into(),
    };
    let call = ToolCall {
        call_id: "c1".to_owned(),
        name: "weather".to_owned(),
        arguments: "{ \"city\" :\"Köln\"}".to_owned(),
    };
    let result = ToolResult { call_id: "c1".to_owned(), output: "rain".to_owned() };
    let messages = vec![
        message(Role::User, vec![text("Weather?")]),
        message(Role::Assistant, vec![text("Let me see."), EntryPart::Call(call)]),
        message(Role::User, vec![EntryPart::Result(result), text("Well?")]),
    ];
    let tools = [tool("weather", Some("Weather of a city")), tool("stop", None)].into();
    let named = ToolChoice::Named("weather".to_owned());
    let offer = ToolOffer { tools, choice: named, is_parallel: false };
    let sent = bench.ask(ChatTurn { tools: offer.clone(), ..turn(messages) });
    assert_eq!(
        kinds(&sent),
        [
            "session.update",
            "message user",
            "message assistant",
            "function_call ",
            "function_call_output ",
            "message user",
            "response.create",
        ]
    );
    let schema: Value = serde_json::from_str(parameters).unwrap();
    assert_eq!(
        sent[0]["session"]["tools"],
        json!([
            {"type": "function", "name": "weather", "description": "Weather of a city", "parameters": schema},
            {"type": "function", "name": "stop", "parameters": schema},
        ])
    );
    assert_eq!(sent[0]["session"]["tool_choice"], json!({"type": "function", "name": "weather"}));
    assert_eq!(sent[0]["session"]["parallel_tool_calls"], false);
    assert_eq!(sent[3]["item"]["arguments"], "{ \"city\" :\"Köln\"}");
    assert_eq!(sent[4]["item"], json!({"type": "function_call_output", "call_id": "c1", "output": "rain"}));
    for (choice, word) in
        [(ToolChoice::Auto, "auto"), (ToolChoice::None, "none"), (ToolChoice::Required, "required")]
    {
        let tools = ToolOffer { choice, is_parallel: true, ..offer.clone() };
        let sent = bench.ask(ChatTurn { tools, ..turn(Vec::new()) });
        assert_eq!(sent[0]["session"]["tool_choice"], word);
        assert_eq!(sent[0]["session"].get("parallel_tool_calls"), None);
    }
}

#[test]
fn answers_are_read_in_both_spellings() {
    let names = [
        [
            "response.output_audio_transcript.delta",
            "response.output_text.delta",
            "response.output_audio.delta",
        ],
        ["response.audio_transcript.delta", "response.text.delta", "response.audio.delta"],
    ];
    for [transcript, words, sound] in names {
        let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
        bench.ask(turn(Vec::new()));
        let events = bench.receive_all(&[
            json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}}),
            json!({"type": transcript, "response_id": "r", "delta": "Hel"}),
            json!({"type": words, "response_id": "r", "delta": "lo"}),
            json!({"type": sound, "response_id": "r", "delta": pcm16(240)}),
            json!({"type": "response.output_item.done", "item": {"type": "message"}}),
            done("completed", Value::Null),
        ]);
        assert_eq!(events, ["text Hel", "text lo", "audio 240", "done "]);
    }
}

#[test]
fn calls_come_byte_for_byte_and_broken_calls_do_not() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    bench.ask(turn(Vec::new()));
    let call = |status: &str| {
        json!({"type": "response.output_item.done", "response_id": "r", "item": {
            "type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\" : 1.0e2}", "status": status,
        }})
    };
    let delta = json!({"type": "response.function_call_arguments.delta", "call_id": "c", "delta": "{"});
    let events = bench.receive_all(&[delta, call("completed"), call("incomplete")]);
    assert_eq!(events, ["call c f {\"a\" : 1.0e2}"]);
    let limit = json!({"type": "incomplete", "reason": "max_output_tokens"});
    assert_eq!(bench.receive(&done("incomplete", limit)), ["cut"]);
}

#[test]
fn rates_are_those_that_the_server_grants() {
    let mut bench = Bench::ready(LanePurpose::Answer, 16_000);
    let sent = bench.ask(turn(vec![message(Role::User, vec![audio(500)])]));
    assert_eq!(appended(&sent), [8000]);
    let delta = json!({"type": "response.output_audio.delta", "delta": pcm16(1600)});
    let events = bench.receive_all(&[delta.clone(), delta, done("completed", Value::Null)]);
    let samples = |event: &String| event.strip_prefix("audio ")?.parse::<usize>().ok();
    assert_eq!(events.iter().filter_map(samples).sum::<usize>(), 4800, "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("done "));
}

#[test]
fn cancelled_answer_ends_once_and_late_cancellation_is_no_error() {
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    assert_eq!(bench.encode(LaneRequest::Cancel), [Value::Null; 0], "nothing is asked for");
    bench.ask(turn(Vec::new()));
    assert_eq!(kinds(&bench.encode(LaneRequest::Cancel)), ["response.cancel"]);
    assert_eq!(bench.encode(LaneRequest::Cancel), [Value::Null; 0]);
    let late = json!({"type": "error", "error": {"code": "response_cancel_not_active", "message": "no"}});
    assert_eq!(bench.receive(&late), ["done "]);
    bench.ask(turn(Vec::new()));
    bench.encode(LaneRequest::Cancel);
    assert_eq!(bench.receive(&done("cancelled", json!({"reason": "client_cancelled"}))), ["cut"]);
    assert_eq!(bench.actions(), [Value::Null; 0], "the session stays open");
}

#[test]
fn transcript_is_asked_for_with_its_language_and_comes_in_parts() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    let prompt = TranscribePrompt {
        instruction: "Transcribe.".to_owned(),
        language: "de".to_owned(),
        ..TranscribePrompt::default()
    };
    let sent = bench.encode(LaneRequest::Transcribe { prompt, audio: vec![1; 16_000].into() });
    assert_eq!(kinds(&sent), ["session.update", "input_audio_buffer.append", "input_audio_buffer.commit"]);
    assert_eq!(sent[0]["session"]["type"], "transcription");
    let transcription = json!({"model": "gpt-4o-transcribe", "language": "de"});
    assert_eq!(sent[0]["session"]["audio"]["input"]["transcription"], transcription);
    let prefix = "conversation.item.input_audio_transcription";
    let mut updated = session("session.updated", 24_000);
    updated["session"]["audio"]["input"]["transcription"] = transcription;
    let events = bench.receive_all(&[
        updated,
        json!({"type": format!("{prefix}.delta"), "item_id": "i", "delta": "Guten "}),
        json!({"type": format!("{prefix}.completed"), "item_id": "i", "transcript": "Guten Tag."}),
    ]);
    assert_eq!(events, ["text Guten ", "done Guten Tag."]);
    let failed =
        json!({"type": format!("{prefix}.failed"), "error": {"code": "server_error", "message": "no"}});
    assert_eq!(bench.receive(&failed), ["Other: server_error: no"]);
}

/// A request for a transcript, or for a translation, of this many milliseconds.
fn transcribe(ms: usize, translates: bool) -> LaneRequest {
    let prompt = TranscribePrompt { translates, .."Write down what you hear.".into() };
    LaneRequest::Transcribe { prompt, audio: vec![1; 16 * ms].into() }
}

fn read_aloud() -> LaneRequest {
    LaneRequest::Speak {
        before_voice: String::new(),
        after_voice: "Read aloud.".to_owned(),
        request: "Read: Hello".to_owned(),
        text: "Hello".to_owned(),
        voice: None,
        voice_name: None,
    }
}

/// An error about the request for a transcript or a text.
fn refusal(code: &str) -> Value {
    json!({"type": "error", "error": {"code": code, "message": "no", "event_id": "request"}})
}

/// The message that asks for the words of audio by an answer.
#[track_caller]
fn assert_asks_by_answer(sent: &Value, samples: usize) {
    let response = &sent["response"];
    assert_eq!(
        (&sent["type"], &response["output_modalities"]),
        (&json!("response.create"), &json!(["text"]))
    );
    assert_eq!(response["instructions"], "Write down what you hear.");
    assert_eq!(decoded(&response["input"][0]["content"][0]["audio"]).len(), samples);
    assert_eq!(response.get("conversation"), None, "vLLM-Omni has no responses outside the conversation");
}

#[test]
fn server_without_transcripts_transcribes_by_answers() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    bench.encode(transcribe(100, false));
    let updated = session("session.updated", 24_000);
    assert_eq!(bench.receive(&updated), [""; 0]);
    assert_asks_by_answer(&bench.actions()[0], 2400);
    assert_eq!((bench.receive(&updated).len(), bench.actions().len()), (0, 0), "it is asked once");
    let words = json!({"type": "response.output_text.delta", "response_id": "r", "delta": "Hello."});
    assert_eq!(bench.receive_all(&[words, done("completed", Value::Null)]), ["text Hello.", "done "]);
    let next = bench.encode(transcribe(200, false));
    assert_eq!(next.len(), 1, "the lane has learnt it");
    assert_asks_by_answer(&next[0], 4800);
}

#[test]
fn refused_transcript_is_asked_for_as_an_answer_if_the_session_has_a_model() {
    for code in ["server_error", "invalid_request_error"] {
        let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
        bench.encode(transcribe(100, false));
        assert_eq!(bench.receive(&refusal(code)), [""; 0], "{code}");
        assert_asks_by_answer(&bench.actions()[0], 2400);
        let events = bench.receive(&refusal("invalid_request_error"));
        assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
    }
    let mut bench = Bench::dialled(LanePurpose::Transcribe, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let created = json!({"type": "session.created", "session": {"id": "s", "type": "transcription"}});
    assert_eq!(bench.receive(&created), ["Ready s"]);
    bench.encode(transcribe(100, false));
    assert_eq!(bench.receive(&refusal("invalid_value")), ["Refused: invalid_value: no"]);
}

#[test]
fn translation_is_asked_for_as_an_answer() {
    let mut bench = Bench::ready(LanePurpose::Transcribe, 24_000);
    let sent = bench.encode(transcribe(100, true));
    assert_eq!(sent.len(), 1);
    assert_asks_by_answer(&sent[0], 2400);
    let events = bench.receive(&refusal("invalid_parameter"));
    assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
}

#[test]
fn errors_mean_what_their_codes_say_and_end_the_session() {
    for (code, retryable, kind) in [
        ("rate_limit_exceeded", Value::Null, "QueueFull"),
        ("session_expired", Value::Null, "TimeLimitReached"),
        ("insufficient_quota", Value::Null, "Misconfigured"),
        ("invalid_api_key", Value::Null, "Misconfigured"),
        ("unsupported_model", Value::Null, "Misconfigured"),
        ("invalid_request_error", Value::Null, "Refused"),
        ("new_code", json!(false), "RefusedForGood"),
        ("new_code", json!(true), "Other"),
        ("server_error", Value::Null, "Other"),
    ] {
        let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
        bench.ask(turn(Vec::new()));
        let error = json!({"code": code, "message": "words", "retryable": retryable});
        let expected = [format!("{kind}: {code}: words")];
        assert_eq!(bench.receive(&json!({"type": "error", "error": error})), expected);
        assert_eq!(bench.actions(), [json!("Close(1000, \"\")")], "the server keeps it open");
        if retryable.is_null() {
            let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
            bench.ask(turn(Vec::new()));
            assert_eq!(bench.receive(&done("failed", json!({"error": error}))), expected);
        }
    }
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let other_api = json!({"type": "error", "error": "Realtime API is not available", "code": "unsupported"});
    assert_eq!(bench.receive(&other_api), ["Misconfigured: unsupported: Realtime API is not available"]);
}

#[test]
fn text_is_spoken_outside_the_conversation_unless_the_server_refuses_that() {
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    let sent = bench.encode(read_aloud());
    assert_eq!(kinds(&sent), ["response.create"]);
    assert_eq!(sent[0]["response"]["conversation"], "none");
    assert_eq!(sent[0]["response"]["instructions"], "Read aloud.");
    assert_eq!(sent[0]["response"]["input"][0]["content"][0]["text"], "Read: Hello");
    assert_eq!(bench.receive(&refusal("invalid_request_error")), [""; 0]);
    let again = bench.actions();
    assert_eq!((again.len(), again[0]["response"].get("conversation")), (1, None));
    assert_eq!(again[0]["response"]["input"], sent[0]["response"]["input"]);
    assert_eq!(bench.receive(&done("completed", Value::Null)), ["done "]);
    assert_eq!(bench.encode(read_aloud())[0]["response"].get("conversation"), None, "it has learnt it");
    let events = bench.receive(&refusal("invalid_request_error"));
    assert!(events[0].starts_with("Misconfigured: ") && events[0].contains("serves"), "{events:?}");
}

#[test]
fn lane_that_is_opened_late_is_ready_too() {
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    assert_eq!(bench.receive(&session("session.created", 24_000)), [""; 0]);
    assert_eq!(kinds(&bench.encode(LaneRequest::Init(None))), ["session.update"]);
    assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
    assert_eq!(bench.receive(&session("session.updated", 24_000)), [""; 0], "once");
}

/// A conversation whose server sends at the model's rate, and the numbers of its units.
struct Talk {
    bench: Bench,
    units: u64,
}

impl Talk {
    fn new() -> Self {
        let mut bench = Bench::dialled(LanePurpose::Converse, Mode::Video);
        let init = ConversationInit {
            prompt: "Be brief.".to_owned(),
            config: "{}".into(),
            voice: None,
            voice_name: None,
        };
        let settings = bench.encode(LaneRequest::InitConversation(Box::new(init)));
        assert_eq!(settings[0]["session"]["audio"]["input"]["turn_detection"]["type"], "server_vad");
        assert_eq!(settings[0]["session"]["instructions"], "Be brief.");
        assert_eq!(bench.receive(&session("session.created", 24_000)), [""; 0]);
        assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
        Self { bench, units: 0 }
    }

    fn send(&mut self, force_listen: bool, picture: Option<&[u8]>) -> Vec<Value> {
        self.units += 1;
        self.bench.encode(LaneRequest::Append(UnitInput {
            audio: Arc::new(vec![1000; 16_000]),
            input_id: self.units.to_string().into(),
            force_listen,
            frame: picture.map(|file| VideoFrame(file.to_vec().into())),
        }))
    }

    /// The model says a word in so many milliseconds.
    fn speak(&mut self, response: &str, ms: usize) -> Vec<String> {
        self.bench.receive_all(&[
            json!({"type": "response.output_audio_transcript.delta", "response_id": response, "delta": "Hi"}),
            json!({
                "type": "response.output_audio.delta", "response_id": response, "item_id": format!("item_{response}"),
                "delta": pcm16(24 * ms),
            }),
        ])
    }

    fn pass(&mut self, ms: u64) -> Vec<Value> {
        self.bench.now += Duration::from_millis(ms);
        self.bench.codec.handle_timeout(self.bench.now);
        self.bench.actions()
    }
}

const UNIT_END: &str = "Event(Done { text: None, audio: Samples([]) })";
const LISTEN: &str = "Event(Listen)";

#[test]
fn units_end_at_once_and_a_turn_when_it_was_heard() {
    let mut talk = Talk::new();
    let sent = talk.send(false, Some(&[0xff, 0xd8]));
    assert_eq!(kinds(&sent), ["message user", "input_audio_buffer.append"]);
    assert!(
        (23_800..24_000).contains(&appended(&sent)[0]),
        "the converter keeps some: {:?}",
        appended(&sent)
    );
    assert_eq!(talk.bench.actions(), [UNIT_END]);
    assert_eq!(talk.speak("r", 3000), ["text Hi", "audio 72000"]);
    assert_eq!(talk.bench.receive(&done("completed", Value::Null)), ["done "]);
    assert_eq!(talk.pass(2999), [Value::Null; 0]);
    assert_eq!(talk.pass(1), [LISTEN]);
    assert_eq!(talk.pass(5000), [Value::Null; 0]);
}

#[test]
fn answer_that_follows_another_ends_its_turn() {
    let mut talk = Talk::new();
    talk.speak("a", 3000);
    assert_eq!(talk.bench.receive(&done("completed", Value::Null)), ["done "]);
    assert_eq!(talk.speak("b", 500), ["Listen", "text Hi", "audio 12000"]);
    let limit = json!({"type": "incomplete", "reason": "max_output_tokens"});
    assert_eq!(
        talk.bench.receive(&done("incomplete", limit)),
        ["Listen"],
        "the session hears that it was cut"
    );
}

#[test]
fn forced_unit_stops_the_response_and_cuts_it_to_what_was_heard() {
    let mut talk = Talk::new();
    talk.speak("r", 3000);
    talk.pass(1200);
    let sent = talk.send(true, None);
    assert_eq!(kinds(&sent), ["response.cancel", "conversation.item.truncate", "input_audio_buffer.append"]);
    assert_eq!((&sent[1]["item_id"], &sent[1]["audio_end_ms"]), (&json!("item_r"), &json!(1200)));
    assert_eq!(talk.bench.actions(), [Value::Null; 0], "the unit ends with the response");
    assert_eq!(talk.speak("r", 100), [""; 0]);
    assert_eq!(talk.bench.receive(&done("cancelled", Value::Null)), ["Listen"]);
    // The next response answers the words of the interruption.
    talk.speak("s", 500);
    assert_eq!(kinds(&talk.send(true, None)), ["input_audio_buffer.append"]);
    assert_eq!(talk.bench.actions(), [LISTEN]);
}

#[test]
fn voice_that_the_client_names_is_asked_for_and_may_be_refused() {
    let refused = json!({"type": "error", "error": {
        "code": "invalid_value", "message": "no such voice", "event_id": "voice"}});
    let named = |sent: &Value| {
        assert_eq!(sent["event_id"], "voice", "{sent}");
        sent["session"]["audio"]["output"]["voice"].clone()
    };
    let voice_name = Some("ash".to_owned());
    let mut bench = Bench::ready(LanePurpose::Answer, 24_000);
    let spoken = bench.ask(ChatTurn { voice_name: voice_name.clone(), ..turn(Vec::new()) });
    assert_eq!((kinds(&spoken).len(), named(&spoken[0])), (3, json!("ash")));
    let events = bench.receive(&refused);
    assert!(events[0].starts_with("Unknown(") && events[0].contains("no such voice"), "{events:?}");
    assert_eq!(bench.receive(&done("completed", Value::Null)), ["done "], "the answer goes on");
    let written = bench.ask(ChatTurn { voice_name: voice_name.clone(), speaks: false, ..turn(Vec::new()) });
    assert_eq!(kinds(&written), ["session.update", "response.create"]);
    let mut bench = Bench::ready(LanePurpose::Speak, 24_000);
    let mut request = read_aloud();
    if let LaneRequest::Speak { voice_name: name, .. } = &mut request {
        name.clone_from(&voice_name);
    }
    let sent = bench.encode(request);
    assert_eq!((kinds(&sent).len(), named(&sent[0])), (2, json!("ash")));
    let mut bench = Bench::dialled(LanePurpose::Converse, Mode::Audio);
    let init = ConversationInit { prompt: String::new(), config: "{}".into(), voice: None, voice_name };
    let sent = bench.encode(LaneRequest::InitConversation(Box::new(init)));
    assert_eq!((kinds(&sent).len(), named(&sent[1])), (2, json!("ash")));
    let [created, updated] = ["session.created", "session.updated"].map(|kind| session(kind, 24_000));
    assert_eq!(bench.receive_all(&[created, updated.clone(), refused, updated])[0], "Ready s");
}

#[test]
fn server_that_owes_output_for_too_long_is_stuck() {
    let committed = json!({"type": "input_audio_buffer.committed", "item_id": "i"});
    let speech = json!({"type": "input_audio_buffer.speech_started", "item_id": "j"});
    let created = json!({"type": "response.created", "response": {"id": "r", "status": "in_progress"}});
    let words = json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": "Hi"});
    let [completed, cancelled] = ["completed", "cancelled"].map(|status| done(status, Value::Null));
    // The messages come 2 s apart.
    for (messages, stuck_after_s) in [
        (vec![], None),
        (vec![&committed], Some(15)),
        (vec![&committed, &created], Some(13)),
        (vec![&committed, &speech], None),
        (vec![&committed, &speech, &committed], Some(13)),
        (vec![&committed, &speech, &committed, &speech, &committed], Some(11)),
        (vec![&committed, &created, &speech, &cancelled, &committed], Some(15)),
        (vec![&committed, &created, &words], Some(30)),
        (vec![&committed, &created, &words, &completed], None),
        (vec![&committed, &created, &words, &completed, &committed], Some(15)),
    ] {
        let mut talk = Talk::new();
        for message in &messages {
            talk.pass(2000);
            talk.bench.receive(message);
        }
        talk.bench.actions();
        assert_eq!(talk.pass(stuck_after_s.unwrap_or(100) * 1000 - 1), [Value::Null; 0], "{messages:?}");
        let ended = talk.pass(1);
        if stuck_after_s.is_none() {
            assert_eq!((ended, talk.bench.codec.deadline()), (Vec::new(), None), "{messages:?}");
            continue;
        }
        let told = ended[0].as_str().unwrap();
        assert!(told.contains("Closed") && told.contains("no output for"), "{messages:?}: {ended:?}");
        assert_eq!(ended[1], json!("Close(1000, \"\")"), "{ended:?}");
    }
    let mut question = Bench::ready(LanePurpose::Answer, 24_000);
    question.ask(turn(Vec::new()));
    assert_eq!(question.receive_all(&[committed, speech]), [""; 0]);
    assert_eq!(question.codec.deadline(), None, "the session waits itself");
}

#[test]
fn answer_that_was_made_but_not_heard_is_cut() {
    let mut talk = Talk::new();
    talk.speak("r", 3000);
    talk.bench.receive(&done("completed", Value::Null));
    talk.pass(500);
    assert_eq!(kinds(&talk.send(true, None)), ["conversation.item.truncate", "input_audio_buffer.append"]);
    assert_eq!(talk.bench.actions(), [LISTEN]);
    assert_eq!(kinds(&talk.send(false, None)), ["input_audio_buffer.append"]);
    let error = json!({"code": "response_cancel_not_active", "message": "no"});
    talk.bench.actions();
    let events = talk.bench.receive(&json!({"type": "error", "error": error}));
    assert!(events[0].starts_with("Unknown("), "{events:?}");
}

#[test]
fn server_that_names_neither_model_nor_format_gets_a_questions_audio_as_an_item() {
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    bench.encode(LaneRequest::Init(None));
    let audio = json!({"input": {"format": null}, "output": {"format": null}});
    bench.receive(&json!({"type": "session.created", "session": {"id": "s", "model": null, "audio": audio}}));
    assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
    let audio = EntryPart::Audio(Arc::new(vec![0; 16_000]));
    let sent = bench.ask(turn(vec![ChatMessage { role: Role::User, parts: vec![audio] }]));
    let kinds: Vec<_> = sent.iter().map(|message| message["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["session.update", "conversation.item.create", "response.create"]);
    let part = &sent[1]["item"]["content"][0];
    assert_eq!((&part["type"], part["audio"].as_str().unwrap().len()), (&json!("input_audio"), 64_000));
}
