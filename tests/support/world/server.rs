//! The server of a harness: a gateway, or another bridge before a gateway.

use std::time::{Duration, Instant};

use voxbridge::simulator::{SimInput, SimOutput, SimulatorConfig};

use super::{gateway::VirtualGateway, second_bridge::SecondBridge};

pub(super) struct VirtualServer {
    gateway: VirtualGateway,
    bridge: Option<SecondBridge>,
}

impl VirtualServer {
    /// A gateway that starts at this instant, and at this time of day; behind another bridge if the test has two.
    pub(super) fn new(config: SimulatorConfig, at: Instant, unix: Duration, has_second_bridge: bool) -> Self {
        let bridge = has_second_bridge.then(SecondBridge::new);
        Self { gateway: VirtualGateway::new(config, at, unix), bridge }
    }

    /// The same kind of server without sessions.
    pub(super) fn replaced(&self, config: SimulatorConfig, at: Instant, unix: Duration) -> Self {
        Self::new(config, at, unix, self.bridge.is_some())
    }

    pub(super) fn input(&mut self, now: Instant, input: SimInput<'_>) -> Vec<SimOutput> {
        match &mut self.bridge {
            Some(bridge) => bridge.input(&mut self.gateway, now, input),
            None => self.gateway.input(now, input),
        }
    }

    /// The instant at which it wants to be called; `None` if it waits for an input.
    pub(super) fn wait(&self) -> Option<Instant> {
        let bridge = self.bridge.as_ref().and_then(SecondBridge::wait);
        [bridge, self.gateway.wait].into_iter().flatten().min()
    }

    /// Number of its connections. With another bridge: of that bridge's sessions, and of connections that belong to none.
    pub(super) fn connection_count(&self) -> usize {
        let connections = self.gateway.connection_count();
        match &self.bridge {
            Some(bridge) => bridge.session_count() + connections.saturating_sub(bridge.lane_count()),
            None => connections,
        }
    }

    pub(super) fn lost_worker_count(&self) -> usize {
        self.gateway.lost_worker_count()
    }
}
