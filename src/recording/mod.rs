//! Recordings of sessions, without I/O: when the user's and the model's audio was heard, on one time axis.
//!
//! To change here: how a stretch of audio finds its place. Not here: what is recorded ([`crate::session`]), and files
//! ([`crate::server`]).
//!
//! - [`Timeline`]: both sides by time, and what of them is new
//! - [`microphone`]: places the client's audio, whose messages arrive late and in bursts
//! - [`playback`]: places the audio that the client plays, until it is cut
//! - [`position`]: instants and lengths in samples
//! - [`document`]: the JSON beside the audio; [`turns`]: the turns in it

pub mod document;
mod microphone;
mod playback;
mod position;
mod timeline;
pub mod turns;

pub use self::{
    microphone::SETTLING,
    timeline::{AudioPart, RecordedSide, Timeline},
};

/// Sample rate of recordings, Hz: the model's own.
pub const RATE_HZ: u32 = crate::audio::MODEL_RATE_HZ;

#[cfg(test)]
mod tests;
