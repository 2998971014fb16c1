//! voxbridge plugs existing speech WebSocket clients into MiniCPM-o, unchanged.

pub mod audio;
#[cfg(feature = "io")]
pub mod cli;
pub mod error;
pub mod event;
pub mod mapping;
#[cfg(feature = "io")]
pub mod server;
