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
//! | [`media`] | file formats of uploads and answers: wav, mp3, mp4, webm, ogg, flac, subtitles | no |
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
//! Up, from the client's socket to the upstream's. `server::session_task` reads the frame when `server::adaptive_read`
//! decides to ([`bridge::Bridge::read_window`]), and joins frames that arrived together. In a conversation, a frame of 20 ms
//! that completes no unit then passes about 68 functions of the bridge, 58 in the profile `speech`:
//!
//! 1. `bridge/mod` and `bridge/served`: `handle_input`, `handle_input`
//! 2. `downstream/decode`: `decode`, `decode_audio`
//! 3. `session/mod` and `session/microphone`: `handle_client_event`, `handle_audio`, `is_uplink_silenced`,
//!    `forward_to_dialogue`
//! 4. `session/input`: `count_groups`, `check_frame`, `push_frame`, `pipeline_mut`, `take_stream`
//! 5. `session/tts/player`: `is_audible`, and `note_user_speech` if there is speech
//! 6. `audio/input_converter` and `audio/encoding`: `completed_groups`, `push`, `split`, `fill_from`, `decode_first`
//! 7. `session/input/speech_input/pipeline`: `push_frame`, `may_hold`, `release_held`, `copy_rest`, `stream_audio`, `process_hops`,
//!    `process_hop`, `count_listened`, and `lead_in_samples` there, in `audio/input_converter` and in `audio/resample`.
//!    In the profile `speech`, a frame as quiet as the room ends here: `hold` in `audio/input_converter` keeps it
//! 8. `audio/vad`, the detector, 15 functions below `push_hop`: level, gate, network, segmenter
//! 9. `session/dialogue/uplink` and `audio/units`: `push`, `len`, `push`, `extend_piece`, `len`
//! 10. `session/follow_up`: `after_frame`, `may_send`, `update_timers`
//! 11. `session/dialogue`: `update_silence_timers`, `arm_unit`, `next_unit_at`, `silence_fill_at`
//! 12. `session/timers`: `set_or_clear`, `next`
//! 13. `bridge/mod` and `bridge/served`: `poll_output`, `poll_output`
//! 14. `session`: `pop_action`, `pop`, `is_finished`, `next_timeout`
//!
//! The frame that completes a unit takes all steps of [`session`], and [`upstream::Dialect::encode`] makes its message.
//!
//! Down, from the upstream's socket to the client's: a delta of audio of a requested text passes about 77 functions.
//! In a conversation it passes about 111 if it answers a unit, because the bridge then also measures the unit.
//!
//! 1. `bridge/mod` and `bridge/served`: `handle_input`, `handle_input`
//! 2. `upstream`: `decode`, `without_data_prefix`, `rule_matches`, `message_meta`, `emit_events`, `audio_event`,
//!    `decode_audio`
//! 3. `mapping/extract`, the JSON reader: 11 functions below `extract`
//! 4. `audio/pcm`: `decode_base64_f32`, `decode_into`
//! 5. `session/lane_routing`: `handle_lane_event`
//! 6. the lane's owner, `session/tts/synthesizer` with `session/upstream/connection`: 9 functions below `handle_lane_event`.
//!    In a conversation the owner is `session/dialogue`, below `handle_event`.
//! 7. `session/tts/player`, 15 functions below `push_audio`, with `audio/playout` (5), and `audio/output_converter`,
//!    `audio/encoding`, `audio/pcm` and `audio/playout_queue`, which make and hold the client's bytes (12)
//! 8. `session/follow_up` and `session/timers`: `after_delta`, `update_timers`, `set_or_clear`, `next`
//! 9. `bridge/mod` and `bridge/served`: `poll_output`, `poll_output`
//! 10. `session`: `push_client`, `pop_action`, `pop`, `is_finished`, `next_timeout`
//! 11. `downstream/encode` and `mapping/client/events`: `encode`, `turn`. The turn tag lets the socket discard the frame after a barge-in.
//!
//! The figures count distinct functions of this crate, without closures, constructors, drop glue and trait glue of `std`.
//! They come from an unoptimised build under `valgrind --tool=callgrind --toggle-collect`, over one
//! [`bridge::Bridge::handle_input`] and the [`bridge::Bridge::poll_output`] calls until `Wait`. Where they say "about",
//! later changes were counted by hand.
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
mod foreign;
pub mod mapping;
#[cfg(feature = "io")]
pub mod media;
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
