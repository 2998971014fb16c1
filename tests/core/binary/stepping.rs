//! Lock step: one answer to every frame, no word lost, none said twice.

use proptest::prelude::*;

use super::*;

const EOF: &str = r#"{"eof" : 1}"#;
const RESET: &str = r#"{"reset" : 1}"#;

fn vosk(faults: &[&str]) -> Pair {
    let mut pair = client("vosk", "", faults);
    pair.client_text(r#"{ "config" : { "sample_rate" : 16000.000000, "words": 0, "unheard_of": [{}] } }"#);
    pair
}

fn answers(pair: &Pair) -> usize {
    events(pair, "partial").len() + events(pair, "text").len()
}

/// How many utterances all finals together tell of.
fn told(pair: &Pair) -> usize {
    let words = events(pair, "text").into_iter().map(|event| event["text"].as_str().unwrap().to_owned());
    words.map(|text| text.matches("simulated transcript").count()).sum()
}

#[test]
fn every_frame_is_answered_at_once_and_the_last_answer_holds_the_rest() {
    let mut pair = vosk(&[]);
    let file = [utterance(), utterance(), voice(1500)].concat();
    for (number, frame) in file.chunks(3200).enumerate() {
        pair.client_binary(&bytes_of(frame));
        assert_eq!(answers(&pair), number + 1);
        assert!(!pair.bridge().holds_back());
    }
    let frames = answers(&pair);
    assert_eq!(told(&pair), 0, "no time has passed in which anything could be understood");
    pair.client_text(EOF);
    assert!(pair.bridge().account().0.recorded > 0 && answers(&pair) == frames, "its answer takes a while");
    pair.run_until(Pair::closed, secs(60));
    assert_eq!((answers(&pair), told(&pair)), (frames + 1, 3));
    assert_eq!(pair.names().last().unwrap(), "close 1000");
    assert_all_heard(&pair, file.len());
    ends(&mut pair);
}

#[test]
fn who_speaks_in_real_time_is_told_while_it_does() {
    let mut pair = vosk(&[]);
    pair.stream(&[utterance(), zeros(2000), utterance(), zeros(2000)].concat(), 200);
    let finals = events(&pair, "text");
    assert_eq!((finals.len(), told(&pair)), (2, 2), "one answer each");
    pair.client_text(EOF);
    pair.run_until(Pair::closed, secs(10));
    assert_eq!(events(&pair, "text").last().unwrap()["text"], "", "nothing is said twice");
    ends(&mut pair);
}

#[test]
fn a_reset_is_answered_by_what_is_final_and_the_session_goes_on() {
    let mut pair = vosk(&[]);
    pair.stream(&voice(1500), 100);
    let before = answers(&pair);
    pair.client_text(RESET);
    assert!(pair.bridge().holds_back(), "who waits for an answer sends nothing");
    pair.run_until(|pair| !pair.bridge().holds_back(), secs(10));
    assert_eq!((answers(&pair), told(&pair)), (before + 1, 1));
    pair.stream(&utterance(), 100);
    pair.client_text(EOF);
    pair.run_until(Pair::closed, secs(10));
    assert_eq!(told(&pair), 2);
    ends(&mut pair);
}

#[test]
fn a_file_is_taken_as_fast_as_it_is_understood_and_nothing_of_it_is_dropped() {
    // Ten minutes, and an upstream that needs two seconds for each session.
    let mut pair = vosk(&["slow-init=2"]);
    let part = [voice(9000), zeros(1000)].concat();
    let file: Vec<i16> = part.iter().copied().cycle().take(part.len() * 60).collect();
    let began = pair.now();
    upload(&mut pair, &file, 3200);
    assert!(pair.now() - began > secs(60), "the client was held back");
    pair.client_text(EOF);
    pair.run_until(Pair::closed, secs(600));
    assert_eq!(told(&pair), 60);
    assert_eq!(answers(&pair), file.len().div_ceil(3200) + 1);
    assert_all_heard(&pair, file.len());
    ends(&mut pair);
}

#[test]
fn eight_kilohertz_is_what_the_real_server_takes_for_granted() {
    let mut pair = client("vosk", "", &[]);
    let half: Vec<i16> = voice(3000).into_iter().step_by(2).collect();
    upload(&mut pair, &half, 1600);
    pair.client_text(EOF);
    pair.run_until(Pair::closed, secs(20));
    let (account, _) = pair.bridge().account();
    assert_eq!(account.taken, 24_000);
    assert!(account.recorded.abs_diff(48_000) < 4000, "{account:?}");
    assert_eq!(told(&pair), 1);
    ends(&mut pair);
}

#[derive(Debug, Clone)]
enum Act {
    Voice(u64),
    Silence(u64),
    Reset,
    Wait(u64),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (40u64..3000).prop_map(Act::Voice),
        4 => (40u64..2000).prop_map(Act::Silence),
        1 => Just(Act::Reset),
        2 => (0u64..4000).prop_map(Act::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn as_many_answers_as_questions_whatever_is_sent(
        acts in prop::collection::vec(act(), 0..12), frame in 200usize..20_000, slow in any::<bool>(),
    ) {
        let mut pair = vosk(if slow { &["slow-init=3,times=2"] } else { &[] });
        let (mut asked, mut sent) = (0, 0);
        for act in acts {
            match act {
                Act::Voice(_) | Act::Silence(_) => {
                    let samples = match act { Act::Voice(ms) => voice(ms), Act::Silence(ms) => zeros(ms), _ => vec![] };
                    upload(&mut pair, &samples, frame);
                    asked += samples.len().div_ceil(frame);
                    sent += samples.len();
                }
                Act::Reset => {
                    pair.client_text(RESET);
                    asked += 1;
                }
                Act::Wait(time) => pair.advance(ms(time)),
            }
        }
        pair.client_text(EOF);
        pair.run_until(Pair::closed, secs(300));
        prop_assert_eq!(closed(&pair), Some((1000, "")));
        prop_assert_eq!(answers(&pair), asked + 1);
        prop_assert_eq!(told(&pair), pair.heard.len());
        assert_all_heard(&pair, sent);
        ends(&mut pair);
    }
}
