//! Texts to speak without a word in them: each ends in the protocol's ordinary way, without audio and without an error.

use voxbridge::error::Origin;

use super::*;

const WORDLESS: [&str; 12] = [
    "\u{1F604}",
    "\u{1F44D}\u{1F3FD} \u{2764}\u{FE0F}",
    "...",
    "\u{2026}",
    "\"",
    "\u{201C}\u{201D}",
    "  ",
    " \n\t",
    "?!",
    "**",
    "---",
    "```\n```",
];

/// How clients of a protocol have a text spoken: their query, their messages with `TEXT` in place of the text, and the place and
/// the value in the event that ends it.
const CASES: &str = r#"
macaw | model=any | {"type": "tts.speak", "text": "TEXT", "request_id": "r"} | /type | "tts.speaking_end"
rest | model=any | {"type": "speak", "text": "TEXT"}, {"type": "finish"} | /reason | "finished"
wyoming | model=any | {"type": "synthesize", "data": {"text": "TEXT"}} | /type | "audio-stop"
wyoming | model=any | {"type": "synthesize-start", "data": {}}, {"type": "synthesize-chunk", "data": {"text": "TEXT"}}, {"type": "synthesize", "data": {"text": "TEXT"}}, {"type": "synthesize-stop", "data": {}} | /type | "synthesize-stopped"
deepgram-speak | model=any | {"type": "Speak", "text": "TEXT"}, {"type": "Flush"} | /type | "Flushed"
cartesia-speak | model=any | {"context_id": "a", "transcript": "TEXT", "model_id": "sonic-3", "voice": {"mode": "id", "id": "v"}, "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}} | /type | "done"
elevenlabs-contexts | voice_id=v | {"text": " ", "context_id": "a"}, {"text": "TEXT", "context_id": "a", "flush": true}, {"context_id": "a", "close_context": true} | /isFinal | true
elevenlabs-speak | voice_id=v | {"text": " "}, {"text": "TEXT", "flush": true}, {"text": ""} | /isFinal | true
soniox-speak | model=any | {"stream_id": "s", "audio_format": "pcm_s16le", "sample_rate": 24000}, {"stream_id": "s", "text": "TEXT", "text_end": true} | /terminated | true
soniox-speak | model=any | {"stream_id": "s", "audio_format": "pcm_s16le", "sample_rate": 24000}, {"stream_id": "s", "text": "TEXT"}, {"stream_id": "s", "text_end": true} | /terminated | true
dashscope-tts | model=any | {"header": {"action": "run-task", "task_id": "t", "streaming": "duplex"}, "payload": {"task": "tts", "parameters": {"voice": "v", "format": "pcm", "sample_rate": 22050}, "input": {}}}, {"header": {"action": "continue-task", "task_id": "t", "streaming": "duplex"}, "payload": {"input": {"text": "TEXT"}}}, {"header": {"action": "finish-task", "task_id": "t", "streaming": "duplex"}, "payload": {"input": {}}} | /header/event | "task-finished"
twilio | model=any | {"event": "start", "streamSid": "MZ1", "start": {"streamSid": "MZ1", "customParameters": {"say": "TEXT"}, "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1}}} | /event | "mark"
exotel | model=any | {"event": "start", "stream_sid": "s", "start": {"stream_sid": "s", "custom_parameters": {"say": "TEXT"}, "media_format": {"encoding": "base64"}}} | /event | "mark"
"#;

type Case = [&'static str; 5];

/// Has the text spoken, and waits for its end. Returns the session and whether the end came.
fn speak([client, query, messages, place, value]: Case, text: &str) -> (Harness, bool) {
    let mut harness = Harness::new(HarnessConfig::of(client, "speech", query));
    let messages = format!("[{}]", messages.replace("\"TEXT\"", &json!(text).to_string()));
    let messages: Vec<Value> = serde_json::from_str(&messages).unwrap();
    messages.iter().for_each(|message| harness.send_json(message));
    let value: Value = serde_json::from_str(value).unwrap();
    let ends = |event: &Value| event.pointer(place) == Some(&value);
    let ended = |harness: &Harness| {
        harness.log.iter().any(|(_, frame)| matches!(frame, ClientFrame::Event(event) if ends(event)))
    };
    let came = harness.run_until(ended, Duration::from_secs(20)).is_some();
    harness.advance(Duration::from_secs(8));
    (harness, came)
}

/// Errors that count for the operator.
fn errors(harness: &Harness) -> Vec<&Error> {
    let told = harness.observations.iter().filter_map(|observation| match observation {
        Observation::ErrorTold(error) => Some(error),
        _ => None,
    });
    told.collect()
}

#[test]
fn text_without_words_ends_in_the_protocols_ordinary_way() {
    for case in rows(CASES) {
        let client = case[0];
        // Blank texts are an error of Macaw's, and none at all of telephony, where they stand for no greeting.
        let takes_blank = !["macaw", "twilio", "exotel"].contains(&client);
        for text in WORDLESS.iter().filter(|text| takes_blank || !text.trim().is_empty()) {
            let (harness, came) = speak(case, text);
            let received = &harness.log;
            assert!(came, "{client} says nothing of {text:?}: {received:?}");
            assert!(errors(&harness).is_empty(), "{client}, {text:?}: {:?}", errors(&harness));
            let closed_badly = received
                .iter()
                .any(|(_, frame)| matches!(frame, ClientFrame::Close(code, _) if *code != 1000));
            assert!(!closed_badly, "{client}, {text:?}: {received:?}");
            assert_eq!(harness.sent_containing("input.append").len(), 0, "{client}, {text:?}");
        }
        let (harness, came) = speak(case, "Hello there.");
        assert!(came && errors(&harness).is_empty(), "{client}: {:?}", harness.log);
        assert!(!harness.sent_containing("input.append").is_empty(), "{client}");
    }
}

#[test]
fn blank_text_of_macaw_is_the_clients_error_as_on_the_real_server() {
    let (harness, came) = speak(rows(CASES)[0], "   ");
    assert!(!came);
    let origins: Vec<_> = errors(&harness).iter().map(|error| error.kind.origin()).collect();
    assert_eq!(origins, [Origin::Client]);
}
