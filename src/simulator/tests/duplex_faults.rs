//! Each fault of full duplex by its command-line name.

use super::*;
use crate::simulator::{marker, tests::duplex::samples};

/// A session whose next silent second starts a turn.
fn about_to_speak(faults: &[&str]) -> (Lab, ConnId) {
    about_to_speak_on(Backend::Pytorch, faults)
}

fn about_to_speak_on(backend: Backend, faults: &[&str]) -> (Lab, ConnId) {
    let faults = faults.iter().map(|text| text.parse().unwrap()).collect();
    let mut lab = Lab::new(SimulatorConfig { backend, faults, ..SimulatorConfig::default() });
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    (lab, conn)
}

fn force(lab: &mut Lab, conn: ConnId) -> Vec<String> {
    lab.second_with(conn, 0.0, json!({"force_listen": true}))
}

#[test]
fn slow_steps_fall_behind() {
    let mut lab = Lab::with_faults(&["slow-steps=1.5,times=2"]);
    let conn = lab.duplex(Mode::Audio, json!({}));
    for answers in [0, 1, 1, 4] {
        lab.second(conn, 0.0);
        assert_eq!(lab.events(conn).len() - 2, answers);
    }
    assert_eq!(lab.events(conn)[2]["metrics"]["generate_ms"], 1_580);
    assert_eq!(lab.last(conn)["metrics"]["generate_ms"], 80);
}

#[test]
fn a_burst_is_ahead_of_time() {
    let (mut lab, conn) = about_to_speak(&["burst"]);
    lab.second(conn, 0.0);
    assert_eq!(lab.audio(conn).concat(), (0..34 * 24_000).map(|index| marker(1, index)).collect::<Vec<_>>());
    assert_eq!(lab.second(conn, 0.0).last().unwrap(), "listen", "the turn's last unit comes in time");
    let (mut lab, conn) = about_to_speak_on(Backend::Cpp, &["burst=5"]);
    let dones = lab.second(conn, 0.0).into_iter().filter(|name| name == "response.done").count();
    assert_eq!((dones, lab.audio(conn).concat().len()), (5, 120_000));
}

#[test]
fn a_turn_without_end() {
    let (mut lab, conn) = about_to_speak(&["never-listens"]);
    for _ in 0..10 {
        assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
        assert_eq!(force(&mut lab, conn), ["text", "audio"]);
    }
    let expected: Vec<f32> = (0..20 * 24_000).map(|index| marker(1, index)).collect();
    assert_eq!(lab.audio(conn).concat(), expected);
    lab.close(conn, "enough");
    assert_eq!(lab.last(conn)["reason"], "enough");
}

#[test]
fn force_is_ignored_for_a_while() {
    let (mut lab, conn) = about_to_speak(&["ignores-force=1"]);
    lab.second(conn, 0.0);
    assert_eq!(force(&mut lab, conn), ["text", "audio"]);
    assert_eq!(force(&mut lab, conn), ["listen"]);
}

#[test]
fn a_turn_that_yields() {
    let (mut lab, conn) = about_to_speak(&["yields"]);
    lab.second(conn, 0.0);
    let turn = lab.last(conn)["response_id"].clone();
    assert_eq!(lab.second(conn, 0.1), ["listen"]);
    assert_eq!(lab.last(conn)["response_id"], turn);
}

#[test]
fn an_old_story_goes_on() {
    let (mut lab, conn) = about_to_speak(&["resumes,times=1"]);
    lab.second(conn, 0.0);
    let turn = lab.last(conn)["response_id"].clone();
    assert_eq!(force(&mut lab, conn), ["listen"]);
    assert_eq!(force(&mut lab, conn), ["listen"]);
    assert_eq!(lab.second(conn, 0.1), ["text", "audio"]);
    assert_ne!(lab.last(conn)["response_id"], turn);
    assert_eq!(samples(&lab.last(conn))[0], marker(1, 24_000), "where it was");
    assert_eq!(force(&mut lab, conn), ["listen"]);
    lab.second(conn, 0.0);
    assert_eq!(samples(&lab.last(conn))[0], marker(2, 0));
}

#[test]
fn nothing_goes_on_that_has_been_said() {
    let (mut lab, conn) = about_to_speak(&["resumes", "late-audio"]);
    lab.second(conn, 0.0);
    lab.second(conn, 0.0);
    assert_eq!(force(&mut lab, conn), ["listen", "audio"]);
    assert_eq!(lab.second(conn, 0.0), ["listen"], "the last unit came late");
}

#[test]
fn audio_after_the_yielding() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut lab, conn) = about_to_speak_on(backend, &["late-audio"]);
        lab.second(conn, 0.0);
        let turn = lab.last(conn)["response_id"].clone();
        assert_eq!(force(&mut lab, conn), ["listen", "audio"]);
        assert_eq!(lab.last(conn)["response_id"], turn, "{backend:?}");
        assert_eq!(samples(&lab.last(conn))[0], marker(1, 24_000));
    }
}

#[test]
fn death_in_a_turn() {
    for (fault, units) in [("die-mid-turn=0", 0), ("die-mid-turn", 1), ("die-mid-turn=99", 2)] {
        let (mut lab, conn) = about_to_speak(&[fault]);
        for _ in 0..units {
            assert_eq!(lab.second(conn, 0.0), ["text", "audio"], "{fault}");
        }
        assert_eq!(lab.second(conn, 0.0), ["session.closed"], "{fault}");
        assert_eq!(lab.last(conn)["reason"], "backend_error");
        assert_eq!(lab.last(conn)["diagnostic"]["message"], "simulated: the generator died");
        assert_eq!(lab.ended(conn), polite());
    }
    let (mut lab, conn) = about_to_speak_on(Backend::Cpp, &["die-mid-turn=0"]);
    assert_eq!(lab.second(conn, 0.0), ["session.closed"]);
    assert_eq!(lab.last(conn).get("diagnostic"), None);
}

#[test]
fn the_connection_breaks_in_a_turn() {
    let (mut lab, conn) = about_to_speak(&["drop-mid-turn"]);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
    assert!(lab.second(conn, 0.0).is_empty());
    assert_eq!(lab.ended(conn), Some(Seen::Drop));
}

#[test]
fn terminals_come_twice() {
    let faults = vec!["double-terminal".parse().unwrap()];
    let mut lab = Lab::new(SimulatorConfig { faults, turn_units: 1, ..SimulatorConfig::default() });
    let conn = lab.duplex(Mode::Audio, json!({}));
    assert_eq!(lab.second(conn, 0.1), ["listen", "listen"]);
    lab.second(conn, 0.0);
    lab.second(conn, 0.0);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"], "30 characters need two units");
    assert_eq!(lab.second(conn, 0.0), ["text", "audio", "listen", "listen", "response.done"]);
    let events = lab.events(conn);
    let ids: Vec<&Value> = events[events.len() - 5..].iter().map(|event| &event["response_id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let faults = vec!["double-terminal,times=1".parse().unwrap()];
    let mut lab = Lab::new(SimulatorConfig { backend: Backend::Cpp, faults, ..SimulatorConfig::default() });
    let conn = lab.duplex(Mode::Audio, json!({}));
    assert_eq!(lab.second(conn, 0.0), ["listen", "listen", "response.done"]);
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
}

#[test]
fn text_is_repeated() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut lab, conn) = about_to_speak_on(backend, &["repeats-text"]);
        let mut said = Vec::new();
        for _ in 0..3 {
            let before = lab.events(conn).len();
            lab.second(conn, 0.0);
            let events = lab.events(conn);
            let done = events[before..].iter().find(|event| event["type"] == "response.done").unwrap();
            said.push(done["text"].as_str().unwrap().to_owned());
        }
        let expected = ["I heard ", "I heard 3.0 seconds ", "I heard 3.0 seconds of speech."];
        assert_eq!(said, expected, "{backend:?}");
    }
}

#[test]
fn thoughts_and_control_tokens_come_in_pieces() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut lab, conn) = about_to_speak_on(backend, &["think"]);
        for _ in 0..3 {
            lab.second(conn, 0.0);
        }
        let text = "<think>they spoke to me</think>I heard 3.0 seconds<|speak|> of speech.";
        assert_eq!(lab.text(conn), text);
        let broken = |event: &Value| !event["text"].as_str().is_some_and(|text| text.contains("</think>"));
        assert!(lab.events(conn).iter().filter(|event| event["kind"] == "text").all(broken));
    }
}

#[test]
fn the_watchdog_at_any_second() {
    let mut lab = Lab::with_faults(&["timeout=7.5,times=1"]);
    let chat = lab.session();
    lab.close(chat, "x");
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.pass(Duration::from_millis(7_459));
    assert_eq!(lab.last(conn)["type"], "session.created", "chat did not use it up");
    lab.pass(Duration::from_millis(1));
    assert_eq!(lab.last(conn)["reason"], "timeout");
    let next = lab.duplex(Mode::Audio, json!({}));
    lab.pass(Duration::from_secs(599));
    assert_eq!(lab.ended(next), None);
}

#[test]
fn a_full_context_ends_the_session() {
    let mut lab = Lab::with_faults(&["kv=8170", "context-full=8192"]);
    let conn = lab.duplex(Mode::Audio, json!({}));
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
    assert_eq!(lab.second(conn, 0.0), ["listen", "session.closed"]);
    assert_eq!((&lab.last(conn)["reason"], lab.ended(conn)), (&json!("context_full"), polite()));
    assert!(lab.last(conn)["session_id"].is_string());
}

#[test]
fn the_faults_of_chat_that_full_duplex_has_too() {
    let (mut lab, conn) = about_to_speak(&["no-audio,times=1"]);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
    assert_eq!(lab.audio(conn).concat(), vec![0.0; 24_000], "a second of silence");
    let (mut lab, conn) = about_to_speak_on(Backend::Cpp, &["no-audio"]);
    assert!(!lab.second(conn, 0.0).contains(&"audio".to_owned()));
    let (mut lab, conn) = about_to_speak(&["empty-transcript"]);
    assert_eq!(lab.second(conn, 0.0), ["listen"], "no words, no answer");
    let mut lab = Lab::with_faults(&["never-answers,times=1"]);
    let conn = lab.duplex(Mode::Audio, json!({}));
    assert!(lab.second(conn, 0.0).is_empty());
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
}

#[test]
fn a_chat_generation_left_behind_corrupts_the_turn() {
    let mut lab = Lab::on(Backend::Pytorch);
    let chat = lab.session();
    lab.append(chat, tts(&"a long story ".repeat(60), true));
    lab.pass(Duration::from_millis(500));
    lab.close(chat, "cancelled");
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    for _ in 0..4 {
        lab.second(conn, 0.0);
    }
    assert!(lab.text(conn).starts_with(crate::simulator::CORRUPTED));
}
