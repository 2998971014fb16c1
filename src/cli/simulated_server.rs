//! Simulated MiniCPM-o servers: the one place that starts them, for `simulate` and `demo`.

use std::{fmt::Display, io, path::Path, sync::Arc};

use super::{ClientError, args::ServerArg, known_recordings};
use crate::simulator::{
    HttpApi, RealtimeServer, SimDialect, SimulatorConfig, VllmVersion,
    engines::SpeechEngines,
    process::EngineProcess,
    socket::{self, Simulator},
};

/// Requests that a simulated server answers at a time; vLLM-Omni's deployment takes four.
const HTTP_WORKERS: usize = 4;

/// Binds a simulated server, which is not running yet.
pub(super) async fn bind(
    address: &str,
    config: SimulatorConfig,
    engines: Option<Arc<dyn SpeechEngines>>,
) -> io::Result<Simulator> {
    let simulator = socket::bind(address, config).await?;
    Ok(match engines {
        Some(engines) => simulator.with_engines(engines),
        None => simulator,
    })
}

/// Starts real speech engines for simulated models.
pub(super) async fn start_engines(dir: &Path) -> Result<Arc<dyn SpeechEngines>, ClientError> {
    let engines = EngineProcess::start(dir).await.map_err(|error| ClientError::Usage(error.to_string()))?;
    Ok(Arc::new(engines))
}

/// Speech engines that know the recordings of a directory, or the one in the program.
pub(super) async fn known_speech(dir: Option<&Path>) -> Result<Arc<dyn SpeechEngines>, ClientError> {
    Ok(Arc::new(known_recordings::known_speech(dir).await?))
}

impl ServerArg {
    /// The server with its defaults.
    pub(super) fn simulator_config(self) -> SimulatorConfig {
        let (dialect, http_api) = (self.simulated_dialect(), self.http_api());
        let vllm_version = if self == Self::VllmNext { VllmVersion::V0_32 } else { VllmVersion::V0_30 };
        let workers = match dialect {
            _ if http_api.is_some() => HTTP_WORKERS,
            SimDialect::VllmOmni => vllm_version.default_sessions(),
            dialect => dialect.default_workers(),
        };
        SimulatorConfig { dialect, vllm_version, http_api, workers, ..SimulatorConfig::default() }
    }

    /// Name of the server's dialect.
    pub const fn dialect(self) -> &'static str {
        match self {
            Self::Demo => "minicpm-o",
            Self::Legacy => "minicpm-o-legacy",
            Self::Vllm | Self::VllmNext => "vllm-omni",
            Self::Backend => "llama-cpp-omni",
            Self::Sglang => "sglang-omni",
            Self::Openai | Self::VllmTurn => "openai-realtime",
            Self::VllmHttp => HttpApi::VllmOmni.dialect(),
            Self::SglangHttp => HttpApi::SglangOmni.dialect(),
            Self::OpenaiAudio => HttpApi::OpenaiAudio.dialect(),
        }
    }

    /// The model that a client must name.
    pub(super) const fn model(self) -> Option<&'static str> {
        match self {
            Self::Openai => Some("gpt-realtime"),
            Self::OpenaiAudio => Some("simulated"),
            _ => None,
        }
    }

    /// URL of the server at this address.
    pub fn url(self, address: impl Display) -> String {
        match self.http_api() {
            Some(_) => format!("http://{address}"),
            None => format!("ws://{address}{}", self.simulated_dialect().path()),
        }
    }

    /// This server, and the one that transcribes and speaks beside it where this one only converses.
    pub(super) fn deployments(self) -> impl Iterator<Item = Self> {
        let speech = match self {
            Self::Sglang => Some(Self::SglangHttp),
            Self::Vllm | Self::VllmNext => Some(Self::VllmHttp),
            _ => None,
        };
        [Some(self), speech].into_iter().flatten()
    }

    const fn http_api(self) -> Option<HttpApi> {
        match self {
            Self::VllmHttp => Some(HttpApi::VllmOmni),
            Self::SglangHttp => Some(HttpApi::SglangOmni),
            Self::OpenaiAudio => Some(HttpApi::OpenaiAudio),
            _ => None,
        }
    }

    const fn simulated_dialect(self) -> SimDialect {
        match self {
            Self::Legacy => SimDialect::Legacy { follows_document: false },
            Self::Vllm | Self::VllmNext => SimDialect::VllmOmni,
            Self::Backend => SimDialect::LlamaCppOmni,
            Self::Sglang => SimDialect::SglangOmni,
            Self::Openai => SimDialect::OpenaiRealtime(RealtimeServer::Openai),
            Self::VllmTurn => SimDialect::OpenaiRealtime(RealtimeServer::VllmOmni),
            _ => SimDialect::Current,
        }
    }
}
