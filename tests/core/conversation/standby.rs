//! The next upstream session kept in readiness on a second worker: what becomes of it when there is none, when it dies,
//! when it is overtaken by what is said.

use serde_json::json;
use voxbridge::event::RolloverReason::{Context, Lost};

use super::{flavour::Flavour, pair::PairConfig, support::*};

/// The context is soon used up; two workers, or as many as there are.
fn standing_by(backend: Flavour, workers: usize, kv: u32) -> Talk {
    let mut config: PairConfig = with_init(config(backend, &[&format!("kv={kv},times=1")]), 2_000);
    config.library = with_rules(config.library, &[STANDBY]);
    config.simulator.workers = workers;
    Talk::new(config)
}

/// Until a second lane is there.
fn until_two(talk: &mut Talk) {
    while talk.pair.lanes().len() < 2 {
        talk.quiet(100);
    }
}

#[test]
fn without_a_second_worker_it_is_as_if_there_were_none() {
    for backend in BACKENDS {
        let mut talk = standing_by(backend, 1, 7_100);
        talk.ask();
        talk.quiet(10_000);
        assert_eq!(talk.rollovers(), [(Context, 2_020, false)], "{backend:?}");
        assert_eq!((talk.pair.openings.len(), talk.errors()), (2, Vec::new()));
        talk.never_left_waiting();
        talk.goes_on();
    }
}

#[test]
fn one_that_dies_is_not_missed() {
    for backend in BACKENDS {
        for after_ms in (0..4_500).step_by(300) {
            let mut talk = standing_by(backend, 2, 7_150);
            until_two(&mut talk);
            talk.quiet(after_ms);
            if let [_, standby] = talk.pair.lanes()[..] {
                talk.pair.break_lane(standby);
            }
            talk.quiet(10_000);
            assert_eq!(talk.rollovers().len(), 1, "{backend:?} {after_ms}");
            assert_eq!(
                (talk.rollovers()[0].0, talk.errors()),
                (Context, Vec::new()),
                "{backend:?} {after_ms}"
            );
            talk.goes_on();
        }
    }
}

#[test]
fn it_takes_over_from_one_that_dies() {
    for backend in BACKENDS {
        for after_ms in (0..4_500).step_by(300) {
            let mut talk = standing_by(backend, 2, 7_150);
            until_two(&mut talk);
            talk.quiet(after_ms);
            let oldest = talk.pair.lanes()[0];
            talk.pair.break_lane(oldest);
            talk.quiet(5_000);
            let (lost, gap, _) = *talk.rollovers().last().unwrap();
            let replaced = talk.rollovers().first().is_some_and(|(why, ..)| *why == Context);
            assert!(
                replaced || (lost == Lost && gap <= 2_000),
                "{backend:?} {after_ms}: {:?}",
                talk.rollovers()
            );
            talk.goes_on();
        }
    }
}

#[test]
fn both_die_at_once() {
    for backend in BACKENDS {
        for after_ms in (0..4_500).step_by(300) {
            let mut talk = standing_by(backend, 2, 7_150);
            until_two(&mut talk);
            talk.quiet(after_ms);
            talk.pair.break_lanes();
            talk.quiet(5_000);
            talk.goes_on();
        }
    }
}

#[test]
fn one_that_does_not_know_the_newest_is_renewed() {
    for backend in BACKENDS {
        let mut talk = standing_by(backend, 2, 7_180);
        talk.ask();
        until_two(&mut talk);
        // While the next one comes up, and while the one after comes up.
        talk.ask();
        talk.ask();
        talk.quiet(10_000);
        assert_eq!(talk.rollovers(), [(Context, 0, true)], "{backend:?}");
        let prompts: Vec<_> =
            talk.pair.openings.iter().map(|(_, opening)| opening.prompt.clone().unwrap()).collect();
        assert!((3..=5).contains(&prompts.len()), "{backend:?}: {prompts:?}");
        assert_eq!(prompts.last().unwrap().lines().count(), 3, "{backend:?}: {prompts:?}");
        talk.never_left_waiting();
        talk.heard_all(3);
        talk.goes_on();
    }
}

#[test]
fn a_text_takes_its_worker_before_that_of_the_talk() {
    for backend in Flavour::WITH_CHAT {
        let mut talk = standing_by(backend, 2, 7_150);
        until_two(&mut talk);
        talk.quiet(2_500);
        talk.pair.client(&json!({"type": "tts.speak", "text": "Hello there."}));
        // The model would hear silence instead of what is said meanwhile.
        talk.wait(secs(6));
        assert_eq!(talk.pair.events("tts.speaking_end").len(), 1, "{backend:?}: {:?}", talk.pair.names());
        assert!(talk.rollovers().iter().all(|(why, ..)| *why == Context), "{:?}", talk.rollovers());
        talk.forget_turns();
        talk.goes_on();
    }
}
