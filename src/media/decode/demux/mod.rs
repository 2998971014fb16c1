//! Takes containers apart: each yields packets with their times.
//!
//! Symphonia's own demultiplexers believe the lengths that a file claims, read no times, and end at the first stream. These
//! read the file front to back, or by its tables, without a copy of it and with a few numbers of state.

mod aac_config;
pub(super) mod adts;
pub(super) mod aiff;
pub(super) mod blocks;
pub(super) mod caf;
mod entry;
pub(super) mod flac;
pub(super) mod frames;
pub(super) mod mp4;
pub(super) mod mpeg;
pub(super) mod ogg;
pub(super) mod wav;
mod wav_format;
pub(super) mod webm;
