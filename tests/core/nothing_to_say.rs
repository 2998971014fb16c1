//! Texts to speak without a word in them: each ends in the protocol's ordinary way, without audio and without an error.

use std::time::Duration;

use serde_json::{Value, json};
use voxbridge::{
    error::{Error, Origin},
    session::Observation,
};

use crate::harness::{ClientFrame, Harness, HarnessConfig};

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

/// How clients of a protocol have a text spoken, and the event that ends it.
struct Case {
    client: &'static str,
    query: &'static str,
    /// Messages, with `TEXT` in place of the text.
    messages: Vec<Value>,
    /// Path and value in the last event.
    end: (&'static str, Value),
}

impl Case {
    fn new(client: &'static str, messages: Vec<Value>, end: (&'static str, Value)) -> Self {
        Self { client, query: "model=any", messages, end }
    }

    fn ends(&self, event: &Value) -> bool {
        event.pointer(self.end.0) == Some(&self.end.1)
    }
}

fn cases() -> Vec<Case> {
    let cartesia = json!({
        "context_id": "a", "transcript": "TEXT", "model_id": "sonic-3", "voice": {"mode": "id", "id": "v"},
        "output_format": {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000},
    });
    let task = |action: &str| json!({"action": action, "task_id": "t", "streaming": "duplex"});
    let parameters = json!({"voice": "v", "format": "pcm", "sample_rate": 22050});
    let wyoming = |kind: &str, data: Value| json!({"type": kind, "data": data});
    vec![
        Case::new(
            "macaw",
            vec![json!({"type": "tts.speak", "text": "TEXT", "request_id": "r"})],
            ("/type", json!("tts.speaking_end")),
        ),
        Case::new(
            "rest",
            vec![json!({"type": "speak", "text": "TEXT"}), json!({"type": "finish"})],
            ("/reason", json!("finished")),
        ),
        Case::new(
            "wyoming",
            vec![wyoming("synthesize", json!({"text": "TEXT"}))],
            ("/type", json!("audio-stop")),
        ),
        Case::new(
            "wyoming",
            vec![
                wyoming("synthesize-start", json!({})),
                wyoming("synthesize-chunk", json!({"text": "TEXT"})),
                wyoming("synthesize", json!({"text": "TEXT"})),
                wyoming("synthesize-stop", json!({})),
            ],
            ("/type", json!("synthesize-stopped")),
        ),
        Case::new(
            "deepgram-speak",
            vec![json!({"type": "Speak", "text": "TEXT"}), json!({"type": "Flush"})],
            ("/type", json!("Flushed")),
        ),
        Case::new("cartesia-speak", vec![cartesia], ("/type", json!("done"))),
        Case {
            query: "voice_id=v",
            ..Case::new(
                "elevenlabs-contexts",
                vec![
                    json!({"text": " ", "context_id": "a"}),
                    json!({"text": "TEXT", "context_id": "a", "flush": true}),
                    json!({"context_id": "a", "close_context": true}),
                ],
                ("/isFinal", json!(true)),
            )
        },
        Case {
            query: "voice_id=v",
            ..Case::new(
                "elevenlabs-speak",
                vec![json!({"text": " "}), json!({"text": "TEXT", "flush": true}), json!({"text": ""})],
                ("/isFinal", json!(true)),
            )
        },
        Case::new(
            "soniox-speak",
            vec![
                json!({"stream_id": "s", "audio_format": "pcm_s16le", "sample_rate": 24000}),
                json!({"stream_id": "s", "text": "TEXT", "text_end": true}),
            ],
            ("/terminated", json!(true)),
        ),
        Case::new(
            "soniox-speak",
            vec![
                json!({"stream_id": "s", "audio_format": "pcm_s16le", "sample_rate": 24000}),
                json!({"stream_id": "s", "text": "TEXT"}),
                json!({"stream_id": "s", "text_end": true}),
            ],
            ("/terminated", json!(true)),
        ),
        Case::new(
            "dashscope-tts",
            vec![
                json!({"header": task("run-task"), "payload": {"task": "tts", "parameters": parameters, "input": {}}}),
                json!({"header": task("continue-task"), "payload": {"input": {"text": "TEXT"}}}),
                json!({"header": task("finish-task"), "payload": {"input": {}}}),
            ],
            ("/header/event", json!("task-finished")),
        ),
        Case::new(
            "twilio",
            vec![json!({"event": "start", "streamSid": "MZ1", "start": {
                "streamSid": "MZ1", "customParameters": {"say": "TEXT"},
                "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            }})],
            ("/event", json!("mark")),
        ),
        Case::new(
            "exotel",
            vec![json!({"event": "start", "stream_sid": "s", "start": {
                "stream_sid": "s", "custom_parameters": {"say": "TEXT"}, "media_format": {"encoding": "base64"},
            }})],
            ("/event", json!("mark")),
        ),
    ]
}

/// Has the text spoken, and waits for its end. Returns the session and whether the end came.
fn speak(case: &Case, text: &str) -> (Harness, bool) {
    let mut harness = Harness::new(HarnessConfig::of(case.client, "speech", case.query));
    for message in &case.messages {
        let quoted = json!(text).to_string();
        let message = message.to_string().replace("\"TEXT\"", &quoted);
        harness.send_json(&serde_json::from_str::<Value>(&message).unwrap());
    }
    let ended = |harness: &Harness| {
        harness.log.iter().any(|(_, frame)| matches!(frame, ClientFrame::Event(event) if case.ends(event)))
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
    for case in cases() {
        // Blank texts are an error of Macaw's, and none at all of telephony, where they stand for no greeting.
        let takes_blank = !["macaw", "twilio", "exotel"].contains(&case.client);
        for text in WORDLESS.iter().filter(|text| takes_blank || !text.trim().is_empty()) {
            let (harness, came) = speak(&case, text);
            let received = &harness.log;
            assert!(came, "{} says nothing of {text:?}: {received:?}", case.client);
            assert!(errors(&harness).is_empty(), "{}, {text:?}: {:?}", case.client, errors(&harness));
            let closed_badly = received
                .iter()
                .any(|(_, frame)| matches!(frame, ClientFrame::Close(code, _) if *code != 1000));
            assert!(!closed_badly, "{}, {text:?}: {received:?}", case.client);
            assert_eq!(harness.sent_containing("input.append").len(), 0, "{}, {text:?}", case.client);
        }
        let (harness, came) = speak(&case, "Hello there.");
        assert!(came && errors(&harness).is_empty(), "{}: {:?}", case.client, harness.log);
        assert!(!harness.sent_containing("input.append").is_empty(), "{}", case.client);
    }
}

#[test]
fn blank_text_of_macaw_is_the_clients_error_as_on_the_real_server() {
    let case = &cases()[0];
    let (harness, came) = speak(case, "   ");
    assert!(!came);
    let origins: Vec<_> = errors(&harness).iter().map(|error| error.kind.origin()).collect();
    assert_eq!(origins, [Origin::Client]);
}
