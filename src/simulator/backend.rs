//! The two back-ends behind the real workers, and how their wire differs.
//!
//! PyTorch as in field notes §1.3–§1.5, C++ as in §1.7 (the shapes of its events are those its own builders make).

/// Which back-end a worker runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Backend {
    /// The PyTorch back-end of the MiniCPM-o demo.
    #[default]
    Pytorch,
    /// The C++ back-end, llama.cpp-omni.
    Cpp,
}

impl Backend {
    /// What `metrics.backend` says.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pytorch => "pytorch",
            Self::Cpp => "llama.cpp-omni",
        }
    }

    /// The `max_new_tokens` of a request that gives none (field notes §1.7, §2).
    pub(super) const fn default_max_new_tokens(self) -> usize {
        match self {
            Self::Pytorch => 256,
            Self::Cpp => 512,
        }
    }

    /// The reason of the `session.closed` that answers a `session.close`: C++ loses the client's own.
    pub(super) fn close_reason(self, given: String) -> String {
        match self {
            Self::Pytorch => given,
            Self::Cpp => "client_closed".to_owned(),
        }
    }
}

/// Text that names no back-end.
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
