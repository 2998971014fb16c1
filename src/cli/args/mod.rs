//! Command-line arguments and their help texts. The commands themselves are in [`super::commands`] and beside it.
//!
//! All options of `serve` are optional, because the configuration file can set them, too. Flags override the environment
//! (clap does this), and the environment overrides the file.

mod clients;
mod examples;
mod mappings;
mod simulate;
mod sources;
mod verify;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};

pub use self::clients::{
    KeyArgs, ServerArgs, SpeakArgs, TalkArgs, TargetArgs, TranscribeArgs, TranscriptFormatArg, UpstreamArgs,
};
use self::examples::{
    CHECK_EXAMPLES, COMPLETIONS_EXAMPLES, DEMO_EXAMPLES, DOCTOR_EXAMPLES, EXIT_CODES, MAN_EXAMPLES,
    SERVE_EXAMPLES,
};
pub use self::mappings::{ExplainFormat, KindArg, MappingsArgs, MappingsCommand, ReplayArgs, TryFormat};
pub use self::simulate::{BackendArg, ServerArg, SimulateArgs};
pub use self::sources::OptionSources;
pub use self::verify::VerifyArgs;
use crate::audio::vad::earshot;
use crate::config::complete_address;

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

impl Cli {
    /// Parses the command line. Ends the program with a message if it is wrong.
    #[must_use]
    pub fn from_command_line() -> Self {
        let command = Self::command();
        let matches = command.clone().get_matches();
        let mut cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        if let (
            CliCommand::Check(CheckArgs { config, .. }) | CliCommand::Serve(ServeArgs { config, .. }),
            Some((name, matches)),
        ) = (&mut cli.command, matches.subcommand())
        {
            let sources = command.find_subcommand(name).map(|command| OptionSources::of(command, matches));
            config.sources = sources.unwrap_or_default();
        }
        cli
    }
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
    /// Replay a recorded session (serve --trace) and show which outputs differ
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
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_key"])]
    pub tls_self_signed: bool,
    /// Serve a page at /playground to try the server in a browser, and to see the messages of both sides. On a non-loopback
    /// address it requires API keys
    #[arg(long)]
    pub playground: bool,
}

/// Arguments of `voxbridge serve`, `check` and `doctor`, which override the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// MiniCPM-o server, such as ws://HOST:8006/v1/realtime. serve needs one here or in the configuration. Repeat the option
    /// or separate URLs with commas to balance the load over several servers
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        env = "VOXBRIDGE_UPSTREAM",
        hide_env_values = true
    )]
    pub upstream: Vec<String>,
    /// Address to listen on: PORT for this machine only, or IP:PORT [default: 127.0.0.1:8000]. Repeat the option or separate
    /// addresses with commas to listen on several
    #[arg(
        long,
        value_name = "[IP:]PORT",
        value_delimiter = ',',
        env = "VOXBRIDGE_LISTEN",
        hide_env_values = true,
        value_parser = complete_address
    )]
    pub listen: Vec<String>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// Function offered to clients: speech, live, assistant, conversation, video, or your own profile [default: speech, for
    /// OpenAI's clients assistant]
    #[arg(long, value_name = "NAME", env = "VOXBRIDGE_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,
    /// Directory with mapping files that extend or override the built-in ones
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
    /// Default language of sessions: en or zh [default: en]
    #[arg(long, value_name = "xx", env = "VOXBRIDGE_LANGUAGE", hide_env_values = true)]
    pub language: Option<String>,
    /// Close a client that sends nothing and awaits nothing for this many milliseconds; 0 means never [default: set by the
    /// client protocol]
    #[arg(long, value_name = "MS", env = "VOXBRIDGE_IDLE_TIMEOUT_MS", hide_env_values = true)]
    pub idle_timeout_ms: Option<u64>,
    /// Maximum number of concurrent sessions [default: 1000]
    #[arg(long, value_name = "N", env = "VOXBRIDGE_SESSIONS_MAX", hide_env_values = true)]
    pub sessions_max: Option<usize>,
    /// Number of worker threads for sessions [default: one per core]
    #[arg(long, value_name = "N", env = "VOXBRIDGE_WORKERS", hide_env_values = true, value_parser = parse_thread_count)]
    pub workers: Option<NonZeroUsize>,
    /// Weights of the model that judges whether a user has finished, smart-turn-v3.2-cpu.onnx, as fetched by
    /// examples/engines/setup
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_TURN_MODEL", hide_env_values = true)]
    pub turn_model: Option<PathBuf>,
    /// CA certificates (PEM) to trust for a wss:// upstream, in addition to the system's
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_UPSTREAM_CA", hide_env_values = true)]
    pub upstream_ca: Option<PathBuf>,
    /// Protocol dialect of the MiniCPM-o server: auto, minicpm-o, minicpm-o-legacy, sglang-omni, vllm-omni, llama-cpp-omni, sglang-omni-http, vllm-omni-http, openai-audio, or your own [default: auto]
    #[arg(long, value_name = "NAME", env = "VOXBRIDGE_UPSTREAM_DIALECT", hide_env_values = true)]
    pub upstream_dialect: Option<String>,
    /// Certificate (PEM) for serving clients over TLS; requires --tls-key
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_TLS_CERT", hide_env_values = true)]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of the --tls-cert certificate
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_TLS_KEY", hide_env_values = true)]
    pub tls_key: Option<PathBuf>,
    /// File (TOML) with API keys of clients; clients then need a key
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_KEYS", hide_env_values = true)]
    pub keys: Option<PathBuf>,
    /// Directory for session traces, one file per session, without audio and secrets; see replay
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_TRACE", hide_env_values = true)]
    pub trace: Option<PathBuf>,
    /// Include audio in the traces
    #[arg(long)]
    pub trace_audio: bool,
    /// Address of the admin listener (health, metrics, sessions, commands) [default: no admin listener]. On a non-loopback
    /// address it requires a token or [admin.tls] in the configuration
    #[arg(
        long,
        value_name = "[IP:]PORT",
        env = "VOXBRIDGE_ADMIN",
        hide_env_values = true,
        value_parser = complete_address
    )]
    pub admin: Option<String>,
    /// File with the token that the admin listener requires
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub admin_token_file: Option<PathBuf>,
    /// Log options.
    #[command(flatten)]
    pub log: LogArgs,
    /// Where the values come from.
    #[arg(skip)]
    pub sources: OptionSources,
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

/// Parses a number of threads. The configuration check enforces the upper bound.
fn parse_thread_count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "expected a number of threads, 1 or more".to_owned())
}

/// Parses the time limit of a doctor step, in seconds.
fn parse_step_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected 0.1 to 3600 seconds, such as 30".to_owned())
}

/// Log level and format.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LogArgs {
    /// Log level: error, warn, info, debug, trace, or a filter such as voxbridge=debug [default: info]
    #[arg(long = "log", value_name = "LEVEL", env = "VOXBRIDGE_LOG", hide_env_values = true)]
    pub level: Option<String>,
    /// Log format: text or json [default: text]
    #[arg(
        long = "log-format",
        value_name = "FORMAT",
        hide_possible_values = true,
        env = "VOXBRIDGE_LOG_FORMAT",
        hide_env_values = true
    )]
    pub format: Option<LogFormat>,
}

/// Log format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Plain text lines
    Text,
    /// One JSON object per line
    Json,
}

#[cfg(test)]
mod tests;
