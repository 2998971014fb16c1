use super::{write::write_json, *};
use proptest::prelude::*;

#[test]
fn render_fills_values_and_drops_layout() {
    let template = Template::compile("{ \"a b\": ${x},\n  \"y\": [${y}, ${x}] }", &["x", "y"]).unwrap();
    let mut out = String::new();
    template.render(&mut out, |slot| {
        if slot == 0 { SlotValue::Str("q\"\n\u{1}é") } else { SlotValue::Float(3.42) }
    });
    assert_eq!(out, "{\"a b\":\"q\\\"\\n\\u0001é\",\"y\":[3.42,\"q\\\"\\n\\u0001é\"]}");
    assert!(template.uses_slot(0) && !Template::compile("{}", &["x"]).unwrap().uses_slot(0));
}

#[test]
fn template_errors_name_the_mistake() {
    let known = &["text", "language"];
    let unknown = Template::compile("{\"a\":${langage}}", known).unwrap_err().to_string();
    assert!(unknown.contains("did you mean `language`"), "{unknown}");
    assert_eq!(Template::compile("{\"a\":${text", known).unwrap_err(), TemplateError::UnclosedSlot);
    for no_json in ["{\"a\":${text},}", "{${text}:1}"] {
        assert!(matches!(Template::compile(no_json, known), Err(TemplateError::NotJson(_))), "{no_json}");
    }
    for (quoted, words) in [
        ("{\"a\": \"${text}\"}", "\"${text}\" is in quotes: remove the quotes"),
        ("{\"a\": \"say ${text}\"}", "`${text}` stands within a string"),
        ("{\"a\": \"\\\"${text}\"}", "`${text}` stands within a string"),
    ] {
        let problem = Template::compile(quoted, known).unwrap_err().to_string();
        assert!(problem.starts_with(words), "{quoted}: {problem}");
    }
}

#[test]
fn optional_member_without_value_is_left_out() {
    let text = "{\"a\": ${x?}, \"b\": ${y?}, \"c\": {\"d\": ${x?}}, \"e\": ${y?}}";
    let template = Template::compile(text, &["x", "y"]).unwrap();
    let filled = |x: SlotValue<'static>, y: SlotValue<'static>| {
        let mut out = String::new();
        template.render(&mut out, |slot| if slot == 0 { x } else { y });
        out
    };
    assert_eq!(filled(SlotValue::Int(1), SlotValue::Plain("q")), r#"{"a":1,"b":"q","c":{"d":1},"e":"q"}"#);
    assert_eq!(filled(SlotValue::Null, SlotValue::Int(2)), r#"{"b":2,"c":{},"e":2}"#);
    assert_eq!(filled(SlotValue::Int(1), SlotValue::Null), r#"{"a":1,"c":{"d":1}}"#);
    assert_eq!(filled(SlotValue::Null, SlotValue::Null), r#"{"c":{}}"#);
    assert_eq!(
        filled(SlotValue::Elements(""), SlotValue::Elements("1,2")),
        r#"{"b":[1,2],"c":{},"e":[1,2]}"#
    );
    assert!(template.uses_slot(0) && template.uses_slot(1));
    let problem = Template::compile("[${x?}]", &["x"]).unwrap_err();
    assert_eq!(problem, TemplateError::NotAMember { name: "x".into() });
}

#[test]
fn rounded_number_may_stand_within_a_string() {
    let template = Template::compile(r#"{"message": "lost ${ms:digits}ms"}"#, &["ms"]).unwrap();
    let mut out = String::new();
    template.render(&mut out, |_| SlotValue::Float(99.7));
    assert_eq!(out, r#"{"message":"lost 100ms"}"#);
    assert!(Template::compile(r#"{"message": "lost ${ms}ms"}"#, &["ms"]).is_err());
}

#[test]
fn formats_write_integers_and_strings() {
    let text = "{\"a\": ${x:whole}, \"b\": ${x:text}, \"c\": ${x:whole?}, \"d\": ${x}}";
    let template = Template::compile(text, &["x"]).unwrap();
    let filled = |x: SlotValue<'static>| {
        let mut out = String::new();
        template.render(&mut out, |_| x);
        out
    };
    assert_eq!(filled(SlotValue::Float(2.6)), r#"{"a":3,"b":"2.6","c":3,"d":2.6}"#);
    assert_eq!(filled(SlotValue::Int(7)), r#"{"a":7,"b":"7","c":7,"d":7}"#);
    assert_eq!(filled(SlotValue::Str("s")), r#"{"a":"s","b":"s","c":"s","d":"s"}"#);
    assert_eq!(filled(SlotValue::Null), r#"{"a":null,"b":null,"d":null}"#);
    let problem = Template::compile("[${x:hole}]", &["x"]).unwrap_err().to_string();
    assert!(problem.contains("`:whole`, `:text`, `:digits`, `:ms` or `:spaced`"), "{problem}");
}

#[test]
fn formats_write_milliseconds_codes_and_spaced_texts() {
    let text = "{\"a\": ${x:ms}, \"b\": ${x:spaced}, \"c\": ${x:digits}}";
    let template = Template::compile(text, &["x"]).unwrap();
    let filled = |x: SlotValue<'static>| {
        let mut out = String::new();
        template.render(&mut out, |_| x);
        out
    };
    assert_eq!(filled(SlotValue::Float(1.25)), r#"{"a":1250,"b":1.25,"c":1}"#);
    assert_eq!(filled(SlotValue::Str("4006")), r#"{"a":"4006","b":"4006 ","c":4006}"#);
    assert_eq!(filled(SlotValue::Str("a\"")), r#"{"a":"a\"","b":"a\" ","c":null}"#);
    let template = Template::compile("{\"a\": ${x:text}}", &["x"]).unwrap();
    let mut out = String::new();
    template.render(&mut out, |_| SlotValue::Raw("{\"city\":\"Oslo\"}"));
    assert_eq!(out, r#"{"a":"{\"city\":\"Oslo\"}"}"#);
    for no_number in ["", "04", "1e3", "-1", "+1", "1.5"] {
        assert!(filled(SlotValue::Str(no_number)).ends_with("\"c\":null}"), "{no_number}");
    }
}

#[test]
fn plain_text_inserts_strings_verbatim() {
    let template = Template::compile_plain("Terms: ${words}. ", &["words"]).unwrap();
    let mut out = String::new();
    template.render_plain(&mut out, |_| SlotValue::Str("\"A\", B"));
    assert_eq!(out, "Terms: \"A\", B. ");
}

#[test]
fn line_has_bare_values_without_control_characters() {
    let template =
        Template::compile_line("SAY ${x} n:${y:whole}/${y:text}\n", &[("x", 0), ("y", 1)]).unwrap();
    let filled = |x: SlotValue<'static>, y: SlotValue<'static>| {
        let mut out = String::new();
        template.render_line(&mut out, |slot| if slot == 0 { x } else { y });
        out
    };
    assert_eq!(
        filled(SlotValue::Str("a\r\nHANGUP \"q\""), SlotValue::Float(2.6)),
        "SAY a  HANGUP \"q\" n:3/2.6\n"
    );
    assert_eq!(filled(SlotValue::Null, SlotValue::Plain("id")), "SAY  n:id/id\n");
    assert!(Template::compile_line("${z}", &[("x", 0)]).is_err());
    let formatted = Template::compile_line("${x:spaced}|${x:digits}", &[("x", ())]).unwrap();
    for (value, expected) in [
        (SlotValue::Str("17"), "17 |17"),
        (SlotValue::Str("a"), "a |"),
        (SlotValue::Str(""), "|"),
        (SlotValue::Null, "|"),
    ] {
        let mut out = String::new();
        formatted.render_line(&mut out, |()| value);
        assert_eq!(out, expected);
    }
}

proptest! {
    #[test]
    fn any_string_round_trips(text in any::<String>()) {
        let mut out = String::new();
        write_json(SlotValue::Str(&text), &mut out);
        prop_assert_eq!(serde_json::from_str::<String>(&out).unwrap(), text);
    }
}
