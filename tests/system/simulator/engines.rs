//! Answers from speech engines, and the observations for recording.

use super::*;

fn engine_gateway() -> TestGateway {
    TestGateway::new(SimulatorConfig { use_engines: true, record: true, ..SimulatorConfig::default() })
}

#[test]
fn recognition_engine_provides_transcript() {
    let mut sim = engine_gateway();
    let conn = sim.open_chat_session();
    sim.send_append(conn, asr_request(16_000));
    let samples = vec![0.25; 16_000];
    assert!(sim.outputs.contains(&SimOutput::AsrAudio(conn, samples.clone())));
    let jobs = sim.engine_jobs();
    assert_eq!(jobs, [(JobId(1), EngineRequest::Recognise(samples))]);
    sim.advance(Duration::from_secs(5));
    assert_eq!(sim.last_event(conn)["type"], "session.created", "no answer before the engine's");
    sim.answer_job(JobId(1), EngineAnswer::Transcript(Ok("  hello world ".to_owned())));
    sim.advance(Duration::from_secs(1));
    assert_eq!(sim.last_event(conn)["text"], "hello world");
}

#[test]
fn speech_engine_provides_audio() {
    let mut sim = engine_gateway();
    let conn = sim.open_chat_session();
    sim.send_append(conn, tts_request("Good: morning.", true));
    assert_eq!(sim.engine_jobs(), [(JobId(1), EngineRequest::Speak("Good morning.".to_owned()))]);
    sim.answer_job(JobId(1), EngineAnswer::Speech(Ok(vec![0.5; 30_000])));
    sim.advance(Duration::from_secs(5));
    assert_eq!(event_names(&sim.events_of(conn))[2..], ["text", "audio", "audio", "response.done"]);
    assert_eq!(sim.events_of(conn)[4]["audio"], base64_f32(&[0.5; 6_000]));
}

#[test]
fn engine_failure_becomes_backend_error() {
    let mut sim = engine_gateway();
    let conn = sim.open_chat_session();
    sim.send_append(conn, asr_request(16_000));
    sim.answer_job(JobId(1), EngineAnswer::Transcript(Err("no model".to_owned())));
    assert_eq!(sim.last_event(conn)["diagnostic"]["message"], "no model");
    let conn = sim.open_chat_session();
    sim.send_append(conn, tts_request("Hello.", false));
    sim.answer_job(JobId(2), EngineAnswer::Speech(Err("no voice".to_owned())));
    sim.advance(Duration::from_secs(1));
    assert_eq!((&sim.last_event(conn)["text"], sim.last_event(conn).get("audio")), (&json!("Hello."), None));
}

#[test]
fn blank_transcript_fails_as_empty_answer() {
    let mut sim = engine_gateway();
    let conn = sim.open_chat_session();
    sim.send_append(conn, asr_request(16_000));
    sim.answer_job(JobId(1), EngineAnswer::Transcript(Ok(" ".to_owned())));
    sim.advance(Duration::from_secs(1));
    assert_eq!(
        sim.last_event(conn)["diagnostic"]["message"],
        "torch.cat(): expected a non-empty list of Tensors"
    );
}

#[test]
fn orphaned_engine_job_corrupts_next_answer() {
    let mut sim = engine_gateway();
    let first = sim.open_chat_session();
    sim.send_append(first, asr_request(16_000));
    sim.close_session(first, "cancelled");
    let second = sim.open_chat_session();
    sim.send_append(second, asr_request(8_000));
    sim.answer_job(JobId(1), EngineAnswer::Transcript(Ok("stale".to_owned())));
    sim.answer_job(JobId(2), EngineAnswer::Transcript(Ok("fresh".to_owned())));
    sim.advance(Duration::from_secs(5));
    assert_eq!(sim.last_event(second)["text"], format!("{CORRUPTED_PREFIX}fresh"));
    sim.send_append(second, asr_request(8_000));
    sim.answer_job(JobId(3), EngineAnswer::Transcript(Ok("clean".to_owned())));
    sim.advance(Duration::from_secs(5));
    assert_eq!(sim.last_event(second)["text"], "clean");
}

/// A full-duplex session that awaits the transcript of the user's speech.
fn session_awaiting_recognition(sim: &mut TestGateway) -> ConnId {
    let conn = sim.open_duplex_session(SimMode::Audio, json!({}));
    sim.send_user_speech(conn);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"], "while the engines work");
    conn
}

#[test]
fn duplex_conversation_uses_engines() {
    let mut sim = engine_gateway();
    let conn = session_awaiting_recognition(&mut sim);
    let jobs = sim.engine_jobs();
    let [(job, EngineRequest::Recognise(heard))] = &jobs[..] else { panic!("{jobs:?}") };
    let loud = heard.iter().filter(|sample| **sample == 0.1).count();
    assert_eq!((loud, heard.len()), (48_000, 80_000), "all speech, with a second of silence on both sides");
    sim.answer_job(*job, EngineAnswer::Transcript(Ok(" Good morning. ".to_owned())));
    let text = "You said: Good morning.";
    assert_eq!(sim.engine_jobs()[1].1, EngineRequest::Speak(text.to_owned()));
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
    let speech: Vec<f32> = (0..40_000).map(|index| index as f32 / 65_536.0).collect();
    sim.answer_job(sim.engine_jobs()[1].0, EngineAnswer::Speech(Ok(speech.clone())));
    assert_eq!(sim.send_second(conn, 0.1), ["listen"], "the user speaks again");
    assert_eq!(sim.send_second(conn, 0.0), ["text", "audio"]);
    assert_eq!(sim.text_of(conn), text, "the text precedes the audio");
    assert_eq!(sim.send_second(conn, 0.0), ["audio", "listen"]);
    assert_eq!(sim.audio_of(conn).concat(), speech);
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
    assert!(matches!(&sim.engine_jobs()[2].1, EngineRequest::Recognise(_)), "speech in the turn");
}

#[test]
fn blank_transcript_is_not_answered_in_full_duplex() {
    let mut sim = engine_gateway();
    let conn = session_awaiting_recognition(&mut sim);
    sim.answer_job(JobId(1), EngineAnswer::Transcript(Ok(" ".to_owned())));
    assert_eq!(sim.send_second(conn, 0.0), ["listen"]);
    assert_eq!(sim.engine_jobs().len(), 1);
}

#[test]
fn engine_failure_ends_full_duplex_session() {
    for is_in_progress in [false, true] {
        let mut sim = engine_gateway();
        let conn = session_awaiting_recognition(&mut sim);
        if is_in_progress {
            sim.send_append(conn, json!({"audio": speech_base64(16_000)}));
        }
        sim.answer_job(JobId(1), EngineAnswer::Transcript(Err("no model".to_owned())));
        sim.advance(Duration::from_secs(1));
        assert_eq!(sim.last_event(conn)["diagnostic"]["message"], "no model");
        assert_eq!(sim.end_of(conn), normal_close());
    }
}
