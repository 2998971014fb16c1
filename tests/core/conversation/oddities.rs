//! What the real back-ends say besides: thoughts, control tokens, the same end twice, the same text twice; steps that are
//! too slow, and half a minute of speech at once.

use serde_json::json;
use voxbridge::session::Observation;

use super::{pair::Seen, support::*};

/// The words of the model's turns.
fn finals(talk: &Talk) -> Vec<&str> {
    talk.pair.events("transcript.final").iter().map(|event| event["text"].as_str().unwrap()).collect()
}

#[test]
fn thoughts_and_control_tokens_are_not_seen() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &["think"]));
        talk.ask();
        talk.ask();
        assert!(finals(&talk).iter().all(|text| text.starts_with("I heard ") && text.ends_with(" speech.")));
        for event in [talk.pair.events("transcript.partial"), talk.pair.events("tts.speaking_start")].concat()
        {
            let text = event["text"].as_str().unwrap();
            assert!(!text.contains(['<', '>', '|']) && !text.contains("spoke to me"), "{backend:?}: {text}");
        }
        let turns = talk.turns();
        assert!(turns.len() == 2 && turns.iter().all(|(_, samples)| samples % 24_000 == 14_400), "{turns:?}");
        talk.goes_on();
    }
}

#[test]
fn what_comes_twice_counts_once() {
    for backend in BACKENDS {
        for fault in ["double-terminal", "repeats-text"] {
            let (mut talk, mut plain) =
                (Talk::new(config(backend, &[fault])), Talk::new(config(backend, &[])));
            for talk in [&mut talk, &mut plain] {
                for _ in 0..5 {
                    talk.ask();
                    talk.quiet(1_500);
                }
                talk.heard_all(5);
            }
            assert_eq!(finals(&talk), finals(&plain), "{backend:?} {fault}");
            assert!(
                !talk.pair.observed.contains(&Observation::Underrun),
                "{backend:?} {fault}: no gap in its speech"
            );
            let seconds = talk.pair.now().as_secs() as usize;
            assert!(
                (seconds - 2..=seconds).contains(&talk.heard_units),
                "{backend:?} {fault}: a unit a second"
            );
            talk.goes_on();
        }
    }
}

#[test]
fn steps_that_are_too_slow_cost_the_oldest_audio_and_are_told() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &["slow-steps=1.4,times=30"]));
        for _ in 0..4 {
            talk.quiet(3_000);
            talk.question();
            talk.quiet(5_000);
        }
        assert!(talk.dropped() >= 16_000, "{backend:?}");
        let slow =
            talk.pair.observed.iter().filter(|observed| matches!(observed, Observation::SlowStep { .. }));
        assert_eq!(slow.count(), 1, "{backend:?}: one of thirty is told");
        talk.quiet(10_000);
        let before = talk.dropped();
        talk.goes_on_from(|talk| assert_eq!(talk.dropped(), before));
    }
}

/// Seconds of audio the client has, and those it can have played since it had the first.
fn ahead(talk: &Talk) -> Vec<(f64, f64)> {
    let (mut first, mut got, mut ahead) = (None, 0.0, Vec::new());
    for (at, seen) in &talk.pair.log {
        if let Seen::Binary(bytes) = seen {
            let at = at.as_secs_f64();
            got += bytes.len() as f64 / 48_000.0;
            ahead.push((got, at - *first.get_or_insert(at)));
        }
    }
    ahead
}

#[test]
fn half_a_minute_at_once_is_heard_as_it_is_spoken() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &["burst=34"]));
        talk.ask();
        assert_eq!(talk.turns(), [(1, 34 * 24_000 + 14_400)], "{backend:?}");
        let ahead = ahead(&talk);
        assert!(ahead.iter().all(|(got, played)| got - played < 0.41), "never far ahead of the clock");
        assert!(ahead.iter().skip(1).all(|(got, played)| got - played > 0.0), "and never behind");
        assert!(!talk.pair.observed.contains(&Observation::Underrun));
        talk.goes_on();
    }
}

#[test]
fn nothing_of_half_a_minute_is_heard_after_an_interruption() {
    for backend in BACKENDS {
        for by_voice in [false, true] {
            for after_ms in (0..6_000).step_by(700) {
                let mut talk = Talk::new(config(backend, &["burst=34"]));
                talk.question();
                while talk.pair.events("tts.speaking_start").is_empty() {
                    talk.quiet(100);
                }
                talk.quiet(after_ms);
                if by_voice {
                    talk.question();
                } else {
                    talk.pair.client(&json!({"type": "tts.cancel"}));
                }
                let end = talk.pair.events("tts.speaking_end")[0].clone();
                assert_eq!(end["cancelled"], true, "{backend:?} {by_voice} {after_ms}");
                let cancelled = talk.pair.log.iter().position(|(_, seen)| seen.name() == "tts.speaking_end");
                let heard = talk.pair.log[cancelled.unwrap()..].iter();
                assert!(heard.clone().all(|(_, seen)| !matches!(seen, Seen::Binary(_))), "{backend:?}");
                talk.quiet(3_000);
                if !by_voice {
                    talk.question();
                }
                let before = talk.ended;
                talk.hears_answer(before);
                let turns = talk.turns();
                assert_eq!(turns[1..], [(2, 34 * 24_000 + 14_400)], "{backend:?} {by_voice} {after_ms}");
                let seconds = turns[0].1 as f64 / 24_000.0;
                assert!(seconds < after_ms as f64 / 1_000.0 + 3.5, "{backend:?} {after_ms}: {seconds}");
                talk.proves();
                talk.ends_well();
            }
        }
    }
}
