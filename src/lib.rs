//! voxbridge connects existing speech WebSocket clients to MiniCPM-o without changing them.
//!
//! It is a proxy between two protocols. Towards its clients, it is a speech-to-text and text-to-speech server,
//! above all Macaw OpenVoice's `/v1/realtime`. Towards the model, it is a client of the MiniCPM-o Realtime API.
//!
//! # Layout
//!
//! Modules in layers, lowest first. No module imports one further down the list. [`audio`] and [`simulator`] are packages of their
//! own, because builds of tests optimise them and nothing else.
//!
//! | module | job | I/O (sockets, clocks, tasks)? |
//! |---|---|---|
//! | [`audio`] | sample formats, resampling, voice activity, units, playout pacing | no |
//! | [`error`] | the error type | no |
//! | [`vocabulary`] | the neutral vocabulary of requests and events, so that N protocols + M dialects need no N × M code | no |
//! | [`spelling`] | the protocols' spelling, from TOML files: schema, checks, templates | no |
//! | [`client`] | codecs: client messages ↔ vocabulary | no |
//! | [`upstream`] | dialects: model messages ↔ vocabulary | no |
//! | [`session`] | one client: utterances, speech output, dialogue, lanes, timers | no |
//! | [`bridge`] | codec + session + dialect behind two methods | no |
//! | [`trace`] | records sessions to files and replays them | no |
//! | [`recording`] | places a session's audio on one time axis, and describes the JSON beside it | no |
//! | [`simulator`] | a MiniCPM-o gateway without a model | sans-IO core, sockets around it |
//! | [`doctor`] | diagnoses the connection to an upstream step by step | sans-IO core, sockets around it |
//! | [`verify`] | figures of an acceptance run, their verdicts and reports | no |
//! | [`media`] | file formats of uploads and answers: wav, mp3, mp4, webm, ogg, flac, subtitles | no |
//! | `markdown` | the words of Markdown without its marks | no |
//! | `picture` | checks pictures of clients and tools | no |
//! | `tool_result` | results of tools by the Model Context Protocol | no |
//! | `secret` | secrets that never reach logs | no |
//! | `net`, `server` | accepts clients, routes them, dials upstreams, runs one task per session | yes |
//! | [`telemetry`] | log, metrics, access log, trace context, OpenTelemetry | yes, except the trace context |
//! | `config`, `cli` | configuration and commands | yes |
//!
//! This separation is enforced: without the `io` feature, only the pure part compiles, and a lint forbids clocks
//! everywhere. Time comes in as an argument and randomness as a seed. A conversation can therefore be tested in
//! virtual time, and equal inputs at equal instants give equal bytes.
//!
//! # The path of one audio frame
//!
//! `tests/instructions/run --hops` prints the functions that one message passes between the two sockets, accessors and the
//! driver included. A client's frame of 20 ms that completes no unit passes 186 of them in a conversation, and 155 in the
//! profile `speech`. A second of the model's audio passes 298 in a conversation, and 231 for a requested text. It counts distinct
//! functions of this crate in an unoptimised build, without closures, constructors and trait glue of `std`.
//!
//! Up, from the client's socket to the upstream's:
//!
//! 1. `server::session_task`: `next_wakeup` reads the client when `server::adaptive_read` decides to, by the read window in
//!    [`bridge::Bridge::report`]
//! 2. `server::websocket`: `pausable_stream` reads, `frame_boundary` takes whole messages at once, `session_socket` takes the
//!    message, and the reader joins messages that arrived together
//! 3. `session_task/inputs`, [`bridge::Bridge::handle_input`] and `client/mapped/decode`: to the vocabulary
//! 4. `session/speech_events`: `handle_audio`, with `session/microphone` and `session/input/rate_limiter`
//! 5. `session/input/speech_input`: `push_frame`, `process_audio`, `process_hop`, with `audio/input_converter`, `audio/resample`
//!    and the detector in `audio/vad`. In the profile `speech`, a frame as quiet as the room ends here: `audio/input_converter`
//!    holds it
//! 6. `session/dialogue/uplink` and `audio/units`: the only copy of the samples for the model
//! 7. `session/follow_up` and `session/timers`: `follow`
//! 8. [`bridge::Bridge::poll_output`] until `Wait`, then [`bridge::Bridge::report`]
//!
//! The frame that completes a unit takes all steps of [`session`], [`upstream::lane::LaneCodec::encode`] makes its message, and
//! `session_socket` writes its `outbox`.
//!
//! Down, from the upstream's socket to the client's:
//!
//! 1. `server::session_task` and `server::websocket`: `poll_sockets`, and the lane's `session_socket` as above
//! 2. [`bridge::Bridge::handle_input`], `upstream` with the JSON reader `spelling/extract`, and `audio/pcm`
//! 3. `session/lanes`, then the lane's owner: `session/dialogue`, or `session/tts/synthesizer` for a requested text
//! 4. `session/floor`, `audio/playout`, `audio/output_converter` and `audio/playout_queue`, which make and hold the client's
//!    bytes
//! 5. `session/follow_up` and `session/timers`: `follow`
//! 6. [`bridge::Bridge::poll_output`] and `client/mapped/encode`. The turn tag lets the socket discard the frame after a barge-in
//! 7. `session_task`: `send_client`; `session_socket`: the `outbox` and its write
//!
//! # Vocabulary
//!
//! *Downstream* is the client's side, *upstream* the model's side. A *lane* is one upstream session that serves
//! one purpose. An *utterance* is one stretch of user speech, and a *turn* is one answer of the model. A *unit*
//! is one second of a conversation's audio. A `…Request` goes up, from the client to the model; an `…Event` comes down.

#![warn(clippy::unwrap_used)]

pub use voxbridge_audio as audio;
pub use voxbridge_simulator as simulator;

pub mod bridge;
#[cfg(feature = "io")]
pub mod cli;
pub mod client;
#[cfg(feature = "io")]
pub mod config;
mod date;
pub mod doctor;
pub mod error;
mod foreign;
mod markdown;
#[cfg(feature = "io")]
pub mod media;
mod named_enum;
#[cfg(feature = "io")]
pub mod net;
mod picture;
#[cfg(test)]
mod property_config;
pub mod recording;
#[doc = include_str!("release_notes.md")]
pub mod release_notes {}
#[cfg(feature = "io")]
pub mod secret;
#[cfg(feature = "io")]
pub mod server;
pub mod session;
pub mod spelling;
mod suggestion;
pub mod telemetry;
mod tool_result;
pub mod trace;
pub mod upstream;
pub mod verify;
pub mod vocabulary;
