//! What operators order of one session, and what a server that stops orders of all: nobody is cut off by it.

use serde_json::json;
use voxbridge::event::RolloverReason::Asked;

use super::{
    pair::{Pair, PairConfig, recording, zeros},
    sanity,
    support::*,
};

#[test]
fn a_rollover_that_is_ordered_waits_for_a_quiet_moment() {
    for backend in BACKENDS {
        for into_ms in [0, 700, 2_500] {
            let mut talk = Talk::new(with_init(config(backend, &[]), 2_000));
            talk.ask();
            talk.quiet(into_ms);
            talk.pair.operator_rolls_over();
            talk.ask();
            talk.quiet(10_000);
            assert_eq!(talk.rollovers(), [(Asked, 2_020, false)], "{backend:?} {into_ms}");
            assert_eq!(talk.told_rollovers(), [("operator_request".to_owned(), 2_020, false)]);
            talk.never_left_waiting();
            talk.heard_all(2);
            talk.proves();
            talk.ends_well();
        }
    }
}

#[test]
fn a_rollover_that_is_ordered_in_a_question_comes_after_its_answer() {
    for backend in BACKENDS {
        let mut talk = Talk::new(with_init(config(backend, &[]), 2_000));
        talk.ask();
        talk.say(&recording("goforward_16k.wav")[..16_000]);
        for _ in 0..3 {
            // Ordered over and over, it is one.
            talk.pair.operator_rolls_over();
        }
        assert_eq!(talk.rollovers(), [], "somebody speaks");
        talk.say(&recording("goforward_16k.wav")[16_000..]);
        talk.hears_answer(1);
        assert_eq!(talk.rollovers(), [], "the answer belongs to the question");
        talk.quiet(10_000);
        assert_eq!(talk.rollovers(), [(Asked, 2_020, false)], "{backend:?}");
        talk.proves();
        talk.ends_well();
    }
}

#[test]
fn who_asks_something_of_a_server_that_stops_is_answered_first() {
    for backend in BACKENDS {
        for operator in [false, true] {
            let mut talk = Talk::new(config(backend, &[]));
            talk.ask();
            talk.say(&recording("goforward_16k.wav")[..16_000]);
            if operator {
                talk.pair.operator_closes();
            } else {
                talk.pair.drain();
            }
            talk.say(&recording("goforward_16k.wav")[16_000..]);
            while !talk.pair.closed() {
                talk.pair.stream(&[1; 8_000], 100);
                assert!(talk.pair.now() < secs(60), "{backend:?}: {:?}", talk.pair.names());
            }
            let ends = talk.pair.events("tts.speaking_end");
            assert!(
                ends.len() == 2 && ends.iter().all(|end| end["cancelled"] == false),
                "{backend:?}: {ends:?}"
            );
            let (reason, close) =
                if operator { ("operator_request", "close 1001") } else { ("server_shutdown", "close 1012") };
            assert_eq!(talk.pair.events("session.closed")[0]["reason"], reason);
            assert_eq!(talk.pair.names().last().unwrap(), close);
            talk.pair.advance(secs(5));
            assert!(talk.pair.finished);
            assert_eq!(sanity::problems(&talk.pair), [""; 0]);
        }
    }
}

#[test]
fn who_never_stops_speaking_is_heard_for_two_thirds_of_the_time() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &[]));
        talk.quiet(1_000);
        talk.say(&speaker(3));
        talk.pair.drain();
        let from = talk.pair.now();
        let frames = speaker(30);
        let mut frames = frames.chunks(1_600);
        while !talk.pair.closed() {
            talk.pair.stream(frames.next().expect("it never ends"), 100);
        }
        let took = talk.pair.now() - from;
        assert!(took > secs(15) && took < secs(25), "{backend:?}: {took:?}");
        assert_eq!(talk.pair.names().last().unwrap(), "close 1012");
    }
}

/// An engine's session, in the middle of the recording.
fn in_an_utterance() -> (Pair, Vec<i16>) {
    in_an_utterance_of(PairConfig::default())
}

fn in_an_utterance_of(config: PairConfig) -> (Pair, Vec<i16>) {
    let mut pair = Pair::new(config);
    let spoken = recording("goforward_16k.wav");
    pair.stream(&spoken[..16_000], 20);
    assert_eq!(pair.events("vad.speech_start").len(), 1);
    (pair, spoken[16_000..].to_vec())
}

#[test]
fn a_sentence_is_heard_to_its_end_and_not_to_where_the_order_fell() {
    let alone = {
        let (mut pair, rest) = in_an_utterance();
        pair.stream(&rest, 20);
        pair.stream(&zeros(3_000), 20);
        pair.heard.clone()
    };
    let (mut pair, rest) = in_an_utterance();
    pair.drain();
    pair.stream(&rest, 20);
    // What follows it is not waited for.
    for _ in 0..150 {
        if !pair.closed() {
            pair.stream(&zeros(20), 20);
        }
    }
    assert_eq!(pair.heard[..1], alone[..1], "the same samples as if nobody had stopped anything");
    assert_eq!(pair.events("transcript.final").len(), 1);
    assert_eq!(pair.names().last().unwrap(), "close 1012");
    assert_eq!(pair.events("vad.speech_end").len(), 1);
}

#[test]
fn whose_time_is_up_in_a_sentence_is_heard_and_answered() {
    let alone = {
        let (mut pair, rest) = in_an_utterance();
        pair.stream(&rest, 20);
        pair.stream(&zeros(3_000), 20);
        pair.heard.clone()
    };
    let limited = |session_max_ms| PairConfig { session_max_ms, ..PairConfig::default() };
    let (mut pair, rest) = in_an_utterance_of(limited(1_200));
    pair.stream(&rest, 20);
    for _ in 0..150 {
        if !pair.closed() {
            pair.stream(&zeros(20), 20);
        }
    }
    assert_eq!(pair.heard[..1], alone[..1], "the same samples as if there were no limit");
    assert_eq!(pair.events("transcript.final").len(), 1);
    assert_eq!(pair.events("session.closed")[0]["reason"], "session_expired");
    assert_eq!(pair.names().last().unwrap(), "close 1000");

    // Who never stops is cut off, and who says nothing is not waited for.
    let (mut endless, _) = in_an_utterance_of(limited(1_200));
    let frames = speaker(40);
    let mut frames = frames.chunks(1_600);
    while !endless.closed() {
        endless.stream(frames.next().expect("it never ends"), 100);
    }
    assert!(endless.now() > secs(15) && endless.now() < secs(27), "{:?}", endless.now());
    let mut silent = Pair::new(limited(1_200));
    silent.advance(ms(1_199));
    assert!(!silent.closed());
    silent.advance(ms(1));
    assert!(silent.closed());
}

#[test]
fn whose_time_is_up_in_a_conversation_is_answered_first() {
    for backend in BACKENDS {
        let asks = |session_max_ms| {
            let mut talk = Talk::new(PairConfig { session_max_ms, ..config(backend, &[]) });
            talk.ask();
            talk.say(&recording("goforward_16k.wav")[..16_000]);
            talk
        };
        let asked_at = asks(0).pair.now();
        let mut talk = asks(asked_at.as_millis() as u64 + 100);
        talk.say(&recording("goforward_16k.wav")[16_000..]);
        while !talk.pair.closed() {
            talk.pair.stream(&[1; 8_000], 100);
            assert!(talk.pair.now() < asked_at + secs(26), "{backend:?}: {:?}", talk.pair.names());
        }
        let ends = talk.pair.events("tts.speaking_end");
        assert!(ends.len() == 2 && ends.iter().all(|end| end["cancelled"] == false), "{backend:?}: {ends:?}");
        assert_eq!(talk.pair.events("session.closed")[0]["reason"], "session_expired");
        talk.pair.advance(secs(5));
        assert!(talk.pair.finished);
        assert_eq!(sanity::problems(&talk.pair), [""; 0]);
    }
}

#[test]
fn two_orders_are_no_more_time_than_one() {
    let (mut pair, _) = in_an_utterance();
    pair.drain();
    pair.stream(&speaker(10), 20);
    pair.operator_closes();
    pair.drain();
    pair.stream(&speaker(8), 20);
    assert!(pair.events("transcript.final").len() == 1, "{:?}", pair.names());
    pair.advance(secs(10));
    assert!(pair.closed(), "{:?}", pair.names());
    assert_eq!(pair.events("session.closed")[0]["reason"], "server_shutdown", "the first one's");
}

#[test]
fn who_has_no_conversation_has_nothing_to_roll_over() {
    let mut pair = Pair::new(PairConfig::default());
    pair.operator_rolls_over();
    pair.client(&json!({"type": "tts.speak", "text": "Still here."}));
    pair.advance(secs(10));
    assert_eq!(pair.events("tts.speaking_end").len(), 1);
    assert!(!pair.closed());
}
