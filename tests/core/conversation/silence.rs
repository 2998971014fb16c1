//! When silence takes the place of the user's audio, and when nothing is sent at all.

use super::flavour::Flavour;

use super::support::*;

/// How often the upstreams were told something to hear.
fn units(talk: &Talk) -> usize {
    talk.heard_units
}

#[test]
fn who_sends_nothing_costs_nothing() {
    let mut talk = Talk::new(config(Flavour::Pytorch, &[]));
    talk.wait(secs(55));
    assert_eq!(units(&talk), 0);
    talk.ask();
    talk.wait(secs(20));
    let before = units(&talk);
    talk.wait(secs(30));
    assert_eq!(units(&talk), before, "nobody speaks and nobody is there to speak");
    talk.proves();
    talk.ends_well();
}

#[test]
fn who_speaks_and_switches_off_is_answered() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &[]));
        for turn in 1..=5 {
            talk.question();
            talk.wait(secs(12));
            assert_eq!(talk.ended, turn, "{backend:?}");
            assert_eq!(talk.pair.bridge().streamed().unwrap().waiting, 0, "the last part went out, padded");
            let before = units(&talk);
            talk.wait(secs(30));
            assert!(units(&talk) <= before + 2, "{backend:?}: {} units more", units(&talk) - before);
        }
        talk.heard_all(5);
        // Three units of each question, and silence until its answer was heard or the model was given up.
        assert!(units(&talk) <= 5 * 13, "{backend:?}: {}", units(&talk));
        talk.proves();
        talk.ends_well();
    }
}

#[test]
fn while_the_model_speaks_silence_goes_on() {
    for backend in BACKENDS {
        let mut config = config(backend, &[]);
        config.simulator.turn_units = 20;
        let mut talk = Talk::new(config);
        talk.question();
        talk.wait(secs(40));
        assert_eq!(talk.turns(), [(1, 19 * 24_000 + 14_400)], "{backend:?}");
        talk.proves();
        talk.ends_well();
    }
}

#[test]
fn a_question_before_there_is_a_model_is_answered_when_there_is_one() {
    for backend in BACKENDS {
        for init_ms in (500..16_000).step_by(1_500) {
            let mut talk = Talk::new(with_init(config(backend, &[]), init_ms));
            talk.question();
            talk.wait(ms(init_ms) + secs(14));
            assert_eq!(talk.ended, 1, "{backend:?}: ready after {init_ms} ms");
            talk.proves();
            talk.ends_well();
        }
    }
}

#[test]
fn a_question_between_two_sessions_is_answered_by_the_second() {
    for backend in BACKENDS {
        for init_ms in [2_000, 9_200, 15_800] {
            let mut talk = Talk::new(with_init(config(backend, &["kv=7200,times=1"]), init_ms));
            while talk.goodbyes.is_empty() {
                talk.quiet(500);
            }
            talk.question();
            talk.wait(ms(init_ms) + secs(14));
            assert_eq!(talk.ended, 1, "{backend:?}: ready after {init_ms} ms");
            talk.proves();
            talk.goes_on();
        }
    }
}
