//! Sends, reads and times a socket out in virtual time.

use std::sync::Arc;

use super::*;
use crate::{
    server::{memory::MemoryShare, websocket::PONG_ROOM_BYTES},
    spelling::Library,
};
use futures_util::SinkExt as _;
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;

#[tokio::test]
async fn drop_turn_discards_unsent_messages_of_that_turn_only() {
    let (near, far) = tokio::io::duplex(1024);
    let near = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    let mut socket = SessionSocket::new(near);
    let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    socket.send(Message::Text("start".into()));
    for _ in 0..10 {
        socket.send_tagged(Message::Binary(Bytes::from_static(&[1; 5000])), Some(SpeechId(1)));
    }
    let stuck = std::future::poll_fn(|cx| Poll::Ready(socket.poll_write(cx).is_pending())).await;
    assert!(stuck && socket.outbox.bytes() > 30_000, "the outbox fills because the client does not read");
    assert_eq!(socket.outbox.unwritten(), Some((SpeechId(1), 6 * 5000, 10 * 5000)));
    socket.drop_turn(SpeechId(1));
    assert_eq!(socket.outbox.unwritten(), Some((SpeechId(1), 0, 10 * 5000)), "nothing of it waits");
    assert_eq!(
        socket.outbox.bytes(),
        261 + 4 * 5_256,
        "the first messages are written together, and partly sent"
    );
    socket.send(Message::Text("end".into()));
    let reading = async {
        let mut seen = Vec::new();
        while seen.last() != Some(&WsMessage::text("end")) {
            seen.push(client.next().await.unwrap().unwrap());
        }
        seen
    };
    let (written, seen) = tokio::join!(std::future::poll_fn(|cx| socket.poll_write(cx)), reading);
    written.unwrap();
    assert_eq!(seen[0], WsMessage::text("start"));
    let audio = seen.iter().filter(|message| message.is_binary()).count();
    assert_eq!((audio, seen.len()), (4, 6), "partly sent messages arrive whole");
}

/// Empty frames of a client, masked with zeros.
const PONG: [u8; 6] = [0x8a, 0x80, 0, 0, 0, 0];
const TEXT: [u8; 6] = [0x81, 0x80, 0, 0, 0, 0];

/// A server's socket with byte counters, and the client's raw end.
fn socket_pair() -> (SessionSocket<DuplexStream>, DuplexStream) {
    let (near, far) = tokio::io::duplex(1024);
    let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    (SessionSocket::new(stream), far)
}

/// Polls a socket like the session's task until an event comes.
async fn next_event(socket: &mut SessionSocket<DuplexStream>) -> SocketEvent {
    loop {
        let mut timer = Box::pin(tokio::time::sleep_until(socket.timer_deadline()));
        let event = std::future::poll_fn(|cx| {
            if let Poll::Ready(Err(reason)) = socket.poll_write(cx) {
                return Poll::Ready(Some(SocketEvent::End(reason)));
            }
            match socket.poll_read(cx) {
                Poll::Ready(event) => Poll::Ready(Some(event)),
                Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
            }
        });
        if let Some(event) = event.await {
            return event;
        }
        if let Some(reason) = socket.handle_timer(Instant::now()) {
            return SocketEvent::End(reason);
        }
    }
}

#[tokio::test]
async fn message_that_one_poll_does_not_read_to_its_end_leaves_more_to_read() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    let mut socket = SessionSocket::new(stream);
    let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    client.send(WsMessage::binary(vec![1; 400 * 1024])).await.unwrap();
    let mut polls = 0;
    let event = std::future::poll_fn(|cx| {
        let event = socket.poll_read(cx);
        assert!(!socket.fully_read, "the rest would wait for the next scheduled read");
        polls += 1;
        event
    });
    assert!(matches!(event.await, SocketEvent::Message(message) if message.len() == 400 * 1024));
    assert!(polls > 1, "the message is longer than one poll reads");
    assert!(std::future::poll_fn(|cx| Poll::Ready(socket.poll_read(cx).is_pending())).await);
    assert!(socket.fully_read);
}

#[tokio::test]
async fn message_that_is_being_written_counts_towards_the_memory_bound() {
    for (bytes, fits) in [(900_000, true), (1_200_000, false)] {
        let (mut socket, _far) = socket_pair();
        socket.stream.memory = MemoryShare::new(Arc::default(), 1_000_000);
        socket.send(Message::Binary(vec![1; bytes].into()));
        let polled = std::future::poll_fn(|cx| Poll::Ready(socket.poll_write(cx))).await;
        assert_eq!(polled.is_pending(), fits, "{polled:?}");
        assert!(socket.outbox.bytes() >= bytes, "the peer has read nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn long_outgoing_message_on_slow_connection_is_not_a_stall() {
    let (mut socket, mut far) = socket_pair();
    socket.send(Message::Binary(vec![1; 200 * 1024].into()));
    let client = async {
        let mut chunk = [0; 1024];
        for second in 0..200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            far.read_exact(&mut chunk).await.unwrap();
            if second % 20 == 0 {
                far.write_all(&PONG).await.unwrap();
            }
        }
        far.write_all(&TEXT).await.unwrap();
    };
    let (event, ()) = tokio::join!(next_event(&mut socket), client);
    assert!(matches!(event, SocketEvent::Message(WsMessage::Text(_))), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn long_incoming_message_on_slow_connection_is_not_silence() {
    let (mut socket, mut far) = socket_pair();
    let client = async {
        far.write_all(&[0x82, 0xff, 0, 0, 0, 0, 0, 3, 0x20, 0, 0, 0, 0, 0]).await.unwrap();
        for _ in 0..200 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            far.write_all(&[0; 1024]).await.unwrap();
        }
    };
    let (event, ()) = tokio::join!(next_event(&mut socket), client);
    let SocketEvent::Message(WsMessage::Binary(bytes)) = event else { panic!("{event:?}") };
    assert_eq!(bytes.len(), 200 * 1024);
}

/// The pings wait behind the messages that the client has not read, so that it cannot answer them.
#[tokio::test(start_paused = true)]
async fn client_that_reads_slowly_or_pauses_for_a_minute_is_not_lost() {
    let (mut socket, mut far) = socket_pair();
    socket.send(Message::Binary(vec![1; 200 * 1024].into()));
    let client = async {
        let mut chunk = [0; 1024];
        for number in 0..200 {
            let pause = if number == 100 { 90 } else { 2 };
            tokio::time::sleep(Duration::from_secs(pause)).await;
            far.read_exact(&mut chunk).await.unwrap();
        }
        far.write_all(&TEXT).await.unwrap();
    };
    let (event, ()) = tokio::join!(next_event(&mut socket), client);
    assert!(matches!(event, SocketEvent::Message(WsMessage::Text(_))), "{event:?}");
}

#[tokio::test(start_paused = true)]
async fn peer_that_stops_reading_or_sending_is_lost() {
    for (bytes, timeout, expected) in [
        (200 * 1024, CLIENT_STALL_TIMEOUT, "has not read for 120 s"),
        (0, SILENCE_TIMEOUT, "nothing heard for 60 s"),
    ] {
        let (mut socket, _far) = socket_pair();
        socket.send(Message::Binary(vec![1; bytes].into()));
        let start = Instant::now();
        let event = next_event(&mut socket).await;
        assert!(
            matches!(&event, SocketEvent::End(DisconnectReason::Lost(reason)) if reason.contains(expected)),
            "{event:?}"
        );
        let late = start.elapsed().saturating_sub(timeout);
        assert!(start.elapsed() >= timeout && late < Duration::from_millis(10), "{late:?}");
    }
}

#[tokio::test]
async fn flood_of_pings_lets_others_run() {
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    let mut socket = SessionSocket::new(stream);
    let count = 10 * CONTROL_FRAMES_PER_POLL;
    far.write_all(&[PONG.repeat(count), TEXT.to_vec()].concat()).await.unwrap();
    let mut polls = 0;
    let event = std::future::poll_fn(|cx| {
        polls += 1;
        socket.poll_read(cx)
    });
    assert!(matches!(event.await, SocketEvent::Message(_)));
    assert_eq!(polls, 11, "each poll but the last gives way");
}

#[tokio::test]
async fn unread_pongs_are_bounded() {
    let (near, mut far) = tokio::io::duplex(1024);
    let stream = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(16 << 20));
    let mut socket = SessionSocket::new(stream);
    // Masked pings with 125 bytes each; their answers are not read.
    let ping = [&[0x89, 0x80 | 125, 0, 0, 0, 0][..], &[b'p'; 125]].concat();
    let pings = async {
        for _ in 0..10_000 {
            far.write_all(&ping).await.unwrap();
        }
        far.write_all(&TEXT).await.unwrap();
    };
    let (event, ()) = tokio::join!(std::future::poll_fn(|cx| socket.poll_read(cx)), pings);
    assert!(matches!(event, SocketEvent::Message(_)), "{event:?}");
    socket.send(Message::Text("answer".into()));
    let flushing = std::future::poll_fn(|cx| socket.poll_write(cx));
    let reading = async {
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        while !bytes.windows(6).any(|six| six == b"answer") {
            let count = far.read(&mut chunk).await.unwrap();
            bytes.extend_from_slice(&chunk[..count]);
        }
        bytes.len()
    };
    let (written, bytes) = tokio::join!(flushing, reading);
    written.unwrap();
    assert!(bytes < 1024 + 2 * PONG_ROOM_BYTES, "{bytes} bytes of pongs waited");
}

#[tokio::test(start_paused = true)]
async fn long_message_must_make_progress_between_two_pings() {
    for (bytes_a_second, is_too_slow) in [(0, true), (1_000, true), (8_000, false)] {
        let (mut socket, mut far) = socket_pair();
        let head = [&[0x81, 0xff][..], &900_000_u64.to_be_bytes(), &[0; 4]].concat();
        let client = async {
            far.write_all(&[head, vec![b'x'; 200_000]].concat()).await.unwrap();
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                far.write_all(&vec![b'x'; bytes_a_second]).await.unwrap();
            }
        };
        let served = tokio::time::timeout(Duration::from_secs(50), next_event(&mut socket));
        tokio::select! {
            served = served => assert!(served.is_err(), "{served:?}"),
            () = client => {}
        }
        assert_eq!(socket.is_too_slow, is_too_slow, "{bytes_a_second}");
        socket.release_memory();
        assert_eq!(socket.stream.unfinished_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn remote_peer_has_a_time_limit_for_the_rest_of_its_outbox() {
    let (near, far) = tokio::io::duplex(4096);
    let near = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(1 << 20));
    let mut socket = SessionSocket::new(near);
    for _ in 0..60 {
        socket.send(Message::Binary(Bytes::from_static(&[1; 48_000])));
    }
    socket.send(Message::Close(1000, String::new()));
    let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    socket.close_in_background(Duration::from_secs(5), mpsc::channel(1).0);
    let mut messages = 0;
    while let Some(Ok(WsMessage::Binary(_))) = client.next().await {
        messages += 1;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert!(messages < 10, "{messages} of 60 s");
}

#[tokio::test(start_paused = true)]
async fn client_on_bare_tcp_may_be_silent_and_gets_no_pings() {
    let (near, mut far) = tokio::io::duplex(1024);
    let protocol = Library::embedded().unwrap().client("wyoming").unwrap().tcp.clone().unwrap();
    let mut socket = SessionSocket::new(WebSocket::bare(near, protocol, 1 << 20));
    let client = async {
        tokio::time::sleep(10 * SILENCE_TIMEOUT).await;
        far.write_all(b"{\"type\":\"ping\"}\n").await.unwrap();
    };
    let (event, ()) = tokio::join!(next_event(&mut socket), client);
    assert!(matches!(event, SocketEvent::Message(WsMessage::Text(_))), "{event:?}");
    // A client that begins a long message and does not go on is closed, and gets the reason.
    far.write_all(b"{\"type\":\"audio-chunk\",\"payload_length\":900000}\n").await.unwrap();
    let sending = async {
        for _ in 0..400 {
            far.write_all(&[0; 1024]).await.unwrap();
        }
    };
    let waiting = async {
        while !socket.is_too_slow {
            let event = tokio::time::timeout(Duration::from_secs(1), next_event(&mut socket)).await;
            assert!(event.is_err(), "{event:?}");
        }
    };
    tokio::join!(waiting, sending);
    socket.release_memory();
    socket.send(Message::Close(1008, TOO_SLOW.to_owned()));
    std::future::poll_fn(|cx| socket.poll_write(cx)).await.unwrap();
    let mut told = vec![0; 1024];
    let length = far.read(&mut told).await.unwrap();
    let told = String::from_utf8_lossy(&told[..length]).into_owned();
    assert!(told.starts_with("{\"type\":\"error\"") && told.contains("too little progress"), "{told}");
}

/// An upstream that closes while a long message is written to it, and reads the rest of it or not.
#[tokio::test]
async fn close_frame_within_a_long_outgoing_message_gives_the_reason() {
    for (bytes, reads_rest) in [(6 << 20, true), (6 << 20, false), (1 << 20, true), (1 << 20, false)] {
        let (near, mut far) = tokio::io::duplex(64 * 1024);
        let stream = WebSocket::new(near, Vec::new(), Role::Client, websocket_config(16 << 20));
        let mut socket = SessionSocket::new(stream);
        socket.send(Message::Binary(vec![1; bytes].into()));
        let upstream = async {
            far.read_exact(&mut [0; 200_000]).await.unwrap();
            let text = br#"{"type":"error"}"#;
            far.write_all(&[&[0x81, text.len() as u8], &text[..]].concat()).await.unwrap();
            far.write_all(&[&[0x88, 9, 0x03, 0xf1], &b"too big"[..]].concat()).await.unwrap();
            if reads_rest {
                let mut rest = vec![0; 1 << 20];
                // The answer to the close frame has come once nothing follows.
                while let Ok(Ok(1..)) =
                    tokio::time::timeout(Duration::from_millis(200), far.read(&mut rest)).await
                {
                }
            }
            drop(far);
        };
        let reading = async {
            let first = next_event(&mut socket).await;
            assert!(matches!(first, SocketEvent::Message(WsMessage::Text(_))), "{first:?}");
            next_event(&mut socket).await
        };
        let (end, ()) = tokio::join!(reading, upstream);
        let SocketEvent::End(reason) = end else { panic!("{end:?}") };
        let closed = DisconnectReason::Closed(1009, "too big".to_owned());
        assert_eq!(reason, closed, "{bytes} bytes, {reads_rest}");
    }
}
