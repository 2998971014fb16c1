//! vLLM-Omni's duplex endpoint as an upstream: the server's own package without a model, and the simulator. The same
//! expectations hold for both.

mod conversations;
mod rules;

use std::net::SocketAddr;

use serde_json::json;
use voxbridge::simulator::{
    Fault, FaultKind, SimDialect, SimTiming, SimulatorConfig,
    socket::{self, FaultInjector},
};
use voxbridge_test_support::{bench::RunningServer, servers::PackageServer};

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
    Package(PackageServer),
    Simulated(SocketAddr, FaultInjector, #[expect(dead_code, reason = "stops when dropped")] RunningServer),
}

impl VllmServer {
    const fn address(&self) -> SocketAddr {
        match self {
            Self::Package(server) => server.address(),
            Self::Simulated(address, ..) => *address,
        }
    }

    const fn name(&self) -> &'static str {
        match self {
            Self::Package(_) => "vllm-omni 0.30.0",
            Self::Simulated(..) => "the simulator",
        }
    }

    /// Refuses the next appends for want of room.
    async fn refuse_appends(&self, count: u32) {
        match self {
            Self::Package(server) => server.script(json!({"refuse_appends": count})).await,
            Self::Simulated(_, faults, _) => {
                faults.inject(Fault::from(FaultKind::InputBackpressure).times(count)).await;
            }
        }
    }
}

/// The simulator, and the package where its tools are installed.
async fn servers(setup: Setup) -> Vec<VllmServer> {
    let config = SimulatorConfig {
        dialect: SimDialect::VllmOmni,
        workers: setup.max_sessions,
        turn_units: setup.turn_units,
        timing: SimTiming::instant(),
        ..SimulatorConfig::default()
    };
    let simulator = socket::bind("127.0.0.1:0", config).await.unwrap();
    let (address, faults) = (simulator.local_addr(), simulator.fault_injector());
    let running = RunningServer::start(|stop| simulator.run(stop));
    let mut servers = vec![VllmServer::Simulated(address, faults, running)];
    let sessions = setup.max_sessions.to_string();
    if let Some(package) = PackageServer::vllm_omni(&["--max-sessions", &sessions]) {
        package.script(json!({"turn_units": setup.turn_units})).await;
        servers.push(VllmServer::Package(package));
    }
    servers
}
