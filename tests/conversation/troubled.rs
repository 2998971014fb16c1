//! Interruptions of a model that does not take them as it should, and of users who are not what they seem.

use std::time::Duration;

use serde_json::json;
use voxbridge::{event::RolloverReason, session::Observation, simulator::Backend};

use super::{
    mic::{Mic, Spoken, ask, spoken, turns_heard, voices},
    ms,
    pair::{Pair, PairConfig},
    sanity,
};

const BACKENDS: [Backend; 2] = [Backend::Pytorch, Backend::Cpp];

/// A conversation whose gateway has these faults.
fn talk(backend: Backend, faults: &[&str]) -> (Pair, Mic) {
    let mut config =
        PairConfig { profile: "conversation", latency: ms(10), ..PairConfig::with_faults(faults) };
    config.simulator.backend = backend;
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Pair::new(config), Mic::of_ms(20))
}

/// A question, and the beginning of its answer.
fn answered(pair: &mut Pair, mic: &mut Mic) {
    let started = pair.events("tts.speaking_start").len();
    mic.silence(pair, 1200);
    ask(pair, mic, 2);
    let begun = mic.until(pair, |pair| pair.events("tts.speaking_start").len() > started, 15_000);
    assert!(begun, "no answer: {:?}", pair.names());
}

/// Somebody speaks until the turn being heard has ended.
fn speak_into(pair: &mut Pair, mic: &mut Mic) {
    let ended = pair.events("tts.speaking_end").len();
    let voice = &voices()[2];
    mic.record(pair, &voice.samples[voice.onset..voice.onset + 14_000]);
    assert_eq!(pair.events("tts.speaking_end").len(), ended + 1, "{:?}", pair.names());
    assert!(spoken(pair).pop().unwrap().cancelled());
}

/// A model's turn that was heard to its end, from its first sample to its last.
fn whole(spoken: &Spoken, turn: u64, units: usize) {
    assert_eq!((spoken.turn(), spoken.cancelled()), (turn, false));
    assert_eq!(spoken.samples.len(), (units - 1) * 24_000 + 14_400);
}

fn rolled_over(pair: &Pair) -> Vec<RolloverReason> {
    let reason = |observed: &Observation| match observed {
        Observation::RolledOver { reason, .. } => Some(*reason),
        _ => None,
    };
    pair.observed.iter().filter_map(reason).collect()
}

fn ends_well(mut pair: Pair) {
    assert_eq!(sanity::problems(&pair), [""; 0]);
    pair.client(&json!({"type": "session.close"}));
    pair.advance(Duration::from_secs(60));
    assert!(pair.finished && pair.connections() == 0, "the session does not finish");
    assert_eq!(sanity::problems(&pair), [""; 0]);
    let streamed = pair.bridge().streamed().unwrap();
    let placed = streamed.appended + streamed.hushed + streamed.dropped + streamed.waiting;
    assert_eq!(pair.bridge().account().0.streamed, placed, "{streamed:?}");
}

#[test]
fn a_model_that_yields_late_is_not_heard_meanwhile() {
    for backend in BACKENDS {
        for times in 1..=3 {
            let (mut pair, mut mic) = talk(backend, &[&format!("ignores-force={times},times=1")]);
            answered(&mut pair, &mut mic);
            mic.silence(&mut pair, 700);
            speak_into(&mut pair, &mut mic);
            assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000), "{:?}", pair.names());
            let all = spoken(&pair);
            assert_eq!((all.len(), all[0].turn()), (2, 1));
            whole(&all[1], 2, 5);
            assert_eq!(rolled_over(&pair), []);
            ends_well(pair);
        }
    }
}

#[test]
fn a_model_that_never_yields_is_replaced_and_the_question_is_not_lost() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &["never-listens,times=1"]);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 1500);
        speak_into(&mut pair, &mut mic);
        let interrupted = spoken(&pair)[0].ended.unwrap();
        let replaced = |pair: &Pair| !rolled_over(pair).is_empty();
        assert!(mic.until(&mut pair, replaced, 20_000), "it is not replaced");
        assert_eq!(rolled_over(&pair), [RolloverReason::NotYielding]);
        assert!(pair.now() - interrupted < ms(5000 + 1000), "{:?} after {interrupted:?}", pair.now());
        mic.silence(&mut pair, 1000);
        assert_eq!(spoken(&pair).len(), 1, "it goes on talking");
        answered(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000));
        whole(&spoken(&pair)[1], 2, 5);
        ends_well(pair);
    }
}

#[test]
fn sound_that_comes_late_is_not_heard() {
    for backend in BACKENDS {
        for after_ms in (0..2000).step_by(130) {
            let (mut pair, mut mic) = talk(backend, &["late-audio"]);
            answered(&mut pair, &mut mic);
            mic.silence(&mut pair, after_ms);
            pair.client(&json!({"type": "tts.cancel"}));
            mic.silence(&mut pair, 3000);
            let all = spoken(&pair);
            assert_eq!(
                (all.len(), all[0].turn(), all[0].cancelled()),
                (1, 1, true),
                "{backend:?} {after_ms}"
            );
            answered(&mut pair, &mut mic);
            assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000));
            whole(&spoken(&pair)[1], 2, 5);
            ends_well(pair);
        }
    }
}

/// Nothing on the wire tells an old story that begins again from a new one; but it does not while the user speaks, and
/// it is a turn of its own then, which can be interrupted like any other.
#[test]
fn an_old_story_does_not_begin_again_while_the_user_speaks() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &["resumes,times=1"]);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 500);
        let spoke_from = pair.now();
        mic.record(&mut pair, &voices()[4].samples[16 * 200..16 * 6700]);
        let all = spoken(&pair);
        assert_eq!((all.len(), all[0].cancelled()), (1, true), "{:?}", pair.names());
        assert!(all[0].ended.unwrap() < spoke_from + ms(500));
        mic.until(&mut pair, |pair| pair.events("tts.speaking_start").len() == 2, 10_000);
        speak_into(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 3, 30_000), "{:?}", pair.names());
        whole(&spoken(&pair)[2], 2, 5);
        ends_well(pair);
    }
}

#[test]
fn what_came_in_a_burst_is_taken_back() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &["burst=34,times=1"]);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 2000);
        let heard_ms = spoken(&pair)[0].samples.len() / 24;
        assert!((2000..=2400).contains(&heard_ms), "{heard_ms} ms of 34 s have left after 2 s");
        speak_into(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000), "{:?}", pair.names());
        let all = spoken(&pair);
        assert_eq!((all.len(), all[0].turn()), (2, 1));
        whole(&all[1], 2, 5);
        ends_well(pair);
    }
}

#[test]
fn a_burst_that_is_all_said_is_taken_back_too() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &["burst=4,times=1"]);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 3000);
        assert!(pair.events("tts.speaking_end").is_empty());
        speak_into(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000), "{:?}", pair.names());
        whole(&spoken(&pair)[1], 2, 5);
        ends_well(pair);
    }
}

#[test]
fn ends_that_come_twice_end_once() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &["double-terminal", "repeats-text"]);
        answered(&mut pair, &mut mic);
        mic.silence(&mut pair, 800);
        speak_into(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000), "{:?}", pair.names());
        whole(&spoken(&pair)[1], 2, 5);
        let finals = pair.events("transcript.final");
        let texts: Vec<&str> = finals.iter().map(|told| told["text"].as_str().unwrap()).collect();
        assert_eq!(texts.len(), 2, "{texts:?}");
        assert!(texts[1].starts_with("I heard") && texts[1].ends_with("seconds of speech."), "{texts:?}");
        ends_well(pair);
    }
}

#[test]
fn a_muted_microphone_interrupts_nobody() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &[]);
        pair.client(&json!({"type": "session.configure", "microphone": "muted"}));
        answered(&mut pair, &mut mic);
        let (muted, units) = (pair.bridge().account().0.muted, pair.units.len());
        mic.record(&mut pair, &voices()[0].samples[..16 * 3000]);
        assert_eq!(pair.bridge().account().0.muted - muted, 48_000, "all of it is muted");
        let heard = &pair.units[units + 1..];
        assert!(heard.len() >= 2, "the model goes on hearing");
        assert!(heard.iter().all(|(_, unit)| unit.samples.iter().all(|sample| *sample == 0.0)));
        assert!(pair.events("tts.speaking_end").is_empty());
        pair.client(&json!({"type": "tts.cancel"}));
        assert!(spoken(&pair)[0].cancelled());
        answered(&mut pair, &mut mic);
        assert!(mic.until(&mut pair, |pair| turns_heard(pair) == 2, 20_000));
        whole(&spoken(&pair)[1], 2, 5);
        ends_well(pair);
    }
}

#[test]
fn a_microphone_may_be_muted_from_the_start_and_opened_in_a_turn() {
    let config = PairConfig {
        profile: "conversation",
        query: "model=any&microphone=muted".to_owned(),
        ..PairConfig::default()
    };
    let (mut pair, mut mic) = (Pair::new(config), Mic::of_ms(20));
    mic.silence(&mut pair, 3000);
    answered(&mut pair, &mut mic);
    mic.record(&mut pair, &voices()[2].samples[6400..6400 + 8000]);
    assert!(pair.events("tts.speaking_end").is_empty());
    pair.client(&json!({"type": "session.configure", "microphone": "open"}));
    speak_into(&mut pair, &mut mic);
    ends_well(pair);
}

/// A detector that is stuck must not make a model that never replies (field notes §7.19).
#[test]
fn who_never_stops_to_speak_is_answered_all_the_same() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = talk(backend, &[]);
        answered(&mut pair, &mut mic);
        let endless: Vec<i16> = endless_speech(16 * 11_000);
        mic.record(&mut pair, &endless);
        let first = &spoken(&pair)[0];
        assert!(first.cancelled());
        let interrupted = first.ended.unwrap();
        assert_eq!(spoken(&pair).len(), 1, "the user has the floor");
        let _ = interrupted;
        mic.record(&mut pair, &endless);
        println!("{:?} {:?}", pair.names(), pair.now());
    }
}

/// Speech without a pause, too soft for the model to hear.
fn endless_speech(samples: usize) -> Vec<i16> {
    let spoken = &voices()[4].samples[16 * 200..16 * 6700];
    spoken.iter().map(|sample| sample / 64).cycle().take(samples).collect()
}
