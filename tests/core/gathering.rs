//! How long what a client streams may lie unread: never longer than until something is decided by it, or may be asked for.

use std::time::Duration;

use serde_json::json;

use crate::pair::{Pair, PairConfig, recording, zeros};

const FRAME_MS: u64 = 20;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn pair(profile: &'static str) -> Pair {
    Pair::new(PairConfig { profile, ..PairConfig::default() })
}

fn stream(pair: &mut Pair, samples: &[i16]) {
    pair.stream(samples, FRAME_MS);
}

#[test]
fn while_nobody_speaks_it_is_the_next_start_that_is_waited_for() {
    let mut pair = pair("speech");
    stream(&mut pair, &zeros(1000));
    let lull = pair.lull().unwrap();
    assert_eq!((lull.came, lull.frame, lull.within), (ms(1000), ms(20), ms(100)));
    // 250 ms of speech are 16 hops; up to one of them is there already.
    assert!((ms(240)..=ms(256)).contains(&lull.undecided), "{:?}", lull.undecided);
    assert!(!lull.prompt);
}

#[test]
fn nothing_is_found_sooner_than_was_foretold() {
    let mut pair = pair("speech");
    stream(&mut pair, &zeros(1000));
    let (mut came, mut next, mut edges) = (ms(1000), ms(0), 0);
    for frame in recording("jfk_16k.wav").chunks(16 * FRAME_MS as usize) {
        let before = pair.log.len();
        pair.client_binary(&frame.iter().flat_map(|sample| sample.to_le_bytes()).collect::<Vec<_>>());
        came += ms(FRAME_MS);
        let found = pair.log[before..].iter().filter(|(_, seen)| seen.name().starts_with("vad.")).count();
        assert!(found == 0 || came >= next, "found at {came:?}, foretold for {next:?}");
        edges += found;
        pair.advance(ms(FRAME_MS));
        next = pair.lull().map_or(ms(0), |lull| lull.came + lull.undecided);
    }
    assert!(edges >= 3, "{edges}");
}

#[test]
fn commands_are_read_at_once_while_a_text_is_spoken_and_after_words_were_told() {
    let mut pair = pair("speech");
    stream(&mut pair, &zeros(500));
    pair.client(&json!({"type": "tts.speak", "text": "Good morning.", "request_id": "one"}));
    assert_eq!(pair.lull(), None, "it is being made");
    pair.next_event("tts.speaking_start");
    assert_eq!(pair.lull(), None, "it is heard");
    pair.next_event("tts.speaking_end");
    stream(&mut pair, &zeros(2500));
    assert_eq!(pair.lull(), None, "another may follow");
    stream(&mut pair, &zeros(1000));
    assert!(pair.lull().is_some());

    stream(&mut pair, &recording("goforward_16k.wav"));
    let told = |pair: &Pair| !pair.events("transcript.final").is_empty();
    for _ in 0..500 {
        if told(&pair) {
            break;
        }
        stream(&mut pair, &zeros(FRAME_MS));
    }
    assert!(told(&pair));
    stream(&mut pair, &zeros(2500));
    assert_eq!(pair.lull(), None, "words were told");
    stream(&mut pair, &zeros(1000));
    assert!(pair.lull().is_some(), "and nothing came of it");
}

#[test]
fn in_a_conversation_the_model_does_not_wait_for_others() {
    let mut pair = pair("conversation");
    stream(&mut pair, &zeros(2000));
    for at in (0..1000).step_by(FRAME_MS as usize) {
        let lull = pair.lull().unwrap();
        let missing = ms(1000 - at);
        assert!(lull.undecided <= missing, "{:?} of {missing:?}", lull.undecided);
        assert_eq!(lull.prompt, lull.undecided == missing, "{at} ms into a unit");
        assert_eq!(lull.within, ms(200));
        stream(&mut pair, &zeros(FRAME_MS));
    }
}

#[test]
fn in_a_conversation_who_hears_something_may_stop_it_soon() {
    let mut pair = pair("conversation");
    stream(&mut pair, &recording("goforward_16k.wav"));
    for _ in 0..400 {
        if !pair.events("tts.speaking_start").is_empty() {
            break;
        }
        assert_eq!(pair.lull().unwrap().within, ms(200));
        stream(&mut pair, &zeros(50));
    }
    assert!(pair.events("tts.speaking_end").is_empty() && pair.events("tts.speaking_start").len() == 1);
    assert_eq!(pair.lull().unwrap().within, ms(100));
}
