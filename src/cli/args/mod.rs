//! The command line: what can be said, and how it is explained. What is done with it is elsewhere.
//!
//! Options of `serve` are all optional here, because a configuration file may say them too: flags win over the
//! environment (clap sees to that), and the environment over the file.

mod clients;
mod examples;

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use self::clients::{KeyArgs, SpeakArgs, TalkArgs, TranscribeArgs};
use self::examples::{
    CHECK_EXAMPLES, DEMO_EXAMPLES, DOCTOR_EXAMPLES, EXIT_CODES, MAPPINGS_EXAMPLES, REPLAY_EXAMPLES,
    SERVE_EXAMPLES, SIMULATE_EXAMPLES,
};

/// Plugs existing speech WebSocket clients into MiniCPM-o, unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(name = "voxbridge", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: CliCommand,
}

/// The commands.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CliCommand {
    /// Show the bridge at work: a recording goes in, both wires are shown, an answer comes out
    Demo(DemoArgs),
    /// Serve speech clients with a MiniCPM-o server
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ConfigArgs),
    /// Be a MiniCPM-o server without a model, for tests and trials
    Simulate(SimulateArgs),
    /// Send a recording to a server and print its words
    Transcribe(TranscribeArgs),
    /// Have a text spoken by a server and save it as a WAV file
    Speak(SpeakArgs),
    /// Ask a server that talks (profile conversation) a spoken question and save its answer as a WAV file
    Talk(TalkArgs),
    /// Ask a server's admin listener whether it is ready: exit code 0 if it is, 1 if not
    Health(HealthArgs),
    /// Check the configuration and the mapping files without serving
    #[command(after_help = CHECK_EXAMPLES)]
    Check(ConfigArgs),
    /// Walk the way to each upstream step by step, and say where it ends and why
    #[command(after_help = DOCTOR_EXAMPLES)]
    Doctor(DoctorArgs),
    /// List, show, explain, begin and try mapping files
    Mappings(MappingsArgs),
    /// Run a recorded session (serve --trace) through the core again and show what comes out otherwise
    Replay(ReplayArgs),
}

/// `voxbridge demo`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Recording to play; without it, the one that comes with the program
    #[arg(value_name = "WAV")]
    pub recording: Option<PathBuf>,
    /// Directory with real speech engines for the simulated model, as examples/engines/setup makes it
    #[arg(long, value_name = "DIR")]
    pub engines: Option<PathBuf>,
    /// Talk with the model in full duplex, instead of having the recording transcribed and a text spoken
    #[arg(long)]
    pub talk: bool,
    /// Keep the servers up afterwards, until Ctrl-C
    #[arg(long)]
    pub stay: bool,
    /// Where the spoken answer goes
    #[arg(short, long, value_name = "OUT.wav", default_value = "voxbridge-demo.wav")]
    pub output: PathBuf,
}

/// `voxbridge serve` and `voxbridge check`: what may be in the configuration file, said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ConfigArgs {
    /// MiniCPM-o server, such as ws://HOST:8006/v1/realtime; to serve, it is needed here or in the configuration. Several
    /// share the load: give it several times, or with commas between
    #[arg(
        long,
        value_name = "URL",
        value_delimiter = ',',
        env = "VOXBRIDGE_UPSTREAM",
        hide_env_values = true
    )]
    pub upstream: Vec<String>,
    /// Address to listen on [default: 127.0.0.1:8000]
    #[arg(long, value_name = "IP:PORT", env = "VOXBRIDGE_LISTEN", hide_env_values = true)]
    pub listen: Option<SocketAddr>,
    /// Configuration file (TOML)
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
    /// What the clients' verbs mean: speech, conversation, video, or one of your own [default: speech]
    #[arg(long, value_name = "NAME", env = "VOXBRIDGE_PROFILE", hide_env_values = true)]
    pub profile: Option<String>,
    /// Directory with mapping files that add to the built-in ones or override them
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
    /// Language of sessions that name none: en or zh [default: en]
    #[arg(long, value_name = "xx", env = "VOXBRIDGE_LANGUAGE", hide_env_values = true)]
    pub language: Option<String>,
    /// Close a client that sends no audio for so long, in milliseconds, 0 for never [default: as the client protocol says]
    #[arg(long, value_name = "MS", env = "VOXBRIDGE_IDLE_TIMEOUT_MS", hide_env_values = true)]
    pub idle_timeout_ms: Option<u64>,
    /// Sessions at a time [default: 1000]
    #[arg(long, value_name = "N", env = "VOXBRIDGE_SESSIONS_MAX", hide_env_values = true)]
    pub sessions_max: Option<usize>,
    /// Threads that sessions run on [default: one for each core]
    #[arg(long, value_name = "N", env = "VOXBRIDGE_WORKERS", hide_env_values = true, value_parser = parse_thread_count)]
    pub workers: Option<NonZeroUsize>,
    /// Certificates (PEM) to trust for a wss:// upstream, besides those of this system
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_UPSTREAM_CA", hide_env_values = true)]
    pub upstream_ca: Option<PathBuf>,
    /// How the MiniCPM-o server spells things: minicpm-o, minicpm-o-legacy, or a dialect of your own [default: minicpm-o]
    #[arg(long, value_name = "NAME", env = "VOXBRIDGE_UPSTREAM_DIALECT", hide_env_values = true)]
    pub upstream_dialect: Option<String>,
    /// Certificate (PEM) to serve clients by TLS with; needs --tls-key
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_TLS_CERT", hide_env_values = true)]
    pub tls_cert: Option<PathBuf>,
    /// Private key (PEM) of that certificate
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_TLS_KEY", hide_env_values = true)]
    pub tls_key: Option<PathBuf>,
    /// File (TOML) with the keys of clients, who then need one
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_KEYS", hide_env_values = true)]
    pub keys: Option<PathBuf>,
    /// Record every session in a file of this directory, without audio and secrets; see replay
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_TRACE", hide_env_values = true)]
    pub trace: Option<PathBuf>,
    /// Record what clients and upstreams say, too
    #[arg(long)]
    pub trace_audio: bool,
    /// Address of the admin listener, with health, metrics, sessions and orders; none without it. Beyond this machine it
    /// needs a token or [admin.tls] in the configuration
    #[arg(long, value_name = "IP:PORT", env = "VOXBRIDGE_ADMIN", hide_env_values = true)]
    pub admin: Option<SocketAddr>,
    /// File with the token that the admin listener asks for
    #[arg(long, value_name = "FILE", env = "VOXBRIDGE_ADMIN_TOKEN_FILE", hide_env_values = true)]
    pub admin_token_file: Option<PathBuf>,
    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// `voxbridge health`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct HealthArgs {
    /// The admin listener: IP:PORT, or http:// or https:// and that
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:9000",
        env = "VOXBRIDGE_ADMIN",
        hide_env_values = true
    )]
    pub admin: String,
    /// Ask only whether the process lives (/healthz), not whether it is ready (/readyz)
    #[arg(long)]
    pub alive: bool,
    /// Certificates (PEM) to trust for https, besides those of this system
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
}

/// `voxbridge doctor`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DoctorArgs {
    /// What would be served.
    #[command(flatten)]
    pub config: ConfigArgs,
    /// Walk the way of a client, too, to this address of a running voxbridge
    #[arg(long, value_name = "URL")]
    pub client_url: Option<String>,
    /// Certificates (PEM) to trust for a wss:// client URL, besides those of this system
    #[arg(long, value_name = "FILE")]
    pub client_ca: Option<PathBuf>,
    /// The key to show.
    #[command(flatten)]
    pub key: KeyArgs,
    /// How long a step may take
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = parse_step_timeout)]
    pub timeout: Duration,
    /// Print a report for programs
    #[arg(long)]
    pub json: bool,
}

/// A number of threads; how many there may be, the configuration says.
fn parse_thread_count(text: &str) -> Result<NonZeroUsize, String> {
    text.parse().map_err(|_| "it is a number of threads, 1 or more".to_owned())
}

/// A time that a step may take.
fn parse_step_timeout(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "it is 0.1 to 3600 seconds, such as 30".to_owned())
}

/// What is logged, and how.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct LogArgs {
    /// How much to log: error, warn, info, debug, trace, or a filter such as voxbridge=debug [default: info]
    #[arg(long = "log", value_name = "LEVEL", env = "VOXBRIDGE_LOG", hide_env_values = true)]
    pub level: Option<String>,
    /// How to write the log: text or json [default: text]
    #[arg(
        long = "log-format",
        value_name = "FORMAT",
        hide_possible_values = true,
        env = "VOXBRIDGE_LOG_FORMAT",
        hide_env_values = true
    )]
    pub format: Option<LogFormat>,
}

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// `voxbridge simulate`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub struct SimulateArgs {
    /// Address to listen on
    #[arg(long, value_name = "IP:PORT", default_value = "127.0.0.1:8006")]
    pub listen: SocketAddr,
    /// Which dialect to speak: minicpm-o or minicpm-o-legacy
    #[arg(long, value_name = "NAME", default_value = "minicpm-o", hide_possible_values = true)]
    pub dialect: DialectArg,
    /// Behave as the legacy dialect's document says, and not as its real server does
    #[arg(long)]
    pub as_documented: bool,
    /// Which back-end's wire to speak: pytorch or cpp
    #[arg(long, value_name = "NAME", default_value = "pytorch", hide_possible_values = true)]
    pub backend: BackendArg,
    /// Directory with real speech engines, as examples/engines/setup makes it
    #[arg(long, value_name = "DIR")]
    pub engines: Option<PathBuf>,
    /// Something that goes wrong; may be given several times
    #[arg(long = "fault", value_name = "NAME[=VALUE]")]
    pub faults: Vec<String>,
    /// How much to log.
    #[command(flatten)]
    pub log: LogArgs,
}

/// The dialects of the MiniCPM-o Realtime API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DialectArg {
    /// What servers speak today
    MinicpmO,
    /// What they spoke before
    MinicpmOLegacy,
}

/// The back-ends of MiniCPM-o servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// The PyTorch back-end of the MiniCPM-o demo
    Pytorch,
    /// The C++ back-end, llama.cpp-omni
    Cpp,
}

/// `voxbridge replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// A trace, as serve --trace writes them
    #[arg(value_name = "TRACE")]
    pub trace: PathBuf,
    /// Replay it with another profile, by name or file
    #[arg(long, value_name = "FILE|NAME")]
    pub profile: Option<String>,
    /// Directory with mapping files; those of the trace come before them
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
}

/// `voxbridge mappings`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = MAPPINGS_EXAMPLES, disable_help_subcommand = true)]
pub struct MappingsArgs {
    /// Directory with mapping files that add to the built-in ones or override them
    #[arg(long, value_name = "DIR", global = true, env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
    /// What to do with them.
    #[command(subcommand)]
    pub command: MappingsCommand,
}

/// What can be done with mapping files.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum MappingsCommand {
    /// Names and titles of all of them
    List,
    /// Print one of them, to read or to start your own from
    Show {
        /// Its name
        name: String,
        /// Its kind, where several have that name
        #[arg(long, value_name = "KIND")]
        kind: Option<KindArg>,
    },
    /// Which clients, profiles and dialects go together; with all three named, what becomes of every command, field and
    /// event
    Explain {
        /// Client protocol, such as macaw
        client: Option<String>,
        /// Profile, such as speech
        profile: Option<String>,
        /// Upstream dialect, such as minicpm-o
        dialect: Option<String>,
        /// How to print it
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: ExplainFormat,
    },
    /// Write a file to start your own mapping from
    New {
        /// Its name
        name: String,
        /// What it is to be: client, upstream or profile [default: client, or what --from is]
        #[arg(long, value_name = "KIND")]
        kind: Option<KindArg>,
        /// A mapping to copy; a profile extends it instead
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// Where to write it; without it, to standard output
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Overwrite the file if it is there
        #[arg(long)]
        force: bool,
    },
    /// Show what a mapping file makes of a recorded session (serve --trace)
    Try {
        /// The mapping file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// The recording
        #[arg(long, value_name = "TRACE")]
        trace: PathBuf,
        /// How to print it
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: TryFormat,
    },
}

/// How explanations are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// Columns for terminals
    Text,
    /// Tables
    Markdown,
    /// For programs; mappings/README.md has its shape
    Json,
}

/// How a trial is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TryFormat {
    /// Lines for people
    Text,
    /// For programs; mappings/README.md has its shape
    Json,
}

/// Kinds of mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// How a client spells things
    Client,
    /// How an upstream spells things
    Upstream,
    /// What the verbs of one mean in terms of the other
    Profile,
}

#[cfg(test)]
mod tests;
