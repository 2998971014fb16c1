//! Support for the test programs: a bridge with a simulated upstream, certificates, a TCP proxy that breaks connections,
//! what tests do with each frame, waiting for a state, how many cases a test tries, tools that a machine may lack, frames of Pipecat, public
//! servers, and the bodies of the fuzz targets.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should stop")]

pub mod bench;
pub mod cases;
pub mod certs;
pub mod fuzzing;
pub mod hot;
pub mod programs;
pub mod rtvi;
pub mod servers;
pub mod tcp_proxy;
pub mod wait;
pub mod world;

/// A JPEG file of one grey pixel, base64.
pub const PICTURE: &str = "/9j/2wBDAAEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQH/wAALCAABAAEBAREA/8QAFAABAAAAAAAAAAAAAAAAAAAAAP/EABQQAQAAAAAAAAAAAAAAAAAAAAD/2gAIAQEAAD8AP//Z";
