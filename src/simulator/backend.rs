//! The two back-ends of the real workers and the differences on their wire.
//!
//! Sources: mappings/notes/minicpm-o.md#rejections for PyTorch; mappings/notes/llama-cpp-omni.md#events for C++, whose
//! event shapes are taken from its own builders.

/// Inference back-end of a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The PyTorch back-end of the MiniCPM-o demo.
    #[default]
    Pytorch,
    /// The C++ back-end, llama.cpp-omni.
    Cpp,
}

impl Backend {
    /// Value of `metrics.backend`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Cpp => "llama.cpp-omni",
        }
    }

    /// Default of `max_new_tokens` (mappings/notes/minicpm-o.md#chat, mappings/notes/llama-cpp-omni.md#chat).
    pub(super) const fn default_max_new_tokens(self) -> usize {
        match self {
            Self::Pytorch => 256,
            Self::Cpp => 512,
        }
    }

    /// Reason in the `session.closed` that answers a `session.close`; C++ discards the client's reason.
    pub(super) fn close_reason(self, given: String) -> String {
        match self {
            Self::Pytorch => given,
            Self::Cpp => "client_closed".to_owned(),
        }
    }
}

/// Error: unknown back-end name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown back-end `{0}`; the back-ends are pytorch and cpp")]
pub struct ParseBackendError(String);

impl std::str::FromStr for Backend {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "pytorch" => Ok(Self::Pytorch),
            "cpp" => Ok(Self::Cpp),
            _ => Err(ParseBackendError(text.to_owned())),
        }
    }
}
