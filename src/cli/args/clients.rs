//! What can be said to the commands that are clients: whom to call, what to ask for, and what to show.

use std::path::PathBuf;

use clap::Args;

use super::examples::{SPEAK_EXAMPLES, TALK_EXAMPLES, TRANSCRIBE_EXAMPLES};

/// `voxbridge transcribe`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TRANSCRIBE_EXAMPLES)]
pub struct TranscribeArgs {
    /// WAV file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// The server, ws:// or wss://
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// Model to ask for; a Macaw server wants one that it has, voxbridge takes any [default: minicpm-o]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The key to show.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Language of the speech, such as en or de
    #[arg(long, value_name = "xx")]
    pub language: Option<String>,
    /// Print every event of the server as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// `voxbridge speak`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = SPEAK_EXAMPLES)]
pub struct SpeakArgs {
    /// Text to speak, or - for standard input; a long one is spoken in pieces
    #[arg(value_name = "TEXT|-", allow_hyphen_values = true)]
    pub text: String,
    /// WAV file to write (24 kHz, 16 bit), or - for standard output
    #[arg(short, long, value_name = "OUT.wav")]
    pub output: PathBuf,
    /// The server, ws:// or wss://
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// Model to ask for; a Macaw server wants one that it has, voxbridge takes any [default: minicpm-o]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The key to show.
    #[command(flatten)]
    pub key: KeyArgs,
    /// Voice, by the server's name for it
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
}

/// `voxbridge talk`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TALK_EXAMPLES)]
pub struct TalkArgs {
    /// WAV file with the question, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// WAV file for the answer (24 kHz, 16 bit), or - for standard output
    #[arg(short, long, value_name = "OUT.wav")]
    pub output: PathBuf,
    /// The server, ws:// or wss://
    #[arg(long, value_name = "URL", default_value = DEFAULT_URL)]
    pub url: String,
    /// Model to ask for [default: minicpm-o]
    #[arg(long, value_name = "NAME")]
    pub model: Option<String>,
    /// The key to show.
    #[command(flatten)]
    pub key: KeyArgs,
}

/// What a client shows.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct KeyArgs {
    /// File with the key to show to a server that wants one; without it that of the variable VOXBRIDGE_KEY, if there is one
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
}

/// Where `voxbridge serve` listens unless told otherwise.
const DEFAULT_URL: &str = "ws://127.0.0.1:8000/v1/realtime";
