//! Clients that say what no good client says: each gets its protocol's own answer, and nobody else notices.

use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tokio::io::AsyncWriteExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::{
    bench::{Bench, Client},
    doors::{
        DOORS, Door,
        Door::{Current, Listen, Macaw, Older, Speak, Vosk},
        Outcome, bench, push,
    },
    relayed::kinds,
};

const MIB: usize = 1 << 20;

/// What is documented to come of it.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// An error of this code; the session goes on.
    Told(&'static str),
    /// The end, with this code.
    End(u16),
    /// The session goes on as if nothing had been.
    Nothing,
}

use Comes::{End, Nothing, Told};

/// For each door, in the order of [`DOORS`].
type Row = (&'static str, [Comes; 6]);

/// What is no message of the protocol.
fn texts() -> Vec<(String, [Comes; 6])> {
    let not_json = [Told("malformed_json"), End(1000), End(1003), End(1007), End(1008), End(1008)];
    let not_known =
        [Told("unknown_command"), End(1000), Told("unknown_event"), End(1008), End(1008), End(1008)];
    // Who asks for no type does not look at one.
    let mut without_type = not_json;
    without_type[3] = End(1008);
    let rows: [Row; 14] = [
        ("", not_json),
        ("{", not_json),
        ("[1]", not_json),
        ("null", not_json),
        ("\"text\"", not_json),
        ("{\"type\": \"\u{0}\"", not_json),
        (r#"{"type": "\ud800"}"#, without_type),
        ("{} {}", not_json),
        ("{}", not_known),
        (r#"{"type": 5}"#, not_known),
        (r#"{"type": null}"#, not_known),
        (r#"{"type": ["session.close"]}"#, not_known),
        (r#"{"TYPE": "session.close"}"#, not_known),
        (r#"{"type": "what", "x": [1, {"y": 1e999}]}"#, not_known),
    ];
    let mut rows: Vec<_> = rows.into_iter().map(|(text, comes)| (text.to_owned(), comes)).collect();
    rows.push(("[".repeat(100_000), not_json));
    rows.push((format!("{{\"type\": {}", "{\"a\":".repeat(50_000)), not_json));
    rows.push((format!("{{\"type\": {:?}}}", "x".repeat(100_000)), not_known));
    rows
}

/// What is one, and wrong in it.
const WRONG: [(Door, &str, Comes); 22] = [
    (Macaw, r#"{"type": "tts.speak"}"#, Told("validation_error")),
    (Macaw, r#"{"type": "tts.speak", "text": 5}"#, Told("validation_error")),
    (Macaw, r#"{"type": "session.configure", "hot_words": {"a": 1}}"#, Told("validation_error")),
    (
        Macaw,
        r#"{"type": "session.configure", "input_sample_rate": 9223372036854775807}"#,
        Told("validation_error"),
    ),
    (Macaw, r#"{"type": "tts.speak", "text": "Hi", "ref_audio": "AAAAA"}"#, Told("invalid_request")),
    (Macaw, r#"{"type": "what", "type": "input_audio_buffer.commit"}"#, Nothing),
    (Current, r#"{"type": "session.init"}"#, End(1000)),
    (Current, r#"{"type": "input.append"}"#, End(1000)),
    (Current, r#"{"type": "input.append", "input": []}"#, End(1000)),
    (Current, r#"{"type": "input.append", "input": {"audio": "AAA"}}"#, End(1000)),
    (Current, r#"{"type": "input.append", "input": {"audio": {"data": {"data": []}}}}"#, End(1000)),
    (Older, r#"{"type": "session.update", "session": []}"#, Told("invalid_payload")),
    (Older, r#"{"type": "session.update"}"#, Told("missing_field")),
    (Older, r#"{"type": "session.update", "session": {"ref_audio": "///"}}"#, Told("invalid_payload")),
    (Older, r#"{"type": "input_audio_buffer.append"}"#, Told("missing_field")),
    (Older, r#"{"type": "input_audio_buffer.append", "audio": 7}"#, Told("invalid_payload")),
    (Vosk, r#"{"config": 5}"#, End(1008)),
    (Vosk, r#"{"config": {"sample_rate": -1}}"#, End(1008)),
    (Listen, r#"{"type": "Configure", "keyterms": "a"}"#, End(1008)),
    (Listen, r#"{"type": "Speak", "text": "Hi"}"#, End(1008)),
    (Speak, r#"{"type": "Speak"}"#, End(1008)),
    (Speak, r#"{"type": "Speak", "text": ["Hi"]}"#, End(1008)),
];

/// Binary frames of so many bytes.
const BINARY: [(usize, [Comes; 6]); 3] = [
    (0, [Nothing, End(1000), End(1003), Nothing, Nothing, Nothing]),
    (3, [Nothing, End(1000), End(1003), Nothing, Nothing, End(1003)]),
    (MIB + 2, [Told("frame_too_large"), End(1000), End(1003), End(1009), End(1009), End(1009)]),
];

/// Bytes beyond the longest message of each door.
const TOO_LONG: [usize; 6] = [16 * MIB, 128 * MIB, 128 * MIB, MIB, 4 * MIB, MIB / 4];

/// What is no WebSocket frame, or none in its place.
const FRAMES: [(&[u8], u16); 8] = [
    (b"\x81\x02{}", 1002),                                       // not masked
    (b"\x83\x80\0\0\0\0", 1002),                                 // no such opcode
    (b"\xc1\x82\0\0\0\0{}", 1002),                               // a reserved bit
    (b"\x80\x80\0\0\0\0", 1002),                                 // goes on with nothing
    (b"\x01\x81\0\0\0\0{\x81\x81\0\0\0\0}", 1002),               // another one in the middle of one
    (b"\x09\x80\0\0\0\0", 1002),                                 // a ping in pieces
    (b"\x81\x82\0\0\0\0\xff\xfe", 1007),                         // no UTF-8
    (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009), // longer than anything
];

/// Somebody else on the same bridge, whose texts are spoken all the time.
async fn bystander(bench: &Bench, over: &AtomicBool) {
    let mut client = Macaw.enter(bench).await;
    while !over.load(Ordering::Relaxed) {
        assert_eq!(Macaw.works(&mut client).await, Outcome::Works);
    }
    assert_eq!(Macaw.told(&client), None);
    client.close().await;
}

/// Does all this at once, while somebody else is served.
async fn beside_somebody<F: Future<Output = ()>>(bench: &Bench, deeds: Vec<F>) {
    let over = AtomicBool::new(false);
    let all = async {
        join_all(deeds).await;
        over.store(true, Ordering::Relaxed);
    };
    tokio::join!(bystander(bench, &over), all);
}

/// What comes of a message, or of anything else that was done.
async fn expect(door: Door, mut client: Client, comes: Comes, what: &str) {
    let outcome = door.works(&mut client).await;
    let what = what.chars().take(100).collect::<String>();
    let story = || format!("{door:?} {what}: {}", kinds(&client));
    match comes {
        End(code) => assert_eq!(outcome, Outcome::Closed(code), "{}", story()),
        Nothing => {
            assert_eq!(outcome, Outcome::Works, "{}", story());
            assert_eq!(door.told(&client), None, "{}", story());
        }
        Told(code) => {
            assert_eq!(outcome, Outcome::Works, "{}", story());
            assert_eq!(door.told(&client).as_deref(), Some(code), "{}", story());
        }
    }
}

async fn sends(bench: &Bench, door: Door, message: Message, comes: Comes, what: &str) {
    let mut client = door.enter(bench).await;
    push(&mut client, message).await;
    expect(door, client, comes, what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_message_is_answered_as_documented() {
    let bench = &bench().await;
    let mut deeds = Vec::new();
    for (text, comes) in texts() {
        for (door, comes) in DOORS.into_iter().zip(comes) {
            let text = text.clone();
            deeds.push((door, Message::text(text.clone()), comes, text));
        }
    }
    for (door, text, comes) in WRONG {
        deeds.push((door, Message::text(text), comes, text.to_owned()));
    }
    for (bytes, comes) in BINARY {
        for (door, comes) in DOORS.into_iter().zip(comes) {
            deeds.push((door, Message::binary(vec![0; bytes]), comes, format!("{bytes} bytes")));
        }
    }
    let deeds = deeds.into_iter();
    let deeds = deeds.map(|(door, message, comes, what)| async move {
        sends(bench, door, message, comes, &what).await;
    });
    beside_somebody(bench, deeds.collect()).await;
}

/// A client that writes bytes of its own; whoever answers stops reading at what is wrong.
async fn writes(bench: &Bench, door: Door, bytes: &[u8]) -> Client {
    let mut client = door.enter(bench).await;
    drop(client.socket.get_mut().write_all(bytes).await);
    client
}

/// The beginning of a masked binary message of this length.
fn head(length: usize) -> Vec<u8> {
    let mut head = vec![0x82, 0xff];
    head.extend((length as u64).to_be_bytes());
    head.extend([0; 4]);
    head
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_frame_closes_with_its_code() {
    let bench = &bench().await;
    let mut deeds = Vec::new();
    for (door, too_long) in DOORS.into_iter().zip(TOO_LONG) {
        deeds.extend(FRAMES.iter().map(|(bytes, code)| (door, bytes.to_vec(), *code)));
        deeds.push((door, head(too_long + 1), 1009));
        // A ping that is too long.
        deeds.push((door, [&b"\x89\xfe\0\x7e\0\0\0\0"[..], &[0; 126]].concat(), 1002));
    }
    let deeds = deeds.into_iter().map(|(door, bytes, code)| async move {
        let mut client = writes(bench, door, &bytes).await;
        // Nothing more can be said after it.
        client.rest().await;
        let closed = client
            .seen
            .iter()
            .any(|seen| matches!(seen, super::bench::Seen::Close(came, _) if *came == code));
        assert!(closed, "{door:?} {:?}: {}", &bytes[..bytes.len().min(20)], kinds(&client));
    });
    beside_somebody(bench, deeds.collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_and_halves_are_borne() {
    let bench = &bench().await;
    let mut pings = Vec::new();
    for _ in 0..2_000 {
        pings.extend([0x89, 0xfd, 0, 0, 0, 0]);
        pings.extend([b'x'; 125]);
    }
    // A message in many pieces, most of them empty, is a message.
    let mut pieces = b"\x01\x81\0\0\0\0{".to_vec();
    for _ in 0..2_000 {
        pieces.extend(b"\x00\x80\0\0\0\0");
    }
    pieces.extend(b"\x80\x81\0\0\0\0}");
    let not_known = texts().into_iter().find(|(text, _)| text == "{}").unwrap().1;
    // Kept open: half a frame, half a message, half a head.
    let mut halves = Vec::new();
    for door in DOORS {
        for half in [&b"\x81\xfe\x10\0\0\0\0\0{\"type\""[..], b"\x01\x81\0\0\0\0{", b"\x81"] {
            halves.push(writes(bench, door, half).await);
        }
    }
    let deeds = DOORS.into_iter().zip(not_known).map(|(door, not_known)| {
        let (pings, pieces) = (&pings, &pieces);
        async move {
            expect(door, writes(bench, door, pings).await, Nothing, "pings").await;
            expect(door, writes(bench, door, pieces).await, not_known, "pieces").await;
        }
    });
    beside_somebody(bench, deeds.collect()).await;
    drop(halves);
    for door in DOORS {
        expect(door, door.enter(bench).await, Nothing, "after all").await;
    }
}
