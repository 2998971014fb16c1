//! Questions: what is sent for them, answers in both spellings, and errors.

use super::*;

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
fn lane_that_is_opened_late_is_ready_too() {
    let mut bench = Bench::dialled(LanePurpose::Answer, Mode::Chat);
    assert_eq!(bench.receive(&session("session.created", 24_000)), [""; 0]);
    assert_eq!(kinds(&bench.encode(LaneRequest::Init(None))), ["session.update"]);
    assert_eq!(bench.receive(&session("session.updated", 24_000)), ["Ready s"]);
    assert_eq!(bench.receive(&session("session.updated", 24_000)), [""; 0], "once");
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
