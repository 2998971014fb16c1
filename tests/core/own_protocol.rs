//! A protocol in one file that is not part of the program (`examples/mappings/voice-agent.toml`): conditions on values, words of its own,
//! and Unix times.

use super::*;

const FILE: &str = include_str!("../../examples/mappings/voice-agent.toml");
const MINUTE: Duration = Duration::from_secs(60);
const LONG: &str =
    "This is an answer of many words, so that it is heard for some seconds and can be interrupted.";

fn connect() -> Harness {
    let mut library = Library::embedded().unwrap();
    library.add("voice-agent.toml", FILE).unwrap();
    let config = HarnessConfig { library, ..HarnessConfig::of("voice-agent", "assistant", "") };
    Harness::new(config.answers(&[LONG, "Yes?"]).workers(2))
}

#[test]
fn conversation_has_both_roles_and_is_cleared_at_a_barge_in() {
    let mut harness = connect();
    let ready = harness.events("ready")[0].clone();
    assert!(ready["expires_at"].is_u64(), "{ready}");
    harness.stream(&[recording("goforward_16k.wav"), zeros(1500)].concat(), 20);
    let is_speaking = |harness: &Harness| harness.audio().len() > 16_000;
    harness.wait_until(is_speaking, MINUTE);
    harness.stream(&[recording("goforward_16k.wav"), zeros(1500)].concat(), 20);
    let answered = |harness: &Harness| harness.events("transcript").len() >= 4;
    harness.wait_until(answered, MINUTE);
    assert_eq!(harness.events("clear").len(), 1, "{:?}", harness.names());
    let mut roles: Vec<_> = harness.events("transcript").iter().map(|it| it["role"].clone()).collect();
    roles.sort_by_key(ToString::to_string);
    assert_eq!(
        roles,
        [json!("agent"), json!("agent"), json!("user"), json!("user")],
        "{:?}",
        harness.names()
    );
    harness.send_json(&json!({"type": "stop"}));
    harness.wait_until(Harness::is_closed, MINUTE);
    assert!(matches!(harness.log.last(), Some((_, ClientFrame::Close(1000, _)))), "{:?}", harness.log.last());
}

#[test]
fn wrong_conditions_and_words_are_named_with_the_nearest_spelling() {
    for (right, wrong, expected) in [
        ("when = { speaker = \"user\" }", "when = { speeker = \"user\" }", "did you mean `speaker`"),
        ("[slot_words.speaker]", "[slot_words.speaker_]", "did you mean `speaker`"),
    ] {
        let source = FILE.replace(right, wrong);
        assert_ne!(source, FILE, "{right}");
        let problem = Library::embedded().unwrap().add("f.toml", &source).unwrap_err().to_string();
        assert!(problem.contains(expected), "{wrong}: {problem}");
    }
}
