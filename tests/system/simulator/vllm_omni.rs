//! vLLM-Omni's endpoint in virtual time: what depends on the clock. Exchanges with both the simulator and the package are in
//! `tests/system/sockets/vllm_omni/rules.rs`.

use super::*;

fn server(faults: &[&str]) -> TestGateway {
    let faults = faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect();
    TestGateway::new(SimulatorConfig {
        dialect: SimDialect::VllmOmni,
        workers: 2,
        faults,
        ..SimulatorConfig::default()
    })
}

/// Opens a session without audio, which needs no voice; these members are set.
fn open(sim: &mut TestGateway, members: Value) -> (ConnId, Value) {
    let conn = sim.connect_with_mode(SimMode::Video);
    let mut session = json!({"modalities": ["text"]});
    session.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    sim.send(conn, &json!({"type": "session.update", "session": session}));
    sim.advance(Duration::from_millis(40));
    let created = sim.events_of(conn)[0].clone();
    assert_eq!(created["type"], "session.created");
    (conn, created)
}

fn append(sim: &mut TestGateway, conn: ConnId, level: i16) {
    let bytes: Vec<u8> = (0..16_000).flat_map(|_| level.to_le_bytes()).collect();
    sim.send(conn, &json!({"type": "input_audio_buffer.append", "audio": STANDARD.encode(bytes)}));
    sim.advance(Duration::from_millis(500));
}

fn resume(sim: &mut TestGateway, created: &Value) -> ConnId {
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.send(
        conn,
        &json!({
            "type": "session.resume", "session_id": created["session"]["id"],
            "resume_token": created["resume_token"], "last_received_server_event_seq": 1,
        }),
    );
    conn
}

#[test]
fn session_without_a_transport_is_kept_for_thirty_seconds() {
    for (away_ms, answer) in [(29_900, "session.resumed"), (30_100, "error")] {
        let mut sim = server(&[]);
        let (conn, created) = open(&mut sim, json!({}));
        sim.input(SimInput::Closed(conn));
        sim.advance(Duration::from_millis(away_ms));
        let next = resume(&mut sim, &created);
        assert_eq!(sim.events_of(next)[0]["type"], answer, "{away_ms}");
    }
}

#[test]
fn place_of_a_lost_session_is_taken_until_it_expires() {
    let mut sim = server(&[]);
    for _ in 0..2 {
        let (conn, _) = open(&mut sim, json!({}));
        sim.input(SimInput::Closed(conn));
    }
    let refused = sim.connect_with_mode(SimMode::Video);
    sim.send(refused, &json!({"type": "session.update", "session": {"modalities": ["text"]}}));
    assert_eq!(sim.events_of(refused)[0]["error"]["code"], "resource_exhausted");
    sim.advance(Duration::from_secs(30));
    open(&mut sim, json!({}));
}

#[test]
fn silent_client_loses_its_connection_and_a_silent_session_expires() {
    let mut sim = server(&[]);
    let (conn, created) = open(&mut sim, json!({"idle_timeout_s": 5}));
    sim.advance(Duration::from_millis(5_100));
    assert_eq!(sim.end_of(conn), Some(ServerOutput::Abort));
    let next = resume(&mut sim, &created);
    assert_eq!(sim.events_of(next)[0]["type"], "session.resumed");
    let conn = sim.connect_with_mode(SimMode::Video);
    sim.advance(Duration::from_secs(10));
    assert_eq!(sim.last_event(conn)["error"]["code"], "config_timeout");
}

#[test]
fn failed_stage_fails_the_answer_and_ends_the_session() {
    let mut sim = server(&["die-mid-turn=1"]);
    let (conn, _) = open(&mut sim, json!({}));
    for level in [8_000, 0, 0, 0] {
        append(&mut sim, conn, level);
    }
    let events = sim.events_of(conn);
    let status = events.iter().find(|event| event["type"] == "response.done").unwrap();
    assert_eq!(status["response"]["status"], "failed");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["reason"]), (&json!("session.expired"), &json!("request_cleanup")));
    assert_eq!(sim.end_of(conn), Some(ServerOutput::Close(1000, "request_cleanup".to_owned())));
}
