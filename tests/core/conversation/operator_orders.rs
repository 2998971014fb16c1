//! Operator orders for one session, and the drain of a stopping server: neither interrupts a question or
//! answer.

use voxbridge::vocabulary::RolloverReason::OperatorRequest;

use super::{
    harness::{Harness, HarnessConfig, recording, zeros},
    support::*,
    *,
};

#[test]
fn ordered_rollover_waits_for_quiet_moment() {
    for backend in BACKENDS {
        for into_ms in [0, 700, 2_500] {
            let mut conversation = Conversation::new(with_init(config(backend, &[]), 2_000));
            conversation.ask();
            conversation.stream_silence(into_ms);
            conversation.harness.order_rollover();
            conversation.ask();
            conversation.stream_silence(10_000);
            assert_eq!(conversation.rollovers(), [(OperatorRequest, 2_020, false)], "{backend:?} {into_ms}");
            assert_eq!(conversation.reported_rollovers(), [("operator_request".to_owned(), 2_020, false)]);
            conversation.assert_no_goodbye_during_answer();
            conversation.assert_turns_complete(2);
            conversation.assert_all_heard();
            conversation.close_and_check();
        }
    }
}

#[test]
fn ordered_rollover_in_question_follows_its_answer() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(with_init(config(backend, &[]), 2_000));
        conversation.ask();
        conversation.stream_speech(&recording("goforward_16k.wav")[..16_000]);
        for _ in 0..3 {
            // Repeated orders count as one.
            conversation.harness.order_rollover();
        }
        assert_eq!(conversation.rollovers(), [], "the user is speaking");
        conversation.stream_speech(&recording("goforward_16k.wav")[16_000..]);
        conversation.stream_until_answered(1);
        assert_eq!(conversation.rollovers(), [], "the answer belongs to the question");
        conversation.stream_silence(10_000);
        assert_eq!(conversation.rollovers(), [(OperatorRequest, 2_020, false)], "{backend:?}");
        conversation.assert_all_heard();
        conversation.close_and_check();
    }
}

#[test]
fn drain_answers_pending_question_first() {
    for backend in BACKENDS {
        for operator in [false, true] {
            let mut conversation = Conversation::new(config(backend, &[]));
            conversation.ask();
            conversation.stream_speech(&recording("goforward_16k.wav")[..16_000]);
            if operator {
                conversation.harness.order_close();
            } else {
                conversation.harness.drain();
            }
            conversation.stream_speech(&recording("goforward_16k.wav")[16_000..]);
            while !conversation.harness.is_closed() {
                conversation.harness.stream(&[1; 8_000], 100);
                assert!(
                    conversation.harness.now() < secs(60),
                    "{backend:?}: {:?}",
                    conversation.harness.names()
                );
            }
            let ends = conversation.harness.events("tts.speaking_end");
            assert!(ends.len() == 2 && ends.iter().all(|end| end["cancelled"] == false), "{ends:?}");
            let (reason, close) =
                if operator { ("operator_request", "close 1001") } else { ("server_shutdown", "close 1012") };
            assert_eq!(conversation.harness.events("session.closed")[0]["reason"], reason);
            assert!(!conversation.harness.was_cut_off());
            assert_eq!(conversation.harness.names().last().unwrap(), close);
            conversation.harness.advance(secs(5));
            assert!(conversation.harness.finished);
            assert_eq!(protocol_checks::find_violations(&conversation.harness), [""; 0]);
        }
    }
}

#[test]
fn drain_hears_endless_speaker_for_two_thirds_of_drain_time() {
    for backend in BACKENDS {
        let mut conversation = Conversation::new(config(backend, &[]));
        conversation.stream_silence(1_000);
        conversation.stream_speech(&endless_speech(3));
        conversation.harness.drain();
        let from = conversation.harness.now();
        let frames = endless_speech(30);
        let mut frames = frames.chunks(1_600);
        while !conversation.harness.is_closed() {
            conversation.harness.stream(frames.next().expect("the speech never ends"), 100);
        }
        let took = conversation.harness.now() - from;
        assert!(took > secs(15) && took < secs(25), "{backend:?}: {took:?}");
        assert_eq!(conversation.harness.names().last().unwrap(), "close 1012");
        assert!(conversation.harness.was_cut_off(), "{backend:?}");
    }
}

/// A speech session in the middle of a recording.
fn harness_mid_utterance() -> (Harness, Vec<i16>) {
    harness_mid_utterance_with(HarnessConfig::default())
}

fn harness_mid_utterance_with(config: HarnessConfig) -> (Harness, Vec<i16>) {
    let mut harness = Harness::new(config);
    let spoken = recording("goforward_16k.wav");
    harness.stream(&spoken[..16_000], 20);
    assert_eq!(harness.events("vad.speech_start").len(), 1);
    (harness, spoken[16_000..].to_vec())
}

#[test]
fn close_order_lets_sentence_finish() {
    let undisturbed = {
        let (mut harness, rest) = harness_mid_utterance();
        harness.stream(&rest, 20);
        harness.stream(&zeros(3_000), 20);
        harness.question_audio.clone()
    };
    let (mut harness, rest) = harness_mid_utterance();
    harness.drain();
    harness.stream(&rest, 20);
    // The session does not wait for audio after the utterance.
    for _ in 0..150 {
        if !harness.is_closed() {
            harness.stream(&zeros(20), 20);
        }
    }
    assert_eq!(harness.question_audio[..1], undisturbed[..1], "the same samples as without an order");
    assert_eq!(harness.events("transcript.final").len(), 1);
    assert_eq!(harness.names().last().unwrap(), "close 1012");
    assert_eq!(harness.events("vad.speech_end").len(), 1);
}

#[test]
fn time_limit_mid_sentence_lets_it_be_answered() {
    let undisturbed = {
        let (mut harness, rest) = harness_mid_utterance();
        harness.stream(&rest, 20);
        harness.stream(&zeros(3_000), 20);
        harness.question_audio.clone()
    };
    let limited = |session_max_ms| HarnessConfig { session_max_ms, ..HarnessConfig::default() };
    let (mut harness, rest) = harness_mid_utterance_with(limited(1_200));
    harness.stream(&rest, 20);
    for _ in 0..150 {
        if !harness.is_closed() {
            harness.stream(&zeros(20), 20);
        }
    }
    assert_eq!(harness.question_audio[..1], undisturbed[..1], "the same samples as if there were no limit");
    assert_eq!(harness.events("transcript.final").len(), 1);
    assert_eq!(harness.events("session.closed")[0]["reason"], "session_expired");
    assert_eq!(harness.names().last().unwrap(), "close 1000");

    // An endless speaker is cut off, and a silent client is not waited for.
    let (mut endless, _) = harness_mid_utterance_with(limited(1_200));
    let frames = endless_speech(40);
    let mut frames = frames.chunks(1_600);
    while !endless.is_closed() {
        endless.stream(frames.next().expect("it never ends"), 100);
    }
    assert!(endless.now() > secs(15) && endless.now() < secs(27), "{:?}", endless.now());
    let mut silent = Harness::new(limited(1_200));
    silent.advance(ms(1_199));
    assert!(!silent.is_closed());
    silent.advance(ms(1));
    assert!(silent.is_closed());
}

#[test]
fn time_limit_in_conversation_waits_for_answer() {
    for backend in BACKENDS {
        let asks = |session_max_ms| {
            let mut conversation =
                Conversation::new(HarnessConfig { session_max_ms, ..config(backend, &[]) });
            conversation.ask();
            conversation.stream_speech(&recording("goforward_16k.wav")[..16_000]);
            conversation
        };
        let asked_at = asks(0).harness.now();
        let mut conversation = asks(asked_at.as_millis() as u64 + 100);
        conversation.stream_speech(&recording("goforward_16k.wav")[16_000..]);
        while !conversation.harness.is_closed() {
            conversation.harness.stream(&[1; 8_000], 100);
            assert!(
                conversation.harness.now() < asked_at + secs(26),
                "{backend:?}: {:?}",
                conversation.harness.names()
            );
        }
        let ends = conversation.harness.events("tts.speaking_end");
        assert!(ends.len() == 2 && ends.iter().all(|end| end["cancelled"] == false), "{backend:?}: {ends:?}");
        assert_eq!(conversation.harness.events("session.closed")[0]["reason"], "session_expired");
        conversation.harness.advance(secs(5));
        assert!(conversation.harness.finished);
        assert_eq!(protocol_checks::find_violations(&conversation.harness), [""; 0]);
    }
}

#[test]
fn second_close_order_grants_no_more_time() {
    let (mut harness, _) = harness_mid_utterance();
    harness.drain();
    harness.stream(&endless_speech(10), 20);
    harness.order_close();
    harness.drain();
    harness.stream(&endless_speech(8), 20);
    assert!(harness.events("transcript.final").len() == 1, "{:?}", harness.names());
    harness.advance(secs(10));
    assert!(harness.is_closed(), "{:?}", harness.names());
    assert_eq!(harness.events("session.closed")[0]["reason"], "server_shutdown", "the first order's reason");
}

#[test]
fn rollover_order_without_conversation_has_no_effect() {
    let mut harness = Harness::new(HarnessConfig::default());
    harness.order_rollover();
    harness.send_json(&json!({"type": "tts.speak", "text": "Still here."}));
    harness.advance(secs(10));
    assert_eq!(harness.events("tts.speaking_end").len(), 1);
    assert!(!harness.is_closed());
}
