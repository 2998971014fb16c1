//! The servers of a demo: simulated MiniCPM-o servers, and the bridge in front of them.

use std::{net::SocketAddr, sync::Arc};

use crate::{
    cli::{
        args::{DemoArgs, ServerArg},
        commands::CommandError,
        demo::RECORDING,
        running_server::RunningServer,
        simulated_server,
    },
    config::{Config, UpstreamConfig},
    server::{Server, ServiceConfig, tap::Tap},
    session::DEFAULT_VOICE,
    simulator::engines::SpeechEngines,
};

/// Addresses of the bridge and the simulated model with `--stay`, for clients that are configured once.
const STAY_ADDRESSES: (&str, &str) = ("127.0.0.1:8000", "127.0.0.1:8006");
const ANY_ADDRESS: &str = "127.0.0.1:0";

/// The running servers.
pub(super) struct DemoServers {
    /// Address of the bridge.
    pub(super) address: SocketAddr,
    /// URL of the simulated model.
    pub(super) upstream: String,
    bridge: RunningServer,
    simulators: Vec<RunningServer>,
}

impl DemoServers {
    /// Starts all. `config` is that of the bridge, without its upstreams.
    pub(super) async fn start(
        args: &DemoArgs,
        engines: Option<Arc<dyn SpeechEngines>>,
        mut config: Config,
        tap: Option<Arc<dyn Tap>>,
    ) -> Result<Self, CommandError> {
        let (listen, listen_simulator) = if args.stay { STAY_ADDRESSES } else { (ANY_ADDRESS, ANY_ADDRESS) };
        let mut simulators = Vec::new();
        let addresses = [listen_simulator, ANY_ADDRESS];
        for (server, address) in args.server.deployments().zip(addresses) {
            let simulator = simulated_server::bind(address, server.simulator_config(), engines.clone());
            let simulator = simulator.await.map_err(|error| bind_error(address, &error))?;
            config.upstream.push(UpstreamConfig {
                url: server.url(simulator.local_addr()),
                dialect: server.dialect().to_owned(),
                model: server.model().map(str::to_owned),
                ..UpstreamConfig::with_default_dialect()
            });
            simulators.push(simulator);
        }
        let upstream = config.upstream[0].url.clone();
        let calls = config.webrtc.addresses().map_err(CommandError::usage)?;
        let mut service = build_service(args.server, config)?;
        service.tap = tap;
        service.simulated = true;
        let mut server = Server::bind(listen, service).await.map_err(|error| bind_error(listen, &error))?;
        if let Some(addresses) = calls {
            server.bind_calls(addresses).await.map_err(CommandError::failed)?;
        }
        let simulators = simulators
            .into_iter()
            .map(|simulator| RunningServer::start(|stopped| simulator.run(async { drop(stopped.await) })));
        Ok(Self {
            address: server.local_addr().map_err(CommandError::failed)?,
            upstream,
            simulators: simulators.collect(),
            bridge: RunningServer::start(|stopped| server.run(async { drop(stopped.await) })),
        })
    }

    /// Stops the bridge first, so that its lanes close their simulator sessions cleanly.
    pub(super) async fn stop(self) {
        self.bridge.stop().await;
        for simulator in self.simulators {
            simulator.stop().await;
        }
    }
}

/// Builds the bridge's service. Where the simulated server speaks only with a voice, that is the voice of the built-in
/// recording.
fn build_service(server: ServerArg, mut config: Config) -> Result<ServiceConfig, CommandError> {
    let voice = std::env::temp_dir().join(format!("voxbridge-demo-{}.wav", std::process::id()));
    if server == ServerArg::Vllm {
        std::fs::write(&voice, RECORDING).map_err(CommandError::failed)?;
        config.voices.insert(DEFAULT_VOICE.to_owned(), voice.clone());
    }
    let service = config.build_service();
    // Most servers need no voice, so that there is no file.
    let _ = std::fs::remove_file(&voice);
    service.map_err(|problem| {
        CommandError::usage(format!(
            "this demo cannot run on the simulated server: {problem}; --talk uses the profile conversation, --openai \
             assistant, and the plain demo speech"
        ))
    })
}

fn bind_error(address: &str, error: &std::io::Error) -> CommandError {
    CommandError::failed(format!(
        "cannot listen on {address}: {error}; without --stay, the demo uses free ports"
    ))
}
