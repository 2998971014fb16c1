//! Lock step: one answer to every frame; no word is lost or repeated.

use proptest::prelude::*;

use super::*;

const EOF: &str = r#"{"eof" : 1}"#;
const RESET: &str = r#"{"reset" : 1}"#;

fn open_vosk_client(faults: &[&str]) -> Harness {
    let mut harness = open_client("vosk", "", faults);
    harness.send_text(r#"{ "config" : { "sample_rate" : 16000.000000, "words": 0, "unheard_of": [{}] } }"#);
    harness
}

fn answer_count(harness: &Harness) -> usize {
    events(harness, "partial").len() + events(harness, "text").len()
}

/// Messages with any of these keys, in the order in which the client got them.
fn events_with_any<'p>(harness: &'p Harness, keys: &[&str]) -> Vec<&'p Value> {
    let all = harness.all_events();
    all.filter(|event| keys.iter().any(|key| event.get(key).is_some())).collect()
}

/// Number of utterances in all final transcripts.
fn final_utterance_count(harness: &Harness) -> usize {
    let words = events(harness, "text").into_iter().map(|event| event["text"].as_str().unwrap().to_owned());
    words.map(|text| text.matches("simulated transcript").count()).sum()
}

#[test]
fn every_frame_is_answered_at_once_and_eof_returns_pending_text() {
    let mut harness = open_vosk_client(&[]);
    let file = [utterance(), utterance(), voice(1500)].concat();
    for (number, frame) in file.chunks(3200).enumerate() {
        harness.send_binary(&bytes_of(frame));
        assert_eq!(answer_count(&harness), number + 1);
        assert!(!harness.report().needs_backpressure);
    }
    let frames = answer_count(&harness);
    assert_eq!(final_utterance_count(&harness), 0, "no time has passed for a transcript");
    harness.send_text(EOF);
    assert!(
        harness.bridge().sample_counts().0.recorded > 0 && answer_count(&harness) == frames,
        "the transcript takes a while"
    );
    harness.run_until(Harness::is_closed, secs(60));
    assert_eq!((answer_count(&harness), final_utterance_count(&harness)), (frames + 1, 3));
    assert_eq!(harness.names().last().unwrap(), "close 1000");
    assert_all_heard(&harness, file.len());
    assert_session_ends(&mut harness);
}

#[test]
fn real_time_speech_gets_finals_before_eof() {
    let mut harness = open_vosk_client(&[]);
    harness.stream(&[utterance(), zeros(2000), utterance(), zeros(2000)].concat(), 200);
    let finals = events(&harness, "text");
    assert_eq!((finals.len(), final_utterance_count(&harness)), (2, 2), "one answer each");
    let replies: Vec<_> = events_with_any(&harness, &["partial", "text"]);
    for pair in replies.windows(2).filter(|pair| pair[0].get("text").is_some()) {
        assert_eq!(pair[1]["partial"], "", "the words of {} are over", pair[0]);
    }
    harness.send_text(EOF);
    harness.run_until(Harness::is_closed, secs(10));
    assert_eq!(events(&harness, "text").last().unwrap()["text"], "", "no word is repeated");
    assert_session_ends(&mut harness);
}

#[test]
fn final_that_waits_for_a_frame_is_sent_before_a_stopping_server_closes() {
    let mut harness = open_vosk_client(&[]);
    harness.stream(&utterance(), 200);
    harness.drain();
    harness.run_until(Harness::is_closed, secs(30));
    assert_eq!(final_utterance_count(&harness), 1, "{:?}", harness.names());
    assert_eq!(harness.names().last().unwrap(), "close 1001");
}

#[test]
fn reset_returns_final_and_session_continues() {
    let mut harness = open_vosk_client(&[]);
    harness.stream(&voice(1500), 100);
    let before = answer_count(&harness);
    harness.send_text(RESET);
    assert!(harness.report().needs_backpressure, "the client must wait for its answer");
    harness.run_until(|harness| !harness.report().needs_backpressure, secs(10));
    assert_eq!((answer_count(&harness), final_utterance_count(&harness)), (before + 1, 1));
    harness.stream(&utterance(), 100);
    harness.send_text(EOF);
    harness.run_until(Harness::is_closed, secs(10));
    assert_eq!(final_utterance_count(&harness), 2);
    assert_session_ends(&mut harness);
}

#[test]
fn file_upload_is_throttled_without_loss() {
    // Ten minutes of audio, and an upstream that needs two seconds for each session.
    let mut harness = open_vosk_client(&["slow-init=2"]);
    let part = [voice(9000), zeros(1000)].concat();
    let file: Vec<i16> = part.iter().copied().cycle().take(part.len() * 60).collect();
    let began = harness.now();
    upload(&mut harness, &file, 3200);
    assert!(harness.now() - began > secs(60), "the client was held back");
    harness.send_text(EOF);
    harness.run_until(Harness::is_closed, secs(600));
    assert_eq!(final_utterance_count(&harness), 60);
    assert_eq!(answer_count(&harness), file.len().div_ceil(3200) + 1);
    assert_all_heard(&harness, file.len());
    assert_session_ends(&mut harness);
}

#[test]
fn default_input_rate_is_eight_kilohertz() {
    let mut harness = open_client("vosk", "", &[]);
    let half: Vec<i16> = voice(3000).into_iter().step_by(2).collect();
    upload(&mut harness, &half, 1600);
    harness.send_text(EOF);
    harness.run_until(Harness::is_closed, secs(20));
    let (account, _) = harness.bridge().sample_counts();
    assert_eq!(account.received, 24_000);
    assert!(account.recorded.abs_diff(48_000) < 4000, "{account:?}");
    assert_eq!(final_utterance_count(&harness), 1);
    assert_session_ends(&mut harness);
}

#[derive(Debug, Clone)]
enum ClientAction {
    Voice(u64),
    Silence(u64),
    Reset,
    Wait(u64),
}

fn action() -> impl Strategy<Value = ClientAction> {
    prop_oneof![
        4 => (40u64..3000).prop_map(ClientAction::Voice),
        4 => (40u64..2000).prop_map(ClientAction::Silence),
        1 => Just(ClientAction::Reset),
        2 => (0u64..4000).prop_map(ClientAction::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_gets_exactly_one_answer(
        actions in vec(action(), 0..12), frame in 200usize..20_000, slow in any::<bool>(),
    ) {
        let mut harness = open_vosk_client(if slow { &["slow-init=3,times=2"] } else { &[] });
        let (mut asked, mut sent) = (0, 0);
        for action in actions {
            match action {
                ClientAction::Voice(_) | ClientAction::Silence(_) => {
                    let samples = match action { ClientAction::Voice(ms) => voice(ms), ClientAction::Silence(ms) => zeros(ms), _ => vec![] };
                    upload(&mut harness, &samples, frame);
                    asked += samples.len().div_ceil(frame);
                    sent += samples.len();
                }
                ClientAction::Reset => {
                    harness.send_text(RESET);
                    asked += 1;
                }
                ClientAction::Wait(time) => harness.advance(ms(time)),
            }
        }
        harness.send_text(EOF);
        harness.run_until(Harness::is_closed, secs(300));
        prop_assert_eq!(close_frame(&harness), Some((1000, "")));
        prop_assert_eq!(answer_count(&harness), asked + 1);
        prop_assert_eq!(final_utterance_count(&harness), harness.question_audio.len());
        assert_all_heard(&harness, sent);
        assert_session_ends(&mut harness);
    }
}
