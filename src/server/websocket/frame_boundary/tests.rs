//! Binary messages that a protocol never needs are refused at their header, in order with the other messages. All other messages
//! arrive unchanged.

use futures_util::{FutureExt as _, StreamExt as _};
use proptest::prelude::*;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream},
    task::unconstrained,
};
use tokio_tungstenite::tungstenite::{
    Error as WsError, Message,
    protocol::{
        Role,
        frame::{
            Frame,
            coding::{Data, OpCode},
        },
    },
};

use crate::server::websocket::{MessageMax, WebSocket, session_socket::websocket_config};

const MESSAGE_MAX: usize = 1 << 20;
const BINARY_MAX: usize = 100_000;

/// A server's socket with both bounds, and the client's raw end.
fn bounded_socket() -> (WebSocket<DuplexStream>, DuplexStream) {
    let (near, far) = tokio::io::duplex(4 << 20);
    let mut socket = WebSocket::new(near, Vec::new(), Role::Server, websocket_config(MESSAGE_MAX));
    socket.set_message_max(MessageMax { bytes: MESSAGE_MAX, binary_bytes: BINARY_MAX });
    (socket, far)
}

/// One frame of a client.
fn frame(data: Data, bytes: usize, is_final: bool) -> Vec<u8> {
    let mut frame = Frame::message(vec![b'7'; bytes], OpCode::Data(data), is_final);
    frame.header_mut().mask = Some([1, 2, 3, 4]);
    let mut wire = Vec::new();
    frame.format(&mut wire).unwrap();
    wire
}

fn text(bytes: usize) -> Message {
    Message::text("7".repeat(bytes))
}

/// The message that the session gets for a binary message of this length.
fn binary(bytes: usize) -> Message {
    let is_refused = bytes > BINARY_MAX;
    Message::binary(vec![if is_refused { 0 } else { b'7' }; bytes])
}

#[tokio::test]
async fn long_binary_message_is_refused_at_its_header_and_holds_no_memory() {
    let (mut socket, mut far) = bounded_socket();
    let long = frame(Data::Binary, 900_000, true);
    far.write_all(&[&frame(Data::Text, 10, true)[..], &long[..50_000]].concat()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), text(10));
    assert_eq!(socket.next().await.unwrap().unwrap(), binary(900_000));
    far.write_all(&long[50_000..800_000]).await.unwrap();
    assert!(unconstrained(socket.next()).now_or_never().is_none());
    assert_eq!(socket.frame_boundary.held_bytes(), 10, "the buffer of the text");
    far.write_all(&[&long[800_000..], &frame(Data::Binary, 5, true)].concat()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), binary(5));
}

#[tokio::test]
async fn long_frame_arrives_whole_although_it_is_given_in_pieces() {
    let words: String = (0..300_000).map(|at| char::from(b'a' + (at % 23) as u8)).collect();
    let masked = |data, from: &str, is_final, key: [u8; 4]| {
        let mut frame = Frame::message(from.as_bytes().to_vec(), OpCode::Data(data), is_final);
        frame.header_mut().mask = Some(key);
        let mut wire = Vec::new();
        frame.format(&mut wire).unwrap();
        wire
    };
    let [first, second] = [&words[..100_001], &words[100_001..]];
    let key = [1, 2, 0, 9];
    for wire in [
        masked(Data::Text, &words, true, key),
        [masked(Data::Text, first, false, key), masked(Data::Continue, second, true, [0xf1, 7, 8, 5])]
            .concat(),
        [
            masked(Data::Text, first, false, key),
            vec![0x89, 0x80, 0, 0, 0, 0],
            masked(Data::Continue, second, true, key),
        ]
        .concat(),
    ] {
        for step in [1009, 4096, 24_576, 1 << 20] {
            let (mut socket, mut far) = bounded_socket();
            let follows = frame(Data::Text, 3, true);
            for part in [&wire[..], &follows].concat().chunks(step) {
                far.write_all(part).await.unwrap();
                if socket.frame_boundary.payload_left > 0 {
                    assert!(!socket.frame_boundary.is_at_boundary());
                }
            }
            let mut messages = Vec::new();
            while messages.len() < 2 {
                messages.extend(Some(socket.next().await.unwrap().unwrap()).filter(Message::is_text));
            }
            assert!(messages[0].to_text().unwrap() == words, "{step}");
            assert_eq!(messages[1], text(3));
        }
    }
}

#[tokio::test]
async fn fragments_count_together_and_pings_between_them_are_answered() {
    let (mut socket, mut far) = bounded_socket();
    let ping = [0x89, 0x80, 0, 0, 0, 0];
    let wire = [
        &frame(Data::Binary, 60_000, false)[..],
        &frame(Data::Continue, 60_000, false),
        &ping,
        &frame(Data::Continue, 60_000, true),
        &frame(Data::Text, 3, true),
    ];
    far.write_all(&wire.concat()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), binary(120_000), "the length as far as it is known");
    assert!(socket.next().await.unwrap().unwrap().is_ping());
    assert_eq!(socket.next().await.unwrap().unwrap(), text(3));
}

#[tokio::test]
async fn long_text_is_received_and_longer_messages_end_the_connection() {
    let (mut socket, mut far) = bounded_socket();
    far.write_all(&frame(Data::Text, 900_000, true)).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), text(900_000));
    far.write_all(&frame(Data::Binary, MESSAGE_MAX + 1, true)[..1000]).await.unwrap();
    assert!(matches!(socket.next().await, Some(Err(WsError::Capacity(_)))));
}

#[tokio::test]
async fn frame_that_comes_with_the_handshake_is_refused_as_well() {
    let (near, _far) = tokio::io::duplex(64);
    let early = [&frame(Data::Binary, 900_000, true)[..30_000], b"!"].concat();
    let mut socket = WebSocket::new(near, early, Role::Server, websocket_config(MESSAGE_MAX));
    socket.set_message_max(MessageMax { bytes: MESSAGE_MAX, binary_bytes: BINARY_MAX });
    assert_eq!(socket.next().await.unwrap().unwrap(), binary(900_000));
    assert_eq!(socket.frame_boundary.held_bytes(), 0);
}

#[tokio::test]
async fn empty_fragments_end_the_connection_and_useful_ones_do_not() {
    for (bytes, fragments, is_ended) in [(0, 1_000, false), (64, 9_000, false), (0, 20_000, true)] {
        let (mut socket, mut far) = bounded_socket();
        let parts = frame(Data::Continue, bytes, false).repeat(fragments);
        far.write_all(&[frame(Data::Text, bytes, false), parts].concat()).await.unwrap();
        far.write_all(&frame(Data::Continue, 0, true)).await.unwrap();
        let received = socket.next().await.unwrap();
        let has_ended =
            matches!(&received, Err(WsError::Io(error)) if error.kind() == std::io::ErrorKind::QuotaExceeded);
        assert_eq!(has_ended, is_ended, "{bytes} {fragments}: {received:?}");
    }
}

#[tokio::test]
async fn close_code_1014_is_no_protocol_error() {
    for split in [1, 3, 7, 8, 10] {
        let (mut socket, mut far) = bounded_socket();
        let key = [9_u8, 8, 7, 6];
        let code = 1014_u16.to_be_bytes();
        let payload = [code[0] ^ key[0], code[1] ^ key[1], b'g' ^ key[2], b'w' ^ key[3]];
        let wire = [&[0x88, 0x84][..], &key, &payload].concat();
        far.write_all(&wire[..split]).await.unwrap();
        assert!(split == wire.len() || unconstrained(socket.next()).now_or_never().is_none());
        far.write_all(&wire[split..]).await.unwrap();
        let Message::Close(Some(close)) = socket.next().await.unwrap().unwrap() else {
            panic!("no close frame")
        };
        assert_eq!((&*close.reason, socket.unknown_close_code()), ("gw", Some(1014)));
        assert!(socket.next().await.is_none());
        let mut answer = [0; 4];
        far.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, [0x88, 4, 0x03, 0xf5], "1013, not 1002");
    }
}

proptest! {
    #![proptest_config(crate::property_config::property_config(64))]

    #[test]
    fn messages_keep_their_order_for_any_lengths_fragments_and_reads(
        messages in prop::collection::vec((any::<bool>(), prop::collection::vec(0usize..80_000, 1..4)), 1..8),
        cuts in prop::collection::vec(1usize..60_000, 0..40),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (mut socket, mut far) = bounded_socket();
            let (mut wire, mut expected) = (Vec::new(), Vec::new());
            for (is_binary, fragments) in messages {
                for (index, bytes) in fragments.iter().enumerate() {
                    let first = if is_binary { Data::Binary } else { Data::Text };
                    let data = if index == 0 { first } else { Data::Continue };
                    wire.extend(frame(data, *bytes, index + 1 == fragments.len()));
                }
                let mut lengths = fragments.iter().scan(0, |sum, bytes| { *sum += bytes; Some(*sum) });
                let total = fragments.iter().sum();
                let known = lengths.find(|length| *length > BINARY_MAX).unwrap_or(total);
                expected.push(if is_binary { binary(known) } else { text(total) });
            }
            let (mut position, mut received) = (0, Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let next = position + cut.min(wire.len() - position);
                far.write_all(&wire[position..next]).await.unwrap();
                position = next;
                // A poll that has read much finds nothing, so that other sessions get their turn.
                let mut found_nothing = 0;
                while found_nothing < 40 {
                    match unconstrained(socket.next()).now_or_never() {
                        Some(message) => received.push(message.unwrap().unwrap()),
                        None => found_nothing += 1,
                    }
                }
            }
            assert!(received == expected, "{:?}", received.iter().map(Message::len).collect::<Vec<_>>());
        });
    }
}

#[tokio::test]
async fn close_frame_with_a_long_length_is_an_error_wherever_it_is_cut() {
    // A masked close frame whose length of 2 is spelt in eight bytes, against RFC 6455 §5.5.
    let wire = [0x88, 0xff, 0, 0, 0, 0, 0, 0, 0, 2, 1, 2, 3, 4, 0x02, 0xea];
    for cut in 1..wire.len() {
        let (mut socket, mut far) = bounded_socket();
        far.write_all(&wire[..cut]).await.unwrap();
        assert!(
            unconstrained(socket.next()).now_or_never().is_none_or(|read| read.is_none_or(|it| it.is_err()))
        );
        // The socket may have closed already.
        let _ = far.write_all(&wire[cut..]).await;
        drop(far);
        while let Some(Ok(message)) = socket.next().await {
            assert!(matches!(message, Message::Close(_)), "cut at {cut}: {message}");
        }
    }
}
