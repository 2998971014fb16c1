//! Fields of commands: their limits, and the settings that they change.

use super::*;
use crate::{
    error::ErrorKind,
    spelling::Library,
    vocabulary::{ClientRequest, Frame, Setting},
};

fn codec() -> Codec {
    Codec::new(Library::embedded().unwrap().client("macaw").unwrap(), 0.0)
}

#[test]
fn text_fields_and_their_error_messages_are_bounded() {
    for (command, field, most) in [
        ("session.configure", "language", 256),
        ("session.configure", "model_tts", 256),
        ("tts.speak", "voice", 256),
        ("tts.speak", "language", 256),
        ("tts.speak", "request_id", 256),
        ("tts.speak", "instruction", 2000),
    ] {
        let decode = |letters: usize| {
            let json = serde_json::json!({"type": command, "text": "Hi", field: "ü".repeat(letters)});
            codec().decode(Frame::Text(&json.to_string()), |_| ())
        };
        assert_eq!(decode(most), Ok(()), "{command} {field}");
        let error = decode(100_000).unwrap_err();
        assert!(error.kind == ErrorKind::Invalid && error.detail.len() < 200, "{}", error.detail);
    }
    for words in [vec!["a".repeat(257)], vec!["a".to_owned(); 257]] {
        let json = serde_json::json!({"type": "session.configure", "hot_words": words});
        assert!(codec().decode(Frame::Text(&json.to_string()), |_| ()).is_err());
    }
    // The real server never reads these fields, so a bad value is ignored.
    let json = serde_json::json!({"type": "session.configure", "tts_voice": "a".repeat(257)});
    let check = |event: ClientRequest<'_>| assert_eq!(event, ClientRequest::Configure(Vec::new()));
    assert_eq!(codec().decode(Frame::Text(&json.to_string()), check), Ok(()));
}

#[test]
fn frames_are_not_joined_where_a_binary_message_may_be_a_command() {
    let library = Library::embedded().unwrap();
    for (client, query, expected) in [
        ("vosk", "", false),
        ("whisper-live", "", true),
        ("sherpa-onnx-offline", "", true),
        ("xiaozhi", "", false),
        ("xiaozhi", "version=3", true),
    ] {
        let mut codec = Codec::new(library.client(client).unwrap(), 0.0);
        drop(codec.decode_query(query));
        assert_eq!(codec.has_binary_commands(), expected, "{client} {query}");
    }
}

#[test]
fn device_without_echo_cancellation_asks_for_it() {
    let xiaozhi = Library::embedded().unwrap().client("xiaozhi").unwrap();
    for (features, asked) in
        [(r#"{"aec": true}"#, Some(true)), (r#"{"aec": false}"#, Some(false)), ("{}", None)]
    {
        let mut found = None;
        let hello = format!(r#"{{"type": "hello", "version": 1, "features": {features}}}"#);
        let decoded = Codec::new(xiaozhi.clone(), 0.0).decode(Frame::Text(&hello), |event| {
            let ClientRequest::Configure(settings) = event else { panic!("{event:?}") };
            found = settings.into_iter().find_map(|setting| match setting {
                Setting::EchoCancellation(on) => Some(on),
                _ => None,
            });
        });
        assert_eq!((decoded, found), (Ok(()), asked), "{features}");
    }
}
