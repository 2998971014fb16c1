//! The commands that are servers, or look at files; the clients are beside this folder.

mod check;
mod config_layers;
mod demo;
mod doctor;
mod health;
mod mappings;
mod reload;
mod replay;
mod serve;
mod signals;
mod simulate;

use std::process::ExitCode;

use super::{Cli, Command, speak, talk, transcribe};

/// The command line or the configuration is wrong (clap's own code).
const USAGE: u8 = 2;
/// The input is not what it should be (sysexits.h, as for the clients).
const NO_DATA: u8 = 65;
/// The input cannot be read.
const NO_INPUT: u8 = 66;

/// Nobody answers at the address.
const NOBODY: u8 = 69;
/// A server stopped as it was told, but sessions had not finished in time.
const CUT_OFF: u8 = 3;
/// Stopped by a signal, whose number is added to this, as shells do.
const SIGNALLED: u8 = 128;

/// Why a command failed: the exit code and the line to print.
pub(super) struct Failure {
    code: u8,
    words: String,
}

impl Failure {
    fn of(code: u8, words: impl ToString) -> Self {
        Self { code, words: words.to_string() }
    }

    /// It was said why already.
    pub(super) const fn silent() -> Self {
        Self { code: 1, words: String::new() }
    }

    /// The configuration is wrong.
    pub(super) fn usage(words: impl ToString) -> Self {
        Self { code: USAGE, words: words.to_string() }
    }

    /// It was understood and failed.
    pub(super) fn failed(words: impl ToString) -> Self {
        Self { code: 1, words: words.to_string() }
    }
}

impl From<super::ClientError> for Failure {
    fn from(error: super::ClientError) -> Self {
        Self { code: error.exit_code(), words: error.to_string() }
    }
}

/// Carries out the command; what went wrong goes to standard error.
pub async fn run(cli: Cli) -> ExitCode {
    let done = match cli.command {
        Command::Demo(args) => demo::run(args).await,
        Command::Serve(args) => serve::run(args).await,
        Command::Simulate(args) => simulate::run(args).await,
        Command::Transcribe(args) => transcribe::run(&args).await.map_err(Failure::from),
        Command::Speak(args) => speak::run(&args).await.map_err(Failure::from),
        Command::Talk(args) => talk::run(&args).await.map_err(Failure::from),
        Command::Health(args) => health::run(args).await,
        Command::Check(args) => check::run(args),
        Command::Doctor(args) => doctor::run(args).await,
        Command::Mappings(args) => mappings::run(args),
        Command::Replay(args) => replay::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.words.is_empty() {
                eprintln!("voxbridge: {}", failure.words);
            }
            ExitCode::from(failure.code)
        }
    }
}

/// Done when the user or the system wants the program to stop.
///
/// # Errors
/// The system cannot tell.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::failed)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
