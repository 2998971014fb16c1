//! The legacy dialect: against the capture (field notes §6.4), the table of §4, and the document.

use super::*;
use crate::{
    audio::wav,
    simulator::{Dialect, Opening, Unit, marker},
};

const SPEECH: f32 = 0.1;

const PROMPT: &str = "You are a helpful English assistant.";

fn config(documented: bool, faults: &[&str]) -> SimulatorConfig {
    SimulatorConfig {
        dialect: Dialect::Legacy { documented },
        faults: faults.iter().map(|text| text.parse::<Fault>().unwrap()).collect(),
        record: true,
        ..SimulatorConfig::default()
    }
}

fn update(session: Value) -> Value {
    json!({"type": "session.update", "session": session})
}

fn append(samples: &[f32]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_f32(samples), "force_listen": false})
}

/// A gateway with a session that is ready.
fn ready(documented: bool, faults: &[&str]) -> (Lab, ConnId) {
    let mut lab = Lab::new(config(documented, faults));
    let conn = lab.connect_to(Mode::Audio);
    tell(&mut lab, conn, &update(json!({"instructions": PROMPT})));
    assert_eq!(lab.last(conn)["type"], "session.created");
    (lab, conn)
}

/// What one message is answered with, within a second.
fn tell(lab: &mut Lab, conn: ConnId, message: &Value) -> Vec<Seen> {
    let before = lab.seen(conn).len();
    lab.send(conn, message);
    lab.pass(Duration::from_secs(1));
    lab.seen(conn).split_off(before)
}

fn second(lab: &mut Lab, conn: ConnId, level: f32) -> Vec<Seen> {
    tell(lab, conn, &append(&[level; 16_000]))
}

/// Listens, hears three seconds and falls silent: the next silent second starts the turn.
fn spoken_to(lab: &mut Lab, conn: ConnId) {
    for level in [0.0, 0.0, 0.0, SPEECH, SPEECH, SPEECH] {
        assert!(
            matches!(&second(lab, conn, level)[..], [Seen::Event(it)] if it["type"] == "response.listen")
        );
    }
}

fn error(code: &str, message: &str, whose: &str) -> Seen {
    Seen::Event(json!({"type": "error", "error": {"code": code, "message": message, "type": whose}}))
}

fn closed(reason: &str) -> Seen {
    Seen::Event(json!({"type": "session.closed", "reason": reason}))
}

fn keys(event: &Value) -> Vec<&str> {
    event.as_object().unwrap().keys().map(String::as_str).collect()
}

const BAD_JSON: Seen = Seen::Close(1003, String::new());

fn is_unsupported(seen: &[Seen]) -> bool {
    matches!(seen, [Seen::Close(code, _)] if Seen::Close(*code, String::new()) == BAD_JSON)
}

#[test]
fn as_captured() {
    let (mut lab, conn) = ready(false, &[]);
    let events = lab.events(conn);
    assert_eq!(events[0], json!({"type": "session.queue_done"}));
    let created = &events[1];
    assert_eq!((keys(created).len(), &created["prompt_length"]), (3, &json!(94)));
    let id = created["session_id"].as_str().unwrap();
    assert!(id.strip_prefix("rt_").is_some_and(|ms| ms.len() == 13 && ms.parse::<u64>().is_ok()), "{id}");
    spoken_to(&mut lab, conn);
    let (mut deltas, mut last) = (Vec::new(), lab.last(conn)["kv_cache_length"].as_u64().unwrap());
    for _ in 0..4 {
        let [Seen::Event(event)] = &second(&mut lab, conn, 0.0)[..] else { panic!("one answer each") };
        let tokens = event["kv_cache_length"].as_u64().unwrap();
        assert!(tokens > last, "{tokens} after {last}");
        (last, deltas) = (tokens, [deltas, vec![event.clone()]].concat());
    }
    let listen = deltas.pop().unwrap();
    assert_eq!(
        (keys(&listen), &listen["type"]),
        (vec!["kv_cache_length", "type"], &json!("response.listen"))
    );
    let expected =
        [("I heard ", 24_000, false), ("3.0 seconds ", 24_000, false), ("of speech.", 14_400, true)];
    let mut at = 0;
    for (delta, (text, samples, end)) in deltas.iter().zip(expected) {
        assert_eq!(keys(delta), ["audio", "end_of_turn", "kv_cache_length", "text", "type"]);
        assert_eq!((&delta["type"], &delta["text"]), (&json!("response.output_audio.delta"), &json!(text)));
        let heard = duplex::samples(delta);
        assert_eq!((heard.len(), &delta["end_of_turn"]), (samples, &json!(end)));
        assert!(heard.iter().enumerate().all(|(index, sample)| *sample == marker(1, at + index)));
        at += heard.len();
    }
    let close = json!({"type": "session.close", "reason": "user_stop"});
    assert_eq!(tell(&mut lab, conn, &close), [closed("stopped"), Seen::Drop]);
    // The gateway waits for a worker that is still busy with the last one: nobody is refused.
    let next = lab.connect_to(Mode::Audio);
    assert_eq!(lab.events(next), [json!({"type": "session.queue_done"})]);
}

#[test]
fn what_a_client_does_wrong_is_forgiven_or_breaks_the_connection() {
    let failed = |message: &str| vec![error("inference_failed", message, "server_error")];
    let mut lab = Lab::new(config(false, &[]));
    let conn = lab.connect_to(Mode::Audio);
    let early = tell(&mut lab, conn, &append(&[0.0; 16_000]));
    assert_eq!(early, failed("Streaming processor not initialized"));
    for (message, answer) in [
        (json!({"type": "input_audio_buffer.append"}), failed("Missing audio_base64")),
        (json!({"type": "input_audio_buffer.append", "audio": ""}), failed("Missing audio_base64")),
        (json!({"type": "response.cancel"}), Vec::new()),
        (json!({"type": "pause"}), Vec::new()),
        (json!({"x": 1}), Vec::new()),
    ] {
        let (mut lab, conn) = ready(false, &[]);
        assert_eq!(tell(&mut lab, conn, &message), answer, "{message}");
        spoken_to(&mut lab, conn);
    }
    for message in [
        json!([]),
        json!({"type": "input_audio_buffer.append", "audio": "A"}),
        json!({"type": "input_audio_buffer.append", "audio": "AAAA"}),
        update(json!({"ref_audio": "AAAA"})),
        update(json!({"voice_config": {"temperature": 9}})),
    ] {
        let (mut lab, conn) = ready(false, &[]);
        assert_eq!(tell(&mut lab, conn, &message), [Seen::Drop], "{message}");
    }
    let (mut lab, conn) = ready(false, &[]);
    lab.input(SimInput::Binary(conn));
    assert_eq!(lab.ended(conn), Some(Seen::Drop));
}

#[test]
fn the_document_has_a_code_for_everything() {
    let client = |code: &str, seen: &[Seen]| {
        let [Seen::Event(event)] = seen else { panic!("{code}: {seen:?}") };
        assert_eq!(
            (&event["error"]["code"], &event["error"]["type"]),
            (&json!(code), &json!("client_error"))
        );
    };
    let mut lab = Lab::new(config(true, &[]));
    let conn = lab.connect_to(Mode::Audio);
    client("not_ready", &tell(&mut lab, conn, &append(&[0.0; 16_000])));
    client("missing_field", &tell(&mut lab, conn, &update(json!({}))));
    client(
        "invalid_payload",
        &tell(&mut lab, conn, &update(json!({"instructions": "p", "ref_audio": "AAAA"}))),
    );
    tell(&mut lab, conn, &update(json!({"instructions": "p"})));
    assert_eq!(lab.last(conn)["type"], "session.created");
    for (message, code) in [
        (json!({"type": "input_audio_buffer.append"}), "missing_field"),
        (json!({"type": "input_audio_buffer.append", "audio": "A"}), "invalid_payload"),
        (append(&[0.0; 3_999]), "invalid_payload"),
        (json!({"type": "response.cancel"}), "unknown_event"),
        (json!({"x": 1}), "missing_field"),
        (update(json!({"instructions": "p"})), "unknown_event"),
    ] {
        client(code, &tell(&mut lab, conn, &message));
    }
    spoken_to(&mut lab, conn);
    let close = json!({"type": "session.close", "reason": "user_stop"});
    assert_eq!(tell(&mut lab, conn, &close), [closed("stopped"), polite().unwrap()]);
    let (mut lab, conn) = ready(true, &[]);
    assert!(is_unsupported(&tell(&mut lab, conn, &json!([]))));
    let (mut lab, conn) = ready(true, &[]);
    lab.input(SimInput::Binary(conn));
    assert!(is_unsupported(&lab.seen(conn)[2..]));
}

#[test]
fn by_the_document_a_turn_begins_with_less_than_a_second_and_loses_nothing() {
    let (mut lab, conn) = ready(true, &[]);
    spoken_to(&mut lab, conn);
    let (mut heard, mut lengths) = (Vec::new(), Vec::new());
    loop {
        let [Seen::Event(delta)] = &second(&mut lab, conn, 0.0)[..] else { panic!("one answer each") };
        let samples = duplex::samples(delta);
        lengths.push(samples.len());
        heard.extend(samples);
        if delta["end_of_turn"] == true {
            break;
        }
    }
    assert_eq!(lengths, [12_000, 24_000, 24_000, 2_400]);
    assert!(heard.iter().enumerate().all(|(index, sample)| *sample == marker(1, index)));
}

#[test]
fn an_update_may_come_early_and_again() {
    let mut lab = Lab::new(config(false, &["stuck-queue,times=1"]));
    let waiting = lab.connect_to(Mode::Audio);
    assert_eq!(lab.last(waiting)["type"], "session.queued");
    let (mut lab, conn) = ready(false, &[]);
    spoken_to(&mut lab, conn);
    let again = tell(&mut lab, conn, &update(json!({})));
    assert!(matches!(&again[..], [Seen::Event(event)] if event["type"] == "session.created"), "{again:?}");
    spoken_to(&mut lab, conn);

    let mut lab = Lab::new(config(false, &[]));
    let first = lab.connect_to(Mode::Audio);
    let queued = lab.connect_to(Mode::Audio);
    lab.send(queued, &update(json!({"instructions": "p"})));
    lab.input(SimInput::Closed(first));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.last(queued)["type"], "session.created", "kept until there is a worker");
}

#[test]
fn force_listen_in_the_middle_of_a_turn_is_answered_by_listening() {
    for documented in [false, true] {
        let (mut lab, conn) = ready(documented, &[]);
        spoken_to(&mut lab, conn);
        second(&mut lab, conn, 0.0);
        let mut forced = append(&[0.0; 16_000]);
        forced["force_listen"] = true.into();
        for message in [&forced, &append(&[0.0; 16_000])] {
            let seen = tell(&mut lab, conn, message);
            assert!(
                matches!(&seen[..], [Seen::Event(event)] if event["type"] == "response.listen"),
                "{seen:?}"
            );
        }
    }
}

#[test]
fn voices_are_raw_samples_or_files_and_never_both() {
    let voice: Vec<i16> = (0..3_201).map(|at| at * 9).collect();
    let raw: Vec<f32> = voice.iter().map(|sample| crate::audio::pcm::to_f32(*sample)).collect();
    let file =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, wav::write_s16(&voice, 16_000));
    for (documented, taken, refused) in
        [(false, base64_f32(&raw), file.clone()), (true, file, base64_f32(&raw))]
    {
        let open = |reference: &str| {
            let mut lab = Lab::new(config(documented, &[]));
            let conn = lab.connect_to(Mode::Video);
            let session = json!({"instructions": "p", "ref_audio": reference, "tts_ref_audio": reference});
            let seen = tell(&mut lab, conn, &update(session));
            (lab.openings(), seen)
        };
        let (openings, _) = open(&taken);
        let [Opening { sees: true, voice: Some(heard), .. }] = &openings[..] else { panic!("{openings:?}") };
        assert_eq!(*heard, raw);
        let (openings, seen) = open(&refused);
        assert_eq!(openings, []);
        match documented {
            false => assert_eq!(seen, [Seen::Drop]),
            true => assert!(
                matches!(&seen[..], [Seen::Event(event)] if event["error"]["code"] == "invalid_payload")
            ),
        }
    }
}

#[test]
fn a_full_context_ends_nothing_but_by_the_document() {
    for documented in [false, true] {
        let (mut lab, conn) = ready(documented, &["context-full=120", "timeout=20"]);
        let mut seen = Vec::new();
        while lab.ended(conn).is_none() {
            seen.extend(second(&mut lab, conn, 0.0));
        }
        let full = seen.iter().position(|seen| *seen == closed("context_full")).unwrap();
        if documented {
            assert_eq!(seen[full + 1..], [polite().unwrap()]);
        } else {
            let answers = &seen[full + 1..seen.len() - 1];
            assert!(answers.len() > 10, "it goes on: {answers:?}");
            assert!(
                answers.iter().all(|seen| matches!(seen, Seen::Event(it) if it["type"] == "response.listen"))
            );
            assert_eq!(seen.last(), Some(&Seen::Drop), "and ends without a word");
        }
    }
}

#[test]
fn time_is_up_with_a_word() {
    for (documented, end) in [(false, Seen::Drop), (true, polite().unwrap())] {
        for (mode, seconds) in [(Mode::Audio, 600), (Mode::Video, 300)] {
            let mut lab = Lab::new(config(documented, &[]));
            let conn = lab.connect_to(mode);
            lab.pass(Duration::from_secs(seconds - 1));
            assert_eq!(lab.ended(conn), None);
            lab.pass(Duration::from_secs(2));
            assert_eq!(lab.seen(conn)[1..], [closed("timeout"), end.clone()]);
        }
    }
}

#[test]
fn a_step_that_fails_is_told_and_ends_nothing() {
    for (documented, code) in [(false, "inference_failed"), (true, "inference_error")] {
        let (mut lab, conn) = ready(documented, &["inference-fails,times=2"]);
        for _ in 0..2 {
            let seen = second(&mut lab, conn, 0.0);
            assert_eq!(seen, [error(code, "simulated: the step failed", "server_error")]);
        }
        spoken_to(&mut lab, conn);
        let unit = |output: &SimOutput| matches!(output, SimOutput::Unit(_, Unit { frames: 0, .. }));
        assert_eq!(lab.raw.iter().filter(|output| unit(output)).count(), 8, "all were heard");
    }
}

#[test]
fn who_dies_says_so_by_the_document_only() {
    for fault in ["die-before-created", "die-mid-turn=1"] {
        for (documented, expected) in
            [(false, vec![Seen::Drop]), (true, vec![closed("error"), polite().unwrap()])]
        {
            let mut lab = Lab::new(config(documented, &[fault]));
            let conn = lab.connect_to(Mode::Audio);
            let mut seen = tell(&mut lab, conn, &update(json!({"instructions": "p"})));
            if fault != "die-before-created" {
                spoken_to(&mut lab, conn);
                second(&mut lab, conn, 0.0);
                seen = second(&mut lab, conn, 0.0);
            }
            assert_eq!(seen, expected, "{fault}");
        }
    }
}

#[test]
fn queues_are_full_and_workers_busy_as_ever() {
    for documented in [false, true] {
        let refused = if documented { "worker_connect_failed" } else { "worker_busy" };
        for (fault, code) in
            [("queue-full", "queue_full"), ("busy", "worker_busy"), ("403-after-queue", refused)]
        {
            let mut lab = Lab::new(config(documented, &[fault]));
            let conn = lab.connect_to(Mode::Audio);
            assert_eq!(lab.last(conn)["error"]["code"], code);
            assert!(matches!(lab.ended(conn), Some(Seen::Close(1013, _))), "{fault}");
        }
    }
}

#[test]
fn every_mode_but_video_is_audio_and_by_the_document_there_are_two() {
    let (real, book) = (Dialect::Legacy { documented: false }, Dialect::Legacy { documented: true });
    for dialect in [real, book] {
        assert_eq!(dialect.decide(Some("mode=video")), Ok(Mode::Video));
        assert_eq!(dialect.decide(Some("x=1&mode=audio")), Ok(Mode::Audio));
        assert_eq!(dialect.decide(None), Ok(Mode::Audio));
    }
    for query in ["mode=chat", "mode=Video", "mode="] {
        assert_eq!(real.decide(Some(query)), Ok(Mode::Audio), "{query}");
        assert_eq!(book.decide(Some(query)).unwrap_err().status, 403, "{query}");
    }
}
