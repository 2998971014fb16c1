//! Bounds of what a client can make a session keep, and what it costs to read.

use super::*;

/// Bound of all stored items, bytes.
const STORE_MAX_BYTES: usize = 4 * 1024 * 1024;

fn item(fields: Value) -> Value {
    json!({"type": "conversation.item.create", "item": fields})
}

fn user_item(content: Value) -> Value {
    item(json!({"type": "message", "role": "user", "content": content}))
}

/// A file that begins like a JPEG, as a part of an item.
fn picture(bytes: usize) -> Value {
    let base64 = format!("/9j/{}", "A".repeat(bytes.div_ceil(3) * 4 - 4));
    json!({"type": "input_image", "image_url": format!("data:image/jpeg;base64,{base64}")})
}

fn kept_bytes(client: &Realtime) -> usize {
    client.harness.report().kept_bytes
}

/// Sends a message that must be refused because of this field, and returns the error's words.
fn refusal(client: &mut Realtime, message: &Value, param: &str) -> String {
    let before = client.of_type("error").len();
    client.send(message);
    let errors = client.of_type("error");
    assert_eq!(errors.len(), before + 1, "no error of {param}");
    let error = &errors[before]["error"];
    assert_eq!((&error["param"], &error["code"]), (&param.into(), &json!("invalid_value")), "{error}");
    error["message"].as_str().unwrap().to_owned()
}

/// Words that wait, for a voice or for a call, are bounded and counted.
#[test]
fn endless_answer_with_tools_is_bounded_and_counted() {
    for (choice, modality) in [("auto", "audio"), ("required", "text")] {
        let mut client = Realtime::with_config(config("model=gpt-realtime").faults(&["never-answers"]));
        client.update(&json!({"tool_choice": choice, "output_modalities": [modality],
            "tools": [{"type": "function", "name": "stop"}]}));
        client.send(&json!({"type": "response.create"}));
        client.pass(Duration::from_millis(500));
        let lane = asked_lane(&client).unwrap();
        let before = kept_bytes(&client);
        let delta = json!({"type": "response.output.delta", "session_id": "s", "response_id": "r", "kind": "text",
            "text": "word ".repeat(2000)});
        // Text without audio ends an answer after 67 584 characters.
        for (count, expected) in [(6, 50_000..180_000), (34, 0..180_000)] {
            (0..count).for_each(|_| client.harness.inject_upstream_text(lane, &delta.to_string()));
            let kept = kept_bytes(&client).saturating_sub(before);
            assert!(expected.contains(&kept), "{kept} bytes of an answer in {modality}");
        }
    }
}

#[test]
fn stored_items_take_the_memory_of_their_text() {
    const ITEMS: usize = 30;
    let mut client = Realtime::connect("model=gpt-realtime");
    let elements = vec![r#"{"":0}"#; 30_000].join(",");
    let message = format!(
        r#"{{"type":"conversation.item.create","item":{{"type":"mcp_call","output":[{elements}]}}}}"#
    );
    let first = client.harness.steps.len();
    for _ in 0..ITEMS {
        client.harness.send_text(&message);
    }
    let steps = &client.harness.steps[first..];
    let peak = steps.iter().map(|step| step.cost.bytes_max).max().unwrap() as usize;
    assert!(peak < 16 * message.len(), "{peak} bytes to read {} bytes", message.len());
    // Each item is sent twice; the harness has taken these messages.
    let held: i64 = steps.iter().map(|step| step.cost.bytes_current).sum();
    let held = held as usize - ITEMS * 2 * message.len();
    assert!(held < 2 * STORE_MAX_BYTES, "{held} bytes are held");
    let kept = kept_bytes(&client);
    assert!((STORE_MAX_BYTES * 3 / 4..=STORE_MAX_BYTES).contains(&kept), "{kept} bytes are counted");
    client.harness.close_client();
    assert_eq!(kept_bytes(&client), 0, "the client has left");
}

#[test]
fn pictures_are_bounded_counted_and_forgotten() {
    let mut client = Realtime::connect("model=gpt-realtime");
    for count in 1..=3 {
        client.send(&user_item(json!([picture(6 << 20)])));
        // The oldest of three exceeds 16 MiB.
        let expected = count.min(2) * (6 << 20);
        let kept = kept_bytes(&client);
        assert!((expected..expected + 10_000).contains(&kept), "{kept} bytes of {count} pictures");
    }
    let too_large = user_item(json!([picture(9 << 20)]));
    let words = refusal(&mut client, &too_large, "item.content[0].image_url");
    assert!(words.contains("8388608"), "{words}");
    client.send(&json!({"type": "response.create", "response": {"output_modalities": ["text"]}}));
    client.wait_for("response.done");
    assert!(kept_bytes(&client) < 10_000, "the answer has seen them");
}

#[test]
fn items_and_requests_have_bounds() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let text = |bytes: usize| json!({"type": "input_text", "text": "a".repeat(bytes)});
    let response = |fields: Value| json!({"type": "response.create", "response": fields});
    let metadata = |key: usize, value: usize| json!({"metadata": {"k".repeat(key): "v".repeat(value)}});
    let pairs: Map<String, Value> = (0..17).map(|number| (number.to_string(), "v".into())).collect();
    let message = |content: Value| json!({"type": "message", "role": "user", "content": content});
    for (request, param) in [
        (user_item(json!(vec![text(1); 65])), "item.content"),
        (user_item(json!(vec![text(1); 7000])), "item.content"),
        (user_item(json!([text(200_000), text(200_000)])), "item"),
        (item(json!({"type": "mcp_call", "output": "a".repeat(300_000)})), "item"),
        (item(json!({"type": "message", "role": "user", "id": "a".repeat(257)})), "item.id"),
        (response(json!({"metadata": pairs})), "response.metadata"),
        (response(metadata(65, 1)), "response.metadata"),
        (response(metadata(1, 513)), "response.metadata"),
        (response(json!({"metadata": {"a": {}}})), "response.metadata"),
        (response(json!({"instructions": "a".repeat(65_537)})), "response.instructions"),
        (response(json!({"max_output_tokens": "a".repeat(2000)})), "response.max_output_tokens"),
        (response(json!({"input": vec![message(json!([])); 257]})), "response.input"),
        (response(json!({"input": vec![message(json!([text(200_000)])); 2]})), "response.input"),
        (response(json!({"input": [message(json!(vec![text(1); 65]))]})), "response.input[0].content"),
    ] {
        refusal(&mut client, &request, param);
        let allocations = client.harness.steps.last().unwrap().cost.count_total;
        assert!(allocations < 2000, "{allocations} allocations to refuse {param}");
    }
    assert!(client.of_type("response.created").is_empty());
    let metadata = json!({"k".repeat(64): "ü".repeat(512)});
    client.send(&response(json!({"metadata": metadata, "output_modalities": ["text"]})));
    assert_eq!(client.wait_for("response.done")["response"]["metadata"], metadata);
    client.check();
}

#[test]
fn requests_that_wait_are_bounded_in_number_and_memory() {
    for (input, accepted) in
        [(json!([{"type": "input_text", "text": "Which one?"}]), 16), (json!([picture(6 << 20)]), 2)]
    {
        let mut client = Realtime::connect("model=gpt-realtime");
        client.send(&json!({"type": "response.create"}));
        let request = json!({"type": "response.create", "response": {"conversation": "none",
            "output_modalities": ["text"], "input": [{"type": "message", "role": "user", "content": input}]}});
        for _ in 0..accepted {
            client.send(&request);
        }
        assert!(client.of_type("error").is_empty());
        let waiting = kept_bytes(&client);
        refusal(&mut client, &request, "response");
        assert_eq!(kept_bytes(&client), waiting, "a request that is refused is not kept");
        client.pass(Duration::from_secs(120));
        client.check();
        assert_eq!(client.of_type("response.done").len(), 1 + accepted);
        assert!(kept_bytes(&client) < 10_000, "{} bytes", kept_bytes(&client));
    }
}

#[test]
fn settings_are_bounded_and_kept_as_text() {
    let mut client = Realtime::connect("model=gpt-realtime");
    let before = kept_bytes(&client);
    let schema = format!("[{}]", vec![r#"{"":0}"#; 9_000].join(","));
    let tools = format!(r#"[{{"type":"function","name":"f","parameters":{{"enum":{schema}}}}}]"#);
    client.harness.send_text(&format!(r#"{{"type":"session.update","session":{{"tools":{tools}}}}}"#));
    client.take_events();
    assert_eq!(client.of_type("session.updated")[0]["session"]["tools"][0]["name"], "f");
    let step = client.harness.steps.last().unwrap();
    assert!((step.cost.bytes_max as usize) < 16 * tools.len(), "{} bytes", step.cost.bytes_max);
    assert!(step.cost.count_total < 500, "{} allocations", step.cost.count_total);
    let kept = kept_bytes(&client) - before;
    // The client's text for the echo, and the schema for the codec and for the model.
    assert!((tools.len()..3 * tools.len() + 1000).contains(&kept), "{kept} bytes of {}", tools.len());
    let long = "a".repeat(70_000);
    for (session, param) in [
        (json!({"tools": vec![long.clone(); 4]}), "session.tools"),
        (json!({"instructions": long}), "session.instructions"),
        (json!({"audio": {"output": {"voice": "a".repeat(257)}}}), "session.audio.output.voice"),
        (json!({"audio": {"output": {"voice": {"id": long}}}}), "session.audio.output.voice"),
        (json!({"audio": {"input": {"noise_reduction": [long]}}}), "session.audio.input.noise_reduction"),
        (
            json!({"audio": {"input": {"turn_detection": {"eagerness": [long]}}}}),
            "session.audio.input.turn_detection.eagerness",
        ),
        (
            json!({"audio": {"input": {"transcription": {"language": long}}}}),
            "session.audio.input.transcription.language",
        ),
        (
            json!({"audio": {"input": {"transcription": {"keywords": vec![0; 5000]}}}}),
            "session.audio.input.transcription.keywords",
        ),
    ] {
        refusal(&mut client, &json!({"type": "session.update", "session": session}), param);
    }
    assert_eq!(kept_bytes(&client) - before, kept, "a refused update changes nothing");
}

/// Names that the client invents are logged and remembered: a few, and the beginning of each.
#[test]
fn notes_about_settings_without_effect_are_short() {
    let mut client = Realtime::with_config(config("model=gpt-realtime"));
    client.update(&json!({"k".repeat(100_000): 1}));
    assert_eq!(client.of_type("session.updated").len(), 1);
    let notes = client.harness.observations.iter().filter_map(|observation| match observation {
        Observation::NoEffect(words) => Some(words.len()),
        _ => None,
    });
    let lengths: Vec<usize> = notes.collect();
    assert!(!lengths.is_empty() && lengths.iter().all(|bytes| *bytes < 200), "{lengths:?} bytes");
}
