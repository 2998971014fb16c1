//! `voxbridge simulate`: runs the simulated MiniCPM-o server.

use std::{path::Path, sync::Arc};

use super::{CommandError, config_layers::log_config, stop_signal};
use crate::{
    cli::{
        args::{BackendArg, ServerArg, SimulateArgs},
        output,
    },
    simulator::{
        Backend, Fault, SimDialect, SimulatorConfig, engines::SpeechEngines, process::EngineProcess, socket,
    },
};

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
    let dialect = match (args.server, args.as_documented) {
        (ServerArg::Legacy, documented) => SimDialect::Legacy { follows_document: documented },
        (ServerArg::Demo, false) => SimDialect::Current,
        (ServerArg::Vllm, false) => SimDialect::VllmOmni,
        (ServerArg::Backend, false) => SimDialect::LlamaCppOmni,
        (ServerArg::Sglang, false) => SimDialect::SglangOmni,
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
    let workers = dialect.default_workers();
    let config = SimulatorConfig { dialect, backend, workers, faults, ..SimulatorConfig::default() };
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
