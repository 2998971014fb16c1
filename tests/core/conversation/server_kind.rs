//! Whom a conversation is held with: the current dialect's two back-ends, the legacy dialect's real server, and the server
//! that its document describes.

use voxbridge::simulator::{Backend, SimDialect};

use super::harness::HarnessConfig;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ServerKind {
    Pytorch,
    Cpp,
    Legacy,
    Documented,
}

impl ServerKind {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Pytorch, Self::Cpp, Self::Legacy, Self::Documented];

    /// Those that speak a given text, and transcribe.
    pub(crate) const WITH_CHAT: [Self; 2] = [Self::Pytorch, Self::Cpp];

    /// Those that do neither.
    pub(crate) const LEGACY: [Self; 2] = [Self::Legacy, Self::Documented];

    /// The gateway is one of these.
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
        };
        (config.simulator.dialect, config.simulator.backend, config.upstream) = (dialect, backend, upstream);
    }
}
