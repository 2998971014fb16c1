//! Tests of the parser: texts that models write, and properties over arbitrary ones.

use proptest::prelude::*;

use super::*;
use crate::vocabulary::Tool;

fn offer() -> ToolOffer {
    let tool = Tool { name: "a".to_owned(), description: None, parameters: "{}".into() };
    ToolOffer { tools: [tool].into(), ..ToolOffer::default() }
}

impl CallParser {
    fn push(&mut self, delta: &str, out: &mut String) {
        delta.chars().for_each(|letter| self.push_char(letter, out));
    }
}

fn parsed<'a>(deltas: impl IntoIterator<Item = &'a str>) -> (String, Vec<String>) {
    let (mut parser, mut words) = (CallParser::new("<tool_call>", "</tool_call>", &offer()), String::new());
    for delta in deltas {
        parser.push(delta, &mut words);
        assert!(parser.held.len() <= HELD_MAX_BYTES);
    }
    parser.finish(&mut words);
    (words, parser.calls)
}

fn assert_parsed(text: &str, words: &str, calls: &[&str]) {
    let letters = text.split("").filter(|letter| !letter.is_empty());
    for (found, how) in [(parsed([text]), "whole"), (parsed(letters), "in letters")] {
        assert_eq!(found.0.trim(), words, "{text:?} {how}");
        let found: Vec<_> = found.1.iter().map(|call| call.trim()).collect();
        assert_eq!(found, calls, "{text:?} {how}");
    }
}

const CALL: &str = r#"{"name": "a", "arguments": {"b": "</tool_call> <tool_call>\" {"}}"#;

#[test]
fn calls_and_words_are_told_apart() {
    assert_parsed(&format!("<tool_call>\n{CALL}\n</tool_call>"), "", &[CALL]);
    assert_parsed(&format!("Sure.\n<tool_call>{CALL}</tool_call>"), "Sure.", &[CALL]);
    let two = format!("<tool_call>\n{CALL}\n</tool_call>\n<tool_call>\n{CALL}\n</tool_call>\nDone.");
    assert_parsed(&two, "Done.", &[CALL, CALL]);
    assert_parsed("3 < 4, <b>tool_call</b> and <tool>", "3 < 4, <b>tool_call</b> and <tool>", &[]);
    assert_parsed("Use `x` < ```y```", "Use `x` < ```y```", &[]);
}

#[test]
fn careless_calls_are_read() {
    for text in [
        format!("< Tool_Call >{CALL}< / tool_call >"),
        format!("<tool_call>{CALL}"),
        format!("<tool_call>{CALL}<tool_call>"),
        format!("<tool_call>{CALL}<tool_call>\n"),
        format!("```json\n<tool_call>\n{CALL}\n</tool_call>\n```"),
        format!("```\n{CALL}\n```"),
        format!("<tool_call>{CALL}</tool_call>```\n"),
        format!("\n{CALL}</tool_call>"),
    ] {
        assert_parsed(&text, "", &[CALL]);
    }
    assert_parsed(&format!("<tool_call>{CALL}\n<tool_call>{CALL}</tool_call>"), "", &[CALL, CALL]);
    let fenced = format!("```json\n<tool_call>\n{CALL}\n</tool_call>\n```\n");
    assert_parsed(&format!("{fenced}{fenced}Done."), "Done.", &[CALL, CALL]);
    assert_parsed("Wait. <tool_ca", "Wait.", &[""]);
    assert_parsed("<tool_call>{\"name\": \"a}</tool_call>", "", &["{\"name\": \"a}"]);
}

#[test]
fn second_calls_are_read_in_all_forms() {
    for (text, words) in [
        (format!("Sure.\n<tool_call>{CALL}\n<tool_call>{CALL}\n</tool_call>"), "Sure."),
        (format!("```json\n{CALL}\n```\n```json\n{CALL}\n```"), ""),
        (format!("{CALL}\n{CALL}"), ""),
        (format!("Sure. <tool_call>{CALL}</tool_call>\n{CALL}</tool_call>"), "Sure."),
        (
            format!(
                "```json\n<tool_call>{CALL}</tool_call>\n```\n```json\n<tool_call>{CALL}</tool_call>\n```"
            ),
            "",
        ),
        (format!("Sure.<tool_call>{CALL}</tool_call>\n```\n{CALL}\n```\nDone."), "Sure.\nDone."),
    ] {
        assert_parsed(&text, words, &[CALL, CALL]);
    }
    let list = format!("[\n{CALL}, {CALL}]");
    assert_parsed(&format!("{list} Done."), "Done.", &[&list]);
    assert_parsed(&format!("```json\n{list}\n```"), "", &[&list]);
}

#[test]
fn answer_that_ends_in_the_beginning_of_a_tag_keeps_it_unless_it_is_most_of_the_tag() {
    let tag = "<tool_call>";
    for letters in 1..tag.len() {
        let cut = &tag[..letters];
        for cut in [cut.to_owned(), cut.replace('<', "< "), format!("```{cut}")] {
            let text = format!("Is a {cut}");
            match letters {
                ..=5 => assert_parsed(&text, text.trim(), &[]),
                _ => assert_parsed(&text, "Is a", &[""]),
            }
        }
    }
    assert_parsed(&format!("<tool_call>{CALL}</tool_call>\nDone. a < t"), "Done. a < t", &[CALL]);
}

#[test]
fn calls_are_whole_although_a_tag_is_cut() {
    for cut in ["</tool_ca", "<", "<tool_", "< / tool_call"] {
        assert_parsed(&format!("<tool_call>{CALL}{cut}"), "", &[CALL]);
    }
}

#[test]
fn calls_in_thoughts_are_none() {
    let thought = "<think>I could say <tool_call>{}</tool_call></think>";
    assert_parsed(&format!("{thought}Hello"), &format!("{thought}Hello"), &[]);
    assert_parsed(&format!("{thought}\n<tool_call>{CALL}</tool_call>"), thought, &[CALL]);
}

#[test]
fn endless_calls_are_bounded() {
    let (mut parser, mut words) = (CallParser::new("<tool_call>", "</tool_call>", &offer()), String::new());
    for _ in 0..CALLS_MAX * 2 {
        parser.push("<tool_call>[[", &mut words);
    }
    for _ in 0..CALLS_MAX_BYTES {
        parser.push("[[", &mut words);
    }
    parser.finish(&mut words);
    assert!(parser.overflowed && parser.calls.len() <= CALLS_MAX && words.is_empty());
}

#[test]
fn json_that_is_no_call_is_words() {
    for text in [
        "{\"topic\": \"billing\"}",
        "{\"name\": \"Ann\", \"age\": 3}",
        "```json\n{\"topic\": [1, {}]}\n```\nThis is JSON.",
        "[{\"a\": 1}, 2] and more",
        "[Music] {Hello}",
        "{ Hello",
    ] {
        assert_parsed(text, text, &[]);
    }
    assert_parsed(&format!("{{}}\n<tool_call>{CALL}</tool_call>"), "{}", &[CALL]);
    assert_parsed(&format!("<tool_call>{CALL}</tool_call>\n{{\"b\": 1}}"), "{\"b\": 1}", &[CALL]);
    let cut = "{\"name\": \"a\", \"arguments\": {\"b";
    assert_parsed(cut, "", &[cut]);
    let (mut parser, mut words) =
        (CallParser::new("<tool_call>", "</tool_call>", &ToolOffer::default()), String::new());
    parser.push("{\"name\": \"a\"}", &mut words);
    parser.finish(&mut words);
    assert_eq!((&*words, parser.calls.len()), ("{\"name\": \"a\"}", 0), "no tool can be called");
}

proptest! {
    #[test]
    fn words_are_exactly_the_words(
        pieces in prop::collection::vec(prop_oneof![
            prop_oneof![
                Just("Sure. "), Just("3 < 4 "), Just("See `x`. "), Just("[1] "), Just("{\"b\": [1]} "), Just("\n"),
                Just("好的。"), Just("```rust\nlet x = {};\n```\n"), Just("<b>{ </b>"),
            ].prop_map(|words| (words, "")),
            prop_oneof![
                Just(("<tool_call>\n", "\n</tool_call>")), Just(("<tool_call>", "< /tool_call >\n")),
                Just(("```json\n<tool_call>\n", "</tool_call>\n```\n")), Just(("```json\n", "\n```\n")), Just(("", "\n")),
                Just(("\n", "</tool_call>\n")),
            ],
        ], 0..8),
    ) {
        let (mut text, mut words, mut calls) = (String::new(), String::new(), 0);
        let mut may_be_bare = true;
        for (before, behind) in pieces {
            let is_call = !behind.is_empty();
            if is_call && (before.contains("<tool") || may_be_bare) {
                text.extend([before, CALL, behind]);
                (may_be_bare, calls) = (true, calls + 1);
            } else if !is_call {
                text.push_str(before);
                words.push_str(before);
                may_be_bare &= before.trim().is_empty();
            }
        }
        // A fence before or behind a call is taken for the call's.
        let without_space = |text: &str| text.split_whitespace().collect::<String>().replace('`', "");
        let found = parsed(text.split_inclusive(' '));
        prop_assert_eq!((without_space(&found.0), found.1.len()), (without_space(&words), calls), "{}", text);
    }

    #[test]
    fn cuts_do_not_change_the_result(
        pieces in prop::collection::vec(prop_oneof![
            Just("<tool_call>"), Just("</tool_call>"), Just("<think>"), Just("</think>"), Just("<"), Just("tool_"),
            Just("```"), Just("json"), Just("\n"), Just("{"), Just("}"), Just("\""), Just("\\"), Just("é"), Just(" "),
        ], 0..30),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..10),
    ) {
        let text = pieces.concat();
        let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&ends)).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let whole = parsed([text.as_str()]);
        prop_assert_eq!(parsed(cuts.windows(2).map(|pair| &text[pair[0]..pair[1]])), whole.clone());
        let outside_thoughts = whole.0.split("<think>").next().unwrap_or_default();
        prop_assert!(!outside_thoughts.contains("<tool_call>") && !outside_thoughts.contains("</tool_call>"));
    }
}
