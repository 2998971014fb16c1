//! Text to speech: texts of the client, and the playback of all audio to the client.
//!
//! - [`queue`] holds texts that wait for their turn
//! - [`text_normalization`] makes a text speakable, [`voices`] chooses and encodes its voice
//! - [`synthesizer`] has an upstream speak one text at a time
//! - [`player`] sends audio to the client at the pace of playback

pub(crate) mod player;
pub(crate) mod queue;
pub(crate) mod synthesizer;
pub(crate) mod text_normalization;
pub(crate) mod voices;
