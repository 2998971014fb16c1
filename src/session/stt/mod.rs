//!

pub(crate) mod transcriber;
pub(crate) mod utterance;
