//! Conversation after incomplete answers: truncation by the client, before and after the answer's end, and cancelled written
//! answers.

use super::*;

const STORY: &str =
    "One two three four five six seven eight nine ten. Eleven twelve thirteen fourteen fifteen.";

fn connect(answers: &[&str]) -> Realtime {
    let mut config = config("model=gpt-realtime").answers(answers);
    config.simulator.timing.speech_second = Duration::from_millis(200);
    Realtime::with_config(config)
}

fn truncate(client: &mut Realtime, item_id: &Value, fields: &Value) -> Result<Value, Value> {
    let mut message = json!({"type": "conversation.item.truncate", "item_id": item_id, "content_index": 0});
    message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    let (errors, cuts) = (client.of_type("error").len(), client.of_type("conversation.item.truncated").len());
    client.send(&message);
    match client.of_type("conversation.item.truncated").get(cuts) {
        Some(cut) => Ok((*cut).clone()),
        None => Err(client.of_type("error")[errors]["error"].clone()),
    }
}

/// The assistant's earlier words in the model's next prompt.
fn history(client: &mut Realtime) -> String {
    client.respond();
    let requests = client.harness.answer_requests();
    let messages = requests.last().unwrap().as_array().unwrap().clone();
    let said = messages.iter().filter(|message| message["role"] == "assistant");
    said.map(ToString::to_string).collect()
}

#[test]
fn truncation_that_openai_refuses_is_an_error_and_changes_nothing() {
    let mut client = connect(&[STORY, "Yes.", "Written."]);
    client.send(&json!({"type": "conversation.item.create", "item": {"id": "mine", "type": "message",
        "role": "user", "content": [{"type": "input_text", "text": "Hello"}]}}));
    client.send(&json!({"type": "conversation.item.create", "item": {"id": "theirs", "type": "message",
        "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}}));
    client.respond();
    let item = client.of_type("response.output_item.done")[0]["item"]["id"].clone();
    let length_ms = (client.audio_s() * 1000.0) as u64;
    let end = |ms: i64| json!({"audio_end_ms": ms});
    for (item, fields, param) in [
        (&item, end(length_ms as i64 + 100), "audio_end_ms"),
        (&item, end(600_000), "audio_end_ms"),
        (&item, end(-11), "audio_end_ms"),
        (&item, json!({"audio_end_ms": "100"}), "audio_end_ms"),
        (&item, json!({"audio_end_ms": null}), "audio_end_ms"),
        (&item, json!({"audio_end_ms": 100, "content_index": 7}), "content_index"),
        (&item, json!({"audio_end_ms": 100, "content_index": -1}), "content_index"),
        (&item, json!({"audio_end_ms": 100, "content_index": "0"}), "content_index"),
        (&json!("mine"), end(0), "item_id"),
        (&json!("theirs"), end(0), "item_id"),
        (&json!("none"), end(0), "item_id"),
    ] {
        let error = truncate(&mut client, item, &fields).expect_err("it was cut");
        assert_eq!(error["param"], param, "{fields}: {error}");
    }
    assert!(history(&mut client).contains(STORY), "nothing was cut");
    client.update(&json!({"type": "realtime", "output_modalities": ["text"]}));
    client.respond();
    let written = client.of_type("response.output_item.done").last().unwrap()["item"]["id"].clone();
    assert_eq!(truncate(&mut client, &written, &end(0)).unwrap_err()["param"], "item_id");
    let cut = truncate(&mut client, &item, &end(length_ms as i64)).unwrap();
    assert_eq!(cut["audio_end_ms"], length_ms);
    assert!(truncate(&mut client, &item, &end(300)).is_ok());
    let error = truncate(&mut client, &item, &end(900)).unwrap_err();
    assert!(error["message"].as_str().unwrap().contains("already shorter"), "{error}");
    client.check();
}

#[test]
fn truncation_before_the_end_of_an_answer_cuts_it_as_one_after_it() {
    for (cancels, name) in [(true, "cancelled"), (false, "played to its end")] {
        let mut client = connect(&[STORY, "Yes."]);
        client.send(&json!({"type": "response.create"}));
        client.wait_for("response.output_audio.delta");
        client.pass(400 * MS);
        let item = client.of_type("response.output_item.added")[0]["item"]["id"].clone();
        let error = truncate(&mut client, &item, &json!({"audio_end_ms": 60_000})).unwrap_err();
        assert_eq!(error["param"], "audio_end_ms", "{name}");
        truncate(&mut client, &item, &json!({"audio_end_ms": 900})).unwrap();
        if cancels {
            client.send(&json!({"type": "response.cancel"}));
        }
        client.wait_for("response.done");
        client.send(&json!({"type": "conversation.item.retrieve", "item_id": item}));
        let kept = client.wait_for("conversation.item.retrieved")["item"]["content"][0]["transcript"].clone();
        let kept = kept.as_str().unwrap().to_owned();
        assert!(STORY.starts_with(&kept) && kept.len() < 40, "{name}: {kept:?}");
        let told = history(&mut client);
        assert!(told.contains("One") && !told.contains("seven"), "{name}: {told}");
        client.check();
    }
}

#[test]
fn words_of_a_cancelled_answer_in_writing_stay_in_the_conversation() {
    for cancel in [json!({"type": "response.cancel"}), json!({"type": "output_audio_buffer.clear"})] {
        let mut client = connect(&[STORY, "Yes."]);
        client.update(&json!({"type": "realtime", "output_modalities": ["text"]}));
        client.send(&json!({"type": "response.create"}));
        client.wait_for("response.output_text.delta");
        client.send(&cancel);
        let done = client.wait_for("response.done")["response"].clone();
        assert_eq!(done["status"], "cancelled");
        let deltas = client.of_type("response.output_text.delta");
        let sent: String = deltas.iter().map(|delta| delta["delta"].as_str().unwrap()).collect();
        assert!(STORY.starts_with(&sent) && sent.len() < STORY.len(), "{sent:?} is a part of the answer");
        assert_eq!(done["output"][0]["content"][0]["text"], sent.as_str());
        let told = history(&mut client);
        assert!(told.contains(sent.trim()), "{sent:?} is not in {told}");
        client.check();
    }
}
