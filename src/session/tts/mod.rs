//! Text to speech: texts of the client. [`super::floor`] plays their audio.
//!
//! - [`queue`] holds texts that wait for their turn
//! - [`text_normalization`] makes a text speakable and divides it, not at [`abbreviations`]; [`voices`] chooses its voice
//! - [`synthesizer`] has an upstream speak one text at a time, and [`speaker`] one part at a time

pub(crate) mod abbreviations;
pub(crate) mod queue;
pub(crate) mod speaker;
pub(crate) mod synthesizer;
pub(crate) mod text_normalization;
pub(crate) mod voices;
