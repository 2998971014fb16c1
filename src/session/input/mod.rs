//! Audio from the client: speech input, rate limiter and read window.
//!
//! - [`speech_input`] turns audio into utterances
//! - [`rate_limiter`] warns about audio faster than real time, and drops audio too far ahead
//! - [`read_window`] tells the driver how long a streaming client may stay unread

pub(crate) mod rate_limiter;
pub(crate) mod read_window;
pub(crate) mod speech_input;
