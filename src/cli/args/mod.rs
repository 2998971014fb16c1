//! Command-line arguments and their help texts. The commands themselves are in [`super::commands`] and beside it.
//!
//! Options of `serve`, `check` and `doctor` come from the table of keys, [`crate::config::KEYS`]. Flags override the
//! environment (clap does this), and the environment overrides the file.

mod clients;
mod examples;
mod keys;
mod mappings;
mod simulate;
mod verify;

use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

pub use self::clients::{
    KeyArgs, ServerArgs, SpeakArgs, TalkArgs, TargetArgs, TranscribeArgs, TranscriptFormatArg, UpstreamArgs,
};
use self::examples::{
    CHECK_EXAMPLES, COMPLETIONS_EXAMPLES, DEMO_EXAMPLES, DOCTOR_EXAMPLES, EXIT_CODES, MAN_EXAMPLES,
    SERVE_EXAMPLES,
};
pub use self::keys::{ConfigArgs, LogArgs};
pub use self::mappings::{
    ExplainFormat, KindArg, MappingsArgs, MappingsCommand, ReplayArgs, ReplaySessionArgs, TryFormat,
};
pub use self::simulate::{BackendArg, ServerArg, SimulateArgs};
pub use self::verify::VerifyArgs;
use crate::audio::vad::earshot;

/// Version with the vector instructions that this machine offers, which decide the speed.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    format!("{}\nvector instructions: {}", env!("BUILT_VERSION"), earshot::vector_level_name())
});

/// Connects existing speech WebSocket clients to MiniCPM-o without changing them.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "voxbridge", version = env!("BUILT_VERSION"), long_version = LONG_VERSION.as_str(), after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// Command to run.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// Commands of the program.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CliCommand {
    /// Run a demonstration: play a recording, show the messages on both sides of the bridge, save the spoken answer
    Demo(DemoArgs),
    /// Serve speech clients from one or more MiniCPM-o servers
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Run a simulated MiniCPM-o server (no GPU, no model) for tests and trials
    Simulate(SimulateArgs),
    /// Transcribe or translate recordings, by a server or by MiniCPM-o directly: text, subtitles or JSON
    Transcribe(TranscribeArgs),
    /// Speak texts, by a server or by MiniCPM-o directly, and save the speech as audio files
    Speak(SpeakArgs),
    /// Send a spoken question to a conversational server (profile conversation) and save the answer as a WAV file
    Talk(TalkArgs),
    /// Ask a server's admin listener whether the server is ready: exit code 0 if ready, 1 if not
    Health(HealthArgs),
    /// Check the configuration and the mapping files without serving
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Test the connection to each upstream step by step, and explain failures
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// Verify a MiniCPM-o server for its users: words, speech, conversations, tools and capacity, each with a verdict
    Verify(VerifyArgs),
    /// List, show, explain, create and try mapping files
    Mappings(MappingsArgs),
    /// Replay a session: a trace (serve --trace), to show which outputs differ, or a recording, to hear the same user again
    Replay(ReplayArgs),
    /// Print a completion script for a shell
    #[command(after_help = COMPLETIONS_EXAMPLES)]
    Completions(CompletionsArgs),
    /// Print the manual page of the program or of a command
    #[command(after_help = MAN_EXAMPLES)]
    Man(ManArgs),
}

/// Arguments of `voxbridge demo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Recording to play instead of the built-in one
    #[arg(value_name = "WAV")]
    pub recording: Option<PathBuf>,
    /// Server to simulate, as for simulate. Beside sglang and vllm, which only converse, the demo simulates their deployment
    /// for speech
    #[arg(long, value_name = "NAME", default_value = "demo", hide_possible_values = true)]
    pub server: ServerArg,
    /// Use real speech engines for the simulated model: those in this directory, as created by examples/engines/setup. Without
    /// DIR, fetches them into target/engines if they are not there (about 130 MB; only in voxbridge's source directory)
    #[arg(long, value_name = "DIR")]
    pub engines: Option<Option<PathBuf>>,
    /// Hold a full-duplex conversation instead of transcribing the recording and speaking a text
    #[arg(long)]
    pub talk: bool,
    /// Show a client of OpenAI's Realtime API: a spoken question, its answer, and an interruption
    #[arg(long, conflicts_with = "talk")]
    pub openai: bool,
    /// Open the playground in the browser instead: talk to the simulated model, and see the messages on both sides. Ctrl-C stops
    #[arg(long, conflicts_with_all = ["recording", "talk", "openai"])]
    pub browser: bool,
    /// Keep the servers running until Ctrl-C, at 127.0.0.1:8000 (bridge) and 127.0.0.1:8006 (simulated model)
    #[arg(long)]
    pub stay: bool,
    /// WAV file for the spoken answer; a picture of the session is saved beside it as .svg
    #[arg(short, long, value_name = "OUT.wav", default_value = "voxbridge-demo.wav")]
    pub output: PathBuf,
}

/// Arguments of `voxbridge serve`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ServeArgs {
    /// Configuration to serve.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Serve clients over TLS with a self-signed certificate for this machine, which is made at the first start and kept
    #[arg(long, conflicts_with_all = ["tls-cert", "tls-key"])]
    pub tls_self_signed: bool,
    /// Serve a page at /playground to try the server in a browser, and to see the messages of both sides. On a non-loopback
    /// address it requires API keys
    #[arg(long)]
    pub playground: bool,
}

/// Arguments of `voxbridge check`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CheckArgs {
    /// Configuration to check.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Print the configuration, or the errors, as JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `voxbridge completions`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct CompletionsArgs {
    /// Shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Arguments of `voxbridge man`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ManArgs {
    /// Command, such as serve
    #[arg(value_name = "COMMAND")]
    pub command: Option<String>,
}

/// Arguments of `voxbridge health`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HealthArgs {
    /// Address of the admin listener: IP:PORT, http://IP:PORT or https://IP:PORT
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9000",
        env = "VOXBRIDGE_ADMIN",
        hide_env_values = true
    )]
    pub admin: String,
    /// Check only that the process is alive (/healthz), not that it is ready (/readyz)
    #[arg(long)]
    pub alive: bool,
    /// CA certificates (PEM) to trust for https, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// Arguments of `voxbridge doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DoctorArgs {
    /// Configuration to test.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Also test the path of a client to a running voxbridge at this URL
    #[arg(long, value_name = "URL")]
    pub client_url: Option<String>,
    /// CA certificates (PEM) to trust for a wss:// client URL, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// API key for --client-url.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Time limit of each step
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_step_timeout)]
    pub timeout: Duration,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Parses the time limit of a doctor step, in seconds.
fn parse_step_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 3600 seconds, such as 30".to_owned())
}

#[cfg(test)]
mod tests;
