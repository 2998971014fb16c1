//! Sessions that once broke a guarantee, and guarantees that need a special session.

use super::{driver::profile_source, script::Reaction::*, test_audio::recordings, *};

const CORRECT_UPSTREAM: Upstream = Upstream {
    dialled: Correct(5),
    up: Correct(5),
    init: Correct(5),
    asked: Correct(20),
    close: Correct(5),
    deltas: 3,
    delta_samples: 480,
    pace_ms: 100,
    units: Vec::new(),
    echoes: true,
};

fn new_driver(upstreams: &[Upstream]) -> Driver {
    Driver::new(&profile_source(false, true), upstreams.to_vec(), "model=m")
}

fn advance_seconds(driver: &mut Driver, seconds: u64) {
    driver.advance_to(driver.session.now + Duration::from_secs(seconds));
}

/// All events of this type that the client received.
fn client_events(driver: &Driver, kind: &str) -> Vec<Value> {
    let texts = driver.log.iter().filter_map(|(_, output)| match output {
        Output::ToClient(Message::Text(json), _) => Some(serde_json::from_str(json).unwrap()),
        _ => None,
    });
    texts.filter(|value: &Value| value["type"] == kind).collect()
}

fn audio_bytes(driver: &Driver) -> usize {
    let audio = driver.log.iter().map(|(_, output)| match output {
        Output::ToClient(Message::Binary(audio), _) => audio.len(),
        _ => 0,
    });
    audio.sum()
}

/// The questions as they were sent.
fn questions(driver: &Driver) -> Vec<&str> {
    let sent = driver.log.iter().filter_map(|(_, output)| match output {
        Output::ToLane(_, Message::Text(json)) if json.contains("input.append") => Some(json.as_str()),
        _ => None,
    });
    sent.collect()
}

#[test]
fn empty_part_answer_does_not_end_text() {
    let mut driver =
        new_driver(&[Upstream { asked: EmptyListError(20), ..CORRECT_UPSTREAM }, CORRECT_UPSTREAM]);
    driver.step(&Step::Speak { long: true, voice: None });
    advance_seconds(&mut driver, 20);
    let ends = client_events(&driver, "tts.speaking_end");
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0]["cancelled"], false);
    assert!(questions(&driver).len() >= 3, "each part has a working lane");
    driver.finish();
}

#[test]
fn dropped_odd_length_frame_keeps_sample_alignment() {
    let mut driver = new_driver(&[CORRECT_UPSTREAM]);
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 300_001 });
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 100_001 });
    assert_eq!(driver.session.bridge.sample_counts().1, 50_001);
    advance_seconds(&mut driver, 20);
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms: 1_000, frame_bytes: 641 });
    advance_seconds(&mut driver, 1);
    assert_eq!(driver.checks.pieces.len(), 1);
    driver.finish();
}

#[test]
fn single_byte_frames_are_metered() {
    let mut driver = new_driver(&[CORRECT_UPSTREAM]);
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 320_000 });
    for _ in 0..100 {
        driver.send_frame(&[0]);
    }
    assert_eq!(driver.session.bridge.sample_counts().1, 50);
    driver.finish();
}

#[test]
fn interim_decode_is_not_due_after_session_end() {
    let mut driver = Driver::new(
        &profile_source(true, true),
        vec![Upstream { close: Never, ..CORRECT_UPSTREAM }],
        "model=m",
    );
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 800, frame_bytes: 640 });
    driver.finish();
}

#[test]
fn output_rate_change_applies_from_next_text() {
    let mut driver = new_driver(&[CORRECT_UPSTREAM]);
    driver.step(&Step::Speak { long: false, voice: None });
    driver.advance_to(driver.session.now + Duration::from_millis(150));
    assert!(
        !client_events(&driver, "tts.speaking_start").is_empty()
            && client_events(&driver, "tts.speaking_end").is_empty()
    );
    driver.send_text(r#"{"type":"session.configure","output_sample_rate":8000}"#);
    advance_seconds(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * 480);
    assert_eq!(client_events(&driver, "tts.speaking_end")[0]["audio_ms"], 60);
    driver.checks.formats_change = true;
    driver.step(&Step::Speak { long: false, voice: None });
    advance_seconds(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * (480 + 160));
    driver.finish();
}

#[test]
fn audio_of_failed_attempt_is_discarded() {
    let mut driver = new_driver(&[Upstream { asked: Never, ..CORRECT_UPSTREAM }, CORRECT_UPSTREAM]);
    driver.checks.formats_change = true;
    driver.send_text(r#"{"type":"session.configure","output_sample_rate":8000}"#);
    driver.step(&Step::Speak { long: false, voice: None });
    advance_seconds(&mut driver, 1);
    let delta = r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/"}"#;
    driver.step(&Step::UpstreamText(0, delta.to_owned()));
    driver.step(&Step::LoseLane(0));
    advance_seconds(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * 160);
    driver.finish();
}

#[test]
fn repeated_speak_and_cancel_uses_few_lanes() {
    // Slow workers: only the checks limit the number of lanes.
    let mut driver =
        new_driver(&[Upstream { init: Correct(20_000), close: Correct(20_000), ..CORRECT_UPSTREAM }]);
    for _ in 0..50 {
        driver.step(&Step::Speak { long: false, voice: None });
        driver.advance_to(driver.session.now + Duration::from_millis(50));
        driver.send_text(r#"{"type":"tts.cancel"}"#);
    }
    driver.step(&Step::Speak { long: false, voice: None });
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms: 1_000, frame_bytes: 640 });
    advance_seconds(&mut driver, 100);
    assert_eq!(client_events(&driver, "tts.speaking_end").len(), 1, "only the last text is spoken");
    assert_eq!(client_events(&driver, "transcript.final").len(), 1, "the utterance is transcribed");
    driver.finish();
}

#[test]
fn questions_do_not_exceed_upstream_limit() {
    let mut driver = new_driver(&[CORRECT_UPSTREAM]);
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 70_000, frame_bytes: 3_200 });
    assert_eq!(driver.checks.pieces.len(), 2);
    driver.finish();
}

#[test]
fn empty_commits_are_counted_without_questions() {
    let mut driver = new_driver(&[CORRECT_UPSTREAM]);
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    for _ in 0..1_000 {
        driver.send_text(r#"{"type":"input_audio_buffer.commit"}"#);
    }
    driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 500, frame_bytes: 640 });
    driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms: 1_000, frame_bytes: 640 });
    driver.send_text(r#"{"type":"session.close"}"#);
    advance_seconds(&mut driver, 10);
    let finals: Vec<Value> =
        client_events(&driver, "transcript.final").iter().map(|told| told["segment_id"].clone()).collect();
    assert_eq!(finals, [0, 1_000]);
    assert_eq!(client_events(&driver, "session.closed")[0]["segments_transcribed"], 1_001);
    driver.finish();
}

#[test]
fn backlog_is_bounded_and_drops_are_reported() {
    let profile = profile_source(false, true).replace("backlog_max_ms = 120000", "backlog_max_ms = 10000");
    let mut driver = Driver::new(&profile, vec![Upstream { up: Never, ..CORRECT_UPSTREAM }], "model=m");
    for _ in 0..40 {
        driver.step(&Step::StreamAudio { sound: Sound::Noise, ms: 1_500, frame_bytes: 3_200 });
        driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms: 500, frame_bytes: 3_200 });
    }
    let dropped = client_events(&driver, "session.frames_dropped");
    let dropped_ms: u64 = dropped.iter().map(|told| told["dropped_ms"].as_u64().unwrap()).sum();
    let recorded_ms = driver.session.bridge.sample_counts().0.recorded / 16;
    assert!(recorded_ms > 60_000, "{recorded_ms}");
    let waiting_ms = recorded_ms - dropped_ms;
    assert!((7_000..=10_000 + dropped.len() as u64).contains(&waiting_ms), "{waiting_ms} ms are waiting");
    driver.finish();
}

#[test]
fn empty_list_failure_is_treated_as_lost_upstream() {
    let dying = Upstream { asked: EmptyListError(20), units: vec![UnitReply::Listen], ..CORRECT_UPSTREAM };
    let working = Upstream { units: vec![UnitReply::Listen], ..CORRECT_UPSTREAM };
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![dying, working],
        trouble: None,
        steps: Vec::new(),
    };
    let mut driver = Driver::for_script(&script);
    driver.step(&Step::StreamAudio { sound: Sound::Speech(0), ms: 5_000, frame_bytes: 640 });
    // The transport stays open; the lane is given up three seconds later.
    advance_seconds(&mut driver, 5);
    assert_eq!(client_events(&driver, "error").len(), 1);
    let streamed = driver.session.bridge.uplink_counts().unwrap();
    assert!(streamed.appended == 5 * 16_000, "the next lane gets all audio: {streamed:?}");
    driver.finish();
}

/// The fence is down, but the audio still carries the name of the interrupted answer or an earlier unit.
#[test]
fn very_late_audio_is_discarded() {
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![Upstream {
            units: vec![
                UnitReply::Listen,
                UnitReply::Speak,
                UnitReply::Speak,
                UnitReply::Listen,
                UnitReply::Listen,
                UnitReply::Listen,
            ],
            ..CORRECT_UPSTREAM
        }],
        trouble: None,
        steps: Vec::new(),
    };
    let mut driver = Driver::for_script(&script);
    let hiss = |driver: &mut Driver, ms| {
        driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms, frame_bytes: 640 });
    };
    hiss(&mut driver, 1_500);
    assert_eq!(client_events(&driver, "tts.speaking_start").len(), 1);
    driver.send_text(r#"{"type":"tts.cancel"}"#);
    hiss(&mut driver, 1_700);
    let bytes_before = audio_bytes(&driver);
    for id in [r#""response_id":"l0_t0""#, r#""input_id":"2""#] {
        for late_delta in [r#""kind":"audio","audio":"AAAAPwAAAD8=""#, r#""kind":"text","text":"late""#] {
            let line = format!(r#"{{"type":"response.output.delta",{id},{late_delta}}}"#);
            driver.step(&Step::UpstreamText(0, line));
        }
    }
    assert_eq!((audio_bytes(&driver), client_events(&driver, "tts.speaking_start").len()), (bytes_before, 1));
    let fresh =
        r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8=","response_id":"other"}"#;
    driver.checks.formats_change = true;
    driver.step(&Step::UpstreamText(0, fresh.to_owned()));
    // The start of a turn is held back until more audio comes.
    hiss(&mut driver, 700);
    assert_eq!(client_events(&driver, "tts.speaking_start").len(), 2, "the next answer is played");
    driver.finish();
}

/// A conversation whose first turn is complete upstream and still playing.
fn driver_with_turn_playing() -> Driver {
    let units = vec![
        UnitReply::Listen,
        UnitReply::SpeakLast,
        UnitReply::Listen,
        UnitReply::Listen,
        UnitReply::Listen,
        UnitReply::Listen,
    ];
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![Upstream { units, ..CORRECT_UPSTREAM }],
        trouble: None,
        steps: Vec::new(),
    };
    let mut driver = Driver::for_script(&script);
    driver.checks.formats_change = true;
    driver.step(&Step::StreamAudio { sound: Sound::Hiss, ms: 1_200, frame_bytes: 640 });
    assert_eq!(
        (
            client_events(&driver, "tts.speaking_start").len(),
            client_events(&driver, "tts.speaking_end").len()
        ),
        (1, 0)
    );
    driver
}

/// Sends audio of the completed turn, as a back-end with a separate audio thread does.
fn send_late_audio(driver: &mut Driver) {
    let line =
        r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8=","response_id":"l0_t0"}"#;
    driver.step(&Step::UpstreamText(0, line.to_owned()));
}

#[test]
fn late_audio_is_played_with_its_turn() {
    let mut driver = driver_with_turn_playing();
    send_late_audio(&mut driver);
    advance_seconds(&mut driver, 2);
    assert_eq!(audio_bytes(&driver), 2 * (14_400 + 2), "the turn, and the two late samples");
    assert_eq!(client_events(&driver, "tts.speaking_end").len(), 1);
    send_late_audio(&mut driver);
    assert_eq!(client_events(&driver, "tts.speaking_start").len(), 1, "even later audio starts no turn");
    driver.finish();
}

#[test]
fn late_audio_of_cancelled_turn_is_discarded() {
    let mut driver = driver_with_turn_playing();
    driver.send_text(r#"{"type":"tts.cancel"}"#);
    let bytes_before = audio_bytes(&driver);
    send_late_audio(&mut driver);
    advance_seconds(&mut driver, 2);
    assert_eq!((audio_bytes(&driver), client_events(&driver, "tts.speaking_start").len()), (bytes_before, 1));
    driver.finish();
}

/// The questions for a clip at this rate, in frames of these sizes in bytes.
pub(super) fn questions_for_clip(rate_hz: u32, channels: u16, clip_ms: usize, cuts: &[usize]) -> Vec<String> {
    let groups = clip_ms * rate_hz as usize / 1_000;
    // At higher rates the speech is slower. The detector takes all loud audio for speech.
    let speech = recordings().iter().take(groups * 4 / 5).copied().chain(std::iter::repeat(0)).take(groups);
    let clip: Vec<i16> = speech.flat_map(|sample| std::iter::repeat_n(sample, channels.into())).collect();
    let audio = bytes_of(&clip);
    let query = format!("model=m&sample_rate={rate_hz}&channels={channels}");
    let mut driver = Driver::new(&profile_source(false, true), vec![CORRECT_UPSTREAM], &query);
    driver.checks.formats_change = true;
    let mut rest = audio.as_slice();
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().map_or(1, |cut| (*cut).clamp(1, rest.len()));
        let (frame, after) = rest.split_at(cut);
        driver.send_frame(frame);
        rest = after;
    }
    advance_seconds(&mut driver, 30);
    let questions_sent = questions(&driver).into_iter().map(str::to_owned).collect();
    driver.finish();
    questions_sent
}

/// Splits a question into its audio and the rest.
pub(super) fn split_audio(asked: &str) -> (Vec<f32>, String) {
    let longest = asked.split('"').max_by_key(|part| part.len()).unwrap();
    let mut audio = Vec::new();
    pcm::decode_base64_f32(longest, &mut audio).unwrap();
    (audio, asked.replace(longest, ""))
}
