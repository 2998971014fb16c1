//! OpenAI's Live protocol in front of a conversation, in virtual time.

use std::{collections::BTreeSet, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{CHUNK_SAMPLES, speech};
use crate::harness::{Harness, HarnessConfig, bytes_of};

fn connect() -> Harness {
    Harness::new(HarnessConfig::of("openai-live", "conversation", ""))
}

fn say(harness: &mut Harness, samples: &[i16]) {
    for chunk in samples.chunks(CHUNK_SAMPLES) {
        let audio = STANDARD.encode(bytes_of(chunk));
        harness.send_json(&json!({"type": "session.input_audio.append", "audio": audio}));
        harness.advance(Duration::from_millis(chunk.len() as u64 / 24));
    }
}

/// The newest event of this type. Answers come within a second.
fn last(harness: &mut Harness, kind: &str) -> Value {
    harness.advance(Duration::from_secs(1));
    (*harness.events(kind).last().expect(kind)).clone()
}

fn audio_s(harness: &Harness) -> f64 {
    let bytes = |event: &&Value| STANDARD.decode(event["delta"].as_str().unwrap()).unwrap().len();
    harness.events("session.output_audio.delta").iter().map(bytes).sum::<usize>() as f64 / 48_000.0
}

#[test]
fn live_session_converses() {
    let mut harness = connect();
    assert!(harness.names().is_empty(), "nothing before session.start");
    harness.send_json(&json!({"type": "session.start", "event_id": "mine", "session": {
        "model": "gpt-live-1", "instructions": "Be brief.",
        "audio": {"format": {"type": "audio/pcm", "rate": 24000}, "output": {"voice": "marin"}}}}));
    let started = last(&mut harness, "session.started");
    assert_eq!(started["client_event_id"], "mine");
    assert_eq!(
        (&started["session"]["status"], &started["session"]["model"]),
        (&json!("active"), &json!("gpt-live-1"))
    );
    assert!(started["session"]["id"].is_string() && started["session"]["expires_at"].is_u64());
    say(&mut harness, &speech());
    for _ in 0..150 {
        say(&mut harness, &[0; CHUNK_SAMPLES]);
    }
    assert!(audio_s(&harness) > 0.5, "{} s", audio_s(&harness));
    let words = harness.events("session.output_transcript.delta");
    assert!(
        !words.is_empty() && words.iter().all(|event| event["start_ms"].is_u64() && event["end_ms"].is_u64())
    );
    harness.send_json(&json!({"type": "session.close"}));
    let closed = last(&mut harness, "session.closed");
    assert_eq!(
        (&closed["reason"], &closed["session"]["id"]),
        (&json!("close_requested"), &started["session"]["id"])
    );
    assert!(closed["usage"]["seconds"].as_f64().unwrap() > 15.0);
    let ids: Vec<String> = harness
        .log
        .iter()
        .filter_map(|(_, frame)| match frame {
            crate::harness::ClientFrame::Event(event) => event["event_id"].as_str().map(str::to_owned),
            _ => None,
        })
        .collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "ids are unique");
}

#[test]
fn muted_microphone_is_not_heard_and_bad_messages_are_errors() {
    let mut harness = connect();
    harness.send_json(&json!({"type": "session.input_audio.mute", "event_id": "early"}));
    let error = last(&mut harness, "error")["error"].clone();
    assert_eq!((&error["code"], &error["client_event_id"]), (&json!("invalid_value"), &json!("early")));
    harness.send_json(&json!({"type": "session.start", "session": {"audio": {"format": {"type": "opus"}}}}));
    assert_eq!(last(&mut harness, "error")["error"]["code"], "invalid_value");
    harness.send_json(&json!({"type": "session.start", "session": {}}));
    last(&mut harness, "session.started");
    harness.send_json(&json!({"type": "session.input_audio.mute"}));
    last(&mut harness, "session.input_audio.muted");
    say(&mut harness, &speech());
    harness.advance(Duration::from_secs(10));
    assert_eq!(audio_s(&harness), 0.0, "the model heard a muted microphone");
    harness.send_json(&json!({"type": "session.instructions.append", "content": "hurry"}));
    assert_eq!(last(&mut harness, "session.instructions.appended")["end_ms"], 0);
}

#[test]
fn long_session_is_refused_before_it_becomes_a_tree() {
    let mut harness = connect();
    let elements = vec![r#"{"":0}"#; 100_000].join(",");
    harness.send_text(&format!(r#"{{"type":"session.start","session":{{"input":[{elements}]}}}}"#));
    let step = *harness.steps.last().unwrap();
    let peak = step.cost.bytes_max as usize;
    assert!(peak < 2 * elements.len(), "{peak} bytes to read {} bytes", elements.len());
    assert!(last(&mut harness, "error")["error"]["message"].as_str().unwrap().contains("65536"));
    harness.send_json(&json!({"type": "session.start", "session": {}}));
    last(&mut harness, "session.started");
}
