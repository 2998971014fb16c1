//! Clients that read slowly, and models that are far faster than playback: every sample arrives, or the answer ends where the
//! audio broke off. No upstream is blamed for its client.

use super::*;

/// Bytes of a second of speech, as this many clients read it.
const PLAYBACK_BYTES: u64 = 48_000;

/// A text of two minutes of speech.
fn long_text() -> String {
    "The quick brown fox jumps over the lazy dog, and then it goes home to have a rest. ".repeat(30)
}

/// True if an upstream was blamed for something.
fn is_upstream_blamed(harness: &Harness) -> bool {
    let is_blame = |observation: &Observation| {
        matches!(observation, Observation::LaneFailed { .. } | Observation::AskedAgain(_))
    };
    harness.observations.iter().any(is_blame)
}

fn rest() -> HarnessConfig {
    HarnessConfig::of("rest", "speech", "")
}

/// Speaks a text in a session of a REST request whose client reads this many bytes a second. Returns the session at its end.
fn speak(config: HarnessConfig, rate: u64, waits_max_bytes: usize) -> Harness {
    let mut harness = Harness::new(config);
    harness.reader.waits_max_bytes = waits_max_bytes;
    harness.set_reading_rate(rate);
    harness.send_json(&json!({"type": "speak", "text": long_text()}));
    harness.send_json(&json!({"type": "finish"}));
    harness.wait_until(Harness::is_closed, secs(7200));
    harness
}

#[test]
fn speech_arrives_whole_at_any_pace_of_reading() {
    let whole = speak(rest(), u64::MAX >> 32, usize::MAX).audio();
    assert!(whole.len() > 24_000 * 100, "{} s", whole.len() / 24_000);
    for (rate, waits_max_bytes) in [
        (PLAYBACK_BYTES / 2, 32 << 20),
        (PLAYBACK_BYTES * 21 / 20, 32 << 20),
        // The server has little memory, so that lanes are held.
        (PLAYBACK_BYTES / 8, 1 << 20),
        (PLAYBACK_BYTES, 1 << 20),
    ] {
        let harness = speak(rest(), rate, waits_max_bytes);
        assert!(harness.audio() == whole, "{rate} bytes/s: {} samples", harness.audio().len());
        assert!(!is_upstream_blamed(&harness), "{rate} bytes/s: {:?}", harness.observations);
        assert!(harness.events("error").is_empty());
        let bound = waits_max_bytes + (1 << 20);
        assert!(harness.reader.waited_bytes <= bound, "{rate} bytes/s: too much waited");
    }
}

#[test]
fn model_is_not_blamed_while_a_client_pauses() {
    for waits_max_bytes in [1 << 20, 32 << 20] {
        let mut harness = Harness::new(rest());
        harness.reader.waits_max_bytes = waits_max_bytes;
        harness.set_reading_rate(PLAYBACK_BYTES);
        harness.send_json(&json!({"type": "speak", "text": long_text()}));
        harness.send_json(&json!({"type": "finish"}));
        for _ in 0..3 {
            harness.advance(secs(20));
            harness.set_reading_rate(0);
            harness.advance(secs(90));
            harness.set_reading_rate(PLAYBACK_BYTES);
        }
        harness.wait_until(Harness::is_closed, secs(7200));
        assert!(!is_upstream_blamed(&harness) && harness.events("error").is_empty());
        assert!(harness.audio().len() > 24_000 * 100);
    }
}

#[test]
fn dead_upstream_is_noticed_after_a_client_has_paused() {
    let mut harness = Harness::new(rest());
    harness.reader.waits_max_bytes = 1 << 20;
    harness.set_reading_rate(0);
    harness.send_json(&json!({"type": "speak", "text": long_text()}));
    harness.send_json(&json!({"type": "finish"}));
    harness.advance(secs(120));
    assert!(!is_upstream_blamed(&harness));
    harness.inject_fault("never-answers");
    harness.set_reading_rate(PLAYBACK_BYTES);
    let closed = harness.run_until(Harness::is_closed, secs(600));
    assert!(closed.is_some() && !harness.events("error").is_empty(), "{:?}", harness.names());
}

#[test]
fn slow_speech_is_whole_however_long_it_takes() {
    let mut config = rest();
    config.simulator.timing.speech_second = secs(8);
    let harness = speak(config, u64::MAX >> 32, usize::MAX);
    assert!(harness.now() > secs(900), "{:?}", harness.now());
    assert!(harness.audio() == speak(rest(), u64::MAX >> 32, usize::MAX).audio());
    assert!(harness.events("error").is_empty());
}

#[test]
fn speech_that_is_cut_ends_with_an_error() {
    let mut harness = Harness::new(rest());
    harness.send_json(&json!({"type": "speak", "text": long_text()}));
    harness.send_json(&json!({"type": "finish"}));
    harness.set_reading_rate(PLAYBACK_BYTES);
    harness.advance(secs(20));
    harness.drain();
    harness.wait_until(Harness::is_closed, secs(3600));
    assert!(!harness.events("error").is_empty(), "{:?}", harness.names());
}

/// An assistant whose answers may be long, of a model that makes speech this much faster than it is played.
fn assistant(speed: f64, sentences: usize) -> HarnessConfig {
    let toml = "mode = \"chat\"\n[answer]\nmax_tokens = 100000\nhistory_max_chars = 100000\n";
    let config = HarnessConfig::of("openai-realtime", "assistant", "model=any");
    let mut config = config.with_profile("talkative", "assistant", toml);
    let words: Vec<String> =
        (0..sentences).map(|number| format!("This is sentence number {number}.")).collect();
    config.simulator.answers = vec![words.join(" ")];
    config.simulator.timing.speech_second = Duration::from_secs_f64(1.0 / speed);
    config
}

/// Asks a question in writing.
fn ask(harness: &mut Harness, words: &str) {
    let content = json!([{"type": "input_text", "text": words}]);
    let item = json!({"type": "message", "role": "user", "content": content});
    harness.send_json(&json!({"type": "conversation.item.create", "item": item}));
    harness.send_json(&json!({"type": "response.create"}));
}

/// Samples of all audio that the client got.
fn heard_samples(harness: &Harness) -> usize {
    let deltas = harness.events("response.output_audio.delta");
    deltas.iter().map(|delta| STANDARD.decode(delta["delta"].as_str().unwrap()).unwrap().len() / 2).sum()
}

/// Samples of all audio that the model made.
fn made_samples(harness: &Harness) -> usize {
    harness.received_json().filter_map(|message| Some(message["audio"].as_str()?.len() / 4 * 3 / 4)).sum()
}

/// All text of the model.
fn made_text(harness: &Harness) -> String {
    let deltas = harness.received_json().filter(|message| message["kind"] == "text");
    deltas.map(|delta| delta["text"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn long_answers_are_heard_whole_at_any_speed_of_the_model() {
    // Of 150, 300 and 500 s, the most that the simulated model says.
    let cases =
        [90, 180, 300].into_iter().flat_map(|sentences| [1.0, 3.0, 100.0].map(|speed| (sentences, speed)));
    for (sentences, speed) in cases {
        let mut harness = Harness::new(assistant(speed, sentences));
        ask(&mut harness, "Tell a long story.");
        // Only a limit of the rate follows.
        let done = |harness: &Harness| {
            harness.log.iter().rev().take(2).any(|(_, frame)| frame.name() == "response.done")
        };
        harness.wait_until(done, secs(1500));
        let (heard, made) = (heard_samples(&harness), made_samples(&harness));
        assert!(made.abs_diff(heard) < 24, "{sentences} sentences at {speed}: {heard} of {made} samples");
        assert!(made > 24_000 * sentences, "{} s", made / 24_000);
        assert_eq!(harness.events("response.done")[0]["response"]["status"], "completed");
        let transcript = &harness.events("response.output_audio_transcript.done")[0]["transcript"];
        let answer = made_text(&harness);
        assert_eq!(transcript.as_str().unwrap(), answer.trim());
        assert!(harness.events("error").is_empty() && !is_upstream_blamed(&harness));
        ask(&mut harness, "Go on.");
        harness.advance(secs(2));
        assert!(harness.sent_containing(answer.trim()).len() == 1, "the history has the whole answer");
    }
}

#[test]
fn empty_output_does_not_keep_an_answer_alive() {
    for delta in [
        json!({"type": "response.output.delta", "kind": "text", "text": ""}),
        json!({"type": "response.output.delta", "kind": "text", "text": " \n"}),
        json!({"type": "response.output.delta", "kind": "audio", "audio": ""}),
        json!({"type": "response.output.delta", "kind": "listen"}),
    ] {
        let mut harness = Harness::new(assistant(1.0, 1).faults(&["never-answers"]));
        ask(&mut harness, "Are you there?");
        for _ in 0..60 {
            harness.advance(secs(5));
            for lane in harness.lanes() {
                harness.inject_upstream_text(lane, &delta.to_string());
            }
        }
        let done = harness.events("response.done");
        assert!(done.len() == 1 && done[0]["response"]["status"] == "failed", "{delta}: {done:?}");
    }
}
