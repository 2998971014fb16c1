//! Sessions that once broke a promise, and promises that need a session of their own.

use std::time::Duration;

use serde_json::Value;
use voxbridge::{audio::pcm, bridge::Output, event::Message};

use super::{
    driver::{Driver, profile_source},
    script::{Reaction::*, Say, Script, Step, Upstream},
    sound::{Sound, bytes, recordings},
};

const WELL: Upstream = Upstream {
    dialled: Well(5),
    up: Well(5),
    init: Well(5),
    asked: Well(20),
    close: Well(5),
    deltas: 3,
    pace_ms: 100,
    units: Vec::new(),
    echoes: true,
};

fn driver(upstreams: &[Upstream]) -> Driver {
    Driver::new(&profile_source(false, true), upstreams.to_vec(), "model=m")
}

fn pass(driver: &mut Driver, seconds: u64) {
    driver.pass(driver.now + Duration::from_secs(seconds));
}

/// What the client was told, of one type.
fn told(driver: &Driver, kind: &str) -> Vec<Value> {
    let texts = driver.log.iter().filter_map(|(_, output)| match output {
        Output::ToClient(Message::Text(json)) => Some(serde_json::from_str(json).unwrap()),
        _ => None,
    });
    texts.filter(|value: &Value| value["type"] == kind).collect()
}

fn audio_bytes(driver: &Driver) -> usize {
    let audio = driver.log.iter().map(|(_, output)| match output {
        Output::ToClient(Message::Binary(audio)) => audio.len(),
        _ => 0,
    });
    audio.sum()
}

/// The questions asked, as they were sent.
fn questions(driver: &Driver) -> Vec<&str> {
    let sent = driver.log.iter().filter_map(|(_, output)| match output {
        Output::ToLane(_, Message::Text(json)) if json.contains("input.append") => Some(json.as_str()),
        _ => None,
    });
    sent.collect()
}

#[test]
fn a_part_answered_by_nothing_does_not_end_the_text() {
    let mut driver = driver(&[Upstream { asked: Empty(20), ..WELL }, WELL]);
    driver.step(&Step::Speak { long: true, voice: None });
    pass(&mut driver, 20);
    let ends = told(&driver, "tts.speaking_end");
    assert_eq!(ends.len(), 1);
    assert_eq!(ends[0]["cancelled"], false);
    assert!(questions(&driver).len() >= 3, "each part is asked on a lane that lives");
    driver.end();
}

#[test]
fn a_dropped_frame_of_odd_length_does_not_turn_the_rest_into_noise() {
    let mut driver = driver(&[WELL]);
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 300_001 });
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 100_001 });
    assert_eq!(driver.bridge.account().1, 50_001);
    pass(&mut driver, 20);
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    driver.step(&Step::Talk { sound: Sound::Hiss, ms: 1_000, frame_bytes: 641 });
    pass(&mut driver, 1);
    assert_eq!(driver.checks.pieces.len(), 1);
    driver.end();
}

#[test]
fn single_bytes_are_metered_too() {
    let mut driver = driver(&[WELL]);
    driver.step(&Step::Burst { sound: Sound::Hiss, bytes: 320_000 });
    for _ in 0..100 {
        driver.frame(&[0]);
    }
    assert_eq!(driver.bridge.account().1, 50);
    driver.end();
}

#[test]
fn an_interim_decode_is_not_due_when_the_session_is_over() {
    let mut driver =
        Driver::new(&profile_source(true, true), vec![Upstream { close: Never, ..WELL }], "model=m");
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 800, frame_bytes: 640 });
    driver.end();
}

#[test]
fn a_new_output_rate_counts_from_the_next_text_on() {
    let mut driver = driver(&[WELL]);
    driver.step(&Step::Speak { long: false, voice: None });
    driver.pass(driver.now + Duration::from_millis(150));
    assert!(!told(&driver, "tts.speaking_start").is_empty() && told(&driver, "tts.speaking_end").is_empty());
    driver.say(r#"{"type":"session.configure","output_sample_rate":8000}"#);
    pass(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * 480);
    assert_eq!(told(&driver, "tts.speaking_end")[0]["audio_ms"], 60);
    driver.checks.formats = true;
    driver.step(&Step::Speak { long: false, voice: None });
    pass(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * (480 + 160));
    driver.end();
}

#[test]
fn nothing_of_an_attempt_that_was_not_heard_is_heard_later() {
    let mut driver = driver(&[Upstream { asked: Never, ..WELL }, WELL]);
    driver.checks.formats = true;
    driver.say(r#"{"type":"session.configure","output_sample_rate":8000}"#);
    driver.step(&Step::Speak { long: false, voice: None });
    pass(&mut driver, 1);
    let delta = r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8AAAA/"}"#;
    driver.step(&Step::Says(0, delta.to_owned()));
    driver.step(&Step::Loses(0));
    pass(&mut driver, 5);
    assert_eq!(audio_bytes(&driver), 2 * 3 * 160);
    driver.end();
}

#[test]
fn starting_and_cancelling_takes_few_workers_and_harms_nothing() {
    // Workers that take their time: only the checks know how many lanes are too many.
    let mut driver = driver(&[Upstream { init: Well(20_000), close: Well(20_000), ..WELL }]);
    for _ in 0..50 {
        driver.step(&Step::Speak { long: false, voice: None });
        driver.pass(driver.now + Duration::from_millis(50));
        driver.say(r#"{"type":"tts.cancel"}"#);
    }
    driver.step(&Step::Speak { long: false, voice: None });
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    driver.step(&Step::Talk { sound: Sound::Hiss, ms: 1_000, frame_bytes: 640 });
    pass(&mut driver, 100);
    assert_eq!(told(&driver, "tts.speaking_end").len(), 1, "the last text is spoken");
    assert_eq!(told(&driver, "transcript.final").len(), 1, "the words are understood");
    driver.end();
}

#[test]
fn no_question_is_longer_than_the_upstream_takes() {
    let mut driver = driver(&[WELL]);
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 70_000, frame_bytes: 3_200 });
    assert_eq!(driver.checks.pieces.len(), 2);
    driver.end();
}

#[test]
fn committing_nothing_is_counted_and_costs_nothing() {
    let mut driver = driver(&[WELL]);
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 1_000, frame_bytes: 640 });
    for _ in 0..1_000 {
        driver.say(r#"{"type":"input_audio_buffer.commit"}"#);
    }
    driver.step(&Step::Talk { sound: Sound::Noise, ms: 500, frame_bytes: 640 });
    driver.step(&Step::Talk { sound: Sound::Hiss, ms: 1_000, frame_bytes: 640 });
    driver.say(r#"{"type":"session.close"}"#);
    pass(&mut driver, 10);
    let finals: Vec<Value> =
        told(&driver, "transcript.final").iter().map(|told| told["segment_id"].clone()).collect();
    assert_eq!(finals, [0, 1_000]);
    assert_eq!(told(&driver, "session.closed")[0]["segments_transcribed"], 1_001);
    driver.end();
}

#[test]
fn what_waits_for_the_upstream_is_bounded_and_the_rest_reported() {
    let profile = profile_source(false, true).replace("backlog_max_ms = 120000", "backlog_max_ms = 10000");
    let mut driver = Driver::new(&profile, vec![Upstream { up: Never, ..WELL }], "model=m");
    for _ in 0..40 {
        driver.step(&Step::Talk { sound: Sound::Noise, ms: 1_500, frame_bytes: 3_200 });
        driver.step(&Step::Talk { sound: Sound::Hiss, ms: 500, frame_bytes: 3_200 });
    }
    let dropped = told(&driver, "session.frames_dropped");
    let dropped_ms: u64 = dropped.iter().map(|told| told["dropped_ms"].as_u64().unwrap()).sum();
    let recorded_ms = driver.bridge.account().0.recorded / 16;
    assert!(recorded_ms > 60_000, "{recorded_ms}");
    let waiting_ms = recorded_ms - dropped_ms;
    assert!((7_000..=10_000 + dropped.len() as u64).contains(&waiting_ms), "{waiting_ms} ms wait");
    driver.end();
}

#[test]
fn a_conversation_that_ends_with_an_empty_answer_is_lost_like_any_other() {
    let dies = Upstream { asked: Empty(20), units: vec![Say::Listen], ..WELL };
    let lives = Upstream { units: vec![Say::Listen], ..WELL };
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![dies, lives],
        steps: Vec::new(),
    };
    let mut driver = Driver::at_start_of(&script);
    driver.step(&Step::Talk { sound: Sound::Speech(0), ms: 5_000, frame_bytes: 640 });
    // Its transport stays; three seconds later it is given up.
    pass(&mut driver, 5);
    assert_eq!(told(&driver, "error").len(), 1);
    let streamed = driver.bridge.streamed().unwrap();
    assert!(streamed.appended == 5 * 16_000, "the next one hears all of it: {streamed:?}");
    driver.end();
}

/// The fence is down again, but what comes bears the name of the interrupted answer, or of a unit from before.
#[test]
fn what_comes_much_too_late_is_not_heard() {
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![Upstream {
            units: vec![Say::Listen, Say::Speak, Say::Speak, Say::Listen, Say::Listen, Say::Listen],
            ..WELL
        }],
        steps: Vec::new(),
    };
    let mut driver = Driver::at_start_of(&script);
    let hiss =
        |driver: &mut Driver, ms| driver.step(&Step::Talk { sound: Sound::Hiss, ms, frame_bytes: 640 });
    hiss(&mut driver, 1_500);
    assert_eq!(told(&driver, "tts.speaking_start").len(), 1);
    driver.say(r#"{"type":"tts.cancel"}"#);
    hiss(&mut driver, 1_700);
    let heard = audio_bytes(&driver);
    for id in [r#""response_id":"l0_t0""#, r#""input_id":"2""#] {
        for what in [r#""kind":"audio","audio":"AAAAPwAAAD8=""#, r#""kind":"text","text":"late""#] {
            let line = format!(r#"{{"type":"response.output.delta",{id},{what}}}"#);
            driver.step(&Step::Says(0, line));
        }
    }
    assert_eq!((audio_bytes(&driver), told(&driver, "tts.speaking_start").len()), (heard, 1));
    let fresh =
        r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8=","response_id":"other"}"#;
    driver.checks.formats = true;
    driver.step(&Step::Says(0, fresh.to_owned()));
    // So little of a turn is held, for more may come.
    hiss(&mut driver, 700);
    assert_eq!(told(&driver, "tts.speaking_start").len(), 2, "another answer is heard");
    driver.end();
}

/// A talk with an upstream whose first turn is over at once, and still to be heard.
fn turn_still_heard() -> Driver {
    let units = vec![Say::Listen, Say::SpeakLast, Say::Listen, Say::Listen, Say::Listen, Say::Listen];
    let script = Script {
        profile: "conversation",
        interim: false,
        noise_is_speech: false,
        upstreams: vec![Upstream { units, ..WELL }],
        steps: Vec::new(),
    };
    let mut driver = Driver::at_start_of(&script);
    driver.checks.formats = true;
    driver.step(&Step::Talk { sound: Sound::Hiss, ms: 1_200, frame_bytes: 640 });
    assert_eq!((told(&driver, "tts.speaking_start").len(), told(&driver, "tts.speaking_end").len()), (1, 0));
    driver
}

/// Audio of the turn that is over, from a back-end that says it on a thread of its own.
fn late_audio(driver: &mut Driver) {
    let line =
        r#"{"type":"response.output.delta","kind":"audio","audio":"AAAAPwAAAD8=","response_id":"l0_t0"}"#;
    driver.step(&Step::Says(0, line.to_owned()));
}

#[test]
fn audio_that_comes_behind_the_end_of_its_turn_belongs_to_it() {
    let mut driver = turn_still_heard();
    late_audio(&mut driver);
    pass(&mut driver, 2);
    assert_eq!(audio_bytes(&driver), 2 * (14_400 + 2), "the turn, and the two late samples");
    assert_eq!(told(&driver, "tts.speaking_end").len(), 1);
    late_audio(&mut driver);
    assert_eq!(told(&driver, "tts.speaking_start").len(), 1, "what is later than that is no turn of its own");
    driver.end();
}

#[test]
fn nor_is_it_heard_when_its_turn_was_cancelled() {
    let mut driver = turn_still_heard();
    driver.say(r#"{"type":"tts.cancel"}"#);
    let heard = audio_bytes(&driver);
    late_audio(&mut driver);
    pass(&mut driver, 2);
    assert_eq!((audio_bytes(&driver), told(&driver, "tts.speaking_start").len()), (heard, 1));
    driver.end();
}

/// The questions that come of a clip at some rate, cut into frames of so many bytes each.
pub(super) fn asked_of(rate_hz: u32, channels: u16, clip_ms: usize, cuts: &[usize]) -> Vec<String> {
    let groups = clip_ms * rate_hz as usize / 1_000;
    // Slower than it was spoken where the rate is higher; the detector takes all that is loud for speech.
    let speech = recordings().iter().take(groups * 4 / 5).copied().chain(std::iter::repeat(0)).take(groups);
    let clip: Vec<i16> = speech.flat_map(|sample| std::iter::repeat_n(sample, channels.into())).collect();
    let audio = bytes(&clip);
    let query = format!("model=m&sample_rate={rate_hz}&channels={channels}");
    let mut driver = Driver::new(&profile_source(false, true), vec![WELL], &query);
    driver.checks.formats = true;
    let mut rest = audio.as_slice();
    let mut cuts = cuts.iter().cycle();
    while !rest.is_empty() {
        let cut = cuts.next().map_or(1, |cut| (*cut).clamp(1, rest.len()));
        let (frame, after) = rest.split_at(cut);
        driver.frame(frame);
        rest = after;
    }
    pass(&mut driver, 30);
    let asked = questions(&driver).into_iter().map(str::to_owned).collect();
    driver.end();
    asked
}

/// The audio in a question, and the question without it.
pub(super) fn audio_in(asked: &str) -> (Vec<f32>, String) {
    let longest = asked.split('"').max_by_key(|part| part.len()).unwrap();
    let mut audio = Vec::new();
    pcm::pull_base64_f32(longest, &mut audio).unwrap();
    (audio, asked.replace(longest, ""))
}
