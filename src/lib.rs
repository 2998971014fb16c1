//! voxbridge plugs existing speech WebSocket clients into MiniCPM-o, unchanged.

pub mod audio;
pub mod bridge;
pub mod downstream;
pub mod error;
pub mod event;
#[doc(hidden)]
pub mod fuzzing;
pub mod mapping;
#[cfg(feature = "io")]
pub mod server;
pub mod session;
pub mod simulator;
pub mod upstream;
