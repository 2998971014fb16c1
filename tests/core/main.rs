//! Everything below the sockets, in virtual time: no socket, no task, no sleep.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod binary;
mod conversation;
mod documents;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/exchange.rs"]
mod exchange;
mod fuzz_seeds;
mod gathering;
mod golden;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/pair.rs"]
mod pair;
mod properties;
mod relay;
#[path = "../support/sanity.rs"]
mod sanity;
mod session;
mod traces;
