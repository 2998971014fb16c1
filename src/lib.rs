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
//! # The path of one audio frame
//!
//! Up, from the client's socket to the upstream's:
//!
//! 1. `server::session_task` reads the frame when `server::adaptive_read` decides to, and joins frames that arrived together.
//!    The read is as late as it can be without delaying a decision ([`bridge::Bridge::read_window`]).
//! 2. [`bridge::Bridge::handle_input`] takes the frame, and [`downstream::Codec::decode`] turns it into an event.
//! 3. The session's speech input converts the audio to 16 kHz ([`audio::input_converter`]) and detects speech
//!    ([`audio::vad`]).
//! 4. The audio joins an utterance, which becomes a question on a lane when it ends. In a conversation, it joins a
//!    [unit](audio::units).
//! 5. [`upstream::Dialect::encode`] makes the message, and `server::session_task` sends it.
//!
//! Down, from the upstream's socket to the client's:
//!
//! 1. [`upstream::Dialect::decode`] reads a piece of the model's text or audio.
//! 2. The synthesizer (a requested text) or the dialogue (a turn of the model) passes the audio to the player
//!    ([`audio::output_converter`], [`audio::playout`]), which releases it at the profile's pace.
//! 3. [`downstream::Codec::encode`] makes the frame. Its turn tag lets the socket discard it after a barge-in.
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
pub mod mapping;
mod named_enum;
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
