//! Tool servers that a `response.create` names for its response alone.

use std::time::Duration;

use serde_json::{Value, json};
use voxbridge::{
    spelling::Library,
    trace::{AudioRetention, Trace, replay::replay},
    vocabulary::{ListedTool, RemoteServer, ServerCall, ServerCallResult},
};
use voxbridge_test_support::world::session::epoch;

use super::{
    Realtime,
    client_tool_servers::{
        CALL, config, last_question, name_servers, result, server, two_tools, types_since,
    },
};

const MS: Duration = Duration::from_millis(1);
/// Longer than the scripted servers take to answer.
const LISTED: Duration = Duration::from_millis(300);

fn switched(_: &ServerCall) -> Option<ServerCallResult> {
    Some(result("light: on", None))
}

fn refused(_: &RemoteServer) -> Result<Vec<ListedTool>, String> {
    Err("connection refused".to_owned())
}

fn client(answers: &[&str]) -> Realtime {
    Realtime::with_config(config(answers, two_tools, switched))
}

/// Asks in writing for one response with these tools.
fn ask_with(client: &mut Realtime, tools: &[Value], more: &Value) {
    client.write("Switch the light on.");
    let mut response = json!({"output_modalities": ["text"], "tools": tools});
    response.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    client.send(&json!({"type": "response.create", "response": response}));
}

fn house() -> Value {
    server("house", &json!({}))
}

/// The words of a response, written or spoken.
fn output_text(done: &Value) -> &Value {
    let part = &done["response"]["output"][0]["content"][0];
    part.get("text").unwrap_or(&part["transcript"])
}

#[test]
fn tools_are_listed_before_the_response_and_left_after_its_call() {
    let mut client = client(&[CALL, "It is on."]);
    ask_with(&mut client, &[house()], &json!({"metadata": {"client_event_id": "mine"}}));
    assert!(client.of_type("response.created").is_empty(), "it waits for the list");
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["metadata"]["client_event_id"], "mine");
    client.wait_for("response.mcp_call.completed");
    client.check();
    assert_eq!(
        types_since(&client, "mcp_list_tools.in_progress"),
        [
            "mcp_list_tools.in_progress",
            "conversation.item.done",
            "mcp_list_tools.completed",
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.done",
            "rate_limits.updated",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "response.output_item.done",
            "conversation.item.done"
        ]
    );
    assert!(last_question(&client).contains(r#""name": "light""#));
    assert_eq!(client.harness.called[0].1.tool, "light");
    assert!(client.harness.connected.is_empty(), "nothing needs the server any more");
    client.send(&json!({"type": "response.create"}));
    assert_eq!(output_text(&client.wait_for("response.done")), "It is on.");
    let question = last_question(&client);
    assert!(question.contains("light: on") && !question.contains("<tools>"), "{question}");
    assert_eq!(client.of_type("mcp_list_tools.completed").len(), 1);
}

#[test]
fn call_of_a_response_waits_for_approval_with_its_server_connected() {
    let mut client = client(&[CALL, "It is on."]);
    ask_with(&mut client, &[server("house", &json!({"require_approval": "always"}))], &json!({}));
    client.wait_for("response.done");
    client.pass(5000 * MS);
    let request = client.of_type("conversation.item.done").last().unwrap()["item"].clone();
    assert_eq!(request["type"], "mcp_approval_request");
    assert_eq!((client.harness.called.len(), client.harness.connected.len()), (0, 1));
    client.send(&json!({"type": "conversation.item.create", "item": {
        "type": "mcp_approval_response", "approval_request_id": request["id"], "approve": true}}));
    client.wait_for("response.mcp_call.completed");
    assert_eq!((client.harness.called.len(), client.harness.connected.len()), (1, 0));
}

#[test]
fn response_without_its_server_goes_on_and_an_impossible_choice_fails_it() {
    for (list, choice, status) in [
        (refused as fn(&RemoteServer) -> _, Value::Null, "completed"),
        (refused, json!({"type": "mcp", "server_label": "house"}), "failed"),
        (two_tools, json!({"type": "mcp", "server_label": "house", "name": "door"}), "failed"),
        (two_tools, json!({"type": "mcp", "server_label": "house", "name": "light"}), "completed"),
    ] {
        let mut client = Realtime::with_config(config(&[CALL, "Well."], list, switched));
        ask_with(&mut client, &[house()], &json!({"tool_choice": choice}));
        let done = client.wait_for("response.done");
        assert_eq!(done["response"]["status"], status, "{choice}: {done}");
        client.pass(LISTED);
        client.check();
        assert!(client.harness.connected.is_empty() && client.of_type("error").is_empty(), "{choice}");
        client.ask("And now?");
        client.wait_for("response.done");
    }
    let mut client = client(&[]);
    let choice = json!({"type": "mcp", "server_label": "shop"});
    ask_with(&mut client, &[house()], &json!({"tool_choice": choice}));
    assert_eq!(client.of_type("error")[0]["error"]["param"], "response.tool_choice");
    assert!(client.harness.connected.is_empty());
}

#[test]
fn cancelled_response_is_never_asked_for() {
    let mut client = client(&["Hello."]);
    ask_with(&mut client, &[house()], &json!({}));
    client.send(&json!({"type": "response.cancel"}));
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["status_details"]["reason"], "client_cancelled", "{done}");
    assert!(client.harness.connected.is_empty());
    client.pass(5000 * MS);
    assert_eq!(client.of_type("response.created").len(), 1);
    client.send(&json!({"type": "response.cancel"}));
    assert_eq!(client.of_type("error").len(), 1, "there is nothing left to cancel");
    client.ask("Hello?");
    assert_eq!(output_text(&client.wait_for("response.done")), "Hello.");
}

#[test]
fn servers_of_the_session_are_not_listed_again_and_stay() {
    let mut client = client(&[CALL, "It is on."]);
    name_servers(&mut client, &[house()]);
    // Its list is still being made.
    ask_with(&mut client, &[house(), server("shop", &json!({}))], &json!({}));
    client.wait_for("response.mcp_call.completed");
    let lists = client.of_type("mcp_list_tools.completed").len();
    let labels: Vec<&str> =
        client.harness.connected.iter().map(|(_, server)| server.label.as_str()).collect();
    assert_eq!((lists, labels), (2, vec!["house"]));
    // A server of one response that the session names, too, is kept.
    ask_with(&mut client, &[server("shop", &json!({}))], &json!({}));
    name_servers(&mut client, &[server("shop", &json!({}))]);
    client.wait_for("response.done");
    client.pass(LISTED);
    let labels: Vec<&str> =
        client.harness.connected.iter().map(|(_, server)| server.label.as_str()).collect();
    assert_eq!((client.of_type("mcp_list_tools.completed").len(), labels), (3, vec!["shop"]));
}

#[test]
fn function_of_a_response_is_the_clients_even_if_a_server_of_the_session_has_its_name() {
    let mut client = client(&[CALL]);
    name_servers(&mut client, &[house()]);
    client.wait_for("mcp_list_tools.completed");
    ask_with(&mut client, &[json!({"type": "function", "name": "light"})], &json!({}));
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["type"], "function_call", "{done}");
    client.pass(LISTED);
    assert!(client.harness.called.is_empty());
}

#[test]
fn connectors_of_openai_fail_as_lists_and_name_the_remedy() {
    for hosted in [json!({"connector_id": "connector_gmail"}), json!({"tunnel_id": "tunnel_1"})] {
        let mut connector = json!({"type": "mcp", "server_label": "mail", "authorization": "t0ken"});
        connector.as_object_mut().unwrap().extend(hosted.as_object().unwrap().clone());
        let mut client = client(&["Hello.", "Hello."]);
        name_servers(&mut client, &[connector.clone()]);
        let of_session = client.wait_for("mcp_list_tools.failed");
        name_servers(&mut client, &[]);
        ask_with(&mut client, &[connector], &json!({}));
        let of_response = client.wait_for("mcp_list_tools.failed");
        for failed in [of_session, of_response] {
            assert!(failed["error"]["message"].as_str().unwrap().contains("server_url"), "{failed}");
        }
        assert_eq!(output_text(&client.wait_for("response.done")), "Hello.");
        client.check();
        assert!(client.of_type("error").is_empty() && client.harness.connected.is_empty());
        assert!(!format!("{:?}", client.events).contains("t0ken"));
    }
}

#[test]
fn servers_and_requests_that_wait_are_bounded() {
    let mut client = client(&["Hello."]);
    for at in 0..20 {
        ask_with(&mut client, &[server(&format!("house{at}"), &json!({}))], &json!({}));
    }
    assert_eq!(client.harness.connected.len(), 16);
    assert!(client.of_type("error").len() == 4, "{:?}", client.of_type("error"));
    client.pass(60_000 * MS);
    assert_eq!(client.of_type("response.done").len(), 16);
    assert!(client.harness.connected.is_empty());
}

#[test]
fn recorded_response_with_a_server_replays_identically() {
    let mut config = config(&[CALL, "It is on."], two_tools, switched);
    config.record = Some(AudioRetention::All);
    let mut client = Realtime::with_config(config);
    ask_with(&mut client, &[house()], &json!({}));
    client.wait_for("response.mcp_call.completed");
    let trace = Trace::parse(client.harness.trace()).unwrap();
    let outcome = replay(&trace, Library::embedded().unwrap(), epoch()).unwrap();
    assert!(outcome.is_same(), "{outcome:#?}");
}
