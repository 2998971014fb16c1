//! Entry point of the `voxbridge` program.

use std::process::ExitCode;

use voxbridge::cli::{Cli, run};

#[tokio::main]
async fn main() -> ExitCode {
    run(Cli::from_command_line()).await
}
