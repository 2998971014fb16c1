//!

pub(crate) mod rate_limiter;
pub(crate) mod read_window;
pub(crate) mod speech_input;
