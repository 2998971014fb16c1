//! Each full-duplex fault by its command-line name.

use super::*;

/// A session whose next silent second starts a turn.
fn session_before_turn(faults: &[&str]) -> (TestGateway, ConnId) {
    session_before_turn_on(Backend::Pytorch, faults)
}

fn session_before_turn_on(backend: Backend, faults: &[&str]) -> (TestGateway, ConnId) {
    let faults = faults.iter().map(|text| text.parse().unwrap()).collect();
    let mut sim = TestGateway::new(SimulatorConfig { backend, faults, ..SimulatorConfig::default() });
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    (sim, conn)
}

fn send_forced_second(sim: &mut TestGateway, conn: ConnId) -> Vec<String> {
    sim.send_second_with(conn, 0.0, json!({"force_listen": true}))
}

#[test]
fn slow_steps_fault_delays_answers() {
    let mut sim = TestGateway::with_faults(&["slow-steps=1.5,times=2"]);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    for answers in [0, 1, 1, 4] {
        sim.send_second(conn, 0.0);
        assert_eq!(sim.events_of(conn).len() - 2, answers);
    }
    assert_eq!(sim.events_of(conn)[2]["metrics"]["generate_ms"], 1_580);
    assert_eq!(sim.last_event(conn)["metrics"]["generate_ms"], 80);
}

#[test]
fn burst_fault_sends_units_at_once() {
    let (mut sim, conn) = session_before_turn(&["burst"]);
    sim.send_second(conn, 0.0);
    assert_eq!(
        sim.audio_of(conn).concat(),
        (0..34 * 24_000).map(|index| watermark_sample(1, index)).collect::<Vec<_>>()
    );
    assert_eq!(sim.send_second(conn, 0.0).last().unwrap(), "listen", "the turn's last unit comes in time");
    let (mut sim, conn) = session_before_turn_on(Backend::Cpp, &["burst=5"]);
    let dones = sim.send_second(conn, 0.0).into_iter().filter(|name| name == "response.done").count();
    assert_eq!((dones, sim.audio_of(conn).concat().len()), (5, 120_000));
}

#[test]
fn never_listens_fault_makes_turn_endless() {
    let (mut sim, conn) = session_before_turn(&["never-listens"]);
    for _ in 0..10 {
        assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
        assert_eq!(send_forced_second(&mut sim, conn), ["text", "audio"]);
    }
    let expected: Vec<f32> = (0..20 * 24_000).map(|index| watermark_sample(1, index)).collect();
    assert_eq!(sim.audio_of(conn).concat(), expected);
    sim.close_session(conn, "enough");
    assert_eq!(sim.last_event(conn)["reason"], "enough");
}

#[test]
fn ignores_force_fault_ignores_force_listen_n_times() {
    let (mut sim, conn) = session_before_turn(&["ignores-force=1"]);
    sim.send_second(conn, 0.0);
    assert_eq!(send_forced_second(&mut sim, conn), ["text", "audio"]);
    assert_eq!(send_forced_second(&mut sim, conn), ["listen"]);
}

#[test]
fn yields_fault_ends_turn_when_user_speaks() {
    let (mut sim, conn) = session_before_turn(&["yields"]);
    sim.send_second(conn, 0.0);
    let turn = sim.last_event(conn)["response_id"].clone();
    assert_eq!(sim.send_second(conn, 0.1), ["listen"]);
    assert_eq!(sim.last_event(conn)["response_id"], turn);
}

#[test]
fn resumes_fault_continues_interrupted_turn() {
    let (mut sim, conn) = session_before_turn(&["resumes,times=1"]);
    sim.send_second(conn, 0.0);
    let turn = sim.last_event(conn)["response_id"].clone();
    assert_eq!(send_forced_second(&mut sim, conn), ["listen"]);
    assert_eq!(send_forced_second(&mut sim, conn), ["listen"]);
    assert_eq!(sim.send_second(conn, 0.1), ["text", "audio"]);
    assert_ne!(sim.last_event(conn)["response_id"], turn);
    assert_eq!(decode_audio(&sim.last_event(conn))[0], watermark_sample(1, 24_000), "where it stopped");
    assert_eq!(send_forced_second(&mut sim, conn), ["listen"]);
    sim.send_second(conn, 0.0);
    assert_eq!(decode_audio(&sim.last_event(conn))[0], watermark_sample(2, 0));
}

#[test]
fn finished_turn_is_not_resumed() {
    let (mut sim, conn) = session_before_turn(&["resumes", "late-audio"]);
    sim.send_second(conn, 0.0);
    sim.send_second(conn, 0.0);
    assert_eq!(send_forced_second(&mut sim, conn), ["listen", "audio"]);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"], "the last unit came late");
}

#[test]
fn late_audio_fault_sends_audio_after_listen() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut sim, conn) = session_before_turn_on(backend, &["late-audio"]);
        sim.send_second(conn, 0.0);
        let turn = sim.last_event(conn)["response_id"].clone();
        assert_eq!(send_forced_second(&mut sim, conn), ["listen", "audio"]);
        assert_eq!(sim.last_event(conn)["response_id"], turn, "{backend:?}");
        assert_eq!(decode_audio(&sim.last_event(conn))[0], watermark_sample(1, 24_000));
    }
}

#[test]
fn die_mid_turn_fault_ends_in_backend_error() {
    for (fault, units) in [("die-mid-turn=0", 0), ("die-mid-turn", 1), ("die-mid-turn=99", 2)] {
        let (mut sim, conn) = session_before_turn(&[fault]);
        for _ in 0..units {
            assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"], "{fault}");
        }
        assert_eq!(sim.send_second(conn, 0.0), ["session.closed"], "{fault}");
        assert_eq!(sim.last_event(conn)["reason"], "backend_error");
        assert_eq!(sim.last_event(conn)["diagnostic"]["message"], "simulated: the generator died");
        assert_eq!(sim.end_of(conn), normal_close());
    }
    let (mut sim, conn) = session_before_turn_on(Backend::Cpp, &["die-mid-turn=0"]);
    assert_eq!(sim.send_second(conn, 0.0), ["session.closed"]);
    assert_eq!(sim.last_event(conn).get("diagnostic"), None);
}

#[test]
fn drop_mid_turn_fault_aborts_connection() {
    let (mut sim, conn) = session_before_turn(&["drop-mid-turn"]);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
    assert!(sim.send_second(conn, 0.0).is_empty());
    assert_eq!(sim.end_of(conn), Some(ServerOutput::Abort));
}

#[test]
fn double_terminal_fault_repeats_terminal_events() {
    let faults = vec!["double-terminal".parse().unwrap()];
    let mut sim = TestGateway::new(SimulatorConfig { faults, turn_units: 1, ..SimulatorConfig::default() });
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.send_second(conn, 0.1), ["listen", "listen"]);
    sim.send_second(conn, 0.0);
    sim.send_second(conn, 0.0);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"], "30 characters need two units");
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio", "listen", "listen", "response.done"]);
    let events = sim.events_of(conn);
    let ids: Vec<&Value> = events[events.len() - 5..].iter().map(|event| &event["response_id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let faults = vec!["double-terminal,times=1".parse().unwrap()];
    let mut sim =
        TestGateway::new(SimulatorConfig { backend: Backend::Cpp, faults, ..SimulatorConfig::default() });
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.send_second(conn, 0.0), ["listen", "listen", "response.done"]);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
}

#[test]
fn repeats_text_fault_repeats_cumulative_text() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut sim, conn) = session_before_turn_on(backend, &["repeats-text"]);
        let mut texts = Vec::new();
        for _ in 0..3 {
            let before = sim.events_of(conn).len();
            sim.send_second(conn, 0.0);
            let events = sim.events_of(conn);
            let done = events[before..].iter().find(|event| event["type"] == "response.done").unwrap();
            texts.push(done["text"].as_str().unwrap().to_owned());
        }
        let expected = ["I heard ", "I heard 3.0 seconds ", "I heard 3.0 seconds of speech."];
        assert_eq!(texts, expected, "{backend:?}");
    }
}

#[test]
fn think_fault_splits_tags_across_deltas() {
    for backend in [Backend::Pytorch, Backend::Cpp] {
        let (mut sim, conn) = session_before_turn_on(backend, &["think"]);
        for _ in 0..3 {
            sim.send_second(conn, 0.0);
        }
        let text = "<think>they spoke to me</think>I heard 3.0 seconds<|speak|> of speech.";
        assert_eq!(sim.text_of(conn), text);
        let broken = |event: &Value| !event["text"].as_str().is_some_and(|text| text.contains("</think>"));
        assert!(sim.events_of(conn).iter().filter(|event| event["kind"] == "text").all(broken));
    }
}

#[test]
fn timeout_fault_sets_watchdog_limit() {
    let mut sim = TestGateway::with_faults(&["timeout=7.5,times=1"]);
    let chat = sim.open_chat_session();
    sim.close_session(chat, "x");
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.advance(Duration::from_millis(7_459));
    assert_eq!(sim.last_event(conn)["type"], "session.created", "chat sessions do not consume the fault");
    sim.advance(Duration::from_millis(1));
    assert_eq!(sim.last_event(conn)["reason"], "timeout");
    let next = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.advance(Duration::from_secs(599));
    assert_eq!(sim.end_of(next), None);
}

#[test]
fn context_full_fault_closes_session() {
    let mut sim = TestGateway::with_faults(&["kv=8170", "context-full=8192"]);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
    assert_eq!(sim.send_second(conn, 0.0), ["listen", "session.closed"]);
    assert_eq!((&sim.last_event(conn)["reason"], sim.end_of(conn)), (&json!("context_full"), normal_close()));
    assert!(sim.last_event(conn)["session_id"].is_string());
}

#[test]
fn chat_faults_apply_to_full_duplex() {
    let (mut sim, conn) = session_before_turn(&["no-audio,times=1"]);
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
    assert_eq!(sim.audio_of(conn).concat(), vec![0.0; 24_000], "a second of silence");
    let (mut sim, conn) = session_before_turn_on(Backend::Cpp, &["no-audio"]);
    assert!(!sim.send_second(conn, 0.0).contains(&"audio".to_owned()));
    let (mut sim, conn) = session_before_turn(&["empty-transcript"]);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"], "no words, no answer");
    let mut sim = TestGateway::with_faults(&["never-answers,times=1"]);
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    assert!(sim.send_second(conn, 0.0).is_empty());
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
}

#[test]
fn orphaned_chat_generation_corrupts_turn() {
    let mut sim = TestGateway::with_backend(Backend::Pytorch);
    let chat = sim.open_chat_session();
    sim.send_append(chat, tts_request(&"a long story ".repeat(60), true));
    sim.advance(Duration::from_millis(500));
    sim.close_session(chat, "cancelled");
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    for _ in 0..4 {
        sim.send_second(conn, 0.0);
    }
    assert!(sim.text_of(conn).starts_with(CORRUPTED_PREFIX));
}
