//! Invalid client messages: each one gets its protocol's own answer and affects no other client.

use Expected::{Closed, ModelOutput, NoEffect};

use super::protocols::Protocol::{Current, Legacy, Listen, Macaw, Speak, Vosk};
use super::*;

const MIB: usize = 1 << 20;

/// The documented effect of a message.
#[derive(Debug, Clone, Copy)]
enum Expected {
    /// An error with this code; the session continues.
    ModelOutput(&'static str),
    /// The session ends with this close code.
    Closed(u16),
    /// No effect; the session continues.
    NoEffect,
}

/// The effect for each protocol, in the order of [`PROTOCOLS`].
type Row = (&'static str, [Expected; 6]);

/// Texts that are not messages of the protocol.
fn invalid_messages() -> Vec<(String, [Expected; 6])> {
    let not_json =
        [ModelOutput("malformed_json"), Closed(1000), Closed(1003), Closed(1007), Closed(1008), Closed(1008)];
    let not_known = [
        ModelOutput("unknown_command"),
        Closed(1000),
        ModelOutput("unknown_event"),
        Closed(1008),
        Closed(1008),
        Closed(1008),
    ];
    // Other readers take it. A relay passes texts on as they are, so it mends none.
    let mut half_a_letter = not_known;
    half_a_letter[2] = Closed(1003);
    let rows: [Row; 14] = [
        ("", not_json),
        ("{", not_json),
        ("[1]", not_json),
        ("null", not_json),
        ("\"text\"", not_json),
        ("{\"type\": \"\u{0}\"", not_json),
        ("{} {}", not_json),
        ("{}", not_known),
        (r#"{"type": 5}"#, not_known),
        (r#"{"type": null}"#, not_known),
        (r#"{"type": "\ud800"}"#, half_a_letter),
        (r#"{"type": ["session.close"]}"#, not_known),
        (r#"{"TYPE": "session.close"}"#, not_known),
        (r#"{"type": "what", "x": [1, {"y": 1e999}]}"#, not_known),
    ];
    let mut rows: Vec<_> = rows.into_iter().map(|(text, expected)| (text.to_owned(), expected)).collect();
    rows.push(("[".repeat(100_000), not_json));
    rows.push((format!("{{\"type\": {}", "{\"a\":".repeat(50_000)), not_json));
    rows.push((format!("{{\"type\": {:?}}}", "x".repeat(100_000)), not_known));
    rows
}

/// Messages of the protocol with an invalid field.
const INVALID_FIELDS: [(Protocol, &str, Expected); 22] = [
    (Macaw, r#"{"type": "tts.speak"}"#, ModelOutput("validation_error")),
    (Macaw, r#"{"type": "tts.speak", "text": 5}"#, ModelOutput("validation_error")),
    (Macaw, r#"{"type": "session.configure", "hot_words": {"a": 1}}"#, ModelOutput("validation_error")),
    (
        Macaw,
        r#"{"type": "session.configure", "input_sample_rate": 9223372036854775807}"#,
        ModelOutput("validation_error"),
    ),
    (Macaw, r#"{"type": "tts.speak", "text": "Hi", "ref_audio": "AAAAA"}"#, ModelOutput("invalid_request")),
    (Macaw, r#"{"type": "what", "type": "input_audio_buffer.commit"}"#, NoEffect),
    (Current, r#"{"type": "session.init"}"#, Closed(1000)),
    (Current, r#"{"type": "input.append"}"#, Closed(1000)),
    (Current, r#"{"type": "input.append", "input": []}"#, Closed(1000)),
    (Current, r#"{"type": "input.append", "input": {"audio": "AAA"}}"#, Closed(1000)),
    (Current, r#"{"type": "input.append", "input": {"audio": {"data": {"data": []}}}}"#, Closed(1000)),
    (Legacy, r#"{"type": "session.update", "session": []}"#, ModelOutput("invalid_payload")),
    (Legacy, r#"{"type": "session.update"}"#, ModelOutput("missing_field")),
    (
        Legacy,
        r#"{"type": "session.update", "session": {"ref_audio": "///"}}"#,
        ModelOutput("invalid_payload"),
    ),
    (Legacy, r#"{"type": "input_audio_buffer.append"}"#, ModelOutput("missing_field")),
    (Legacy, r#"{"type": "input_audio_buffer.append", "audio": 7}"#, ModelOutput("invalid_payload")),
    (Vosk, r#"{"config": 5}"#, Closed(1008)),
    (Vosk, r#"{"config": {"sample_rate": -1}}"#, Closed(1008)),
    (Listen, r#"{"type": "Configure", "keyterms": "a"}"#, Closed(1008)),
    (Listen, r#"{"type": "Speak", "text": "Hi"}"#, Closed(1008)),
    (Speak, r#"{"type": "Speak"}"#, Closed(1008)),
    (Speak, r#"{"type": "Speak", "text": ["Hi"]}"#, Closed(1008)),
];

/// Binary frames of these lengths in bytes.
const BINARY_FRAMES: [(usize, [Expected; 6]); 3] = [
    (0, [NoEffect, Closed(1000), Closed(1003), NoEffect, NoEffect, NoEffect]),
    (3, [NoEffect, Closed(1000), Closed(1003), NoEffect, NoEffect, Closed(1003)]),
    (
        MIB + 2,
        [
            ModelOutput("frame_too_large"),
            Closed(1000),
            Closed(1003),
            Closed(1009),
            Closed(1009),
            Closed(1009),
        ],
    ),
];

/// Bytes above each protocol's longest message.
const TOO_LONG: [usize; 6] = [16 * MIB, 128 * MIB, 128 * MIB, MIB, 4 * MIB, MIB / 4];

/// Byte sequences that are invalid WebSocket frames or invalid at this point.
const FRAMES: [(&[u8], u16); 8] = [
    (b"\x81\x02{}", 1002),                                       // not masked
    (b"\x83\x80\0\0\0\0", 1002),                                 // no such opcode
    (b"\xc1\x82\0\0\0\0{}", 1002),                               // a reserved bit
    (b"\x80\x80\0\0\0\0", 1002),                                 // a continuation without a start
    (b"\x01\x81\0\0\0\0{\x81\x81\0\0\0\0}", 1002),               // a message inside a fragmented one
    (b"\x09\x80\0\0\0\0", 1002),                                 // a fragmented ping
    (b"\x81\x82\0\0\0\0\xff\xfe", 1007),                         // not UTF-8
    (b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\0\0\0\0", 1009), // an absurd length
];

/// Another client on the same bridge, which has texts spoken all the time.
async fn bystander(bench: &Bench, done: &AtomicBool) {
    let mut client = Macaw.open_session(bench).await;
    while !done.load(Relaxed) {
        assert_eq!(Macaw.probe_session(&mut client).await, Outcome::Works);
    }
    assert_eq!(Macaw.first_error_code(&client), None);
    client.close().await;
}

/// Runs all attempts at once while another client is served.
async fn run_beside_bystander<F: Future<Output = ()>>(bench: &Bench, attempts: Vec<F>) {
    let done = AtomicBool::new(false);
    let all = async {
        join_all(attempts).await;
        done.store(true, Relaxed);
    };
    tokio::join!(bystander(bench, &done), all);
}

/// Checks the effect of a message or other action.
async fn check_outcome(protocol: Protocol, mut client: Client, expected: Expected, what: &str) {
    let outcome = protocol.probe_session(&mut client).await;
    let what = what.chars().take(100).collect::<String>();
    let context = || format!("{protocol:?} {what}: {}", describe_received(&client));
    match expected {
        Closed(code) => assert_eq!(outcome, Outcome::Closed(code), "{}", context()),
        NoEffect => {
            assert_eq!(outcome, Outcome::Works, "{}", context());
            assert_eq!(protocol.first_error_code(&client), None, "{}", context());
        }
        ModelOutput(code) => {
            assert_eq!(outcome, Outcome::Works, "{}", context());
            assert_eq!(protocol.first_error_code(&client).as_deref(), Some(code), "{}", context());
        }
    }
}

async fn send_and_check(bench: &Bench, protocol: Protocol, message: Message, expected: Expected, what: &str) {
    let mut client = protocol.open_session(bench).await;
    send_ignoring_errors(&mut client, message).await;
    check_outcome(protocol, client, expected, what).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_messages_get_documented_answers() {
    let bench = &bench().await;
    let mut attempts = Vec::new();
    for (text, expected) in invalid_messages() {
        for (protocol, expected) in PROTOCOLS.into_iter().zip(expected) {
            let text = text.clone();
            attempts.push((protocol, Message::text(text.clone()), expected, text));
        }
    }
    for (protocol, text, expected) in INVALID_FIELDS {
        attempts.push((protocol, Message::text(text), expected, text.to_owned()));
    }
    for (bytes, expected) in BINARY_FRAMES {
        for (protocol, expected) in PROTOCOLS.into_iter().zip(expected) {
            attempts.push((protocol, Message::binary(vec![0; bytes]), expected, format!("{bytes} bytes")));
        }
    }
    let attempts = attempts.into_iter();
    let attempts = attempts.map(|(protocol, message, expected, what)| async move {
        send_and_check(bench, protocol, message, expected, &what).await;
    });
    run_beside_bystander(bench, attempts.collect()).await;
}

/// A client that writes raw bytes. The bridge stops reading at the first violation.
async fn write_raw(bench: &Bench, protocol: Protocol, bytes: &[u8]) -> Client {
    let mut client = protocol.open_session(bench).await;
    drop(client.socket.get_mut().write_all(bytes).await);
    client
}

/// Head of a masked binary frame of this length.
fn frame_head(length: usize) -> Vec<u8> {
    let mut head = vec![0x82, 0xff];
    head.extend((length as u64).to_be_bytes());
    head.extend([0; 4]);
    head
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_frames_close_with_their_codes() {
    let bench = &bench().await;
    let mut attempts = Vec::new();
    for (protocol, too_long) in PROTOCOLS.into_iter().zip(TOO_LONG) {
        attempts.extend(FRAMES.iter().map(|(bytes, code)| (protocol, bytes.to_vec(), *code)));
        attempts.push((protocol, frame_head(too_long + 1), 1009));
        // A ping that is too long.
        attempts.push((protocol, [&b"\x89\xfe\0\x7e\0\0\0\0"[..], &[0; 126]].concat(), 1002));
    }
    let attempts = attempts.into_iter().map(|(protocol, bytes, code)| async move {
        let mut client = write_raw(bench, protocol, &bytes).await;
        // The connection must end without further input.
        client.read_to_end().await;
        let closed = client
            .received
            .iter()
            .any(|frame| matches!(frame, ClientFrame::Close(received_code, _) if *received_code == code));
        assert!(closed, "{protocol:?} {:?}: {}", &bytes[..bytes.len().min(20)], describe_received(&client));
    });
    run_beside_bystander(bench, attempts.collect()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn floods_and_partial_messages_are_tolerated() {
    let bench = &bench().await;
    let mut pings = Vec::new();
    for _ in 0..2_000 {
        pings.extend([0x89, 0xfd, 0, 0, 0, 0]);
        pings.extend([b'x'; 125]);
    }
    // A message in many fragments, most of them empty, is valid.
    let mut pieces = b"\x01\x81\0\0\0\0{".to_vec();
    for _ in 0..2_000 {
        pieces.extend(b"\x00\x80\0\0\0\0");
    }
    pieces.extend(b"\x80\x81\0\0\0\0}");
    let not_known = invalid_messages().into_iter().find(|(text, _)| text == "{}").unwrap().1;
    // Half a frame, half a message and half a head, all kept open.
    let mut halves = Vec::new();
    for protocol in PROTOCOLS {
        for half in [&b"\x81\xfe\x10\0\0\0\0\0{\"type\""[..], b"\x01\x81\0\0\0\0{", b"\x81"] {
            halves.push(write_raw(bench, protocol, half).await);
        }
    }
    let attempts = PROTOCOLS.into_iter().zip(not_known).map(|(protocol, not_known)| {
        let (pings, pieces) = (&pings, &pieces);
        async move {
            check_outcome(protocol, write_raw(bench, protocol, pings).await, NoEffect, "pings").await;
            check_outcome(protocol, write_raw(bench, protocol, pieces).await, not_known, "pieces").await;
        }
    });
    run_beside_bystander(bench, attempts.collect()).await;
    drop(halves);
    for protocol in PROTOCOLS {
        check_outcome(protocol, protocol.open_session(bench).await, NoEffect, "after all").await;
    }
}
