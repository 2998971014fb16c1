//! Abilities of mappings that Twilio does not need: ids that are generated or counted, several messages and verbs, frames of fixed
//! length, empty commands. Each case changes Twilio's own file.

use super::*;

const TWILIO: &str = include_str!("../../../mappings/client/twilio.toml");

/// A session with Twilio's file after these replacements.
fn open(replaced: &[(&str, &str)]) -> Harness {
    let mut config = HarnessConfig::of("twilio", "speech", "");
    config.change_file(MappingKind::Client, "twilio", replaced);
    Harness::new(config)
}

fn speak(harness: &mut Harness, text: &str) {
    let start = json!({"event": "start", "streamSid": "MZ1", "start": {"customParameters": {"say": text}}});
    harness.send_json(&start);
    let before = harness.texts.len();
    harness.run_until(
        |harness| harness.texts[before..].iter().any(|it| it.contains("mark")),
        Duration::from_secs(60),
    );
}

/// Values of this member in all messages of this event.
fn members(harness: &Harness, event: &str, pointer: &str) -> Vec<Value> {
    let messages = harness.texts.iter().map(|text| serde_json::from_str::<Value>(text).unwrap());
    let of_event = messages.filter(|message| message["event"] == event);
    of_event.map(|message| message.pointer(pointer).cloned().unwrap_or_default()).collect()
}

#[test]
fn ids_are_generated_and_counted_per_message_turn_and_session() {
    let mut harness = open(&[
        (
            "stream = { kind = \"remembered\" }",
            "stream = { kind = \"remembered\" }\n\
             event_id = { kind = \"generated\", per = \"message\", prefix = \"event_\" }\n\
             response = { kind = \"generated\", per = \"turn\", prefix = \"resp_\" }\n\
             call = { kind = \"generated\", per = \"session\" }\n\
             number = { kind = \"counted\", per = \"message\", first = 1 }\n\
             answer = { kind = \"counted\", per = \"turn\" }",
        ),
        (
            "'{\"event\": \"media\",",
            "'{\"id\": ${event_id}, \"again\": ${event_id}, \"response\": ${response}, \"call\": ${call}, \
             \"n\": ${number:text}, \"answer\": ${answer}, \"event\": \"media\",",
        ),
    ]);
    speak(&mut harness, "One.");
    harness.send_text(r#"{"event":"mark","mark":{"name":"0"}}"#);
    let first_turn = members(&harness, "media", "/response").len();
    speak(&mut harness, "Two.");
    let ids = members(&harness, "media", "/id");
    assert!(ids.iter().all(|id| id.as_str().unwrap().starts_with("event_")), "{ids:?}");
    assert_eq!(ids, members(&harness, "media", "/again"), "one value in one message");
    let distinct: BTreeSet<String> = ids.iter().map(Value::to_string).collect();
    assert_eq!(distinct.len(), ids.len(), "another value in each message");
    let numbers: Vec<Value> = (1..=ids.len()).map(|number| number.to_string().into()).collect();
    assert_eq!(members(&harness, "media", "/n"), numbers);
    let responses = members(&harness, "media", "/response");
    assert!(first_turn > 0 && responses.len() > first_turn);
    assert!(responses[..first_turn].iter().all(|id| *id == responses[0]), "one value in one turn");
    assert!(responses[first_turn..].iter().all(|id| *id == responses[first_turn]));
    assert_ne!(responses[0], responses[first_turn]);
    assert!(members(&harness, "media", "/call").windows(2).all(|two| two[0] == two[1]));
    let answers = members(&harness, "media", "/answer");
    assert_eq!((&answers[0], answers.last()), (&json!(0), Some(&json!(1))));
}

#[test]
fn event_may_be_several_messages() {
    let mut harness = open(&[
        (
            "audio_complete = '{\"event\": \"mark\",",
            "audio_complete = ['{\"event\": \"before\"}', '{\"event\": \"mark\",",
        ),
        ("${turn:text}}}'", "${turn:text}}}']"),
    ]);
    speak(&mut harness, "One.");
    let last: Vec<&str> = harness.texts.iter().rev().take(2).map(String::as_str).collect();
    assert!(last[0].contains("mark") && last[1] == r#"{"event":"before"}"#, "{last:?}");
}

#[test]
fn frames_of_fixed_length_are_paced_and_filled_with_silence() {
    let replaced = ("frame_max_bytes = 8000", "pace = \"real_time\"\nframe_ms = 20\nframe_max_bytes = 8000");
    let mut harness = open(&[replaced]);
    speak(&mut harness, "A text of some length, so that it lasts.");
    let payloads = members(&harness, "media", "/media/payload");
    let lengths: Vec<usize> = payloads.iter().map(|payload| payload.as_str().unwrap().len()).collect();
    assert!(lengths.len() > 20 && lengths.iter().all(|length| *length == 216), "160 bytes each: {lengths:?}");
    let times: Vec<Duration> =
        harness.log.iter().filter(|(_, frame)| frame.name() == "?").map(|(at, _)| *at).collect();
    let lasted = times[times.len() - 1] - times[0];
    let audio = Duration::from_millis(20 * lengths.len() as u64);
    assert!(lasted + Duration::from_millis(400) > audio, "{lasted:?} for {audio:?}");
}

#[test]
fn one_exact_message_may_be_a_command() {
    for (message, is_text, sent) in [
        ("{ text = \"\" }", true, ""),
        ("{ binary = \"\" }", false, ""),
        ("{ text = \"Done\" }", true, "Done"),
        ("{ binary = \"END_OF_AUDIO\" }", false, "END_OF_AUDIO"),
    ] {
        let replaced = (
            "[commands.stop]\nverb = \"close\"",
            "[commands.stop]\nverb = \"close\"\n[commands.last]\nverb = \"close\"\nexactly = MESSAGE",
        );
        let mut harness = open(&[replaced, ("MESSAGE", message)]);
        if is_text {
            harness.send_text(sent);
        } else {
            harness.send_binary(sent.as_bytes());
        }
        harness.advance(Duration::from_secs(10));
        assert!(harness.is_closed(), "{message}");
    }
}

#[test]
fn command_may_have_several_verbs_with_conditions() {
    let replaced = (
        "verb = { verb = \"audio\", unless = { \"/media/track\" = \"outbound\" } }   # that track is what voxbridge says",
        "verb = [\"audio\", { verb = \"finalize\", when = \"/last\" }]",
    );
    let mut harness = open(&[replaced]);
    let speech = phone_recording("goforward_16k.wav");
    let frames: Vec<&[u8]> = speech[..20_000].chunks(FRAME_SAMPLES).collect();
    for (at, frame) in frames.iter().enumerate() {
        let payload = STANDARD.encode(frame);
        harness.send_json(
            &json!({"event": "media", "last": at + 1 == frames.len(), "media": {"payload": payload}}),
        );
        harness.advance(Duration::from_millis(20));
    }
    harness.advance(Duration::from_millis(200));
    assert_eq!(harness.question_audio.len(), 1, "the flag ends the utterance at once");
    assert_eq!(harness.bridge().sample_counts().0.received, 20_000);
}

#[test]
fn mistakes_in_values_verbs_and_events_are_named() {
    for (old, new, words) in [
        ("remember = \"stream\"", "remember = \"steam\"", "did you mean `stream`?"),
        ("${stream}, \"media\"", "${steam}, \"media\"", "did you mean `stream`?"),
        (
            "stream = { kind = \"remembered\" }",
            "stream = { kind = \"remembered\" }\naudio = { kind = \"remembered\" }",
            "slot of events already",
        ),
        (
            "stream = { kind = \"remembered\" }",
            "stream = { kind = \"remembered\" }\nn = { kind = \"counted\", per = \"session\" }",
            "always be its first value",
        ),
        ("to = \"audio\", type = \"base64\"", "to = \"audio\", type = \"text\"", "type = \"base64\""),
        ("verb = \"played\"", "verb = \"audio\"", "to = \"audio\""),
        ("to = \"turn\", type = \"integer\"", "to = \"turn\", type = \"text\"", "whose type is `integer`"),
        ("when = \"/start/", "when = \"start/", "begins with `/`"),
        ("verb = \"speak\", when", "verb = \"spaek\", when", "did you mean `speak`?"),
        ("verb = \"speak\", when", "verb = \"speak\", wen", "did you mean `when`?"),
        ("audio_complete = '", "audio_compete = '", "did you mean `audio_complete`?"),
    ] {
        assert!(TWILIO.contains(old), "{old}");
        let problem = Library::default().add("f.toml", &TWILIO.replacen(old, new, 1)).unwrap_err();
        assert!(problem.to_string().contains(words), "{new}: {problem}");
        assert!(problem.line > 0, "{new}: {problem}");
    }
}
