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
    /// Server to simulate: demo, legacy, sglang, vllm, vllm-0.32, vllm-turn, backend, openai, sglang-http,
    /// vllm-http or openai-audio
    #[arg(long, value_name = "NAME", default_value = "demo", hide_possible_values = true)]
    pub server: ServerArg,
    /// Follow the document of the legacy server where the real one deviates from it
    #[arg(long)]
    pub as_documented: bool,
    /// Back-end whose messages to imitate: pytorch or cpp
    #[arg(long, value_name = "NAME", default_value = "pytorch", hide_possible_values = true)]
    pub backend: BackendArg,
    /// Count tokens in full duplex (`usage`, `chunk_index`, `chunk_usage`), as newer servers do
    #[arg(long)]
    pub counts_tokens: bool,
    /// Directory with real speech engines, as created by examples/engines/setup
    #[arg(long, value_name = "DIR")]
    pub engines: Option<PathBuf>,
    /// Without engines: recognise the recordings in DIR, as for verify, or the one in the program without DIR, and all speech of
    /// the simulated model
    #[arg(long, value_name = "DIR", num_args = 0..=1, conflicts_with = "engines")]
    pub recordings: Option<Option<PathBuf>>,
    /// Fault to inject; can be repeated
    #[arg(long = "fault", value_name = "NAME[=VALUE]")]
    pub faults: Vec<String>,
    /// Log options.
    #[command(flatten)]
    pub log: LogArgs,
}

/// Server for MiniCPM-o.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ServerArg {
    /// MiniCPM-o-Demo
    Demo,
    /// MiniCPM-o-Demo before its current API
    Legacy,
    /// vLLM-Omni in duplex mode
    Vllm,
    /// vLLM-Omni 0.32 in duplex mode
    #[value(name = "vllm-0.32")]
    VllmNext,
    /// vLLM-Omni 0.32 in turns, which speaks OpenAI's Realtime protocol
    VllmTurn,
    /// OpenAI's Realtime API
    Openai,
    /// llama.cpp-omni without a gateway, at /backend
    Backend,
    /// SGLang-Omni's full-duplex deployment
    Sglang,
    /// HTTP requests of vLLM-Omni
    VllmHttp,
    /// HTTP requests of SGLang-Omni
    SglangHttp,
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
