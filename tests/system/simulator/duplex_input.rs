//! Full-duplex input: spellings, sizes, rejected values and buffered audio (mappings/notes/minicpm-o.md#commands,
//! mappings/notes/minicpm-o-duplex.md#units).

use super::*;

#[test]
fn appends_of_other_lengths_are_buffered_into_units() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_second(conn, 0.0);
    let before = sim.context_tokens(conn);
    sim.send_append(conn, json!({"audio": speech_base64(8_000)}));
    assert_eq!(sim.last_event(conn)["kind"], "listen", "at once");
    assert_eq!(sim.context_tokens(conn), before + 1, "an incomplete unit adds one token");
    sim.append_and_wait(conn, json!({"audio": speech_base64(8_000)}));
    assert_eq!(sim.context_tokens(conn), before + 1 + 28, "the unit is complete");
    let answers = sim.events_of(conn).len();
    sim.append_and_wait(conn, json!({"audio": speech_base64(80_000)}));
    assert_eq!(sim.events_of(conn).len(), answers + 1, "one append, one answer");
    for _ in 0..4 {
        sim.send_second(conn, 0.0);
        assert_eq!(sim.last_event(conn)["kind"], "listen", "buffered audio is still processed");
    }
}

#[test]
fn all_input_spellings_are_accepted() {
    let one = base64_f32(&[0.5; 4]);
    let jpeg = PICTURE;
    for input in [
        json!({"audio": one}),
        json!({"audio": {"data": one}}),
        json!({"audio": {"base64": one}, "frames": [jpeg], "max_slice_nums": 2}),
        json!({"audio": {"audio_base64": one}, "frame_base64_list": [jpeg]}),
        json!({"audio_base64": one, "video_frames": [jpeg]}),
        json!({"audio_data": one, "hints": {"max_slice_nums": 1}}),
    ] {
        for backend in [Backend::Pytorch, Backend::Cpp] {
            let mut sim =
                TestGateway::new(SimulatorConfig { backend, record: true, ..SimulatorConfig::default() });
            let conn = sim.open_duplex_session(SimMode::Video, json!({}));
            sim.append_and_wait(conn, input.clone());
            assert_eq!(sim.last_event(conn)["kind"], "listen", "{input}");
            let Some(SimOutput::DuplexUnit(_, unit)) =
                sim.outputs.iter().find(|it| matches!(it, SimOutput::DuplexUnit(..)))
            else {
                panic!("{input}")
            };
            let frames = input.to_string().contains(jpeg);
            assert_eq!((&unit.samples[..], unit.frame_count), (&[0.5; 4][..], usize::from(frames)));
        }
    }
}

#[test]
fn invalid_input_ends_session() {
    let audio = base64_f32(&[0.0; 16_000]);
    for (input, pytorch, cpp) in [
        (json!({}), "full_duplex input requires audio", Some("missing_audio")),
        (json!({"audio": ""}), "full_duplex input requires audio", Some("missing_audio")),
        (json!({"messages": []}), "full_duplex input requires audio", Some("mode_mismatch")),
        (json!({"audio": "AAAAA"}), "Invalid base64-encoded string", None),
        (json!({"audio": "AAAA"}), "buffer size must be a multiple of element size", Some("missing_audio")),
        (
            json!({"audio": audio, "video_frames": ["AAAA"]}),
            "cannot identify image file",
            Some("video_decode_failed"),
        ),
        (
            json!({"audio": audio, "video_frames": [PICTURE, "/9j/4AAQSkZJRg=="]}),
            "cannot identify image file",
            Some("video_decode_failed"),
        ),
        (
            json!({"audio": audio, "video_frames": [1]}),
            "argument should be a bytes-like object",
            Some("video_decode_failed"),
        ),
    ] {
        let mut sim = TestGateway::with_backend(Backend::Pytorch);
        let conn = sim.open_duplex_session(SimMode::Video, json!({}));
        sim.send_append(conn, input.clone());
        let closed = sim.last_event(conn);
        assert_eq!(closed["reason"], "backend_error");
        assert!(closed["diagnostic"]["message"].as_str().unwrap().starts_with(pytorch), "{closed}");
        let mut sim = TestGateway::with_backend(Backend::Cpp);
        let conn = sim.open_duplex_session(SimMode::Video, json!({}));
        sim.send_append(conn, input);
        assert_eq!(sim.last_event(conn)["reason"], cpp.unwrap_or("backend_error"));
        assert_eq!((sim.last_event(conn).get("diagnostic"), sim.end_of(conn)), (None, normal_close()));
    }
}

#[test]
fn pytorch_takes_video_frames_in_audio_mode() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.send_second_with(conn, 0.0, json!({"video_frames": [PICTURE]})), ["listen"]);
    assert_eq!(sim.last_event(conn)["metrics"]["vision_slices"], 1);
    sim.send_second_with(conn, 0.0, json!({"video_frames": ["AAA"]}));
    let diagnostic = json!({"message": "Incorrect padding"});
    assert_eq!(sim.last_event(conn)["diagnostic"], diagnostic);
    assert_eq!(sim.end_of(conn), normal_close());
    let mut sim = TestGateway::with_backend(Backend::Cpp);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.send_second_with(conn, 0.0, json!({"video_frames": ["AAA"]})), ["listen"]);
}

#[test]
fn config_is_validated_and_kept_by_pytorch() {
    let is_rejected = |config: Value| {
        let mut sim = TestGateway::with_backend(Backend::Pytorch);
        let conn = sim.open_duplex_session(SimMode::Audio, json!({"config": config}));
        sim.last_event(conn)
            == json!({"type": "session.closed", "session_id": null, "reason": "backend_error"})
    };
    assert!(is_rejected(json!({"temperature": 2.1})) && is_rejected(json!({"length_penalty": 0.05})));
    assert!(is_rejected(json!({"temperature": "warm"})) && is_rejected(json!("warm")));
    assert!(!is_rejected(json!({"temperature": 0.7, "length_penalty": "1.1", "unknown": true})));
    for (backend, inherited) in [(Backend::Pytorch, json!({"temperature": 0.3})), (Backend::Cpp, json!({}))] {
        let mut sim =
            TestGateway::new(SimulatorConfig { backend, record: true, ..SimulatorConfig::default() });
        let voice = json!({"ref_audio_base64": speech_base64(160)});
        let first = sim.open_duplex_session(
            SimMode::Audio,
            json!({"duplex": {"temperature": 0.3}, "instructions": "Be brief.", "voice": voice}),
        );
        sim.close_session(first, "x");
        sim.open_duplex_session(SimMode::Video, json!({}));
        let openings = sim.duplex_openings();
        assert_eq!(
            (openings[0].prompt.as_deref(), openings[0].voice.as_deref()),
            (Some("Be brief."), Some(&[0.25; 160][..]))
        );
        assert_eq!((openings[0].has_video, openings[1].has_video), (false, true));
        assert_eq!(Value::Object(openings[1].config.clone()), inherited);
    }
}

#[test]
fn payload_mode_overrides_connection_mode() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({"mode": "turn_based"}));
    assert_eq!(sim.last_event(conn)["mode"], "turn_based");
    sim.append_and_wait(conn, asr_request(16_000));
    assert_eq!(sim.last_event(conn)["type"], "response.done");
    sim.advance(Duration::from_secs(600));
    assert_eq!(sim.last_event(conn)["reason"], "timeout");
}

#[test]
fn append_without_init_creates_session() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.append_and_wait(conn, json!({"audio": speech_base64(16_000)}));
    assert_eq!(event_names(&sim.events_of(conn)), ["session.queue_done", "session.created", "listen"]);
    assert_eq!(sim.events_of(conn)[1]["mode"], "full_duplex");
}
