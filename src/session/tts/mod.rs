//!

pub(crate) mod player;
pub(crate) mod queue;
pub(crate) mod synthesizer;
pub(crate) mod text_normalization;
pub(crate) mod voices;
