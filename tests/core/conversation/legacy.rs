//! What only servers of the legacy dialect do: errors that end nothing, a full context that goes on, voices that are not
//! written as the document says; and what they cannot do.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::json;
use voxbridge::{
    event::{
        RolloverReason::{Context, Lost},
        VoiceSample,
    },
    mapping::Kind,
    session::{Observation, VoiceBook},
};

use super::{
    flavour::Flavour,
    pair::{PairConfig, recording},
    support::*,
};

fn retries(talk: &Talk) -> usize {
    talk.pair.observed.iter().filter(|seen| matches!(seen, Observation::LaneRetry { .. })).count()
}

fn troubles(talk: &Talk) -> usize {
    talk.pair.observed.iter().filter(|seen| matches!(seen, Observation::LaneTrouble { .. })).count()
}

#[test]
fn seconds_that_fail_hold_nobody_up() {
    for flavour in Flavour::LEGACY {
        for times in 1..=2 {
            let mut talk = Talk::new(config(flavour, &[]));
            talk.ask();
            talk.pair.break_now(&format!("inference-fails,times={times}"));
            talk.ask();
            talk.ask();
            assert_eq!((troubles(&talk), talk.rollovers(), talk.errors()), (times, vec![], vec![]));
            let (asked, answered) = talk.questions[1];
            assert!(answered - asked < secs(8), "{flavour:?}: it waits {:?}", answered - asked);
            talk.heard_all(3);
            talk.goes_on();
        }
    }
}

#[test]
fn an_upstream_that_can_do_nothing_any_more_is_lost_and_the_question_is_not() {
    for flavour in Flavour::LEGACY {
        let mut talk = Talk::new(with_init(config(flavour, &[]), 1_000));
        talk.ask();
        talk.pair.break_now("inference-fails,times=3");
        talk.ask();
        assert_eq!((troubles(&talk), talk.errors()), (3, vec![("worker_crash".to_owned(), true)]));
        assert!(matches!(talk.rollovers()[..], [(Lost, _, false)]), "{:?}", talk.rollovers());
        assert_eq!(talk.goodbyes.len(), 1, "politely");
        talk.heard_all(2);
        talk.goes_on();
    }
}

#[test]
fn a_context_that_is_full_is_left_whether_it_ends_or_not() {
    for flavour in Flavour::LEGACY {
        for tokens in (300..420).step_by(17) {
            let fault = format!("context-full={tokens},times=1");
            let mut talk = Talk::new(with_init(config(flavour, &[&fault]), 1_000));
            for _ in 0..2 {
                talk.question();
                talk.quiet(9_000);
            }
            let [(Lost, gap, false)] = talk.rollovers()[..] else { panic!("{:?}", talk.rollovers()) };
            assert!(gap < 2_000, "{flavour:?} {tokens}: {gap} ms");
            assert_eq!(talk.goodbyes.len(), 1, "{flavour:?} {tokens}: politely");
            talk.turns();
            talk.goes_on();
        }
        let mut talk = Talk::new(with_init(config(flavour, &["kv=7100,times=1"]), 1_000));
        talk.ask();
        talk.quiet(10_000);
        assert!(matches!(talk.rollovers()[..], [(Context, ..)]), "before it is full: {:?}", talk.rollovers());
        talk.goes_on();
    }
}

#[test]
fn a_text_is_refused_and_interrupts_nobody() {
    for flavour in Flavour::LEGACY {
        let mut talk = Talk::new(config(flavour, &[]));
        talk.question();
        while talk.pair.events("tts.speaking_start").is_empty() {
            talk.quiet(100);
        }
        talk.pair.client(&json!({"type": "tts.speak", "text": "Hello there."}));
        let error = talk.pair.events("error")[0];
        assert_eq!((&error["code"], &error["recoverable"]), (&json!("tts_worker_error"), &json!(true)));
        let words = error["message"].as_str().unwrap();
        assert!(words.contains("no chat mode") && words.contains("cannot speak a given text"), "{words}");
        talk.hears_answer(0);
        assert_eq!(talk.heard_all(1), TURN_SAMPLES);
        assert_eq!(talk.pair.events("tts.speaking_end")[0]["cancelled"], false);
        assert_eq!(talk.pair.openings.len(), 1, "no lane is opened for it");
        talk.goes_on();
    }
}

/// A voice as the configuration holds it, and as a model is to hear it.
fn voice(samples: usize) -> (VoiceBook, Vec<f32>) {
    let heard: Vec<f32> = recording("goforward_16k.wav")[..samples]
        .iter()
        .map(|sample| f32::from(*sample) / 32_768.0)
        .collect();
    let bytes: Vec<u8> = heard.iter().flat_map(|sample| sample.to_le_bytes()).collect();
    let sample = VoiceSample(format!("\"{}\"", STANDARD.encode(bytes)).into());
    (VoiceBook::new(BTreeMap::from([("default".to_owned(), sample)]), Vec::new()), heard)
}

fn with_voice(flavour: Flavour, samples: usize, order: &str) -> (PairConfig, Vec<f32>) {
    let (voices, heard) = voice(samples);
    let mut config = PairConfig { voices, ..with_init(config(flavour, &[]), 500) };
    let files = config.library.clone();
    let is_it = |kind: Kind, name: &str| kind == Kind::Upstream && name == config.upstream;
    let (_, _, file, source) = files.files().find(|(kind, name, ..)| is_it(*kind, name)).unwrap();
    let source = source.replace(r#"["f32le", "wav"]"#, order);
    config.library.add(file, &source).unwrap();
    (config, heard)
}

#[test]
fn a_voice_is_written_as_the_server_takes_it_and_that_is_remembered() {
    for (flavour, order, attempts) in [
        (Flavour::Legacy, r#"["f32le", "wav"]"#, 0),
        (Flavour::Legacy, r#"["wav", "f32le"]"#, 1),
        (Flavour::Documented, r#"["f32le", "wav"]"#, 1),
        (Flavour::Documented, r#"["wav", "f32le"]"#, 0),
    ] {
        // Of an even number of samples and of an odd one: neither is ever taken for what it is not.
        for samples in [16_000, 16_001] {
            let (config, heard) = with_voice(flavour, samples, order);
            let mut talk = Talk::new(config);
            talk.ask();
            assert_eq!(retries(&talk), attempts, "{flavour:?} {order}");
            talk.pair.break_lanes();
            talk.quiet(3_000);
            talk.ask();
            assert_eq!((retries(&talk), talk.pair.openings.len()), (attempts, 2), "what worked is kept");
            for (_, opening) in &talk.pair.openings {
                let voice = opening.voice.as_ref().unwrap();
                assert_eq!(voice[..samples], heard);
                assert!(voice[samples..].iter().all(|sample| *sample == 0.0) && voice.len() <= samples + 1);
            }
            talk.goes_on();
        }
    }
}

#[test]
fn a_server_that_takes_no_voice_at_all_is_given_up_in_time() {
    for (flavour, order) in [(Flavour::Legacy, r#"["wav"]"#), (Flavour::Documented, r#"["f32le"]"#)] {
        let (config, _) = with_voice(flavour, 16_000, order);
        let mut talk = Talk::new(config);
        while !talk.pair.closed() {
            talk.pair.stream(&[1; 16_000], 100);
            assert!(talk.pair.now() < secs(150), "{:?}", talk.pair.names());
        }
        assert_eq!(talk.pair.events("session.closed")[0]["reason"], "upstream_lost");
        assert_eq!(talk.pair.openings, []);
    }
}
