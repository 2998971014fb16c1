//! Command line: arguments, commands for recordings and texts, and all other commands in [`commands`].
//!
//! To change here: flags in [`args`], a file for each command, and how results are printed. Not here: what sessions
//! do ([`crate::bridge`]) and what settings mean ([`crate::config`]).

#![deny(clippy::print_stdout, clippy::print_stderr)] // they panic when the reader is gone: use `output`

pub mod args;
pub mod client;
mod commands;
pub mod demo;
pub mod error;
pub mod server_events;
pub mod side_by_side;
pub mod speak;
pub mod talk;
pub mod transcribe;

mod clock;
mod dial;
mod ending;
mod files;
mod http;
mod inputs;
mod json_summary;
mod key;
mod known_recordings;
mod local_bridge;
mod output;
mod output_file;
mod picture;
mod read_input;
mod realtime;
mod recording;
mod resume_file;
mod running_server;
mod simulated_server;
mod speech_audio;
mod stop_signals;
mod stream_recording;
mod synthetic_session;
mod target;
#[cfg(test)]
mod tests;
mod unknown_variables;
mod view;

pub use args::{Cli, CliCommand};
pub use client::{Client, ClientTiming};
pub use commands::run;
pub use dial::ServerTarget;
pub use error::ClientError;
