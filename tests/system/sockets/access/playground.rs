//! The playground: served only where it is asked for, to its own page, and showing a page only the session that it opened.

use super::*;

const KEYS: &str =
    "[[key]]\nname = \"ann\"\nkey = \"ann-s3cret\"\n[[key]]\nname = \"bob\"\nkey = \"bob-s3cret\"\n";
const WITH_KEYS: &str = "playground = true\n[access]\nkeys = \"DIR/keys.toml\"\n";
const NAME: &str = "0123456789abcdef0123456789abcdef";
const FILES: [&str; 14] = [
    "",
    "/style.css",
    "/icon.svg",
    "/app.js",
    "/audio.js",
    "/camera.js",
    "/capture.js",
    "/connections.js",
    "/measures.js",
    "/protocols.js",
    "/session.js",
    "/timeline.js",
    "/trace.js",
    "/wires.js",
];

async fn get(server: &AccessServer, path: &str, headers: &str) -> HandshakeAnswer<TcpStream> {
    let request = format!("GET {path} HTTP/1.1\r\n{headers}\r\n");
    send_request(server.tcp().await, request.as_bytes()).await
}

fn wires() -> String {
    format!("/playground/wires?session={NAME}")
}

/// Headers of a page's WebSocket that shows this key, and is watched if `watched`.
fn subprotocols(key: &str, watched: bool) -> String {
    let watch = if watched { format!(", voxbridge.watch.{NAME}") } else { String::new() };
    format!("Sec-WebSocket-Protocol: voxbridge, voxbridge.key.{key}{watch}\r\n")
}

#[tokio::test]
async fn without_the_option_nothing_is_served() {
    let server = AccessServer::start("playground-off", "", &[]).await;
    let others = ["/", "/settings", "/recording.wav", "/wires"];
    for file in FILES.into_iter().chain(others) {
        let answer = get(&server, &format!("/playground{file}"), "Host: localhost\r\n").await;
        assert_eq!(answer.status, 404, "{file}");
    }
    assert_ne!(get(&server, "/", "Host: localhost\r\n").await.status, 307);
    assert_eq!(server.connect(&wires(), "").await.status, 404);
}

#[tokio::test]
async fn page_is_served_with_a_strict_policy() {
    let server = AccessServer::start("playground-files", "playground = true", &[]).await;
    for file in FILES {
        let answer = get(&server, &format!("/playground{file}"), "Host: 127.0.0.1:8000\r\n").await;
        let header = |name| answer.header(name).unwrap_or_else(|| panic!("{file} has no {name}"));
        assert_eq!(answer.status, 200, "{file}");
        assert!(header("content-security-policy").starts_with("default-src 'none'; script-src 'self'; "));
        assert!(!header("content-security-policy").contains("unsafe"));
        assert_eq!(header("x-content-type-options"), "nosniff");
        assert_eq!(header("referrer-policy"), "no-referrer");
        let extension = file.rsplit_once('.').map_or("html", |(_, extension)| extension);
        let kind = if extension == "js" { "javascript" } else { extension };
        assert!(header("content-type").contains(kind), "{file}");
        assert!(!answer.body.is_empty(), "{file}");
    }
    for (path, status) in [("/playground/other.js", 404), ("/playground/../x", 404), ("/playground/", 308)] {
        assert_eq!(get(&server, path, "Host: localhost\r\n").await.status, status, "{path}");
    }
    let root = get(&server, "/", "Host: localhost\r\n").await;
    assert_eq!((root.status, root.header("location")), (307, Some("playground")));
    assert_eq!(get(&server, "/", "Host: evil.example\r\n").await.status, 403);
    // Vosk's clients have their WebSocket there.
    assert_eq!(server.connect("/", "").await.status, 101);
    let posted =
        send_request(server.tcp().await, b"POST /playground HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert_eq!((posted.status, posted.header("allow")), (405, Some("get")));
}

#[tokio::test]
async fn other_sites_cannot_use_it() {
    let server = AccessServer::start("playground-sites", "playground = true", &[]).await;
    for (host, status) in
        [("localhost:8000", 200), ("127.0.0.1", 200), ("[::1]:80", 200), ("evil.example:8000", 403)]
    {
        let answer = get(&server, "/playground/settings", &format!("Host: {host}\r\n")).await;
        assert_eq!(answer.status, status, "{host}");
    }
    // The requests of these tests have the host `localhost`.
    for (origin, status) in [("http://localhost", 101), ("https://evil.example", 403), ("null", 403)] {
        let answer = server.connect(&wires(), &format!("Origin: {origin}\r\n")).await;
        assert_eq!(answer.status, status, "{origin}");
    }
    for name in ["", "short", "0123456789abcdef0123456789abcde-"] {
        let answer = server.connect(&format!("/playground/wires?session={name}"), "").await;
        assert_eq!(answer.status, 400, "{name}");
    }
}

#[tokio::test]
async fn settings_and_messages_need_the_key() {
    let server = AccessServer::start("playground-keys", WITH_KEYS, &[("keys.toml", KEYS)]).await;
    // The page itself asks for the key.
    assert_eq!(get(&server, "/playground", "Host: speech.example\r\n").await.status, 200);
    for (key, status) in
        [("", 401), ("Authorization: Bearer wrong\r\n", 401), ("Authorization: Bearer ann-s3cret\r\n", 200)]
    {
        let answer = get(&server, "/playground/settings", &format!("Host: speech.example\r\n{key}")).await;
        assert_eq!(answer.status, status, "{key}");
    }
    assert_eq!(server.connect(&wires(), "").await.status, 401);
    let watching = server.connect(&wires(), &subprotocols("ann-s3cret", false)).await;
    assert_eq!((watching.status, watching.header("sec-websocket-protocol")), (101, Some("voxbridge")));
}

#[tokio::test]
async fn page_sees_the_messages_of_its_session_as_a_trace() {
    let server = AccessServer::start("playground-watch", "playground = true", &[]).await;
    let mut watching = server.connect(&wires(), "").await;
    assert_eq!(watching.status, 101);
    let mut other = server.connect(MACAW, "").await;
    other.wait_for_event().await;
    let mut session = server.connect(MACAW, &subprotocols("unused", true)).await;
    assert_eq!(session.header("sec-websocket-protocol"), Some("voxbridge"));
    session.wait_for_event().await;
    session.send(Message::binary(vec![1; 640])).await;
    session.assert_alive().await;
    session.close().await;
    let mut text = String::new();
    while let Some(Message::Text(line)) = watching.message().await {
        text.push_str(&line);
        text.push('\n');
    }
    let trace = Trace::parse(&text).unwrap_or_else(|problem| panic!("{problem}: {text}"));
    assert_eq!((trace.header.client.as_str(), trace.header.profile.as_str()), ("macaw", "speech"));
    let has = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    assert_eq!((has("session.created"), has("\\\"unknown_command"), has("\"base64\"")), (1, 1, 1), "{text}");
    assert!(trace.records.iter().all(|record| record.lost.is_none()), "{text}");
    other.assert_alive().await;
}

#[tokio::test]
async fn session_of_another_key_is_not_shown() {
    let server = AccessServer::start("playground-other", WITH_KEYS, &[("keys.toml", KEYS)]).await;
    let mut watching = server.connect(&wires(), &subprotocols("ann-s3cret", false)).await;
    let mut session = server.connect(MACAW, &subprotocols("bob-s3cret", true)).await;
    session.wait_for_event().await;
    session.close().await;
    let mut own = server.connect(MACAW, &subprotocols("ann-s3cret", true)).await;
    own.wait_for_event().await;
    own.close().await;
    let header = watching.wait_for_event().await;
    assert_eq!(header["trace"], 2);
    let mut created = 0;
    while let Some(Message::Text(line)) = watching.message().await {
        assert!(!line.contains("s3cret"), "{line}");
        created += usize::from(line.contains("session.created"));
    }
    assert_eq!(created, 1, "only the session of the same key is shown");
}
