use super::{list::ITEM_MAX_CHARS, *};

fn field(toml: &str) -> ProtocolField {
    let file: FieldFile = toml::from_str(toml).unwrap();
    let items = file.items.as_ref().map(|items| items.compile(false)).unwrap_or_default();
    ProtocolField { name: "f".into(), slot: 0, remember: None, same_as: None, items, file }
}

/// The texts of a list, or what is wrong with it.
fn texts(field: &ProtocolField, node: &Node<'_>) -> Result<Vec<String>, String> {
    match field.read(Some(node))? {
        Some(FieldValue::Items(items)) => Ok(items.iter().flat_map(|item| item.texts.clone()).collect()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn numbers_are_parsed_in_lax_mode() {
    let timeout = field("type = \"integer\"\nabove = 0");
    for node in [Node::Int(2000), Node::Str("2000".into()), Node::Float(2000.0)] {
        assert_eq!(timeout.read(Some(&node)), Ok(Some(FieldValue::Integer(2000))));
    }
    for node in [Node::Int(0), Node::Int(-5), Node::Str("abc".into()), Node::Float(0.5), Node::List(vec![])] {
        assert!(timeout.read(Some(&node)).is_err(), "{node:?}");
    }
    assert_eq!(timeout.read(Some(&Node::Null)), Ok(None));
    assert_eq!(timeout.read(None), Ok(None));
}

#[test]
fn text_length_counts_characters() {
    let text = field("type = \"text\"\nrequired = true\nmin = 1\nmax = 3");
    assert!(text.read(Some(&Node::Str("äöü".into()))).is_ok());
    assert!(text.read(Some(&Node::Str("".into()))).unwrap_err().contains("at least 1 character,"));
    assert!(text.read(Some(&Node::Str("abcd".into()))).unwrap_err().contains("at most 3"));
    assert_eq!(text.read(None).unwrap_err(), "Field required");
    assert!(text.read(Some(&Node::Null)).is_err());
    assert!(text.read(Some(&Node::Int(5))).is_err(), "numbers are not strings");
}

#[test]
fn flags_choices_and_lists_are_validated() {
    let partials = field("type = \"flag\"");
    assert_eq!(partials.read(Some(&Node::Str("No".into()))), Ok(Some(FieldValue::Flag(false))));
    assert!(partials.read(Some(&Node::Int(2))).is_err());
    let choice = field("type = \"choice\"\nvalues = [\"high\", \"normal\", \"low\"]");
    let problem = choice.read(Some(&Node::Str("HIGH".into()))).unwrap_err();
    assert_eq!(problem, "Input should be 'high', 'normal' or 'low', got 'HIGH'");
    let lenient = field("type = \"choice\"\nvalues = [\"a\"]\nlenient = true");
    assert_eq!(lenient.read(Some(&Node::Int(1))), Ok(None));
    let words = field("type = \"list\"");
    assert!(words.read(Some(&Node::Str("PIX".into()))).is_err());
    assert!(words.read(Some(&Node::List(vec![Node::Int(1)]))).is_err());
}

#[test]
fn lists_are_bounded_in_count_and_item_length() {
    let words = field("type = \"list\"\nmax = 2");
    fn list<'t>(texts: &[&'t str]) -> Node<'t> {
        Node::List(texts.iter().map(|text| Node::Str((*text).into())).collect())
    }
    let longest = "ä".repeat(ITEM_MAX_CHARS);
    assert!(words.read(Some(&list(&["PIX", &longest]))).is_ok());
    let problem = words.read(Some(&list(&["a", "b", "c"]))).unwrap_err();
    assert_eq!(problem, "List should have at most 2 items, got 3");
    let longer = format!("{longest}ä");
    let problem = words.read(Some(&list(&[&longer]))).unwrap_err();
    assert!(problem.starts_with("String should have at most 256 characters, got 'äää"), "{problem}");
    assert!(problem.chars().count() < 100, "{problem}");
}

#[test]
fn words_are_found_in_each_spelling_and_bounded_like_a_list() {
    let words = field("type = \"list\"\nsplit = true\nmax = 2");
    let split = |text: &str| texts(&words, &Node::Str(text.into()));
    for text in [
        "阿里, voxbridge",
        "阿里，voxbridge,,",
        "{\"阿里\": 20, \"voxbridge\": 30}",
        " [\"阿里\", \"voxbridge \"]",
        "阿里\nvoxbridge\n",
    ] {
        let mut found = split(text).unwrap();
        found.sort();
        assert_eq!(found, ["voxbridge", "阿里"], "{text}");
    }
    assert_eq!(split(" "), Ok(Vec::new()));
    assert_eq!(texts(&words, &Node::List(vec![Node::Str("a,b".into())])), Ok(vec!["a,b".to_owned()]));
    for wrong in ["a,b,c", "{", "{\"a\"}", "[1]", "[[\"a\"]]", &"x".repeat(ITEM_MAX_CHARS + 1)] {
        assert!(words.read_text(wrong).unwrap_err().chars().count() < 100, "{wrong}");
    }
    assert!(words.read(Some(&Node::Int(1))).is_err());
}

#[test]
fn texts_in_objects_are_found_by_their_paths() {
    let words = "to = \"hot_words\"\ntype = \"list\"\nmax = 300\nitems.text = [\"/word/text\", \"\"]";
    let json = r#"["a", {"word": {"text": "b", "other": [1]}}]"#;
    let expected = Ok(vec!["a".to_owned(), "b".to_owned()]);
    assert_eq!(texts(&field(words), &Node::Raw(json)), expected);
    let split = field(&format!("{words}\nsplit = true"));
    assert_eq!(texts(&split, &Node::Raw(json)), expected);
    assert_eq!(texts(&split, &Node::Str(json.into())), expected);
    assert_eq!(texts(&split, &Node::Raw("\"a, b\"")), expected);
    let many = |count| format!("[{}]", vec!["\"a\""; count].join(","));
    assert_eq!(texts(&field(words), &Node::Raw(&many(300))).map(|texts| texts.len()), Ok(300));
    let long = format!("[\"{}\"]", "ä".repeat(ITEM_MAX_CHARS + 1));
    for (json, problem) in [
        (many(301).as_str(), "List should have at most 300 items, got 301"),
        (r#"["a", {"word": {"text": 5}}]"#, "item 2: `text` is of the wrong type"),
        (r#"["a", {"text": "b"}]"#, "item 2: Input should be a valid string, or an object with one"),
        ("[5]", "item 1: Input should be an object"),
        (long.as_str(), "item 1: String should have at most 256 characters, got 'ä"),
    ] {
        let found = texts(&field(words), &Node::Raw(json)).unwrap_err();
        assert!(found.starts_with(problem), "{found}");
    }
    let objects = field("to = \"hot_words\"\ntype = \"list\"\nitems.text = \"/a\"");
    assert_eq!(
        texts(&objects, &Node::Raw(r#"[{"b": 1}]"#)),
        Err("item 1: Input should be a valid string, or an object with one".to_owned())
    );
}

#[test]
fn lists_are_for_roles_that_take_them() {
    for (toml, in_query, words) in [
        ("type = \"list\"", true, None),
        ("type = \"list\"\nsplit = true\nitems.text = \"/a\"", true, None),
        ("type = \"list\"\nto = \"instructions\"\nitems.text = \"/a\"", false, None),
        ("type = \"list\"\nitems.text = \"/a\"", true, Some("only with `split`")),
        ("type = \"list\"\nto = \"language\"", false, Some("is a `list`, which is for")),
        ("type = \"list\"\nto = \"tools\"", false, Some("and `items`")),
        ("type = \"list\"\nto = \"tools\"\nitems.name = \"/a\"", true, Some("a `list` of objects")),
        ("type = \"list\"\nto = \"tools\"\nsplit = true\nitems.name = \"/a\"", false, Some("has `split`")),
        ("type = \"text\"\nto = \"hot_words\"", false, Some("needs `type = \"list\"`")),
        ("type = \"text\"\nto = \"text\"\nsplit = true", false, Some("are for a `list`")),
    ] {
        let problem = field(&format!("because = \"a test\"\n{toml}")).validate(in_query);
        assert_eq!(problem.is_some(), words.is_some(), "{toml}: {problem:?}");
        assert!(problem.unwrap_or_default().contains(words.unwrap_or_default()), "{toml}");
    }
}

#[test]
fn value_map_translates_protocol_values() {
    let encoding = field("type = \"choice\"\nvalue_map = { linear16 = \"s16le\", mulaw = \"mulaw\" }");
    assert_eq!(encoding.read_text("linear16"), Ok(Some(FieldValue::Text("s16le".into()))));
    let problem = encoding.read_text("s16le").unwrap_err();
    assert_eq!(problem, "Input should be 'linear16' or 'mulaw', got 's16le'");
    let silence = field("type = \"integer\"\nmin = 10\nvalue_map = { false = \"30000\" }");
    assert_eq!(silence.read_text("false"), Ok(Some(FieldValue::Integer(30_000))));
    assert_eq!(silence.read_text("300"), Ok(Some(FieldValue::Integer(300))));
    assert!(silence.read_text("no").is_err());
}

#[test]
fn seconds_become_milliseconds_and_errors_stay_in_seconds() {
    let silence = field("to = \"end_silence_ms\"\ntype = \"number\"\nunit = \"s\"\nmin = 0.3\nmax = 3");
    assert_eq!(silence.read_text("1.5"), Ok(Some(FieldValue::Integer(1500))));
    assert_eq!(silence.read(Some(&Node::Int(2))), Ok(Some(FieldValue::Integer(2000))));
    let problem = silence.read_text("3.001").unwrap_err();
    assert_eq!(problem, "Input should be less than or equal to 3, got 3.001");
    for wrong in [
        "to = \"end_silence_ms\"\ntype = \"integer\"\nunit = \"s\"",
        "to = \"voice\"\ntype = \"number\"\nunit = \"s\"",
    ] {
        assert!(field(wrong).validate(false).unwrap().contains("has a `unit`"), "{wrong}");
    }
}

#[test]
fn format_names_encoding_and_rate() {
    let format = "to = \"input_format\"\ntype = \"choice\"\nvalue_map = { pcm_16000 = \"s16le 16000\" }";
    assert_eq!(field(format).validate(true), None);
    assert!(field(format).read_text("mp3_44100").unwrap_err().contains("should be 'pcm_16000'"));
    for wrong in ["s16le", "s16 16000", "s16le 0", "s16le x", "s16le  16000"] {
        let problem = field(&format.replace("s16le 16000", wrong)).validate(true).unwrap();
        assert!(problem.contains("such as `s16le 16000`"), "{problem}");
    }
    let stereo = format.replace("16000\" }", "48000 2\" }");
    assert_eq!(field(&stereo).validate(true), None);
    for wrong in ["48000 0", "48000 9", "48000 2 1", "48000  2"] {
        assert!(field(&stereo.replace("48000 2", wrong)).validate(true).is_some(), "{wrong}");
    }
    let output = stereo.replace("input_format", "output_format");
    assert!(field(&output).validate(true).is_some(), "audio to the client has one channel");
    let text = "to = \"output_format\"\ntype = \"text\"";
    assert!(field(text).validate(true).unwrap().contains("`choice` with a `value_map`"));
}

#[test]
fn file_formats_are_for_audio_to_clients_and_may_name_their_bit_rate() {
    let output = "to = \"output_format\"\ntype = \"choice\"\nvalue_map = { best = \"mp3 44100 192\" }";
    assert_eq!(field(output).validate(true), None);
    let format = AudioFormat::parse("mp3 44100 192").unwrap();
    assert_eq!((format.rate_hz, format.bit_rate, format.channels), (44_100, Some(192_000), None));
    for wrong in ["mp3 44100 0", "mp3 44100 321", "mp3 44100 192 2", "flac 44100"] {
        assert!(field(&output.replace("mp3 44100 192", wrong)).validate(true).is_some(), "{wrong}");
    }
    let input = field(&output.replace("output_format", "input_format")).validate(true).unwrap();
    assert!(!input.contains("ogg_opus"), "{input}");
    for (role, is_known) in [("output_encoding", true), ("input_encoding", false)] {
        let encoding = format!("to = \"{role}\"\ntype = \"choice\"\nvalues = [\"mp3\"]");
        assert_eq!(field(&encoding).validate(true).is_none(), is_known, "{role}");
    }
    let bit_rate = field("to = \"output_bit_rate\"\ntype = \"number\"\nunit = \"kbit/s\"\nmin = 6");
    assert_eq!(
        (bit_rate.validate(false), bit_rate.read_text("32")),
        (None, Ok(Some(FieldValue::Integer(32_000))))
    );
    let seconds = field("to = \"output_bit_rate\"\ntype = \"number\"\nunit = \"s\"").validate(false).unwrap();
    assert!(seconds.contains("role is in milliseconds"), "{seconds}");
    let rate =
        field("to = \"end_silence_ms\"\ntype = \"number\"\nunit = \"kbit/s\"").validate(false).unwrap();
    assert!(rate.contains("role is a bit rate"), "{rate}");
}

#[test]
fn value_outside_effective_range_is_accepted() {
    let silence = field("type = \"integer\"\neffective_range = [100, 2000]");
    assert!(silence.is_effective(&FieldValue::Integer(500)));
    assert!(!silence.is_effective(&FieldValue::Integer(30_000)));
}

#[test]
fn presence_is_a_flag_and_true_is_a_word() {
    let presence = field("type = \"presence\"");
    for (node, is_present) in [
        (None, false),
        (Some(Node::Null), false),
        (Some(Node::Bool(false)), false),
        (Some(Node::Object), true),
        (Some(Node::Bool(true)), true),
    ] {
        assert_eq!(presence.read(node.as_ref()), Ok(Some(FieldValue::Flag(is_present))), "{node:?}");
    }
    let choice = field("type = \"choice\"\nvalue_map = { true = \"client\", false = \"silence\" }");
    for node in [Node::Bool(true), Node::Str("true".into())] {
        assert_eq!(choice.read(Some(&node)), Ok(Some(FieldValue::Text("client".into()))), "{node:?}");
    }
    let rate = field(
        "type = \"integer\"\nmin = 8000\nvalue_map = { \"audio/pcm\" = \"16000\", \"audio/pcm;rate=*\" = \"*\" }",
    );
    for (word, expected) in [
        ("audio/pcm", Some(16_000)),
        ("audio/pcm;rate=24000", Some(24_000)),
        ("audio/pcm;rate=9", None),
        ("audio/ogg", None),
    ] {
        let read = rate.read(Some(&Node::Str(word.into()))).ok();
        assert_eq!(read, expected.map(|rate| Some(FieldValue::Integer(rate))), "{word}");
    }
    let problem = rate.read(Some(&Node::Str("audio/ogg".into()))).unwrap_err();
    assert_eq!(
        problem,
        "Input should be 'audio/pcm' or 'audio/pcm;rate=*', or a valid integer, got 'audio/ogg'"
    );
    let inverted = field("type = \"flag\"\nvalue_map = { NEVER = \"false\", ALWAYS = \"true\" }");
    assert_eq!(inverted.read(Some(&Node::Str("NEVER".into()))), Ok(Some(FieldValue::Flag(false))));
}

#[test]
fn star_stands_at_the_end_of_a_word() {
    for (words, is_valid) in [
        ("value_map = { \"*\" = \"a\", \"pcm;rate=*\" = \"*\" }", true),
        ("value_map = { \"pcm_*_le\" = \"a\" }", false),
        ("value_map = { \"*_le\" = \"a\" }", false),
        ("values = [\"1.*\"]", true),
        ("values = [\"1.*\", \"*.2\"]", false),
    ] {
        let problem = field(&format!("to = \"voice\"\ntype = \"choice\"\n{words}")).validate(false);
        assert_eq!(problem.is_none(), is_valid, "{words}: {problem:?}");
        assert!(problem.is_none_or(|problem| problem.contains("`*` stands at the end")), "{words}");
    }
}
