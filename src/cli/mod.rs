//! The command line: its arguments, and the commands that are clients of a Macaw server.

pub mod args;
pub mod client;
pub mod error;
pub mod seen;
pub mod show;

mod brief;
mod dial;
#[cfg(test)]
mod tests;

pub use args::{Cli, Command};
pub use client::{Client, Target, Timing};
pub use error::ClientError;
