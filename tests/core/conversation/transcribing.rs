//! The user's own words in a conversation: a lane beside it hears them, where the profile wants that.

use super::flavour::Flavour;
use serde_json::{Value, json};

use super::{
    mic::{Mic, ask, spoken, turns_heard},
    ms,
    pair::{Pair, PairConfig},
    troubled::{ends_well, rolled_over, whole},
};

/// A conversation that transcribes its user.
fn talk(backend: Flavour, workers: usize, latency_ms: u64) -> (Pair, Mic) {
    let mut config = PairConfig { profile: "transcribed", latency: ms(latency_ms), ..PairConfig::default() };
    let conversation = include_str!("../../../mappings/profile/conversation.toml");
    let profile = conversation
        .replace("name = \"conversation\"", "name = \"transcribed\"")
        .replace("extends = \"speech\"", "extends = \"conversation\"")
        .replace("transcribe_user = false", "transcribe_user = true");
    config.library.add("transcribed.toml", &profile).unwrap();
    backend.serves(&mut config);
    config.simulator.workers = workers;
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Pair::new(config), Mic::of_ms(20))
}

fn finals(pair: &Pair) -> Vec<&Value> {
    pair.events("transcript.final")
}

fn by<'p>(told: &[&'p Value], speaker: &str) -> Vec<&'p str> {
    let of = told.iter().filter(|told| told["speaker"] == speaker);
    of.map(|told| told["text"].as_str().unwrap()).collect()
}

#[test]
fn both_are_transcribed_and_named() {
    for (backend, latency_ms) in
        Flavour::WITH_CHAT.into_iter().flat_map(|backend| [(backend, 0), (backend, 120)])
    {
        let (mut pair, mut mic) = talk(backend, 2, latency_ms);
        mic.silence(&mut pair, 1500);
        for turn in 1..=3 {
            ask(&mut pair, &mut mic, 2);
            assert!(mic.until(&mut pair, |pair| turns_heard(pair) == turn, 20_000), "{:?}", pair.names());
            whole(&spoken(&pair)[turn - 1], turn as u64, 5);
        }
        let told = finals(&pair);
        assert_eq!(told.len(), 6, "{told:#?}");
        for (place, told) in told.iter().enumerate() {
            let (speaker, source, words) = if place % 2 == 0 {
                ("user", "transcription", "simulated transcript")
            } else {
                ("assistant", "model", "I heard")
            };
            assert_eq!((&told["speaker"], &told["source"]), (&json!(speaker), &json!(source)), "{place}");
            assert!(told["text"].as_str().unwrap().starts_with(words), "{told}");
            assert_eq!(told["segment_id"], place);
        }
        for told in pair.events("transcript.partial") {
            let source = if told["speaker"] == "user" { "transcription" } else { "model" };
            assert_eq!(told["source"], source);
        }
        assert!(pair.events("error").is_empty());
        ends_well(pair);
    }
}

#[test]
fn only_the_model_is_transcribed_unless_the_profile_says_otherwise() {
    let (mut pair, mut mic) =
        (Pair::new(PairConfig { profile: "conversation", ..PairConfig::default() }), Mic::of_ms(20));
    mic.silence(&mut pair, 3000);
    ask(&mut pair, &mut mic, 2);
    assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 1, 20_000));
    assert_eq!((by(&finals(&pair), "user").len(), by(&finals(&pair), "assistant").len()), (0, 1));
    assert_eq!(pair.openings.len(), 1);
    ends_well(pair);
}

#[test]
fn what_interrupts_is_transcribed_too() {
    for backend in Flavour::WITH_CHAT {
        let (mut pair, mut mic) = talk(backend, 2, 20);
        mic.silence(&mut pair, 1500);
        ask(&mut pair, &mut mic, 2);
        assert!(mic.until(&mut pair, |pair| !pair.events("tts.speaking_start").is_empty(), 20_000));
        mic.silence(&mut pair, 900);
        ask(&mut pair, &mut mic, 0);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000), "{:?}", pair.names());
        assert_eq!(by(&finals(&pair), "user").len(), 2);
        assert_eq!(by(&finals(&pair), "assistant").len(), 2);
        ends_well(pair);
    }
}

#[test]
fn without_a_worker_for_the_words_the_talk_goes_on() {
    for backend in Flavour::WITH_CHAT {
        let (mut pair, mut mic) = talk(backend, 1, 10);
        mic.silence(&mut pair, 1500);
        for turn in 1..=4 {
            ask(&mut pair, &mut mic, 2);
            assert!(mic.until(&mut pair, |pair| turns_heard(pair) == turn, 20_000), "{:?}", pair.names());
            whole(&spoken(&pair)[turn - 1], turn as u64, 5);
        }
        let names = pair.names();
        let count = |name: &str| names.iter().filter(|seen| *seen == name).count();
        assert_eq!(count("vad.speech_start"), count("vad.speech_end"), "{names:?}");
        assert_eq!(rolled_over(&pair), []);
        // Nor do those who wait stand in the way of a text.
        pair.client(&json!({"type": "tts.speak", "text": "Excuse me.", "request_id": "text"}));
        let said =
            |pair: &Pair| spoken(pair).last().is_some_and(|last| !last.is_turn() && last.ended.is_some());
        assert!(mic.until(&mut pair, said, 30_000), "{:?}", pair.names());
        ask(&mut pair, &mut mic, 2);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 5, 40_000), "{:?}", pair.names());
        assert!(by(&finals(&pair), "user").iter().all(|text| text.starts_with("simulated transcript")));
        ends_well(pair);
    }
}
