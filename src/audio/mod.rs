//! Audio processing without sockets or clocks: sample formats, resampling, gain, voice activity, units, playout
//! pacing.
//!
//! To change here: sample formats and rates, as functions over slices; each runs per frame, and `tests/instructions`
//! counts it. Not here: reading files (voxbridge's module `media`), and the JSON around audio (the codecs).
//!
//! Audio towards the model is int16 mono at 16 kHz ([`SPEECH_RATE_HZ`]). Audio from the model is float32 mono at
//! 24 kHz ([`MODEL_RATE_HZ`]).

#![warn(clippy::unwrap_used)]

pub mod agc;
pub mod delta_pack;
pub mod downmix;
pub mod echo;
pub mod encode;
pub mod encoding;
pub mod file_format;
pub mod format;
pub mod frame_headers;
pub mod g722;
pub mod input_converter;
pub mod log_mel;
pub mod long_strings;
pub mod opus;
pub mod output_converter;
pub mod pcm;
mod phrases;
pub mod playout;
pub mod playout_queue;
#[cfg(test)]
#[path = "../property_config.rs"]
mod property_config;
pub mod recording_level;
pub mod resample;
pub mod scratch;
pub mod sentence_marks;
pub mod units;
pub mod vad;
pub mod wav;
pub mod word_times;

/// Sample rate of all audio sent to the model (mappings/notes/minicpm-o.md#audio: raw float32, 16 kHz, mono).
pub const SPEECH_RATE_HZ: u32 = 16_000;

/// Sample rate of all audio from the model (overview page, `response.output.delta`: 24 kHz mono float32).
pub const MODEL_RATE_HZ: u32 = 24_000;
