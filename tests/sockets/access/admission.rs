//! Each refusal before the upgrade, each way to show a key, and keys replaced under sessions that live.

use serde_json::json;
use tokio_tungstenite::tungstenite::Message;

use super::door::{Answer, Door, MACAW, ask};

const KEYS: &str = "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\n\
    [[key]]\nname = \"old\"\nkey = \"old-s3cret\"\nexpires = 2020-01-01\n\
    [[key]]\nname = \"narrow\"\nkey = \"narrow-s3cret\"\nmodels = [\"whisper-*\"]\nprotocols = [\"macaw\"]\n\
    [[key]]\nname = \"wordy\"\nkey = \"wordy-s3cret\"\nmodels = [\"whisper-*\"]\n\
    [[key]]\nname = \"both\"\nkey = \"both-s3cret\"\nmodels = [\"whisper-*\", \"\"]\n";

const GUARDED: &str = "[access]\nkeys = \"DIR/keys.toml\"\nquery_parameter = \"api_key\"\n\
    origins = [\"https://app.example.com\", \"http://localhost:*\"]\n";

async fn guarded(name: &str) -> Door {
    Door::open(name, GUARDED, &[("keys.toml", KEYS)]).await
}

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn strangers_are_told_least() {
    let door = guarded("order").await;
    let nowhere = door.knock("/nowhere", "").await;
    assert_eq!((nowhere.status, nowhere.code().as_str()), (404, "not_found"));
    let posted =
        ask(door.tcp().await, b"POST /v1/realtime HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("get")));
    let plain = ask(door.tcp().await, b"GET /v1/realtime HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!((plain.status, plain.header("upgrade")), (426, Some("websocket")));

    let elsewhere = door.knock(MACAW, "Origin: https://evil.example\r\n").await;
    assert_eq!((elsewhere.status, elsewhere.code().as_str()), (403, "origin_not_allowed"));
    assert!(elsewhere.body.contains("[access] origins"), "{}", elsewhere.body);
    let known = format!("Origin: https://evil.example\r\n{}", bearer("ann-s3cret"));
    assert_eq!(door.knock(MACAW, &known).await.status, 403, "a key does not help a page that may not");

    let nobody = door.knock(MACAW, "Origin: https://app.example.com\r\n").await;
    assert_eq!((nobody.status, nobody.header("www-authenticate")), (401, Some("bearer")));
    assert_eq!(nobody.code(), "unauthorized");
    assert!(nobody.body.contains("Authorization: Bearer <key>"), "{}", nobody.body);
    // Which modes there are is for those who may know.
    assert_eq!(door.knock("/v1/realtime?mode=nope", "").await.status, 401);

    let page = format!("Origin: http://localhost:5173\r\n{}", bearer("ann-s3cret"));
    let mut served = door.knock(MACAW, &page).await;
    assert_eq!(served.status, 101, "{}", served.head);
    served.assert_lives().await;
    let old = |headers: &str| {
        format!(
            "GET {MACAW} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        )
    };
    assert_eq!(ask(door.tcp().await, old("").as_bytes()).await.status, 401);
    let bad = ask(door.tcp().await, old(&bearer("ann-s3cret")).as_bytes()).await;
    assert_eq!((bad.status, bad.header("sec-websocket-version")), (400, Some("13")));
}

#[tokio::test]
async fn a_key_that_is_not_good_is_refused() {
    let door = guarded("wrong").await;
    for (key, words) in [("wrong", "not known"), ("ann-s3cre", "not known"), ("old-s3cret", "has expired")] {
        let refused = door.knock(MACAW, &bearer(key)).await;
        assert_eq!(refused.status, 401);
        assert!(refused.body.contains(words) && !refused.body.contains(key), "{}", refused.body);
    }
    assert_eq!(door.knock(MACAW, "Authorization: Basic YW5uOnMzY3JldA==\r\n").await.status, 401);
    door.reload("[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n").unwrap();
    assert_eq!(door.knock(MACAW, "").await.status, 101);
    assert_eq!(door.knock(MACAW, &bearer("wrong")).await.status, 401, "who shows one means it");
}

#[tokio::test]
async fn every_way_to_show_a_key_opens() {
    let door = guarded("sources").await;
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
        let answer: Answer<_> = door.knock(path, &headers).await;
        assert_eq!(answer.status, 101, "{path} {headers}: {}", answer.body);
        assert_eq!(answer.header("sec-websocket-protocol"), agreed, "{path} {headers}");
        assert!(!answer.head.contains("s3cret"), "{}", answer.head);
    }
    assert_eq!(door.knock(MACAW, &protocol("token, ann-s3cret")).await.status, 401, "it is another's way");
    door.reload("[access]\nkeys = \"DIR/keys.toml\"\n").unwrap();
    assert_eq!(
        door.knock("/v1/realtime?api_key=ann-s3cret&model=m", "").await.status,
        401,
        "only if asked for"
    );
}

#[tokio::test]
async fn a_key_opens_what_it_is_for_and_nothing_else() {
    let door = guarded("routes").await;
    let key = bearer("narrow-s3cret");
    let mut served = door.knock("/v1/realtime?model=whisper-1", &key).await;
    assert_eq!(served.event().await["type"], "session.created");
    // Without a model there is nothing to look at, and its protocol says so.
    assert_eq!(door.knock("/v1/realtime", &key).await.event().await["code"], "invalid_request");
    for path in [MACAW, "/v1/listen?model=whisper-1", "/v1/realtime?mode=audio"] {
        let refused = door.knock(path, &key).await;
        assert_eq!((refused.status, refused.code().as_str()), (403, "not_allowed"), "{path}");
    }
    // Who is relayed asks for no model: only who may have none comes through.
    assert_eq!(door.knock("/v1/realtime?mode=audio", &bearer("wordy-s3cret")).await.status, 403);
    assert_eq!(door.knock("/v1/realtime?mode=audio", &bearer("both-s3cret")).await.status, 101);
}

#[tokio::test]
async fn keys_change_under_sessions_that_live() {
    let door = guarded("rotation").await;
    let mut live = door.knock(MACAW, &bearer("ann-s3cret")).await;
    let rotated = "[[key]]\nname = \"ann\"\nkey = \"ann-n3w\"\nsessions_max = 2\n";
    std::fs::write(door.dir.join("keys.toml"), rotated).unwrap();
    assert_eq!(door.knock(MACAW, &bearer("ann-n3w")).await.status, 401, "not before it is read");
    door.reload(GUARDED).unwrap();
    live.assert_lives().await;
    assert_eq!(door.knock(MACAW, &bearer("ann-s3cret")).await.status, 401);
    let mut second = door.knock(MACAW, &bearer("ann-n3w")).await;
    second.assert_lives().await;
    let third = door.knock(MACAW, &bearer("ann-n3w")).await;
    assert_eq!(third.status, 429, "sessions from before count for the name they were opened by");

    std::fs::write(door.dir.join("keys.toml"), "[[key]]\nname = \"ann\"\nkey = \"n3wer").unwrap();
    let problem = door.reload(GUARDED).unwrap_err();
    assert!(problem.contains("keys.toml:3") && !problem.contains("n3wer"), "{problem}");
    second.assert_lives().await;
    live.send(Message::text(json!({"type": "session.close"}).to_string())).await;
    while live.message().await.is_some() {}
    assert_eq!(door.knock_until_in(MACAW, &bearer("ann-n3w")).await.status, 101, "what held before holds");
}
