//! Full duplex on the wire: against the capture (field notes §6.1) and the rules of §1.5–§1.7.

use super::*;
use crate::simulator::{Opening, marker};

/// Loud enough to be heard.
const SPEECH: f32 = 0.1;

impl Lab {
    /// A full-duplex session with this payload.
    pub(super) fn duplex(&mut self, mode: Mode, payload: Value) -> ConnId {
        let conn = self.connect_to(mode);
        self.send(conn, &json!({"type": "session.init", "payload": payload}));
        self.pass(Duration::from_millis(40));
        conn
    }

    /// One second of this level, answered before the next second begins; the names of the answer's events.
    pub(super) fn second(&mut self, conn: ConnId, level: f32) -> Vec<String> {
        self.second_with(conn, level, json!({}))
    }

    pub(super) fn second_with(&mut self, conn: ConnId, level: f32, more: Value) -> Vec<String> {
        let before = self.events(conn).len();
        let mut input = json!({"audio": base64_f32(&[level; 16_000])});
        input.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.append(conn, input);
        self.pass(Duration::from_secs(1));
        names(&self.events(conn)[before..])
    }

    /// Listens three times, hears three seconds and falls silent: the next silent second starts the turn.
    pub(super) fn spoken_to(&mut self, conn: ConnId) {
        for level in [0.0, 0.0, 0.0, SPEECH, SPEECH, SPEECH] {
            assert_eq!(self.second(conn, level), ["listen"]);
        }
    }

    pub(super) fn audio(&self, conn: ConnId) -> Vec<Vec<f32>> {
        self.events(conn).iter().filter(|event| event["kind"] == "audio").map(samples).collect()
    }

    pub(super) fn text(&self, conn: ConnId) -> String {
        let events = self.events(conn);
        events.iter().filter(|e| e["kind"] == "text").filter_map(|e| e["text"].as_str()).collect()
    }

    pub(super) fn kv(&self, conn: ConnId) -> u64 {
        self.last(conn)["metrics"]["kv_cache_length"].as_u64().unwrap()
    }

    /// Everything reported about this gateway's full-duplex sessions.
    pub(super) fn openings(&self) -> Vec<Opening> {
        let opening = |output: &SimOutput| match output {
            SimOutput::Opened(_, opening) => Some(opening.clone()),
            _ => None,
        };
        self.raw.iter().filter_map(opening).collect()
    }
}

pub(super) fn samples(event: &Value) -> Vec<f32> {
    let mut samples = Vec::new();
    crate::audio::pcm::pull_base64_f32(event["audio"].as_str().unwrap(), &mut samples).unwrap();
    samples
}

fn keys(event: &Value) -> Vec<&str> {
    event.as_object().unwrap().keys().map(String::as_str).collect()
}

const CAPTURED: &str = r#"[
{"type": "session.created", "session_id": "s", "mode": "full_duplex", "metrics": {"backend": "pytorch", "kv_cache_length": 75}, "server_send_ts": 1795148861.073},
{"type": "response.output.delta", "kind": "listen", "session_id": "s", "metrics": {"backend": "pytorch", "kv_cache_length": 86, "generate_ms": 80, "cost_llm_ms": 80.0, "n_tokens": 0, "n_tts_tokens": 0, "prefill_ms": 0.2, "wall_clock_ms": 80.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.158},
{"type": "response.output.delta", "kind": "text", "session_id": "s", "response_id": "r", "text": "I heard about ", "metrics": {"backend": "pytorch", "kv_cache_length": 170, "generate_ms": 250, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 250.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.849},
{"type": "response.output.delta", "kind": "audio", "session_id": "s", "response_id": "r", "audio": "AAAA", "metrics": {"backend": "pytorch", "kv_cache_length": 170, "generate_ms": 250, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 250.8, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148861.850},
{"type": "response.output.delta", "kind": "listen", "session_id": "s", "response_id": "r", "metrics": {"backend": "pytorch", "kv_cache_length": 208, "generate_ms": 253, "cost_llm_ms": 100.0, "n_tokens": 5, "n_tts_tokens": 25, "prefill_ms": 0.1, "wall_clock_ms": 253.9, "vision_slices": 0, "vision_tokens": 0}, "server_send_ts": 1795148862.420},
{"type": "session.closed", "session_id": "s", "reason": "user_stop", "server_send_ts": 1795148862.582}
]"#;

#[test]
fn a_conversation_as_captured() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({"system_prompt": "You are a helpful assistant."}));
    lab.spoken_to(conn);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
    assert_eq!(lab.second(conn, 0.0), ["text", "audio", "listen"]);
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
    lab.close(conn, "user_stop");
    let events = lab.events(conn);
    let captured: Vec<Value> = serde_json::from_str(CAPTURED).unwrap();
    for (event, expected) in [(1, 0), (2, 1), (8, 2), (9, 3), (14, 4), (15, 1), (16, 5)] {
        let (event, expected) = (&events[event], &captured[expected]);
        assert_eq!(keys(event), keys(expected), "{event}");
        if let Some(metrics) = expected.get("metrics") {
            assert_eq!(keys(&event["metrics"]), keys(metrics), "{event}");
            assert_eq!(event["metrics"]["generate_ms"].is_u64(), metrics["generate_ms"].is_u64());
        }
    }
    assert_eq!((&events[1]["mode"], &events[1]["metrics"]), (&json!("full_duplex"), &captured[0]["metrics"]));
    assert_eq!((&events[2]["metrics"]["wall_clock_ms"]), &json!(80.8));
    assert_eq!(
        (&events[8]["metrics"]["cost_llm_ms"], &events[8]["metrics"]["n_tts_tokens"]),
        (&json!(100.0), &json!(25))
    );
    let ids: Vec<&Value> = events[8..15].iter().map(|event| &event["response_id"]).collect();
    assert!(ids.iter().all(|id| *id == ids[0] && id.is_string()), "{ids:?}");
    assert_eq!(lab.text(conn), "I heard 3.0 seconds of speech.");
    let audio = lab.audio(conn);
    assert_eq!(audio.iter().map(Vec::len).collect::<Vec<_>>(), [24_000, 24_000, 14_400]);
    let expected: Vec<f32> = (0..62_400).map(|index| marker(1, index)).collect();
    assert_eq!(audio.concat(), expected);
    assert_eq!(lab.ended(conn), polite());
}

#[test]
fn steps_take_their_time_and_wait_for_each_other() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({}));
    let started = lab.now - lab.started;
    for level in [SPEECH, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0] {
        lab.append(conn, json!({"audio": base64_f32(&[level; 16_000]), "input_id": "burst"}));
    }
    lab.pass(Duration::from_secs(2));
    let steps: Vec<u128> = lab
        .log
        .iter()
        .filter(|(_, at, _)| *at > started)
        .map(|(_, at, _)| (*at - started).as_millis())
        .collect();
    assert_eq!(steps, [80, 160, 240, 490, 490, 740, 740, 990, 990, 990, 1070]);
    assert!(lab.events(conn)[2..].iter().all(|event| event["input_id"] == "burst"));
}

#[test]
fn the_first_units_only_listen() {
    for (backend, config, forced) in [
        (Backend::Pytorch, json!({}), 3),
        (Backend::Pytorch, json!({"force_listen_count": 1}), 3),
        (Backend::Cpp, json!({"force_listen_count": 5}), 5),
    ] {
        let mut lab = Lab::on(backend);
        let conn = lab.duplex(Mode::Audio, json!({"config": config}));
        lab.second(conn, SPEECH);
        let listens = (1..10).take_while(|_| lab.second(conn, 0.0) == ["listen"]).count();
        assert_eq!(listens + 1, forced, "{backend:?} {config}");
    }
}

#[test]
fn forcing_ends_the_turn_and_names_it() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    lab.second(conn, 0.0);
    let turn = lab.last(conn)["response_id"].clone();
    let force = json!({"hints": {"force_listen": true}, "input_id": 7});
    assert_eq!(lab.second_with(conn, SPEECH, force.clone()), ["listen"]);
    assert_eq!((&lab.last(conn)["response_id"], &lab.last(conn)["input_id"]), (&turn, &json!(7)));
    assert_eq!(lab.second_with(conn, SPEECH, force), ["listen"]);
    assert_eq!(lab.last(conn).get("response_id"), None, "the turn was over");
    let chosen = json!({"response_id": "mine"});
    assert_eq!(lab.second_with(conn, 0.0, chosen), ["text", "audio"], "what was said meanwhile is answered");
    assert_eq!(lab.last(conn)["response_id"], "mine");
    assert_eq!(samples(&lab.last(conn))[0], marker(2, 0));
}

#[test]
fn cpp_speaks_its_own_way() {
    let mut lab = Lab::on(Backend::Cpp);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    let id = lab.last(conn)["session_id"].as_str().unwrap().to_owned();
    assert_eq!(lab.last(conn)["response_id"], format!("{id}_resp_6"), "its listening is named too");
    assert_eq!(lab.last(conn)["metrics"].get("n_tokens"), None, "zeros are left out");
    let mut said = String::new();
    for unit in 7..10 {
        let before = lab.events(conn).len();
        let answer = lab.second_with(conn, 0.0, json!({"input_id": "in"}));
        assert_eq!((answer[0].as_str(), answer.last().unwrap().as_str()), ("text", "response.done"));
        assert!(answer.iter().filter(|name| *name == "text").count() > 1, "{answer:?}");
        assert!(!answer.contains(&"listen".to_owned()));
        for event in &lab.events(conn)[before..] {
            assert_eq!(
                (&event["response_id"], event.get("input_id")),
                (&json!(format!("{id}_resp_{unit}")), None)
            );
        }
        let done = lab.last(conn);
        assert_eq!((done.get("audio"), &done["reason"]), (Some(&Value::Null), &json!("turn_end")));
        said.push_str(done["text"].as_str().unwrap());
    }
    assert_eq!((said.as_str(), lab.text(conn).as_str()), ("I heard 3.0 seconds of speech.", said.as_str()));
    let audio = lab.audio(conn);
    assert!(audio.len() > 6 && audio.iter().all(|part| part.len() != 24_000));
    assert_eq!(audio.concat(), (0..62_400).map(|index| marker(1, index)).collect::<Vec<_>>());
    assert_eq!(lab.second(conn, 0.0), ["listen"], "which is the end of the turn");
    lab.close(conn, "user_stop");
    assert_eq!(lab.last(conn)["reason"], "client_closed");
}

#[test]
fn cpp_is_forced_too() {
    let mut lab = Lab::on(Backend::Cpp);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    lab.second(conn, 0.0);
    assert_eq!(lab.second_with(conn, 0.0, json!({"force_listen": true})), ["listen"]);
    assert!(lab.last(conn)["response_id"].as_str().unwrap().ends_with("_resp_8"));
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
}

#[test]
fn the_watchdog_counts_from_the_worker() {
    for (mode, limit) in [(Mode::Audio, 600), (Mode::Video, 300)] {
        let mut lab = Lab::on(Backend::Pytorch);
        let first = lab.session();
        let conn = lab.connect_to(mode);
        lab.pass(Duration::from_secs(50));
        lab.close(first, "x");
        lab.pass(Duration::from_millis(limit * 1000 - 1));
        assert_eq!(lab.last(conn)["type"], "session.queue_done");
        lab.pass(Duration::from_millis(1));
        assert_eq!(lab.last(conn), json!({"type": "session.closed", "reason": "timeout"}));
        assert_eq!(lab.ended(conn), polite());
    }
    let mut lab = Lab::on(Backend::Pytorch);
    let chat = lab.session();
    lab.pass(Duration::from_secs(10_000));
    assert_eq!(lab.ended(chat), None, "chat has no limit");
}

#[test]
fn the_context_grows_and_nobody_minds() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Video, json!({}));
    assert_eq!(lab.kv(conn), 75);
    lab.second(conn, 0.0);
    assert_eq!(lab.kv(conn), 75 + 13);
    lab.second(conn, SPEECH);
    assert_eq!(lab.kv(conn), 75 + 13 + 28);
    let jpeg = "/9j/4AAQSkZJRg==";
    lab.second_with(conn, 0.0, json!({"video_frames": [jpeg, jpeg]}));
    assert_eq!(lab.kv(conn), 75 + 13 + 28 + 13 + 128);
    let metrics = &lab.last(conn)["metrics"];
    assert_eq!((&metrics["vision_slices"], &metrics["vision_tokens"]), (&json!(2), &json!(128)));
    let mut lab = Lab::with_faults(&["kv=8190"]);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.second(conn, 0.0);
    assert_eq!((lab.kv(conn), lab.ended(conn)), (8_203, None));
}

#[test]
fn a_step_is_finished_before_the_end() {
    let mut lab = Lab::on(Backend::Pytorch);
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.append(conn, json!({"audio": speech(16_000)}));
    lab.append(conn, json!({"audio": speech(16_000)}));
    lab.send(conn, &json!({"type": "session.close", "reason": "bye"}));
    lab.pass(Duration::from_millis(79));
    assert_eq!(lab.last(conn)["type"], "session.created");
    lab.pass(Duration::from_millis(1));
    assert_eq!(names(&lab.events(conn))[2..], ["listen", "session.closed"], "what waits is not begun");
    let next = lab.duplex(Mode::Audio, json!({}));
    assert_eq!(lab.last(next)["type"], "session.created");
    lab.append(next, json!({"audio": speech(16_000)}));
    lab.input(SimInput::Closed(next));
    lab.pass(Duration::from_millis(299));
    let refused = lab.connect_to(Mode::Audio);
    assert_eq!(lab.last(refused)["error"]["code"], "session_failed");
}
