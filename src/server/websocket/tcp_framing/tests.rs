use bytes::Bytes;

use super::*;
use crate::spelling::Library;

/// Gives its bytes in pieces of this length, then the end of the stream.
struct Pieces(Vec<u8>, usize);

impl Read for Pieces {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.0.len().min(self.1).min(into.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0.drain(..count);
        Ok(count)
    }
}

fn framing(client: &str) -> TcpFraming {
    let protocol = Library::embedded().unwrap().client(client).unwrap().tcp.clone().unwrap();
    TcpFraming::new(protocol, 100_000)
}

/// Every message, up to the end of the stream or the problem.
fn read_all(client: &str, bytes: &[u8], piece: usize) -> (Vec<Message>, String) {
    let (mut framing, mut io, mut messages) = (framing(client), Pieces(bytes.to_vec(), piece), Vec::new());
    loop {
        match framing.read(&mut io) {
            Ok(Message::Close(None)) => return (messages, String::new()),
            Ok(message) => messages.push(message),
            Err(WsError::Io(error)) => {
                let found = FramingProblem::find(&error);
                return (messages, found.map_or_else(|| error.to_string(), |(_, text)| text));
            }
            Err(error) => panic!("{error}"),
        }
    }
}

fn written(client: &str, messages: Vec<Message>) -> Vec<u8> {
    let (mut framing, mut out) = (framing(client), Vec::new());
    for message in messages {
        framing.write(&mut out, message).unwrap();
    }
    out
}

#[test]
fn lines_cut_anywhere_give_the_same_messages() {
    let chunk = |length: usize| {
        let data = r#"{"rate":16000,"width":2,"channels":1}"#;
        let line = format!(
            "{{\"type\":\"audio-chunk\",\"version\":\"1\",\"data_length\":{},\"payload_length\":{length}}}\n{data}",
            data.len()
        );
        [line.into_bytes(), vec![7; length]].concat()
    };
    let stream = [
        b"{\"type\":\"ping\",\"data\":{\"text\":\"a\"},\"data_length\":14}\n{\"text\": \"b\"}\n\n".to_vec(),
        chunk(640),
        chunk(640),
        chunk(20),
        b"{\"type\":\"audio-stop\",\"payload_length\":null}\r\n".to_vec(),
        chunk(20),
    ]
    .concat();
    let json =
        |text: &str| Message::text(serde_json::from_str::<serde_json::Value>(text).unwrap().to_string());
    let audio = |length: usize| Message::Binary(Bytes::from(vec![7; length]));
    let format = json(r#"{"type":"audio-chunk","version":"1","data":{"rate":16000,"width":2,"channels":1}}"#);
    let expected = vec![
        json(r#"{"type":"ping","data":{"text":"b"}}"#),
        format.clone(),
        audio(640),
        audio(640),
        format.clone(),
        audio(20),
        json(r#"{"type":"audio-stop"}"#),
        format,
        audio(20),
    ];
    for piece in [1, 3, 100, 100_000] {
        let (messages, problem) = read_all("wyoming", &stream, piece);
        assert_eq!((messages, problem), (expected.clone(), String::new()), "pieces of {piece} bytes");
    }
}

#[test]
fn broken_lines_are_problems() {
    for (bytes, words) in [
        (&b"nonsense\n"[..], "the line is not JSON"),
        (b"[1]\n", "the line is no JSON object"),
        (b"\xff\xfe\n", "the line is not JSON"),
        (b"{\"type\":\"a\",\"payload_length\":-1}\n", "`payload_length` is no number of bytes"),
        (b"{\"type\":\"a\",\"payload_length\":4294967296}\n", "bytes (max 100000)"),
        (b"{\"type\":\"a\",\"data_length\":18446744073709551615,\"payload_length\":9}\n", "a message of"),
        (b"{\"type\":\"a\",\"data_length\":2}\nxy", "the JSON behind a line is not JSON"),
        (b"{\"type\":\"a\"", "the connection ended in the middle of a message"),
        (b"{\"type\":\"a\",\"payload_length\":9}\nabc", "the connection ended in the middle of a message"),
    ] {
        let (messages, problem) = read_all("wyoming", bytes, 5);
        assert!(messages.is_empty() && problem.contains(words), "{messages:?} {problem}");
    }
    let (_, problem) = read_all("wyoming", &[b'a'; 200_000], 4000);
    assert_eq!(problem, "a line of more than 100000 bytes");
}

#[test]
fn audio_and_closes_are_written_in_the_protocols_form() {
    let out = written(
        "wyoming",
        vec![Message::text("{\"type\":\"pong\"}"), Message::binary(vec![1, 2]), Message::Ping(Bytes::new())],
    );
    let text = String::from_utf8_lossy(&out);
    assert!(text.starts_with("{\"type\":\"pong\"}\n{\"type\":\"audio-chunk\""), "{text}");
    assert!(text.ends_with("\"payload_length\":2}\n\u{1}\u{2}"), "{text}");
    let close = |code, reason: &'static str| {
        let frame = CloseFrame { code, reason: reason.into() };
        String::from_utf8(written("wyoming", vec![Message::Close(Some(frame))])).unwrap()
    };
    assert!(close(CloseCode::Size, "too long").contains("too long"));
    assert_eq!(close(CloseCode::Normal, "bye"), "");
    assert_eq!(close(CloseCode::Error, ""), "");
}

#[test]
fn nothing_is_read_after_the_last_message_was_written() {
    let (mut framing, mut out) = (framing("wyoming"), Vec::new());
    framing.write(&mut out, Message::Close(None)).unwrap();
    let read = framing.read(&mut Pieces(b"{}\n".to_vec(), 9));
    assert!(matches!(read, Err(WsError::ConnectionClosed)));
}

#[test]
fn records_become_audio_and_commands() {
    let stream = [
        &[1, 0, 16][..],
        &[0x12; 16],
        &[0x10, 0, 2, 5, 6],
        &[0x10, 0, 0],
        &[0x10, 0, 2, 7, 8],
        &[0x12, 0, 2, 7, 8],
        &[3, 0, 1, b'5'],
        &[0x77, 0, 0],
        &[0, 0, 0],
    ]
    .concat();
    let texts = |messages: &[Message]| -> Vec<String> {
        messages
            .iter()
            .map(|message| match message {
                Message::Text(text) => text.to_string(),
                Message::Binary(bytes) => format!("{bytes:?}"),
                other => panic!("{other:?}"),
            })
            .collect()
    };
    for piece in [1, 2, 100] {
        let (messages, problem) = read_all("audiosocket", &stream, piece);
        assert_eq!(problem, "");
        assert_eq!(
            texts(&messages),
            [
                r#"{"command":"uuid","content":"12121212-1212-1212-1212-121212121212"}"#,
                r#"{"command":"audio","rate_hz":8000}"#,
                r#"b"\x05\x06""#,
                r#"b"\x07\x08""#,
                r#"{"command":"audio","rate_hz":16000}"#,
                r#"b"\x07\x08""#,
                r#"{"command":"dtmf","content":"5"}"#,
                r#"{"command":"0x77"}"#,
                r#"{"command":"hangup"}"#,
            ]
        );
    }
}

#[test]
fn client_gets_the_kind_of_audio_that_it_sends() {
    let (mut framing, mut out) = (framing("audiosocket"), Vec::new());
    framing.write(&mut out, Message::binary(vec![1, 2])).unwrap();
    assert_eq!(out, [0x10, 0, 2, 1, 2], "before its first audio");
    out.clear();
    let mut io = Pieces(vec![0x12, 0, 2, 7, 8], 9);
    assert!(framing.read(&mut io).unwrap().is_text() && framing.read(&mut io).unwrap().is_binary());
    framing.write(&mut out, Message::binary(vec![1, 2])).unwrap();
    framing.write(&mut out, Message::text("{}")).unwrap();
    framing.write(&mut out, Message::Close(None)).unwrap();
    assert_eq!(out, [0x12, 0, 2, 1, 2, 0, 0, 0]);
}

#[test]
fn stream_that_takes_little_gets_everything_in_order() {
    struct Narrow(Vec<u8>, bool);
    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.0.push(bytes[0]);
            Ok(1)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (mut framing, mut io) = (framing("audiosocket"), Narrow(Vec::new(), false));
    assert!(framing.write(&mut io, Message::binary(vec![1, 2])).is_err());
    while framing.flush(&mut io).is_err() {}
    assert_eq!(io.0, [0x10, 0, 2, 1, 2]);
}
