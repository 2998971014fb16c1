//! How a conversation ends: for want of audio, because voxbridge stops, because the client goes away.

use super::{pair::Pair, sanity, support::*};

/// In the middle of a turn of half a minute.
fn in_a_turn(backend: super::flavour::Flavour, after_ms: u64) -> Talk {
    let mut talk = Talk::new(config(backend, &["burst=34"]));
    talk.question();
    while talk.pair.events("tts.speaking_start").is_empty() {
        talk.quiet(100);
    }
    talk.quiet(after_ms);
    talk
}

/// Everything is over: for the client, and for the gateway, politely.
fn is_over(pair: &Pair, close: Option<&str>) {
    assert!(pair.finished && pair.connections() == 0);
    assert_eq!(sanity::problems(pair), [""; 0]);
    if let Some(close) = close {
        assert_eq!(pair.names().last().unwrap(), close);
        assert_eq!(pair.events("tts.speaking_start").len(), pair.events("tts.speaking_end").len());
    }
    assert_eq!(
        pair.sent("\"session.init\"").len() + pair.sent("\"session.update\"").len(),
        pair.sent("\"session.close\"").len(),
        "all said goodbye to"
    );
}

#[test]
fn a_client_that_is_silent_for_a_minute() {
    for backend in BACKENDS {
        let mut talk = Talk::new(config(backend, &[]));
        talk.pair.advance(secs(59));
        assert!(!talk.pair.closed());
        talk.pair.advance(secs(5));
        is_over(&talk.pair, Some("close 1000"));

        // Who listens sends nothing, and is not idle.
        let mut talk = Talk::new(config(backend, &["burst=90"]));
        let question = speaker(3);
        talk.pair.stream(&question, 100);
        talk.pair.advance(secs(95));
        assert!(!talk.pair.closed(), "{backend:?}: {:?}", talk.pair.names());
        talk.pair.advance(secs(70));
        is_over(&talk.pair, Some("close 1000"));
        assert_eq!(talk.pair.events("tts.speaking_end")[0]["cancelled"], false);
    }
}

#[test]
fn voxbridge_that_stops() {
    for backend in BACKENDS {
        for after_ms in (0..3_000).step_by(370) {
            let mut talk = in_a_turn(backend, after_ms);
            talk.pair.traffic.clear();
            talk.pair.drain();
            talk.pair.advance(secs(25));
            assert!(talk.pair.finished && talk.pair.connections() == 0, "{backend:?} {after_ms}");
            assert_eq!(sanity::problems(&talk.pair), [""; 0]);
            assert_eq!(talk.pair.names().last().unwrap(), "close 1012", "{backend:?}");
            assert_eq!(
                talk.pair.events("tts.speaking_end")[0]["cancelled"],
                true,
                "there is no time for 34 s"
            );
            assert_eq!(talk.pair.sent("\"session.close\"").len(), 1);
        }
    }
}

#[test]
fn a_client_that_goes_away() {
    for backend in BACKENDS {
        for after_ms in (0..3_000).step_by(370) {
            let mut talk = in_a_turn(backend, after_ms);
            talk.pair.traffic.clear();
            talk.pair.close_client();
            talk.pair.advance(secs(10));
            assert!(talk.pair.finished && talk.pair.connections() == 0, "{backend:?} {after_ms}");
            assert_eq!(talk.pair.sent("\"session.close\"").len(), 1);

            let talk = in_a_turn(backend, after_ms);
            let seen = talk.ends_well();
            let ended = seen.iter().filter(|(_, seen)| seen.name() == "tts.speaking_end").count();
            assert_eq!(ended, 1);
        }
    }
}
