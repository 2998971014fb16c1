//! The servers of a demo: a simulated MiniCPM-o, and the bridge in front of it.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use indicatif::ProgressBar;

use crate::{
    cli::{
        commands::{CommandError, simulate::start_engines},
        output,
        running_server::RunningServer,
    },
    config::{Config, UpstreamConfig},
    server::{Server, tap::Tap},
    simulator::{SimulatorConfig, engines::SpeechEngines, process, socket},
};

/// Addresses of the bridge and the simulated model with `--stay`, for clients that are configured once.
const STAY_ADDRESSES: (&str, &str) = ("127.0.0.1:8000", "127.0.0.1:8006");
const ANY_ADDRESSES: (&str, &str) = ("127.0.0.1:0", "127.0.0.1:0");
/// Default output directory of `examples/engines/setup`.
const DEFAULT_ENGINES_DIR: &str = "target/engines";

/// The running servers.
pub(super) struct DemoServers {
    /// Address of the bridge.
    pub(super) address: SocketAddr,
    /// URL of the simulated model.
    pub(super) upstream: String,
    bridge: RunningServer,
    simulator: RunningServer,
}

impl DemoServers {
    /// Starts both. `config` is that of the bridge, without its upstream.
    pub(super) async fn start(
        fixed_addresses: bool,
        engines: Option<Arc<dyn SpeechEngines>>,
        mut config: Config,
        tap: Option<Arc<dyn Tap>>,
    ) -> Result<Self, CommandError> {
        let (listen, listen_simulator) = if fixed_addresses { STAY_ADDRESSES } else { ANY_ADDRESSES };
        let mut simulator = socket::bind(listen_simulator, SimulatorConfig::default())
            .await
            .map_err(|error| bind_error(listen_simulator, &error))?;
        if let Some(engines) = engines {
            simulator = simulator.with_engines(engines);
        }
        let upstream = format!("ws://{}/v1/realtime", simulator.local_addr());
        config.upstream =
            vec![UpstreamConfig { url: upstream.clone(), ..UpstreamConfig::with_default_dialect() }];
        let mut service = config.build_service().map_err(CommandError::failed)?;
        service.tap = tap;
        service.simulated = true;
        let server = Server::bind(listen, service).await.map_err(|error| bind_error(listen, &error))?;
        Ok(Self {
            address: server.local_addr().map_err(CommandError::failed)?,
            upstream,
            bridge: RunningServer::start(|stopped| server.run(async { drop(stopped.await) })),
            simulator: RunningServer::start(|stopped| simulator.run(async { drop(stopped.await) })),
        })
    }

    /// Stops the bridge first, so that its lanes close their simulator sessions cleanly.
    pub(super) async fn stop(self) {
        self.bridge.stop().await;
        self.simulator.stop().await;
    }
}

fn bind_error(address: &str, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!(
        "cannot listen on {address}: {error}; without --stay, the demo uses free ports"
    ))
}

/// Starts the speech engines in the given or the default directory. Without engines, the simulated model hums.
pub(super) async fn load_engines(
    directory: Option<&Path>,
) -> Result<Option<Arc<dyn SpeechEngines>>, CommandError> {
    let dir = directory.map_or_else(|| PathBuf::from(DEFAULT_ENGINES_DIR), Path::to_path_buf);
    if directory.is_none() && process::find_engines(&dir).is_err() {
        output::print_line(
            "The simulated model does not recognise words; run examples/engines/setup once to use real speech engines.\n",
        )?;
        return Ok(None);
    }
    output::print_line(format_args!(
        "The simulated model uses real speech engines from {}.\n",
        dir.display()
    ))?;
    // The spinner is invisible without a terminal.
    let spinner = ProgressBar::new_spinner().with_message("loading the speech engines");
    spinner.enable_steady_tick(Duration::from_millis(100));
    let engines = start_engines(&dir).await;
    spinner.finish_and_clear();
    engines.map(Some)
}
