//! Arguments of `voxbridge mappings` and `replay`, which work on mapping files and traces without a server.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::{
    UpstreamArgs,
    examples::{MAPPINGS_EXAMPLES, REPLAY_EXAMPLES},
};

/// Arguments of `voxbridge replay`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = REPLAY_EXAMPLES)]
pub struct ReplayArgs {
    /// Trace file, as written by serve --trace; with --latency also several, and folders of them
    #[arg(value_name = "TRACE", required_unless_present = "recording", conflicts_with = "recording")]
    pub traces: Vec<PathBuf>,
    /// Say where the time goes from the end of the user's turn, or from a request, to the first audio: the median and the 90th
    /// percentile of each stage by profile and server. Needs traces with audio for the answers to speech
    #[arg(long, group = "report", conflicts_with_all = ["profile", "svg"])]
    pub latency: bool,
    /// Recording, as written by serve with a section record in its configuration: its audio or JSON file. The user is heard again by
    /// today's configuration, in real time, and both sessions are compared
    #[arg(long, value_name = "FILE", group = "report")]
    pub recording: Option<PathBuf>,
    /// With --latency or --recording: print JSON
    #[arg(long, requires = "report")]
    pub json: bool,
    /// Replay with another profile, given by name or file [default: that of the trace or recording]
    #[arg(long, value_name = "FILE|NAME")]
    pub profile: Option<String>,
    /// Draw the session as a timeline: audio, messages, latencies and upstream sessions. Needs a trace with audio for the
    /// envelopes. Of a recording, both sessions
    #[arg(long, value_name = "OUT.svg")]
    pub svg: Option<PathBuf>,
    /// Directory with mapping files; the mappings in a trace take precedence
    #[arg(long, value_name = "DIR", env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
    /// How a recording is replayed.
    #[command(flatten)]
    pub session: ReplaySessionArgs,
}

/// How `voxbridge replay --recording` replays the session.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ReplaySessionArgs {
    /// MiniCPM-o server that answers, such as ws://HOST:8006/v1/realtime [default: those of --config, or a simulated one]. Repeat
    /// the option or separate URLs with commas to use several
    #[arg(long, value_name = "URL", value_delimiter = ',', requires = "recording")]
    pub upstream: Vec<String>,
    /// CA certificates (PEM) to trust for a wss:// upstream, in addition to the system's
    #[arg(long, value_name = "FILE", requires = "upstream")]
    pub upstream_ca: Option<PathBuf>,
    /// Protocol dialect of the upstream [default: found by asking]
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub upstream_dialect: Option<String>,
    /// Configuration file of serve, for its upstreams with their tokens, its mappings, voices, language, tool servers and judge of
    /// turns
    #[arg(long, value_name = "FILE", requires = "recording")]
    pub config: Option<PathBuf>,
    /// Directory for the new recording; it is created
    #[arg(short, long, value_name = "DIR", default_value = "voxbridge-replay")]
    pub output: PathBuf,
}

impl ReplaySessionArgs {
    /// True if an option says how a recording is replayed.
    pub(crate) const fn is_given(&self) -> bool {
        !self.upstream.is_empty() || self.config.is_some()
    }

    /// The servers, as for `transcribe` and `speak`.
    pub(crate) fn upstreams(&self) -> UpstreamArgs {
        UpstreamArgs {
            upstream: self.upstream.clone(),
            upstream_ca: self.upstream_ca.clone(),
            upstream_dialect: self.upstream_dialect.clone(),
            config: self.config.clone(),
        }
    }
}

/// Arguments of `voxbridge mappings`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = MAPPINGS_EXAMPLES, disable_help_subcommand = true)]
pub struct MappingsArgs {
    /// Directory with mapping files that extend or override the built-in ones
    #[arg(long, value_name = "DIR", global = true, env = "VOXBRIDGE_MAPPINGS", hide_env_values = true)]
    pub mappings: Option<PathBuf>,
    /// Subcommand.
    #[command(subcommand)]
    pub command: MappingsCommand,
}

/// Subcommands of `voxbridge mappings`.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum MappingsCommand {
    /// List the kind, name and file of each mapping
    List,
    /// Print the source of a mapping
    Show {
        /// Name of the mapping
        name: String,
        /// Kind, needed if several mappings have this name
        #[arg(long, value_name = "KIND")]
        kind: Option<KindArg>,
    },
    /// Show which clients, profiles and dialects are compatible; if all three are given, show how each command, field and
    /// event is translated
    Explain {
        /// Client protocol, such as macaw
        client: Option<String>,
        /// Profile, such as speech
        profile: Option<String>,
        /// Upstream dialect, such as minicpm-o
        dialect: Option<String>,
        /// Output format
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: ExplainFormat,
    },
    /// Print the page of a client protocol: tested clients, what to change in them, and what has no effect; without a name,
    /// the table of all tested clients
    Page {
        /// Client protocol, such as gemini-live
        client: Option<String>,
    },
    /// Write a starting point for your own mapping file
    New {
        /// Name of the new mapping
        name: String,
        /// Kind: client, upstream or profile [default: client, or the kind of --from]
        #[arg(long, value_name = "KIND")]
        kind: Option<KindArg>,
        /// Mapping to copy; a profile extends it instead
        #[arg(long, value_name = "NAME")]
        from: Option<String>,
        /// For a client protocol that only transcribes: without speech to the client
        #[arg(long, conflicts_with = "from")]
        no_speech: bool,
        /// File to write [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Overwrite the file if it exists
        #[arg(long)]
        force: bool,
    },
    /// Replay a recorded session (serve --trace) with a mapping file and show what differs
    Try {
        /// Mapping file
        #[arg(value_name = "FILE")]
        file: PathBuf,
        /// Trace of the session
        #[arg(long, value_name = "TRACE")]
        trace: PathBuf,
        /// Output format
        #[arg(long, value_name = "FORMAT", default_value = "text")]
        format: TryFormat,
    },
}

/// Output format of `mappings explain`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainFormat {
    /// Columns for a terminal
    Text,
    /// Markdown tables
    Markdown,
    /// JSON; mappings/reference.md describes it
    Json,
}

/// Output format of `mappings try`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TryFormat {
    /// Plain text lines
    Text,
    /// JSON; mappings/reference.md describes it
    Json,
}

/// Kind of a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KindArg {
    /// Message format of a client protocol
    Client,
    /// Message format of an upstream dialect
    Upstream,
    /// How client commands become upstream sessions
    Profile,
}
