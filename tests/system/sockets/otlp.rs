//! OpenTelemetry: what a receiver made of PyPI's `opentelemetry-proto` gets, and what a collector that is not there costs.

use super::*;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// Stops a bench, whose exporters then send what waits.
async fn stop(bench: Bench) {
    let Bench { mut bridge, .. } = bench;
    bridge.stop();
    bridge.wait_for_end().await;
}

/// Closes a client, and waits for the end of its session.
async fn leave(mut client: Client, bench: &Bench) {
    client.socket.close(None).await.unwrap();
    wait_until("the session ends", || bench.sessions.is_empty()).await;
}

/// All spans that the receiver has got, once it has those of this many sessions. The span of a session comes last.
async fn spans(receiver: &PackageServer, sessions: usize) -> Vec<Value> {
    let spans = || -> Vec<Value> {
        receiver.reports().into_iter().filter(|report| report["span"].is_string()).collect()
    };
    let ended = |spans: &[Value]| spans.iter().filter(|span| span["span"] == "session").count();
    wait_until("spans of sessions", || ended(&spans()) >= sessions).await;
    spans()
}

fn named<'s>(spans: &'s [Value], name: &str) -> &'s Value {
    spans.iter().find(|span| span["span"] == name).unwrap_or_else(|| panic!("no span {name}: {spans:#?}"))
}

fn moments(span: &Value) -> Vec<&str> {
    span["events"].as_array().unwrap().iter().map(|event| event[0].as_str().unwrap()).collect()
}

#[tokio::test]
async fn conversation_is_received_as_a_trace_with_metrics() {
    let Some(receiver) = PackageServer::otlp() else { return };
    let config =
        format!("profile = \"assistant\"\n[otlp]\nurl = \"http://{}\"\ncontent = true\n", receiver.address());
    let simulator = SimulatorConfig { answers: vec!["It is warm.".to_owned()], ..instant_simulator() };
    let bench = Bench::with_config(simulator, configuration(&config)).await;
    let headers = format!("traceparent: 00-{TRACE}-{PARENT}-01\r\n");
    let (head, mut client) = bench.open_websocket("/v1/realtime?model=gpt-realtime", &headers).await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
    let content = json!([{"type": "input_text", "text": "Is it warm?"}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client
        .send_json(
            json!({"type": "session.update", "session": {"type": "realtime", "output_modalities": ["text"]}}),
        )
        .await;
    client.send_json(json!({"type": "conversation.item.create", "item": item})).await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.done").await;
    leave(client, &bench).await;
    stop(bench).await;

    let spans = spans(&receiver, 1).await;
    assert!(spans.iter().all(|span| span["trace_id"] == TRACE), "{spans:#?}");
    let session = named(&spans, "session");
    assert_eq!((&session["parent"], &session["kind"]), (&json!(PARENT), &json!("server")));
    assert_eq!(session["attributes"]["voxbridge.end.reason"], "client_close");
    assert_eq!(session["resource"]["service.name"], "voxbridge");
    let turn = named(&spans, "invoke_agent assistant");
    for (name, parent) in [("invoke_agent assistant", session), ("lane", session), ("chat", turn)] {
        assert_eq!(named(&spans, name)["parent"], parent["id"], "{name}");
    }
    assert_eq!(moments(turn), ["asked", "first_delta", "heard"]);
    assert!(turn["attributes"]["gen_ai.output.messages"].as_str().unwrap().contains("It is warm."));

    let has_metrics =
        || receiver.reports().iter().any(|report| report["metric"] == "voxbridge_process_max_fds");
    wait_until("metrics", has_metrics).await;
    let metrics = receiver.reports();
    let metric = |name: &str| {
        metrics.iter().find(|report| report["metric"] == name).unwrap_or_else(|| panic!("{name}"))
    };
    let opened = metric("voxbridge_sessions_opened");
    let counted = opened["points"].as_array().unwrap().iter().map(|point| point["value"].as_f64().unwrap());
    assert_eq!((opened["kind"].as_str(), counted.sum::<f64>()), (Some("sum"), 1.0));
    let duration = metric("voxbridge_session_duration_seconds");
    assert_eq!((duration["kind"].as_str(), duration["unit"].as_str()), (Some("histogram"), Some("s")));
    assert_eq!(metric("voxbridge_otlp_lost")["points"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn upstream_continues_the_trace_as_a_part_of_its_lane() {
    let Some(receiver) = PackageServer::otlp() else { return };
    // Another bridge is the upstream, and exports to the same receiver.
    let otlp = format!("[otlp]\nurl = \"http://{}\"\n", receiver.address());
    let second = Bench::of(configuration(&format!("profile = \"assistant\"\n{otlp}"))).await;
    let upstream = format!(
        "[[upstream]]\nurl = \"ws://{}/v1/realtime\"\ndialect = \"openai-realtime\"\nmodel = \"any\"\n",
        second.address()
    );
    let first = Bench::of(configuration(&format!("profile = \"assistant\"\n{otlp}{upstream}"))).await;
    let mut client = first.dial("/v1/realtime?model=gpt-realtime").await;
    let content = json!([{"type": "input_text", "text": "Hello."}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    client.send_json(json!({"type": "conversation.item.create", "item": item})).await;
    client.send_json(json!({"type": "response.create"})).await;
    client.wait_for_event("response.done").await;
    leave(client, &first).await;
    stop(first).await;
    stop(second).await;
    let spans = spans(&receiver, 2).await;
    let sessions: Vec<&Value> = spans.iter().filter(|span| span["span"] == "session").collect();
    let inner = sessions.iter().find(|session| session["parent"] != "").expect("the second bridge's session");
    let lane = spans.iter().find(|span| span["id"] == inner["parent"]).expect("its parent is recorded");
    assert_eq!((&lane["span"], &lane["trace_id"]), (&json!("lane"), &inner["trace_id"]));
    assert!(spans.iter().all(|span| span["trace_id"] == inner["trace_id"]), "one trace: {spans:#?}");
}

#[tokio::test]
async fn utterance_is_a_span_with_its_transcript_only_if_it_is_wanted() {
    for content in [false, true] {
        let Some(receiver) = PackageServer::otlp() else { return };
        let config = format!("[otlp]\nurl = \"http://{}\"\ncontent = {content}\n", receiver.address());
        let bench = Bench::of(configuration(&config)).await;
        let mut client = bench.client("model=any").await;
        client.send_utterance(&recording("goforward")).await;
        // What was said before is answered.
        let received = client.close().await;
        let words = events(&received, "transcript.final")[0]["text"].as_str().unwrap().to_owned();
        stop(bench).await;
        let spans = spans(&receiver, 1).await;
        let utterance = named(&spans, "utterance");
        assert_eq!(moments(utterance), ["end_of_speech", "transcribed"]);
        assert_eq!(named(&spans, "transcribe")["parent"], utterance["id"]);
        let recorded = utterance["attributes"]["voxbridge.transcript"].as_str();
        assert_eq!(recorded, Some(words.as_str()).filter(|_| content));
    }
}

/// Sessions beside a collector that accepts and never answers, and beside none: both are served, and the loss is counted.
#[tokio::test]
async fn sessions_go_on_beside_a_dead_collector() {
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    // A request to one that hangs is given up with the program.
    for (collector, least_lost) in [(hanging.local_addr().unwrap(), 0.0), (closed_port(), 10.0)] {
        let bench = Bench::of(configuration(&format!("[otlp]\nurl = \"http://{collector}\"\n"))).await;
        for _ in 0..10 {
            let mut client = bench.client("model=any").await;
            client.send_audio(&bytes(&[0; 1600]), 640).await;
            assert_eq!(events(&client.close().await, "session.closed").len(), 1);
        }
        let metrics = bench.metrics.clone();
        stop(bench).await;
        let lost = "voxbridge_otlp_lost_total{signal=\"traces\"} ";
        let text = metrics.render();
        let count = text.lines().find_map(|line| line.strip_prefix(lost)?.parse::<f64>().ok()).unwrap();
        assert!(count >= least_lost, "{count} of {collector}");
    }
    timeout(Duration::from_secs(20), hanging.accept()).await.expect("it was never asked").unwrap();
}
