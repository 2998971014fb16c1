//! voxbridge plugs existing speech WebSocket clients into MiniCPM-o, unchanged.
//!
//! It is a proxy that speaks two languages. Towards its clients it is a binary-PCM speech server (Macaw OpenVoice's
//! `/v1/realtime` first of all), towards the model it is a client of the MiniCPM-o Realtime API.
//!
//! # Layout
//!
//! Lowest first; nothing imports what stands below it in this list.
//!
//! | module | what | may it touch a socket, a clock, a task? |
//! |---|---|---|
//! | [`audio`] | sample formats, resampling, voice activity, units, playout | no |
//! | [`mapping`] | how protocols spell things: schema, checks, templates | no |
//! | [`error`] | what can go wrong | no |
//! | [`event`] | the neutral vocabulary: N protocols + M dialects, never N × M | no |
//! | [`downstream`] | the client's wire ↔ the vocabulary | no |
//! | [`upstream`] | the model's wire ↔ the vocabulary | no |
//! | [`session`] | one client: utterances, texts being spoken, talk with the model, lanes, timers | no |
//! | [`bridge`] | codec + session + dialect behind two methods | no |
//! | [`trace`] | a session as a file, and the way back | no |
//! | [`simulator`] | a MiniCPM-o gateway without a model: sans-IO core, sockets around it | core no, sockets yes |
//! | [`doctor`] | walks the way to an upstream and says where it ends and why: sans-IO core, sockets around it | core no, sockets yes |
//! | `secret` | what nobody may read | no |
//! | `net`, `server` | accept, route, dial, one task per session | yes |
//! | [`telemetry`] | the log, metrics, the access log, trace context | yes, but for the context |
//! | `config`, `cli` | configuration, commands | yes |
//!
//! The wall is kept by construction: without the `io` feature only the pure part exists, and a lint denies clocks
//! everywhere. Time comes in as an argument, randomness as a seed; so a conversation can be tested in virtual time, and
//! the same inputs at the same instants give the same bytes.
//!
//! # The way of one audio frame
//!
//! Up: `server::session_task` reads WebSocket messages, as late as nothing is lost by it ([`bridge::Bridge::read_window`]) and with frames
//! that came together as one → [`bridge::Bridge::handle_input`] → [`downstream::Codec::decode`] → the
//! session's ear ([`audio::input_converter`], [`audio::vad`]) → an utterance, which becomes a question on a lane, or in a
//! conversation one [unit](audio::units) after the other → [`upstream::Dialect::encode`] → `server::session_task` writes it. Down:
//! [`upstream::Dialect::decode`] → the text being spoken, or the model's turn → the session's mouth ([`audio::output_converter`],
//! [`audio::playout`]) → [`downstream::Codec::encode`].
//!
//! # Words
//!
//! *Downstream* is the client's side, *upstream* the model's. A *lane* is one upstream session that serves one purpose. An
//! *utterance* is one stretch of user speech, a *turn* one answer of the model, a *unit* one second of a
//! conversation. A `…Event` came in, a `…Command` goes out.

#![warn(clippy::unwrap_used)]

pub mod audio;
pub mod bridge;
#[cfg(feature = "io")]
pub mod cli;
#[cfg(feature = "io")]
pub mod config;
pub mod doctor;
pub mod downstream;
pub mod error;
pub mod event;
#[doc(hidden)]
pub mod fuzzing;
pub mod mapping;
#[cfg(feature = "io")]
pub mod net;
#[cfg(feature = "io")]
pub mod secret;
#[cfg(feature = "io")]
pub mod server;
pub mod session;
pub mod simulator;
pub mod telemetry;
pub mod trace;
pub mod upstream;
