//! REST requests pass the same checks as WebSocket clients: keys, permissions, quotas, limits, origins.

use super::*;

const KEYS: &str = "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\nsessions_max = 1\nmodels = [\"tts-*\"]\n\
    [[key]]\nname = \"bob\"\nkey = \"bob-s3cret\"\nprotocols = [\"macaw\"]\n\
    [[key]]\nname = \"cid\"\nkey = \"cid-s3cret\"\nsessions_per_minute = 2\n";
const CONFIG: &str = "[access]\nkeys = \"DIR/keys.toml\"\norigins = [\"https://app.example.com\"]\n";

async fn speak(server: &AccessServer, headers: &str, model: &str) -> HandshakeAnswer<TcpStream> {
    let body = format!(r#"{{"model":"{model}","input":"Hello.","response_format":"pcm"}}"#);
    let request = format!(
        "POST /v1/audio/speech HTTP/1.0\r\nHost: x\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    );
    send_request(server.tcp().await, request.as_bytes()).await
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}-s3cret\r\n")
}

#[tokio::test]
async fn key_permissions_and_quotas_hold_for_rest() {
    let server = AccessServer::start("rest-keys", CONFIG, &[("keys.toml", KEYS)]).await;
    assert_eq!(speak(&server, "", "tts-1").await.status, 401);
    assert_eq!(speak(&server, &bearer("eve"), "tts-1").await.status, 401);
    assert_eq!(speak(&server, &bearer("bob"), "tts-1").await.status, 403, "another protocol");
    assert_eq!(speak(&server, &bearer("ann"), "gpt-4o").await.status, 403, "another model");
    assert_eq!(speak(&server, &bearer("ann"), "tts-1").await.status, 200);
    let foreign = format!("{}Origin: https://evil.example\r\n", bearer("ann"));
    let foreign = speak(&server, &foreign, "tts-1").await;
    assert_eq!((foreign.status, foreign.header("access-control-allow-origin")), (403, None));
    let own = format!("{}Origin: https://app.example.com\r\n", bearer("cid"));
    let own = speak(&server, &own, "tts-1").await;
    assert_eq!(
        (own.status, own.header("access-control-allow-origin")),
        (200, Some("https://app.example.com"))
    );
    assert_eq!(speak(&server, &bearer("cid"), "tts-1").await.status, 200);
    let third = speak(&server, &bearer("cid"), "tts-1").await;
    assert_eq!((third.status, third.code().as_str()), (429, "too_many_requests"));
    assert!(third.header("retry-after").is_some());
}

/// ElevenLabs' clients have a header of their own for the key, and read the code of an error.
#[tokio::test]
async fn elevenlabs_clients_show_their_key_and_get_their_errors() {
    let server = AccessServer::start("rest-elevenlabs", CONFIG, &[("keys.toml", KEYS)]).await;
    for (key, status) in [("cid-s3cret", 200), ("wrong", 401)] {
        let body = r#"{"text":"Hello."}"#;
        let request = format!(
            "POST /v1/text-to-speech/any HTTP/1.0\r\nHost: x\r\nxi-api-key: {key}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = send_request(server.tcp().await, request.as_bytes()).await;
        assert_eq!((answer.status, answer.body.contains("invalid_api_key")), (status, status == 401));
    }
}

/// A browser asks first whether a page may send a request with these headers.
#[tokio::test]
async fn pages_of_allowed_origins_may_use_rest() {
    let server = AccessServer::start("rest-pages", CONFIG, &[("keys.toml", KEYS)]).await;
    for (origin, allowed) in
        [("https://app.example.com", Some("https://app.example.com")), ("https://evil.example", None)]
    {
        let request = format!(
            "OPTIONS /v1/audio/speech HTTP/1.1\r\nHost: x\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\n\r\n"
        );
        let answer = send_request(server.tcp().await, request.as_bytes()).await;
        assert_eq!((answer.status, answer.header("access-control-allow-origin")), (204, allowed));
        assert_eq!(answer.header("access-control-allow-methods"), Some("post"));
    }
}

#[tokio::test]
async fn request_is_a_session_of_the_server() {
    let server = AccessServer::start("rest-slots", "sessions_max = 1\n", &[]).await;
    let mut first = server.connect_until_accepted(MACAW, "").await;
    first.assert_alive().await;
    let refused = speak(&server, "", "tts-1").await;
    assert_eq!((refused.status, refused.code().as_str()), (503, "service_unavailable"));
    first.close().await;
    while speak(&server, "", "tts-1").await.status == 503 {}
}

/// Without keys and a list of origins, a page of another site cannot use the server through its visitor's browser.
#[tokio::test]
async fn pages_of_other_sites_may_not_use_rest_by_default() {
    let server = AccessServer::start("rest-foreign-pages", "", &[]).await;
    let body = r#"{"model":"m","input":"Hello."}"#;
    for (host, origin, status) in [
        ("localhost:8000", "", 200),
        ("speech.lan:8000", "", 200),
        ("localhost:8000", "http://localhost:5173", 200),
        ("localhost:8000", "tauri://localhost", 200),
        ("192.168.1.5:8000", "http://192.168.1.5:8000", 200),
        ("localhost:8000", "https://evil.example", 403),
        ("localhost:8000", "null", 403),
        ("127.0.0.1:8000", "http://192.168.1.5:8000", 403),
        // The site's name leads to this server (DNS rebinding).
        ("evil.example:8000", "http://evil.example:8000", 403),
        ("evil.example:8000", "", 403),
    ] {
        let origin_line = if origin.is_empty() { String::new() } else { format!("Origin: {origin}\r\n") };
        for path in ["/v1/audio/speech", "/v1/realtime/client_secrets"] {
            let length = body.len();
            let request = format!(
                "POST {path} HTTP/1.0\r\nHost: {host}\r\n{origin_line}Content-Length: {length}\r\n\r\n{body}"
            );
            let answer = send_request(server.tcp().await, request.as_bytes()).await;
            assert_eq!(answer.status, status, "{path} {host} {origin}");
            let allowed = answer.header("access-control-allow-origin");
            assert!(status == 200 || allowed.is_none(), "{origin}");
        }
    }
}

/// A browser sends no origin with a GET of a page whose name leads to this server (DNS rebinding).
#[tokio::test]
async fn foreign_host_gets_nothing_without_a_rule() {
    let get = async |server: &AccessServer, path: &str, host: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        send_request(server.tcp().await, request.as_bytes()).await.status
    };
    let server = AccessServer::start("rest-rebinding", "", &[]).await;
    for path in ["/v1/models", "/v1/voices", "/v1/models/x"] {
        assert_eq!(get(&server, path, "evil.example").await, 403, "{path}");
        assert_ne!(get(&server, path, "localhost:8000").await, 403, "{path}");
    }
    for (name, rule) in [
        ("rest-rebinding-proxy", "[access]\ntrusted_proxies = [\"127.0.0.1\"]\n"),
        ("rest-rebinding-origins", "[access]\norigins = [\"https://voice.example\"]\n"),
    ] {
        let server = AccessServer::start(name, rule, &[]).await;
        assert_eq!(get(&server, "/v1/models", "voice.example").await, 200, "{rule}");
    }
}

/// A proxy in front may read such heads differently.
#[tokio::test]
async fn ambiguous_heads_are_refused_at_every_path() {
    let server = AccessServer::start("rest-heads", "playground = true", &[]).await;
    for path in ["/health", "/v1/models", "/playground", "/v1/realtime?model=m", "/nothing"] {
        for lines in [
            "HTTP/1.1\r\nHost: a b\r\n\r\n",
            "HTTP/1.1\r\nHost: localhost:1:2\r\n\r\n",
            "HTTP/1.1\r\nHost: localhost:port\r\n\r\n",
            "HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
            "HTTP/1.1\nHost: localhost\r\n\r\n",
            "HTTP/1.1\r\nHost: localhost\n\n",
        ] {
            let answer = send_request(server.tcp().await, format!("GET {path} {lines}").as_bytes()).await;
            assert_eq!((answer.status, answer.header("connection")), (400, Some("close")), "{path}");
        }
    }
}

#[tokio::test]
async fn unknown_paths_say_what_to_use_instead() {
    let server = AccessServer::start("rest-not-found", "", &[]).await;
    for (path, words) in [
        ("/v1/realtime/calls", "a WebSocket at /v1/realtime instead"),
        ("/v1/chat/completions", "a WebSocket at /v1/realtime"),
        ("/openai/v1/responses", "a WebSocket at /v1/realtime"),
        ("/v1/realtime/translations", "a profile that translates"),
        ("/nothing", "nothing at /nothing; usual are /v1/realtime and, for REST, /v1/audio/transcriptions"),
    ] {
        for method in ["GET", "POST"] {
            let request = format!("{method} {path} HTTP/1.0\r\nHost: x\r\n\r\n");
            let answer = send_request(server.tcp().await, request.as_bytes()).await;
            assert_eq!((answer.status, answer.code().as_str()), (404, "not_found"), "{path}");
            assert!(answer.body.contains(words) && answer.body.contains("/v1/realtime"), "{}", answer.body);
        }
    }
}
