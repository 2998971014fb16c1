//! Ends of a conversation: no client audio, a stopping voxbridge, or a client that disconnects.
use voxbridge_test_support::cases::some_of;

use super::{harness::Harness, support::*, *};

/// A conversation in the middle of a turn of 30 s.
fn start_long_turn(backend: ServerKind, after_ms: u64) -> Conversation {
    let mut conversation = Conversation::new(config(backend, &["burst=34"]));
    conversation.send_question();
    while conversation.harness.events("tts.speaking_start").is_empty() {
        conversation.stream_silence(100);
    }
    conversation.stream_silence(after_ms);
    conversation
}

/// Checks that the session has ended for the client, and politely for the gateway.
fn assert_ended(harness: &Harness, close: Option<&str>) {
    assert!(harness.finished && harness.connections() == 0);
    assert_eq!(protocol_checks::find_violations(harness), [""; 0]);
    if let Some(close) = close {
        assert_eq!(harness.names().last().unwrap(), close);
        assert_eq!(harness.events("tts.speaking_start").len(), harness.events("tts.speaking_end").len());
    }
    assert_eq!(
        harness.sent_containing("\"session.init\"").len()
            + harness.sent_containing("\"session.update\"").len(),
        harness.sent_containing("\"session.close\"").len(),
        "every session was closed politely"
    );
}

#[test]
fn client_silent_for_a_minute_is_closed() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &[]));
        conversation.harness.advance(secs(59));
        assert!(!conversation.harness.is_closed());
        conversation.harness.advance(secs(5));
        assert_ended(&conversation.harness, Some("close 1000"));

        // A client that only listens sends no audio and is not idle.
        let mut conversation = Conversation::new(config(backend, &["burst=90"]));
        let question = endless_speech(3);
        conversation.harness.stream(&question, 100);
        conversation.harness.advance(secs(95));
        assert!(!conversation.harness.is_closed(), "{backend:?}: {:?}", conversation.harness.names());
        conversation.harness.advance(secs(70));
        assert_ended(&conversation.harness, Some("close 1000"));
        assert_eq!(conversation.harness.events("tts.speaking_end")[0]["cancelled"], false);
    }
}

#[test]
fn drain_ends_conversation_after_turn() {
    for backend in BACKENDS {
        for after_ms in some_of((0..3_000).step_by(370), 3) {
            let mut conversation = start_long_turn(backend, after_ms);
            conversation.harness.traffic.clear();
            conversation.harness.drain();
            conversation.harness.advance(secs(25));
            assert!(
                conversation.harness.finished && conversation.harness.connections() == 0,
                "{backend:?} {after_ms}"
            );
            assert_eq!(protocol_checks::find_violations(&conversation.harness), [""; 0]);
            assert_eq!(conversation.harness.names().last().unwrap(), "close 1012", "{backend:?}");
            assert_eq!(
                conversation.harness.events("tts.speaking_end")[0]["cancelled"],
                true,
                "the drain time is shorter than 34 s"
            );
            assert_eq!(conversation.harness.sent_containing("\"session.close\"").len(), 1);
        }
    }
}

#[test]
fn client_disconnect_ends_upstream_session() {
    for backend in BACKENDS {
        for after_ms in some_of((0..3_000).step_by(370), 4) {
            let mut conversation = start_long_turn(backend, after_ms);
            conversation.harness.traffic.clear();
            conversation.harness.close_client();
            conversation.harness.advance(secs(10));
            assert!(
                conversation.harness.finished && conversation.harness.connections() == 0,
                "{backend:?} {after_ms}"
            );
            assert_eq!(conversation.harness.sent_containing("\"session.close\"").len(), 1);

            let conversation = start_long_turn(backend, after_ms);
            let frames = conversation.close_and_check();
            let ended = frames.iter().filter(|(_, frame)| frame.name() == "tts.speaking_end").count();
            assert_eq!(ended, 1);
        }
    }
}
