//! Tool servers that OpenAI's clients name: lists, calls, approval, names and faults.

use voxbridge::vocabulary::{CallFailure, ListedTool, RemoteServer};

use super::*;

pub(super) const CALL: &str = r#"<tool_call>{"name": "light", "arguments": {"on": true}}</tool_call>"#;

fn tool(name: &str, hints: Option<&str>) -> ListedTool {
    let schema = r#"{"type":"object","properties":{"on":{"type":"boolean"}}}"#;
    let tool =
        Tool { name: name.to_owned(), description: Some(format!("The {name}.")), parameters: schema.into() };
    ListedTool { tool, annotations: hints.map(Into::into) }
}

pub(super) fn two_tools(_: &RemoteServer) -> Result<Vec<ListedTool>, String> {
    Ok(vec![tool("light", None), tool("time", Some(r#"{"readOnlyHint":true}"#))])
}

pub(super) fn result(output: &str, failure: Option<CallFailure>) -> ServerCallResult {
    ServerCallResult { output: output.to_owned(), pictures: Vec::new(), failure }
}

/// A client whose model gives these answers. Its servers answer after 100 ms.
pub(super) fn config(
    answers: &[&str],
    list: fn(&RemoteServer) -> Result<Vec<ListedTool>, String>,
    answer: fn(&ServerCall) -> Option<ServerCallResult>,
) -> HarnessConfig {
    let mut config = config_with(answers);
    config.tools = Some(ScriptedTools {
        servers: Vec::new(),
        list: Box::new(list),
        takes: 100 * MS,
        answer: Box::new(answer),
    });
    config
}

pub(super) fn server(label: &str, more: &Value) -> Value {
    let mut server = json!({
        "type": "mcp", "server_label": label, "server_url": format!("https://{label}.example.com/mcp?key=k3y"),
        "authorization": "t0ken", "headers": {"X-Room": "secret-hall"}, "require_approval": "never",
    });
    let fields = more.as_object().unwrap().clone();
    server.as_object_mut().unwrap().extend(fields);
    server
}

pub(super) fn name_servers(client: &mut Realtime, tools: &[Value]) {
    client.update(&json!({"type": "realtime", "output_modalities": ["text"], "tools": tools}));
}

/// A client with one server, whose tools are listed.
fn connect(config: HarnessConfig, more: &Value) -> Realtime {
    let mut client = Realtime::with_config(config);
    name_servers(&mut client, &[server("house", more)]);
    client.wait_for("mcp_list_tools.completed");
    client
}

/// The last question to the model, as text.
pub(super) fn last_question(client: &Realtime) -> String {
    let messages = questions(client).last().unwrap().0.clone();
    messages.iter().map(text_of).collect::<Vec<_>>().join("\n")
}

pub(super) fn types_since(client: &Realtime, first: &str) -> Vec<String> {
    let types = client.types();
    let at = types.iter().rposition(|kind| *kind == first).unwrap();
    types[at..].iter().map(|kind| (*kind).to_owned()).collect()
}

#[test]
fn tools_are_listed_and_called_and_the_client_asks_for_the_answer() {
    let answers = [CALL, "It is on."];
    let mut client = connect(config(&answers, two_tools, |_| Some(result("light: on", None))), &json!({}));
    assert_eq!(
        types_since(&client, "session.updated"),
        [
            "session.updated",
            "conversation.item.added",
            "mcp_list_tools.in_progress",
            "conversation.item.done",
            "mcp_list_tools.completed"
        ]
    );
    let list = client.of_type("conversation.item.done")[0]["item"].clone();
    assert_eq!((&list["type"], &list["server_label"]), (&json!("mcp_list_tools"), &json!("house")));
    assert_eq!(list["tools"][1]["annotations"], json!({"readOnlyHint": true}));
    assert_eq!(list["tools"][0]["input_schema"]["type"], "object");
    client.ask("Switch the light on.");
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["type"], "mcp_call");
    client.wait_for("response.mcp_call.completed");
    client.check();
    assert_eq!(
        types_since(&client, "response.created"),
        [
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
    let item = client.of_type("conversation.item.done").last().unwrap()["item"].clone();
    assert_eq!((&item["output"], &item["error"]), (&json!("light: on"), &Value::Null), "{item}");
    let arguments = client.of_type("response.mcp_call_arguments.done")[0].clone();
    for event in ["response.mcp_call.in_progress", "response.mcp_call.completed"] {
        assert_eq!(client.of_type(event)[0]["item_id"], arguments["item_id"], "{event}");
    }
    let (_, call) = &client.harness.called[0];
    assert_eq!((call.server.as_str(), call.tool.as_str()), ("house", "light"));
    assert_eq!(client.of_type("response.created").len(), 1, "the client asks for the next response");
    client.send(&json!({"type": "response.create"}));
    let done = client.wait_for("response.done");
    assert_eq!(done["response"]["output"][0]["content"][0]["text"], "It is on.");
    let question = last_question(&client);
    assert!(question.contains("<tool_call>") && question.contains("light: on"), "{question}");
}

#[test]
fn call_waits_for_approval_and_a_denied_one_is_not_made() {
    for (approve, event) in [(true, "response.mcp_call.completed"), (false, "response.mcp_call.failed")] {
        // Without the field, each call needs approval.
        let more = json!({"require_approval": null});
        let mut client =
            connect(config(&[CALL, "Well."], two_tools, |_| Some(result("light: on", None))), &more);
        client.answer("Switch the light on.");
        client.pass(1000 * MS);
        assert!(client.harness.called.is_empty(), "not without approval");
        let request = client.of_type("conversation.item.done").last().unwrap()["item"].clone();
        assert_eq!((&request["type"], &request["name"]), (&json!("mcp_approval_request"), &json!("light")));
        let decision = |id: &Value| {
            json!({"type": "conversation.item.create", "previous_item_id": request["id"], "item": {
                "type": "mcp_approval_response", "approval_request_id": id, "approve": approve, "reason": "as I like"}})
        };
        client.send(&decision(&json!("item_unknown")));
        assert_eq!(client.of_type("error")[0]["error"]["param"], "item.approval_request_id");
        client.send(&decision(&request["id"]));
        client.wait_for(event);
        assert_eq!(client.harness.called.len(), usize::from(approve));
        let item = client.of_type("conversation.item.done").last().unwrap()["item"].clone();
        assert_eq!(item["approval_request_id"], request["id"]);
        client.send(&decision(&request["id"]));
        assert_eq!(client.of_type("error").len(), 2, "answered once");
        client.respond();
        client.check();
        let question = last_question(&client);
        assert!(
            question.contains(if approve { "light: on" } else { "not approved this call: as I" }),
            "{question}"
        );
    }
}

#[test]
fn approval_is_as_the_client_wants_it() {
    for (wanted, of_light, of_time) in [
        (json!("always"), true, true),
        (json!("never"), false, false),
        (json!({"never": {"tool_names": ["time"]}}), true, false),
        (json!({"always": {"tool_names": ["light"]}}), true, false),
        (json!({"never": {"read_only": true}}), true, false),
        (json!({"always": {"tool_names": ["time"]}, "never": {"tool_names": ["light"]}}), false, true),
    ] {
        for (name, needs_approval) in [("light", of_light), ("time", of_time)] {
            let call = CALL.replace("light", name);
            let more = json!({"require_approval": wanted});
            let mut client = connect(config(&[&call], two_tools, |_| Some(result("well", None))), &more);
            client.answer("Please.");
            assert_eq!(client.harness.called.is_empty(), needs_approval, "{wanted}: {name}");
        }
    }
}

#[test]
fn faults_of_a_server_are_reported_and_the_session_goes_on() {
    for (failure, kind) in
        [(CallFailure::Tool, "tool_execution_error"), (CallFailure::Call, "protocol_error")]
    {
        let answer: fn(&ServerCall) -> Option<ServerCallResult> = match failure {
            CallFailure::Tool => |_| Some(result(r#"{"error":"no lamp"}"#, Some(CallFailure::Tool))),
            CallFailure::Call => |_| Some(ServerCallResult::failed("no lamp")),
        };
        let mut client = connect(config(&[CALL, "Sorry."], two_tools, answer), &json!({}));
        client.ask("Switch the light on.");
        client.wait_for("response.mcp_call.failed");
        let item = client.of_type("conversation.item.done").last().unwrap()["item"].clone();
        assert_eq!((&item["error"]["type"], &item["error"]["message"]), (&json!(kind), &json!("no lamp")));
        assert_eq!(item["output"], Value::Null);
    }
    let mut client =
        Realtime::with_config(config(&["Hello."], |_| Err("connection refused".to_owned()), |_| None));
    name_servers(&mut client, &[server("house", &json!({}))]);
    let failed = client.wait_for("mcp_list_tools.failed");
    assert_eq!(failed["error"]["message"], "connection refused");
    client.answer("Hello?");
    client.check();
    assert_eq!(client.of_type("error").len(), 0);
}

#[test]
fn secrets_reach_the_server_alone() {
    let mut config = config(&["Hello."], two_tools, |_| None);
    config.record = Some(AudioRetention::All);
    let client = connect(config, &json!({}));
    let (_, server) = &client.harness.connected[0];
    assert_eq!(server.url, "https://house.example.com/mcp?key=k3y");
    let headers = [("x-room", "secret-hall"), ("authorization", "Bearer t0ken")];
    assert_eq!(server.headers, headers.map(|(name, value)| (name.to_owned(), value.to_owned())));
    let shown = format!("{server:?} {:?}", client.events);
    for secret in ["t0ken", "secret-hall", "k3y"] {
        assert!(!shown.contains(secret), "{secret}: {shown}");
        assert!(!client.harness.trace().contains(secret), "{secret}: {}", client.harness.trace());
    }
}

#[test]
fn recorded_session_replays_identically() {
    let mut config = config(&[CALL, "It is on."], two_tools, |_| Some(result("light: on", None)));
    config.record = Some(AudioRetention::All);
    let mut client = connect(config, &json!({}));
    client.ask("Switch the light on.");
    client.wait_for("response.mcp_call.completed");
    client.respond();
    let outcome =
        replay(&Trace::parse(client.harness.trace()).unwrap(), Library::embedded().unwrap(), epoch())
            .unwrap();
    assert!(outcome.is_same(), "{outcome:#?}");
}

#[test]
fn named_servers_are_kept_replaced_and_left() {
    let mut client = Realtime::with_config(config(&["Hello."], two_tools, |_| None));
    let connected = |client: &Realtime| -> Vec<String> {
        client.harness.connected.iter().map(|(_, server)| server.label.clone()).collect()
    };
    let (house, shop) = (server("house", &json!({})), server("shop", &json!({})));
    for (tools, expected, lists) in [
        (vec![house.clone()], vec!["house"], 1),
        (vec![house.clone(), shop.clone()], vec!["house", "shop"], 2),
        (vec![shop.clone()], vec!["shop"], 2),
        (vec![server("shop", &json!({"authorization": "another"}))], vec!["shop"], 3),
        (vec![], vec![], 3),
    ] {
        name_servers(&mut client, &tools);
        client.pass(500 * MS);
        assert_eq!(connected(&client), expected, "{tools:?}");
        assert_eq!(client.of_type("mcp_list_tools.completed").len(), lists, "{tools:?}");
    }
    client.answer("Hello.");
    assert!(!last_question(&client).contains("<tools>"));
}

#[test]
fn names_that_clash_get_the_label_in_front_and_can_be_chosen() {
    let call = CALL.replace("light", "house_light");
    let mut client = Realtime::with_config(config(&[&call], two_tools, |_| Some(result("on", None))));
    let function = json!({"type": "function", "name": "light"});
    name_servers(&mut client, &[function, server("house", &json!({"allowed_tools": ["light"]}))]);
    client.wait_for("mcp_list_tools.completed");
    client.write("Switch the light on.");
    for (choice, is_good) in [("time", false), ("light", true)] {
        let choice = json!({"type": "mcp", "server_label": "house", "name": choice});
        client.send(&json!({"type": "response.create", "response": {"tool_choice": choice}}));
        assert_eq!(client.of_type("error").len(), 1, "{choice}: {is_good}");
    }
    client.wait_for("response.mcp_call.completed");
    let question = last_question(&client);
    for offered in ["\"light\"", "\"house_light\""] {
        assert!(question.contains(&format!(r#""name": {offered}"#)), "{question}");
    }
    assert!(!question.contains("\"time\""), "{question}");
    assert_eq!(client.harness.called[0].1.tool, "light");
}

#[test]
fn mistakes_are_told_by_their_field_and_never_quote_a_secret() {
    let mut client = Realtime::with_config(config(&[], two_tools, |_| None));
    for (more, param) in [
        (json!({"server_label": null}), "session.tools[0].server_label"),
        (json!({"server_label": "a\nb"}), "session.tools[0].server_label"),
        (json!({"server_url": null}), "session.tools[0].server_url"),
        (json!({"headers": {"Host": "t0ken"}}), "session.tools[0].headers.Host"),
        (json!({"headers": {"a b": "t0ken"}}), "session.tools[0].headers.a b"),
        (json!({"headers": {"x": "t0ken\r\nhost: a"}}), "session.tools[0].headers.x"),
        (json!({"authorization": "t0ken\n"}), "session.tools[0].authorization"),
        (json!({"require_approval": "sometimes"}), "session.tools[0].require_approval"),
        (json!({"allowed_tools": [1]}), "session.tools[0].allowed_tools[0]"),
    ] {
        name_servers(&mut client, &[server("house", &more)]);
        let error = client.of_type("error").last().unwrap()["error"].clone();
        assert_eq!(error["param"], param, "{more}: {error}");
        assert!(!error.to_string().contains("t0ken"), "{error}");
    }
    let twice = [server("house", &json!({})), server("house", &json!({}))];
    name_servers(&mut client, &twice);
    assert_eq!(client.of_type("error").last().unwrap()["error"]["param"], "session.tools[1].server_label");
    assert!(client.harness.connected.is_empty());
}
