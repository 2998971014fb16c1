//! Tests of the extractor: values, their places in long messages, and mistakes.

use super::*;

fn test_extractor() -> Extractor {
    Extractor::compile(["/type", "/metrics/kv_cache_length", "/audio", "/words", "/a~1b"])
}

#[test]
fn finds_nested_values_and_borrows_long_strings() {
    let text = r#"{"x":[{"type":"no"}],"type":"t","metrics":{"kv_cache_length":75,"y":{}},"audio":"AAAA","a/b":1.5}"#;
    let found = test_extractor().extract(text).unwrap();
    assert_eq!(
        found.get(0).and_then(Node::as_str),
        Some("t"),
        "a `type` inside an array is not the message's"
    );
    assert_eq!(found.get(1), Some(&Node::Int(75)));
    assert!(matches!(found.get(2), Some(Node::Str(Cow::Borrowed("AAAA")))));
    assert_eq!(found.get(3), None);
    assert_eq!(found.get(4), Some(&Node::Float(1.5)));
}

#[test]
fn lists_keep_scalars_and_the_last_of_repeated_keys_counts() {
    let found = test_extractor().extract(r#"{"words":["a","b\n",{"q":[1]}],"type":1,"type":"x"}"#).unwrap();
    let words = vec![Node::Str("a".into()), Node::Str("b\n".into()), Node::Object];
    assert_eq!(found.get(3), Some(&Node::List(words)));
    assert_eq!(found.get(0).and_then(Node::as_str), Some("x"));
}

#[test]
fn elements_of_lists_are_found_by_their_number() {
    let extractor = Extractor::compile(["/choices/0/delta/text", "/choices/1", "/words/1"]);
    let text = r#"{"choices":[{"delta":{"text":"a"}},7,{"delta":{"text":"no"}}],"words":["x","y"]}"#;
    let found = extractor.extract(text).unwrap();
    assert_eq!(found.get(0).and_then(Node::as_str), Some("a"));
    assert_eq!(found.get(1), Some(&Node::Int(7)));
    assert_eq!(found.get(2).and_then(Node::as_str), Some("y"));
    let none = extractor.extract(r#"{"choices":[],"words":{"1":"z"}}"#).unwrap();
    assert_eq!((none.get(0), none.get(2).and_then(Node::as_str)), (None, Some("z")));
    let one = Extractor::compile(["/choices/0/text"]);
    assert_eq!(one.compose(&[(0, "a".into())].into()).to_string(), r#"{"choices":[{"text":"a"}]}"#);
}

#[test]
fn non_object_is_an_error_with_its_type() {
    for (text, name) in [("[1,2]", "array"), ("null", "null"), ("5", "integer"), ("\"x\"", "string")] {
        assert_eq!(test_extractor().extract(text).unwrap_err(), ExtractError::NotAnObject(name));
    }
    for text in ["", "{", "{}x", "\u{feff}{}", "nul"] {
        assert!(matches!(test_extractor().extract(text), Err(ExtractError::Json(_))), "{text:?}");
    }
}

#[test]
fn line_of_words_has_a_name_and_members() {
    let found = |line: &'static str| {
        let found = test_extractor().extract_words(line);
        [0, 2].map(|slot| found.get(slot).and_then(Node::as_str).map(str::to_owned))
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(found("START audio:a:b kv:1 loose\tx:\r\n"), [text("START"), text("a:b")]);
    assert_eq!(found("START type:other audio: audio:last"), [text("START"), text("last")]);
    assert_eq!(found(" \n"), [None, None]);
    assert_eq!(found(":"), [text(":"), None]);
}

#[test]
fn raw_values_are_returned_verbatim() {
    let mut extractor = test_extractor();
    let raw = extractor.add_raw("/in/config");
    let found = extractor.extract(r#"{"in":{"config": {"a": 1.10, "type":"no"} },"type":"t"}"#).unwrap();
    assert_eq!(found.get(raw), Some(&Node::Raw(r#"{"a": 1.10, "type":"no"}"#)));
    assert_eq!(found.get(0).and_then(Node::as_str), Some("t"));
}

#[test]
fn unknown_keys_are_noted_beside_known_ones() {
    let text = r#"{"type":"t","x":{"deep":1},"metrics":{"kv_cache_length":75,"y":{}},"audio":{"z":1}}"#;
    assert_eq!(test_extractor().extract_with_unknown(text).unwrap().unknown(), ["x", "y"]);
    assert!(test_extractor().extract(text).unwrap().unknown().is_empty());
}

#[test]
fn long_strings_are_found_at_their_places() {
    let long = "QUJD".repeat(1000);
    let mut extractor = test_extractor();
    let raw = extractor.add_raw("/in/config");
    let text = format!(
        r#"{{"audio":"{long}","x":"{long}","type":"","words":["a","{long}","","b\n{long}"],"in":{{"config":{{"a":"{long}","b":1}}}},"a/b":"é"}}"#
    );
    let found = extractor.extract(&text).unwrap();
    assert!(matches!(found.get(2), Some(Node::Str(Cow::Borrowed(audio))) if *audio == long));
    assert_eq!(found.get(0), Some(&Node::Str("".into())));
    let escaped = format!("b\n{long}");
    let words = ["a", &long, "", &escaped].map(|word| Node::Str(word.to_owned().into()));
    assert_eq!(found.get(3), Some(&Node::List(words.to_vec())));
    let config = format!(r#"{{"a":"{long}","b":1}}"#);
    assert_eq!(found.get(raw), Some(&Node::Raw(&config)));
    assert_eq!(found.get(4), Some(&Node::Str("é".into())));
}

#[test]
fn mistakes_beside_long_strings_keep_their_place() {
    let long = "A".repeat(5000);
    for text in [
        format!(r#"{{"audio":"{long}",}}"#),
        format!(r#"{{"audio":"{long}"#),
        format!("{{\"audio\":\"{long}\u{1}\"}}"),
        format!(r#"{{"audio":"{long}\q"}}"#),
        format!(r#""{long}""#),
    ] {
        let parsed = serde_json::from_str::<Value>(&text);
        let found = test_extractor().extract(&text).map(drop);
        match parsed {
            Err(error) => assert_eq!(found, Err(ExtractError::Json(error.to_string()))),
            Ok(_) => assert_eq!(found, Err(ExtractError::NotAnObject("string"))),
        }
    }
}

proptest::proptest! {
    #[test]
    fn long_strings_change_nothing(
        pieces in proptest::collection::vec(("[a-c\"\\\\{}\\[\\]:,é\n ]{0,6}", 0usize..1500), 0..8),
        keys in proptest::collection::vec(("type|audio|words|x", 0usize..3000), 0..5),
    ) {
        let broken: String = pieces.iter().map(|(text, long)| text.clone() + &"Q".repeat(*long)).collect();
        let members = keys.iter().map(|(key, long)| format!("{key:?}:[{:?},\"é\\n\"]", "Q".repeat(*long)));
        let valid = format!("{{{}}}", members.collect::<Vec<_>>().join(","));
        for text in [broken, valid] {
            let extractor = test_extractor();
            let (cut, whole) = (extractor.extract(&text), extractor.parse(&text, None));
            proptest::prop_assert_eq!(cut.map(|found| found.values), whole.map(|found| found.values));
        }
    }
}

#[test]
fn nesting_is_bounded() {
    let deep = format!("{}{}", "{\"type\":".repeat(5000), "[".repeat(5000));
    assert!(matches!(test_extractor().extract(&deep), Err(ExtractError::Json(_))));
}

#[test]
fn lists_of_a_message_have_a_bound_together() {
    let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
    let half = LIST_ELEMENTS_MAX / 2;
    let message = |words: String, audio: String| format!(r#"{{"words":{words},"audio":{audio}}}"#);
    assert!(test_extractor().extract(&message(list(half), list(half))).is_ok());
    for text in [message(list(half), list(half + 1)), list(LIST_ELEMENTS_MAX + 1)] {
        let error = test_extractor().extract(&text).unwrap_err();
        assert!(matches!(&error, ExtractError::Json(words) if words.contains("262144 elements")), "{error}");
    }
}

#[test]
fn camel_case_is_found_in_snake_case_too() {
    let mut extractor = Extractor::with_snake_case(true);
    let end = extractor.add("/realtimeInput/audioStreamEnd");
    let tools = extractor.add_raw("/setup/toolsOffered");
    let kind = extractor.add("/realtimeInput/mediaChunks/0/mimeType");
    assert_eq!((extractor.add("/realtimeInput/audioStreamEnd"), extractor.slots), (end, 3));
    for text in [
        r#"{"realtimeInput": {"audioStreamEnd": 1, "mediaChunks": [{"mimeType": "a"}]}, "setup": {"toolsOffered": [2]}}"#,
        r#"{"realtime_input": {"audio_stream_end": 1, "media_chunks": [{"mime_type": "a"}]}, "setup": {"tools_offered": [2]}}"#,
        r#"{"realtime_input": {"audioStreamEnd": 1, "mediaChunks": [{"mime_type": "a"}]}, "setup": {"toolsOffered": [2]}}"#,
    ] {
        let found = extractor.extract(text).unwrap();
        assert_eq!(found.get(end), Some(&Node::Int(1)), "{text}");
        assert_eq!(found.get(tools), Some(&Node::Raw("[2]")), "{text}");
        assert_eq!(found.get(kind).and_then(Node::as_str), Some("a"), "{text}");
    }
    let composed = extractor.compose(&BTreeMap::from([(end, true.into()), (kind, "b".into())]));
    let expected =
        serde_json::json!({"realtimeInput": {"audioStreamEnd": true, "mediaChunks": [{"mimeType": "b"}]}});
    assert_eq!(composed, expected);
    let mut exact = Extractor::default();
    let slot = exact.add("/audioStreamEnd");
    assert_eq!(exact.extract(r#"{"audio_stream_end": 1}"#).unwrap().get(slot), None);
}
