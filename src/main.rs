//! Entry point of the `voxbridge` program.

use std::{io, process::ExitCode, time::Duration};

use clap::Parser as _;
use tokio::runtime::Runtime;
use voxbridge::cli::{Cli, run};

/// Longest wait for blocking work at the end. A read of standard input may last for ever.
const END_MAX: Duration = Duration::from_secs(1);

fn main() -> io::Result<ExitCode> {
    let runtime = Runtime::new()?;
    let exit_code = runtime.block_on(run(Cli::parse()));
    runtime.shutdown_timeout(END_MAX);
    Ok(exit_code)
}
