//! The program as built: its commands, its signals, its README.
#![cfg(all(feature = "io", target_os = "linux"))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/bench.rs"]
mod bench;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/certs.rs"]
mod certs;
mod commands;
mod doctor;
mod leaving;
mod load;
mod odd;
#[allow(dead_code, reason = "shared with other test programs, each of which uses a part")]
#[path = "../support/operated.rs"]
mod operated;
mod operations;
mod packaging;
mod process;
mod readme;
mod replaced;
mod restart;
mod running;
mod secrets;
mod secure;
mod stalls;
