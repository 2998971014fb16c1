//! Messages arrive whole however the bytes come, also across new buffers, and no long one leaves its buffer behind.

use futures_util::{SinkExt as _, StreamExt as _};
use proptest::prelude::*;
use tokio::io::{AsyncWriteExt as _, DuplexStream};
use tokio_tungstenite::{
    WebSocketStream,
    tungstenite::protocol::frame::{
        Frame,
        coding::{Data, OpCode},
    },
};

use super::*;

fn config() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(1024).write_buffer_size(0)
}

/// A line that takes so many bytes at a time: ours, and the library's own end of it.
async fn line(bytes: usize) -> (Wire<DuplexStream>, WebSocketStream<DuplexStream>) {
    let (near, far) = tokio::io::duplex(bytes);
    let far = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
    (Wire::new(near, Vec::new(), Role::Server, config()), far)
}

async fn send(wire: &mut Wire<DuplexStream>, message: Message) {
    poll_fn(|cx| wire.poll_ready(cx)).await.unwrap();
    let mut message = Some(message);
    poll_fn(|cx| Poll::Ready(wire.start_send(cx, message.take().unwrap()))).await.unwrap();
    poll_fn(|cx| wire.poll_flush(cx)).await.unwrap();
}

/// Polls it once, when there is nothing to be read.
async fn look(wire: &mut Wire<DuplexStream>) {
    let came = poll_fn(|cx| Poll::Ready(wire.poll_next_unpin(cx))).await;
    assert!(came.is_pending(), "{came:?}");
}

fn is_small(wire: &Wire<DuplexStream>) -> bool {
    wire.longest.max(wire.frames.longest()) <= KEPT_BYTES
}

fn long(bytes: usize) -> Message {
    Message::Binary((0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>().into())
}

#[tokio::test]
async fn long_messages_leave_no_buffers_behind() {
    let (mut wire, mut far) = line(1 << 20).await;
    for bytes in [100_000, 10, 200_000] {
        far.send(long(bytes)).await.unwrap();
        assert_eq!(wire.next().await.unwrap().unwrap(), long(bytes));
        assert_eq!(is_small(&wire), bytes < 100);
        look(&mut wire).await;
        assert!(is_small(&wire) && wire.ahead.is_empty());
    }
    send(&mut wire, long(100_000)).await;
    assert!(!is_small(&wire));
    look(&mut wire).await;
    assert!(is_small(&wire));
    assert_eq!(far.next().await.unwrap().unwrap(), long(100_000));
}

#[tokio::test]
async fn what_is_half_read_or_half_written_is_kept() {
    let (mut wire, mut far) = line(64 * 1024).await;
    let part = |code, is_final| Message::Frame(Frame::message(vec![7; 10_000], OpCode::Data(code), is_final));
    far.send(part(Data::Binary, false)).await.unwrap();
    look(&mut wire).await;
    assert!(!is_small(&wire), "the message has begun");
    far.send(Message::Ping(Bytes::from_static(b"!"))).await.unwrap();
    assert!(wire.next().await.unwrap().unwrap().is_ping());
    look(&mut wire).await;
    assert!(!is_small(&wire), "a ping is not the rest of it");
    far.send(part(Data::Continue, true)).await.unwrap();
    assert_eq!(wire.next().await.unwrap().unwrap().len(), 20_000);
    // More than the line takes; the peer reads nothing yet.
    poll_fn(|cx| Poll::Ready(wire.start_send(cx, long(100_000)))).await.unwrap();
    look(&mut wire).await;
    assert!(!is_small(&wire), "not all of it is written");
    let written = async {
        poll_fn(|cx| wire.poll_flush(cx)).await.unwrap();
        look(&mut wire).await;
    };
    let (pong, ()) = tokio::join!(far.next(), written);
    assert!(pong.unwrap().unwrap().is_pong());
    assert_eq!(far.next().await.unwrap().unwrap(), long(100_000));
    assert!(is_small(&wire));
}

#[tokio::test]
async fn a_goodbye_is_not_forgotten() {
    let (mut wire, mut far) = line(1 << 20).await;
    send(&mut wire, long(100_000)).await;
    wire.close(CloseFrame { code: 1000.into(), reason: "enough".into() }).await.unwrap();
    look(&mut wire).await;
    assert!(far.next().await.unwrap().unwrap().is_binary() && far.next().await.unwrap().unwrap().is_close());
    far.flush().await.unwrap();
    assert!(wire.next().await.unwrap().unwrap().is_close(), "the answer to ours");
    assert!(wire.next().await.is_none());
}

#[tokio::test]
async fn what_came_with_the_handshake_comes_first() {
    let (near, mut far) = tokio::io::duplex(1024);
    let mut wire = Wire::new(near, vec![0x81, 3, b'o', b'n'], Role::Client, config());
    far.write_all(&[b'e', 0x81, 3, b't', b'w', b'o']).await.unwrap();
    assert_eq!(wire.next().await.unwrap().unwrap(), Message::text("one"));
    assert_eq!(wire.next().await.unwrap().unwrap(), Message::text("two"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn messages_arrive_whole_and_in_order(
        lengths in prop::collection::vec(0usize..40_000, 1..12), room in 1usize..30_000,
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut wire, mut far) = line(room).await;
            let sending = async {
                for bytes in &lengths {
                    far.send(long(*bytes)).await.unwrap();
                }
            };
            let reading = async {
                for bytes in &lengths {
                    assert_eq!(wire.next().await.unwrap().unwrap(), long(*bytes));
                    assert!(wire.ahead.len() <= ROOM_BYTES);
                }
                look(&mut wire).await;
            };
            tokio::join!(sending, reading);
            assert!(is_small(&wire) && wire.ahead.is_empty());
        });
    }

    #[test]
    fn frames_end_where_the_library_ends_them(
        payloads in prop::collection::vec((prop_oneof![0usize..130, 65_530usize..65_540], any::<bool>()), 1..6),
        cuts in prop::collection::vec(1usize..40_000, 0..12),
    ) {
        let (mut bytes, mut ends) = (Vec::new(), vec![0]);
        for (payload, masked) in payloads {
            let mut frame = Frame::message(vec![0xff; payload], OpCode::Data(Data::Binary), true);
            frame.header_mut().mask = masked.then_some([1, 2, 3, 4]);
            frame.format(&mut bytes).unwrap();
            ends.push(bytes.len());
        }
        let (mut frames, mut at) = (Frames::default(), 0);
        for cut in cuts.into_iter().chain([1; 400]) {
            let next = (at + cut).min(bytes.len());
            frames.pass(&bytes[at..next]);
            at = next;
            prop_assert_eq!(frames.is_between(), ends.contains(&at));
        }
    }
}
