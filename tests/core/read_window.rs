//! Read window: how long client audio may stay unread. Never longer than until the audio can change a
//! decision or a caller asks for its result.

use super::*;

const FRAME_MS: u64 = 20;

fn harness(profile: &'static str) -> Harness {
    Harness::new(HarnessConfig { profile, ..HarnessConfig::default() })
}

fn stream(harness: &mut Harness, samples: &[i16]) {
    harness.stream(samples, FRAME_MS);
}

#[test]
fn read_window_in_silence_reaches_earliest_speech_start() {
    let mut harness = harness("speech");
    stream(&mut harness, &zeros(1000));
    let window = harness.read_window().unwrap();
    assert_eq!((window.received, window.last_frame_length, window.max_delay), (ms(1000), ms(20), ms(100)));
    // 250 ms of speech are 16 hops. Up to one hop is already buffered.
    assert!((ms(240)..=ms(256)).contains(&window.until_decision), "{:?}", window.until_decision);
}

#[test]
fn detection_is_never_earlier_than_predicted() {
    let mut harness = harness("speech");
    stream(&mut harness, &zeros(1000));
    let (mut came, mut next, mut edges) = (ms(1000), ms(0), 0);
    for frame in recording("jfk_16k.wav").chunks(16 * FRAME_MS as usize) {
        let before = harness.log.len();
        harness.send_binary(&frame.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<_>>());
        came += ms(FRAME_MS);
        let detected =
            harness.log[before..].iter().filter(|(_, frame)| frame.name().starts_with("vad.")).count();
        assert!(detected == 0 || came >= next, "detected at {came:?}, predicted for {next:?}");
        edges += detected;
        harness.advance(ms(FRAME_MS));
        next = harness.read_window().map_or(ms(0), |lull| lull.received + lull.until_decision);
    }
    assert!(edges >= 3, "{edges}");
}

#[test]
fn read_window_is_closed_during_playback_and_after_transcripts() {
    let mut harness = harness("speech");
    stream(&mut harness, &zeros(500));
    harness.send_json(&json!({"type": "tts.speak", "text": "Good morning.", "request_id": "one"}));
    assert_eq!(harness.read_window(), None, "the text is being synthesised");
    harness.next_event("tts.speaking_start");
    assert_eq!(harness.read_window(), None, "the text is being played");
    harness.next_event("tts.speaking_end");
    stream(&mut harness, &zeros(2500));
    assert_eq!(harness.read_window(), None, "another text may follow");
    stream(&mut harness, &zeros(1000));
    assert!(harness.read_window().is_some());

    stream(&mut harness, &recording("goforward_16k.wav"));
    let has_transcript = |harness: &Harness| !harness.events("transcript.final").is_empty();
    for _ in 0..500 {
        if has_transcript(&harness) {
            break;
        }
        stream(&mut harness, &zeros(FRAME_MS));
    }
    assert!(has_transcript(&harness));
    stream(&mut harness, &zeros(2500));
    assert_eq!(harness.read_window(), None, "a transcript was sent");
    stream(&mut harness, &zeros(1000));
    assert!(harness.read_window().is_some(), "no transcript follows");
}

#[test]
fn read_window_ends_with_unit_in_conversation() {
    let mut harness = harness("conversation");
    stream(&mut harness, &zeros(2000));
    for at in (0..1000).step_by(FRAME_MS as usize) {
        let window = harness.read_window().unwrap();
        let missing = ms(1000 - at);
        assert!(window.until_decision <= missing, "{:?} of {missing:?}", window.until_decision);
        assert_eq!(window.max_delay, ms(200));
        stream(&mut harness, &zeros(FRAME_MS));
    }
}

#[test]
fn read_window_shrinks_during_playback_in_conversation() {
    let mut harness = harness("conversation");
    stream(&mut harness, &recording("goforward_16k.wav"));
    for _ in 0..400 {
        if !harness.events("tts.speaking_start").is_empty() {
            break;
        }
        assert_eq!(harness.read_window().unwrap().max_delay, ms(200));
        stream(&mut harness, &zeros(50));
    }
    assert!(harness.events("tts.speaking_end").is_empty() && harness.events("tts.speaking_start").len() == 1);
    assert_eq!(harness.read_window().unwrap().max_delay, ms(100));
}
