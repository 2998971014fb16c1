//! voxbridge plugs existing speech WebSocket clients into MiniCPM-o, unchanged.

pub mod audio;
pub mod bridge;
#[cfg(feature = "io")]
pub mod cli;
#[cfg(feature = "io")]
pub mod config;
pub mod downstream;
pub mod error;
pub mod event;
pub mod mapping;
#[cfg(feature = "io")]
pub mod net;
#[cfg(feature = "io")]
pub mod server;
pub mod session;
pub mod simulator;
#[cfg(feature = "io")]
pub mod telemetry;
pub mod upstream;
