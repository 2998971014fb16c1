//! Clients that speak the model's own protocol, over real sockets.

#[allow(dead_code, reason = "shared with other tests")]
#[path = "support/bench.rs"]
mod bench;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bench::{Bench, Client, Seen, events, quick, upstream_at};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;
use voxbridge::{
    config::{Config, UpstreamConfig},
    simulator::{Dialect, SimulatorConfig},
};

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

/// The older dialect's client in a whole conversation: what it sees.
async fn older_talk(mut client: Client) -> Vec<Seen> {
    client.event("session.queue_done").await;
    client.command(json!({"type": "session.update", "session": {"instructions": "x"}})).await;
    client.event("session.created").await;
    for second in seconds() {
        let audio = append(&second)["input"]["audio"].clone();
        client.command(json!({"type": "input_audio_buffer.append", "audio": audio})).await;
        client.next().await;
    }
    client.command(json!({"type": "input_audio_buffer.append"})).await;
    client.event("error").await;
    client.command(json!({"type": "session.close", "reason": "user_stop"})).await;
    client.rest().await;
    client.seen
}

/// Events without what differs from session to session.
fn story(seen: &[Seen]) -> Vec<Value> {
    let events = seen.iter().filter_map(|seen| match seen {
        Seen::Event(event) => Some(event.clone()),
        _ => None,
    });
    let plain = events.map(|mut event| {
        if let Some(id) = event.get_mut("session_id") {
            *id = json!("");
        }
        if event["type"] == "error" { json!(event["error"]["code"]) } else { event }
    });
    plain.collect()
}

#[tokio::test]
async fn two_bridges_between_the_older_client_and_the_older_server_cannot_be_told_from_none() {
    let server = SimulatorConfig { dialect: Dialect::Legacy { documented: true }, ..quick() };
    let relay = |upstream: Option<UpstreamConfig>| Config {
        profile: Some("relay".into()),
        upstream: upstream.into_iter().collect(),
        ..Config::default()
    };
    // One for each: a server numbers its turns, and no two of them sound alike.
    let (far, _far, _) = bench::simulate("127.0.0.1:0", server.clone(), None).await;
    let (near, _near, _) = bench::simulate("127.0.0.1:0", server.clone(), None).await;
    let (own, _own, _) = bench::simulate("127.0.0.1:0", server, None).await;
    let older = |address| UpstreamConfig { dialect: "minicpm-o-legacy".into(), ..upstream_at(address) };
    let second = Bench::with(quick(), relay(Some(older(far)))).await;
    let first = Bench::with(quick(), relay(Some(upstream_at(second.address())))).await;
    let alone = Bench::with(quick(), relay(Some(older(near)))).await;
    let through = older_talk(first.dial("/v1/realtime?mode=audio").await).await;
    let passed = older_talk(alone.dial("/v1/realtime?mode=audio").await).await;
    let stream = tokio::net::TcpStream::connect(own).await.unwrap();
    let (_, client) = bench::upgrade(stream, "/v1/realtime?mode=audio", "", &[]).await;
    let directly = older_talk(client).await;
    for seen in [through, passed] {
        let (seen, directly) = (story(&seen), story(&directly));
        for (at, (seen, directly)) in seen.iter().zip(&directly).enumerate() {
            assert!(seen == directly, "event {at}: {} {}", short(seen), short(directly));
        }
        assert_eq!(seen.len(), directly.len());
    }
    let spoken = events(&directly, "response.output_audio.delta");
    assert!(spoken.iter().any(|delta| delta["end_of_turn"] == true));
}

fn short(event: &Value) -> String {
    event.to_string().chars().rev().take(120).collect::<Vec<_>>().iter().rev().collect()
}
