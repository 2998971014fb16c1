//! Client secrets: who gets one, and what it opens.

use super::*;

const KEYS: &str = "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\nsessions_max = 1\nmodels = [\"gpt-*\"]\n\
    [[key]]\nname = \"bob\"\nkey = \"bob-s3cret\"\n";
const ACCESS_CONFIG: &str = "[access]\nkeys = \"DIR/keys.toml\"\norigins = [\"https://app.example.com\"]\n";
const PATH: &str = "/v1/realtime/client_secrets";

async fn post(server: &AccessServer, path: &str, headers: &str, body: &str) -> (u16, Value) {
    let length = body.len();
    let request =
        format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n{headers}\r\n{body}");
    let answer = send_request(server.tcp().await, request.as_bytes()).await;
    let body = serde_json::from_str(&answer.body).unwrap_or_else(|_| panic!("{}", answer.body));
    (answer.status, body)
}

/// A secret of the key ann.
async fn secret(server: &AccessServer) -> String {
    let (status, answer) = post(server, PATH, &bearer("ann-s3cret"), "").await;
    assert_eq!(status, 200, "{answer}");
    answer["value"].as_str().unwrap().to_owned()
}

fn as_browser(secret: &str) -> String {
    format!("Sec-WebSocket-Protocol: realtime, openai-insecure-api-key.{secret}\r\n")
}

#[tokio::test]
async fn secret_is_issued_only_for_a_known_key() {
    let server = AccessServer::start("secrets-issue", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    for path in [PATH, "/openai/v1/realtime/client_secrets", "/v1/realtime/sessions"] {
        for headers in [String::new(), bearer("wrong-s3cret"), bearer("ek_wrong")] {
            let (status, answer) = post(&server, path, &headers, "{}").await;
            assert_eq!((status, &answer["error"]["code"]), (401, &json!("unauthorized")), "{path} {headers}");
            assert_eq!(answer["error"]["param"], Value::Null);
        }
    }
    let foreign = format!("{}Origin: https://evil.example\r\n", bearer("ann-s3cret"));
    assert_eq!(post(&server, PATH, &foreign, "").await.0, 403);
    assert_eq!(post(&server, "/v1/listen/client_secrets", &bearer("ann-s3cret"), "").await.0, 404);
}

#[tokio::test]
async fn answers_have_the_shapes_of_openai() {
    let server = AccessServer::start("secrets-shape", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    let ann = bearer("ann-s3cret");
    let body = r#"{"expires_after": {"anchor": "created_at", "seconds": 7200}, "session": {"type": "transcription"}}"#;
    let (status, answer) = post(&server, PATH, &ann, body).await;
    assert_eq!(status, 200, "{answer}");
    let longer = answer["expires_at"].as_u64().unwrap();
    assert_eq!(
        answer["session"],
        json!({"type": "transcription", "object": "realtime.transcription_session"})
    );
    let (_, answer) = post(&server, PATH, &ann, "").await;
    let expected = longer - 7200 + 600;
    assert!((expected..expected + 20).contains(&answer["expires_at"].as_u64().unwrap()), "{answer}");
    assert_eq!(answer["session"]["type"], "realtime");
    let (_, older) =
        post(&server, "/v1/realtime/sessions", &ann, r#"{"model": "gpt-x", "voice": "a"}"#).await;
    assert!(older["client_secret"]["value"].as_str().unwrap().starts_with("ek_"), "{older}");
    assert_eq!((&older["model"], &older["object"]), (&json!("gpt-x"), &json!("realtime.session")));

    for (body, param) in [
        ("[]", Value::Null),
        ("{", Value::Null),
        (r#"{"expires_after": {"seconds": 9}}"#, json!("expires_after.seconds")),
        (r#"{"expires_after": {"seconds": 7201}}"#, json!("expires_after.seconds")),
        (r#"{"expires_after": 600}"#, json!("expires_after")),
        (r#"{"expires_after": {"anchor": "now", "seconds": 60}}"#, json!("expires_after.anchor")),
        (r#"{"session": "gpt"}"#, json!("session")),
    ] {
        let (status, answer) = post(&server, PATH, &ann, body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &param), "{body}: {answer}");
        assert_eq!(answer["error"]["type"], "invalid_request_error");
    }
}

#[tokio::test]
async fn secret_opens_sessions_with_the_rights_of_its_key_and_nothing_else() {
    let server = AccessServer::start("secrets-use", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    let secret = secret(&server).await;
    let path = "/v1/realtime?model=gpt-realtime";
    let mut open: HandshakeAnswer<_> = server.connect(path, &as_browser(&secret)).await;
    assert_eq!((open.status, open.header("sec-websocket-protocol")), (101, Some("realtime")));
    assert!(!open.head.contains(&secret));
    assert_eq!(open.wait_for_event().await["type"], "session.created");

    assert_eq!(server.connect(path, &bearer(&secret)).await.status, 429, "the key allows one session");
    assert_eq!(server.connect("/v1/realtime?model=other", &bearer(&secret)).await.status, 403);
    assert_eq!(post(&server, PATH, &bearer(&secret), "").await.0, 401, "a secret makes no secret");
    assert_eq!(server.connect(path, &bearer(&secret[..secret.len() - 1])).await.status, 401);
}

#[tokio::test]
async fn session_of_a_secret_is_applied_to_the_sessions_that_it_opens() {
    let server = AccessServer::start("secrets-session", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    let session = json!({
        "type": "realtime", "model": "gpt-realtime", "instructions": "Be brief & kind.", "output_modalities": ["text"],
        "audio": {"input": {"turn_detection": null}},
    });
    let body = json!({ "session": session }).to_string();
    let (_, answer) = post(&server, PATH, &bearer("ann-s3cret"), &body).await;
    let secret = answer["value"].as_str().unwrap();
    // Without a model in the URL, the session's applies, which the key covers.
    let mut open = server.connect("/v1/realtime", &as_browser(secret)).await;
    let created = open.wait_for_event().await["session"].clone();
    for pointer in ["/model", "/instructions", "/output_modalities", "/audio/input/turn_detection"] {
        assert_eq!(created.pointer(pointer), session.pointer(pointer), "{pointer} of {created}");
    }
    let refused = server.connect("/v1/realtime?model=other", &as_browser(secret)).await;
    assert_eq!(refused.status, 403, "the URL's model counts");

    for (session, words) in [
        (json!({"output_modalities": "loud"}), "session.output_modalities"),
        (json!({"tools": [{"description": "x".repeat(65_536)}]}), "64 KiB"),
    ] {
        let body = json!({ "session": session }).to_string();
        let (status, answer) = post(&server, PATH, &bearer("ann-s3cret"), &body).await;
        assert_eq!((status, &answer["error"]["param"]), (400, &json!("session")), "{answer}");
        assert!(answer["error"]["message"].as_str().unwrap().contains(words), "{answer}");
    }
}

#[tokio::test]
async fn secrets_are_issued_beside_the_path_of_a_route() {
    let routes = "[[route]]\npath = \"/robots\"\nprotocol = \"openai-realtime\"\nprofile = \"assistant\"\n\
        [[route]]\nprofile = \"speech\"\n";
    let server = AccessServer::start("secrets-route", routes, &[]).await;
    assert_eq!(post(&server, "/robots/client_secrets", "", "").await.0, 200);
    assert_eq!(post(&server, "/cars/client_secrets", "", "").await.0, 404);
}

#[tokio::test]
async fn secret_ends_with_its_key() {
    let server = AccessServer::start("secrets-reload", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    let secret = secret(&server).await;
    let status = async || {
        let answer = server.connect("/v1/realtime?model=gpt-realtime", &bearer(&secret)).await;
        answer.status
    };
    let write = |text: &str| fs::write(server.dir.join("keys.toml"), text).unwrap();
    write(&KEYS.replace("sessions_max = 1", "sessions_max = 9"));
    server.reload(ACCESS_CONFIG).unwrap();
    assert_eq!(status().await, 101, "the key has the same secret");
    write(&KEYS.replace("ann-s3cret", "new-s3cret"));
    server.reload(ACCESS_CONFIG).unwrap();
    assert_eq!(status().await, 401);
}

#[tokio::test]
async fn server_without_keys_answers_with_a_secret_that_opens_sessions() {
    let server = AccessServer::start("secrets-open", "", &[]).await;
    let (status, answer) = post(&server, PATH, "", "").await;
    assert_eq!(status, 200, "{answer}");
    let secret = answer["value"].as_str().unwrap();
    assert_eq!(server.connect("/v1/realtime?model=m", &as_browser(secret)).await.status, 101);
    let optional = format!("{ACCESS_CONFIG}required = false\n");
    let server = AccessServer::start("secrets-optional", &optional, &[("keys.toml", KEYS)]).await;
    let (_, answer) = post(&server, PATH, "", "").await;
    let secret = answer["value"].as_str().unwrap();
    assert_eq!(server.connect("/v1/realtime?model=m", &bearer(secret)).await.status, 101);
    server.reload(ACCESS_CONFIG).unwrap();
    assert_eq!(server.connect("/v1/realtime?model=m", &bearer(secret)).await.status, 401);
}

#[tokio::test]
async fn signed_url_has_a_secret_for_the_key_that_asked() {
    let server = AccessServer::start("secrets-signed", ACCESS_CONFIG, &[("keys.toml", KEYS)]).await;
    let page = "/v1/convai/conversation/get-signed-url?agent_id=mine";
    let get = |headers: &str| {
        let (server, request) = (&server, format!("GET {page} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"));
        async move { send_request(server.tcp().await, request.as_bytes()).await }
    };
    for headers in ["", "xi-api-key: wrong\r\n"] {
        assert_eq!(get(headers).await.status, 401, "{headers}");
    }
    let answer = get("xi-api-key: bob-s3cret\r\n").await;
    let url: Value = serde_json::from_str(&answer.body).unwrap();
    let url = url["signed_url"].as_str().unwrap();
    let path = url.strip_prefix("ws://x").unwrap();
    let begin = "/v1/convai/conversation?agent_id=mine&conversation_signature=ek_";
    assert!(path.starts_with(begin) && !url.contains("s3cret"), "{url}");
    assert_eq!(server.connect(path, "").await.status, 101);
    assert_eq!(server.connect(&format!("{path}0"), "").await.status, 401);
    assert_eq!(server.connect("/v1/convai/conversation?agent_id=mine", "").await.status, 401);
}
