//! `voxbridge simulate`.

use std::{path::Path, sync::Arc};

use super::{Failure, layers::log_config, stop_signal};
use crate::{
    cli::args::{BackendArg, SimulateArgs},
    simulator::{Backend, Fault, SimulatorConfig, engines::Engines, process::EngineProcess, socket},
    telemetry,
};

pub(super) async fn run(args: SimulateArgs) -> Result<(), Failure> {
    let faults = args.faults.iter().map(|fault| fault.parse::<Fault>());
    let faults =
        faults.collect::<Result<Vec<_>, _>>().map_err(|error| Failure::usage(format!("--fault: {error}")))?;
    telemetry::init(&log_config(args.log)).map_err(Failure::usage)?;
    let backend = match args.backend {
        BackendArg::Pytorch => Backend::Pytorch,
        BackendArg::Cpp => Backend::Cpp,
    };
    let stop = stop_signal()?;
    let engines = match &args.engines {
        Some(dir) => Some(start_engines(dir).await?),
        None => None,
    };
    let config = SimulatorConfig { backend, faults, ..SimulatorConfig::default() };
    let mut simulator = socket::bind(args.listen, config)
        .await
        .map_err(|error| Failure::failed(format!("cannot listen on {}: {error}", args.listen)))?;
    if let Some(engines) = engines {
        simulator = simulator.with_engines(engines);
    }
    println!("listening on {}", simulator.local_addr());
    simulator.run(stop).await;
    Ok(())
}

/// Real engines for the simulated model.
pub(super) async fn start_engines(dir: &Path) -> Result<Arc<dyn Engines>, Failure> {
    let engines = EngineProcess::start(dir).await.map_err(Failure::usage)?;
    Ok(Arc::new(engines))
}
