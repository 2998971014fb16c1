//! Handshakes: how clients spell a path, what the answer names, and the kind of messages that the protocol's own servers send.

use super::*;

const GEMINI: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";

#[tokio::test]
async fn slashes_at_the_end_and_empty_parts_of_a_path_do_not_count() {
    let bench = Bench::start().await;
    for path in [
        "/v1/realtime/?model=gpt-realtime",
        "//v1/realtime?model=gpt-realtime",
        "/openai/v1//realtime/?model=gpt",
        "/v1/listen/?encoding=linear16&sample_rate=16000",
        "/v1/text-to-speech/a-voice/stream-input/",
        "/v2/",
        "/v2/en/",
        "/xiaozhi/v1/",
        "/api-ws/v1/inference/",
        &format!("/{GEMINI}"),
    ] {
        let (head, _client) = bench.open_websocket(path, "Authorization: Bearer any\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
    }
    for path in ["/v1/models/", "//v1/models", "/xiaozhi/ota/", "/xiaozhi/ota"] {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        let answer = bench.http(&request).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{path}: {answer}");
    }
    for path in ["/v1/realtimes", "/v1/text-to-speech//stream-input"] {
        let (head, _client) = bench.open_websocket(path, "").await;
        assert!(!head.starts_with("HTTP/1.1 101 "), "{path}: {head}");
    }
}

/// Proxies add lines and items of their own (RFC 9110 §5.3, RFC 6455 §4.2.1).
#[tokio::test]
async fn lists_of_an_upgrade_may_have_other_items_and_several_lines() {
    let bench = Bench::start().await;
    for (headers, status) in [
        ("Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", 101),
        ("Connection: Upgrade\r\nConnection: close\r\nUpgrade: WebSocket\r\n", 101),
        ("Connection: keep-alive,upgrade\r\nUpgrade: h2c, websocket\r\n", 101),
        ("Connection: Upgrade\r\nUpgrade: h2c\r\nUpgrade: websocket\r\n", 101),
        ("Connection: keep-alive\r\nUpgrade: websocket\r\n", 400),
        ("Connection: Upgrade\r\nUpgrade: h2c\r\n", 426),
    ] {
        let request = format!(
            "GET /v1/listen HTTP/1.1\r\nHost: localhost\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        let head = bench.head_of(&request).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{headers}: {head}");
    }
}

#[tokio::test]
async fn deepgrams_request_has_one_uuid_in_handshake_and_messages() {
    let bench = Bench::start().await;
    for (path, end) in [
        ("/v1/listen?encoding=linear16&sample_rate=16000", json!({"type": "CloseStream"})),
        (
            "/v2/listen?encoding=linear16&sample_rate=16000&model=flux-general-en",
            json!({"type": "CloseStream"}),
        ),
        ("/v1/speak?encoding=linear16&sample_rate=16000", json!({"type": "Close"})),
        ("/v2/speak?encoding=linear16&sample_rate=16000", json!({"type": "Close"})),
    ] {
        let mut ids = Vec::new();
        for _ in 0..2 {
            let (head, mut client) = bench.open_websocket(path, "").await;
            let lines = head.lines().filter_map(|line| line.split_once(": "));
            let mut named = lines.filter(|(name, _)| name.eq_ignore_ascii_case("dg-request-id"));
            let id = named.next().unwrap_or_else(|| panic!("{path}: {head}")).1.to_owned();
            let dashes: Vec<usize> = id.match_indices('-').map(|(at, _)| at).collect();
            assert!(id.len() == 36 && dashes == [8, 13, 18, 23] && id.as_bytes()[14] == b'4', "{path}: {id}");
            client.send_json(end.clone()).await;
            let frames = client.read_to_end().await;
            let ids_sent = frames.iter().filter_map(|frame| match frame {
                ClientFrame::Event(event) => event.get("request_id").and_then(Value::as_str),
                _ => None,
            });
            let ids_sent: Vec<&str> = ids_sent.collect();
            assert!(!ids_sent.is_empty() && ids_sent.iter().all(|sent| *sent == id), "{path}: {id}");
            ids.push(id);
        }
        assert_ne!(ids[0], ids[1], "{path}");
    }
}

#[tokio::test]
async fn wrong_query_refuses_a_deepgram_handshake_with_its_error_in_a_header() {
    let bench = Bench::start().await;
    for (path, wrong) in [
        ("/v1/listen?endpointing=-5", "endpointing"),
        ("/v2/listen?model=flux-general-en&eot_threshold=2", "eot_threshold"),
        ("/v1/speak?encoding=gif", "encoding"),
        ("/v2/speak?encoding=gif", "encoding"),
    ] {
        let (head, _client) = bench.open_websocket(path, "").await;
        let head = head.to_ascii_lowercase();
        let error = head.lines().find(|line| line.starts_with("dg-error: ")).unwrap_or_default();
        assert!(head.starts_with("http/1.1 400 ") && error.contains(wrong), "{path}: {head}");
        assert!(head.contains("\ndg-request-id: "), "{path}: {head}");
    }
}

#[tokio::test]
async fn gemini_client_gets_its_json_in_binary_messages() {
    let bench = Bench::start().await;
    let mut client = bench.dial(&format!("{GEMINI}?key=any")).await;
    let setup =
        json!({"setup": {"model": "models/any", "generationConfig": {"responseModalities": ["TEXT"]}}});
    for (message, awaited) in [
        (Message::text(setup.to_string()), "setupComplete"),
        (Message::binary(json!({"realtimeInput": {"text": "Hello."}}).to_string()), "turnComplete"),
    ] {
        client.send(message).await;
        loop {
            let ClientFrame::Audio(bytes) = client.next().await else {
                panic!("not a binary message: {:?}", client.describe_received());
            };
            let json: Value = serde_json::from_slice(&bytes).unwrap();
            if json.to_string().contains(awaited) {
                break;
            }
        }
    }
}
