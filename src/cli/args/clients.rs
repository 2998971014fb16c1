//! Arguments of the client commands `transcribe`, `speak` and `talk`.

use std::path::PathBuf;

use clap::Args;

use super::examples::{SPEAK_EXAMPLES, TALK_EXAMPLES, TRANSCRIBE_EXAMPLES};
use crate::cli::{dial::ServerTarget, error::ClientError, key::load_key};

/// Arguments of `voxbridge transcribe`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TRANSCRIBE_EXAMPLES)]
pub struct TranscribeArgs {
    /// WAV file, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// Server and model.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Language of the speech, such as en or de
    #[arg(long, value_name = "xx")]
    pub language: Option<String>,
    /// Print each server event as a line of JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `voxbridge speak`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = SPEAK_EXAMPLES)]
pub struct SpeakArgs {
    /// Text to speak, or - for standard input; a long text is sent in several requests
    #[arg(value_name = "TEXT|-", allow_hyphen_values = true)]
    pub text: String,
    /// WAV file to write (24 kHz, 16 bit), or - for standard output
    #[arg(short, long, value_name = "OUT.wav")]
    pub output: PathBuf,
    /// Server and model.
    #[command(flatten)]
    pub server: ServerArgs,
    /// Voice, by its name on the server
    #[arg(long, value_name = "NAME")]
    pub voice: Option<String>,
}

/// Arguments of `voxbridge talk`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = TALK_EXAMPLES)]
pub struct TalkArgs {
    /// WAV file with the question, or - for standard input
    #[arg(value_name = "FILE|-")]
    pub file: PathBuf,
    /// WAV file for the answer (24 kHz, 16 bit), or - for standard output
    #[arg(short, long, value_name = "OUT.wav")]
    pub output: PathBuf,
    /// Server and model.
    #[command(flatten)]
    pub server: ServerArgs,
}

/// Server, model and API key of a client command.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct ServerArgs {
    /// URL of the server, ws:// or wss://
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
