//! Tool servers that clients name: which are connected at all, and what is refused.

use voxbridge::config::AccessConfig;

use super::tool_servers::{list, scripted};
use super::*;

/// A bridge that allows tool servers by these patterns, whose model gives these answers.
async fn bench(patterns: &[&str], answers: &[&str]) -> Bench {
    let tool_servers = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    let access = AccessConfig { tool_servers, ..AccessConfig::default() };
    let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let simulator = SimulatorConfig { answers, ..instant_simulator() };
    Bench::with_config(simulator, Config { access, ..Config::default() }).await
}

/// A client that names the server at this URL.
async fn connect(bench: &Bench, url: &str) -> Client {
    let mut client = bench.dial("/v1/realtime?model=any").await;
    let server = json!({
        "type": "mcp", "server_label": "house", "server_url": url, "authorization": "t0ken",
        "headers": {"x-room": "hall"}, "require_approval": "never",
    });
    let session = json!({"type": "realtime", "output_modalities": ["text"], "tools": [server]});
    client.send_json(json!({"type": "session.update", "session": session})).await;
    client
}

/// A server that counts its requests.
async fn counting() -> (SocketAddr, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    let address = scripted(move |request| {
        counted.fetch_add(1, Relaxed);
        (200, String::new(), list(request, None))
    })
    .await;
    (address, count)
}

#[tokio::test]
async fn server_that_is_not_allowed_is_never_connected() {
    let (address, count) = counting().await;
    let port = address.port();
    let any = &["http://*:*", "https://*:*"][..];
    for (patterns, host, words) in [
        (&[][..], "127.0.0.1", "access.tool_servers"),
        (&["http://127.0.0.1:1"], "127.0.0.1", "access.tool_servers"),
        (any, "127.0.0.1", "inner network"),
        (any, "localhost", "inner network"),
        (any, "127.1", "inner network"),
        (any, "[::ffff:127.0.0.1]", "inner network"),
        (any, "[::1]", "inner network"),
        (any, "0.0.0.0", "inner network"),
    ] {
        let bench = bench(patterns, &["Hello."]).await;
        let mut client = connect(&bench, &format!("http://{host}:{port}/mcp")).await;
        let failed = client.wait_for_event("mcp_list_tools.failed").await;
        let problem = failed["error"]["message"].as_str().unwrap();
        assert!(problem.contains(words), "{host}: {problem}");
        client.send_json(json!({"type": "response.create"})).await;
        let done = client.wait_for_event("response.done").await;
        assert_eq!(done["response"]["status"], "completed", "{host}: the session goes on");
        assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
    }
    assert_eq!(count.load(Relaxed), 0);
}

#[tokio::test]
async fn redirect_of_an_allowed_server_is_not_followed() {
    let (inner, count) = counting().await;
    let server = scripted(move |request: &Value| match request["method"].as_str() {
        Some("tools/list") => (200, String::new(), list(request, None)),
        _ => (307, format!("location: http://{inner}/mcp\r\n"), String::new()),
    })
    .await;
    let call = r#"<tool_call>{"name": "light", "arguments": {}}</tool_call>"#;
    let bench = bench(&["http://127.0.0.1:*"], &[call]).await;
    let mut client = connect(&bench, &format!("http://{server}/mcp")).await;
    client.wait_for_event("mcp_list_tools.completed").await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.mcp_call.failed").await;
    let item = client.wait_for_event("response.output_item.done").await["item"].clone();
    assert!(item["error"]["message"].as_str().unwrap().contains("redirects are not followed"), "{item}");
    assert_eq!(count.load(Relaxed), 0);
    let metrics = bench.metrics.render();
    assert!(metrics.contains(r#"server="(client)""#) && !metrics.contains("house"), "{metrics}");
}

#[tokio::test]
async fn allowed_server_gets_the_clients_headers() {
    let Some(server) = PackageServer::mcp(&[]) else { return };
    let call = |name: &str| {
        format!(r#"<tool_call>{{"name": "header", "arguments": {{"name": "{name}"}}}}</tool_call>"#)
    };
    let calls = [call("authorization"), call("x-room")];
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let bench = bench(&["http://127.0.0.1:*/mcp"], &calls).await;
    let mut client = connect(&bench, &format!("http://{}/mcp", server.address())).await;
    client.wait_for_event("mcp_list_tools.completed").await;
    for value in ["Bearer t0ken", "hall"] {
        client.send_json(json!({"type": "response.create"})).await;
        client.wait_for_event("response.mcp_call.completed").await;
        let item = client.wait_for_event("response.output_item.done").await["item"].clone();
        assert_eq!(item["output"], value);
    }
}

#[tokio::test]
async fn tools_that_a_server_adds_are_offered() {
    let Some(server) = PackageServer::mcp(&[]) else { return };
    let call = |name: &str| format!(r#"<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>"#);
    let calls = [call("grow"), call("grown")];
    let calls: Vec<&str> = calls.iter().map(String::as_str).collect();
    let bench = bench(&["http://127.0.0.1:*/mcp"], &calls).await;
    let mut client = connect(&bench, &format!("http://{}/mcp", server.address())).await;
    let listed = client.wait_for_event("mcp_list_tools.completed").await;
    client.send_json(json!({"type": "response.create"})).await;
    let again = client.wait_for_event("mcp_list_tools.completed").await;
    assert_eq!(again["item_id"], listed["item_id"], "the list is the same item");
    let lists: Vec<Value> = events(&client.received, "conversation.item.done")
        .into_iter()
        .map(|event| event["item"].clone())
        .filter(|item| item["type"] == "mcp_list_tools")
        .collect();
    let has_new = |list: &Value| list["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "grown");
    assert_eq!(lists.iter().map(has_new).collect::<Vec<_>>(), [false, true], "{lists:#?}");
    client.send_json(json!({"type": "response.create"})).await;
    let called = async {
        loop {
            let item = client.wait_for_event("response.output_item.done").await["item"].clone();
            if item["name"] == "grown" {
                return item;
            }
        }
    };
    assert_eq!(called.await["output"], "grown");
}
