//! Arguments of `simulate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{LogArgs, examples::SIMULATE_EXAMPLES};
use crate::config::complete_address;

/// Arguments of `voxbridge simulate`.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
#[command(after_help = SIMULATE_EXAMPLES)]
pub struct SimulateArgs {
    /// Address to listen on
    #[arg(
        long,
        value_name = "[IP:]PORT",
        default_value = "127.0.0.1:8006",
        value_parser = complete_address
    )]
    pub listen: String,
    /// Dialect of the simulated server: minicpm-o, minicpm-o-legacy, llama-cpp-omni, vllm-omni-http, sglang-omni-http or openai-audio
    #[arg(long, value_name = "NAME", default_value = "minicpm-o", hide_possible_values = true)]
    pub dialect: DialectArg,
    /// Follow the document of the legacy dialect where the real server deviates from it
    #[arg(long)]
    pub as_documented: bool,
    /// Back-end whose messages to imitate: pytorch or cpp
    #[arg(long, value_name = "NAME", default_value = "pytorch", hide_possible_values = true)]
    pub backend: BackendArg,
    /// Directory with real speech engines, as created by examples/engines/setup
    #[arg(long, value_name = "DIR")]
    pub engines: Option<PathBuf>,
    /// Fault to inject; can be repeated
    #[arg(long = "fault", value_name = "NAME[=VALUE]")]
    pub faults: Vec<String>,
    /// Log options.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Dialect of the MiniCPM-o Realtime API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum DialectArg {
    /// Current dialect
    MinicpmO,
    /// Previous dialect
    MinicpmOLegacy,
    /// llama.cpp-omni without a gateway, at /backend
    LlamaCppOmni,
    /// HTTP requests of vLLM-Omni
    VllmOmniHttp,
    /// HTTP requests of SGLang-Omni
    SglangOmniHttp,
    /// OpenAI's API for transcripts and speech
    OpenaiAudio,
}

/// Back-end of a MiniCPM-o server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BackendArg {
    /// PyTorch back-end of the MiniCPM-o demo
    Pytorch,
    /// C++ back-end, llama.cpp-omni
    Cpp,
}
