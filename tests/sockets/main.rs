//! Servers, clients and simulators of this process over real sockets.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

mod access;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/certs.rs"]
mod certs;
mod faults;
mod gathered;
mod matrix;
mod observability;
mod one_worker;
mod relays;
mod serve;
mod sound;
mod talks;
mod tls;
mod upstreams;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/wire.rs"]
mod wire;
