//! Messages arrive whole for any chunking of bytes, also across replaced buffers. No long message leaves large
//! buffers behind.

mod autobahn;

use futures_util::{SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::WebSocketStream;

use super::{outbox::Outbox, *};

fn config() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(1024).write_buffer_size(0)
}

/// A connection with a buffer of `bytes`: our end, and the library's own end.
async fn socket_pair(bytes: usize) -> (WebSocket<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(bytes);
    let far = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    (WebSocket::new(near, Vec::new(), Role::Server, config()), far)
}

async fn send(socket: &mut WebSocket<DuplexStream>, message: Message) {
    poll_fn(|cx| socket.poll_ready(cx)).await.unwrap();
    let mut message = Some(message);
    poll_fn(|cx| Poll::Ready(socket.start_send(cx, message.take().unwrap(), false))).await.unwrap();
    poll_fn(|cx| socket.poll_flush(cx)).await.unwrap();
}

/// Polls the socket once and expects no message.
async fn assert_nothing_to_read(socket: &mut WebSocket<DuplexStream>) {
    let polled = poll_fn(|cx| Poll::Ready(socket.poll_next_unpin(cx))).await;
    assert!(polled.is_pending(), "{polled:?}");
}

fn has_small_buffers(socket: &WebSocket<DuplexStream>) -> bool {
    socket.longest_sent.max(socket.frame_boundary.longest_payload as usize) <= RETAINED_BUFFER_BYTES
}

fn message_of_length(bytes: usize) -> Message {
    Message::Binary((0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>().into())
}

/// A stream that counts how often it is written to.
struct CountedWrites {
    stream: DuplexStream,
    writes: usize,
}

impl AsyncRead for CountedWrites {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, into)
    }
}

impl AsyncWrite for CountedWrites {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.writes += 1;
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[tokio::test]
async fn messages_that_follow_each_other_are_written_together() {
    let (near, far) = tokio::io::duplex(1 << 20);
    let mut far = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    let near = CountedWrites { stream: near, writes: 0 };
    let (mut socket, mut outbox) =
        (WebSocket::new(near, Vec::new(), Role::Server, config()), Outbox::default());
    for (lengths, writes) in
        [(&[100, 4_800, 4_800, 4_800][..], 1), (&[5_000; 9], 3), (&[10, 200_000, 10], 2), (&[10], 1)]
    {
        lengths.iter().for_each(|bytes| outbox.push(message_of_length(*bytes), None));
        poll_fn(|cx| outbox.poll_flush(&mut socket, cx)).await.unwrap();
        assert_eq!(std::mem::take(&mut socket.io.writes), writes, "{lengths:?}");
        assert_eq!((outbox.bytes(), outbox.is_flushed), (0, true));
        for bytes in lengths {
            assert_eq!(far.next().await.unwrap().unwrap(), message_of_length(*bytes));
        }
        assert!(poll_fn(|cx| Poll::Ready(socket.poll_next_unpin(cx))).await.is_pending());
        assert!(socket.longest_sent <= RETAINED_BUFFER_BYTES, "{lengths:?}");
    }
}

#[tokio::test]
async fn large_buffers_are_released_after_long_messages() {
    let (mut socket, mut far) = socket_pair(1 << 20).await;
    for bytes in [100_000, 10, 200_000] {
        far.send(message_of_length(bytes)).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message_of_length(bytes));
        assert_eq!(has_small_buffers(&socket), bytes < 100);
        assert_nothing_to_read(&mut socket).await;
        assert!(has_small_buffers(&socket) && socket.read_ahead.buffer.is_empty());
    }
    send(&mut socket, message_of_length(100_000)).await;
    assert!(!has_small_buffers(&socket));
    assert_nothing_to_read(&mut socket).await;
    assert!(has_small_buffers(&socket));
    assert_eq!(far.next().await.unwrap().unwrap(), message_of_length(100_000));
}

#[tokio::test]
async fn buffer_of_a_long_message_counts_until_it_is_released() {
    let (mut socket, mut far) = socket_pair(1 << 20).await;
    far.send(message_of_length(200_000)).await.unwrap();
    socket.next().await.unwrap().unwrap();
    assert_eq!(socket.frame_boundary.held_bytes(), 200_000);
    assert_nothing_to_read(&mut socket).await;
    assert_eq!(socket.frame_boundary.held_bytes(), 0);
    // The library keeps the buffer of the longest frame beside the message.
    for (code, bytes, held) in [
        (Data::Binary, 50_000, 50_000 + 50_000),
        (Data::Continue, 30_000, 80_000 + 50_000),
        (Data::Continue, 60_000, 140_000 + 60_000),
    ] {
        let fragment = Frame::message(vec![7; bytes], OpCode::Data(code), false);
        far.send(Message::Frame(fragment)).await.unwrap();
        assert_nothing_to_read(&mut socket).await;
        assert_eq!(socket.frame_boundary.held_bytes(), held);
    }
}

#[tokio::test]
async fn long_message_is_read_in_parts_so_that_other_sessions_get_their_turn() {
    const BYTES: usize = 4 << 20;
    let (mut socket, mut far) = socket_pair(2 * BYTES).await;
    far.send(message_of_length(BYTES)).await.unwrap();
    let (mut polls, mut longest) = (0, 0);
    let message = poll_fn(|cx| {
        let before = socket.frame_boundary.held_bytes();
        let polled = socket.poll_next_unpin(cx);
        longest = longest.max(socket.frame_boundary.held_bytes() - before);
        polls += 1;
        polled
    });
    assert_eq!(message.await.unwrap().unwrap(), message_of_length(BYTES));
    let max_bytes = POLL_MAX_BYTES + READ_BUFFER_BYTES;
    assert!(polls > BYTES / max_bytes && longest <= max_bytes, "{polls} polls of up to {longest} bytes");
}

#[tokio::test]
async fn partly_read_or_written_message_keeps_its_buffers() {
    let (mut socket, mut far) = socket_pair(64 * 1024).await;
    let fragment =
        |code, is_final| Message::Frame(Frame::message(vec![7; 10_000], OpCode::Data(code), is_final));
    far.send(fragment(Data::Binary, false)).await.unwrap();
    assert_nothing_to_read(&mut socket).await;
    assert!(!has_small_buffers(&socket), "a message is half read");
    far.send(Message::Ping(Bytes::from_static(b"!"))).await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_ping());
    assert_nothing_to_read(&mut socket).await;
    assert!(!has_small_buffers(&socket), "a ping does not complete the message");
    far.send(fragment(Data::Continue, true)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap().len(), 20_000);
    // More than the connection takes; the peer reads nothing yet.
    poll_fn(|cx| Poll::Ready(socket.start_send(cx, message_of_length(100_000), false))).await.unwrap();
    assert_nothing_to_read(&mut socket).await;
    assert!(!has_small_buffers(&socket), "the message is half written");
    let written = async {
        poll_fn(|cx| socket.poll_flush(cx)).await.unwrap();
        assert_nothing_to_read(&mut socket).await;
    };
    let (pong, ()) = tokio::join!(far.next(), written);
    assert!(pong.unwrap().unwrap().is_pong());
    assert_eq!(far.next().await.unwrap().unwrap(), message_of_length(100_000));
    assert!(has_small_buffers(&socket));
}

#[tokio::test]
async fn unread_answers_to_pings_leave_room_for_the_next_message() {
    for (before, after) in [(10, 10), (3_000, 10), (30_000, 10), (10, 30_000)] {
        let (mut socket, mut far) = socket_pair(64 * 1024).await;
        send(&mut socket, message_of_length(before)).await;
        assert_eq!(far.next().await.unwrap().unwrap(), message_of_length(before));
        // Fill the connection with answers that the peer does not read, and then what room there is for more.
        for _ in 0..1_000 {
            far.get_mut().write_all(&[&[0x89, 0xfd, 0, 0, 0, 0][..], &[b'x'; 125]].concat()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap().is_ping());
        }
        poll_fn(|cx| Poll::Ready(socket.start_send(cx, message_of_length(after), false))).await.unwrap();
        let arrived = async {
            while let Some(message) = far.next().await {
                if !matches!(message.as_ref().unwrap(), Message::Pong(_)) {
                    return message.unwrap();
                }
            }
            panic!("the connection has ended");
        };
        let (flushed, arrived) = tokio::join!(poll_fn(|cx| socket.poll_flush(cx)), arrived);
        flushed.unwrap();
        assert_eq!(arrived, message_of_length(after), "{before} and {after} bytes");
    }
}

#[tokio::test]
async fn close_handshake_completes_after_large_messages() {
    let (mut socket, mut far) = socket_pair(1 << 20).await;
    send(&mut socket, message_of_length(100_000)).await;
    socket.close(CloseFrame { code: 1000.into(), reason: "enough".into() }).await.unwrap();
    assert_nothing_to_read(&mut socket).await;
    assert!(far.next().await.unwrap().unwrap().is_binary() && far.next().await.unwrap().unwrap().is_close());
    far.flush().await.unwrap();
    assert!(socket.next().await.unwrap().unwrap().is_close(), "the peer answers the close frame");
    assert!(socket.next().await.is_none());
}

#[tokio::test]
async fn bytes_read_with_handshake_come_first() {
    let (near, mut far) = tokio::io::duplex(1024);
    let mut socket = WebSocket::new(near, vec![0x81, 3, b'o', b'n'], Role::Client, config());
    far.write_all(&[b'e', 0x81, 3, b't', b'w', b'o']).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("one"));
    assert_eq!(socket.next().await.unwrap().unwrap(), Message::text("two"));
}

proptest! {
    #![proptest_config(crate::property_config::property_config(48))]

    #[test]
    fn messages_arrive_whole_and_in_order(
        lengths in prop::collection::vec(0usize..40_000, 1..12), capacity in 1usize..30_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut socket, mut far) = socket_pair(capacity).await;
            let sending = async {
                for bytes in &lengths {
                    far.send(message_of_length(*bytes)).await.unwrap();
                }
            };
            let reading = async {
                for bytes in &lengths {
                    assert_eq!(socket.next().await.unwrap().unwrap(), message_of_length(*bytes));
                    assert!(socket.read_ahead.buffer.len() <= HEADER_MAX_BYTES + READ_BUFFER_BYTES);
                }
                assert_nothing_to_read(&mut socket).await;
            };
            tokio::join!(sending, reading);
            assert!(has_small_buffers(&socket) && socket.read_ahead.buffer.is_empty());
        });
    }

    #[test]
    fn frame_boundaries_match_library_frames(
        payloads in prop::collection::vec((prop_oneof![0usize..130, 65_530usize..=65_536], any::<bool>()), 1..6),
        cuts in prop::collection::vec(1usize..40_000, 0..12),
    ) {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for (payload, masked) in payloads {
            let mut frame = Frame::message(vec![0xff; payload], OpCode::Data(Data::Binary), true);
            frame.header_mut().mask = masked.then_some([1, 2, 3, 4]);
            frame.format(&mut bytes).unwrap();
            ends.push(bytes.len());
        }
        let (mut boundary, mut position) = (FrameBoundary::new(usize::MAX), 0);
        let mut passed = Vec::new();
        for cut in cuts.into_iter().chain([1; 400]) {
            let next = (position + cut).min(bytes.len());
            let mut block = [&[0; HEADER_MAX_BYTES], &bytes[position..next]].concat();
            let end = block.len();
            let given = boundary.advance(&mut block, HEADER_MAX_BYTES..end);
            passed.extend_from_slice(&block[given]);
            position = next;
            prop_assert_eq!(boundary.is_at_boundary(), ends.contains(&position));
            prop_assert!(bytes.starts_with(&passed) && passed.len() + HEADER_MAX_BYTES > position);
        }
    }
}

#[tokio::test]
async fn long_message_is_sent_in_fragments_and_arrives_whole() {
    for role in [Role::Server, Role::Client] {
        let (near, far) = tokio::io::duplex(300_000);
        let other = if role == Role::Server { Role::Client } else { Role::Server };
        let config = config().max_message_size(None).max_frame_size(Some(FRAGMENT_BYTES));
        let mut far = WebSocketStream::from_raw_socket(far, other, Some(config)).await;
        let mut near = WebSocket::new(near, Vec::new(), role, config);
        let mut outbox = Outbox::default();
        let text = "0123456789".repeat(WHOLE_MAX_BYTES / 10 + 77_777);
        outbox.push(Message::text(text.clone()), None);
        outbox.push(Message::text("next"), None);
        let sending = async { poll_fn(|cx| outbox.poll_flush(&mut near, cx)).await.unwrap() };
        let reading = async { [far.next().await, far.next().await].map(|message| message.unwrap().unwrap()) };
        let ((), messages) = tokio::join!(sending, reading);
        assert!(messages[0].to_text().unwrap() == text && messages[1].to_text().unwrap() == "next");
    }
}
