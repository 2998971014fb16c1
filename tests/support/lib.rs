//! Support for the test programs: a bridge with a simulated upstream, certificates, and a TCP proxy that
//! breaks connections.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

pub mod bench;
pub mod certs;
pub mod tcp_proxy;
