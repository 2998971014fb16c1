//! Entry point of the `voxbridge` program.

use std::process::ExitCode;

use clap::Parser as _;
use voxbridge::cli::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    run(Cli::parse()).await
}
