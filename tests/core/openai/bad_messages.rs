//! Bad input: OpenAI's own error codes, the client's name for the message, and a session that goes on.

use super::*;

/// A message, OpenAI's code of the error, and words of it.
const BAD_MESSAGES: &str = r#"
{ | invalid_json | not JSON
[] | invalid_json | object
{"event_id": "mine"} | missing_required_parameter | 'type'
{"type": "no.such", "event_id": "mine"} | invalid_value | no.such
{"type": "input_audio_buffer.append", "event_id": "mine"} | invalid_value | audio
{"type": "input_audio_buffer.append", "event_id": "mine", "audio": 5} | invalid_value | audio
{"type": "input_audio_buffer.append", "event_id": "mine", "audio": "????"} | invalid_value | base64
{"type": "session.update", "event_id": "mine"} | invalid_value | 'session'
{"type": "session.update", "event_id": "mine", "session": 7} | invalid_value | an object
{"type": "session.update", "event_id": "mine", "session": {"type": "other"}} | invalid_value | session.type
{"type": "session.update", "event_id": "mine", "session": {"instructions": 7}} | invalid_value | a number
{"type": "session.update", "event_id": "mine", "session": {"audio": {"input": {"format": {"type": "opus"}}}}} | invalid_value | session.audio.input.format
{"type": "session.update", "event_id": "mine", "session": {"audio": {"input": {"turn_detection": {"type": "x"}}}}} | invalid_value | turn_detection.type
{"type": "conversation.item.create", "event_id": "mine", "item": {"id": "one", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}} | item_create_duplicate_item_id | 'one'
{"type": "conversation.item.create", "event_id": "mine", "item": {"type": "message", "role": "x"}} | invalid_value | role
{"type": "conversation.item.create", "event_id": "mine", "item": {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "https://example.com/a.jpg"}]}} | invalid_value | data URL
{"type": "conversation.item.create", "event_id": "mine", "previous_item_id": "none", "item": {"type": "message", "role": "user", "content": []}} | invalid_item_id | 'none'
# Clients know these codes; several end at any other.
{"type": "conversation.item.retrieve", "event_id": "mine", "item_id": "none"} | item_retrieve_invalid_item_id | 'none'
{"type": "conversation.item.delete", "event_id": "mine", "item_id": "none"} | item_delete_invalid_item_id | 'none'
{"type": "conversation.item.truncate", "event_id": "mine", "item_id": "none", "audio_end_ms": 1} | item_truncate_invalid_item_id | 'none'
{"type": "conversation.item.truncate", "event_id": "mine", "item_id": "one"} | invalid_value | audio_end_ms
{"type": "response.create", "event_id": "mine", "response": []} | invalid_value | an array
{"type": "response.cancel", "event_id": "mine"} | response_cancel_not_active | no active response
{"type": "input_audio_buffer.commit", "event_id": "mine"} | input_audio_buffer_commit_empty | no speech
"#;

#[test]
fn bad_messages_get_openais_errors_and_the_session_goes_on() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let content = json!([{"type": "input_text", "text": "hi"}]);
    let item = json!({"id": "one", "type": "message", "role": "user", "content": content});
    client.send(&json!({"type": "conversation.item.create", "item": item}));
    for [text, code, words] in rows(BAD_MESSAGES) {
        let before = client.of_type("error").len();
        client.harness.send_text(text);
        client.take_events();
        let errors = client.of_type("error");
        assert_eq!(errors.len(), before + 1, "{text}");
        let error = &errors[before]["error"];
        assert_eq!(error["code"], code, "{text}: {error}");
        assert_eq!(error["type"], "invalid_request_error", "{text}");
        assert!(error["message"].as_str().unwrap().contains(words), "{text}: {error}");
        if text.contains("mine") {
            assert_eq!(error["event_id"], "mine", "{text}");
        }
    }
    client.check();
    client.say_question();
    assert_eq!(client.wait_for("response.done")["response"]["status"], "completed");
}

/// A message, and the field of the error.
const WRONG_FIELDS: &str = r#"
{"no": "type"} | type
{"type": "no.such"} | type
{"type": "input_audio_buffer.append"} | audio
{"type": "input_audio_buffer.append", "audio": 5} | audio
{"type": "input_audio_buffer.append", "audio": "????"} | audio
{"type": "session.update"} | session
{"type": "session.update", "session": 7} | session
{"type": "session.update", "session": {"type": "other"}} | session.type
{"type": "session.update", "session": {"instructions": 7}} | session.instructions
{"type": "session.update", "session": {"output_modalities": ["smell"]}} | session.output_modalities
{"type": "session.update", "session": {"audio": {"input": {"format": {"type": "opus"}}}}} | session.audio.input.format
{"type": "session.update", "session": {"audio": {"output": {"voice": 7}}}} | session.audio.output.voice
{"type": "session.update", "session": {"turn_detection": {"type": "x"}}} | session.turn_detection.type
{"type": "session.update", "session": {"input_audio_transcription": {"model": 1}}} | session.input_audio_transcription.model
{"type": "conversation.item.create"} | item
{"type": "conversation.item.create", "item": {"id": "one", "type": "message", "role": "user", "content": []}} | item.id
{"type": "conversation.item.create", "item": {"id": 5, "type": "message", "role": "user", "content": []}} | item.id
{"type": "conversation.item.create", "item": {"type": 1}} | item.type
{"type": "conversation.item.create", "item": {"type": "message", "role": "x"}} | item.role
{"type": "conversation.item.create", "item": {"type": "message", "role": "user"}} | item.content
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [7]}} | item.content[0]
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "smell"}]}} | item.content[0].type
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": 7}]}} | item.content[0].text
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_audio", "audio": "?"}]}} | item.content[0].audio
{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "http://a"}]}} | item.content[0].image_url
{"type": "conversation.item.create", "previous_item_id": "none", "item": {}} | previous_item_id
{"type": "conversation.item.retrieve"} | item_id
{"type": "conversation.item.retrieve", "item_id": "none"} | item_id
{"type": "conversation.item.delete", "item_id": "none"} | item_id
{"type": "conversation.item.truncate", "item_id": "none", "audio_end_ms": 1} | item_id
{"type": "conversation.item.truncate", "item_id": "one"} | audio_end_ms
{"type": "response.create", "response": []} | response
{"type": "response.create", "response": {"instructions": 7}} | response.instructions
{"type": "response.create", "response": {"output_modalities": 7}} | response.output_modalities
{"type": "response.create", "response": {"metadata": 7}} | response.metadata
{"type": "response.create", "response": {"input": 7}} | response.input
{"type": "response.create", "response": {"input": [7]}} | response.input[0]
{"type": "response.create", "response": {"input": [{"role": "x"}]}} | response.input[0].role
"#;

#[test]
fn errors_name_the_wrong_field() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let item = json!({"id": "one", "type": "message", "role": "user", "content": []});
    client.send(&json!({"type": "conversation.item.create", "item": item}));
    for [message, param] in rows(WRONG_FIELDS) {
        let message: Value = serde_json::from_str(message).unwrap();
        let before = client.of_type("error").len();
        client.send(&message);
        let errors = client.of_type("error");
        assert_eq!(errors.len(), before + 1, "{message}");
        assert_eq!(errors[before]["error"]["param"], param, "{message}: {}", errors[before]);
    }
}

#[test]
fn commit_without_speech_is_an_error_under_voice_activity() {
    for silence_ms in [0, 50, 300] {
        let mut client = Realtime::connect("model=gpt-realtime");
        client.say_silence(silence_ms);
        client.send(&json!({"type": "input_audio_buffer.commit", "event_id": "empty"}));
        let error = client.wait_for("error")["error"].clone();
        assert_eq!(error["code"], "input_audio_buffer_commit_empty", "{silence_ms} ms");
        assert_eq!(error["event_id"], "empty", "{silence_ms} ms");
        assert!(client.of_type("input_audio_buffer.committed").is_empty());
    }
}

#[test]
fn second_commit_of_the_same_speech_is_an_error() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.say(&speech());
    for _ in 0..2 {
        client.send(&json!({"type": "input_audio_buffer.commit"}));
    }
    assert_eq!(client.of_type("input_audio_buffer.committed").len(), 1);
    assert_eq!(client.of_type("error")[0]["error"]["code"], "input_audio_buffer_commit_empty");
    client.check();
}

#[test]
fn second_response_while_one_is_active_is_an_error_of_its_own() {
    let mut client = Realtime::connect("model=gpt-realtime");
    client.send(&json!({"type": "response.create"}));
    client.send(&json!({"type": "response.create", "event_id": "second"}));
    let error = client.of_type("error")[0]["error"].clone();
    assert_eq!(error["code"], "conversation_already_has_active_response");
    assert_eq!(error["event_id"], "second");
    client.wait_for("response.done");
    client.check();
    assert_eq!(client.of_type("response.created").len(), 1);
}

#[test]
fn thousand_items_and_odd_audio_are_bounded() {
    let mut client = Realtime::connect("model=gpt-realtime");
    for number in 0..1200 {
        client.write(&format!("item {number}, with some more words in it"));
    }
    for odd in ["AA==", "AAAA", "AAAAAA=="] {
        client.send(&json!({"type": "input_audio_buffer.append", "audio": odd}));
    }
    assert!(client.of_type("error").is_empty());
    client.update(&json!({"type": "realtime", "output_modalities": ["text"]}));
    client.respond();
    let request = client.harness.answer_requests()[0].to_string();
    assert!(request.len() < 60_000, "{} bytes", request.len());
    assert!(request.contains("item 1199") && !request.contains("item 1,"), "the newest are kept");
}

#[test]
fn long_items_and_instructions_are_refused_and_pictures_are_not_kept() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let long = "word ".repeat(60_000);
    client.write(&long);
    client.update(&json!({"type": "realtime", "instructions": long}));
    let messages: Vec<_> =
        client.of_type("error").iter().map(|error| error["error"]["message"].as_str().unwrap()).collect();
    assert!(messages[0].contains("262144") && messages[1].contains("65536"), "{messages:?}");
    let url = format!("data:image/jpeg;base64,{}", PICTURE);
    client.send(&json!({"type": "conversation.item.create", "item": {"id": "look", "type": "message",
        "role": "user", "content": [{"type": "input_image", "image_url": url}]}}));
    assert_eq!(client.of_type("conversation.item.added")[0]["item"]["content"][0]["image_url"], url);
    client.send(&json!({"type": "conversation.item.retrieve", "item_id": "look"}));
    assert_eq!(
        client.of_type("conversation.item.retrieved")[0]["item"]["content"][0]["image_url"],
        Value::Null
    );
}

#[test]
fn requests_for_answers_in_a_conversation_fail_without_an_error() {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    let mut client = Realtime::with_config(config);
    for number in 0..40 {
        client.write("Hello.");
        client.send(
            &json!({"type": "response.create", "response": {"metadata": {"number": number.to_string()}}}),
        );
    }
    assert!(client.of_type("error").is_empty(), "several clients end at an error");
    let (created, done) = (client.of_type("response.created"), client.of_type("response.done"));
    assert_eq!((created.len(), done.len()), (40, 40));
    let ids: BTreeSet<_> = done.iter().map(|it| it["response"]["id"].to_string()).collect();
    assert_eq!(ids.len(), 40);
    for (number, (created, done)) in created.iter().zip(&done).enumerate() {
        let response = &done["response"];
        assert_eq!(created["response"]["id"], response["id"]);
        assert_eq!(response["metadata"]["number"], number.to_string());
        let error = &response["status_details"]["error"];
        assert_has(
            response,
            json!({"/status": "failed", "/status_details/error/type": "invalid_request_error"}),
        );
        assert!(error["message"].as_str().is_some_and(|message| message.contains("`assistant`")), "{error}");
    }
}

#[test]
fn tools_without_effect_are_a_warning_and_a_demanded_call_is_an_error() {
    let mut config = config("model=gpt-realtime");
    config.profile = "conversation";
    let mut client = Realtime::with_config(config);
    let tools = json!([{"type": "function", "name": "look_up", "parameters": {}}]);
    for choice in [json!("required"), json!({"type": "function", "name": "look_up"})] {
        for (message, param) in [
            (json!({"type": "session.update", "session": {"tool_choice": choice}}), "session.tool_choice"),
            (json!({"type": "response.create", "response": {"tool_choice": choice}}), "response.tool_choice"),
        ] {
            client.send(&message);
            let errors = client.of_type("error");
            let error = &errors.last().expect("an error")["error"];
            assert_has(error, json!({"/param": param, "/code": "invalid_value"}));
        }
    }
    assert_eq!(client.of_type("error").len(), 4);
    for choice in ["auto", "none"] {
        client.update(&json!({"tools": tools, "tool_choice": choice}));
        let session = &client.of_type("session.updated").last().unwrap()["session"];
        assert_eq!((&session["tools"], &session["tool_choice"]), (&tools, &json!(choice)));
        client.send(&json!({"type": "response.create", "response": {"tools": tools, "tool_choice": choice}}));
    }
    let warnings = client.harness.observations.iter().filter_map(|observation| match observation {
        Observation::Unsupported(words) => Some(words.as_str()),
        _ => None,
    });
    let expected = [
        "session.update.tools: only functions and tools of servers are called, and only by profiles with [answer.tools]",
        "response.create.tools: the model calls no tools here",
    ];
    assert_eq!(warnings.collect::<Vec<_>>(), expected, "each once");
}
