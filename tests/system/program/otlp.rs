//! The program beside a collector of OpenTelemetry: its log, its variables and its mistakes.

use super::*;

/// Arguments of a server for this upstream.
fn serve(upstream: &str) -> [&str; 7] {
    ["serve", "--listen", "127.0.0.1:0", "--upstream", upstream, "--admin", "127.0.0.1:0"]
}

#[tokio::test]
async fn log_and_metrics_go_to_the_collector_that_variables_describe() {
    let Some(receiver) = PackageServer::otlp() else { return };
    let (upstream, _simulator) = upstream().await;
    let mut command = voxbridge(&serve(&upstream));
    command
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{}", receiver.address()))
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-key=no%20secret")
        .env("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        .env("OTEL_SERVICE_NAME", "phones")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "200");
    let server = Server::spawn(command).await;
    let has = |name: &str, value: &str| receiver.reports().iter().any(|report| report[name] == value);
    server.client().await.close().await;
    wait_until("metrics while it runs", || has("metric", "voxbridge_sessions_opened")).await;
    server.signal("-TERM").await;
    assert_eq!(server.wait_for_end().await, 0);
    wait_until("its last line", || has("line", "session ended") && has("span", "session")).await;
    let reports = receiver.reports();
    let find = |name: &str, value: &str| -> Value {
        reports.iter().find(|report| report[name] == value).cloned().unwrap_or_else(|| panic!("{value}"))
    };
    let (line, span) = (find("line", "session ended"), find("span", "session"));
    assert_eq!((&line["trace_id"], &line["span_id"]), (&span["trace_id"], &span["id"]));
    assert_eq!(
        (line["severity"].as_str(), line["attributes"]["reason"].as_str()),
        (Some("INFO"), Some("client_close"))
    );
    assert_eq!(span["resource"]["service.name"], "phones");
    assert!(
        reports
            .iter()
            .filter(|report| report["request"].is_string())
            .all(|request| request["key"] == "no secret" && request["encoding"] == "gzip")
    );
}

#[tokio::test]
async fn mistake_is_an_error_of_the_option_and_a_warning_about_variables() {
    let (code, _, problem) = run(&["check", "--upstream", "ws://a", "--otlp", "ws://b:4318"]).await;
    assert!(code == 2 && problem.contains("the scheme must be http or https"), "{code}: {problem}");
    let (upstream, _simulator) = upstream().await;
    let mut command = voxbridge(&serve(&upstream));
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:4317").env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc");
    let mut server = Server::spawn(command).await;
    server.wait_for_log("nothing is sent to a collector of OpenTelemetry: OTEL_EXPORTER_OTLP_PROTOCOL").await;
}

#[tokio::test]
async fn dead_collector_is_logged_and_counted() {
    let (upstream, _simulator) = upstream().await;
    let mut command = voxbridge(&serve(&upstream));
    command
        .args(["--otlp", "http://127.0.0.1:1"])
        .env("OTEL_BSP_SCHEDULE_DELAY", "10")
        .env("OTEL_METRIC_EXPORT_INTERVAL", "100")
        .env("OTEL_TRACES_EXPORTER", "none")
        .env("OTEL_LOGS_EXPORTER", "none");
    let mut server = Server::spawn(command).await;
    let line = server.wait_for_log("the OpenTelemetry collector does not take data").await;
    assert!(line.contains("connection refused") && line.contains("signal=\"metrics\""), "{line}");
    let lost = "voxbridge_otlp_lost_total{signal=\"metrics\"}";
    assert!(server.request("GET", "/metrics").await.body.contains(lost));
}
