//! A relayed client: the messages it sends and receives.

use super::{
    harness::{Harness, HarnessConfig, Traffic, recording, zeros},
    *,
};

pub(crate) use super::harness::ms;

/// A relay on the current gateway with these faults.
pub(crate) fn config(query: &str, faults: &[&str]) -> HarnessConfig {
    HarnessConfig { query: query.to_owned(), profile: "relay", ..HarnessConfig::with_faults(faults) }
}

pub(crate) fn cpp_config(query: &str, faults: &[&str]) -> HarnessConfig {
    let mut config = config(query, faults);
    config.simulator.backend = Backend::Cpp;
    config
}

pub(crate) fn connect_current(config: HarnessConfig) -> Harness {
    Harness::new_relay(config, &["minicpm-o"])
}

/// Opens a session of the current dialect.
pub(crate) fn open_session(config: HarnessConfig) -> Harness {
    opened_with(connect_current(config), &init_message())
}

/// A session that this message opens.
pub(crate) fn opened_with(mut harness: Harness, opening: &Value) -> Harness {
    harness.send_json(opening);
    harness.advance(ms(100));
    assert_eq!(harness.names(), ["session.queue_done", "session.created"]);
    harness
}

pub(crate) fn init_message() -> Value {
    json!({"type": "session.init", "payload": {"system_prompt": "You are a helpful assistant."}})
}

pub(crate) fn chat_message(text: &str) -> Value {
    json!({"type": "input.append", "input": {
        "messages": [{"role": "user", "content": text}], "streaming": true, "tts": {"enabled": false}
    }})
}

/// Encodes samples as base64 of raw float32.
pub(crate) fn base64_of(samples: &[i16]) -> String {
    let bytes: Vec<u8> =
        samples.iter().flat_map(|sample| (f32::from(*sample) / 32768.0).to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

/// An append of the legacy dialect.
pub(crate) fn legacy_append_message(samples: &[i16]) -> Value {
    json!({"type": "input_audio_buffer.append", "audio": base64_of(samples)})
}

pub(crate) fn append_message(samples: &[i16]) -> Value {
    json!({"type": "input.append", "input": {"audio": base64_of(samples)}})
}

/// A question and this many seconds of silence for its answer, one second each.
pub(crate) fn question_seconds(silence: usize) -> Vec<Vec<i16>> {
    let mut samples = zeros(3000);
    samples.extend(recording("goforward_16k.wav"));
    samples.resize(samples.len().next_multiple_of(16_000), 0);
    samples.resize(samples.len() + 16_000 * silence, 0);
    samples.chunks(16_000).map(<[i16]>::to_vec).collect()
}

/// Texts the gateway has sent, unchanged.
pub(crate) fn received_texts(harness: &Harness) -> Vec<&str> {
    let received = harness.traffic.iter().filter_map(|(_, traffic)| match traffic {
        Traffic::Received(_, text) => Some(text.as_str()),
        _ => None,
    });
    received.collect()
}

/// Texts the bridge has sent upstream.
pub(crate) fn sent_texts(harness: &Harness) -> Vec<&str> {
    harness.sent_containing("")
}

pub(crate) fn newest_lane(harness: &Harness) -> Lane {
    *harness.lanes().last().unwrap()
}

/// One second of a valid script for either dialect.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ScriptSecond {
    /// The user speaks.
    pub(crate) loud: bool,
    pub(crate) forced: bool,
    /// Pause before the next second, ms.
    pub(crate) pause_ms: u64,
}

pub(crate) fn any_script() -> impl proptest::strategy::Strategy<Value = Vec<ScriptSecond>> {
    use proptest::prelude::*;
    let second =
        (prop::bool::weighted(0.3), prop::bool::weighted(0.1), prop_oneof![Just(1000u64), 0..2000u64]);
    vec(second.prop_map(|(loud, forced, pause_ms)| ScriptSecond { loud, forced, pause_ms }), 1..24)
}

/// A second of audio that is unique in its script.
pub(crate) fn unique_second(at: usize, loud: bool) -> Vec<i16> {
    // Either loud enough to count as speech or far below it.
    let level = if loud { 280 } else { 1 };
    let wave = |sample: usize| ((sample * 7 + at * 13) % 64) as i32 - 32;
    (0..16_000).map(|sample| (wave(sample) * level + at as i32) as i16).collect()
}

/// All text and audio of a session, in either dialect.
pub(crate) fn text_and_audio<'t>(texts: impl Iterator<Item = &'t str>) -> (String, Vec<String>) {
    let (mut words, mut audio) = (String::new(), Vec::new());
    for text in texts {
        let event: Value = serde_json::from_str(text).unwrap();
        if event["type"] == "response.done" {
            continue;
        }
        words.push_str(event["text"].as_str().unwrap_or_default());
        audio.extend(event["audio"].as_str().map(str::to_owned));
    }
    (words, audio)
}
