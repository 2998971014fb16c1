//! Audio as plain computation: sample formats, resampling, level, voice activity, units, pace. No sockets, no clock.
//!
//! Inside voxbridge audio is int16 mono at 16 kHz on the way up ([`SPEECH_RATE_HZ`]) and float32 mono at 24 kHz as
//! the model sends it on the way down ([`MODEL_RATE_HZ`]).

pub mod agc;
pub mod delta_pack;
pub mod encoding;
pub mod input_converter;
pub mod output_converter;
pub mod pcm;
pub mod playout;
pub mod resample;
pub mod units;
pub mod vad;
pub mod wav;

/// Rate of everything sent to the model (MiniCPM-o field notes §1.6: raw float32, 16 kHz, mono).
pub const SPEECH_RATE_HZ: u32 = 16_000;

/// Rate of everything the model says (overview page, `response.output.delta`: 24 kHz mono float32).
pub const MODEL_RATE_HZ: u32 = 24_000;
