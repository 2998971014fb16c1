//! The playground: one page that talks to this server as its clients do, and shows the messages on both sides of the bridge.
//!
//! - [`files`]: the page itself, embedded in the program; it loads nothing from anywhere else
//! - [`settings`]: what the page offers: protocols, profiles, voices
//! - [`watchers`]: pages that wait for their session; [`wires`] sends them its records, in the format of a trace file
//!
//! [`super::pages`] checks the requests. A session is recorded only if its client asked for it and a page waits for it;
//! others cost nothing more than without the playground.

pub(in crate::server) mod files;
pub(in crate::server) mod settings;
pub(in crate::server) mod watchers;
pub(in crate::server) mod wires;

/// Built-in recording: eleven seconds of J. F. Kennedy's inaugural address, 16 kHz mono.
pub const RECORDING: &[u8] = include_bytes!("../../../examples/speech/jfk_16k.wav");

/// Path of the page. Everything else of the playground is below it.
pub const PATH: &str = "/playground";
