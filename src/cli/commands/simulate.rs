//! `voxbridge simulate`: runs the simulated MiniCPM-o server.

use std::{path::Path, sync::Arc};

use super::{CommandError, config_layers::log_config, stop_signal};
use crate::{
    cli::{
        args::{BackendArg, ServerArg, SimulateArgs},
        output,
    },
    simulator::{
        Backend, Fault, HttpApi, SimDialect, SimulatorConfig, engines::SpeechEngines, process::EngineProcess,
        socket,
    },
};

/// Requests that a simulated server answers at a time; vLLM-Omni's deployment takes four.
const HTTP_WORKERS: usize = 4;

pub(super) async fn run(args: SimulateArgs) -> Result<(), CommandError> {
    let faults = args.faults.iter().map(|fault| fault.parse::<Fault>());
    let faults = faults
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| CommandError::usage(format!("--fault: {error}")))?;
    log_config(args.log).start_log().map_err(CommandError::usage)?;
    let backend = match args.backend {
        BackendArg::Pytorch => Backend::Pytorch,
        BackendArg::Cpp => Backend::Cpp,
    };
    let http_api = match args.server {
        ServerArg::VllmHttp => Some(HttpApi::VllmOmni),
        ServerArg::SglangHttp => Some(HttpApi::SglangOmni),
        ServerArg::OpenaiAudio => Some(HttpApi::OpenaiAudio),
        _ => None,
    };
    let dialect = match (args.server, args.as_documented) {
        (ServerArg::Legacy, documented) => SimDialect::Legacy { follows_document: documented },
        (ServerArg::Vllm, false) => SimDialect::VllmOmni,
        (ServerArg::Backend, false) => SimDialect::LlamaCppOmni,
        (ServerArg::Sglang, false) => SimDialect::SglangOmni,
        (_, false) => SimDialect::Current,
        (_, true) => {
            return Err(CommandError::usage("--as-documented works only with --server legacy"));
        }
    };
    if matches!(args.server, ServerArg::Legacy | ServerArg::Vllm) && args.backend == BackendArg::Cpp {
        return Err(CommandError::usage("--backend cpp works only with --server demo or backend"));
    }
    let stop = stop_signal()?;
    let engines = match &args.engines {
        Some(dir) => Some(start_engines(dir).await?),
        None => None,
    };
    // A server of requests answers several at a time.
    let workers = if http_api.is_some() { HTTP_WORKERS } else { dialect.default_workers() };
    let config =
        SimulatorConfig { dialect, http_api, workers, backend, faults, ..SimulatorConfig::default() };
    let mut simulator = socket::bind(&args.listen, config)
        .await
        .map_err(|error| CommandError::failed(format!("cannot listen on {}: {error}", args.listen)))?;
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    // A server whose output is not read goes on.
    let _ = output::print_line(format_args!("listening on {}", simulator.local_addr()));
    simulator
        .run(async {
            stop.await;
        })
        .await;
    Ok(())
}

/// Starts real speech engines for the simulated model.
pub(super) async fn start_engines(dir: &Path) -> Result<Arc<dyn SpeechEngines>, CommandError> {
    let engines = EngineProcess::start(dir).await.map_err(CommandError::usage)?;
    Ok(Arc::new(engines))
}
