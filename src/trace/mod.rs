//! A session as a file: every input and output of its [`crate::bridge::Bridge`] with its instant, and the way back.
//!
//! Pure: [`crate::server`] feeds a [`Watch`] and writes what a [`Recorder`] makes of it. A trace is JSON lines: a [`Start`],
//! then one [`Line`] for each input and output in order. It is taken where the bridge begins, so it covers any kind of
//! session; and because the same inputs at the same instants give the same bytes, [`replay`] needs nothing else.
//!
//! - [`mod@line`] is what a line says, [`start`] the first one
//! - [`clean`] takes out what nobody is to read: secrets always, audio unless it was asked for
//! - `brief` takes out long audio beforehand, where none is kept
//! - [`tape`] writes and reads whole traces; [`replay`] feeds one to a new bridge and compares, [`diff`] finds what differs
//! - [`attempt`] shows what another mapping makes of a trace, by [`unify`], which reads messages by their templates

pub mod diff;
pub mod record;
pub mod recording;
pub mod redact;
pub mod remap;
pub mod replay;
pub mod start;
mod strip_audio;
mod template_match;

pub use self::{
    record::Line,
    recording::{NoTrace, Recorder, Tape, Trace, Watch},
    redact::Kept,
    start::Start,
};

/// Version of the format; it changes when a trace of before can no longer be read.
pub const VERSION: u32 = 1;
