//! The command line: its arguments, and the commands that are clients of a Macaw server.

pub mod args;
pub mod show;

mod brief;

pub use args::{Cli, Command};
