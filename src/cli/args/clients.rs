//! Arguments of the client commands `transcribe`, `speak` and `talk`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use clap::{
    Args, ValueEnum,
    builder::{PossibleValuesParser, TypedValueParser},
};

use super::examples::{SPEAK_EXAMPLES, TALK_EXAMPLES, TRANSCRIBE_EXAMPLES};
use crate::{
    audio::encode::AudioFormat,
    cli::{dial::ServerTarget, error::ClientError, key::load_key},
};

/// Arguments of `voxbridge transcribe`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TRANSCRIBE_EXAMPLES)]
pub struct TranscribeArgs {
    /// Recordings (wav, mp3, m4a, mp4, webm, ogg, flac; recognized by their contents), folders with recordings, or - for
    /// standard input
    #[arg(value_name = "FILE|DIR|-", required = true)]
    pub files: Vec<PathBuf>,
    /// Server or upstreams.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Language of the speech, such as en or de
    #[arg(long, value_name = "xx")]
    pub language: Option<String>,
    /// Output format
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub format: TranscriptFormatArg,
    /// File to write, or directory for one file per recording (talk.mp3 becomes DIR/talk.srt); DIR/ is created [default:
    /// standard output; for recordings of a folder, beside each of them]
    #[arg(short, long, value_name = "FILE|DIR")]
    pub output: Option<PathBuf>,
    /// Also take the recordings in subfolders of folders
    #[arg(short, long)]
    pub recursive: bool,
    /// Leave out recordings that are done, and report transcripts that are older than their recording. For folders, this is the
    /// default. What an interrupted command has left is continued, and what failed asked for again, without it, too
    #[arg(long)]
    pub resume: bool,
    /// Begin anew where a command was interrupted, also for recordings of a folder that are done, and replace files that are older than their recordings
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Most columns of a line of subtitles; a Chinese, Japanese or Korean character takes two
    #[arg(long, value_name = "N", default_value = "42", value_parser = clap::value_parser!(u16).range(10..=500))]
    pub max_line: u16,
    /// Most lines of a subtitle
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u8).range(1..=10))]
    pub max_lines: u8,
    /// Longest time that a subtitle is shown, in seconds from 1 to 60
    #[arg(long, value_name = "SECONDS", default_value = "7", value_parser = parse_cue_length)]
    pub max_cue: Duration,
    /// Add the times of the words to --format json, as Whisper has them; they are estimated, and marked so
    #[arg(long)]
    pub word_timestamps: bool,
    /// Translate the speech into English; needs --upstream or an http:// URL
    #[arg(long)]
    pub translate: bool,
    /// Number of recordings in progress at a time [default: 4, in real time 1]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
    /// Print each server event as a line of JSON
    #[arg(long, conflicts_with_all = ["format", "output", "jobs", "resume", "word_timestamps"])]
    pub json: bool,
}

fn parse_pause(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.0..=30.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 0 to 30".to_owned())
}

fn parse_cue_length(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (1.0..=60.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected seconds from 1 to 60".to_owned())
}

/// Format of transcripts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum TranscriptFormatArg {
    /// One utterance per line
    Text,
    /// One JSON object per recording, as OpenAI's verbose_json: words, segments and their times
    Json,
    /// SubRip subtitles
    Srt,
    /// WebVTT subtitles
    Vtt,
}

impl TranscriptFormatArg {
    /// Extension of a file's name.
    pub(crate) const fn extension(self) -> &'static str {
        match self {
            Self::Text => "txt",
            Self::Json => "json",
            Self::Srt => "srt",
            Self::Vtt => "vtt",
        }
    }
}

/// Arguments of `voxbridge speak`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = SPEAK_EXAMPLES)]
pub struct SpeakArgs {
    /// Text to speak, or - for standard input; each paragraph is a request
    #[arg(
        value_name = "TEXT|-",
        allow_hyphen_values = true,
        required_unless_present = "file",
        conflicts_with = "file"
    )]
    pub text: Option<String>,
    /// Files with texts to speak, or folders with .txt and .md files, each to an audio file of its own
    #[arg(long, value_name = "TEXTFILE|DIR", num_args = 1..)]
    pub file: Vec<PathBuf>,
    /// Also take the texts in subfolders of folders
    #[arg(short, long)]
    pub recursive: bool,
    /// Speak all texts into one file; as mp3, it has a chapter for each text and each heading
    #[arg(long, requires = "file")]
    pub join: bool,
    /// Leave out texts whose audio file exists. For folders, this is the default. What an interrupted command has left is
    /// continued without it, too
    #[arg(long)]
    pub resume: bool,
    /// Speak all texts anew, also those of a folder whose audio file exists
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,
    /// Pause between paragraphs, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "0.6", value_parser = parse_pause)]
    pub paragraph_pause: Duration,
    /// Pause between chapters, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1.5", value_parser = parse_pause)]
    pub chapter_pause: Duration,
    /// File to write, or directory for one file per text (chapter.txt becomes DIR/chapter.mp3; DIR/ is created), or - for
    /// standard output
    #[arg(short, long, value_name = "OUT|DIR")]
    pub output: PathBuf,
    /// Audio format [default: by the ending of the output, otherwise wav]
    #[arg(long, value_name = "FORMAT", value_parser = audio_format_parser())]
    pub format: Option<AudioFormat>,
    /// Server or upstreams.
    #[command(flatten)]
    pub target: TargetArgs,
    /// Voice, by its name on the server
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
    /// Number of texts in progress at a time [default: 4, with a server by WebSocket 1]
    #[arg(long, value_name = "N")]
    pub jobs: Option<NonZeroUsize>,
}

fn audio_format_parser() -> impl TypedValueParser<Value = AudioFormat> {
    let names = PossibleValuesParser::new(AudioFormat::ALL.map(AudioFormat::name));
    names.try_map(|name| AudioFormat::from_name(&name).ok_or("unknown format"))
}

/// Arguments of `voxbridge talk`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TALK_EXAMPLES)]
pub struct TalkArgs {
    /// Recording with the question (any format of transcribe), or - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// WAV file for the answer (24 kHz, 16 bit), or - for standard output
    #[arg(short, long, value_name = "OUT.wav")]
    pub output: PathBuf,
    /// Server and model.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Where recordings and texts are sent.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TargetArgs {
    /// Server and model.
    #[command(flatten)]
    pub server: ServerArgs,
    /// MiniCPM-o servers.
    #[command(flatten)]
    pub upstream: UpstreamArgs,
}

/// MiniCPM-o servers to use without a server in between.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct UpstreamArgs {
    /// MiniCPM-o server to use directly, such as ws://HOST:8006/v1/realtime; no other server is needed. Repeat the option or
    /// separate URLs with commas to use several
    #[arg(long, value_name = "URL", value_delimiter = ',', conflicts_with_all = ["url", "model", "ca", "key_file"])]
    pub upstream: Vec<String>,
    /// CA certificates (PEM) to trust for a wss:// upstream, in addition to the system's
    #[arg(long, value_name = "FILE", requires = "upstream")]
    pub upstream_ca: Option<PathBuf>,
    /// Protocol dialect of the upstream: minicpm-o or llama-cpp-omni, or your own with --config [default: minicpm-o]
    #[arg(long, value_name = "NAME", requires = "upstream")]
    pub upstream_dialect: Option<String>,
    /// Configuration file of serve, for its upstreams with their tokens, its voices, mappings and language; no other server
    /// is needed
    #[arg(long, value_name = "FILE", conflicts_with_all = ["url", "model", "ca", "key_file"])]
    pub config: Option<PathBuf>,
}

impl UpstreamArgs {
    /// True if MiniCPM-o is used without a server in between.
    pub(crate) const fn is_given(&self) -> bool {
        !self.upstream.is_empty() || self.config.is_some()
    }
}

/// Server, model and API key of a client command.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ServerArgs {
    /// URL of the server, ws:// or wss://. transcribe and speak also take http:// and https:// URLs of servers with OpenAI's
    /// HTTP API
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// Model name; a Macaw server requires one of its models, voxbridge accepts any [default: minicpm-o]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// CA certificates (PEM) to trust for a wss:// server, in addition to the system's
    #[arg(long, value_name = "FILE")]
    pub ca: Option<PathBuf>,
    /// API key.
    #[command(flatten)]
    pub key: KeyArgs,
}

impl ServerArgs {
    /// Loads the key. The target has no language.
    pub(crate) fn target(&self) -> Result<ServerTarget, ClientError> {
        let key = load_key(self.key.key_file.as_deref())?;
        Ok(ServerTarget {
            url: self.url.clone(),
            model: self.model.clone(),
            language: None,
            ca: self.ca.clone(),
            key,
        })
    }
}

/// API key of a client command.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct KeyArgs {
    /// File with the API key to send; without this option, the key comes from the environment variable VOXBRIDGE_KEY, if set
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// URL of the default listener of `voxbridge serve`.
const DEFAULT_URL: &str = "ws://127.0.0.1:8000/v1/realtime";
