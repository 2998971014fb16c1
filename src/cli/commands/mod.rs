//! Runs the chosen command. This folder holds the servers, checks and file tools; the client commands are beside it.

mod check;
mod demo;
mod doctor;
mod generate;
mod health;
mod mappings;
mod reload;
pub(super) mod replay;
mod serve;
mod signals;
mod simulate;
mod value_sources;
mod verify;

use std::process::ExitCode;

use super::{
    Cli, CliCommand,
    args::{ReplayArgs, SpeakArgs, TranscribeArgs},
    ending::Ending,
    error::{EXIT_FAILED, EXIT_USAGE, SIGNAL_BASE},
    output, speak,
    stop_signals::StopSignals,
    talk, transcribe,
};

/// The server drained, but cut off sessions that had not finished in time.
const SESSIONS_CUT_OFF: u8 = 3;

/// Failure of a command: exit code and message.
pub(super) struct CommandError {
    exit_code: u8,
    message: String,
}

impl CommandError {
    fn with_code(code: u8, message: impl ToString) -> Self {
        Self { exit_code: code, message: message.to_string() }
    }

    /// Failure whose output is already printed.
    pub(super) const fn already_reported() -> Self {
        Self { exit_code: EXIT_FAILED, message: String::new() }
    }

    /// A signal stopped the command, as in shells.
    pub(super) fn stopped_by(signal: u8) -> Self {
        Self { exit_code: SIGNAL_BASE + signal, message: String::new() }
    }

    /// The command line or the configuration is wrong.
    pub(super) fn usage(message: impl ToString) -> Self {
        Self::with_code(EXIT_USAGE, message)
    }

    /// The command itself failed.
    pub(super) fn failed(message: impl ToString) -> Self {
        Self::with_code(EXIT_FAILED, message)
    }
}

impl From<super::ClientError> for CommandError {
    fn from(error: super::ClientError) -> Self {
        if error.is_closed_pipe() {
            return Self { exit_code: 0, message: String::new() };
        }
        if let super::ClientError::Stopped(signal) = error {
            return Self::stopped_by(signal);
        }
        Self { exit_code: error.exit_code(), message: error.to_string() }
    }
}

/// Runs the command and prints its error to standard error.
pub async fn run(cli: Cli) -> ExitCode {
    let result = match cli.command {
        CliCommand::Demo(args) => demo::run(args).await,
        CliCommand::Serve(args) => serve::run(args).await,
        CliCommand::Simulate(args) => simulate::run(args).await,
        CliCommand::Transcribe(args) => run_transcribe(&args).await,
        CliCommand::Speak(args) => run_speak(&args).await,
        CliCommand::Talk(args) => talk::run(&args).await.map_err(CommandError::from),
        CliCommand::Health(args) => health::run(args).await,
        CliCommand::Check(args) => check::run(args),
        CliCommand::Doctor(args) => doctor::run(args).await,
        CliCommand::Verify(args) => verify::run(&args).await,
        CliCommand::Mappings(args) => mappings::run(args),
        CliCommand::Replay(args) => run_replay(&args).await,
        CliCommand::Completions(args) => generate::print_completions(&args),
        CliCommand::Man(args) => generate::print_manual(&args),
    };
    crate::telemetry::log::flush();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !error.message.is_empty() {
                output::print_message(error.message);
            }
            ExitCode::from(error.exit_code)
        }
    }
}

async fn run_transcribe(args: &TranscribeArgs) -> Result<(), CommandError> {
    Ok(transcribe::run(args, ending()?).await?)
}

async fn run_speak(args: &SpeakArgs) -> Result<(), CommandError> {
    Ok(speak::run(args, ending()?).await?)
}

/// Replays traces or a recording: the arguments name one or the other.
async fn run_replay(args: &ReplayArgs) -> Result<(), CommandError> {
    match &args.recording {
        Some(recording) => replay::recording::run(args, recording, ending()?).await,
        None => replay::run(args),
    }
}

/// The signals of a command that asks upstreams.
fn ending() -> Result<Ending, CommandError> {
    Ending::listen().map_err(CommandError::failed)
}

/// Future that completes at a signal that stops a command, with its number.
///
/// # Errors
/// The signal handlers cannot be installed.
pub(super) fn stop_signal() -> Result<impl Future<Output = u8>, CommandError> {
    let mut signals = StopSignals::listen().map_err(CommandError::failed)?;
    Ok(async move { signals.next().await.number })
}
