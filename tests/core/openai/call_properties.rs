//! Property: a call of a tool is never heard and is in no transcript, however the model's text is cut into deltas and however
//! early its audio comes.

use proptest::prelude::*;

use super::{tools::aloud, *};

/// Audio of a letter: 60 ms, as the simulated voice speaks, and of a syllable of Chinese.
const LETTER_SAMPLES: [usize; 2] = [24 * 60, 24 * 200];
/// Levels of the audio of words, and of a call.
const WORDS_LEVEL: f32 = 0.25;
const CALL_LEVEL: f32 = -0.25;

/// The model's answer, in parts that are words or a call.
fn answer() -> impl Strategy<Value = Vec<(&'static str, bool)>> {
    let call = prop_oneof![
        Just("<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>"),
        Just(
            "<tool_call>{\"name\":\"get_weather\",\"arguments\":\"{\\\"city\\\":\\\"</tool_call>\\\"}\"}</tool_call>"
        ),
        Just(
            "```json\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Rome\"}}\n</tool_call>\n```"
        ),
        Just("<tool_call>{\"name\": \"get_weather\", \"argu"),
        Just("< tool_call >{\"name\": \"get_weather\"}< /tool_call >"),
    ];
    let words = prop_oneof![
        Just(""),
        Just("Sure. "),
        Just("3 < 4, let me see. It takes a moment.\n"),
        Just("好的。")
    ];
    (words, call, any::<bool>()).prop_map(|(words, call, is_double)| {
        let mut parts = vec![(words, false), (call, true)];
        parts.extend(is_double.then_some([("\n", true), (call, true)]).into_iter().flatten());
        parts
    })
}

fn connect(profile: &'static str) -> Realtime {
    let config = HarnessConfig { profile, ..aloud(config("model=gpt-realtime")) };
    let mut client = Realtime::with_config(config.workers(4).faults(&["never-answers"]));
    client.update(&json!({"tools": [{"type": "function", "name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}]}));
    client.send(&json!({"type": "response.create"}));
    client.pass(500 * MS);
    client
}

/// The lane on which the model was asked last.
pub(super) fn asked_lane(client: &Realtime) -> Option<Lane> {
    let asked = client.harness.traffic.iter().rev().find_map(|(_, traffic)| match traffic {
        Traffic::Sent(lane, text)
            if text.contains("length_penalty\":1.1") || text.contains("length_penalty\": 1.1") =>
        {
            Some(*lane)
        }
        _ => None,
    });
    asked.filter(|lane| client.harness.lanes().contains(lane))
}

/// Sends the model's text in deltas of these lengths, and before each the audio of the text so far and of `early` letters more.
fn play_answer(client: &mut Realtime, lane: Lane, parts: &[(&str, bool)], cuts: &[(usize, usize)]) {
    let letters: Vec<(char, bool)> =
        parts.iter().flat_map(|(text, is_call)| text.chars().map(move |letter| (letter, *is_call))).collect();
    let delta = |fields: Value| {
        let mut message = json!({"type": "response.output.delta", "session_id": "s", "response_id": "r"});
        message.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        message.to_string()
    };
    let (mut written, mut spoken) = (0, 0);
    for (length, early) in cuts.iter().cycle() {
        let end = (written + early).min(letters.len()).max(spoken);
        let sound = |(letter, is_call): &(char, bool)| {
            let level = if *is_call { CALL_LEVEL } else { WORDS_LEVEL };
            std::iter::repeat_n(level, LETTER_SAMPLES[usize::from(*letter > '⺀')])
        };
        let audio: Vec<u8> = letters[spoken..end].iter().flat_map(sound).flat_map(f32::to_le_bytes).collect();
        if !audio.is_empty() {
            let fields = json!({"kind": "audio", "audio": STANDARD.encode(&audio)});
            client.harness.inject_upstream_text(lane, &delta(fields));
        }
        let text: String = letters[written..(written + length).min(letters.len())]
            .iter()
            .map(|(letter, _)| letter)
            .collect();
        client.harness.inject_upstream_text(lane, &delta(json!({"kind": "text", "text": text})));
        client.pass(20 * MS);
        (written, spoken) = ((written + length).min(letters.len()), end);
        if written == letters.len() {
            break;
        }
    }
    let whole: String = letters.iter().map(|(letter, _)| letter).collect();
    let done = json!({"type": "response.done", "session_id": "s", "response_id": "r", "text": whole, "reason": "turn_end"});
    client.harness.inject_upstream_text(lane, &done.to_string());
}

fn assert_unheard(client: &Realtime) -> Result<(), TestCaseError> {
    for (_, event) in &client.events {
        let kind = event["type"].as_str().unwrap();
        let words = ["delta", "transcript", "text", "part"].map(|key| event[key].to_string()).concat();
        if !kind.starts_with("response.function_call") && !kind.ends_with("audio.delta") {
            prop_assert!(!words.contains("tool_call") && !words.contains("get_weather"), "{event}");
        }
        if kind == "response.output_audio.delta" {
            let bytes = STANDARD.decode(event["delta"].as_str().unwrap()).unwrap();
            let samples = bytes.chunks_exact(2).map(|two| i16::from_le_bytes([two[0], two[1]]));
            prop_assert!(samples.into_iter().all(|sample| sample > -3000), "audio of a call");
        }
    }
    for text in client.harness.sent_containing("请朗读以下内容") {
        let spoken = text.split("请朗读以下内容").nth(1).unwrap();
        prop_assert!(!spoken.contains("tool") && !spoken.contains("weather"), "{spoken}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn call_is_never_heard_nor_read(
        parts in answer(),
        asks_aloud in any::<bool>(),
        cuts in vec((1_usize..12, 0_usize..40), 1..12),
    ) {
        let mut client = connect(if asks_aloud { "aloud" } else { "assistant" });
        for _ in 0..2 {
            let Some(lane) = asked_lane(&client) else { break };
            play_answer(&mut client, lane, &parts, &cuts);
            client.pass(2000 * MS);
        }
        client.pass(3000 * MS);
        assert_unheard(&client)?;
        let called = client.of_type("response.function_call_arguments.done").len();
        let is_whole = parts.iter().all(|(text, _)| !text.ends_with("argu"));
        let words_are_spoken = !asks_aloud && !parts[0].0.is_empty();
        // Words before a call are spoken first, and here no upstream speaks.
        prop_assert_eq!(called > 0, is_whole && !words_are_spoken, "{:?}", client.types());
    }
}
