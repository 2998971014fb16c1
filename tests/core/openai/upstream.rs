//! OpenAI's Realtime API on both sides: clients on servers of their own protocol, in OpenAI's order and in vLLM-Omni's.

use std::time::Duration;

use serde_json::{Value, json};
use voxbridge::{
    session::Observation,
    simulator::{RealtimeServer, SimDialect, SimulatorConfig},
};
use voxbridge_test_support::cases::assert_has;

use super::{Realtime, config, speech};
use crate::harness::HarnessConfig;

const MS: Duration = Duration::from_millis(1);
const BOTH: [RealtimeServer; 2] = [RealtimeServer::Openai, RealtimeServer::VllmOmni];

fn connect(kind: RealtimeServer, faults: &[&str]) -> Realtime {
    let simulator = SimulatorConfig {
        dialect: SimDialect::OpenaiRealtime(kind),
        workers: 2,
        faults: faults.iter().map(|text| text.parse().unwrap()).collect(),
        ..SimulatorConfig::default()
    };
    let config = HarnessConfig { upstream: "openai-realtime", simulator, ..config("model=gpt-realtime") };
    Realtime::with_config(config)
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
        client.say(&speech());
        client.say_silence(900);
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], "completed", "{kind:?}: {done}");
        client.check();
        let settings = sent(&client, "session.update");
        assert!(
            settings.iter().any(|update| update["session"]["instructions"] == "Be brief."),
            "{settings:?}"
        );
        let commits = sent(&client, "input_audio_buffer.commit");
        assert_eq!(commits.len(), 1, "{kind:?}");
        let items = sent(&client, "conversation.item.create");
        let roles: Vec<_> = items.iter().map(|item| item["item"]["role"].as_str().unwrap()).collect();
        assert_eq!(
            roles,
            ["user", "user", "assistant"],
            "{kind:?}: the second question has the first answer"
        );
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
