//! What full duplex takes: spellings, sizes, what it refuses, what it keeps (field notes §1.4–§1.6).

use super::*;

#[test]
fn chunks_that_are_not_a_second() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.second(conn, 0.0);
    let before = lab.kv(conn);
    lab.append(conn, json!({"audio": speech(8_000)}));
    assert_eq!(lab.last(conn)["kind"], "listen", "at once");
    assert_eq!(lab.kv(conn), before + 1, "but it leaves something behind");
    lab.ask(conn, json!({"audio": speech(8_000)}));
    assert_eq!(lab.kv(conn), before + 1 + 28, "now the unit is whole");
    let answers = lab.events(conn).len();
    lab.ask(conn, json!({"audio": speech(80_000)}));
    assert_eq!(lab.events(conn).len(), answers + 1, "one append, one answer");
    for _ in 0..4 {
        lab.second(conn, 0.0);
        assert_eq!(lab.last(conn)["kind"], "listen", "it still hears what was sent before");
    }
}

#[test]
fn every_spelling_of_the_input() {
    let one = base64_f32(&[0.5; 4]);
    let jpeg = "/9j/4AAQSkZJRg==";
    for input in [
        json!({"audio": one}),
        json!({"audio": {"data": one}}),
        json!({"audio": {"base64": one}, "frames": [jpeg], "max_slice_nums": 2}),
        json!({"audio": {"audio_base64": one}, "frame_base64_list": [jpeg]}),
        json!({"audio_base64": one, "video_frames": [jpeg]}),
        json!({"audio_data": one, "hints": {"max_slice_nums": 1}}),
    ] {
        for backend in [Backend::Pytorch, Backend::Cpp] {
            let mut lab = Lab::new(SimulatorConfig { backend, record: true, ..SimulatorConfig::default() });
            let conn = lab.duplex(Mode::Video, json!({}));
            lab.ask(conn, input.clone());
            assert_eq!(lab.last(conn)["kind"], "listen", "{input}");
            let Some(SimOutput::Unit(_, unit)) = lab.raw.iter().find(|it| matches!(it, SimOutput::Unit(..)))
            else {
                panic!("{input}")
            };
            let frames = input.to_string().contains(jpeg);
            assert_eq!((&unit.samples[..], unit.frames), (&[0.5; 4][..], usize::from(frames)));
        }
    }
}

#[test]
fn bad_input_ends_the_session() {
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
            json!({"audio": audio, "video_frames": [1]}),
            "argument should be a bytes-like object",
            Some("video_decode_failed"),
        ),
    ] {
        let mut lab = Lab::on(Backend::Pytorch);
        let conn = lab.duplex(Mode::Video, json!({}));
        lab.append(conn, input.clone());
        let closed = lab.last(conn);
        assert_eq!(closed["reason"], "backend_error");
        assert!(closed["diagnostic"]["message"].as_str().unwrap().starts_with(pytorch), "{closed}");
        let mut lab = Lab::on(Backend::Cpp);
        let conn = lab.duplex(Mode::Video, json!({}));
        lab.append(conn, input);
        assert_eq!(lab.last(conn)["reason"], cpp.unwrap_or("backend_error"));
        assert_eq!((lab.last(conn).get("diagnostic"), lab.ended(conn)), (None, polite()));
    }
}

#[test]
fn frames_are_for_video_only() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({}));
    assert_eq!(lab.second_with(conn, 0.0, json!({"video_frames": ["no picture"]})), ["listen"]);
    assert_eq!(lab.last(conn)["metrics"]["vision_tokens"], 0);
}

#[test]
fn the_configuration_is_checked_and_kept() {
    let refused = |config: Value| {
        let mut lab = Lab::on(Backend::Pytorch);
        let conn = lab.duplex(Mode::Audio, json!({"config": config}));
        lab.last(conn) == json!({"type": "session.closed", "session_id": null, "reason": "backend_error"})
    };
    assert!(refused(json!({"temperature": 2.1})) && refused(json!({"length_penalty": 0.05})));
    assert!(refused(json!({"temperature": "warm"})) && refused(json!("warm")));
    assert!(!refused(json!({"temperature": 0.7, "length_penalty": "1.1", "unknown": true})));
    for (backend, inherited) in [(Backend::Pytorch, json!({"temperature": 0.3})), (Backend::Cpp, json!({}))] {
        let mut lab = Lab::new(SimulatorConfig { backend, record: true, ..SimulatorConfig::default() });
        let voice = json!({"ref_audio_base64": speech(160)});
        let first = lab.duplex(
            Mode::Audio,
            json!({"duplex": {"temperature": 0.3}, "instructions": "Be brief.", "voice": voice}),
        );
        lab.close(first, "x");
        lab.duplex(Mode::Video, json!({}));
        let openings = lab.openings();
        assert_eq!(
            (openings[0].prompt.as_deref(), openings[0].voice.as_deref()),
            (Some("Be brief."), Some(&[0.25; 160][..]))
        );
        assert_eq!((openings[0].sees, openings[1].sees), (false, true));
        assert_eq!(Value::Object(openings[1].config.clone()), inherited);
    }
}

#[test]
fn the_payload_may_change_the_mode() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({"mode": "turn_based"}));
    assert_eq!(lab.last(conn)["mode"], "turn_based");
    lab.ask(conn, asr(16_000));
    assert_eq!(lab.last(conn)["type"], "response.done");
    lab.pass(Duration::from_secs(600));
    assert_eq!(lab.last(conn)["reason"], "timeout");
}

#[test]
fn an_append_may_come_first() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.connect_to(Mode::Video);
    lab.ask(conn, json!({"audio": speech(16_000)}));
    assert_eq!(names(&lab.events(conn)), ["session.queue_done", "session.created", "listen"]);
    assert_eq!(lab.events(conn)[1]["mode"], "full_duplex");
}
