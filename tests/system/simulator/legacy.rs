//! The legacy dialect, compared with the capture (mappings/notes/minicpm-o-legacy.md#exchange), the table of
//! mappings/notes/minicpm-o-legacy.md#faults and the document.

use voxbridge::simulator::DuplexUnit;

use super::{duplex::field_names, *};

const SPEECH_LEVEL: f32 = 0.1;

const PROMPT: &str = "You are a helpful English assistant.";

fn config(follows_document: bool, faults: &[&str]) -> SimulatorConfig {
    SimulatorConfig {
        dialect: SimDialect::Legacy { follows_document },
        faults: faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect(),
        record: true,
        ..SimulatorConfig::default()
    }
}

fn session_update(session: Value) -> Value {
    json!({"type": "session.update", "session": session})
}

fn audio_append(samples: &[f32]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_f32(samples), "force_listen": false})
}

/// A gateway with a ready session.
fn ready_session(follows_document: bool, faults: &[&str]) -> (TestGateway, ConnId) {
    let mut sim = TestGateway::new(config(follows_document, faults));
    let conn = sim.connect_with_mode(SimMode::Audio);
    exchange(&mut sim, conn, &session_update(json!({"instructions": PROMPT})));
    assert_eq!(sim.last_event(conn)["type"], "session.created");
    (sim, conn)
}

/// The answers to one message within a second.
fn exchange(sim: &mut TestGateway, conn: ConnId, message: &Value) -> Vec<ServerOutput> {
    let before = sim.outputs_of(conn).len();
    sim.send(conn, message);
    sim.advance(Duration::from_secs(1));
    sim.outputs_of(conn).split_off(before)
}

fn send_second(sim: &mut TestGateway, conn: ConnId, level: f32) -> Vec<ServerOutput> {
    exchange(sim, conn, &audio_append(&[level; 16_000]))
}

/// Silence, three seconds of speech, then silence: the next silent second starts the turn.
fn send_user_speech(sim: &mut TestGateway, conn: ConnId) {
    for level in [0.0, 0.0, 0.0, SPEECH_LEVEL, SPEECH_LEVEL, SPEECH_LEVEL] {
        assert!(
            matches!(&send_second(sim, conn, level)[..], [ServerOutput::Event(it)] if it["type"] == "response.listen")
        );
    }
}

fn error_event(code: &str, message: &str, error_type: &str) -> ServerOutput {
    ServerOutput::Event(
        json!({"type": "error", "error": {"code": code, "message": message, "type": error_type}}),
    )
}

fn closed_event(reason: &str) -> ServerOutput {
    ServerOutput::Event(json!({"type": "session.closed", "reason": reason}))
}

const UNSUPPORTED_DATA: ServerOutput = ServerOutput::Close(1003, String::new());

fn is_unsupported(outputs: &[ServerOutput]) -> bool {
    matches!(outputs, [ServerOutput::Close(code, _)] if ServerOutput::Close(*code, String::new()) == UNSUPPORTED_DATA)
}

#[test]
fn session_matches_capture() {
    let (mut sim, conn) = ready_session(false, &[]);
    let events = sim.events_of(conn);
    assert_eq!(events[0], json!({"type": "session.queue_done"}));
    let created = &events[1];
    assert_eq!((field_names(created).len(), &created["prompt_length"]), (3, &json!(94)));
    let id = created["session_id"].as_str().unwrap();
    assert!(id.strip_prefix("rt_").is_some_and(|ms| ms.len() == 13 && ms.parse::<u64>().is_ok()), "{id}");
    send_user_speech(&mut sim, conn);
    let (mut deltas, mut last) = (Vec::new(), sim.last_event(conn)["kv_cache_length"].as_u64().unwrap());
    for _ in 0..4 {
        let [ServerOutput::Event(event)] = &send_second(&mut sim, conn, 0.0)[..] else {
            panic!("expected one answer each")
        };
        let tokens = event["kv_cache_length"].as_u64().unwrap();
        assert!(tokens > last, "{tokens} after {last}");
        (last, deltas) = (tokens, [deltas, vec![event.clone()]].concat());
    }
    let listen = deltas.pop().unwrap();
    assert_eq!(listen, json!({"kv_cache_length": listen["kv_cache_length"], "type": "response.listen"}));
    let expected =
        [("I heard ", 24_000, false), ("3.0 seconds ", 24_000, false), ("of speech.", 14_400, true)];
    let mut at = 0;
    for (delta, (text, samples, end)) in deltas.iter().zip(expected) {
        assert_eq!(field_names(delta), ["audio", "end_of_turn", "kv_cache_length", "text", "type"]);
        assert_eq!((&delta["type"], &delta["text"]), (&json!("response.output_audio.delta"), &json!(text)));
        let audio = decode_audio(delta);
        assert_eq!((audio.len(), &delta["end_of_turn"]), (samples, &json!(end)));
        assert!(audio.iter().enumerate().all(|(index, sample)| *sample == watermark_sample(1, at + index)));
        at += audio.len();
    }
    let close = json!({"type": "session.close", "reason": "user_stop"});
    assert_eq!(exchange(&mut sim, conn, &close), [closed_event("stopped"), ServerOutput::Abort]);
    // The gateway waits for a worker that is still busy with the last session and rejects no client.
    let next = sim.connect_with_mode(SimMode::Audio);
    assert_eq!(sim.events_of(next), [json!({"type": "session.queue_done"})]);
}

#[test]
fn client_errors_are_forgiven_or_abort_connection() {
    let failed = |message: &str| vec![error_event("inference_failed", message, "server_error")];
    let mut sim = TestGateway::new(config(false, &[]));
    let conn = sim.connect_with_mode(SimMode::Audio);
    let early = exchange(&mut sim, conn, &audio_append(&[0.0; 16_000]));
    assert_eq!(early, failed("Streaming processor not initialized"));
    for (message, answer) in [
        (json!({"type": "input_audio_buffer.append"}), failed("Missing audio_base64")),
        (json!({"type": "input_audio_buffer.append", "audio": ""}), failed("Missing audio_base64")),
        (json!({"type": "response.cancel"}), Vec::new()),
        (json!({"type": "pause"}), Vec::new()),
        (json!({"x": 1}), Vec::new()),
    ] {
        let (mut sim, conn) = ready_session(false, &[]);
        assert_eq!(exchange(&mut sim, conn, &message), answer, "{message}");
        send_user_speech(&mut sim, conn);
    }
    for message in [
        json!([]),
        json!({"type": "input_audio_buffer.append", "audio": "A"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAA"}),
        json!({"type": "input_audio_buffer.append", "audio": base64_f32(&[0.0; 16_000]), "video_frames": ["AAA"]}),
        session_update(json!({"ref_audio": "AAAA"})),
        session_update(json!({"voice_config": {"temperature": 9}})),
    ] {
        let (mut sim, conn) = ready_session(false, &[]);
        assert_eq!(exchange(&mut sim, conn, &message), [ServerOutput::Abort], "{message}");
    }
    let (mut sim, conn) = ready_session(false, &[]);
    sim.input(SimInput::Binary(conn));
    assert_eq!(sim.end_of(conn), Some(ServerOutput::Abort));
}

#[test]
fn documented_server_answers_client_errors_with_codes() {
    let client = |code: &str, outputs: &[ServerOutput]| {
        let [ServerOutput::Event(event)] = outputs else { panic!("{code}: {outputs:?}") };
        assert_has(event, json!({"/error/code": code, "/error/type": "client_error"}));
    };
    let mut sim = TestGateway::new(config(true, &[]));
    let conn = sim.connect_with_mode(SimMode::Audio);
    client("not_ready", &exchange(&mut sim, conn, &audio_append(&[0.0; 16_000])));
    client("missing_field", &exchange(&mut sim, conn, &session_update(json!({}))));
    client(
        "invalid_payload",
        &exchange(&mut sim, conn, &session_update(json!({"instructions": "p", "ref_audio": "AAAA"}))),
    );
    exchange(&mut sim, conn, &session_update(json!({"instructions": "p"})));
    assert_eq!(sim.last_event(conn)["type"], "session.created");
    for (message, code) in [
        (json!({"type": "input_audio_buffer.append"}), "missing_field"),
        (json!({"type": "input_audio_buffer.append", "audio": "A"}), "invalid_payload"),
        (audio_append(&[0.0; 3_999]), "invalid_payload"),
        (json!({"type": "response.cancel"}), "unknown_event"),
        (json!({"x": 1}), "missing_field"),
        (session_update(json!({"instructions": "p"})), "unknown_event"),
    ] {
        client(code, &exchange(&mut sim, conn, &message));
    }
    send_user_speech(&mut sim, conn);
    let close = json!({"type": "session.close", "reason": "user_stop"});
    assert_eq!(exchange(&mut sim, conn, &close), [closed_event("stopped"), normal_close().unwrap()]);
    let (mut sim, conn) = ready_session(true, &[]);
    assert!(is_unsupported(&exchange(&mut sim, conn, &json!([]))));
    let (mut sim, conn) = ready_session(true, &[]);
    sim.input(SimInput::Binary(conn));
    assert!(is_unsupported(&sim.outputs_of(conn)[2..]));
}

#[test]
fn documented_turn_starts_with_short_unit_and_loses_nothing() {
    let (mut sim, conn) = ready_session(true, &[]);
    send_user_speech(&mut sim, conn);
    let (mut heard, mut lengths) = (Vec::new(), Vec::new());
    loop {
        let [ServerOutput::Event(delta)] = &send_second(&mut sim, conn, 0.0)[..] else {
            panic!("expected one answer each")
        };
        let samples = decode_audio(delta);
        lengths.push(samples.len());
        heard.extend(samples);
        if delta["end_of_turn"] == true {
            break;
        }
    }
    assert_eq!(lengths, [12_000, 24_000, 24_000, 2_400]);
    assert!(heard.iter().enumerate().all(|(index, sample)| *sample == watermark_sample(1, index)));
}

#[test]
fn session_update_may_come_early_and_again() {
    let mut sim = TestGateway::new(config(false, &["stuck-queue,times=1"]));
    let waiting = sim.connect_with_mode(SimMode::Audio);
    assert_eq!(sim.last_event(waiting)["type"], "session.queued");
    let (mut sim, conn) = ready_session(false, &[]);
    send_user_speech(&mut sim, conn);
    let second = exchange(&mut sim, conn, &session_update(json!({})));
    assert!(
        matches!(&second[..], [ServerOutput::Event(event)] if event["type"] == "session.created"),
        "{second:?}"
    );
    send_user_speech(&mut sim, conn);

    let mut sim = TestGateway::new(config(false, &[]));
    let first = sim.connect_with_mode(SimMode::Audio);
    let queued = sim.connect_with_mode(SimMode::Audio);
    sim.send(queued, &session_update(json!({"instructions": "p"})));
    sim.input(SimInput::Closed(first));
    sim.advance(Duration::from_secs(1));
    assert_eq!(sim.last_event(queued)["type"], "session.created", "kept until there is a worker");
}

#[test]
fn force_listen_mid_turn_is_answered_by_listen() {
    for follows_document in [false, true] {
        let (mut sim, conn) = ready_session(follows_document, &[]);
        send_user_speech(&mut sim, conn);
        send_second(&mut sim, conn, 0.0);
        let mut forced = audio_append(&[0.0; 16_000]);
        forced["force_listen"] = true.into();
        for message in [&forced, &audio_append(&[0.0; 16_000])] {
            let outputs = exchange(&mut sim, conn, message);
            assert!(
                matches!(&outputs[..], [ServerOutput::Event(event)] if event["type"] == "response.listen"),
                "{outputs:?}"
            );
        }
    }
}

#[test]
fn voice_encoding_depends_on_server_kind() {
    let voice: Vec<i16> = (0..3_201).map(|at| at * 9).collect();
    let raw: Vec<f32> = voice.iter().map(|sample| voxbridge::audio::pcm::to_f32(*sample)).collect();
    let file = STANDARD.encode(wav::write_s16(&voice, 16_000));
    for (follows_document, taken, refused) in
        [(false, base64_f32(&raw), file.clone()), (true, file, base64_f32(&raw))]
    {
        let open = |reference: &str| {
            let mut sim = TestGateway::new(config(follows_document, &[]));
            let conn = sim.connect_with_mode(SimMode::Video);
            let session = json!({"instructions": "p", "ref_audio": reference, "tts_ref_audio": reference});
            let outputs = exchange(&mut sim, conn, &session_update(session));
            (sim.duplex_openings(), outputs)
        };
        let (openings, _) = open(&taken);
        let [DuplexOpening { has_video: true, voice: Some(voice), .. }] = &openings[..] else {
            panic!("{openings:?}")
        };
        assert_eq!(*voice, raw);
        let (openings, outputs) = open(&refused);
        assert_eq!(openings, []);
        match follows_document {
            false => assert_eq!(outputs, [ServerOutput::Abort]),
            true => assert!(
                matches!(&outputs[..], [ServerOutput::Event(event)] if event["error"]["code"] == "invalid_payload")
            ),
        }
    }
}

#[test]
fn full_context_ends_only_documented_session() {
    for follows_document in [false, true] {
        let (mut sim, conn) = ready_session(follows_document, &["context-full=120", "timeout=20"]);
        let mut outputs = Vec::new();
        while sim.end_of(conn).is_none() {
            outputs.extend(send_second(&mut sim, conn, 0.0));
        }
        let full = outputs.iter().position(|output| *output == closed_event("context_full")).unwrap();
        if follows_document {
            assert_eq!(outputs[full + 1..], [normal_close().unwrap()]);
        } else {
            let answers = &outputs[full + 1..outputs.len() - 1];
            assert!(answers.len() > 10, "the documented session ended early: {answers:?}");
            assert!(
                answers.iter().all(
                    |output| matches!(output, ServerOutput::Event(it) if it["type"] == "response.listen")
                )
            );
            assert_eq!(outputs.last(), Some(&ServerOutput::Abort), "the session ends without a close frame");
        }
    }
}

#[test]
fn time_limit_sends_session_closed() {
    for (follows_document, end) in [(false, ServerOutput::Abort), (true, normal_close().unwrap())] {
        for (mode, seconds) in [(SimMode::Audio, 600), (SimMode::Video, 300)] {
            let mut sim = TestGateway::new(config(follows_document, &[]));
            let conn = sim.connect_with_mode(mode);
            sim.advance(Duration::from_secs(seconds - 1));
            assert_eq!(sim.end_of(conn), None);
            sim.advance(Duration::from_secs(2));
            assert_eq!(sim.outputs_of(conn)[1..], [closed_event("timeout"), end.clone()]);
        }
    }
}

#[test]
fn failed_step_sends_error_and_session_continues() {
    for (follows_document, code) in [(false, "inference_failed"), (true, "inference_error")] {
        let (mut sim, conn) = ready_session(follows_document, &["inference-fails,times=2"]);
        for _ in 0..2 {
            let outputs = send_second(&mut sim, conn, 0.0);
            assert_eq!(outputs, [error_event(code, "simulated: the step failed", "server_error")]);
        }
        send_user_speech(&mut sim, conn);
        let unit = |output: &SimOutput| {
            matches!(output, SimOutput::DuplexUnit(_, DuplexUnit { frame_count: 0, .. }))
        };
        assert_eq!(sim.outputs.iter().filter(|output| unit(output)).count(), 8, "all units were received");
    }
}

#[test]
fn dying_backend_is_announced_by_documented_server_only() {
    for fault in ["die-before-created", "die-mid-turn=1"] {
        for (follows_document, expected) in
            [(false, vec![ServerOutput::Abort]), (true, vec![closed_event("error"), normal_close().unwrap()])]
        {
            let mut sim = TestGateway::new(config(follows_document, &[fault]));
            let conn = sim.connect_with_mode(SimMode::Audio);
            let mut outputs = exchange(&mut sim, conn, &session_update(json!({"instructions": "p"})));
            if fault != "die-before-created" {
                send_user_speech(&mut sim, conn);
                send_second(&mut sim, conn, 0.0);
                outputs = send_second(&mut sim, conn, 0.0);
            }
            assert_eq!(outputs, expected, "{fault}");
        }
    }
}

#[test]
fn queue_full_and_busy_are_reported() {
    for follows_document in [false, true] {
        let refused = if follows_document { "worker_connect_failed" } else { "worker_busy" };
        for (fault, code) in
            [("queue-full", "queue_full"), ("busy", "worker_busy"), ("403-after-queue", refused)]
        {
            let mut sim = TestGateway::new(config(follows_document, &[fault]));
            let conn = sim.connect_with_mode(SimMode::Audio);
            assert_eq!(sim.last_event(conn)["error"]["code"], code);
            assert!(matches!(sim.end_of(conn), Some(ServerOutput::Close(1013, _))), "{fault}");
        }
    }
}

#[test]
fn unknown_mode_is_audio_or_rejected_by_document() {
    let (real, book) =
        (SimDialect::Legacy { follows_document: false }, SimDialect::Legacy { follows_document: true });
    for dialect in [real, book] {
        assert_eq!(dialect.parse_mode(Some("mode=video")), Ok(SimMode::Video));
        assert_eq!(dialect.parse_mode(Some("x=1&mode=audio")), Ok(SimMode::Audio));
        assert_eq!(dialect.parse_mode(None), Ok(SimMode::Audio));
    }
    for query in ["mode=chat", "mode=Video", "mode="] {
        assert_eq!(real.parse_mode(Some(query)), Ok(SimMode::Audio), "{query}");
        assert_eq!(book.parse_mode(Some(query)).unwrap_err().status, 403, "{query}");
    }
}
