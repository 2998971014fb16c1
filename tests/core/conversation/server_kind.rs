//! The servers a conversation runs on: the current dialect's two back-ends, the real legacy server, and the
//! legacy server as documented, and SGLang-Omni.

use super::{harness::HarnessConfig, *};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Pytorch,
    Cpp,
    Legacy,
    Documented,
    SglangOmni,
}

impl ServerKind {
    /// All kinds.
    pub(crate) const ALL: [Self; 5] =
        [Self::Pytorch, Self::Cpp, Self::Legacy, Self::Documented, Self::SglangOmni];

    /// Kinds of the Demo, which can be made to listen and tell how full their context is.
    pub(crate) const OF_DEMO: [Self; 4] = [Self::Pytorch, Self::Cpp, Self::Legacy, Self::Documented];

    /// Kinds that can speak a given text and transcribe.
    pub(crate) const WITH_CHAT: [Self; 2] = [Self::Pytorch, Self::Cpp];

    /// Kinds that can do neither.
    pub(crate) const LEGACY: [Self; 2] = [Self::Legacy, Self::Documented];

    /// Makes the gateway a server of this kind.
    pub(crate) fn configure(self, config: &mut HarnessConfig) {
        let (dialect, backend, upstream) = match self {
            Self::Pytorch => (SimDialect::Current, Backend::Pytorch, "minicpm-o"),
            Self::Cpp => (SimDialect::Current, Backend::Cpp, "minicpm-o"),
            Self::Legacy => {
                (SimDialect::Legacy { follows_document: false }, Backend::Pytorch, "minicpm-o-legacy")
            }
            Self::Documented => {
                (SimDialect::Legacy { follows_document: true }, Backend::Pytorch, "minicpm-o-legacy")
            }
            Self::SglangOmni => (SimDialect::SglangOmni, Backend::Pytorch, "sglang-omni"),
        };
        (config.simulator.dialect, config.simulator.backend, config.upstream) = (dialect, backend, upstream);
    }
}
