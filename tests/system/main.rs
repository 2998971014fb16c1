//! Everything that runs in real time, in one program: its tests mostly wait, and they wait side by side.
#![cfg(feature = "io")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

#[cfg(target_os = "linux")]
mod program;
mod simulator;
mod sockets;
