//! Tool servers: PyPI's server of the Model Context Protocol over both transports, and servers that fail in every way.

use super::*;

/// Time for a server to be connected on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// A call that the model writes.
fn call(tool: &str, arguments: &Value) -> String {
    format!("<tool_call>{}</tool_call>", json!({"name": tool, "arguments": arguments}))
}

/// A bridge with this server `house`, whose model gives these answers.
async fn bench(name: &str, server: &str, answers: &[&str]) -> Bench {
    let mappings = scratch(name);
    let profile = "kind = \"profile\"\nname = \"butler\"\ntitle = \"-\"\nextends = \"assistant\"\n[answer.tools]\nmcp = [\"house\"]\n";
    fs::write(mappings.join("butler.toml"), profile).unwrap();
    let toml = format!(
        "profile = \"butler\"\nmappings = {:?}\n[mcp.house]\n{server}",
        mappings.display().to_string()
    );
    let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
    let simulator = SimulatorConfig { answers, ..instant_simulator() };
    Bench::with_config(simulator, configuration(&toml)).await
}

/// Waits until the server is connected, or is not.
async fn wait_until(bench: &Bench, what: &str, is_so: impl Fn(bool, usize) -> bool) {
    let looking = async {
        loop {
            let views = bench.tools.views();
            if is_so(views[0].is_connected, views[0].tools) {
                return;
            }
            sleep(Duration::from_millis(20)).await;
        }
    };
    let is_over = timeout(PATIENCE, looking).await;
    assert!(is_over.is_ok(), "{what}: {:?}", bench.tools.views());
}

async fn connect(bench: &Bench) -> Client {
    let mut client = bench.dial("/v1/realtime?model=any").await;
    client
        .send_json(
            json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}),
        )
        .await;
    client
}

/// Asks by text. Returns the words of the answer, and the last question to the model.
async fn ask(bench: &Bench, client: &mut Client, text: &str) -> (String, String) {
    let content = json!([{"type": "input_text", "text": text}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send_json(json!({"type": "conversation.item.create", "item": item})).await;
    client.send_json(json!({"type": "response.create"})).await;
    let done = client.wait_for_event("response.done").await;
    let output = done["response"]["output"].as_array().unwrap();
    let words = |item: &Value| item["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let question = |input: RecordedInput| match input {
        RecordedInput::Message(_, text) if text.contains("input.append") => Some(text),
        _ => None,
    };
    let asked = bench.recorder.all().into_iter().rev().find_map(question).unwrap();
    (output.iter().map(words).collect::<Vec<_>>().join(" "), asked)
}

/// The server's section for the program of the package.
fn program() -> Option<String> {
    let (command, packages) = PackageServer::mcp_command()?;
    Some(format!(
        "command = {command:?}\nenvironment = {{ PYTHONPATH = {packages:?}, HOUSE = \"villa\" }}\ntimeout_ms = 1000\n"
    ))
}

/// Tools of the package's server work, or fail as they should; the session goes on.
async fn check_tools(name: &str, server: &str, extra: (&str, Value, &str)) {
    let calls = [
        (call("temperature", &json!({"room": "hall"})), "It is 21 degrees in the hall."),
        (call("fail", &json!({})), "the valve is stuck"),
        (call("sleep", &json!({"seconds": 30})), "no result within 1 s"),
        (call("large", &json!({"length": 100_000})), "(cut: 100000 bytes)"),
        (call(extra.0, &extra.1), extra.2),
        (call("picture", &json!({})), "iVBORw0KGgoAAAANSUhEUgAAAAEAAAAB"),
        (call("grow", &json!({})), "grown"),
    ];
    let answers: Vec<&str> = calls.iter().flat_map(|(call, _)| [call.as_str(), "Fine."]).collect();
    let bench = bench(name, server, &answers).await;
    wait_until(&bench, name, |is_connected, tools| is_connected && tools == 9).await;
    let mut client = connect(&bench).await;
    for (called, result) in &calls {
        let (words, asked) = ask(&bench, &mut client, "Please.").await;
        assert_eq!(words, "Fine.", "{called}");
        // A cut result is cut once more to the size of the history.
        let result = if result.starts_with("(cut") { "… (cut)" } else { result };
        assert!(asked.contains(result), "{called}: {asked}");
    }
    assert!(events(&client.received, "error").is_empty(), "{}", client.describe_received());
    wait_until(&bench, "the new tool", |_, tools| tools == 10).await;
}

#[test]
fn unknown_server_of_a_profile_is_told_with_a_suggestion() {
    let mappings = scratch("mcp_unknown");
    let profile = "kind = \"profile\"\nname = \"butler\"\ntitle = \"-\"\nextends = \"assistant\"\n[answer.tools]\nmcp = [\"hous\"]\n";
    fs::write(mappings.join("butler.toml"), profile).unwrap();
    let head = format!(
        "profile = \"butler\"\nmappings = {:?}\n[[upstream]]\nurl = \"ws://a\"\n",
        mappings.display().to_string()
    );
    for (servers, words) in [
        (
            "[mcp.house]\nurl = \"http://a/mcp\"\n",
            "`hous` ([answer.tools] mcp), which is no [mcp] server, did you mean `house`?",
        ),
        ("", "which is no [mcp] server; describe it in [mcp.hous]"),
    ] {
        let problem = configuration(&format!("{head}{servers}")).check().unwrap_err();
        assert!(problem.contains(words), "{problem}");
    }
}

#[tokio::test]
async fn program_is_called_with_its_own_environment() {
    let Some(server) = program() else { return };
    check_tools("mcp_program", &server, ("variable", json!({"name": "HOUSE"}), "villa")).await;
}

#[tokio::test]
async fn http_server_is_called_with_the_operators_headers() {
    for options in [&[][..], &["--json"]] {
        let Some(server) = PackageServer::mcp(options) else { return };
        let token = scratch("mcp_token").join("token");
        fs::write(&token, "secret-token\n").unwrap();
        let section =
            format!("url = \"http://{}/mcp\"\ntoken_file = {token:?}\ntimeout_ms = 1000\n", server.address());
        let extra = ("header", json!({"name": "authorization"}), "Bearer secret-token");
        check_tools("mcp_http", &section, extra).await;
    }
}

#[tokio::test]
async fn program_that_dies_in_a_call_is_started_again() {
    let Some(server) = program() else { return };
    for dies in [call("die", &json!({})), call("large", &json!({"length": 100_000_000}))] {
        let answers = [dies.as_str(), "Sorry.", &call("temperature", &json!({"room": "attic"})), "Warm."];
        let bench = bench("mcp_dies", &server, &answers).await;
        wait_until(&bench, "first start", |is_connected, _| is_connected).await;
        let mut client = connect(&bench).await;
        let (words, _) = ask(&bench, &mut client, "Die.").await;
        assert_eq!(words, "Sorry.", "{dies}");
        wait_until(&bench, "its end", |is_connected, _| !is_connected).await;
        wait_until(&bench, "second start", |is_connected, _| is_connected).await;
        let (words, asked) = ask(&bench, &mut client, "And now?").await;
        assert!(words == "Warm." && asked.contains("21 degrees in the attic"), "{dies}: {words}: {asked}");
    }
}

/// A server of the Model Context Protocol that answers each request as the test wants: status, headers and body.
pub(super) async fn scripted(
    answer: impl Fn(&Value) -> (u16, String, String) + Send + Sync + 'static,
) -> SocketAddr {
    let answer = Arc::new(answer);
    serve_each(move |stream| serve_scripted(stream, answer.clone())).await
}

async fn serve_scripted(mut stream: TcpStream, answer: Arc<impl Fn(&Value) -> (u16, String, String)>) {
    let mut request = Vec::new();
    let body = loop {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.trim().parse::<usize>().ok());
        if body.len() >= length.unwrap_or(0) {
            break body.to_owned();
        }
    };
    let message: Value = serde_json::from_str(&body).unwrap_or(Value::Null);
    let (status, headers, body) = match message["method"].as_str() {
        None => (405, String::new(), String::new()),
        Some("initialize") => (
            200,
            String::new(),
            answer_to(
                &message,
                json!({
            "protocolVersion": "2025-06-18", "capabilities": {"tools": {"listChanged": true}},
            "serverInfo": {"name": "scripted", "version": "1"}}),
            ),
        ),
        Some(method) if method.starts_with("notifications/") => (202, String::new(), String::new()),
        Some(_) => answer(&message),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status} -\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{headers}connection: close\r\n\r\n"
    );
    let _ = stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).await;
}

fn answer_to(request: &Value, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result}).to_string()
}

pub(super) fn list(request: &Value, cursor: Option<&str>) -> String {
    let tool = json!({"name": "light", "inputSchema": {"type": "object"}});
    answer_to(request, json!({"tools": [tool], "nextCursor": cursor}))
}

#[tokio::test]
async fn server_that_fails_in_any_way_costs_the_call_alone() {
    let visited = Arc::new(AtomicUsize::new(0));
    let visits = visited.clone();
    let inner = scripted(move |_| {
        visits.fetch_add(1, Relaxed);
        (200, String::new(), "{}".to_owned())
    })
    .await;
    type Answer = fn(&Value, SocketAddr) -> (u16, String, String);
    let faults: [(&str, Answer, &str); 6] = [
        (
            "redirect",
            |_, inner| (307, format!("location: http://{inner}/mcp\r\n"), String::new()),
            "redirects are not followed",
        ),
        ("bad JSON", |_, _| (200, String::new(), "{\"jsonrpc\": \"2.0\", ".to_owned()), "is no JSON of MCP"),
        ("refusal", |_, _| (500, String::new(), "out of order".to_owned()), "out of order"),
        (
            "100 MB",
            |request, _| {
                let text = "x".repeat(100_000_000);
                (200, String::new(), answer_to(request, json!({"content": [{"type": "text", "text": text}]})))
            },
            "longer than 8388608 bytes",
        ),
        (
            "no content",
            |request, _| (200, String::new(), answer_to(request, json!({"content": []}))),
            "tool_response",
        ),
        (
            "JSON-RPC's error",
            |request, _| {
                let error = json!({"code": -32602, "message": "no such lamp"});
                (
                    200,
                    String::new(),
                    json!({"jsonrpc": "2.0", "id": request["id"], "error": error}).to_string(),
                )
            },
            "no such lamp",
        ),
    ];
    for (fault, answer, shown) in faults {
        let server = scripted(move |request| match request["method"].as_str() {
            Some("tools/list") => (200, String::new(), list(request, None)),
            _ => answer(request, inner),
        })
        .await;
        let light = call("light", &json!({}));
        let section = format!("url = \"http://{server}/mcp\"\ntimeout_ms = 5000\n");
        let bench = bench("mcp_faults", &section, &[&light, "Sorry.", "Still here."]).await;
        wait_until(&bench, fault, |is_connected, _| is_connected).await;
        let mut client = connect(&bench).await;
        let (words, asked) = ask(&bench, &mut client, "Light, please.").await;
        assert_eq!(words, "Sorry.", "{fault}");
        assert!(asked.contains(shown), "{fault}: {asked}");
        assert_eq!(ask(&bench, &mut client, "Are you there?").await.0, "Still here.", "{fault}");
        assert!(bench.tools.views()[0].is_connected, "{fault}");
    }
    assert_eq!(visited.load(Relaxed), 0, "no redirect is followed");
}

#[tokio::test]
async fn server_that_is_down_at_the_start_is_offered_when_it_is_back() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = port.local_addr().unwrap();
    drop(port);
    let light = call("light", &json!({}));
    let section = format!("url = \"http://{address}/mcp\"\n");
    let bench = bench("mcp_down", &section, &["Hello.", &light, "It is on."]).await;
    let mut client = connect(&bench).await;
    let (words, asked) = ask(&bench, &mut client, "Hello.").await;
    assert!(words == "Hello." && !asked.contains("<tools>"), "{asked}");
    let listener = TcpListener::bind(address).await.unwrap();
    tokio::spawn(async move {
        let answer = Arc::new(|request: &Value| match request["method"].as_str() {
            // A list without an end is cut.
            Some("tools/list") => (200, String::new(), list(request, Some("more"))),
            _ => {
                (200, String::new(), answer_to(request, json!({"content": [{"type": "text", "text": "on"}]})))
            }
        });
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve_scripted(stream, answer.clone()));
        }
    });
    wait_until(&bench, "its return", |is_connected, tools| is_connected && tools == 1).await;
    assert_eq!(ask(&bench, &mut client, "Light, please.").await.0, "It is on.", "in the same session");
}
