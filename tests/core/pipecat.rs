//! A Pipecat client in virtual time: RTVI messages and audio in protobuf frames.

use voxbridge_test_support::rtvi::{RtviFrame, audio_frame, field, message_frame};

use super::*;

const FRAME: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(60);

struct Client {
    harness: Harness,
}

impl Client {
    fn connect(profile: &'static str) -> Self {
        Self::connect_to(profile, SimulatorConfig::default())
    }

    fn connect_to(profile: &'static str, simulator: SimulatorConfig) -> Self {
        let simulator = SimulatorConfig { record: true, ..simulator };
        Self::with_config(HarnessConfig { profile, simulator, ..HarnessConfig::default() })
    }

    fn with_config(config: HarnessConfig) -> Self {
        let config = HarnessConfig { client: "pipecat", query: String::new(), ..config };
        Self { harness: Harness::new(config) }
    }

    fn send(&mut self, kind: &str, id: &str, data: Value) {
        let message = json!({"label": "rtvi-ai", "type": kind, "id": id, "data": data});
        self.harness.send_binary(&message_frame(&message));
    }

    fn send_text(&mut self, id: &str, text: &str, options: Value) {
        self.send("send-text", id, json!({"content": text, "options": options}));
    }

    /// Sends audio of this format in real time; 16 kHz and mono are `(16_000, 1)`.
    fn say(&mut self, samples: &[i16], (rate_hz, channels): (u32, u32)) {
        for frame in samples.chunks((rate_hz * channels) as usize / 50) {
            self.harness.send_binary(&audio_frame(frame, rate_hz, channels));
            self.harness.advance(FRAME);
        }
    }

    fn frames(&self) -> Vec<RtviFrame> {
        let frames = self.harness.log.iter().filter_map(|(_, frame)| match frame {
            ClientFrame::Binary(bytes) => Some(RtviFrame::read(bytes)),
            ClientFrame::Event(event) => panic!("a text message: {event}"),
            ClientFrame::Close(..) => None,
        });
        frames.collect()
    }

    /// Kinds of frames, runs of audio as one.
    fn kinds(&self) -> Vec<String> {
        let mut kinds: Vec<_> = self.frames().iter().map(|frame| frame.kind().to_owned()).collect();
        kinds.dedup_by(|a, b| a == b && a == "audio");
        kinds
    }

    fn messages(&self, kind: &str) -> Vec<Value> {
        let of_kind = |frame| match frame {
            RtviFrame::Message(message) if message["type"] == kind => Some(message),
            _ => None,
        };
        self.frames().into_iter().filter_map(of_kind).collect()
    }

    /// The texts of these messages.
    fn texts(&self, kind: &str) -> Vec<String> {
        let text = |message: Value| message["data"]["text"].as_str().unwrap().to_owned();
        self.messages(kind).into_iter().map(text).collect()
    }

    fn wait_for(&mut self, kind: &str, count: usize) {
        let start = self.harness.now();
        while self.messages(kind).len() < count {
            assert!(self.harness.now() - start < PATIENCE, "no {kind}: {:?}", self.kinds());
            self.harness.advance(FRAME);
        }
    }

    /// Like `wait_for`, with a silent microphone.
    fn listen_for(&mut self, kind: &str, count: usize) {
        let start = self.harness.now();
        while self.messages(kind).len() < count {
            assert!(self.harness.now() - start < PATIENCE, "no {kind}: {:?}", self.kinds());
            self.say(&zeros(20), (16_000, 1));
        }
    }

    /// Checks that audio comes between the start and stop of a speech only, at 24 kHz and mono. Returns its frames.
    fn heard(&self) -> usize {
        let (mut is_speaking, mut count) = (false, 0);
        for frame in self.frames() {
            match frame.kind() {
                "bot-started-speaking" => assert!(!std::mem::replace(&mut is_speaking, true)),
                "bot-stopped-speaking" => assert!(std::mem::take(&mut is_speaking)),
                "audio" => {
                    assert!(is_speaking, "audio outside of a speech");
                    assert!(matches!(&frame, RtviFrame::Audio(bytes, 24_000, 1) if bytes.len() % 2 == 0));
                    count += 1;
                }
                _ => {}
            }
        }
        count
    }
}

fn start(kinds: &[String], kind: &str) -> usize {
    kinds.iter().position(|it| it == kind).unwrap_or_else(|| panic!("no {kind}: {kinds:?}"))
}

#[test]
fn client_talks_in_full_duplex() {
    let mut client = Client::connect("conversation");
    let about = json!({"library": "@pipecat-ai/client-js", "platform_details": {"browser": "Chrome"}});
    client.send("client-ready", "a1b2", json!({"version": "2.1.0", "about": about}));
    assert_eq!(client.harness.now(), Duration::ZERO, "the answer waits for nothing");
    let ready = json!({
        "label": "rtvi-ai", "type": "bot-ready", "id": "a1b2",
        "data": {"version": "2.1.0", "about": {"library": "voxbridge"}},
    });
    assert_eq!(client.messages("bot-ready"), [ready]);
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-llm-stopped", 1);
    assert!(client.heard() > 5, "{:?}", client.kinds());
    let kinds = client.kinds();
    let order = [
        "user-started-speaking",
        "user-stopped-speaking",
        "bot-started-speaking",
        "audio",
        "bot-tts-stopped",
        "bot-stopped-speaking",
        "bot-llm-stopped",
    ];
    let places: Vec<_> = order.iter().map(|kind| start(&kinds, kind)).collect();
    assert!(places.is_sorted(), "{kinds:?}");
    assert!(start(&kinds, "bot-llm-started") < start(&kinds, "bot-llm-text"), "{kinds:?}");
    let (deltas, sentences) = (client.texts("bot-llm-text").concat(), client.texts("bot-output"));
    assert!(!deltas.is_empty());
    assert_eq!(sentences.join(" "), deltas.split_whitespace().collect::<Vec<_>>().join(" "));
    assert_eq!(client.texts("bot-transcription"), sentences);
    assert_eq!(client.texts("bot-tts-text"), sentences);
    for (at, output) in client.messages("bot-output").iter().enumerate() {
        let data = &output["data"];
        assert_eq!(data["segment_id"], at + 1);
        assert_eq!((&data["output_type"], &data["spoken_status"]), (&json!("sentence"), &json!("completed")));
        assert_eq!(data["spoken_progress"], json!({"accumulated_text": data["text"], "remaining_text": ""}));
    }
    assert_eq!(client.messages("error"), Vec::<Value>::new());
    client.send("disconnect-bot", "c", json!({}));
    assert!(client.harness.is_closed());
    assert!(matches!(client.harness.log.last(), Some((_, ClientFrame::Close(1000, _)))));
}

#[test]
fn session_speaks_the_clients_version_if_it_knows_it() {
    for (version, spoken) in [
        (json!("1.4.1"), "1.4.1"),
        (json!("2.0.0"), "2.0.0"),
        (json!("3.0.0"), "2.2.0"),
        (json!(2), "2.2.0"),
        (Value::Null, "2.2.0"),
    ] {
        let mut client = Client::connect("conversation");
        client.send("client-ready", "x", json!({"version": version}));
        assert_eq!(client.messages("bot-ready")[0]["data"]["version"], spoken, "{version}");
        assert_eq!(client.kinds(), ["bot-ready"]);
    }
}

#[test]
fn speech_over_the_model_interrupts_it() {
    let simulator = SimulatorConfig { turn_units: 30, ..SimulatorConfig::default() };
    let mut client = Client::connect_to("conversation", simulator);
    // A client may begin with audio.
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-started-speaking", 1);
    client.say(&zeros(500), (16_000, 1));
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-stopped-speaking", 1);
    let kinds = client.kinds();
    let cut = start(&kinds, "interruption");
    assert_eq!(
        kinds[cut - 1..cut + 4].join(" "),
        [
            kinds[cut - 1].as_str(),
            "interruption",
            "bot-interrupted",
            "bot-tts-stopped",
            "bot-stopped-speaking",
        ]
        .join(" ")
    );
    // No audio follows, but that of another turn.
    client.heard();
}

#[test]
fn format_of_the_audio_may_change_with_each_frame() {
    let mut client = Client::connect("conversation");
    let stereo = |samples: &[i16]| -> Vec<i16> { samples.iter().flat_map(|sample| [*sample, 0]).collect() };
    let at_48k: Vec<i16> = two_seconds().iter().flat_map(|sample| [*sample; 3]).collect();
    client.say(&two_seconds(), (16_000, 1));
    client.say(&stereo(&at_48k), (48_000, 2));
    // Frames without a format have the protocol's own.
    client.harness.send_binary(&field(2, &field(3, &[0; 640])));
    client.say(&zeros(1_000), (16_000, 1));
    client.wait_for("bot-llm-started", 1);
    let samples: usize = client.harness.units.iter().map(|(_, unit)| unit.samples.len()).sum();
    assert!(samples >= 16_000 * 4, "{samples} samples of 5 s");
    assert_eq!(client.messages("error"), Vec::<Value>::new());
    // A wrong format is no audio; the next frame is.
    let received = |client: &Client| client.harness.bridge().audio_totals().unwrap().received;
    let before = received(&client);
    client.harness.send_binary(&audio_frame(&[0; 320], 1_000, 1));
    client.harness.send_binary(&audio_frame(&[0; 320], 16_000, 300));
    let errors = client.messages("error");
    assert_eq!(errors.len(), 2, "{errors:?}");
    for error in errors {
        assert_eq!(error["data"]["fatal"], false);
        assert!(error["data"]["error"].as_str().unwrap().contains("Invalid message: audio frame"), "{error}");
    }
    assert_eq!(received(&client), before);
    client.say(&zeros(20), (16_000, 1));
    assert_eq!(received(&client), before + FRAME);
}

#[test]
fn typed_text_is_answered_in_turns() {
    let mut client = Client::connect("assistant");
    client.send_text("t1", "Tell me a story about a river and the sea.", json!({}));
    client.wait_for("bot-started-speaking", 1);
    // The next text interrupts, as it says by default.
    client.send_text("t2", "And now?", json!({"run_immediately": true, "audio_response": true}));
    client.wait_for("bot-llm-stopped", 2);
    assert_eq!(client.messages("bot-interrupted").len(), 1);
    assert!(client.heard() > 0);
    let (answers, audio) = (client.messages("bot-llm-started").len(), client.heard());
    // This one waits for the next.
    client.send_text("t3", "My name is Ada.", json!({"run_immediately": false}));
    client.harness.advance(Duration::from_secs(20));
    assert_eq!((client.messages("bot-llm-started").len(), client.heard()), (answers, audio));
    client.send_text("t4", "What is my name?", json!({"audio_response": false}));
    client.wait_for("bot-llm-stopped", answers + 1);
    assert_eq!(client.heard(), audio, "an answer without audio");
    assert!(!client.harness.sent_containing("My name is Ada.").is_empty());
    assert_eq!(client.messages("error-response"), Vec::<Value>::new());
}

#[test]
fn user_is_transcribed_in_the_assistant() {
    let mut client = Client::connect("assistant");
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-llm-stopped", 1);
    // Words stream in, and the last message has them all.
    let words = client.messages("user-transcription");
    assert!(words.len() > 1 && words.iter().rev().skip(1).all(|message| message["data"]["final"] == false));
    let user = &words[words.len() - 1]["data"];
    assert!(user["text"].as_str().is_some_and(|text| !text.is_empty()), "{user}");
    assert_eq!((&user["final"], &user["user_id"]), (&json!(true), &json!("")));
    // Virtual time begins at 2026-11-20T04:27:44Z.
    assert!(user["timestamp"].as_str().unwrap().starts_with("2026-11-20T"), "{user}");
    assert_eq!(client.texts("user-llm-text"), [user["text"].as_str().unwrap()]);
}

#[test]
fn user_is_transcribed_in_full_duplex_if_the_route_asks_for_it() {
    let mut client = Client::with_config(HarnessConfig::transcribed_conversation());
    client.say(&zeros(3000), (16_000, 1));
    for turn in 1..=2 {
        client.say(&two_seconds(), (16_000, 1));
        client.listen_for("bot-llm-stopped", turn);
    }
    let whole = |message: &Value| message["data"]["final"] == true;
    let words: Vec<Value> = client.messages("user-transcription").into_iter().filter(whole).collect();
    assert_eq!(words.len(), 2, "{:?}", client.kinds());
    assert_eq!(client.texts("user-llm-text").len(), 2);
    let kinds = client.kinds();
    assert!(start(&kinds, "user-transcription") < start(&kinds, "bot-llm-stopped"), "{kinds:?}");
    assert_eq!(client.messages("error"), Vec::<Value>::new());
}

#[test]
fn messages_that_cannot_be_served_are_answered_by_their_id() {
    let mut client = Client::connect("conversation");
    client.send("client-message", "m1", json!({"t": "custom", "d": 5}));
    client.send_text("m2", "Hello", json!({}));
    client.send("send-text", "m3", json!({"content": 7}));
    client.send("ui-snapshot", "m4", json!({"tree": {}}));
    let answers = client.messages("error-response");
    let ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["m1", "m2", "m3"], "{answers:?}");
    let error = |at: usize| answers[at]["data"]["error"].as_str().unwrap();
    assert_eq!(error(0), "Unsupported type 'client-message'");
    assert!(error(1).contains("takes no text"), "{}", error(1));
    assert!(error(2).contains("content"), "{}", error(2));
    assert_eq!(client.messages("error"), Vec::<Value>::new());
    // An id of any length is bounded.
    client.send("nothing", &"i".repeat(5_000), json!({}));
    assert_eq!(client.messages("error-response")[3]["id"].as_str().unwrap().len(), 256);
}

#[test]
fn wrong_bytes_are_errors_and_the_session_goes_on() {
    let mut client = Client::connect("conversation");
    let wrong: [&[u8]; 8] = [
        b"\x12\xff",
        b"RIFF\x24\x08\x00\x00WAVEfmt ",
        b"{\"type\": \"client-ready\"}",
        &field(4, &field(1, b"\xff\xfe")),
        &field(4, &field(1, b"{")),
        &field(4, &field(1, b"[]")),
        &field(4, &field(1, b"{}")),
        &field(3, &field(3, b"words of the user")),
    ];
    for (at, bytes) in wrong.into_iter().enumerate() {
        client.harness.send_binary(bytes);
        let errors = client.messages("error");
        assert_eq!(errors.len(), at + 1, "{bytes:?}");
        assert_eq!(errors[at]["data"]["fatal"], false);
        assert!(!errors[at]["data"]["error"].as_str().unwrap().is_empty());
    }
    let count = client.frames().len();
    // Unknown kinds of frames, and those without content, are skipped.
    for bytes in [&b""[..], &field(9, b"later"), &field(3, b""), &field(5, b""), &field(2, b"")] {
        client.harness.send_binary(bytes);
    }
    assert_eq!(client.frames().len(), count, "{:?}", client.kinds());
    // Text messages are read, too.
    client.harness.send_json(&json!({"label": "rtvi-ai", "type": "client-ready", "id": "z", "data": {}}));
    assert_eq!(client.messages("bot-ready")[0]["id"], "z");
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-stopped-speaking", 1);
    assert!(client.heard() > 5);
}

#[test]
fn interruption_frame_of_the_client_silences_the_model() {
    let simulator = SimulatorConfig { turn_units: 30, ..SimulatorConfig::default() };
    let mut client = Client::connect_to("conversation", simulator);
    client.say(&two_seconds(), (16_000, 1));
    client.listen_for("bot-started-speaking", 1);
    client.harness.send_binary(&field(5, b""));
    assert_eq!(client.messages("bot-stopped-speaking").len(), 1, "{:?}", client.kinds());
}
