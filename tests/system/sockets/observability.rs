//! Metrics and access log over real sockets: figures match the events, and log records are complete.

use voxbridge::{
    config::AccessLogConfig,
    telemetry::{access_log::AccessRecord, metrics::RejectReason},
};
use voxbridge_test_support::servers::unresponsive_upstream;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

/// A test's own log file, not yet created, and a configuration that logs there.
fn logging_config(name: &str) -> (PathBuf, Config) {
    let path = scratch(name).join("access.log");
    let _ = fs::remove_file(&path);
    let access_log = AccessLogConfig { path: Some(path.clone()) };
    (path, Config { access_log, ..Config::default() })
}

fn read_log_lines(path: &PathBuf) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Samples by name; the sum adds samples that carry all given labels.
struct MetricSamples(BTreeMap<String, f64>);

impl MetricSamples {
    fn scrape(metrics: &Metrics) -> Self {
        let text = metrics.render();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        Self(
            samples
                .filter_map(|line| line.rsplit_once(' '))
                .map(|(name, value)| (name.to_owned(), value.parse().unwrap()))
                .collect(),
        )
    }

    fn sum(&self, name: &str, labels: &[&str]) -> f64 {
        let matches = |series: &str| {
            series.split('{').next() == Some(name) && labels.iter().all(|label| series.contains(label))
        };
        self.0.iter().filter(|(series, _)| matches(series)).map(|(_, value)| value).sum()
    }
}

#[tokio::test]
async fn transcription_and_text_are_counted_and_logged() {
    let (path, config) = logging_config("observed");
    let bench = Bench::of(config).await;
    let mut client = bench.client("model=x").await;
    let question = recording("goforward");
    client.send_utterance(&question).await;
    client.wait_for_event("transcript.final").await;
    client.wait_for_event("vad.speech_end").await;
    client.send_json(json!({"type": "tts.speak", "text": "Go forward.", "request_id": "a"})).await;
    client.wait_for_event("tts.speaking_end").await;
    client.send_json(json!({"type": "nonsense"})).await;
    client.wait_for_event("error").await;
    let view = serde_json::to_value(bench.sessions.all()[0].view()).unwrap();
    assert_has(&view, json!({"/client": "macaw", "/state": "idle", "/errors": 1}));
    assert_eq!(view["last_event"], "error");
    assert_eq!(MetricSamples::scrape(&bench.metrics).sum("voxbridge_sessions", &["state=\"idle\""]), 1.0);
    client.send_json(json!({"type": "session.close"})).await;
    client.read_to_end().await;
    let played_s = audio(&client.received).len() as f64 / 24_000.0;
    let frames_out = client
        .received
        .iter()
        .filter(|frame| !matches!(frame, ClientFrame::Close(..) | ClientFrame::End(_)))
        .count();
    let metrics = bench.metrics.clone();
    let Bench { mut bridge, .. } = bench;
    bridge.stop();
    bridge.wait_for_end().await;

    let line = &read_log_lines(&path)[0];
    let samples = MetricSamples::scrape(&metrics);
    let route_labels = ["protocol=\"macaw\"", "profile=\"speech\""];
    // Includes the silence that ends the utterance.
    let seconds = (question.len() + 8_000) as f64 / 16_000.0;
    for (name, labels, value) in [
        ("voxbridge_sessions", &[][..], 0.0),
        ("voxbridge_sessions_opened_total", &route_labels, 1.0),
        ("voxbridge_sessions_ended_total", &["reason=\"client_close\"", "origin=\"client\""], 1.0),
        ("voxbridge_sessions_ended_total", &[], 1.0),
        ("voxbridge_session_duration_seconds_count", &route_labels, 1.0),
        ("voxbridge_first_transcript_seconds_count", &route_labels, 1.0),
        ("voxbridge_first_audio_seconds_count", &["trigger=\"text\""], 1.0),
        ("voxbridge_lanes_connected_total", &["purpose=\"transcribe\""], 1.0),
        ("voxbridge_lanes_connected_total", &["purpose=\"speak\""], 1.0),
        ("voxbridge_lanes", &[], 0.0),
        ("voxbridge_lane_queue_seconds_count", &[], 2.0),
        ("voxbridge_lane_init_seconds_count", &[], 2.0),
        ("voxbridge_audio_in_seconds_total", &route_labels, seconds),
        ("voxbridge_audio_out_seconds_total", &route_labels, played_s),
        ("voxbridge_audio_dropped_seconds_total", &[], 0.0),
        ("voxbridge_frames_total", &["side=\"client\"", "direction=\"out\""], frames_out as f64),
        ("voxbridge_errors_total", &["kind=\"unknown_command\"", "origin=\"client\""], 1.0),
        ("voxbridge_errors_total", &[], 1.0),
        (
            "voxbridge_connections_closed_total",
            &["side=\"client\"", "closed_by=\"bridge\"", "code=\"1000\""],
            1.0,
        ),
        ("voxbridge_connections_closed_total", &["side=\"upstream\""], 2.0),
        ("voxbridge_upstream_in_service", &[], 1.0),
        ("voxbridge_connections_rejected_total", &[], 0.0),
    ] {
        let counted = samples.sum(name, labels);
        assert!((counted - value).abs() < 0.001, "{name}{labels:?}: {counted}, not {value}");
    }
    let bytes = |side: &str, direction: &str| {
        samples.sum("voxbridge_transferred_bytes_total", &[side, direction]) as u64
    };
    for (side, direction, field) in [
        ("client", "in", "client_in_bytes"),
        ("client", "out", "client_out_bytes"),
        ("upstream", "in", "upstream_in_bytes"),
        ("upstream", "out", "upstream_out_bytes"),
    ] {
        assert_eq!(line[field], bytes(&format!("side=\"{side}\""), &format!("\"{direction}\"")), "{field}");
    }
    assert!(line["client_in_bytes"].as_f64().unwrap() > 2.0 * 16_000.0 * seconds, "{line}");

    // Every documented field is present with the right value.
    let documented = serde_json::to_value(AccessRecord::default()).unwrap();
    let keys = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(keys(line), keys(&documented));
    for (field, value) in [
        ("client", json!("macaw")),
        ("profile", json!("speech")),
        ("path", json!("/v1/realtime")),
        ("lanes", json!(2)),
        ("rollovers", json!(0)),
        ("barge_ins", json!(0)),
        ("errors", json!({"unknown_command": 1})),
        ("reason", json!("client_close")),
        ("ended_by", json!("client")),
        ("client_close", json!(1000)),
        ("client_closed_by", json!("bridge")),
        ("upstream_closed_by", json!("upstream")),
        ("audio_in_s", json!(seconds)),
    ] {
        assert_eq!(line[field], value, "{field}: {line}");
    }
    for field in ["duration_s", "queue_ms", "first_transcript_ms", "first_audio_ms", "audio_out_s"] {
        assert!(line[field].as_f64().is_some_and(|value| value >= 0.0), "{field}: {line}");
    }
    assert_eq!(line["upstream_sessions"].as_array().unwrap().len(), 2, "{line}");
    assert!(line["session"].as_str().unwrap().starts_with("sess_"), "{line}");
    assert_eq!(line["trace_id"].as_str().unwrap().len(), 32, "{line}");
    assert!(line["opened"].as_str().unwrap() <= line["closed"].as_str().unwrap(), "{line}");
}

/// How a client's session ends.
#[derive(Debug, Clone, Copy)]
enum End {
    /// The client asks for it, and voxbridge closes the connection.
    Asked,
    /// The client closes the connection in the ordinary way, or loses it.
    ByClient,
    Lost,
    /// A stopping voxbridge cuts it off, although its client was told goodbye, or has left before.
    CutOff,
    CutOffAfterClient,
}

#[tokio::test]
async fn connection_of_a_client_is_counted_as_closed_once() {
    for (end, closed_by, code) in [
        (End::Asked, "bridge", "1000"),
        (End::ByClient, "peer", "1000"),
        (End::Lost, "peer", "lost"),
        (End::CutOff, "bridge", "1012"),
        (End::CutOffAfterClient, "peer", "1000"),
    ] {
        let upstream = unresponsive_upstream().await;
        let is_cut_off = matches!(end, End::CutOff | End::CutOffAfterClient);
        let mut config = Config::default();
        config.drain.timeout_ms = Some(400);
        if is_cut_off {
            config.upstream = vec![upstream_at(upstream)];
        }
        let mut bench = Bench::of(config).await;
        let mut client = bench.client("model=x").await;
        client.send_json(json!({"type": "tts.speak", "text": "Hello."})).await;
        if is_cut_off {
            // Nothing follows it on this upstream.
            let view = || serde_json::to_value(bench.sessions.all()[0].view()).unwrap();
            wait_until("the lane is ready", || view()["last_event"] == "lane_ready").await;
        } else {
            client.wait_for_event("tts.speaking_start").await;
        }
        let closes = |labels: &[&str]| {
            MetricSamples::scrape(&bench.metrics).sum("voxbridge_connections_closed_total", labels)
        };
        let is_counted = || closes(&["side=\"client\""]) > 0.0;
        match end {
            End::Asked => drop(client.close().await),
            End::Lost => drop(client),
            End::ByClient | End::CutOffAfterClient => {
                client.socket.close(Some(normal_close())).await.unwrap();
            }
            End::CutOff => {
                bench.bridge.stop();
                client.read_to_end().await;
            }
        }
        wait_until("the client has left", is_counted).await;
        bench.bridge.stop();
        bench.bridge.wait_until_ended().await;
        let labels = [format!("closed_by=\"{closed_by}\""), format!("code=\"{code}\"")];
        let all = closes(&["side=\"client\""]);
        let expected = closes(&["side=\"client\"", &labels[0], &labels[1]]);
        assert_eq!((all, expected), (1.0, 1.0), "{end:?}: {}", bench.metrics.render());
    }
}

fn normal_close() -> CloseFrame {
    CloseFrame { code: CloseCode::Normal, reason: "".into() }
}

#[tokio::test]
async fn rejected_client_is_counted_and_not_logged() {
    let (path, mut config) = logging_config("refused");
    let route = RouteConfig::catch_all("speech");
    config.routes = vec![RouteConfig { model: "whisper*".into(), ..route }];
    let bench = Bench::of(config).await;
    bench.http("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    bench.http("GET /v1/realtime HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    bench.dial("/v1/realtime?model=nope").await.read_to_end().await;
    let samples = MetricSamples::scrape(&bench.metrics);
    for reason in [RejectReason::NotFound, RejectReason::NoUpgrade, RejectReason::UnknownModel] {
        let label = format!("reason=\"{}\"", reason.name());
        assert_eq!(samples.sum("voxbridge_connections_rejected_total", &[&label]), 1.0, "{label}");
    }
    assert_eq!(samples.sum("voxbridge_connections_rejected_total", &[]), 3.0);
    assert_eq!(samples.sum("voxbridge_sessions_opened_total", &[]), 0.0);
    assert!(bench.sessions.is_empty());
    let Bench { mut bridge, .. } = bench;
    bridge.stop();
    bridge.wait_for_end().await;
    assert_eq!(read_log_lines(&path), [json!(null); 0]);
}

/// Waits until this many connections were rejected for this reason and none for another.
async fn wait_for_refused_count(metrics: &Metrics, reason: RejectReason, count: f64) {
    let label = format!("reason=\"{}\"", reason.name());
    let rejected =
        |labels: &[&str]| MetricSamples::scrape(metrics).sum("voxbridge_connections_rejected_total", labels);
    wait_until(&label, || rejected(&[&label]) >= count).await;
    assert_eq!((rejected(&[&label]), rejected(&[])), (count, count), "{label}");
}

/// Waits until the server closes the connection.
async fn wait_for_hangup(mut stream: TcpStream) {
    let mut rest = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut rest)).await.expect("still open");
}

#[tokio::test]
async fn evicted_and_timed_out_handshakes_are_counted() {
    let mut config = Config::default();
    config.limits.handshakes_max = Some(1);
    let bench = Bench::of(config).await;
    let tcp = || TcpStream::connect(bench.address());
    let (oldest, _newest) = (tcp().await.unwrap(), tcp().await.unwrap());
    wait_for_hangup(oldest).await;
    wait_for_refused_count(&bench.metrics, RejectReason::HandshakeOverflow, 1.0).await;

    let mut config = Config::default();
    config.limits.handshake_timeout_ms = Some(100);
    let bench = Bench::of(config).await;
    let mut silent = TcpStream::connect(bench.address()).await.unwrap();
    silent.write_all(b"GET /v1/real").await.unwrap();
    wait_for_hangup(silent).await;
    wait_for_refused_count(&bench.metrics, RejectReason::Timeout, 1.0).await;
}

#[tokio::test]
async fn answered_kept_alive_connection_is_counted_once() {
    let mut config = Config::default();
    config.limits.handshake_timeout_ms = Some(100);
    let bench = Bench::of(config).await;
    let mut kept = TcpStream::connect(bench.address()).await.unwrap();
    kept.write_all(b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    wait_for_hangup(kept).await;
    // Events are counted in order, so this request is counted last.
    bench.http("GET /nothing HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    wait_for_refused_count(&bench.metrics, RejectReason::NotFound, 2.0).await;
}

#[tokio::test]
async fn connect_only_health_check_is_not_counted() {
    let (dir, (cert, key)) = (scratch("observed-tls"), self_signed("localhost"));
    fs::write(dir.join("cert.pem"), cert).unwrap();
    fs::write(dir.join("key.pem"), key).unwrap();
    let mut config = Config::default();
    (config.tls.cert, config.tls.key) = (Some(dir.join("cert.pem")), Some(dir.join("key.pem")));
    let bench = Bench::of(config).await;
    let tcp = || TcpStream::connect(bench.address());
    for _ in 0..3 {
        let mut checks = tcp().await.unwrap();
        checks.shutdown().await.unwrap();
        wait_for_hangup(checks).await;
    }
    let mut nonsense = tcp().await.unwrap();
    nonsense.write_all(b"\x80\x80\x80\x80\x80\x80").await.unwrap();
    wait_for_hangup(nonsense).await;
    wait_for_refused_count(&bench.metrics, RejectReason::Tls, 1.0).await;
}

/// An upstream that only returns the head of the first upgrade request.
async fn traceparent_received(upstream: TcpListener) -> String {
    let (mut stream, _) = timeout(PATIENCE, upstream.accept()).await.unwrap().unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        assert!(timeout(PATIENCE, stream.read_buf(&mut head)).await.unwrap().unwrap() > 0);
    }
    stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n").await.unwrap();
    String::from_utf8(head).unwrap().to_lowercase()
}

#[tokio::test]
async fn valid_trace_context_is_propagated_and_invalid_one_replaced() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    for (sent, kept) in
        [(format!("00-{TRACE}-00f067aa0ba902b7-01"), true), (format!("00-{TRACE}-0-01"), false)]
    {
        let upstream = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (path, mut config) = logging_config(if kept { "traced" } else { "untraced" });
        config.profile = Some("conversation".into());
        config.upstream = vec![upstream_at(upstream.local_addr().unwrap())];
        let bench = Bench::of(config).await;
        let headers = format!("traceparent: {sent}\r\ntracestate: congo=t61\r\n");
        let (head, client) = bench.open_websocket("/v1/realtime?model=x", &headers).await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        let request_head = traceparent_received(upstream).await;
        let parent = request_head
            .lines()
            .find_map(|line| line.strip_prefix("traceparent: "))
            .expect(&request_head)
            .to_owned();
        let (trace, span) = (&parent[3..35], &parent[36..52]);
        assert_eq!((trace == TRACE, span == "00f067aa0ba902b7"), (kept, false), "{parent}");
        assert_eq!(request_head.contains("\r\ntracestate: congo=t61\r\n"), kept, "{request_head}");
        client.close().await;
        let Bench { mut bridge, .. } = bench;
        bridge.stop();
        bridge.wait_for_end().await;
        assert_eq!(read_log_lines(&path)[0]["trace_id"], trace);
    }
}
