//! A back-end with a single worker: every session is closed politely, or the next one would be rejected.

use std::time::Duration;

use serde_json::{Value, json};
use voxbridge::{
    config::Config,
    simulator::{SimTiming, SimulatorConfig, socket::RecordedInput},
};
use voxbridge_test_support::bench::{Bench, assert_pairs_closed, events, recording};

/// Number of clients. Each one takes the worker twice.
const CLIENTS: usize = 100;

/// Short but non-zero delays, so that early or late messages would show.
fn simulator_timing() -> SimTiming {
    let ms = Duration::from_millis;
    SimTiming {
        init: ms(2),
        first_delta: ms(2),
        text_delta: ms(1),
        speech_second: ms(1),
        close: ms(3),
        ..SimTiming::default()
    }
}

fn count_of_type(received: &[RecordedInput], kind: &str) -> usize {
    let has_type = |received: &&RecordedInput| match received {
        RecordedInput::Message(_, text) => serde_json::from_str::<Value>(text).unwrap()["type"] == kind,
        _ => false,
    };
    received.iter().filter(has_type).count()
}

#[tokio::test]
async fn two_hundred_consecutive_sessions_are_served() {
    let simulator =
        SimulatorConfig { timing: simulator_timing(), record: true, ..SimulatorConfig::default() };
    let bench = Bench::with_config(simulator, Config::default()).await;
    let speech = recording("goforward");
    for client in 0..CLIENTS {
        let mut caller = bench.client("model=x").await;
        caller.send_utterance(&speech).await;
        // Every other client has a text spoken before its transcript arrives.
        if client % 2 == 0 {
            caller.wait_for_event("vad.speech_end").await;
        }
        caller.send_json(json!({"type": "tts.speak", "text": "Yes."})).await;
        caller.wait_for_event("tts.speaking_end").await;
        let frames = caller.close().await;
        assert_pairs_closed(&frames);
        assert_eq!(events(&frames, "transcript.final").len(), 1, "client {client}: {frames:?}");
        assert!(events(&frames, "error").is_empty(), "client {client}: {frames:?}");
    }
    let received = bench.recorder.all();
    let disconnects = received.iter().filter(|it| matches!(it, RecordedInput::Disconnected(_))).count();
    assert_eq!(disconnects, 0, "sessions left without session.close");
    // One message of each type per lane: no attempt was rejected and repeated.
    for kind in ["session.init", "input.append", "session.close"] {
        assert_eq!(count_of_type(&received, kind), 2 * CLIENTS, "{kind}");
    }
}
