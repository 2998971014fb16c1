//! Calls of Pipecat's SmallWebRTC clients: offers in JSON, RTVI on the channel, and a client whose connection changes.

use voxbridge::session::SessionState;

use super::*;

const JSON: &str = "Content-Type: application/json\r\n";

/// The status and body of the answer to a request with JSON.
async fn offered(bench: &Bench, line: &str, headers: &str, body: &Value) -> (u16, Value) {
    let (status, head, body) = request(bench, line, &format!("{JSON}{headers}"), &body.to_string()).await;
    assert!(head.contains("content-type: application/json"), "{head}");
    (status, serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}")))
}

fn offer_of(sdp: &str) -> Value {
    json!({ "sdp": sdp, "type": "offer", "pc_id": null, "restart_pc": false, "requestData": { "any": 1 } })
}

/// Continues a call.
fn renewal(sdp: &str, id: &str, restarts: bool) -> Value {
    json!({ "sdp": sdp, "type": "offer", "pc_id": id, "restart_pc": restarts })
}

/// Takes the answer in a body, and returns the call's id.
fn take(client: &mut CallClient, (status, answer): (u16, Value)) -> String {
    assert_eq!((status, &answer["type"]), (200, &json!("answer")), "{answer}");
    client.take_answer(answer["sdp"].as_str().unwrap());
    answer["pc_id"].as_str().unwrap().to_owned()
}

/// A client whose call was accepted, and the call's id.
async fn call(bench: &Bench) -> (CallClient, String) {
    let (mut client, sdp) = CallClient::new().await;
    let answered = offered(bench, "POST /api/offer", "", &offer_of(&sdp)).await;
    let id = take(&mut client, answered);
    (client, id)
}

async fn get_ready(client: &mut CallClient, id: &str) {
    client.run_until("the channel", CallClient::has_channel).await;
    client.send_text("ping: 1764187200000");
    let track = json!({ "type": "trackStatus", "receiver_index": 0, "enabled": true });
    client.send(&json!({ "type": "signalling", "message": track }));
    let version = json!({ "version": "2.2.0", "about": { "library": "x" } });
    client.send(&json!({ "label": "rtvi-ai", "type": "client-ready", "id": id, "data": version }));
    assert_eq!(client.wait_for("bot-ready").await["id"], id);
}

/// Asks in words.
fn ask(client: &mut CallClient) {
    client.send(&json!({ "label": "rtvi-ai", "type": "send-text", "id": "t", "data": { "content": "Hi" } }));
}

#[tokio::test]
async fn pipecats_client_talks_interrupts_and_leaves_by_a_call() {
    let bench = bench().await;
    let (mut client, sdp) = CallClient::new().await;
    let path = "/sessions/0c1f/api/offer?language=en";
    let id = take(&mut client, offered(&bench, &format!("POST {path}"), "", &offer_of(&sdp)).await);
    let candidate = json!({ "candidate": "candidate:1 1 udp 1 10.0.0.1 9 typ host", "sdp_mid": "0", "sdp_mline_index": 0 });
    let patch = async |id: &str| {
        let body = json!({ "pc_id": id, "candidates": [candidate] });
        offered(&bench, &format!("PATCH {path}"), "", &body).await
    };
    assert_eq!(patch(&id).await, (200, json!({ "status": "success" })));
    assert_eq!(patch("rtc_x").await, (404, json!({ "detail": "Peer connection not found" })));
    get_ready(&mut client, "r1").await;
    client.speak(&recording("goforward"));
    client.wait_for("user-started-speaking").await;
    client.wait_for("bot-started-speaking").await;
    client.run_until("sound", |client| client.sounds.iter().filter(|sound| **sound).count() > 20).await;
    client.events.clear();
    client.packets_at.clear();
    client.speak(&recording("goforward"));
    client.wait_for("bot-interrupted").await;
    let at = client.events.iter().position(|event| event["type"] == "bot-interrupted").unwrap();
    let from = client.packets_at[at];
    client.run_until("silence", |client| client.sounds.len() > from + 10).await;
    // One packet may be on its way, and the codec rings into the next.
    assert_eq!(client.sounds[from + 2..from + 10], [false; 8]);
    assert!(client.event("error").is_none() && client.event("error-response").is_none());
    client.send(&json!({ "label": "rtvi-ai", "type": "disconnect-bot", "id": "d" }));
    let left = client.wait_for("signalling").await;
    assert_eq!(left["message"]["type"], "peerLeft");
    client.run_until("the end", CallClient::is_over).await;
    wait_until("the session ends", || bench.sessions.is_empty()).await;
    assert_eq!(patch(&id).await.0, 404);
}

#[tokio::test]
async fn client_with_a_new_connection_keeps_its_session() {
    let bench = bench().await;
    let (mut client, id) = call(&bench).await;
    get_ready(&mut client, "r1").await;
    ask(&mut client);
    client.wait_for("bot-stopped-speaking").await;
    client.events.clear();
    ask(&mut client);
    client.wait_for("bot-started-speaking").await;
    let (mut moved, sdp) = CallClient::new().await;
    let opus_only = sdp.replace("G722/8000", "opus/48000/2");
    let (status, answer) = offered(&bench, "POST /api/offer", "", &renewal(&opus_only, &id, true)).await;
    assert_eq!(status, 400, "a codec with other rates: {answer}");
    let renewed = offered(&bench, "POST /api/offer", "", &renewal(&sdp, &id, true)).await;
    assert_eq!(take(&mut moved, renewed), id);
    // The old connection has gone; what the session says meanwhile waits for the new one.
    moved.wait_for("bot-stopped-speaking").await;
    moved.events.clear();
    ask(&mut moved);
    moved.wait_for("bot-stopped-speaking").await;
    assert!(moved.sounds.contains(&true));
    assert!(moved.event("bot-ready").is_none(), "the session goes on");
    assert_eq!(bench.sessions.len(), 1);
    let (mut other, sdp) = CallClient::new().await;
    let answered = offered(&bench, "POST /api/offer", "", &renewal(&sdp, "rtc_gone", true)).await;
    assert_ne!(take(&mut other, answered), "rtc_gone", "a call that has gone begins anew");
    get_ready(&mut other, "r2").await;
    assert_eq!(bench.sessions.len(), 2);
}

#[tokio::test]
async fn offer_of_the_same_peer_changes_its_tracks_and_addresses() {
    let bench = bench().await;
    let (mut client, id) = call(&bench).await;
    get_ready(&mut client, "r1").await;
    let sdp = client.offer_again();
    let renewed = offered(&bench, "POST /api/offer", "", &renewal(&sdp, &id, false)).await;
    assert!(renewed.1["sdp"].as_str().unwrap().contains("m=video 0 "), "video is declined: {}", renewed.1);
    assert_eq!(take(&mut client, renewed), id);
    let (_, of_another) = CallClient::new().await;
    for wrong in ["v=0", of_another.as_str(), &sdp.replace("m=audio", "m=video")] {
        let (status, answer) = offered(&bench, "POST /api/offer", "", &renewal(wrong, &id, false)).await;
        assert_eq!(status, 400, "{answer}");
    }
    client.speak(&recording("goforward"));
    client.wait_for("user-stopped-speaking").await;
    client.wait_for("bot-stopped-speaking").await;
    assert_eq!(bench.sessions.len(), 1);
}

#[tokio::test]
async fn texts_wait_for_the_new_connection_and_audio_does_not() {
    let bench = bench().await;
    let (mut client, id) = call(&bench).await;
    get_ready(&mut client, "r1").await;
    ask(&mut client);
    client.wait_for("bot-started-speaking").await;
    // From here on, the client's network is gone; the session says and plays the rest.
    wait_until("the answer is played", || bench.sessions.all()[0].state() == SessionState::Idle).await;
    let (mut moved, sdp) = CallClient::new().await;
    let renewed = offered(&bench, "POST /api/offer", "", &renewal(&sdp, &id, true)).await;
    take(&mut moved, renewed);
    moved.wait_for("bot-stopped-speaking").await;
    let ended = |client: &CallClient| client.event("bot-llm-stopped").is_some();
    assert!(ended(&client) || ended(&moved) || moved.event("bot-tts-stopped").is_some());
    moved.run_until("packets", |client| client.sounds.len() > 20).await;
    assert!(!moved.sounds.contains(&true), "stale audio");
}

#[tokio::test]
async fn call_cannot_be_taken_over_with_another_key() {
    let (bench, [ann, bob]) = keyed_bench("calls-pipecat").await;
    let (mut client, sdp) = CallClient::new().await;
    let (status, _) = offered(&bench, "POST /api/offer", "", &offer_of(&sdp)).await;
    assert_eq!(status, 401);
    let id = take(&mut client, offered(&bench, "POST /api/offer", &ann, &offer_of(&sdp)).await);
    get_ready(&mut client, "r1").await;
    let (mut other, sdp) = CallClient::new().await;
    let answered = offered(&bench, "POST /api/offer", &bob, &renewal(&sdp, &id, true)).await;
    assert_ne!(take(&mut other, answered), id);
    let body = json!({ "pc_id": id, "candidates": [] });
    assert_eq!(offered(&bench, "PATCH /api/offer", &bob, &body).await.0, 404);
    ask(&mut client);
    client.wait_for("bot-stopped-speaking").await;
}

#[tokio::test]
async fn wrong_offers_are_rejected_as_pipecats_server_does() {
    let bench = bench().await;
    let (_, sdp) = CallClient::new().await;
    let silent = sdp.replace("m=audio ", "m=video ");
    for (body, status, words) in [
        (json!([]), 400, "not a JSON object"),
        (json!({ "type": "offer" }), 400, "sdp"),
        (json!({ "sdp": sdp, "type": "answer" }), 400, "must be 'offer'"),
        (json!({ "sdp": silent, "type": "offer" }), 400, "audio track"),
        (json!({ "sdp": "x".repeat(40_000), "type": "offer" }), 413, "32 KiB"),
    ] {
        let (got, answer) = offered(&bench, "POST /api/offer", "", &body).await;
        let detail = answer["detail"].as_str().unwrap_or_else(|| panic!("{answer}"));
        assert!(got == status && detail.contains(words), "{got}: {detail}");
    }
    let origin = "Origin: http://localhost:5173\r\nAccess-Control-Request-Method: PATCH\r\n";
    let (status, head, _) = request(&bench, "OPTIONS /api/offer", origin, "").await;
    assert!(status == 204 && head.contains("access-control-allow-methods: post, patch"), "{head}");
    assert_eq!(request(&bench, "DELETE /api/offer", "", "").await.0, 405);
}

#[tokio::test]
async fn start_page_names_the_transport_that_is_asked_for() {
    let start = json!({ "transport": "webrtc", "enableDefaultIceServers": true });
    let bench = bench().await;
    let (status, answer) = offered(&bench, "POST /start", "", &start).await;
    assert_eq!(status, 200);
    assert_eq!(answer["sessionId"].as_str().map(str::len), Some(32), "{answer}");
    let (_, answer) = offered(&bench, "POST /start", "", &json!({ "transport": "websocket" })).await;
    assert!(answer["wsUrl"].is_string() && answer.get("sessionId").is_none(), "{answer}");
    let off = Bench::start().await;
    let (status, answer) = offered(&off, "POST /start", "", &start).await;
    assert!(status == 400 && answer.to_string().contains("[webrtc]"), "{answer}");
    let (status, _, body) = request(&off, "POST /api/offer", JSON, "{}").await;
    assert!(status == 404 && body.contains("[webrtc]"), "{status} {body}");
}
