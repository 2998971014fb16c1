use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::{
    spelling::Library,
    upstream::lane::{LaneCodec, LaneEnd, LaneOpening},
    vocabulary::{
        ConversationInit, DisconnectReason, EndKind, Frame, LanePurpose, LaneRequest, Mode, VideoFrame,
        VoiceEncoding, VoiceSample,
    },
};

/// A codec, and what its lane saw.
struct Bench {
    codec: LaneCodec,
    now: Instant,
    sent_count: u64,
}

impl Bench {
    fn new() -> Self {
        let mapping = Library::embedded().unwrap().upstream("sglang-omni").unwrap();
        #[expect(
            clippy::disallowed_methods,
            reason = "an Instant has no other source; only differences count"
        )]
        let now = Instant::now();
        let mut codec = LaneCodec::new(mapping, Mode::Video, LanePurpose::Converse);
        assert_eq!(codec.handle_opened(now), LaneOpening::Granted);
        Self { codec, now, sent_count: 0 }
    }

    fn encode(&mut self, command: LaneRequest) -> Vec<Value> {
        let mut sent = Vec::new();
        self.codec.encode(self.now, command, |message| sent.push(parse(&message)));
        sent
    }

    /// Sends a unit; its id counts from 1.
    fn append(&mut self, force_listen: bool, frame: Option<&[u8]>) -> Vec<Value> {
        self.sent_count += 1;
        self.encode(LaneRequest::Append(UnitInput {
            audio: Arc::new(vec![0x100; 16_000]),
            input_id: self.sent_count.to_string().into(),
            force_listen,
            frame: frame.map(|frame| VideoFrame(frame.to_vec().into())),
        }))
    }

    /// The events of a message: name, id of the turn or the unit.
    fn receive(&mut self, message: &Value) -> Vec<(String, String)> {
        let mut events = Vec::new();
        self.codec.decode(self.now, Frame::Text(&message.to_string()), |event, meta| {
            let name = match event {
                LaneEvent::Audio(samples) => format!("audio {}", samples.len()),
                LaneEvent::Text(text) => format!("text {text}"),
                LaneEvent::Done { .. } => "done".to_owned(),
                other => format!("{other:?}"),
            };
            events.push((name, meta.input_id.or(meta.response_id).unwrap_or_default().to_owned()));
        });
        events
    }

    /// The events of the answer to a unit with this number, which has this output and may end a response.
    fn answer(&mut self, seq: u64, text: Option<&str>, ends_response: bool) -> Vec<(String, String)> {
        let output = text.map(|text| {
            [
                json!({"type": "response.output_audio_transcript.delta", "response_id": "r", "delta": text}),
                json!({"type": "response.output_audio.delta", "response_id": "r", "delta": "AAEAAQ=="}),
            ]
        });
        let end = json!({"type": "response.done", "response": {"id": "r", "status": "completed"}});
        let unit_end = json!({"type": "sglang.unit.done", "unit_id": format!("unit_{seq}")});
        let messages = output.into_iter().flatten().chain(ends_response.then_some(end)).chain([unit_end]);
        messages.flat_map(|message| self.receive(&message)).collect()
    }

    fn error(&mut self, code: &str, event_id: &str) -> Vec<(String, String)> {
        self.receive(&json!({
            "type": "error", "sglang": {"fatal": false},
            "error": {"type": "invalid_request_error", "code": code, "message": "no", "event_id": event_id, "param": null},
        }))
    }

    fn resent(&mut self) -> Vec<Value> {
        let actions = std::iter::from_fn(|| self.codec.pop_action());
        actions
            .map(|action| match action {
                CodecAction::Send(message) => parse(&message),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

fn parse(message: &Message) -> Value {
    let Message::Text(text) = message else { panic!("{message:?}") };
    serde_json::from_str(text).unwrap()
}

fn events(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect()
}

#[test]
fn units_are_numbered_int16_with_their_start() {
    let mut bench = Bench::new();
    for seq in 0..3 {
        let sent = bench.append(false, None);
        let [message] = &sent[..] else { panic!("{sent:?}") };
        assert_eq!(message["sglang"], json!({"seq": seq, "t_start_ms": 1000 * seq}));
        assert_eq!(message["event_id"], (seq + 1).to_string());
        let audio = message["audio"].as_str().unwrap();
        assert!(audio.starts_with("AAEAAQAB") && audio.len() == 42_668, "{}", audio.len());
    }
}

#[test]
fn opening_names_only_settings_that_the_server_knows() {
    let mut bench = Bench::new();
    let config = r#"{"length_penalty": 1.1, "listen_prob_scale": 0.5}"#;
    let samples = vec![0; 16_000].into();
    for voice in [None, Some(VoiceSample { samples, encoding: VoiceEncoding::Wav })] {
        let has_voice = voice.is_some();
        let opening = ConversationInit {
            prompt: "Be brief.".to_owned(),
            config: config.into(),
            voice,
            voice_name: None,
        };
        let sent = bench.encode(LaneRequest::InitConversation(Box::new(opening)));
        let session = &sent[0]["session"];
        assert_eq!(session["sglang"]["sampling"], json!({"listen_prob_scale": 0.5}));
        assert_eq!(session["instructions"], "Be brief.");
        assert_eq!(session["sglang"]["reference_audio"]["data"].is_string(), has_voice);
    }
    let session = json!({"id": "sess_1", "model": "m", "sglang": {"granted": usual_grant()}});
    let message = json!({"type": "session.updated", "session": session});
    assert_eq!(bench.receive(&message), events(&[(r#"Ready { session_id: Some("sess_1") }"#, "")]));
}

#[test]
fn every_unit_ends_with_one_event_of_its_own() {
    let mut bench = Bench::new();
    (0..5).for_each(|_| drop(bench.append(false, None)));
    assert_eq!(bench.answer(0, None, false), events(&[("Listen", "1")]));
    assert_eq!(
        bench.answer(1, Some("One"), false),
        events(&[("text One", "1"), ("audio 2", "1"), ("done", "2")])
    );
    assert_eq!(
        bench.answer(2, Some("two"), true),
        events(&[("text two", "1"), ("audio 2", "1"), ("Listen", "3")])
    );
    assert_eq!(bench.answer(2, None, false), [], "a unit ends once");
    assert_eq!(
        bench.answer(4, Some("three"), true),
        events(&[("text three", "2"), ("audio 2", "2"), ("Listen", "5")]),
        "another turn"
    );
}

#[test]
fn pause_of_the_model_ends_its_turn_although_its_response_goes_on() {
    let mut bench = Bench::new();
    (0..3).for_each(|_| drop(bench.append(false, None)));
    assert_eq!(bench.answer(0, Some("One"), false)[2], ("done".to_owned(), "1".to_owned()));
    assert_eq!(bench.answer(1, None, false), events(&[("Listen", "2")]));
    assert_eq!(bench.answer(2, Some("two"), false)[0], ("text two".to_owned(), "1".to_owned()));
}

#[test]
fn picture_precedes_its_unit_and_a_refused_one_only_appears_in_the_log() {
    let mut bench = Bench::new();
    bench.append(false, None);
    let sent = bench.append(false, Some(b"\xff\xd8\xff"));
    assert_eq!(sent[0]["type"], "sglang.input_image.append");
    assert_eq!((&sent[0]["image"], &sent[0]["sglang"]), (&json!("/9j/"), &json!({"t_ms": 1000})));
    assert_eq!((sent.len(), &sent[1]["sglang"]["seq"]), (2, &json!(1)));
    let log = bench.error("not_supported", "picture");
    assert!(log[0].0.contains("picture that the upstream refused"), "{log:?}");
    for picture in [&b"GIF89a"[..], &[b"\xff\xd8", &vec![0; 524_287][..]].concat()] {
        assert_eq!(bench.append(false, Some(picture)).len(), 1, "no picture");
        let log = bench.receive(&json!({"type": "response.created"}));
        assert!(log[0].0.contains(&format!("{} bytes was left out", picture.len())), "{log:?}");
    }
    assert_eq!(bench.append(false, Some(&[b"\x89PNG", &vec![0; 524_284][..]].concat())).len(), 2);
}

#[test]
fn unit_without_room_is_sent_again_before_later_units() {
    let mut bench = Bench::new();
    bench.append(false, None);
    assert_eq!(bench.answer(0, None, false).len(), 1);
    bench.append(false, None);
    bench.append(false, None);
    assert_eq!(bench.error("buffer_overflow", "2"), []);
    assert_eq!(bench.error("invalid_state", "3"), [], "because of the gap");
    assert_eq!(bench.append(false, None), [] as [Value; 0], "waits for its turn");
    let at = bench.codec.deadline().unwrap();
    assert_eq!(at, bench.now + RESEND_PAUSE);
    bench.now = at;
    bench.codec.handle_timeout(at);
    let resent: Vec<_> = bench.resent().iter().map(|message| message["sglang"]["seq"].clone()).collect();
    assert_eq!(resent, [1, 2, 3]);
    assert_eq!(bench.codec.deadline(), None);
    for seq in 1..4 {
        assert_eq!(bench.answer(seq, None, false), events(&[("Listen", &(seq + 1).to_string())]));
    }
    assert_eq!(bench.append(false, None)[0]["sglang"], json!({"seq": 4, "t_start_ms": 4000}));
}

#[test]
fn interrupted_turn_lasts_until_the_model_listens() {
    let mut bench = Bench::new();
    bench.append(false, None);
    assert_eq!(bench.answer(0, Some("One"), false).len(), 3);
    bench.append(true, None);
    let rest = bench.answer(1, Some("two"), false);
    assert_eq!(
        rest,
        events(&[("text two", "0"), ("audio 2", "0"), ("done", "2")]),
        "the same turn, no listen"
    );
    bench.append(true, None);
    assert_eq!(bench.answer(2, Some("three"), true)[2], ("Listen".to_owned(), "3".to_owned()));
    bench.append(false, None);
    assert_eq!(bench.answer(3, Some("Sorry"), false)[0], ("text Sorry".to_owned(), "1".to_owned()));
}

#[test]
fn answer_to_the_interruption_waits_until_the_client_takes_output() {
    let mut bench = Bench::new();
    bench.append(false, None);
    bench.answer(0, None, false);
    for seq in 1..3 {
        bench.append(true, None);
        let id = (seq + 1).to_string();
        assert_eq!(bench.answer(seq, Some("Yes"), seq == 2), events(&[("Listen", &id)]));
    }
    bench.append(false, None);
    let released = bench.answer(3, None, false);
    let names: Vec<&str> = released.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["text Yes", "audio 2", "text Yes", "audio 2", "Listen"]);
}

#[test]
fn turn_that_is_held_for_long_is_interrupted_too() {
    let mut bench = Bench::new();
    for seq in 0..3 {
        bench.append(true, None);
        assert_eq!(bench.answer(seq, Some("Yes"), false).len(), 1);
    }
    bench.append(true, None);
    assert_eq!(
        bench.answer(3, Some("Yes"), false),
        events(&[("text Yes", "0"), ("audio 2", "0"), ("done", "4")]),
        "for the session to drop"
    );
}

#[test]
fn ends_are_told_apart() {
    let mut bench = Bench::new();
    let full = bench.error("context_exhausted", "");
    assert!(full[0].0.contains("LimitReached"), "{full:?}");
    let broken = bench.error("internal", "");
    assert!(broken[0].0.starts_with("Closed") && broken[0].0.contains("Other"), "{broken:?}");
    let refused = bench.error("admission_rejected", "open");
    assert!(refused[0].0.starts_with("RecoverableError"), "{refused:?}");
    let closed = bench.receive(&json!({"type": "session.closed", "reason": "client_closed"}));
    assert!(closed[0].0.starts_with("Closed"), "{closed:?}");
    let end = |status| Bench::new().codec.handle_end(bench.now, &DisconnectReason::HttpRejected(status));
    let LaneEnd::Over(Some(busy)) = end(503) else { panic!("{:?}", end(503)) };
    assert!(busy.kind == EndKind::QueueFull && busy.detail.contains("HTTP 503"), "{busy:?}");
    assert_eq!(end(403), LaneEnd::Over(None));
}

/// The session that the package grants (tests/golden/sglang-omni/empty_end.txt).
fn usual_grant() -> Value {
    json!({
        "interaction": "native", "native_full_duplex": true, "turn_control": [null],
        "input_modalities": ["audio", "image"], "output_modalities": ["audio"],
        "input_audio_format": {"type": "audio/pcm", "rate": 16000},
        "output_audio_format": {"type": "audio/pcm", "rate": 24000},
        "native_unit_ms": 1000, "limits": {"max_input_bytes": 1_920_000}, "rejections": [],
    })
}

#[test]
fn session_without_a_required_grant_is_refused_with_the_reason() {
    let usual = usual_grant();
    for (pointer, other, problem) in [
        ("/interaction", json!("native"), ""),
        ("/interaction", json!("turn_based"), "interaction is 'turn_based'"),
        (
            "/input_audio_format/rate",
            json!(8000),
            "audio is sent at 16000 Hz: input_audio_format.rate is 8000",
        ),
        ("/input_audio_format/type", json!("audio/pcmu"), "input_audio_format.type is 'audio/pcmu'"),
        ("/output_audio_format/rate", json!(48000), "output_audio_format.rate is 48000"),
        ("/output_audio_format/type", json!("audio/opus"), "output_audio_format.type is 'audio/opus'"),
        ("/native_unit_ms", json!(80), "units have 1000 ms: native_unit_ms is 80"),
        ("/limits/max_input_bytes", json!(6400), "limits.max_input_bytes is 6400"),
        ("/input_modalities", json!(["audio"]), "takes pictures: input_modalities is audio"),
        ("/output_modalities", json!(["text"]), "the model must speak: output_modalities is text"),
        ("/interaction", json!(null), "interaction is not named"),
        ("/limits", json!(null), "limits.max_input_bytes is not named"),
        ("/output_modalities", json!(null), "output_modalities is not named"),
    ] {
        let mut granted = usual.clone();
        *granted.pointer_mut(pointer).unwrap() = other;
        let session = json!({"id": "s", "model": "m", "sglang": {"granted": granted}});
        let events = Bench::new().receive(&json!({"type": "session.updated", "session": session}));
        let [(event, _)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(event.starts_with("Ready"), problem.is_empty(), "{event}");
        assert!(event.contains(problem), "{event}");
        assert_eq!(event.contains("UnfitStillOpen"), !problem.is_empty(), "{event}");
    }
}
