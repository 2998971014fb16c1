//! Session traces: record every input and output of a [`crate::bridge::Bridge`] with its instant, and replay them.
//!
//! To change here: a [`TraceRecord`] for a new input or output of the bridge; old traces stay readable. Not here:
//! when a session is recorded ([`crate::server`]).
//!
//! This module does no I/O: [`crate::server`] feeds a [`TraceTap`] and writes the text of a [`TraceWriter`]. A trace is JSON
//! lines: a [`TraceHeader`], then one [`TraceRecord`] for each input and output in order. Recording at the bridge covers every
//! kind of session. Requests and events of a client within this process are recorded as messages of its protocol
//! ([`crate::bridge::Bridge::spell_request`]), which a replay decodes. The bridge is deterministic, so [`replay`] needs nothing but the trace.
//!
//! - [`record`]: one line of a trace; [`header`]: its first line
//! - [`redact`]: removes secrets always, and audio unless the trace keeps it
//! - `strip_audio`: removes long audio before queuing, if the trace keeps none
//! - [`recording`]: writes and reads whole traces; [`replay`]: feeds one to a new bridge; [`diff`]: compares the outputs
//! - [`first_audio`]: where the time until the first audio of an answer goes

pub mod diff;
pub mod first_audio;
pub mod header;
pub mod record;
pub mod recording;
pub mod redact;
pub mod replay;
mod strip_audio;

pub use self::{
    header::TraceHeader,
    record::TraceRecord,
    recording::{Trace, TraceBuffer, TraceParseError, TraceTap, TraceWriter},
    redact::AudioRetention,
};

/// Version of the trace format. Version 1, which is still read, wrote observations in another form.
pub const VERSION: u32 = 2;
