//! Files in place of raw audio, and JSON that only lenient readers take.

use super::*;
use crate::spelling::client::Framing;
use base64::{Engine as _, engine::general_purpose::STANDARD};

/// The first bytes of a recorder's file in a browser.
const WEBM: &[u8] = b"\x1a\x45\xdf\xa3\x9f\x42\x86\x81\x01\x42\xf7\x81";
const WAV: &[u8] = b"RIFF\xff\xff\xff\xffWAVEfmt \x10\0\0\0";

fn of(client: &str) -> Codec {
    Codec::new(Library::embedded().unwrap().client(client).unwrap(), 0.0)
}

#[test]
fn file_in_binary_messages_is_an_error_to_its_end() {
    let library = Library::embedded().unwrap();
    let takes_bare_audio = |client: &&Arc<ClientMapping>| {
        let takes_binary = client.takes_binary_audio && client.audio_in.frame_max_bytes > 0;
        takes_binary && client.framing == Framing::default() && !client.is_relayed()
    };
    let clients: Vec<_> = library.clients().filter(takes_bare_audio).cloned().collect();
    assert!(clients.len() > 12, "{}", clients.len());
    for client in clients {
        let name = client.name.clone();
        let send = |codec: &mut Codec, bytes| decode(codec, Frame::Binary(bytes));
        let mut codec = Codec::new(client.clone(), 0.0);
        for bytes in [WEBM, &[0; 32]] {
            let error = send(&mut codec, bytes).expect_err(&name);
            assert!(error.kind == ErrorKind::Invalid && error.detail.contains("webm"), "{name}: {error:?}");
        }
        let mut codec = Codec::new(client, 0.0);
        for bytes in [&[], WAV, WEBM] {
            assert!(send(&mut codec, bytes).is_ok(), "{name}: samples may have any bytes behind the first");
        }
    }
}

#[test]
fn file_in_json_is_an_error_to_its_end() {
    for (client, message) in [
        ("openai-realtime", r#"{"type": "input_audio_buffer.append", "audio": "DATA"}"#),
        ("elevenlabs-listen", r#"{"message_type": "input_audio_chunk", "audio_base_64": "DATA"}"#),
        ("gemini-live", r#"{"realtimeInput": {"audio": {"data": "DATA"}}}"#),
        ("gladia", r#"{"type": "audio_chunk", "data": {"chunk": "DATA"}}"#),
        ("twilio", r#"{"event": "media", "media": {"payload": "DATA"}}"#),
    ] {
        let mut codec = of(client);
        for bytes in [WEBM, &[0; 32]] {
            let message = message.replace("DATA", &STANDARD.encode(bytes));
            let error = decode(&mut codec, Frame::Text(&message)).expect_err(client);
            assert!(error.detail.contains("webm"), "{client}: {error:?}");
        }
        let message = message.replace("DATA", &STANDARD.encode(WAV));
        assert_eq!(decode(&mut of(client), Frame::Text(&message)), Ok(vec!["audio 20".into()]), "{client}");
    }
}

#[test]
fn marks_and_halves_of_letters_do_not_end_a_session() {
    for (client, message) in [
        ("deepgram-speak", r#"{"type": "Speak", "text": "Good\ud83d"}"#),
        ("elevenlabs-speak", r#"{"text": "Good\ud83d"}"#),
        ("cartesia-speak", r#"{"context_id": "a", "transcript": "Good\ud83d", "continue": true}"#),
        ("gemini-live", r#"{"realtimeInput": {"text": "Good\ud83d"}}"#),
        (
            "openai-realtime",
            r#"{"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Good\ud83d"}]}}"#,
        ),
    ] {
        for message in [message.to_owned(), format!("\u{feff}{}", message.replace("\\ud83d", "\\ufffd"))] {
            let events = decode(&mut of(client), Frame::Text(&message));
            let events = events.unwrap_or_else(|error| panic!("{client}: {error:?}"));
            assert!(events.iter().any(|event| event.contains("Good\u{fffd}")), "{client}: {events:?}");
        }
    }
}
