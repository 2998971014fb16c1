//! Real speech engines behind the simulated model, and public clients as their makers publish them.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/bench.rs"]
mod bench;
mod clients;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/engines.rs"]
mod engines;
mod libraries;
#[path = "../support/clients.rs"]
mod programs;
mod recordings;
mod words;
