//! What a client of the `speech` profile lives through, in virtual time.
#![allow(clippy::unwrap_used, reason = "a helper of a test may panic as the test may")]

#[path = "support/pair.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod pair;

use std::time::Duration;

use pair::{Pair, PairConfig, recording, zeros};
use serde_json::json;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a_sentence_is_heard() {
    let mut pair = Pair::new(PairConfig::default());
    pair.stream(&recording("librivox_0880_16k.wav"), 40);
    pair.stream(&zeros(1000), 40);
    pair.advance(secs(3));
    pair.client(&json!({"type": "session.close"}));
    pair.advance(secs(5));

    assert!(pair.finished);
}
