//! voxbridge connects existing speech WebSocket clients to MiniCPM-o without changing them.
//!
//! It is a proxy between two protocols. Towards its clients, it is a speech-to-text and text-to-speech server,
//! above all Macaw OpenVoice's `/v1/realtime`. Towards the model, it is a client of the MiniCPM-o Realtime API.
//!
//! # Layout
//!
//! Modules in layers, lowest first. No module imports one further down the list.
//!
//! | module | job | I/O (sockets, clocks, tasks)? |
//! |---|---|---|
//! | [`audio`] | sample formats, resampling, voice activity, units, playout pacing | no |
//! | [`mapping`] | the protocols' spelling, from TOML files: schema, checks, templates | no |
//! | [`error`] | the error type | no |
//! | [`event`] | the neutral vocabulary of events and commands, so that N protocols + M dialects need no N × M code | no |
//! | [`downstream`] | codecs: client messages ↔ vocabulary | no |
//! | [`upstream`] | dialects: model messages ↔ vocabulary | no |
//! | [`session`] | one client: utterances, speech output, dialogue, lanes, timers | no |
//! | [`bridge`] | codec + session + dialect behind two methods | no |
//! | [`trace`] | records sessions to files and replays them | no |
//! | [`simulator`] | a MiniCPM-o gateway without a model | sans-IO core, sockets around it |
//! | [`doctor`] | diagnoses the connection to an upstream step by step | sans-IO core, sockets around it |
//! | `secret` | secrets that never reach logs | no |
//! | `net`, `server` | accepts clients, routes them, dials upstreams, runs one task per session | yes |
//! | [`telemetry`] | log, metrics, access log, trace context | yes, except the trace context |
//! | `config`, `cli` | configuration and commands | yes |
//!
//! This separation is enforced: without the `io` feature, only the pure part compiles, and a lint forbids clocks
//! everywhere. Time comes in as an argument and randomness as a seed. A conversation can therefore be tested in
//! virtual time, and equal inputs at equal instants give equal bytes.
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
//! # Vocabulary
//!
//! *Downstream* is the client's side, *upstream* the model's side. A *lane* is one upstream session that serves
//! one purpose. An *utterance* is one stretch of user speech, and a *turn* is one answer of the model. A *unit*
//! is one second of a conversation's audio. Types named `…Event` come in; types named `…Command` go out.

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
