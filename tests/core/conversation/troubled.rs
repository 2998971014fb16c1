//! Interruptions of a model that does not take them as it should, and of users who are not what they seem.

use std::time::Duration;

use serde_json::json;
use voxbridge::{event::RolloverReason, session::Observation};

use super::{
    flavour::Flavour,
    mic::{Mic, Spoken, ask, spoken, turns_heard, voices},
    ms,
    pair::{Pair, PairConfig},
    sanity,
};

pub(crate) const BACKENDS: [Flavour; 4] = Flavour::ALL;

/// A conversation whose gateway has these faults.
fn talk(backend: Flavour, faults: &[&str]) -> (Pair, Mic) {
    let mut config =
        PairConfig { profile: "conversation", latency: ms(10), ..PairConfig::with_faults(faults) };
    backend.serves(&mut config);
    config.simulator.turn_units = 5;
    config.simulator.force_listen_count = 1;
    (Pair::new(config), Mic::of_ms(20))
}

/// A question, and the beginning of its answer.
pub(crate) fn answered(pair: &mut Pair, mic: &mut Mic) {
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
pub(crate) fn whole(spoken: &Spoken, turn: u64, units: usize) {
    assert_eq!((spoken.turn(), spoken.cancelled()), (turn, false));
    assert_eq!(spoken.samples.len(), (units - 1) * 24_000 + 14_400);
}

pub(crate) fn rolled_over(pair: &Pair) -> Vec<RolloverReason> {
    let reason = |observed: &Observation| match observed {
        Observation::RolledOver { reason, .. } => Some(*reason),
        _ => None,
    };
    pair.observed.iter().filter_map(reason).collect()
}

pub(crate) fn ends_well(mut pair: Pair) {
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
        // Nobody asks again: the next session hears what the last one did not listen to.
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

/// A conversation whose detector takes every sound for speech.
fn stuck(backend: Flavour) -> (Pair, Mic) {
    let mut config = PairConfig { profile: "stuck", ..PairConfig::default() };
    backend.serves(&mut config);
    config.simulator.turn_units = 5;
    let speech = include_str!("../../../mappings/profile/speech.toml");
    let listen = &speech[speech.find("[listen]").unwrap()..speech.find("[hear]").unwrap()];
    let listen = listen.replace("threshold = 0.55, gate_dbfs = -65", "threshold = 0.0, gate_dbfs = -100");
    let profile = format!(
        "kind = \"profile\"\nname = \"stuck\"\ntitle = \"-\"\nextends = \"conversation\"\nmode = \"audio\"\n{listen}"
    );
    config.library.add("stuck.toml", &profile).unwrap();
    (Pair::new(config), Mic::of_ms(20))
}

/// Too soft for the model to hear, loud enough for a detector that takes it for speech, and too fitful for the room.
fn hiss(ms: usize) -> Vec<i16> {
    let level = |at: u32| if (at / 1_600).is_multiple_of(2) { 7 } else { 3 };
    (0..16 * ms as u32)
        .map(|at| ((at.wrapping_mul(2_654_435_761) >> 23) as i16 - 256) * level(at) / 8)
        .collect()
}

/// A detector that is stuck must not make a model that never replies (field notes §7.19).
#[test]
fn a_detector_that_is_stuck_interrupts_once_and_then_no_more() {
    for backend in BACKENDS {
        let (mut pair, mut mic) = stuck(backend);
        mic.record(&mut pair, &hiss(3000));
        for question in 1..=4 {
            let softly: Vec<i16> =
                voices()[2].samples[6560..].iter().take(14_000).map(|sample| sample / 4).collect();
            mic.record(&mut pair, &softly);
            mic.record(&mut pair, &hiss(16_000));
            // There the first turn is interrupted while its short beginning is held: nothing of it is heard.
            let unheard = usize::from(backend == Flavour::Documented);
            assert!(pair.observed.contains(&Observation::Interrupted), "{backend:?}");
            let all = spoken(&pair);
            assert_eq!(all.len() + unheard, question, "{backend:?}: {:?}", pair.names());
            assert!(question == 1 || !all.last().unwrap().cancelled(), "{backend:?}, question {question}");
        }
        pair.client(&json!({"type": "session.close"}));
        pair.advance(Duration::from_secs(30));
        assert_eq!(sanity::problems(&pair), [""; 0]);
    }
}

/// Who goes on speaking when the model begins is heard out all the same.
#[test]
fn who_was_first_to_speak_interrupts() {
    for (backend, head_start_ms) in
        BACKENDS.into_iter().flat_map(|backend| [100, 300, 500].map(|ms| (backend, ms)))
    {
        let (mut pair, mut mic) = talk(backend, &["slow-steps=0.8"]);
        mic.silence(&mut pair, 1200);
        ask(&mut pair, &mut mic, 2);
        // The unit to be answered is under way.
        let units = pair.units.len();
        let under_way = |pair: &Pair| {
            pair.units.len() > units + 1
                && pair.units.last().unwrap().1.samples.iter().all(|sample| *sample == 0.0)
        };
        assert!(mic.until(&mut pair, under_way, 5000));
        let spoke = &voices()[4].samples[16 * 200..16 * 6700];
        let mut hops = spoke.chunks(160);
        mic.silence(&mut pair, 1050 - head_start_ms);
        while !pair.observed.contains(&Observation::Interrupted) {
            mic.record(&mut pair, hops.next().expect("it is interrupted"));
        }
        let spoken = spoken(&pair);
        let Some(first) = spoken.first() else {
            // Its short beginning was held, and the user needed nobody to fall silent.
            assert_eq!((backend, pair.audio().len()), (Flavour::Documented, 0));
            continue;
        };
        assert!(first.cancelled());
        let took = first.ended.unwrap() - first.started;
        assert!(took <= ms(400), "{backend:?}, {head_start_ms} ms before: {took:?}");
    }
}
