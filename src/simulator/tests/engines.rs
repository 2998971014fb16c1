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

/// A full-duplex session that has asked for what the user said.
fn listened(lab: &mut Lab) -> ConnId {
    let conn = lab.duplex(Mode::Audio, json!({}));
    lab.spoken_to(conn);
    assert_eq!(lab.second(conn, 0.0), ["listen"], "while the engines work");
    conn
}

#[test]
fn a_conversation_with_engines() {
    let mut lab = lab();
    let conn = listened(&mut lab);
    let jobs = lab.jobs();
    let [(job, EngineRequest::Recognise(heard))] = &jobs[..] else { panic!("{jobs:?}") };
    let loud = heard.iter().filter(|sample| **sample == 0.1).count();
    assert_eq!((loud, heard.len()), (48_000, 80_000), "all that was said, with a second around it");
    lab.engine(*job, EngineAnswer::Transcript(Ok(" Good morning. ".to_owned())));
    let text = "You said: Good morning.";
    assert_eq!(lab.jobs()[1].1, EngineRequest::Speak(text.to_owned()));
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
    let speech: Vec<f32> = (0..40_000).map(|index| index as f32 / 65_536.0).collect();
    lab.engine(lab.jobs()[1].0, EngineAnswer::Speech(Ok(speech.clone())));
    assert_eq!(lab.second(conn, 0.1), ["listen"], "the user speaks again");
    assert_eq!(lab.second(conn, 0.0), ["text", "audio"]);
    assert_eq!(lab.text(conn), text, "the text is ahead");
    assert_eq!(lab.second(conn, 0.0), ["audio", "listen"]);
    assert_eq!(lab.audio(conn).concat(), speech);
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
    assert!(matches!(&lab.jobs()[2].1, EngineRequest::Recognise(_)), "what was said meanwhile is next");
}

#[test]
fn no_words_are_not_answered_in_full_duplex() {
    let mut lab = lab();
    let conn = listened(&mut lab);
    lab.engine(JobId(1), EngineAnswer::Transcript(Ok(" ".to_owned())));
    assert_eq!(lab.second(conn, 0.0), ["listen"]);
    assert_eq!(lab.jobs().len(), 1);
}

#[test]
fn an_engine_that_fails_ends_full_duplex() {
    for under_way in [false, true] {
        let mut lab = lab();
        let conn = listened(&mut lab);
        if under_way {
            lab.append(conn, json!({"audio": speech(16_000)}));
        }
        lab.engine(JobId(1), EngineAnswer::Transcript(Err("no model".to_owned())));
        lab.pass(Duration::from_secs(1));
        assert_eq!(lab.last(conn)["diagnostic"]["message"], "no model");
        assert_eq!(lab.ended(conn), polite());
    }
}
