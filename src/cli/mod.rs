//! The command line: its arguments, and the commands that are clients of a Macaw server.

pub mod args;
pub mod client;
mod commands;
pub mod demo;
pub mod error;
pub mod seen;
pub mod show;
pub mod speak;
pub mod talk;
pub mod transcribe;

mod brief;
mod dial;
mod input;
mod key;
mod listen;
mod split;
#[cfg(test)]
mod tests;
mod view;

pub use args::{Cli, Command};
pub use client::{Client, Target, Timing};
pub use commands::run;
pub use error::ClientError;
