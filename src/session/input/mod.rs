//! Audio from the client: speech input and rate limiter.
//!
//! - [`speech_input`] turns audio into utterances
//! - [`rate_limiter`] warns about audio faster than real time, and drops audio too far ahead

pub(crate) mod rate_limiter;
pub(crate) mod speech_input;
