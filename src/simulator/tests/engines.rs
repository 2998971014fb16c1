//! Answers that come from engines, and what is reported for recording.

use super::*;
use crate::simulator::{CORRUPTED, EngineRequest};

fn lab() -> Lab {
    Lab::new(SimulatorConfig { engines: true, record: true, ..SimulatorConfig::default() })
}

#[test]
fn recognition_is_asked_and_told() {
    let mut lab = lab();
    let conn = lab.session();
    lab.append(conn, asr(16_000));
    let samples = vec![0.25; 16_000];
    assert!(lab.raw.contains(&SimOutput::Heard(conn, samples.clone())));
    let jobs = lab.jobs();
    assert_eq!(jobs, [(JobId(1), EngineRequest::Recognise(samples))]);
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.last(conn)["type"], "session.created", "nothing before the engine answers");
    lab.engine(JobId(1), EngineAnswer::Transcript(Ok("  hello world ".to_owned())));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.last(conn)["text"], "hello world");
}

#[test]
fn speech_is_asked_and_told() {
    let mut lab = lab();
    let conn = lab.session();
    lab.append(conn, tts("Good: morning.", true));
    assert_eq!(lab.jobs(), [(JobId(1), EngineRequest::Speak("Good morning.".to_owned()))]);
    lab.engine(JobId(1), EngineAnswer::Speech(Ok(vec![0.5; 30_000])));
    lab.pass(Duration::from_secs(5));
    assert_eq!(names(&lab.events(conn))[2..], ["text", "audio", "audio", "response.done"]);
    assert_eq!(lab.events(conn)[4]["audio"], base64_f32(&[0.5; 6_000]));
}

#[test]
fn an_engine_that_fails_is_a_back_end_that_fails() {
    let mut lab = lab();
    let conn = lab.session();
    lab.append(conn, asr(16_000));
    lab.engine(JobId(1), EngineAnswer::Transcript(Err("no model".to_owned())));
    assert_eq!(lab.last(conn)["diagnostic"]["message"], "no model");
    let conn = lab.session();
    lab.append(conn, tts("Hello.", false));
    lab.engine(JobId(2), EngineAnswer::Speech(Err("no voice".to_owned())));
    lab.pass(Duration::from_secs(1));
    assert_eq!((&lab.last(conn)["text"], lab.last(conn).get("audio")), (&json!("Hello."), None));
}

#[test]
fn no_words_are_an_empty_answer() {
    let mut lab = lab();
    let conn = lab.session();
    lab.append(conn, asr(16_000));
    lab.engine(JobId(1), EngineAnswer::Transcript(Ok(" ".to_owned())));
    lab.pass(Duration::from_secs(1));
    assert_eq!(lab.last(conn)["diagnostic"]["message"], "torch.cat(): expected a non-empty list of Tensors");
}

#[test]
fn a_job_outlives_its_session() {
    let mut lab = lab();
    let first = lab.session();
    lab.append(first, asr(16_000));
    lab.close(first, "cancelled");
    let second = lab.session();
    lab.append(second, asr(8_000));
    lab.engine(JobId(1), EngineAnswer::Transcript(Ok("stale".to_owned())));
    lab.engine(JobId(2), EngineAnswer::Transcript(Ok("fresh".to_owned())));
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.last(second)["text"], format!("{CORRUPTED}fresh"));
    lab.append(second, asr(8_000));
    lab.engine(JobId(3), EngineAnswer::Transcript(Ok("clean".to_owned())));
    lab.pass(Duration::from_secs(5));
    assert_eq!(lab.last(second)["text"], "clean");
}
