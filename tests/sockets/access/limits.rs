//! How much: of a key, of an address, of everybody, and how long.

use tokio::{io::AsyncWriteExt as _, net::TcpSocket};
use tokio_tungstenite::tungstenite::Message;

use super::door::{Door, MACAW, ask, assert_hung_up};

fn bearer(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

#[tokio::test]
async fn what_a_key_has_is_given_back_however_its_session_ends() {
    let keys =
        "[[key]]\nname = \"one\"\nkey = \"k1\"\nsessions_max = 1\n[[key]]\nname = \"two\"\nkey = \"k2\"\n";
    let door = Door::open("per-key", "[access]\nkeys = \"DIR/keys.toml\"\n", &[("keys.toml", keys)]).await;
    let first = door.knock(MACAW, &bearer("k1")).await;
    assert_eq!(first.status, 101);
    let refused = door.knock(MACAW, &bearer("k1")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    assert_eq!(refused.code(), "too_many_requests");
    assert!(refused.body.contains("this key; at most 1"), "{}", refused.body);
    assert_eq!(door.knock(MACAW, &bearer("k2")).await.status, 101, "another's is another's");
    first.close().await;
    let vanishes = door.knock_until_in(MACAW, &bearer("k1")).await;
    drop(vanishes);
    door.knock_until_in(MACAW, &bearer("k1")).await.close().await;
    // A connection that its own protocol refuses counts no longer either.
    let mut unnamed = door.knock_until_in("/v1/realtime?model=", &bearer("k1")).await;
    while unnamed.message().await.is_some() {}
    door.knock_until_in(MACAW, &bearer("k1")).await;
}

#[tokio::test]
async fn who_opens_too_fast_is_told_when_to_come_back() {
    let keys = "[[key]]\nname = \"slow\"\nkey = \"k\"\nnew_per_minute = 2\n";
    let door = Door::open("rate", "[access]\nkeys = \"DIR/keys.toml\"\n", &[("keys.toml", keys)]).await;
    for _ in 0..2 {
        assert_eq!(door.knock(MACAW, &bearer("k")).await.status, 101);
    }
    let refused = door.knock(MACAW, &bearer("k")).await;
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    assert!(refused.body.contains("at most 2 a minute"), "{}", refused.body);
}

#[tokio::test]
async fn an_address_has_its_share_behind_a_proxy_too() {
    let toml = "[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[limits]\nsessions_per_address = 1\n";
    let door = Door::open("address", toml, &[]).await;
    let of = |address: &str| format!("X-Forwarded-For: 6.6.6.6, {address}\r\n");
    let first = door.knock(MACAW, &of("192.0.2.1")).await;
    assert_eq!(first.status, 101);
    let refused = door.knock(MACAW, &of("192.0.2.1")).await;
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("this address; at most 1"), "{}", refused.body);
    let six = door.knock(MACAW, &of("2001:db8::1")).await;
    assert_eq!(six.status, 101, "another's is another's");
    assert_eq!(door.knock(MACAW, &of("2001:db8::2")).await.status, 429, "one customer's /64");
    let own = door.knock(MACAW, "").await;
    assert_eq!((own.status, door.knock(MACAW, "").await.status), (101, 429), "the proxy itself");
    first.close().await;
    drop(door.knock_until_in(MACAW, &of("192.0.2.1")).await);

    // Who is not trusted cannot choose.
    door.reload("[limits]\nsessions_per_address = 1\n").unwrap();
    assert_eq!(door.knock(MACAW, &of("192.0.2.77")).await.status, 429);
}

#[tokio::test]
async fn who_stalls_makes_room_for_others_and_is_given_up() {
    let toml = "[limits]\nconnections_max = 2\nhandshake_timeout_ms = 600000\n";
    let door = Door::open("stalls", toml, &[]).await;
    let mut live = door.knock(MACAW, "").await;
    let mut half = door.tcp().await;
    half.write_all(b"GET /v1/realtime HTTP/1.1\r\nHost: ").await.unwrap();
    let (silent, _silent) = (door.tcp().await, door.tcp().await);
    let mut served = door.knock(MACAW, "").await;
    assert_eq!(served.status, 101);
    assert_hung_up(half).await;
    assert_hung_up(silent).await;
    live.assert_lives().await;
    served.assert_lives().await;

    door.reload("[limits]\nhandshake_timeout_ms = 100\n").unwrap();
    let mut half = door.tcp().await;
    half.write_all(b"GET /v1/realtime HTTP/1.1\r\nHost: ").await.unwrap();
    assert_hung_up(half).await;
    live.assert_lives().await;
}

#[tokio::test]
async fn a_session_ends_in_words_when_its_time_is_up() {
    let door = Door::open("time", "[limits]\nsession_max_ms = 150\n", &[]).await;
    let mut served = door.knock(MACAW, "").await;
    assert_eq!(served.event().await["type"], "session.created");
    let closed = served.event().await;
    assert_eq!((&closed["type"], &closed["reason"]), (&"session.closed".into(), &"session_expired".into()));
    let Some(Message::Close(Some(frame))) = served.message().await else { panic!("no close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, "session_expired"));

    let mut relayed = door.knock("/v1/realtime?mode=audio", "").await;
    let last = loop {
        match relayed.message().await {
            Some(Message::Text(text)) if text.contains("session.closed") => break text,
            Some(Message::Text(_)) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(last.contains("\"timeout\""), "{last}");
}

#[tokio::test]
async fn a_message_may_be_no_longer_than_allowed() {
    let keys = "[[key]]\nname = \"short\"\nkey = \"k\"\nmessage_max_bytes = 1000\n";
    let toml = "[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n[limits]\nmessage_max_bytes = 5000\n";
    let door = Door::open("message", toml, &[("keys.toml", keys)]).await;
    for (headers, most) in [(bearer("k"), 1000), (String::new(), 5000)] {
        let mut served = door.knock(MACAW, &headers).await;
        assert_eq!(served.event().await["type"], "session.created");
        served.send(Message::binary(vec![0; most])).await;
        served.assert_lives().await;
        served.send(Message::binary(vec![0; most + 1])).await;
        let Some(Message::Close(Some(frame))) = served.message().await else { panic!("no close frame") };
        assert_eq!(u16::from(frame.code), 1009);
    }
}

#[tokio::test]
async fn who_finds_no_room_has_not_used_up_its_rate() {
    let keys = "[[key]]\nname = \"slow\"\nkey = \"k\"\nnew_per_minute = 1\n";
    let toml = "sessions_max = 1\n[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n";
    let door = Door::open("no-room", toml, &[("keys.toml", keys)]).await;
    let live = door.knock(MACAW, "").await;
    for _ in 0..3 {
        assert_eq!(door.knock(MACAW, &bearer("k")).await.status, 503);
    }
    live.close().await;
    door.knock_until_in(MACAW, &bearer("k")).await.close().await;
    drop(door.knock_until_in(MACAW, "").await);
}

#[tokio::test]
async fn an_address_that_cannot_be_read_is_not_passed_over() {
    let toml = "[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[limits]\nsessions_per_address = 1\n";
    let door = Door::open("unreadable", toml, &[]).await;
    let knock = async |forged: &str| {
        let mut request = format!(
            "GET {MACAW} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             X-Forwarded-For: {forged}\r\nX-Forwarded-For: "
        )
        .into_bytes();
        request.extend_from_slice(b"\xff\r\n\r\n");
        ask(door.tcp().await, &request).await
    };
    let first = knock("192.0.2.1").await;
    assert_eq!(first.status, 101);
    assert_eq!(knock("192.0.2.2").await.status, 429, "both are the proxy's, whatever was sent through it");
}

#[tokio::test]
async fn overload_sheds_who_is_new() {
    let door = Door::open("full", "sessions_max = 1\n", &[]).await;
    let mut live = door.knock(MACAW, "").await;
    let refused = door.knock(MACAW, "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    live.assert_lives().await;
    // A reset is an end, too.
    drop(live);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_zero_linger().unwrap();
    let stream = socket.connect(door.address).await.unwrap();
    drop(stream);
    door.knock_until_in(MACAW, "").await.close().await;
}
