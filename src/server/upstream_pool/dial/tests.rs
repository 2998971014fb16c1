//! Tests of URLs, and of probes against servers.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;
use crate::spelling::Library;

/// Probes a server that sends `answer` on every connection.
async fn probe_against(
    answer: &'static str,
    status_path: Option<&str>,
) -> Result<Option<WorkerReport>, String> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
    let dialer = Dialer::new(&url, None, status_path, mapping).unwrap();
    let serve = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(answer.as_bytes()).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut received = Vec::new();
        // Reads to the end. The read fails with a reset if the client did not read the whole answer.
        let _ = stream.read_to_end(&mut received).await;
        String::from_utf8(received).unwrap()
    };
    let (result, received) = tokio::join!(dialer.probe(), serve);
    let path = status_path.unwrap_or("/status");
    assert!(received.starts_with(&format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1:")), "{received}");
    result
}

#[test]
fn url_names_the_model_or_has_the_query_of_its_purpose() {
    let mapping = Library::embedded().unwrap().upstream("openai-realtime").unwrap();
    for (given, mark) in [("ws://127.0.0.1:1", "/v1/realtime?"), ("ws://127.0.0.1:1/a?b=c", "/a?b=c&")] {
        let dialer = Dialer::new(given, None, None, mapping.clone()).unwrap();
        let target = dialer.with_model("gpt realtime").unwrap().target;
        let url = |purpose| target.url(Mode::Chat, purpose);
        let expected = |query: &str| format!("ws://127.0.0.1:1{mark}{query}");
        assert_eq!(url(Some(LanePurpose::Answer)), expected("model=gpt+realtime"));
        assert_eq!(url(Some(LanePurpose::Transcribe)), expected("intent=transcription"));
        assert_eq!(url(None), expected("model=gpt+realtime"));
    }
}

#[tokio::test]
async fn probe_requests_status_path_and_fails_only_on_server_error() {
    let status_path = Some("/status?full=1");
    assert_eq!(probe_against("", None).await, Ok(None), "a connection suffices");
    for (answer, words) in [
        ("HTTP/1.1 200 OK\r\n\r\n", ""),
        ("HTTP/1.0 404 Not Found\r\n\r\n", ""),
        ("HTTP/1.1 503 Service Unavailable\r\n\r\n", "HTTP 503"),
        ("SSH-2.0-OpenSSH_9.6\r\n", "is not HTTP"),
        ("", "/status?full=1: "),
    ] {
        let problem = probe_against(answer, status_path).await.err().unwrap_or_default();
        assert!(problem.contains(words) && problem.is_empty() == words.is_empty(), "{answer}: {problem}");
    }
}

#[tokio::test]
async fn probe_reads_a_gateways_report_of_its_workers() {
    let answer = "HTTP/1.1 200 OK\r\n\r\n{\"gateway_healthy\":true,\"total_workers\":8,\"idle_workers\":3,\
        \"queue_length\":0,\"running_tasks\":[]}";
    let report = WorkerReport { total: 8, idle: 3, queued: 0 };
    for status_path in [None, Some("/status")] {
        assert_eq!(probe_against(answer, status_path).await, Ok(Some(report)));
    }
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n35\r\n{\"total_workers\":8,\"idle_workers\":3,\
        \"queue_length\":0,\r\n13\r\n\"running_tasks\":[]}\r\n0\r\n\r\n";
    assert_eq!(probe_against(chunked, None).await, Ok(Some(report)));
}

#[tokio::test]
async fn probe_reads_a_long_report_of_workers() {
    let tasks = vec!["{\"task_id\":\"0123456789\",\"kind\":\"duplex\"}"; 4000].join(",");
    let report = "HTTP/1.1 200 OK\r\n\r\n{\"running_tasks\":[TASKS],\"total_workers\":8,\"idle_workers\":3,\"queue_length\":0}";
    let answer = report.replace("TASKS", &tasks).leak();
    assert_eq!(probe_against(answer, None).await, Ok(Some(WorkerReport { total: 8, idle: 3, queued: 0 })));
}

#[tokio::test]
async fn page_that_has_answered_must_answer_again() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let dialer_of = |dialect| {
        let mapping = Library::embedded().unwrap().upstream(dialect).unwrap();
        Dialer::new(&url, None, None, mapping).unwrap()
    };
    let (server, gateway) = (dialer_of("llama-cpp-omni"), dialer_of("minicpm-o"));
    for (dialer, answer, words) in [
        (&server, "", None),
        (&server, "HTTP/1.1 503 Service Unavailable\r\n\r\n", None),
        (&server, "HTTP/1.1 200 OK\r\n\r\n", None),
        (&server, "HTTP/1.1 503 Service Unavailable\r\n\r\n", Some("/health returned HTTP 503")),
        (&server, "", Some("/health: ")),
        (&server, "HTTP/1.1 200 OK\r\n\r\n", None),
        (&gateway, "HTTP/1.1 200 OK\r\n\r\n", None),
        (&gateway, "HTTP/1.1 502 Bad Gateway\r\n\r\n", None),
        (&gateway, "", Some("/status: ")),
    ] {
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
            stream.shutdown().await.unwrap();
            // The read fails with a reset if the client did not read the whole answer.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        };
        let (result, ()) = tokio::join!(dialer.probe(), serve);
        let problem = result.err();
        assert!(problem.is_some() == words.is_some(), "{answer}: {problem:?}");
        assert!(problem.unwrap_or_default().contains(words.unwrap_or_default()), "{answer}");
    }
}

#[tokio::test]
async fn probe_of_closed_port_fails() {
    let mapping = Library::embedded().unwrap().upstream("minicpm-o").unwrap();
    let address = TcpListener::bind("127.0.0.2:0").await.unwrap().local_addr().unwrap();
    let dialer = Dialer::new(&format!("ws://{address}"), None, None, mapping).unwrap();
    assert_eq!(dialer.probe().await, Err("connection refused".to_owned()));
}
