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

use super::{Cli, CliCommand, speak, talk, transcribe};

/// The command line or the configuration is wrong (clap's own code).
const USAGE: u8 = 2;
/// The input is not what it should be (sysexits.h, as for the clients).
const INVALID_DATA: u8 = 65;
/// The input cannot be read.
const NO_INPUT: u8 = 66;

/// Nobody answers at the address.
const UNAVAILABLE: u8 = 69;
/// A server stopped as it was told, but sessions had not finished in time.
const SESSIONS_CUT_OFF: u8 = 3;
/// Stopped by a signal, whose number is added to this, as shells do.
const SIGNAL_BASE: u8 = 128;

/// Why a command failed: the exit code and the line to print.
pub(super) struct CommandError {
    exit_code: u8,
    message: String,
}

impl CommandError {
    fn with_code(code: u8, message: impl ToString) -> Self {
        Self { exit_code: code, message: message.to_string() }
    }

    /// It was said why already.
    pub(super) const fn already_reported() -> Self {
        Self { exit_code: 1, message: String::new() }
    }

    /// The configuration is wrong.
    pub(super) fn usage(message: impl ToString) -> Self {
        Self { exit_code: USAGE, message: message.to_string() }
    }

    /// It was understood and failed.
    pub(super) fn failed(message: impl ToString) -> Self {
        Self { exit_code: 1, message: message.to_string() }
    }
}

impl From<super::ClientError> for CommandError {
    fn from(error: super::ClientError) -> Self {
        Self { exit_code: error.exit_code(), message: error.to_string() }
    }
}

/// Carries out the command; what went wrong goes to standard error.
pub async fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        CliCommand::Demo(args) => demo::run(args).await,
        CliCommand::Serve(args) => serve::run(args).await,
        CliCommand::Simulate(args) => simulate::run(args).await,
        CliCommand::Transcribe(args) => transcribe::run(&args).await.map_err(CommandError::from),
        CliCommand::Speak(args) => speak::run(&args).await.map_err(CommandError::from),
        CliCommand::Talk(args) => talk::run(&args).await.map_err(CommandError::from),
        CliCommand::Health(args) => health::run(args).await,
        CliCommand::Check(args) => check::run(args),
        CliCommand::Doctor(args) => doctor::run(args).await,
        CliCommand::Mappings(args) => mappings::run(args),
        CliCommand::Replay(args) => replay::run(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.message.is_empty() {
                eprintln!("voxbridge: {}", error.message);
            }
            ExitCode::from(error.exit_code)
        }
    }
}

/// Done when the user or the system wants the program to stop.
///
/// # Errors
/// The system cannot tell.
pub(super) fn stop_signal() -> Result<impl Future<Output = ()>, CommandError> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(CommandError::failed)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(CommandError::failed)?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
