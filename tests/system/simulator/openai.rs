//! OpenAI's Realtime protocol in virtual time, as OpenAI and as a turn deployment of vLLM-Omni speak it.

use voxbridge::simulator::RealtimeRefusal;
use voxbridge_test_support::cases::rows;

use super::*;

const BOTH: [RealtimeServer; 2] = [RealtimeServer::Openai, RealtimeServer::VllmOmni];

fn server(kind: RealtimeServer, faults: &[&str]) -> TestGateway {
    let faults = faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect();
    TestGateway::new(SimulatorConfig {
        dialect: SimDialect::OpenaiRealtime(kind),
        workers: 2,
        faults,
        ..SimulatorConfig::default()
    })
}

/// Opens a session whose turns the client ends.
fn open(kind: RealtimeServer, faults: &[&str]) -> (TestGateway, ConnId) {
    let mut sim = server(kind, faults);
    let conn = connect(&mut sim, SimMode::Video);
    update(&mut sim, conn, json!({"audio": {"input": {"turn_detection": null}}}));
    (sim, conn)
}

fn connect(sim: &mut TestGateway, mode: SimMode) -> ConnId {
    let conn = sim.connect_with_mode(mode);
    sim.advance(Duration::from_millis(40));
    assert_eq!(sim.last_event(conn)["type"], "session.created");
    conn
}

/// Changes the session; returns the answer.
fn update(sim: &mut TestGateway, conn: ConnId, mut session: Value) -> Value {
    if session.get("type").is_none() {
        session["type"] = "realtime".into();
    }
    sim.send(conn, &json!({"type": "session.update", "session": session}));
    sim.last_event(conn)
}

fn pcm(ms: usize, level: i16) -> String {
    STANDARD.encode((0..ms * 24).flat_map(|_| level.to_le_bytes()).collect::<Vec<u8>>())
}

fn append(sim: &mut TestGateway, conn: ConnId, ms: usize, level: i16) {
    sim.send(conn, &json!({"type": "input_audio_buffer.append", "audio": pcm(ms, level)}));
}

fn say(sim: &mut TestGateway, conn: ConnId, text: &str) {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    sim.send(conn, &json!({"type": "conversation.item.create", "item": item}));
}

/// Asks for a response and waits for its end.
fn respond(sim: &mut TestGateway, conn: ConnId, response: Value) -> Vec<Value> {
    let before = sim.events_of(conn).len();
    sim.send(conn, &json!({"type": "response.create", "response": response}));
    sim.advance(Duration::from_secs(60));
    sim.events_of(conn).split_off(before)
}

fn types(events: &[Value]) -> Vec<&str> {
    let names = events.iter().map(|event| event["type"].as_str().unwrap());
    let mut names: Vec<&str> = names.collect();
    names.dedup();
    names
}

fn deltas(events: &[Value], kind: &str) -> String {
    let deltas = events.iter().filter(|event| event["type"] == kind);
    deltas.map(|event| event["delta"].as_str().unwrap()).collect()
}

fn find<'e>(events: &'e [Value], kind: &str) -> &'e Value {
    events
        .iter()
        .rfind(|event| event["type"] == kind)
        .unwrap_or_else(|| panic!("no {kind}: {:?}", types(events)))
}

#[test]
fn session_says_what_it_grants() {
    for kind in BOTH {
        let mut sim = server(kind, &[]);
        let conn = connect(&mut sim, SimMode::Video);
        let created = sim.last_event(conn)["session"].clone();
        assert_eq!(created["object"], "realtime.session");
        assert_eq!(created["audio"]["input"]["format"], json!({"type": "audio/pcm", "rate": 24000}));
        let finds_turns = created["audio"]["input"]["turn_detection"].is_object();
        assert_eq!(finds_turns, kind == RealtimeServer::Openai, "{kind:?}");
        let asked =
            json!({"instructions": "Be brief.", "max_output_tokens": 7, "output_modalities": ["text"]});
        let updated = update(&mut sim, conn, asked);
        assert_eq!(updated["type"], "session.updated", "{updated}");
        assert_eq!(updated["session"]["instructions"], "Be brief.");
        assert_eq!(updated["session"]["id"], created["id"]);
        assert_eq!(updated["session"]["audio"], created["audio"], "absent members stay");
    }
}

/// An event with a wrong member, OpenAI's code, the member's place, and the package's code; `-` where it takes the event.
const WRONG_MEMBERS: &str = r#"
{"type": "session.update", "session": {}} | missing_required_parameter | session.type | invalid_event
{"type": "session.update", "session": {"type": "other"}} | invalid_value | session.type | invalid_event
{"type": "session.update", "session": {"type": "realtime", "tools": "x"}} | invalid_type | session.tools | invalid_event
{"type": "session.update", "session": {"type": "realtime", "temperature": 0.8}} | unknown_parameter | session.temperature | -
{"type": "session.update", "session": {"type": "realtime", "output_modalities": ["audio", "text"]}} | invalid_value | session.output_modalities | -
{"type": "session.update", "session": {"type": "realtime", "audio": {"input": {"format": {"type": "audio/pcm", "rate": 16000}}}}} | integer_below_min_value | session.audio.input.format.rate | invalid_event
{"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"format": {"type": "audio/pcmu"}}}}} | invalid_value | session.audio.output.format | unsupported_audio_format
{"type": "session.update", "session": {"type": "realtime", "audio": {"output": {"voice": "af_heart"}}}} | invalid_value | session.audio.output.voice | -
{"type": "session.update", "session": {"type": "realtime", "max_output_tokens": 5000}} | integer_above_max_value | session.max_output_tokens | -
{"type": "speak"} | invalid_value | type | invalid_event
{"type": "input_audio_buffer.append", "audio": "AAAA"} | invalid_value | audio | invalid_request_error
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "text", "text": "x"}]}} | invalid_value | item.content[0].type | invalid_event
{"type": "conversation.item.create", "item": {"type": "message", "role": "assistant", "content": [{"type": "output_audio", "audio": "AAAA"}]}} | invalid_value | item.content[0].type | invalid_request_error
{"type": "conversation.item.create", "item": {"type": "function_call", "name": "x"}} | missing_required_parameter | item.arguments | invalid_event
"#;

#[test]
fn wrong_members_of_an_event_are_refused_with_their_place() {
    for [event, code, param, package_code] in rows(WRONG_MEMBERS) {
        let mut event: Value = serde_json::from_str(event).unwrap();
        event["event_id"] = "e".into();
        for kind in BOTH {
            let mut sim = server(kind, &[]);
            let conn = connect(&mut sim, SimMode::Video);
            sim.send(conn, &event);
            let answer = sim.last_event(conn);
            let (code, param, event_id) = match kind {
                RealtimeServer::Openai => (code, json!(param), json!("e")),
                RealtimeServer::VllmOmni if package_code == "invalid_event" => {
                    (package_code, Value::Null, Value::Null)
                }
                RealtimeServer::VllmOmni => (package_code, answer["error"]["param"].clone(), json!("e")),
            };
            if code == "-" {
                assert_ne!(answer["type"], "error", "{event}: {answer}");
                continue;
            }
            let error = &answer["error"];
            assert_eq!(
                (&error["code"], &error["param"], &error["event_id"]),
                (&json!(code), &param, &event_id),
                "{event}: {answer}"
            );
            assert_eq!(error["type"], "invalid_request_error");
        }
    }
}

#[test]
fn package_answers_what_it_cannot_use_as_the_real_one_does() {
    let (mut sim, conn) = open(RealtimeServer::VllmOmni, &[]);
    let updated = update(&mut sim, conn, json!({"audio": {"output": {"voice": "alloy", "speed": 1.2}}}));
    assert_eq!(updated["session"]["audio"]["output"].get("speed"), None, "{updated}");
    let item = |part: Value| {
        let item = json!({"type": "message", "role": "assistant", "content": [part]});
        json!({"type": "conversation.item.create", "event_id": "e", "item": item}).to_string()
    };
    for (event, code, message, names_event) in [
        ("{".to_owned(), "invalid_event", "Invalid or unrecognized client event", false),
        (
            json!({"type": "output_audio_buffer.clear", "event_id": "e"}).to_string(),
            "invalid_event",
            "Unknown event type: output_audio_buffer.clear",
            true,
        ),
        (
            item(json!({"type": "output_audio", "audio": "AAAA"})),
            "invalid_request_error",
            "Client-provided assistant audio is not supported",
            true,
        ),
    ] {
        sim.input(SimInput::Text(conn, &event));
        let error = sim.last_event(conn)["error"].clone();
        assert_eq!((&error["code"], &error["message"]), (&json!(code), &json!(message)), "{event}");
        assert_eq!(error.get("event_id").is_some(), names_event, "{event}");
    }
    let words = item(json!({"type": "output_audio", "transcript": "Hello."}));
    sim.input(SimInput::Text(conn, &words));
    assert_eq!(sim.last_event(conn)["type"], "conversation.item.done");
}

#[test]
fn spoken_answer_comes_in_the_order_of_each_server() {
    let openai = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "rate_limits.updated",
        "response.output_item.added",
        "conversation.item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.done",
        "response.done",
        "rate_limits.updated",
    ];
    let package = [
        "input_audio_buffer.committed",
        "conversation.item.added",
        "conversation.item.done",
        "response.created",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_audio_transcript.delta",
        "response.output_audio.delta",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
        "conversation.item.added",
        "conversation.item.done",
        "response.done",
    ];
    for (kind, order) in [(RealtimeServer::Openai, &openai[..]), (RealtimeServer::VllmOmni, &package)] {
        let (mut sim, conn) = open(kind, &[]);
        let before = sim.events_of(conn).len();
        append(&mut sim, conn, 1500, 8000);
        sim.send(conn, &json!({"type": "input_audio_buffer.commit"}));
        sim.send(conn, &json!({"type": "response.create"}));
        sim.advance(Duration::from_secs(60));
        let events = sim.events_of(conn).split_off(before);
        assert_eq!(types(&events), order, "{kind:?}");
        let words = "simulated transcript: 1.50 s of speech";
        assert_eq!(deltas(&events, "response.output_audio_transcript.delta"), words);
        let bytes: usize = events
            .iter()
            .filter(|event| event["type"] == "response.output_audio.delta")
            .map(|event| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len())
            .sum();
        assert_eq!(bytes, 2 * (2_880 + 38 * (24_000 / 14)), "every sample of the voice");
        let done = &find(&events, "response.done")["response"];
        assert_eq!(done["status"], "completed");
        let content = json!([{"type": "output_audio", "transcript": words}]);
        assert_eq!(done["output"][0]["content"], content);
        assert!(done["usage"]["total_tokens"].as_u64().unwrap() > 0);
        let ids: std::collections::HashSet<_> =
            events.iter().map(|event| event["event_id"].to_string()).collect();
        assert_eq!(ids.len(), events.len(), "ids are unique");
    }
}

#[test]
fn answer_in_text_has_no_audio_and_ends_at_its_limit() {
    for kind in BOTH {
        let (mut sim, conn) = open(kind, &[]);
        update(&mut sim, conn, json!({"output_modalities": ["text"]}));
        say(&mut sim, conn, "Hello there.");
        let events = respond(&mut sim, conn, json!({}));
        assert_eq!(deltas(&events, "response.output_text.delta"), "simulated answer to: Hello there.");
        assert_eq!(find(&events, "response.output_text.done")["text"], "simulated answer to: Hello there.");
        say(&mut sim, conn, "Hello again.");
        let cut = respond(&mut sim, conn, json!({"max_output_tokens": 2}));
        let done = &find(&cut, "response.done")["response"];
        assert_eq!(
            (&done["status"], &done["status_details"]["reason"]),
            (&json!("incomplete"), &json!("max_output_tokens"))
        );
        assert_eq!(deltas(&cut, "response.output_text.delta"), "simulate");
    }
}

#[test]
fn tool_is_called_natively_and_its_result_is_said() {
    let tool = json!({"type": "function", "name": "get_weather", "description": "The weather.", "parameters": {
        "type": "object", "required": ["city"], "properties": {"city": {"type": "string"}}}});
    for kind in BOTH {
        let (mut sim, conn) = open(kind, &[]);
        update(&mut sim, conn, json!({"tools": [tool], "tool_choice": "auto"}));
        say(&mut sim, conn, "How is the weather in Rome?");
        let events = respond(&mut sim, conn, json!({}));
        let call = find(&events, "response.function_call_arguments.done");
        assert_has(call, json!({"/name": "get_weather", "/arguments": r#"{"city":"Rome"}"#}));
        assert_eq!(deltas(&events, "response.function_call_arguments.delta"), r#"{"city":"Rome"}"#);
        assert!(!types(&events).contains(&"response.output_audio.delta"), "a call is not spoken");
        let output = &find(&events, "response.done")["response"]["output"];
        assert_eq!((output.as_array().unwrap().len(), &output[0]["type"]), (1, &json!("function_call")));
        let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"});
        sim.send(conn, &json!({"type": "conversation.item.create", "item": result}));
        let answer = respond(&mut sim, conn, json!({"output_modalities": ["text"]}));
        assert_eq!(find(&answer, "response.output_text.done")["text"], "The tool says sunny.");
        say(&mut sim, conn, "How is the weather in Oslo?");
        let without = respond(&mut sim, conn, json!({"tool_choice": "none", "output_modalities": ["text"]}));
        assert!(deltas(&without, "response.output_text.delta").starts_with("simulated answer"));
    }
}

#[test]
fn openai_takes_a_result_only_for_a_call_that_it_knows() {
    let (mut sim, conn) = open(RealtimeServer::Openai, &[]);
    let result = json!({"type": "function_call_output", "call_id": "call_1", "output": "sunny"});
    let create = json!({"type": "conversation.item.create", "item": result});
    sim.send(conn, &create);
    assert_eq!(sim.last_event(conn)["error"]["code"], "invalid_tool_call_id");
    let call =
        json!({"type": "function_call", "call_id": "call_1", "name": "get_weather", "arguments": "{}"});
    sim.send(conn, &json!({"type": "conversation.item.create", "item": call}));
    sim.send(conn, &create);
    assert_eq!(sim.last_event(conn)["type"], "conversation.item.done");
}

#[test]
fn response_out_of_band_leaves_no_item_and_is_refused_by_the_package() {
    let input = json!([{"type": "message", "role": "user", "content": [
        {"type": "input_text", "text": "请朗读以下内容。 Good morning."}]}]);
    let ask = json!({"conversation": "none", "input": input, "metadata": {"purpose": "speak"}});
    let (mut sim, conn) = open(RealtimeServer::Openai, &[]);
    let events = respond(&mut sim, conn, ask.clone());
    assert_eq!(deltas(&events, "response.output_audio_transcript.delta"), "Good morning.");
    assert!(!types(&events).iter().any(|name| name.starts_with("conversation.item")));
    let done = &find(&events, "response.done")["response"];
    assert_eq!((&done["conversation_id"], &done["metadata"]["purpose"]), (&Value::Null, &json!("speak")));
    let (mut sim, conn) = open(RealtimeServer::VllmOmni, &[]);
    let refused = respond(&mut sim, conn, ask);
    assert_eq!(refused[0]["error"]["message"], "Out-of-band responses are not supported");
}

#[test]
fn second_response_is_refused_by_openai_and_replaces_the_first_in_the_package() {
    for kind in BOTH {
        let (mut sim, conn) = open(kind, &[]);
        say(&mut sim, conn, "Hello.");
        sim.send(conn, &json!({"type": "response.create"}));
        sim.advance(Duration::from_millis(200));
        let events = respond(&mut sim, conn, json!({}));
        match kind {
            RealtimeServer::Openai => {
                let error = &find(&events, "error")["error"];
                assert_eq!(error["code"], "conversation_already_has_active_response");
            }
            RealtimeServer::VllmOmni => {
                let done = events.iter().find(|event| event["type"] == "response.done").unwrap();
                assert_eq!(done["response"]["status"], "cancelled");
            }
        }
        assert_eq!(find(&events, "response.done")["response"]["status"], "completed");
    }
}

#[test]
fn cancelled_response_ends_and_its_message_is_cut_where_it_was_heard() {
    for kind in BOTH {
        let (mut sim, conn) = open(kind, &[]);
        say(&mut sim, conn, "Tell me something that takes a while.");
        sim.send(conn, &json!({"type": "response.create"}));
        sim.advance(Duration::from_millis(500));
        sim.send(conn, &json!({"type": "response.cancel"}));
        let events = sim.events_of(conn);
        let done = &find(&events, "response.done")["response"];
        let details = json!({"type": "cancelled", "reason": "client_cancelled"});
        assert_eq!((&done["status"], &done["status_details"]), (&json!("cancelled"), &details));
        let id = done["output"][0]["id"].clone();
        let truncate = |ms: u64| json!({"type": "conversation.item.truncate", "item_id": id, "content_index": 0, "audio_end_ms": ms});
        sim.send(conn, &truncate(60_000));
        assert_eq!(sim.last_event(conn)["type"], "error", "longer than the audio");
        sim.send(conn, &truncate(700));
        assert_eq!(sim.last_event(conn)["type"], "conversation.item.truncated");
        sim.send(conn, &json!({"type": "response.cancel", "event_id": "late"}));
        let error = sim.last_event(conn)["error"].clone();
        assert_has(&error, json!({"/code": "response_cancel_not_active", "/event_id": "late"}));
    }
}

#[test]
fn server_vad_finds_the_speech_answers_it_and_yields_to_the_user() {
    for kind in BOTH {
        let mut sim = server(kind, &[]);
        let conn = connect(&mut sim, SimMode::Video);
        let detection = json!({"type": "server_vad", "silence_duration_ms": 400});
        let updated = update(&mut sim, conn, json!({"audio": {"input": {"turn_detection": detection}}}));
        let shown = &updated["session"]["audio"]["input"]["turn_detection"];
        assert_eq!(shown["silence_duration_ms"], 400);
        let before = sim.events_of(conn).len();
        for (ms, level) in [(1000, 0), (1000, 8000), (500, 0)] {
            append(&mut sim, conn, ms, level);
        }
        sim.advance(Duration::from_millis(300));
        let events = sim.events_of(conn).split_off(before);
        let started = find(&events, "input_audio_buffer.speech_started");
        let stopped = find(&events, "input_audio_buffer.speech_stopped");
        assert_eq!((&started["audio_start_ms"], &stopped["audio_end_ms"]), (&json!(700), &json!(2400)));
        let committed = find(&events, "input_audio_buffer.committed");
        assert_eq!((&committed["item_id"], &started["item_id"]), (&stopped["item_id"], &stopped["item_id"]));
        assert!(types(&events).contains(&"response.created"));
        append(&mut sim, conn, 300, 8000);
        let done = find(&sim.events_of(conn), "response.done")["response"].clone();
        let reason = if kind == RealtimeServer::Openai { "turn_detected" } else { "client_cancelled" };
        assert_eq!(done["status_details"]["reason"], reason);
    }
}

#[test]
fn semantic_vad_is_refused_by_the_package() {
    for kind in BOTH {
        let mut sim = server(kind, &[]);
        let conn = connect(&mut sim, SimMode::Video);
        let detection = json!({"type": "semantic_vad", "eagerness": "high"});
        let answer = update(&mut sim, conn, json!({"audio": {"input": {"turn_detection": detection}}}));
        match kind {
            RealtimeServer::Openai => assert_eq!(answer["type"], "session.updated"),
            RealtimeServer::VllmOmni => assert_eq!(answer["error"]["code"], "unsupported_turn_detection"),
        }
    }
}

#[test]
fn words_of_the_user_come_where_the_session_asks_for_them() {
    for mode in [SimMode::Video, SimMode::Transcription] {
        let mut sim = server(RealtimeServer::Openai, &[]);
        let conn = connect(&mut sim, mode);
        let kind = if mode == SimMode::Transcription { "transcription" } else { "realtime" };
        let input = json!({"transcription": {"model": "gpt-4o-transcribe"}, "turn_detection": null});
        let updated = update(&mut sim, conn, json!({"type": kind, "audio": {"input": input}}));
        assert_eq!(updated["type"], "session.updated", "{updated}");
        append(&mut sim, conn, 2000, 8000);
        sim.send(conn, &json!({"type": "input_audio_buffer.commit"}));
        sim.advance(Duration::from_secs(5));
        let events = sim.events_of(conn);
        let completed = find(&events, "conversation.item.input_audio_transcription.completed");
        let words = "simulated transcript: 2.00 s of speech";
        assert_eq!(completed["transcript"], words);
        assert_eq!(deltas(&events, "conversation.item.input_audio_transcription.delta"), words);
        assert_eq!(completed["usage"], json!({"type": "duration", "seconds": 2.0}));
        let refused = respond(&mut sim, conn, json!({})).first().cloned().unwrap_or_default();
        assert_eq!(refused["type"] == "error", mode == SimMode::Transcription, "{refused}");
    }
}

#[test]
fn kind_of_a_session_stays_at_openai_and_the_package_transcribes_nothing() {
    let mut sim = server(RealtimeServer::Openai, &[]);
    let conn = connect(&mut sim, SimMode::Video);
    let answer = update(&mut sim, conn, json!({"type": "transcription"}));
    let words = "Passing a transcription session update event to a realtime session is not allowed.";
    assert_eq!(answer["error"]["message"], words);
    let (mut sim, conn) = open(RealtimeServer::VllmOmni, &[]);
    let input = json!({"transcription": {"model": "gpt-4o-transcribe"}});
    let answer = update(&mut sim, conn, json!({"audio": {"input": input}}));
    assert_eq!(
        (&answer["type"], &answer["session"]["audio"]["input"]["transcription"]),
        (&json!("session.updated"), &Value::Null)
    );
    let answer = update(&mut sim, conn, json!({"type": "transcription", "audio": {"input": input}}));
    assert_eq!(answer["error"]["type"], "server_error");
}

#[test]
fn too_little_audio_is_not_committed() {
    let (mut sim, conn) = open(RealtimeServer::Openai, &[]);
    append(&mut sim, conn, 99, 8000);
    sim.send(conn, &json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(sim.last_event(conn)["error"]["code"], "input_audio_buffer_commit_empty");
    append(&mut sim, conn, 1, 8000);
    sim.send(conn, &json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(sim.last_event(conn)["type"], "conversation.item.done");
    append(&mut sim, conn, 1000, 8000);
    sim.send(conn, &json!({"type": "input_audio_buffer.clear"}));
    assert_eq!(sim.last_event(conn)["type"], "input_audio_buffer.cleared");
    sim.send(conn, &json!({"type": "input_audio_buffer.commit"}));
    assert_eq!(sim.last_event(conn)["type"], "error");
}

#[test]
fn items_are_inserted_read_and_deleted_by_their_ids() {
    for kind in BOTH {
        let (mut sim, conn) = open(kind, &[]);
        let create = |id: &str, previous: Value| {
            json!({
                "type": "conversation.item.create", "previous_item_id": previous,
                "item": {"id": id, "type": "message", "role": "user", "content": [{"type": "input_text", "text": id}]},
            })
        };
        sim.send(conn, &create("one", Value::Null));
        sim.send(conn, &create("three", Value::Null));
        sim.send(conn, &create("two", json!("one")));
        assert_eq!(sim.last_event(conn)["previous_item_id"], "one", "{kind:?}");
        sim.send(conn, &create("zero", json!("root")));
        assert_eq!(sim.last_event(conn)["previous_item_id"], Value::Null);
        for wrong in [create("one", Value::Null), create("four", json!("none"))] {
            sim.send(conn, &wrong);
            assert_eq!(sim.last_event(conn)["type"], "error", "{wrong}");
        }
        let of = |verb: &str| json!({"type": format!("conversation.item.{verb}"), "item_id": "two"});
        sim.send(conn, &of("retrieve"));
        assert_eq!(sim.last_event(conn)["item"]["content"][0]["text"], "two");
        sim.send(conn, &of("delete"));
        assert_eq!(sim.last_event(conn)["type"], "conversation.item.deleted");
        for verb in ["retrieve", "delete"] {
            sim.send(conn, &of(verb));
            assert_eq!(sim.last_event(conn)["type"], "error");
        }
    }
}

#[test]
fn model_of_the_query_is_checked() {
    use RealtimeServer::{Openai, VllmOmni};
    let (none, unknown) =
        (SimMode::Refused(RealtimeRefusal::NoModel), SimMode::Refused(RealtimeRefusal::UnknownModel));
    for (kind, query, expected) in [
        (Openai, None, none),
        (Openai, Some("model=gpt-realtime"), SimMode::Video),
        (Openai, Some("model=gpt-4o-mini-realtime-preview"), SimMode::Video),
        (Openai, Some("model=openbmb/MiniCPM-o-4_5"), unknown),
        (Openai, Some("intent=transcription"), SimMode::Transcription),
        (VllmOmni, None, SimMode::Video),
        (VllmOmni, Some("model=openbmb%2FMiniCPM-o-4_5"), SimMode::Video),
        (VllmOmni, Some("model=gpt-realtime"), unknown),
    ] {
        assert_eq!(SimDialect::OpenaiRealtime(kind).parse_mode(query), Ok(expected), "{kind:?} {query:?}");
    }
    for (kind, code, close) in [(Openai, "model_not_found", 4000), (VllmOmni, "unsupported_model", 1008)] {
        let mut sim = server(kind, &[]);
        let conn = sim.connect_with_mode(unknown);
        assert_eq!(sim.last_event(conn)["error"]["code"], code);
        assert!(matches!(sim.end_of(conn), Some(ServerOutput::Close(given, _)) if given == close));
    }
}

#[test]
fn full_server_refuses_the_handshake_and_a_session_expires() {
    for (kind, status, code) in [(RealtimeServer::Openai, 429, 1001), (RealtimeServer::VllmOmni, 503, 1012)] {
        let mut sim = server(kind, &["timeout=5"]);
        let first = connect(&mut sim, SimMode::Video);
        connect(&mut sim, SimMode::Video);
        let third = sim.connect_with_mode(SimMode::Video);
        assert_eq!(sim.end_of(third), Some(ServerOutput::Refuse(status)));
        sim.advance(Duration::from_secs(5));
        assert!(matches!(sim.end_of(first), Some(ServerOutput::Close(given, _)) if given == code));
        if kind == RealtimeServer::Openai {
            assert_eq!(sim.last_event(first)["error"]["code"], "session_expired");
        }
        connect(&mut sim, SimMode::Video);
    }
}

#[test]
fn each_fault_shows_as_on_the_wire() {
    for kind in BOTH {
        let mut stuck = server(kind, &["stuck-queue"]);
        let conn = stuck.connect_with_mode(SimMode::Video);
        stuck.advance(Duration::from_secs(60));
        assert_eq!(stuck.events_of(conn), Vec::<Value>::new(), "{kind:?}");

        let mut late = server(kind, &["slow-init=3"]);
        let conn = late.connect_with_mode(SimMode::Video);
        late.advance(Duration::from_secs(3));
        assert_eq!(late.events_of(conn).len(), 0);
        late.advance(Duration::from_millis(40));
        assert_eq!(late.last_event(conn)["type"], "session.created");

        let answered = |fault: &str| {
            let (mut sim, conn) = open(kind, &[fault]);
            say(&mut sim, conn, "Hello, how are you?");
            let events = respond(&mut sim, conn, json!({}));
            (events, sim.end_of(conn))
        };
        assert_eq!(answered("never-answers").0, Vec::<Value>::new());
        let (dying, _) = answered("die-mid-answer=2");
        assert_eq!(find(&dying, "response.done")["response"]["status"], "failed");
        assert_eq!(answered("drop-mid-answer=2").1, Some(ServerOutput::Abort));
        let (refusing, _) = answered("403-after-queue");
        assert_eq!(find(&refusing, "response.done")["response"]["status"], "failed");
        let (refused, _) = answered("inference-fails");
        assert_eq!(refused[0]["error"]["type"], "server_error");
        let (silent, _) = answered("no-audio");
        assert!(!types(&silent).contains(&"response.output_audio.delta"));

        let (mut sim, conn) = open(kind, &["slow-steps=2"]);
        say(&mut sim, conn, "Hello, how are you?");
        sim.send(conn, &json!({"type": "response.create"}));
        sim.advance(Duration::from_millis(3000));
        let events = sim.events_of(conn);
        assert!(types(&events).contains(&"response.output_audio_transcript.delta"), "{kind:?}");
        assert!(!types(&events).contains(&"response.done"));

        let (mut sim, conn) = open(kind, &["input-backpressure"]);
        append(&mut sim, conn, 100, 0);
        assert_eq!(sim.last_event(conn)["type"], "error");
    }
}
