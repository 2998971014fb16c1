//! Sessions of REST requests, in virtual time: a whole recording as fast as the bridge takes it, or one text.

mod endings;
mod long_recordings;
mod parallel;
mod properties;
mod speech;
mod subtitles;
mod transcription;

use std::ops::Range;

use super::*;

/// A session of a REST request, on a gateway with this many workers and these faults.
fn open_request(workers: usize, faults: &[&str]) -> Harness {
    let mut config =
        HarnessConfig { client: "rest", query: String::new(), ..HarnessConfig::with_faults(faults) };
    config.simulator.workers = workers;
    Harness::new(config)
}

/// Sends a recording as fast as the bridge takes it, and ends the input.
fn upload(harness: &mut Harness, samples: &[i16]) {
    for frame in samples.chunks(16_000) {
        let free = harness.run_until(|harness| !harness.report().needs_backpressure, secs(600));
        assert!(free.is_some(), "back-pressure never ends");
        harness.send_binary(&bytes_of(frame));
    }
    harness.send_json(&json!({"type": "finish"}));
}

/// Waits for the end of the session, and checks that nothing is left of it.
fn assert_finishes(harness: &mut Harness) {
    harness.wait_until(Harness::is_closed, secs(3600));
    harness.advance(secs(120));
    assert!(harness.is_over(), "{:?}", harness.names());
}

/// A sentence of speech without the silence around it, 6.5 s.
fn sentence() -> Vec<i16> {
    recording("librivox_0870_16k.wav")[16 * 250..16 * 6750].to_vec()
}
