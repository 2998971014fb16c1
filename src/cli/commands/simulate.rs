//! `voxbridge simulate`.

use std::{path::Path, sync::Arc};

use super::{Failure, config_layers::log_config, stop_signal};
use crate::{
    cli::args::{BackendArg, DialectArg, SimulateArgs},
    simulator::{Backend, Dialect, Fault, SimulatorConfig, engines::Engines, process::EngineProcess, socket},
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
    let dialect = match (args.dialect, args.by_the_book) {
        (DialectArg::MinicpmOLegacy, documented) => Dialect::Legacy { documented },
        (DialectArg::MinicpmO, false) => Dialect::Current,
        (DialectArg::MinicpmO, true) => {
            let words =
                "--by-the-book: only --dialect minicpm-o-legacy has a book that its server does not keep to";
            return Err(Failure::usage(words));
        }
    };
    if dialect != Dialect::Current && args.backend == BackendArg::Cpp {
        return Err(Failure::usage("--backend cpp: it does not speak --dialect minicpm-o-legacy"));
    }
    let stop = stop_signal()?;
    let engines = match &args.engines {
        Some(dir) => Some(start_engines(dir).await?),
        None => None,
    };
    let config = SimulatorConfig { dialect, backend, faults, ..SimulatorConfig::default() };
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
