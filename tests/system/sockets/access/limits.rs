//! Limits per key, per address and in total, and session time limits.

use super::*;

#[tokio::test]
async fn key_quota_is_released_when_session_ends() {
    let keys =
        "[[key]]\nname = \"one\"\nkey = \"k1\"\nsessions_max = 1\n[[key]]\nname = \"two\"\nkey = \"k2\"\n";
    let server =
        AccessServer::start("per-key", "[access]\nkeys = \"DIR/keys.toml\"\n", &[("keys.toml", keys)]).await;
    let first = server.connect(MACAW, &bearer("k1")).await;
    assert_eq!(first.status, 101);
    let refused = server.connect(MACAW, &bearer("k1")).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("5")));
    assert_eq!(refused.code(), "too_many_requests");
    assert!(refused.body.contains("this key; at most 1"), "{}", refused.body);
    assert_eq!(server.connect(MACAW, &bearer("k2")).await.status, 101, "another key has its own quota");
    first.close().await;
    let lost = server.connect_until_accepted(MACAW, &bearer("k1")).await;
    drop(lost);
    server.connect_until_accepted(MACAW, &bearer("k1")).await.close().await;
    // A connection that its protocol rejects is no longer counted.
    let mut unnamed = server.connect_until_accepted("/v1/realtime?model=", &bearer("k1")).await;
    while unnamed.message().await.is_some() {}
    server.connect_until_accepted(MACAW, &bearer("k1")).await;
}

#[tokio::test]
async fn rate_limited_client_gets_retry_after() {
    let keys = "[[key]]\nname = \"slow\"\nkey = \"k\"\nsessions_per_minute = 2\n";
    let server =
        AccessServer::start("rate", "[access]\nkeys = \"DIR/keys.toml\"\n", &[("keys.toml", keys)]).await;
    for _ in 0..2 {
        assert_eq!(server.connect(MACAW, &bearer("k")).await.status, 101);
    }
    let refused = server.connect(MACAW, &bearer("k")).await;
    assert_eq!(refused.status, 429);
    let seconds: u64 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=30).contains(&seconds), "{seconds}");
    assert!(refused.body.contains("at most 2 a minute"), "{}", refused.body);
}

#[tokio::test]
async fn address_quota_applies_behind_proxy() {
    let toml = "[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[limits]\nsessions_per_address = 1\n";
    let server = AccessServer::start("address", toml, &[]).await;
    let forwarded_for = |address: &str| format!("X-Forwarded-For: 6.6.6.6, {address}\r\n");
    let first = server.connect(MACAW, &forwarded_for("192.0.2.1")).await;
    assert_eq!(first.status, 101);
    let refused = server.connect(MACAW, &forwarded_for("192.0.2.1")).await;
    assert_eq!(refused.status, 429);
    assert!(refused.body.contains("this address; at most 1"), "{}", refused.body);
    let six = server.connect(MACAW, &forwarded_for("2001:db8::1")).await;
    assert_eq!(six.status, 101, "another address has its own quota");
    assert_eq!(
        server.connect(MACAW, &forwarded_for("2001:db8::2")).await.status,
        429,
        "one /64 network counts as one address"
    );
    let own = server.connect(MACAW, "").await;
    assert_eq!((own.status, server.connect(MACAW, "").await.status), (101, 429), "the proxy's quota");
    first.close().await;
    drop(server.connect_until_accepted(MACAW, &forwarded_for("192.0.2.1")).await);

    // An untrusted client cannot set its address.
    server.reload("[limits]\nsessions_per_address = 1\n").unwrap();
    assert_eq!(server.connect(MACAW, &forwarded_for("192.0.2.77")).await.status, 429);
}

#[tokio::test]
async fn stalled_handshake_is_evicted() {
    let toml = "[limits]\nhandshakes_max = 2\nhandshake_timeout_ms = 600000\n";
    let server = AccessServer::start("stalls", toml, &[]).await;
    let mut live = server.connect(MACAW, "").await;
    let mut half = server.tcp().await;
    half.write_all(b"GET /v1/realtime HTTP/1.1\r\nHost: ").await.unwrap();
    let (silent, _silent) = (server.tcp().await, server.tcp().await);
    let mut served = server.connect(MACAW, "").await;
    assert_eq!(served.status, 101);
    assert_disconnected(half).await;
    assert_disconnected(silent).await;
    live.assert_alive().await;
    served.assert_alive().await;

    server.reload("[limits]\nhandshake_timeout_ms = 100\n").unwrap();
    let mut half = server.tcp().await;
    half.write_all(b"GET /v1/realtime HTTP/1.1\r\nHost: ").await.unwrap();
    assert_disconnected(half).await;
    live.assert_alive().await;
}

#[tokio::test]
async fn session_time_limit_ends_with_reason() {
    let server = AccessServer::start("time", "[limits]\nsession_duration_max_ms = 150\n", &[]).await;
    let mut served = server.connect(MACAW, "").await;
    assert_eq!(served.wait_for_event().await["type"], "session.created");
    let closed = served.wait_for_event().await;
    assert_eq!((&closed["type"], &closed["reason"]), (&"session.closed".into(), &"session_expired".into()));
    let Some(Message::Close(Some(frame))) = served.message().await else { panic!("no close frame") };
    assert_eq!((u16::from(frame.code), frame.reason.as_str()), (1000, "session_expired"));

    let mut relayed = server.connect("/v1/realtime?mode=audio", "").await;
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
async fn message_length_limit_is_enforced() {
    let keys = "[[key]]\nname = \"short\"\nkey = \"k\"\nmessage_max_bytes = 1000\n";
    let toml = "[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n[limits]\nmessage_max_bytes = 5000\n";
    let server = AccessServer::start("message", toml, &[("keys.toml", keys)]).await;
    for (headers, most) in [(bearer("k"), 1000), (String::new(), 5000)] {
        let mut served = server.connect(MACAW, &headers).await;
        assert_eq!(served.wait_for_event().await["type"], "session.created");
        served.send(Message::binary(vec![0; most])).await;
        served.assert_alive().await;
        served.send(Message::binary(vec![0; most + 1])).await;
        let Some(Message::Close(Some(frame))) = served.message().await else { panic!("no close frame") };
        assert_eq!(u16::from(frame.code), 1009);
    }
}

#[tokio::test]
async fn limit_of_incoming_messages_does_not_limit_audio() {
    for limit in [1024, 4096, 32_768] {
        let toml = format!("[limits]\nmessage_max_bytes = {limit}\n");
        let server = AccessServer::start("outgoing", &toml, &[]).await;
        let mut client = server.connect(MACAW, "").await;
        client
            .send(Message::text(r#"{"type":"tts.speak","text":"Audio is longer than its command."}"#))
            .await;
        let mut audio_bytes = 0;
        let end = loop {
            match client.message().await {
                Some(Message::Binary(audio)) => audio_bytes += audio.len(),
                Some(Message::Text(text)) if text.contains("tts.speaking_end") => break text,
                Some(Message::Text(_)) => {}
                other => panic!("{limit}: {other:?}"),
            }
        };
        assert!(audio_bytes > 10_000 && end.contains(r#""cancelled":false"#), "{audio_bytes} bytes, {end}");
        client.assert_alive().await;
    }
}

/// Head of a text frame of this length, with a mask of zeros.
fn text_frame_head(length: u64) -> Vec<u8> {
    [&[0x81, 0xff][..], &length.to_be_bytes(), &[0; 4]].concat()
}

#[tokio::test]
async fn memory_of_unfinished_messages_is_bounded() {
    let server = AccessServer::start("memory", "[limits]\nmemory_max_bytes = 3000000\n", &[]).await;
    let send_part = async |client: &mut HandshakeAnswer<TcpStream>, head: &[u8], text: &[u8]| {
        // The server disconnects the one that sends too much.
        let _ = client.socket.get_mut().write_all(&[head, text].concat()).await;
    };
    let begin_message = async |bytes: usize| {
        let mut client = server.connect(MACAW, "").await;
        assert_eq!(client.status, 101);
        assert_eq!(client.wait_for_event().await["type"], "session.created");
        send_part(&mut client, &text_frame_head(16 << 20), &vec![0; bytes]).await;
        client
    };
    let mut healthy = server.connect(MACAW, "").await;
    let first = begin_message(1_500_000).await;
    let mut second = begin_message(2_500_000).await;
    let Some(Message::Close(Some(frame))) = second.message().await else { panic!("no close frame") };
    assert_eq!(u16::from(frame.code), 1013, "{}", frame.reason);
    healthy.assert_alive().await;
    drop((first, second));
    // The memory is free again.
    let mut third = begin_message(2_900_000).await;
    // A new client comes in, from the same address too, and the largest makes room for its message. The end of the message waits
    // for that: without it both might fit, one after the other.
    let mut newcomer = server.connect(MACAW, "").await;
    assert_eq!(newcomer.wait_for_event().await["type"], "session.created");
    let unknown = format!(r#"{{"type":"x","filler":"{}"}}"#, "x".repeat(600_000));
    let (begin, end) = unknown.as_bytes().split_at(unknown.len() - 1);
    send_part(&mut newcomer, &text_frame_head(unknown.len() as u64), begin).await;
    let Some(Message::Close(Some(frame))) = third.message().await else { panic!("no close frame") };
    assert_eq!(u16::from(frame.code), 1013, "{}", frame.reason);
    send_part(&mut newcomer, &[], end).await;
    assert_eq!(newcomer.wait_for_event().await["type"], "error");
    newcomer.assert_alive().await;
    healthy.assert_alive().await;
}

/// A Macaw client's audio is at most 1 MiB in a message. Longer audio is refused at its header, where the real server refuses
/// it at its end (tests/golden/macaw/c06c_binary_oversize.json), and takes no memory.
#[tokio::test]
async fn stalled_binary_messages_hold_no_memory() {
    let server = AccessServer::start("stalled", "[limits]\nmemory_max_bytes = 1000000\n", &[]).await;
    let mut stalled = Vec::new();
    for _ in 0..10 {
        let mut client = server.connect(MACAW, "").await;
        assert_eq!(client.wait_for_event().await["type"], "session.created");
        let head = [&[0x82, 0xff][..], &(16_u64 << 20).to_be_bytes(), &[0; 4]].concat();
        client.socket.get_mut().write_all(&[head, vec![0; 5_000_000]].concat()).await.unwrap();
        let error = client.wait_for_event().await;
        assert_eq!(error["message"], "Frame too large: 16777216 bytes (max 1048576)");
        stalled.push(client);
    }
    // The session goes on after the rest of the message.
    let mut client = stalled.remove(0);
    client.socket.get_mut().write_all(&vec![0; (16 << 20) - 5_000_000]).await.unwrap();
    client.assert_alive().await;
    server.connect(MACAW, "").await.assert_alive().await;
}

#[tokio::test]
async fn memory_of_messages_that_wait_for_an_upstream_is_bounded() {
    let queue = SimulatorConfig { faults: vec![FaultKind::StuckQueue.into()], ..instant_simulator() };
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", queue, None).await;
    let toml = format!(
        "[limits]\nmemory_max_bytes = 8000000\n[[upstream]]\nurl = \"ws://{upstream}/v1/realtime\"\n"
    );
    let server = AccessServer::start("waiting", &toml, &[]).await;
    let begin_conversation = async || {
        let mut client = server.connect_until_accepted("/v1/realtime?mode=audio", "").await;
        client.send(Message::text(r#"{"type":"session.init","payload":{}}"#)).await;
        assert_eq!(client.wait_for_event().await["type"], "session.queued");
        for _ in 0..3 {
            let audio = "A".repeat(1_500_000);
            let append = format!(r#"{{"type":"input.append","input":{{"audio":"{audio}"}}}}"#);
            // The server disconnects the one that sends too much.
            let _ = client.socket.send(Message::text(append)).await;
        }
        client
    };
    let (mut first, mut second) = (begin_conversation().await, begin_conversation().await);
    let close_code = async |client: &mut HandshakeAnswer<TcpStream>| {
        loop {
            if let Message::Close(frame) = client.message().await.expect("a close frame") {
                break frame.map(|frame| u16::from(frame.code));
            }
        }
    };
    // The one that is larger when the memory is full makes room.
    let either_code = async {
        tokio::select! {
            code = close_code(&mut first) => code,
            code = close_code(&mut second) => code,
        }
    };
    assert_eq!(timeout(PATIENCE, either_code).await, Ok(Some(1013)));
    drop((first, second));
    // The memory is free again.
    let mut third = begin_conversation().await;
    third.send(Message::text(r#"{"type":"session.close"}"#)).await;
    while third.wait_for_event().await["type"] != "session.closed" {}
}

#[tokio::test]
async fn memory_of_a_conversation_is_bounded_and_given_back() {
    let (upstream, _simulator, _) = start_simulator("127.0.0.1:0", instant_simulator(), None).await;
    let toml = format!(
        "[limits]\nmemory_max_bytes = 28000000\n[[upstream]]\nurl = \"ws://{upstream}/v1/realtime\"\n"
    );
    let server = AccessServer::start("conversation", &toml, &[]).await;
    // A picture of 3 MB, which comes back to the client twice.
    let picture = format!("data:image/jpeg;base64,/9j/{}", "A".repeat(4_000_000));
    let item = json!({"type": "conversation.item.create", "item": {"type": "message", "role": "user",
        "content": [{"type": "input_image", "image_url": picture}]}});
    let item = item.to_string();
    let open = async || server.connect_until_accepted("/openai/v1/realtime?model=gpt-realtime", "").await;
    let fill = async || {
        let mut client = open().await;
        for _ in 0..4 {
            client.send(Message::text(item.clone())).await;
            while client.wait_for_event().await["type"] != "conversation.item.done" {}
        }
        client
    };
    let first = fill().await;
    let mut second = open().await;
    for _ in 0..4 {
        // The server reads no more from the one that sends too much, and disconnects it.
        let sent = timeout(Duration::from_secs(2), second.socket.send(Message::text(item.clone())));
        if !matches!(sent.await, Ok(Ok(()))) {
            break;
        }
    }
    // The close frame is lost if the client still sends. A message that it left half sent ends the connection later than others.
    loop {
        match timeout(3 * PATIENCE, second.socket.next()).await.expect("the connection stays open") {
            Some(Ok(Message::Close(frame))) => {
                break assert_eq!(frame.map(|frame| u16::from(frame.code)), Some(1013));
            }
            Some(Ok(_)) => {}
            Some(Err(_)) | None => break,
        }
    }
    drop((first, second));
    // The memory is free again.
    fill().await;
}

#[tokio::test]
async fn rejection_for_capacity_does_not_use_rate() {
    let keys = "[[key]]\nname = \"slow\"\nkey = \"k\"\nsessions_per_minute = 1\n";
    let toml = "sessions_max = 1\n[access]\nkeys = \"DIR/keys.toml\"\nrequired = false\n";
    let server = AccessServer::start("no-room", toml, &[("keys.toml", keys)]).await;
    let live = server.connect(MACAW, "").await;
    for _ in 0..3 {
        assert_eq!(server.connect(MACAW, &bearer("k")).await.status, 503);
    }
    live.close().await;
    server.connect_until_accepted(MACAW, &bearer("k")).await.close().await;
    drop(server.connect_until_accepted(MACAW, "").await);
}

#[tokio::test]
async fn unreadable_address_is_rejected() {
    let toml = "[access]\ntrusted_proxies = [\"127.0.0.0/8\"]\n[limits]\nsessions_per_address = 1\n";
    let server = AccessServer::start("unreadable", toml, &[]).await;
    let connect = async |forged: &str| {
        let mut request = format!(
            "GET {MACAW} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
             X-Forwarded-For: {forged}\r\nX-Forwarded-For: "
        )
        .into_bytes();
        request.extend_from_slice(b"\xff\r\n\r\n");
        send_request(server.tcp().await, &request).await
    };
    let first = connect("192.0.2.1").await;
    assert_eq!(first.status, 101);
    assert_eq!(connect("192.0.2.2").await.status, 429, "both count for the proxy's address");
}

#[tokio::test]
async fn overload_rejects_new_sessions() {
    let server = AccessServer::start("full", "sessions_max = 1\n", &[]).await;
    let mut live = server.connect(MACAW, "").await;
    let refused = server.connect(MACAW, "").await;
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("5")));
    live.assert_alive().await;
    // A reset also ends the session.
    drop(live);
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_zero_linger().unwrap();
    let stream = socket.connect(server.address).await.unwrap();
    drop(stream);
    server.connect_until_accepted(MACAW, "").await.close().await;
}
