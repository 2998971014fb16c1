//! vLLM-Omni's duplex endpoint as an upstream: the server's own package without a model, and the simulator. The same
//! expectations hold for both.

mod conversations;
mod outages;
mod plugins;
mod rules;

use conversations::{bench_at, finals};
use voxbridge::simulator::{
    VllmVersion,
    socket::{self, FaultInjector},
};

use super::*;

/// Settings of a server, in the terms of the package's own script.
#[derive(Clone, Copy)]
struct Setup {
    max_sessions: usize,
    turn_units: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { max_sessions: 4, turn_units: 3 }
    }
}

/// A running server of either kind.
enum VllmServer {
    Package(VllmVersion, PackageServer),
    Simulated(
        VllmVersion,
        SocketAddr,
        FaultInjector,
        #[expect(dead_code, reason = "stops when dropped")] RunningServer,
    ),
}

impl VllmServer {
    const fn address(&self) -> SocketAddr {
        match self {
            Self::Package(_, server) => server.address(),
            Self::Simulated(_, address, ..) => *address,
        }
    }

    const fn version(&self) -> VllmVersion {
        match self {
            Self::Package(version, _) | Self::Simulated(version, ..) => *version,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Package(VllmVersion::V0_30, _) => "vllm-omni 0.30.0",
            Self::Package(VllmVersion::V0_32, _) => "vllm-omni 0.32.0rc1",
            Self::Simulated(VllmVersion::V0_30, ..) => "the simulator",
            Self::Simulated(VllmVersion::V0_32, ..) => "the simulator of 0.32",
        }
    }

    /// Refuses the next appends for want of room.
    async fn refuse_appends(&self, count: u32) {
        match self {
            Self::Package(_, server) => server.script(json!({"refuse_appends": count})).await,
            Self::Simulated(_, _, faults, _) => {
                faults.inject(Fault::from(FaultKind::InputBackpressure).times(count)).await;
            }
        }
    }
}

/// The simulator, and the package where its tools are installed, in both versions.
async fn servers(setup: Setup) -> Vec<VllmServer> {
    let mut servers = Vec::new();
    for version in [VllmVersion::V0_30, VllmVersion::V0_32] {
        servers.push(simulated(version, setup).await);
        servers.extend(packaged(version, setup).await);
    }
    servers
}

async fn simulated(version: VllmVersion, setup: Setup) -> VllmServer {
    let config = SimulatorConfig {
        dialect: SimDialect::VllmOmni,
        vllm_version: version,
        workers: setup.max_sessions,
        turn_units: setup.turn_units,
        timing: SimTiming::instant(),
        ..SimulatorConfig::default()
    };
    let simulator = socket::bind("127.0.0.1:0", config).await.unwrap();
    let (address, faults) = (simulator.local_addr(), simulator.fault_injector());
    let running = RunningServer::start(|stop| simulator.run(stop));
    VllmServer::Simulated(version, address, faults, running)
}

async fn packaged(version: VllmVersion, setup: Setup) -> Option<VllmServer> {
    let sessions = setup.max_sessions.to_string();
    let options = ["--max-sessions", &*sessions];
    let package = match version {
        VllmVersion::V0_30 => PackageServer::vllm_omni(&options),
        VllmVersion::V0_32 => PackageServer::vllm_omni_next(&options),
    }?;
    package.script(json!({"turn_units": setup.turn_units})).await;
    Some(VllmServer::Package(version, package))
}
