//! Clients that speak the model's own protocol, over real sockets.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "support/bench.rs"]
mod bench;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bench::{Bench, Seen, events, quick};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::config::Config;

fn append(samples: &[i16]) -> Value {
    let bytes: Vec<u8> =
        samples.iter().flat_map(|sample| (f32::from(*sample) / 32768.0).to_le_bytes()).collect();
    json!({"type": "input.append", "input": {"audio": STANDARD.encode(bytes)}})
}

/// Three seconds of silence, a question, and the time to answer it, a second each.
fn seconds() -> Vec<Vec<i16>> {
    let mut samples = vec![0; 48_000];
    samples.extend(bench::recording("goforward"));
    samples.resize(samples.len().next_multiple_of(16_000) + 16_000 * 6, 0);
    samples.chunks(16_000).map(<[i16]>::to_vec).collect()
}

#[tokio::test]
async fn a_conversation_passes_as_it_is() {
    let bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.event("session.queue_done").await;
    client.command(json!({"type": "session.init", "payload": {"system_prompt": "x", "unknown": 1.50}})).await;
    let created = client.event("session.created").await;
    assert_eq!(created["mode"], "full_duplex");
    for second in seconds() {
        client.command(append(&second)).await;
        client.event("response.output.delta").await;
    }
    client.command(json!({"type": "session.close", "reason": "user_stop"})).await;
    client.rest().await;
    let seen = &client.seen;
    let kinds: Vec<_> =
        events(seen, "response.output.delta").iter().map(|delta| delta["kind"].clone()).collect();
    assert!(kinds.contains(&json!("audio")) && kinds.contains(&json!("text")), "{kinds:?}");
    assert_eq!(events(seen, "session.closed")[0]["reason"], "user_stop");
    assert!(seen.iter().any(|seen| matches!(seen, Seen::Close(1000, _))), "{}", client.story());
}

#[tokio::test]
async fn a_chat_passes_as_it_is_and_errors_are_the_real_servers() {
    let bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=chat").await;
    client.command(json!({"type": "session.init", "payload": {}})).await;
    client.event("session.created").await;
    let input = json!({"messages": [{"role": "user", "content": "Hello"}], "tts": {"enabled": false}});
    client.command(json!({"type": "input.append", "input": input})).await;
    assert_eq!(client.event("response.done").await["reason"], "turn_end");
    client.send(Message::text("{")).await;
    assert_eq!(client.event("session.closed").await["reason"], "backend_error");
    client.rest().await;
    assert!(client.seen.iter().any(|seen| matches!(seen, Seen::Close(1000, _))));
}

#[tokio::test]
async fn a_mode_that_does_not_exist_is_refused_as_by_the_real_gateway() {
    let bench = Bench::with(quick(), Config::default()).await;
    for query in ["mode=", "mode=Audio"] {
        let request = format!(
            "GET /v1/realtime?{query} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, close\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        let answer = bench.http(&request).await;
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }
}

#[tokio::test]
async fn who_stops_tells_relayed_clients_so() {
    let mut bench = Bench::start().await;
    let mut client = bench.dial("/v1/realtime?mode=audio").await;
    client.command(json!({"type": "session.init", "payload": {}})).await;
    client.event("session.created").await;
    bench.bridge.stop();
    assert_eq!(client.event("session.closed").await["reason"], "server_shutdown");
    client.rest().await;
    assert!(client.seen.iter().any(|seen| matches!(seen, Seen::Close(1001, _))), "{}", client.story());
    bench.bridge.ended().await;
}
