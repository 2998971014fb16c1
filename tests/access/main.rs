//! Who may in, how much, and over TLS: over real sockets.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[path = "../support/bench.rs"]
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
mod bench;

mod admission;
mod certificates;
mod door;
mod limits;
mod secrets;
mod upstreams;
