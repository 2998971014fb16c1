//! A back-end with a single worker is never left impolitely: the next session would be refused for it.

use std::time::Duration;

use crate::bench::{Bench, assert_pairs, events, recording};
use serde_json::{Value, json};
use voxbridge::{
    config::Config,
    simulator::{SimulatorConfig, Timing, socket::Received},
};

/// Clients, each of which takes the worker twice.
const CLIENTS: usize = 100;

/// Short, but not nothing: what comes too early or too late would show.
fn timing() -> Timing {
    let ms = Duration::from_millis;
    Timing {
        init: ms(2),
        first_delta: ms(2),
        text_delta: ms(1),
        speech_second: ms(1),
        close: ms(3),
        ..Timing::default()
    }
}

fn of_type(received: &[Received], kind: &str) -> usize {
    let is = |received: &&Received| match received {
        Received::Message(_, text) => serde_json::from_str::<Value>(text).unwrap()["type"] == kind,
        _ => false,
    };
    received.iter().filter(is).count()
}

#[tokio::test]
async fn two_hundred_sessions_in_a_row_are_all_served() {
    let simulator = SimulatorConfig { timing: timing(), record: true, ..SimulatorConfig::default() };
    let bench = Bench::with(simulator, Config::default()).await;
    let speech = recording("goforward");
    for client in 0..CLIENTS {
        let mut caller = bench.client("model=x").await;
        caller.say(&speech).await;
        // Every other client does not wait for its words before it has something said.
        if client % 2 == 0 {
            caller.event("vad.speech_end").await;
        }
        caller.command(json!({"type": "tts.speak", "text": "Yes."})).await;
        caller.event("tts.speaking_end").await;
        let seen = caller.close().await;
        assert_pairs(&seen);
        assert_eq!(events(&seen, "transcript.final").len(), 1, "client {client}: {seen:?}");
        assert!(events(&seen, "error").is_empty(), "client {client}: {seen:?}");
    }
    let received = bench.recorder.all();
    let gone = received.iter().filter(|it| matches!(it, Received::Gone(_))).count();
    assert_eq!(gone, 0, "sessions left without a goodbye");
    // One of each for each: no attempt was refused and made again.
    for kind in ["session.init", "input.append", "session.close"] {
        assert_eq!(of_type(&received, kind), 2 * CLIENTS, "{kind}");
    }
}
