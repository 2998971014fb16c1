//! Unmodified public clients of OpenAI's Realtime API let the simulated model call a function: each gets the call, returns a result
//! and hears an answer.

use voxbridge::simulator::{RealtimeServer, SimDialect};
use voxbridge_test_support::{bench::upstream_of, servers::PackageServer};

use super::{readme_rows::ReadmeRow, *};

const WRONG_CALL: &str = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"town\": \"Rome\"}}";
const CALL: &str = "```json\n<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"city\\\": \\\"Rome\\\"}\"}</tool_call>\n```";
const ANSWER: &str = "It is sunny in Rome.";

/// The library, its row in README or on the page of its protocol, its driver, and whether it always uses TLS.
fn clients() -> Vec<(&'static str, ReadmeRow, Command, bool)> {
    let pipecat = &["pipecat", "openai", "aiohttp"];
    let livekit = &["livekit", "openai", "aiohttp", "pipecat"];
    vec![
        ("openai", row("OpenAI, Python 2"), python("openai_tools.py", &["openai"]), false),
        (
            "openai-agents",
            page_row("openai-realtime", "openai-agents "),
            python("openai_agents_tools.py", &["openai"]),
            false,
        ),
        (
            "agents-realtime",
            page_row("openai-realtime", "@openai/agents-realtime "),
            node("openai_agents_tools.cjs"),
            false,
        ),
        ("pipecat", row("Pipecat"), python("pipecat_tools.py", pipecat), false),
        ("livekit", row("LiveKit"), python("livekit_tools.py", livekit), false),
        ("openai for JavaScript", row("OpenAI, JavaScript"), node("openai_tools.cjs"), true),
    ]
}

/// Runs every client against a bench of its own, whose model gives these answers first.
async fn run_clients(answers: &[&str]) -> Vec<(&'static str, Value)> {
    let mut running = JoinSet::new();
    for (name, row, mut client, needs_tls) in clients() {
        let answers = answers.iter().map(|answer| (*answer).to_owned()).collect();
        let simulator = SimulatorConfig { workers: 4, answers, ..instant_simulator() };
        let bench = Bench::with_config(simulator, Config::default()).await;
        let mut address = bench.address().to_string();
        if needs_tls {
            let certificate = certs::self_signed("localhost");
            let tls = certs::serve_tls(bench.address(), certs::acceptor(&certificate)).await;
            let trusted = scratch(&format!("client_tools_{}", bench.address().port())).join("trusted.pem");
            std::fs::write(&trusted, &certificate.0).unwrap();
            client.env("NODE_EXTRA_CA_CERTS", trusted);
            address = format!("localhost:{}", tls.port());
        }
        client.arg(row.code_for(address));
        running.spawn(async move {
            let came = run(client).await;
            drop(bench);
            (name, serde_json::from_str(&came).unwrap())
        });
    }
    running.join_all().await
}

fn assert_called(name: &str, came: &Value, answer: &str) {
    println!("{name}: {came}");
    assert_eq!(came["called"], json!([{"city": "Rome"}]), "{name}");
    assert_eq!(came["answer"].as_str().unwrap().trim(), answer, "{name}");
    assert!(came["audio_s"].as_f64() > Some(0.5), "{name}: {came}");
    for field in ["errors", "invalid"] {
        assert!(came[field].is_null() || came[field] == json!([]), "{name}: {}", came[field]);
    }
}

/// The library's own metrics count input and output of both responses: the call, and the spoken answer.
fn assert_counted(name: &str, came: &Value) {
    let usage = came["usage"].as_array().unwrap();
    let tokens: Vec<u64> = usage
        .iter()
        .flat_map(|response| response.as_array().unwrap())
        .map(|count| count.as_u64().unwrap())
        .collect();
    assert!(tokens.len() == 4 && tokens.iter().all(|count| *count > 3), "{name}: {usage:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_libraries_call_a_function_and_speak_its_result() {
    if installed_clients().is_none() {
        return;
    }
    for (name, came) in run_clients(&[]).await {
        assert_called(name, &came, "The tool says sunny in Rome.");
        if ["pipecat", "livekit"].contains(&name) {
            assert_counted(name, &came);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn openai_libraries_call_a_function_after_a_repaired_mistake() {
    if installed_clients().is_none() {
        return;
    }
    for (name, came) in run_clients(&[WRONG_CALL, CALL, ANSWER]).await {
        assert_called(name, &came, ANSWER);
    }
}

/// vLLM-Omni's own turn handler offers the tools to its model: nothing between the two changes a call.
#[tokio::test(flavor = "multi_thread")]
async fn openai_agents_get_the_call_of_a_model_that_is_offered_tools_byte_for_byte() {
    const ARGUMENTS: &str = r#"{"city":  "R\u006fme"}"#;
    if installed_clients().is_none() {
        return;
    }
    let Some(server) = PackageServer::vllm_omni_turns(&[]) else { return };
    let call = json!({"name": "get_weather", "arguments": ARGUMENTS});
    server.script(json!({"answers": [{"text": "", "call": call, "audio_ms": 0}]})).await;
    let dialect = SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni);
    let upstream = vec![upstream_of(dialect, server.address())];
    let bench = Bench::of(Config { upstream, ..Config::default() }).await;
    let mut client = python("openai_agents_tools.py", &["openai"]);
    client.arg(page_row("openai-realtime", "openai-agents ").code_for(bench.address()));
    let came: Value = serde_json::from_str(&run(client).await).unwrap();
    assert_called("openai-agents", &came, "Part 1. Part 2. Part 3.");
    assert_eq!(came["arguments"], json!([ARGUMENTS]));
    let asked = server.record().await;
    let messages = asked[1]["messages"].as_array().unwrap();
    let called = messages.iter().map(|message| &message["tool_calls"][0]["function"]["arguments"]);
    assert!(called.into_iter().any(|arguments| arguments == ARGUMENTS), "{messages:?}");
}

/// PyPI's server of the Model Context Protocol, named by the client. One of its two tools needs the client's approval, and gets the
/// client's token.
#[cfg(feature = "mcp")]
#[tokio::test(flavor = "multi_thread")]
async fn openai_libraries_call_tools_of_a_server_that_they_name() {
    const WARMTH: &str = r#"<tool_call>{"name": "temperature", "arguments": {"room": "hall"}}</tool_call>"#;
    const HEADER: &str =
        r#"<tool_call>{"name": "header", "arguments": {"name": "authorization"}}</tool_call>"#;
    if installed_clients().is_none() {
        return;
    }
    let Some(server) = PackageServer::mcp(&[]) else { return };
    let answers = [WARMTH, "It is warm.", HEADER, "It is a key."].map(str::to_owned).to_vec();
    let url = format!("http://{}/mcp", server.address());
    let agents = page_row("openai-realtime", "@openai/agents-realtime ");
    for (name, mut client, code, scope) in [
        ("openai", python("openai_mcp.py", &["openai"]), row("OpenAI, Python 2"), "session"),
        (
            "openai, for one response",
            python("openai_mcp.py", &["openai"]),
            row("OpenAI, Python 2"),
            "response",
        ),
        ("agents-realtime", node("openai_agents_mcp.cjs"), agents, "session"),
    ] {
        let simulator = SimulatorConfig { workers: 4, answers: answers.clone(), ..instant_simulator() };
        let tool_servers = vec![format!("http://{}/mcp", server.address())];
        let access = voxbridge::config::AccessConfig { tool_servers, ..Default::default() };
        let bench = Bench::with_config(simulator, Config { access, ..Config::default() }).await;
        client.arg(code.code_for(bench.address())).args([&url, scope]);
        let came: Value = serde_json::from_str(&run(client).await).unwrap();
        println!("{name}: {came}");
        let called = json!([
            ["house", "temperature", {"room": "hall"}, "It is 21 degrees in the hall."],
            ["house", "header", {"name": "authorization"}, "Bearer secret-token"]
        ]);
        assert_eq!(came["called"], called, "{name}");
        assert_eq!(came["approved"], json!([["header", {"name": "authorization"}]]), "{name}");
        assert_eq!(came["listed"], json!(["temperature", "header"]), "{name}");
        assert_eq!(came["answers"], json!(["It is warm.", "It is a key."]), "{name}");
        for field in ["errors", "invalid"] {
            assert_eq!(came[field], json!([]), "{name}");
        }
        assert!(!came["echo"].to_string().contains("secret"), "{name}: {}", came["echo"]);
    }
}
