//! Sessions of OpenAI's Live protocol by WebRTC: their requests, a conversation, and a second connection.

use super::*;

const JSON: &str = "Content-Type: application/json\r\n";

fn live_config() -> Config {
    Config { profile: None, ..config() }
}

async fn live_bench() -> Bench {
    Bench::with_config(SimulatorConfig { workers: 4, ..SimulatorConfig::default() }, live_config()).await
}

fn session_request(sdp: &str, session: &Value) -> Value {
    json!({ "session": session, "transport": { "type": "webrtc", "sdp": sdp } })
}

/// The status and body of the answer to a request for a session.
async fn requested(bench: &Bench, path: &str, body: &Value) -> (u16, Value) {
    let (status, head, body) = request(bench, &format!("POST {path}"), JSON, &body.to_string()).await;
    assert!(head.contains("content-type: application/json"), "{head}");
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
}

/// A client whose session was created, and its id.
async fn live_call(bench: &Bench, session: &Value) -> (CallClient, String) {
    let (mut client, sdp) = CallClient::new().await;
    let (status, answer) = requested(bench, "/v1/live/sessions", &session_request(&sdp, session)).await;
    assert_eq!((status, &answer["transport"]["type"]), (201, &json!("webrtc")), "{answer}");
    client.take_answer(answer["transport"]["sdp"].as_str().unwrap());
    (client, answer["session"]["id"].as_str().unwrap().to_owned())
}

#[tokio::test]
async fn live_session_converses_by_a_call_and_a_second_connection_ends_it() {
    let bench = live_bench().await;
    let (mut client, id) = live_call(&bench, &json!({ "model": "gpt-live-1.1", "store": true })).await;
    let path = format!("/v1/live/sessions/{id}/attach");
    let mut second = bench.dial(&path).await;
    let started = client.wait_for("session.started").await;
    assert_eq!(second.wait_for_event("session.started").await["session"]["id"], id);
    assert_has(&started, json!({"/session/id": id, "/session/model": "gpt-live-1.1"}));
    assert_eq!(client.wait_for("info").await["code"], "settings_without_effect");
    for (command, param) in [
        (json!({ "type": "session.start", "session": {} }), "the session has started already"),
        (json!({ "type": "session.input_audio.append", "audio": "AAAA" }), "comes by its track"),
    ] {
        client.events.clear();
        client.send(&command);
        let error = client.wait_for("error").await;
        assert!(error["error"]["message"].as_str().unwrap().contains(param), "{error}");
    }
    client.speak(&recording("goforward"));
    client.wait_for("session.input_transcript.delta").await;
    client.wait_for("session.output_transcript.delta").await;
    client.run_until("sound", |client| client.sounds.iter().filter(|sound| **sound).count() > 20).await;
    assert!(client.event("session.output_audio.delta").is_none(), "audio does not come by the channel");
    second.wait_for_event("session.output_transcript.delta").await;
    second.send_json(json!({ "type": "session.close", "event_id": "over" })).await;
    let closed = client.wait_for("session.closed").await;
    assert_eq!((&closed["reason"], &closed["session"]["id"]), (&json!("close_requested"), &json!(id)));
    client.run_until("the end", CallClient::is_over).await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
    let (head, _) = bench.open_websocket(&path, "").await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
}

#[tokio::test]
async fn connection_that_joins_late_gets_the_start_of_a_live_session() {
    let bench = live_bench().await;
    let (mut client, id) = live_call(&bench, &json!({ "model": "gpt-live-1" })).await;
    let started = client.wait_for("session.started").await;
    for start in ["/v1", "/openai/v1"] {
        let mut late = bench.dial(&format!("{start}/live/sessions/{id}/attach")).await;
        assert_eq!(late.wait_for_event("session.started").await, started);
        assert_eq!(late.received.len(), 1);
    }
}

#[tokio::test]
async fn hang_up_ends_a_live_session() {
    let bench = live_bench().await;
    let (mut client, id) = live_call(&bench, &json!({ "model": "gpt-live-1" })).await;
    client.wait_for("session.started").await;
    let (status, ..) = request(&bench, &format!("POST /v1/live/sessions/{id}/hangup"), "", "").await;
    assert_eq!(status, 200);
    client.run_until("the end", CallClient::is_over).await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
}

#[tokio::test]
async fn page_sends_and_gets_only_permitted_events_but_its_server_all() {
    let bench = live_bench().await;
    let permitted = ["session.started", "session.closed", "error"].map(|kind| json!({ "type": kind }));
    let channel = json!({ "allowed_client_events": ["session.close"],
        "allowed_server_events": permitted });
    let session = json!({ "model": "gpt-live-1", "store": true, "client": { "data_channel": channel } });
    let (mut client, id) = live_call(&bench, &session).await;
    let mut second = bench.dial(&format!("/v1/live/sessions/{id}/attach")).await;
    client.wait_for("session.started").await;
    client.send(&json!({ "type": "session.input_audio.mute", "event_id": "mine" }));
    let error = client.wait_for("error").await["error"].clone();
    assert_eq!((&error["code"], &error["client_event_id"]), (&json!("event_not_permitted"), &json!("mine")));
    second.send_json(json!({ "type": "session.input_audio.mute" })).await;
    second.wait_for_event("session.input_audio.muted").await;
    client.send(&json!({ "type": "session.close" }));
    client.wait_for("session.closed").await;
    let kinds: BTreeSet<_> = client.events.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, BTreeSet::from(["session.started", "session.closed", "error"]));
}

#[tokio::test]
async fn wrong_requests_for_live_sessions_name_their_parameter() {
    let bench = live_bench().await;
    let (_, sdp) = CallClient::new().await;
    let good = json!({ "model": "gpt-live-1" });
    for (path, body, param) in [
        ("/v1/live/sessions", json!({ "transport": { "type": "webrtc", "sdp": sdp } }), json!("session")),
        ("/v1/live/sessions", json!({ "session": good }), json!("transport")),
        (
            "/v1/live/sessions",
            json!({"session": good, "transport": {"type": "sip"}}),
            json!("transport.type"),
        ),
        (
            "/v1/live/sessions",
            json!({"session": good, "transport": {"type": "webrtc"}}),
            json!("transport.sdp"),
        ),
        ("/openai/v1/live/sessions", session_request(&sdp, &json!([])), json!("session")),
        ("/v1/live/sessions", session_request("v=0", &good), Value::Null),
    ] {
        let (status, answer) = requested(&bench, path, &body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &param), "{answer}");
    }
    let rules = json!({ "client": { "data_channel": { "allowed_client_events": "some" } } });
    let (status, answer) = requested(&bench, "/v1/live/sessions", &session_request(&sdp, &rules)).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("allowed_client_events"), "{answer}");
    let format = json!({ "audio": { "format": { "type": "audio/pcmu" } } });
    let (status, answer) = requested(&bench, "/v1/live/sessions", &session_request(&sdp, &format)).await;
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(status == 400 && message.contains("session.audio.format"), "{answer}");

    let off = Bench::start().await;
    let (status, answer) = requested(&off, "/v1/live/sessions", &session_request(&sdp, &good)).await;
    assert_eq!(status, 404);
    assert!(answer["error"]["message"].as_str().unwrap().contains("[webrtc]"), "{answer}");
}
