//! Bad input: OpenAI's own error codes, the client's name for the message, and a session that goes on.

use serde_json::{Value, json};
use voxbridge::session::Observation;

use super::{Realtime, speech};

#[test]
fn bad_messages_get_openais_errors_and_the_session_goes_on() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let message = |kind: &str, fields: Value| {
        let mut message = fields;
        message["type"] = kind.into();
        message["event_id"] = "mine".into();
        message.to_string()
    };
    let text_item = json!({"id": "one", "type": "message", "role": "user",
        "content": [{"type": "input_text", "text": "hi"}]});
    client.send(&json!({"type": "conversation.item.create", "item": text_item}));
    for (text, code, words) in [
        ("{".to_owned(), "invalid_json", "not JSON"),
        ("[]".to_owned(), "invalid_json", "object"),
        (r#"{"event_id": "mine"}"#.to_owned(), "missing_required_parameter", "'type'"),
        (message("no.such", json!({})), "invalid_value", "no.such"),
        (message("input_audio_buffer.append", json!({})), "invalid_value", "audio"),
        (message("input_audio_buffer.append", json!({"audio": 5})), "invalid_value", "audio"),
        (message("input_audio_buffer.append", json!({"audio": "????"})), "invalid_value", "base64"),
        (message("session.update", json!({})), "invalid_value", "'session'"),
        (message("session.update", json!({"session": 7})), "invalid_value", "an object"),
        (message("session.update", json!({"session": {"type": "other"}})), "invalid_value", "session.type"),
        (message("session.update", json!({"session": {"instructions": 7}})), "invalid_value", "a number"),
        (
            message("session.update", json!({"session": {"audio": {"input": {"format": {"type": "opus"}}}}})),
            "invalid_value",
            "session.audio.input.format",
        ),
        (
            message(
                "session.update",
                json!({"session": {"audio": {"input": {"turn_detection": {"type": "x"}}}}}),
            ),
            "invalid_value",
            "turn_detection.type",
        ),
        (
            message("conversation.item.create", json!({"item": text_item})),
            "item_create_duplicate_item_id",
            "'one'",
        ),
        (
            message("conversation.item.create", json!({"item": {"type": "message", "role": "x"}})),
            "invalid_value",
            "role",
        ),
        (
            message(
                "conversation.item.create",
                json!({"item": {"type": "message", "role": "user", "content": [
                {"type": "input_image", "image_url": "https://example.com/a.jpg"}]}}),
            ),
            "invalid_value",
            "data URL",
        ),
        (
            message(
                "conversation.item.create",
                json!({"previous_item_id": "none", "item": {"type": "message",
                "role": "user", "content": []}}),
            ),
            "invalid_item_id",
            "'none'",
        ),
        // Clients know these codes; several end at any other.
        (
            message("conversation.item.retrieve", json!({"item_id": "none"})),
            "item_retrieve_invalid_item_id",
            "'none'",
        ),
        (
            message("conversation.item.delete", json!({"item_id": "none"})),
            "item_delete_invalid_item_id",
            "'none'",
        ),
        (
            message("conversation.item.truncate", json!({"item_id": "none", "audio_end_ms": 1})),
            "item_truncate_invalid_item_id",
            "'none'",
        ),
        (message("conversation.item.truncate", json!({"item_id": "one"})), "invalid_value", "audio_end_ms"),
        (message("response.create", json!({"response": []})), "invalid_value", "an array"),
        (message("response.cancel", json!({})), "response_cancel_not_active", "no active response"),
        (message("input_audio_buffer.commit", json!({})), "input_audio_buffer_commit_empty", "no speech"),
    ] {
        let before = client.of_type("error").len();
        client.harness.send_text(&text);
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
    client.say(&speech());
    client.say_silence(900);
    assert_eq!(client.wait_for("response.done")["response"]["status"], "completed");
}

#[test]
fn errors_name_the_wrong_field() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let item = |fields: Value| json!({"type": "conversation.item.create", "item": fields});
    let user = |content: Value| item(json!({"type": "message", "role": "user", "content": content}));
    let session = |fields: Value| json!({"type": "session.update", "session": fields});
    let response = |fields: Value| json!({"type": "response.create", "response": fields});
    client.send(&item(json!({"id": "one", "type": "message", "role": "user", "content": []})));
    for (message, param) in [
        (json!({"no": "type"}), "type"),
        (json!({"type": "no.such"}), "type"),
        (json!({"type": "input_audio_buffer.append"}), "audio"),
        (json!({"type": "input_audio_buffer.append", "audio": 5}), "audio"),
        (json!({"type": "input_audio_buffer.append", "audio": "????"}), "audio"),
        (json!({"type": "session.update"}), "session"),
        (session(json!(7)), "session"),
        (session(json!({"type": "other"})), "session.type"),
        (session(json!({"instructions": 7})), "session.instructions"),
        (session(json!({"output_modalities": ["smell"]})), "session.output_modalities"),
        (session(json!({"audio": {"input": {"format": {"type": "opus"}}}})), "session.audio.input.format"),
        (session(json!({"audio": {"output": {"voice": 7}}})), "session.audio.output.voice"),
        (session(json!({"turn_detection": {"type": "x"}})), "session.turn_detection.type"),
        (
            session(json!({"input_audio_transcription": {"model": 1}})),
            "session.input_audio_transcription.model",
        ),
        (json!({"type": "conversation.item.create"}), "item"),
        (item(json!({"id": "one", "type": "message", "role": "user", "content": []})), "item.id"),
        (item(json!({"id": 5, "type": "message", "role": "user", "content": []})), "item.id"),
        (item(json!({"type": 1})), "item.type"),
        (item(json!({"type": "message", "role": "x"})), "item.role"),
        (item(json!({"type": "message", "role": "user"})), "item.content"),
        (user(json!([7])), "item.content[0]"),
        (user(json!([{"type": "smell"}])), "item.content[0].type"),
        (user(json!([{"type": "input_text", "text": 7}])), "item.content[0].text"),
        (user(json!([{"type": "input_audio", "audio": "?"}])), "item.content[0].audio"),
        (user(json!([{"type": "input_image", "image_url": "http://a"}])), "item.content[0].image_url"),
        (
            json!({"type": "conversation.item.create", "previous_item_id": "none", "item": {}}),
            "previous_item_id",
        ),
        (json!({"type": "conversation.item.retrieve"}), "item_id"),
        (json!({"type": "conversation.item.retrieve", "item_id": "none"}), "item_id"),
        (json!({"type": "conversation.item.delete", "item_id": "none"}), "item_id"),
        (json!({"type": "conversation.item.truncate", "item_id": "none", "audio_end_ms": 1}), "item_id"),
        (json!({"type": "conversation.item.truncate", "item_id": "one"}), "audio_end_ms"),
        (response(json!([])), "response"),
        (response(json!({"instructions": 7})), "response.instructions"),
        (response(json!({"output_modalities": 7})), "response.output_modalities"),
        (response(json!({"metadata": 7})), "response.metadata"),
        (response(json!({"input": 7})), "response.input"),
        (response(json!({"input": [7]})), "response.input[0]"),
        (response(json!({"input": [{"role": "x"}]})), "response.input[0].role"),
    ] {
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
    client.send(&json!({"type": "response.create"}));
    client.wait_for("response.done");
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
    let url = format!("data:image/jpeg;base64,{}", voxbridge_test_support::PICTURE);
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
    let mut config = super::config("model=gpt-realtime");
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
    let ids: std::collections::BTreeSet<_> = done.iter().map(|it| it["response"]["id"].to_string()).collect();
    assert_eq!(ids.len(), 40);
    for (number, (created, done)) in created.iter().zip(&done).enumerate() {
        let response = &done["response"];
        assert_eq!(created["response"]["id"], response["id"]);
        assert_eq!(response["metadata"]["number"], number.to_string());
        let error = &response["status_details"]["error"];
        assert_eq!(
            (&response["status"], &error["type"]),
            (&json!("failed"), &json!("invalid_request_error"))
        );
        assert!(error["message"].as_str().is_some_and(|message| message.contains("`assistant`")), "{error}");
    }
}

#[test]
fn tools_without_effect_are_a_warning_and_a_demanded_call_is_an_error() {
    let mut config = super::config("model=gpt-realtime");
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
            assert_eq!(
                (&error["param"], &error["code"]),
                (&json!(param), &json!("invalid_value")),
                "{error}"
            );
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
        "session.update.tools: only functions are called, and only by profiles with [answer.tools]",
        "response.create.tools: the model calls no tools here",
    ];
    assert_eq!(warnings.collect::<Vec<_>>(), expected, "each once");
}
