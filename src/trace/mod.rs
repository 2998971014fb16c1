//! A session as a file: every input and output of its [`crate::bridge::Bridge`] with its instant, and the way back.
//!
//! Pure: [`crate::server`] feeds a [`TraceTap`] and writes what a [`TraceWriter`] makes of it. A trace is JSON lines: a [`TraceHeader`],
//! then one [`TraceRecord`] for each input and output in order. It is taken where the bridge begins, so it covers any kind of
//! session; and because the same inputs at the same instants give the same bytes, [`replay`] needs nothing else.
//!
//! - [`record`] is what a line says, [`header`] the first one
//! - [`redact`] takes out what nobody is to read: secrets always, audio unless it was asked for
//! - `strip_audio` takes out long audio beforehand, where none is kept
//! - [`recording`] writes and reads whole traces; [`replay`] feeds one to a new bridge and compares, [`diff`] finds what differs
//! - [`remap`] shows what another mapping makes of a trace, by `template_match`, which reads messages by their templates

pub mod diff;
pub mod header;
pub mod record;
pub mod recording;
pub mod redact;
pub mod remap;
pub mod replay;
mod strip_audio;
mod template_match;

pub use self::{
    header::TraceHeader,
    record::TraceRecord,
    recording::{Trace, TraceBuffer, TraceParseError, TraceTap, TraceWriter},
    redact::AudioRetention,
};

/// Version of the format; it changes when a trace of before can no longer be read.
pub const VERSION: u32 = 1;
