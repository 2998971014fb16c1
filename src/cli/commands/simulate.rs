//! `voxbridge simulate`: runs the simulated MiniCPM-o server.

use super::{CommandError, stop_signal};
use crate::{
    cli::{
        args::{BackendArg, ServerArg, SimulateArgs},
        output, simulated_server,
    },
    config::Config,
    simulator::{Backend, Fault, SimDialect, SimulatorConfig},
};

pub(super) async fn run(args: SimulateArgs) -> Result<(), CommandError> {
    let faults = args.faults.iter().map(|fault| fault.parse::<Fault>());
    let faults = faults
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| CommandError::usage(format!("--fault: {error}")))?;
    let config = Config::load(None, &args.log.settings).map_err(CommandError::usage)?;
    config.log.start_log(None).map_err(CommandError::usage)?;
    let backend = match args.backend {
        BackendArg::Pytorch => Backend::Pytorch,
        BackendArg::Cpp => Backend::Cpp,
    };
    let counts_tokens = args.counts_tokens;
    let mut config = SimulatorConfig { backend, faults, counts_tokens, ..args.server.simulator_config() };
    if args.as_documented {
        if args.server != ServerArg::Legacy {
            return Err(CommandError::usage("--as-documented works only with --server legacy"));
        }
        config.dialect = SimDialect::Legacy { follows_document: true };
    }
    if matches!(args.server, ServerArg::Legacy | ServerArg::Vllm | ServerArg::VllmNext)
        && args.backend == BackendArg::Cpp
    {
        return Err(CommandError::usage("--backend cpp works only with --server demo or backend"));
    }
    let stop = stop_signal()?;
    let engines = match (&args.engines, &args.recordings) {
        (Some(dir), _) => Some(simulated_server::start_engines(dir).await?),
        (None, Some(dir)) => Some(simulated_server::known_speech(dir.as_deref()).await?),
        (None, None) => None,
    };
    let simulator = simulated_server::bind(&args.listen, config, engines)
        .await
        .map_err(|error| CommandError::failed(format!("cannot listen on {}: {error}", args.listen)))?;
    // A server whose output is not read goes on.
    let _ = output::print_line(format_args!("listening on {}", simulator.local_addr()));
    simulator
        .run(async {
            stop.await;
        })
        .await;
    Ok(())
}
