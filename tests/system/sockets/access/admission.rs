//! Every rejection before the upgrade, every way to send a key, and key reloads during sessions.

use super::*;

const KEYS: &str = "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\n\
    [[key]]\nname = \"old\"\nkey = \"old-s3cret\"\nexpires = 2020-01-01\n\
    [[key]]\nname = \"narrow\"\nkey = \"narrow-s3cret\"\nmodels = [\"whisper-*\"]\nprotocols = [\"macaw\"]\n\
    [[key]]\nname = \"wordy\"\nkey = \"wordy-s3cret\"\nmodels = [\"whisper-*\"]\n\
    [[key]]\nname = \"both\"\nkey = \"both-s3cret\"\nmodels = [\"whisper-*\", \"\"]\n";

const ACCESS_CONFIG: &str = "[access]\nkeys = \"DIR/keys.toml\"\nquery_parameter = \"api_key\"\n\
    origins = [\"https://app.example.com\", \"http://localhost:*\"]\n";

async fn server_with_keys(name: &str) -> AccessServer {
    AccessServer::start(name, ACCESS_CONFIG, &[("keys.toml", KEYS)]).await
}

#[tokio::test]
async fn unauthenticated_clients_learn_nothing() {
    let server = server_with_keys("order").await;
    let unknown_path = server.connect("/nowhere", "").await;
    assert_eq!((unknown_path.status, unknown_path.code().as_str()), (404, "not_found"));
    let posted = send_request(
        server.tcp().await,
        b"POST /v1/realtime HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
    )
    .await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("get")));
    let plain =
        send_request(server.tcp().await, b"GET /v1/realtime?model=x HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));

    let foreign_origin = server.connect(MACAW, "Origin: https://evil.example\r\n").await;
    assert_eq!((foreign_origin.status, foreign_origin.code().as_str()), (403, "origin_not_allowed"));
    assert!(foreign_origin.body.contains("[access] origins"), "{}", foreign_origin.body);
    let known = format!("Origin: https://evil.example\r\n{}", bearer("ann-s3cret"));
    assert_eq!(server.connect(MACAW, &known).await.status, 403, "a key does not override the origin check");

    let anonymous = server.connect(MACAW, "Origin: https://app.example.com\r\n").await;
    assert_eq!((anonymous.status, anonymous.header("www-authenticate")), (401, Some("bearer")));
    assert_eq!(anonymous.code(), "unauthorized");
    assert!(anonymous.body.contains("Authorization: Bearer <key>"), "{}", anonymous.body);
    // Modes are disclosed only to authorised clients.
    assert_eq!(server.connect("/v1/realtime?mode=nope", "").await.status, 401);

    let page = format!("Origin: http://localhost:5173\r\n{}", bearer("ann-s3cret"));
    let mut served = server.connect(MACAW, &page).await;
    assert_eq!(served.status, 101, "{}", served.head);
    served.assert_alive().await;
    let old = |headers: &str| {
        format!(
            "GET {MACAW} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        )
    };
    assert_eq!(send_request(server.tcp().await, old("").as_bytes()).await.status, 401);
    let bad_version = send_request(server.tcp().await, old(&bearer("ann-s3cret")).as_bytes()).await;
    assert_eq!((bad_version.status, bad_version.header("sec-websocket-version")), (400, Some("13")));
}

#[tokio::test]
async fn invalid_key_is_rejected() {
    let server = server_with_keys("wrong").await;
    for (key, words) in [("wrong", "not known"), ("ann-s3cre", "not known"), ("old-s3cret", "has expired")] {
        let refused = server.connect(MACAW, &bearer(key)).await;
        assert_eq!(refused.status, 401);
        assert!(refused.body.contains(words) && !refused.body.contains(key), "{}", refused.body);
    }
    assert_eq!(server.connect(MACAW, "Authorization: Basic YW5uOnMzY3JldA==\r\n").await.status, 401);
    server.reload("[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n").unwrap();
    assert_eq!(server.connect(MACAW, "").await.status, 101);
    assert_eq!(
        server.connect(MACAW, &bearer("wrong")).await.status,
        401,
        "a wrong key is rejected even if keys are optional"
    );
}

#[tokio::test]
async fn repeated_host_and_different_keys_are_bad_requests() {
    let server = server_with_keys("repeated").await;
    let ann = bearer("ann-s3cret");
    for (path, headers, words) in [
        (MACAW, format!("{ann}Host: other\r\n"), "2 host headers"),
        (MACAW, format!("{ann}{ann}"), "2 authorization headers"),
        (MACAW, format!("{ann}X-API-Key: other-s3cret\r\n"), "several different keys"),
        ("/v1/realtime?model=m&api_key=other-s3cret", ann.clone(), "several different keys"),
        ("/v1/realtime?model=m&api_key=ann-s3cret&api_key=b", String::new(), "several different keys"),
    ] {
        let refused = server.connect(path, &headers).await;
        assert_eq!((refused.status, refused.code().as_str()), (400, "bad_handshake"), "{path} {headers}");
        assert!(refused.body.contains(words) && !refused.body.contains("s3cret"), "{}", refused.body);
    }
    let twice = server.connect("/v1/realtime?model=m&api_key=ann-s3cret", &ann).await;
    assert_eq!(twice.status, 101, "the same key in two places");
}

#[tokio::test]
async fn every_credential_form_is_accepted() {
    let server = server_with_keys("sources").await;
    let protocol = |names: &str| format!("Sec-WebSocket-Protocol: {names}\r\n");
    for (path, headers, agreed) in [
        (MACAW, bearer("ann-s3cret"), None),
        (MACAW, "Authorization: Token ann-s3cret\r\n".to_owned(), None),
        (MACAW, "x-api-key: ann-s3cret\r\n".to_owned(), None),
        (MACAW, protocol("voxbridge, voxbridge.key.ann-s3cret"), Some("voxbridge")),
        (MACAW, protocol("voxbridge.key.ann-s3cret"), None),
        ("/v1/listen", protocol("token, ann-s3cret"), Some("token")),
        ("/v1/listen", protocol("bearer, ann-s3cret"), Some("bearer")),
        ("/v1/realtime?api_key=ann-s3cret&model=m", String::new(), None),
    ] {
        let answer: HandshakeAnswer<_> = server.connect(path, &headers).await;
        assert_eq!(answer.status, 101, "{path} {headers}: {}", answer.body);
        assert_eq!(answer.header("sec-websocket-protocol"), agreed, "{path} {headers}");
        assert!(!answer.head.contains("s3cret"), "{}", answer.head);
    }
    assert_eq!(
        server.connect(MACAW, &protocol("token, ann-s3cret")).await.status,
        401,
        "the form belongs to another protocol"
    );
    server.reload("[access]\nkeys = \"DIR/keys.toml\"\n").unwrap();
    assert_eq!(
        server.connect("/v1/realtime?api_key=ann-s3cret&model=m", "").await.status,
        401,
        "no subprotocol is selected without an offer"
    );
}

#[tokio::test]
async fn key_scope_is_enforced() {
    let server = server_with_keys("routes").await;
    let key = bearer("narrow-s3cret");
    let mut served = server.connect("/v1/realtime?model=whisper-1", &key).await;
    assert_eq!(served.wait_for_event().await["type"], "session.created");
    // Without a model the scope cannot be checked, and the protocol reports the missing model.
    assert_eq!(server.connect("/v1/realtime", &key).await.wait_for_event().await["code"], "invalid_request");
    for path in [MACAW, "/v1/listen?model=whisper-1", "/v1/realtime?mode=audio"] {
        let refused = server.connect(path, &key).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "not_allowed"), "{path}");
    }
    // A relayed client names no model, so only an unrestricted key is accepted.
    assert_eq!(server.connect("/v1/realtime?mode=audio", &bearer("wordy-s3cret")).await.status, 403);
    assert_eq!(server.connect("/v1/realtime?mode=audio", &bearer("both-s3cret")).await.status, 101);
}

#[tokio::test]
async fn key_reload_keeps_live_sessions() {
    let server = server_with_keys("rotation").await;
    let mut live = server.connect(MACAW, &bearer("ann-s3cret")).await;
    let rotated = "[[key]]\nname = \"ann\"\nkey = \"ann-n3w\"\nsessions_max = 2\n";
    fs::write(server.dir.join("keys.toml"), rotated).unwrap();
    assert_eq!(server.connect(MACAW, &bearer("ann-n3w")).await.status, 401, "before the reload");
    server.reload(ACCESS_CONFIG).unwrap();
    live.assert_alive().await;
    assert_eq!(server.connect(MACAW, &bearer("ann-s3cret")).await.status, 401);
    let mut second = server.connect(MACAW, &bearer("ann-n3w")).await;
    second.assert_alive().await;
    let third = server.connect(MACAW, &bearer("ann-n3w")).await;
    assert_eq!(third.status, 429, "older sessions count for the key name that opened them");

    fs::write(server.dir.join("keys.toml"), "[[key]]\nname = \"ann\"\nkey = \"n3wer").unwrap();
    let problem = server.reload(ACCESS_CONFIG).unwrap_err();
    assert!(problem.contains("keys.toml:3") && !problem.contains("n3wer"), "{problem}");
    second.assert_alive().await;
    live.send(Message::text(json!({"type": "session.close"}).to_string())).await;
    while live.message().await.is_some() {}
    assert_eq!(server.connect_until_accepted(MACAW, &bearer("ann-n3w")).await.status, 101, "still valid");
}

#[tokio::test]
async fn signed_request_needs_no_key() {
    const SIGNATURE: &str =
        "[access.signature]\npublic_url = \"wss://bridge.example.com\"\ntoken_file = \"DIR/token\"\n";
    // From RequestValidator("12345").compute_signature("wss://bridge.example.com/twilio", {}) of the package twilio.
    let signed = "X-Twilio-Signature: myfaRchFcOV9R7UNMsbeBhTuSQI=\r\n";
    let wrong = "X-Twilio-Signature: NyfaRchFcOV9R7UNMsbeBhTuSQI=\r\n";
    let files = [("token", "12345\n"), ("keys.toml", KEYS)];
    let server = AccessServer::start("signature", SIGNATURE, &files).await;
    for headers in ["", wrong, &format!("{signed}{signed}")] {
        let refused = server.connect("/twilio", headers).await;
        assert_eq!((refused.status, refused.code().as_str()), (401, "unauthorized"), "{headers}");
        assert!(refused.body.contains("x-twilio-signature") && !refused.body.contains("12345"));
    }
    assert_eq!(server.connect("/twilio?x=1", signed).await.status, 401, "a signature is for one URL");
    assert_eq!(server.connect("/twilio", signed).await.status, 101);
    // From the same for ".../twilio/".
    let with_slash = "X-Twilio-Signature: x/ER56YFhXMdwWfLqLMbVO5Y8YI=\r\n";
    assert_eq!(server.connect("/twilio/", with_slash).await.status, 101, "signed as written");
    assert_eq!(server.connect("/twilio/", signed).await.status, 401);
    assert_eq!(server.connect(MACAW, "").await.status, 101, "other protocols are not signed");

    server.reload(&format!("{ACCESS_CONFIG}{SIGNATURE}")).unwrap();
    assert_eq!(server.connect("/twilio", signed).await.status, 101);
    assert_eq!(server.connect("/twilio", wrong).await.status, 401);
    assert_eq!(server.connect("/twilio", &bearer("ann-s3cret")).await.status, 101, "a key is enough");
    assert_eq!(server.connect(MACAW, signed).await.status, 401, "a signature is for its protocol");
}
