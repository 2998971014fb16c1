//! OpenAI's Realtime API on both sides: clients on servers of their own protocol, in OpenAI's order and in vLLM-Omni's.

use super::*;

fn connect(kind: RealtimeServer, faults: &[&str]) -> Realtime {
    Realtime::with_config(config("model=gpt-realtime").realtime(kind).faults(faults))
}

/// Messages of this type that went to the upstream.
fn sent(client: &Realtime, kind: &str) -> Vec<Value> {
    let quoted = format!("\"{kind}\"");
    let sent = client.harness.sent_containing(&quoted).into_iter();
    sent.map(|text| serde_json::from_str::<Value>(text).unwrap())
        .filter(|message| message["type"] == kind)
        .collect()
}

#[test]
fn typed_and_spoken_questions_are_answered_with_the_history() {
    for kind in BOTH {
        let mut client = connect(kind, &[]);
        client.update(&json!({"type": "realtime", "instructions": "Be brief."}));
        client.ask("Hello?");
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "completed", "{kind:?}: {done}");
        client.pass(3000 * MS);
        client.say_question();
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "completed", "{kind:?}: {done}");
        client.check();
        let settings = sent(&client, "session.update");
        assert!(settings.iter().any(|it| it["session"]["instructions"] == "Be brief."), "{settings:?}");
        let commits = sent(&client, "input_audio_buffer.commit");
        assert_eq!(commits.len(), 1, "{kind:?}");
        let items = sent(&client, "conversation.item.create");
        let roles: Vec<_> = items.iter().map(|item| item["item"]["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "user", "assistant"], "{kind:?}: with the first answer");
    }
}

#[test]
fn tools_are_offered_once_and_results_go_back_as_items() {
    for kind in BOTH {
        let mut client = connect(kind, &[]);
        let tool = json!({"type": "function", "name": "get_weather", "parameters": {
            "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}});
        client.update(&json!({"type": "realtime", "tools": [tool], "tool_choice": "auto"}));
        client.ask("What is the weather in Rome");
        let done = client.wait_for("response.done");
        let call = &done["response"]["output"][0];
        assert_has(call, json!({"/type": "function_call", "/name": "get_weather"}));
        let arguments: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments, json!({"city": "Rome"}), "{kind:?}");
        client.send(&json!({"type": "conversation.item.create", "item": {
            "type": "function_call_output", "call_id": call["call_id"], "output": "rain"}}));
        client.send(&json!({"type": "response.create"}));
        let done = client.wait_for("response.done");
        assert!(done.to_string().contains("The tool says rain"), "{kind:?}: {done}");
        client.check();
        let is_prompted =
            |seen: &Observation| matches!(seen, Observation::Note(words) if words.contains("prompt"));
        assert!(!client.harness.observations.iter().any(is_prompted), "{:?}", client.harness.observations);
        let items = sent(&client, "conversation.item.create");
        let of_call = |item: &&Value| item["item"]["call_id"] == call["call_id"];
        let kinds: Vec<_> = items.iter().filter(of_call).map(|item| item["item"]["type"].clone()).collect();
        assert_eq!(kinds, ["function_call", "function_call_output"], "{kind:?}");
        for tag in ["<tools>", "<tool_call>", "<tool_response>"] {
            assert!(client.harness.sent_containing(tag).is_empty(), "{kind:?}: {tag} is prompted");
        }
    }
}

#[test]
fn cancelled_answer_is_stopped_on_the_server() {
    for kind in BOTH {
        let mut client = connect(kind, &[]);
        client.ask("Tell me something long");
        client.wait_for("response.output_audio.delta");
        client.send(&json!({"type": "response.cancel"}));
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "cancelled", "{kind:?}");
        client.pass(5000 * MS);
        client.ask("And now?");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{kind:?}");
        client.check();
    }
}

#[test]
fn server_that_breaks_down_is_asked_again() {
    for fault in ["die-before-created,times=1", "drop-mid-answer=0,times=1", "queue-full,times=1"] {
        let mut client = connect(RealtimeServer::Openai, &[fault]);
        client.ask("Hello?");
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "completed", "{fault}: {done}");
        client.check();
    }
}

/// A story of some 13 s.
const STORY: &str = "One two three four five six seven eight nine ten. Eleven twelve thirteen fourteen fifteen. \
                     Sixteen seventeen eighteen nineteen twenty. This is the end of the story.";

fn connect_with(kind: RealtimeServer, faults: &[&str], answers: &[&str]) -> Realtime {
    let mut config = config("model=gpt-realtime").realtime(kind).faults(faults).answers(answers);
    config.simulator.timing.speech_second = 1000 * MS;
    Realtime::with_config(config)
}

/// The assistant's words in the last question's items.
fn history(client: &Realtime) -> String {
    let items = sent(client, "conversation.item.create");
    let last = items.iter().rfind(|item| item["item"]["role"] == "assistant");
    last.map(|item| item["item"]["content"][0]["text"].as_str().unwrap().to_owned()).unwrap_or_default()
}

#[test]
fn session_that_expires_before_the_answer_is_replaced_without_a_loss() {
    for kind in BOTH {
        let mut client = connect_with(kind, &["timeout=0.05,times=1"], &["Yes.", "No."]);
        let first = client.answer("Hello?");
        assert_eq!(first["status"], "completed", "{kind:?}: {first}");
        client.ask("And now?");
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "completed", "{kind:?}: {done}");
        assert_eq!(first["output"][0]["content"][0]["transcript"], history(&client), "{kind:?}");
        client.check();
    }
}

#[test]
fn session_that_expires_in_an_answer_ends_it_with_an_error_and_its_words_stay_in_the_history() {
    for (kind, told) in [(RealtimeServer::Openai, "session_expired"), (RealtimeServer::VllmOmni, "1012")] {
        let mut client = connect_with(kind, &["timeout=3,times=1"], &[STORY, "Yes."]);
        let response = client.answer("Tell me something long");
        assert_eq!(response["status"], "failed", "{kind:?}: {response}");
        let error = &response["status_details"]["error"];
        assert!(error["code"].as_str().is_some_and(|code| !code.is_empty()), "{kind:?}: {error}");
        assert!(error["message"].to_string().contains(told), "{kind:?}: {error}");
        client.pass(20_000 * MS);
        client.ask("And now?");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{kind:?}");
        let heard = history(&client);
        assert!(STORY.starts_with(&heard) && heard.len() < STORY.len() / 2, "{kind:?}: {heard}");
        assert!(heard.starts_with("One two three"), "{kind:?}: {heard}");
        client.check();
    }
}

#[test]
fn failed_question_is_asked_again_if_its_code_says_so() {
    let answered = |code: &str, retryable: Value, is_event: bool| {
        let mut client = connect(RealtimeServer::Openai, &["never-answers,times=1"]);
        client.ask("Hello?");
        client.pass(1000 * MS);
        let error = json!({"type": "t", "code": code, "message": "the words", "retryable": retryable});
        let lane = *client.harness.lanes().last().unwrap();
        let message = match is_event {
            true => json!({"type": "error", "error": error}),
            false => json!({"type": "response.done", "response": {
                "id": "r", "status": "failed", "status_details": {"type": "failed", "error": error}}}),
        };
        client.harness.inject_upstream_text(lane, &message.to_string());
        let response = client.wait_for("response.done")["response"].clone();
        client.check();
        response
    };
    for (code, retryable, is_asked_again) in [
        ("rate_limit_exceeded", Value::Null, true),
        ("session_expired", Value::Null, true),
        ("server_error", Value::Null, true),
        ("new_code", json!(true), true),
        ("new_code", json!(false), false),
        ("invalid_value", Value::Null, false),
        ("insufficient_quota", Value::Null, false),
        ("invalid_api_key", Value::Null, false),
    ] {
        for is_event in [true, false] {
            if !is_event && !retryable.is_null() {
                continue;
            }
            let response = answered(code, retryable.clone(), is_event);
            let status = if is_asked_again { "completed" } else { "failed" };
            assert_eq!(response["status"], status, "{code} {retryable} {is_event}: {response}");
            let error = &response["status_details"]["error"];
            let words = format!("{code}: the words");
            assert_eq!(error["message"].to_string().contains(&words), !is_asked_again, "{response}");
        }
    }
}

#[test]
fn history_has_only_what_the_user_heard_so_that_nothing_is_truncated_on_the_server() {
    for kind in BOTH {
        let mut client = connect_with(kind, &[], &[STORY, "Yes."]);
        client.ask("Tell me something long");
        client.wait_for("response.output_audio.delta");
        client.pass(2500 * MS);
        let item = client.of_type("response.output_item.added")[0]["item"]["id"].clone();
        client.send(&json!({"type": "conversation.item.truncate", "item_id": item, "content_index": 0,
            "audio_end_ms": 900}));
        client.send(&json!({"type": "response.cancel"}));
        client.wait_for("response.done");
        client.ask("And now?");
        assert_eq!(client.wait_for("response.done")["response"]["status"], "completed", "{kind:?}");
        let told = history(&client);
        assert!(told.starts_with("One") && !told.contains("six"), "{kind:?}: {told}");
        assert!(client.harness.sent_containing("conversation.item.truncate").is_empty(), "{kind:?}");
        client.check();
    }
}

#[test]
fn voice_of_the_client_is_asked_for_and_a_server_without_it_speaks_in_its_own() {
    for kind in BOTH {
        for voice in ["ash", "af_heart"] {
            let mut client = connect(kind, &[]);
            client.update(&json!({"type": "realtime", "audio": {"output": {"voice": voice}}}));
            let response = client.answer("Hello?");
            assert_eq!(response["status"], "completed", "{kind:?} {voice}: {response}");
            assert!(client.audio_s() > 1.0, "{kind:?} {voice}");
            assert!(client.of_type("error").is_empty(), "{kind:?} {voice}");
            let updates = sent(&client, "session.update");
            let named: Vec<&Value> = updates.iter().filter(|update| update["event_id"] == "voice").collect();
            let [named] = &named[..] else { panic!("{kind:?}: {updates:?}") };
            assert_eq!(named["session"]["audio"]["output"]["voice"], voice, "{kind:?}");
            client.check();
        }
    }
}
