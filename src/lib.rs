//! voxbridge plugs existing speech WebSocket clients into MiniCPM-o, unchanged.

pub mod audio;
pub mod simulator;
