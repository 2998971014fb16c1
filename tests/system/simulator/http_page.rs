//! The gateway's HTTP pages (`gateway.py` and `gateway_modules/models.py` of OpenBMB/MiniCPM-o-Demo).

use super::*;

fn status_of(sim: &TestGateway) -> String {
    let page = sim.gateway.http_page(sim.now, "GET", "/status");
    assert_eq!(page.status, 200);
    page.json
}

#[test]
fn health_page_has_the_time() {
    let sim = TestGateway::with_backend(Backend::Pytorch);
    let page = sim.gateway.http_page(sim.now, "GET", "/health");
    assert_eq!(page.json, r#"{"status":"healthy","timestamp":"2026-11-20T04:27:44.000000"}"#);
}

#[test]
fn status_page_counts_workers_and_queue() {
    let mut sim = TestGateway::new(SimulatorConfig { workers: 2, ..SimulatorConfig::default() });
    assert_eq!(
        status_of(&sim),
        r#"{"gateway_healthy":true,"total_workers":2,"idle_workers":2,"busy_workers":0,"duplex_workers":0,"loading_workers":0,"error_workers":0,"offline_workers":0,"queue_length":0,"max_queue_size":1000,"running_tasks":[],"backend":null}"#
    );
    sim.connect_with_mode(SimMode::Audio);
    sim.advance(Duration::from_millis(12_340));
    let chat = sim.open_chat_session();
    let _queued = sim.connect();
    let status: Value = serde_json::from_str(&status_of(&sim)).unwrap();
    let counts = ["idle_workers", "busy_workers", "duplex_workers", "queue_length"].map(|name| &status[name]);
    assert_eq!(counts, [0, 2, 1, 1]);
    let expected = json!({"worker_id": "worker_0", "request_type": "audio_duplex", "elapsed_s": 12.4,
        "started_at": "2026-11-20T04:27:44.000000", "estimated_remaining_s": 107.6});
    assert_eq!(status["running_tasks"][0], expected);
    assert_eq!(status["running_tasks"][1]["request_type"], "chat");
    sim.close_session(chat, "done");
    let status: Value = serde_json::from_str(&status_of(&sim)).unwrap();
    assert_eq!((&status["queue_length"], &status["busy_workers"]), (&json!(0), &json!(2)));
}

#[test]
fn other_pages_and_methods_are_errors() {
    let sim = TestGateway::with_backend(Backend::Pytorch);
    for (method, path, status, json) in [
        ("GET", "/v1/realtime", 404, r#"{"detail":"Not Found"}"#),
        ("POST", "/status", 405, r#"{"detail":"Method Not Allowed"}"#),
    ] {
        let page = sim.gateway.http_page(sim.now, method, path);
        assert_eq!((page.status, page.json.as_str()), (status, json), "{method} {path}");
    }
}
