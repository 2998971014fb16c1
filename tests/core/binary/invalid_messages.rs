//! Invalid client messages get the protocol's own error, never a hang or a panic.

use proptest::prelude::*;

use super::*;

const PROTOCOLS: [&str; 3] = ["vosk", "deepgram-listen", "deepgram-speak"];

fn open_and_send(protocol: &'static str, query: &str, text: &str) -> Harness {
    let mut harness = open_client(protocol, query, &[]);
    if !harness.is_closed() {
        harness.send_text(text);
    }
    harness
}

#[test]
fn invalid_messages_close_with_protocol_error_code() {
    for (protocol, text, code, words) in [
        ("vosk", "{", 1007, "Not JSON"),
        ("vosk", "[1]", 1007, "got array"),
        ("vosk", "{}", 1008, "\"eof\""),
        ("vosk", r#"{"config": 5}"#, 1008, "should be an object"),
        ("vosk", r#"{"config": {"sample_rate": "much"}}"#, 1008, "valid integer"),
        ("vosk", r#"{"config": {"sample_rate": 5}}"#, 1008, "not supported"),
        ("deepgram-listen", r#"{"type": "CloseStre"#, 1008, "DATA-0000"),
        ("deepgram-listen", "null", 1008, "not a JSON object"),
        ("deepgram-listen", r#"{"type": 5}"#, 1008, "'5'"),
        ("deepgram-listen", r#"{"type": "Speak", "text": "Hi"}"#, 1008, "'Speak'"),
        ("deepgram-listen", r#"{"type": "Configure", "keyterms": "Macaw"}"#, 1008, "keyterms"),
        ("deepgram-speak", r#"{"type": "Speak"}"#, 1008, "text"),
        ("deepgram-speak", r#"{"type": "Speak", "text": ["Hi"]}"#, 1008, "text"),
        ("deepgram-speak", r#"{"text": "Hi"}"#, 1008, "no \"type\""),
        ("deepgram-speak", r#"{"type": "Finalize"}"#, 1008, "'Finalize'"),
    ] {
        let mut harness = open_and_send(protocol, "", text);
        let (close_code, reason) =
            close_frame(&harness).unwrap_or_else(|| panic!("{protocol} {text}: {:?}", harness.names()));
        assert!(close_code == code && reason.contains(words), "{protocol} {text}: {close_code} {reason}");
        assert_session_ends(&mut harness);
    }
}

#[test]
fn unsupported_query_is_rejected_at_once() {
    for (protocol, query, words) in [
        ("deepgram-listen", "encoding=opus", "'opus'"),
        ("deepgram-listen", "encoding=linear16&sample_rate=x", "sample_rate"),
        ("deepgram-listen", "encoding=linear16&sample_rate=1", "1 Hz is not supported"),
        ("deepgram-listen", "channels=99", "99 audio channels"),
        ("deepgram-speak", "encoding=mp3", "'mp3'"),
        ("deepgram-speak", "container=ogg", "'ogg'"),
        ("deepgram-speak", "sample_rate=1000000", "1000000 Hz"),
    ] {
        let mut harness = open_client(protocol, query, &[]);
        let (code, reason) =
            close_frame(&harness).unwrap_or_else(|| panic!("{query}: {:?}", harness.names()));
        assert!(code == 1008 && reason.contains(words), "{query}: {code} {reason}");
        assert!(harness.names().iter().any(|name| name == "Error" || name == "Warning"), "{query}");
        assert_session_ends(&mut harness);
    }
}

#[test]
fn unexpected_or_oversized_binary_frames_close_connection() {
    for (protocol, bytes, code) in
        [("deepgram-speak", 2, 1003), ("vosk", 1_048_577, 1009), ("deepgram-listen", 1_048_577, 1009)]
    {
        let mut harness = open_client(protocol, "", &[]);
        harness.send_binary(&vec![0; bytes]);
        assert_eq!(close_frame(&harness).map(|(code, _)| code), Some(code), "{protocol}");
        assert_session_ends(&mut harness);
    }
}

fn any_message() -> impl Strategy<Value = String> {
    let known = select(vec![
        r#"{"type":"Finalize"}"#,
        r#"{"type":"KeepAlive"}"#,
        r#"{"type":"CloseStream"}"#,
        r#"{"type":"Flush"}"#,
        r#"{"type":"Clear"}"#,
        r#"{"type":"Speak","text":"Yes."}"#,
        r#"{"type":"Close"}"#,
        r#"{"eof":1}"#,
        r#"{"reset":null}"#,
        r#"{"config":{"sample_rate":8000}}"#,
        r#"{"type":"Configure"}"#,
        r#"{"config":{"phrase_list":[["a"],1]},"eof":[]}"#,
    ]);
    prop_oneof![
        6 => known.clone().prop_map(str::to_owned),
        2 => (known, 0usize..40).prop_map(|(text, cut)| text[..cut.min(text.len())].to_owned()),
        1 => any::<String>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_client_input_always_ends(
        protocol in select(&PROTOCOLS[..]),
        profile in select(vec!["speech", "speech", "conversation"]),
        script in vec((any_message(), 0usize..9000, 0u64..3000), 0..20),
        query in "[a-z_=&%0-9]{0,40}",
        broken in 0usize..20,
    ) {
        let mut harness = Harness::new(HarnessConfig::of(protocol, profile, &query));
        for (step, (text, bytes, wait)) in script.into_iter().enumerate() {
            if harness.is_closed() {
                break;
            }
            if step == broken {
                harness.break_lanes();
            }
            harness.send_text(&text);
            if !harness.is_closed() && bytes % 3 == 0 {
                harness.send_binary(&bytes_of(&voice(600))[..bytes]);
            }
            harness.advance(ms(wait));
        }
        assert_session_ends(&mut harness);
    }
}
