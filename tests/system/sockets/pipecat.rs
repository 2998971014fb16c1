//! Pipecat's clients over real sockets: the page that tells them where to connect, keys, audio and messages in frames.

use voxbridge_test_support::{
    bench::request,
    rtvi::{RtviFrame, audio_frame, field, message_frame},
};

use super::*;

/// A Pipecat client, and what it received.
struct PipecatClient {
    client: Client,
    frames: Vec<RtviFrame>,
}

impl PipecatClient {
    async fn connect(bench: &Bench, path: &str) -> Self {
        let mut client = Self { client: bench.dial(path).await, frames: Vec::new() };
        client.send("client-ready", "r1", json!({"version": "2.1.0", "about": {"library": "test"}})).await;
        assert_eq!(client.wait_for("bot-ready").await["id"], "r1");
        client
    }

    async fn send(&mut self, kind: &str, id: &str, data: Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
        self.client.send(Message::binary(message_frame(&message))).await;
    }

    /// Waits for the next frame.
    async fn next(&mut self) -> RtviFrame {
        match self.client.next().await {
            ClientFrame::Audio(bytes) => {
                let frame = RtviFrame::read(&bytes);
                self.frames.push(frame.clone());
                frame
            }
            other => panic!("{other:?} after {:?}", self.kinds()),
        }
    }

    async fn wait_for(&mut self, kind: &str) -> Value {
        loop {
            if let RtviFrame::Message(message) = self.next().await
                && message["type"] == kind
            {
                return message;
            }
        }
    }

    fn kinds(&self) -> Vec<&str> {
        let mut kinds: Vec<_> = self.frames.iter().map(RtviFrame::kind).collect();
        kinds.dedup();
        kinds
    }

    fn audio_frames(&self) -> usize {
        self.frames.iter().filter(|frame| matches!(frame, RtviFrame::Audio(_, 24_000, 1))).count()
    }
}

#[tokio::test]
async fn start_page_names_the_socket() {
    let config = configuration("[access]\norigins = [\"https://app.example\"]\n");
    let bench = Bench::of(config).await;
    let body = r#"{"transport": "websocket", "body": {"anything": 1}}"#;
    let (head, answer) = request(&bench, "POST /start", "Origin: https://app.example\r\n", body).await;
    assert!(head.starts_with("http/1.1 200 ") && head.contains("content-type: application/json"), "{head}");
    assert!(head.contains("access-control-allow-origin: https://app.example"), "{head}");
    let answer: Value = serde_json::from_str(&answer).unwrap();
    // The transport for browsers refuses any other member.
    assert_eq!(answer, json!({"wsUrl": "ws://voice.local:8000/ws-client", "token": ""}));
    let asks =
        "Origin: https://app.example\r\nAccess-Control-Request-Headers: authorization,content-type\r\n";
    let (head, _) = request(&bench, "OPTIONS /start", asks, "").await;
    assert!(head.starts_with("http/1.1 204 ") && head.contains("content-type"), "{head}");
}

#[tokio::test]
async fn key_of_the_start_page_opens_the_socket() {
    let keys = scratch("pipecat-keys").join("keys.toml");
    fs::write(&keys, "[[key]]\nname = \"app\"\nkey = \"app-k3y\"\n").unwrap();
    let toml = format!("[access]\nkeys = {keys:?}\nquery_parameter = \"token\"\n");
    let bench = Bench::of(configuration(&toml)).await;
    let start = async |headers: &str| -> Value {
        serde_json::from_str(&request(&bench, "POST /start", headers, "{}").await.1).unwrap()
    };
    assert_eq!(start("").await["token"], "");
    let answer = start("Authorization: Bearer app-k3y\r\n").await;
    assert_eq!(answer["token"], "app-k3y");
    for path in ["/ws-client", "/ws-client?token=wrong"] {
        let (head, _) = bench.open_websocket(path, "").await;
        assert!(head.starts_with("HTTP/1.1 401 "), "{path}: {head}");
    }
    PipecatClient::connect(&bench, "/ws-client?token=app-k3y").await;
    let (head, _) = bench.open_websocket("/ws-client", "Authorization: Bearer app-k3y\r\n").await;
    assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
}

#[tokio::test]
async fn typed_text_is_answered_after_malformed_frames() {
    let config = configuration("[[route]]\nclient = \"pipecat\"\nprofile = \"assistant\"\n");
    let bench = Bench::of(config).await;
    let mut client = PipecatClient::connect(&bench, "/ws-client").await;
    let large = field(
        4,
        &field(1, format!("{{\"type\": \"ui-snapshot\", \"data\": \"{}\"}}", "x".repeat(300_000)).as_bytes()),
    );
    for bytes in [b"\x12\xff".to_vec(), vec![0xff; 70_000], audio_frame(&vec![0; 140_000], 16_000, 1), large]
    {
        client.client.send(Message::binary(bytes)).await;
    }
    for part in ["no protobuf", "no protobuf", "Too large: 280000 bytes"] {
        let error = client.wait_for("error").await;
        assert!(error["data"]["error"].as_str().unwrap().contains(part), "{error}");
        assert_eq!(error["data"]["fatal"], false);
    }
    client
        .send("send-text", "t1", json!({"content": "Tell me a story.", "options": {"run_immediately": true}}))
        .await;
    client.wait_for("bot-started-speaking").await;
    client.wait_for("bot-llm-stopped").await;
    assert!(client.audio_frames() > 0);
    client.send("client-message", "c1", json!({"t": "x"})).await;
    assert_eq!(client.wait_for("error-response").await["id"], "c1");
}
